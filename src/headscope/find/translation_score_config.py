"""How translation scores are made: the settings, and which aligner they take."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from headscope import options
from headscope.data import align
from headscope.data.align import EFLOMAL, LlmAligner
from headscope.data.chat import ALIGNING, chat_part, check_endpoint, default_cache
from headscope.data.pairs import PairFile
from headscope.data.prompts import DEFAULT_TEMPLATE, TEMPLATE_OPTION, Template, TemplateField
from headscope.errors import InputError, OptionalPart
from headscope.find.scoring import Resampled
from headscope.settings import GIVEN, UNSIGNED, MadeBy, Nested, Option, Settings


def llm_aligner(
    aligner: options.Aligner = None,
    llm_model: options.LlmModel = None,
    base_url: options.BaseUrl = None,
    confidence: options.Confidence = 0.9,
    cache: Path | None = None,
) -> LlmAligner | None:
    """The annotator that `--aligner llm` asks; None for every other aligner."""
    if aligner != "llm":
        return None
    if llm_model is None:
        raise InputError("--aligner llm needs the name of a model; add --llm-model NAME")
    return LlmAligner(llm_model, base_url, cache or default_cache("align"), threshold=confidence)


@dataclass(frozen=True)
class HeadLinks(Settings):
    """How the attention of heads links words (see `headscope.find.head_links`).

    The defaults were chosen on the development sets of XL-WA (`bench/head_links.py`).
    """

    heads: Annotated[
        str | None,
        Option(
            "Heads of --aligner heads: a run, a file, a list; without it found by eflomal's links.",
            flag="--align-heads",
            metavar="HEADS",
            panel="Expert",
        ),
    ] = None
    k: Annotated[
        int | None,
        Option(
            "How many of the best; without it 10, at most a quarter.",
            "--align-k",
            min=1,
            panel="Expert",
        ),
    ] = None
    rows: Annotated[
        options.QueryName | None,
        Option(
            "Of a word's own tokens, or those before; without it the better.",
            "--align-rows",
            panel="Expert",
        ),
    ] = None
    weights: Annotated[
        Literal["mass", "peak"],
        Option(
            "Softmax weights on source words, or where the largest is.",
            "--align-weights",
            panel="Expert",
        ),
    ] = "mass"
    prompts: Annotated[
        Literal["multiplied", "apart", "one"],
        Option(
            "Both ways, multiplied or each linking one direction; or one way.",
            "--align-prompts",
            panel="Expert",
        ),
    ] = "multiplied"
    join: Annotated[
        Literal["intersection", "union", "grow-diag", "grow-diag-final-and"],
        Option(
            "How links of source and of target words are joined.", "--align-join", panel="Expert"
        ),
    ] = "intersection"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.heads is not None and not self.heads.strip():
            raise InputError("--align-heads names no heads; name some, or leave it out")


def _given(**values: Any) -> HeadLinks | None:
    """None for the defaults, so that runs of other aligners keep their signatures."""
    made = HeadLinks(**values)
    return None if made == HeadLinks() else made


#: How settings that have an aligner hold `HeadLinks`.
HEAD_LINKS = Nested(make=_given)


@dataclass(frozen=True)
class TranslationScore(Resampled):
    """How to score.

    Attributes:
        decode: "reference", the reference translation in one forward pass (teacher forcing), or
            "greedy", the model's own output, captured while it is generated (the paper).
        scope: "all" keys a query can see, or the "source" tokens only.
        query: "predict", the row that predicts the target token (the paper), or "read", its own.
        average: "macro", the mean of sentence scores (the paper), or "micro", over all tokens.
        aligner: "links", "eflomal", "llm" or "heads"; None: the data's links if it has them, else
            eflomal.
        head_links: how "heads" links words; None: as by default.
        chat: whether prompts go through the chat template; None: where the tokenizer has one.
        answer_only: score the answer in an output of "greedy" alone, not what stands around it.
        skip_identical: leave out target tokens whose aligned word has the same surface form.
        max_new_tokens: limit of "greedy"; None: twice the source tokens and 32.
        chance_draws: other sentences whose links give each sentence's chance.
        keep_peaks: keep all peaks in the run folder when it is finished, so that it can be scored
            again without the model; else those of few heads (`headscope.find.capture.keep_peaks`).
    """

    decode: options.Decode = "reference"
    scope: options.Scope = "all"
    query: options.Query = "predict"
    average: options.Average = "macro"
    skip_identical: options.SkipIdentical = False
    aligner: options.Aligner = None
    llm: Annotated[LlmAligner | None, MadeBy(llm_aligner)] = None
    head_links: Annotated[HeadLinks | None, HEAD_LINKS] = field(default=None, metadata=GIVEN)
    template: Annotated[TemplateField[Template], TEMPLATE_OPTION] = TemplateField(
        DEFAULT_TEMPLATE, Template
    )
    chat: options.Chat = None
    answer_only: options.AnswerOnly = field(default=None, metadata=GIVEN)
    max_new_tokens: options.MaxNewTokens = None
    chance_draws: int = 20
    seed: options.Seed = 0
    batch_tokens: options.BatchTokens = field(default=8192, metadata=UNSIGNED)
    keep_peaks: options.KeepPeaks = field(default=False, metadata=UNSIGNED)

    def parts(self) -> Iterator[OptionalPart]:
        """What links words, as far as it does not depend on the data."""
        yield from super().parts()
        if self.llm is not None:
            yield chat_part(ALIGNING)
        elif self.aligner == "eflomal" or self.found_by_links:
            yield EFLOMAL

    @property
    def found_by_links(self) -> bool:
        """Whether heads link words that eflomal's links have to find first."""
        how = self.head_links or HeadLinks()
        return self.aligner == "heads" and not (how.heads and how.rows)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.chance_draws < 0:
            raise InputError("chance_draws must be 0 or more")
        if self.head_links is not None and self.aligner != "heads":
            raise InputError("--align-heads and its kin are for --aligner heads; add it")


def by_heads(**values: Any) -> TranslationScore:
    """Settings of links by heads if no other aligner is named."""
    return TranslationScore(**{"aligner": "heads", **values})


#: The settings that have no say where words are linked and no head is scored.
NOT_LINKING = (
    "decode", "scope", "query", "average", "skip_identical", "answer_only", "max_new_tokens",
    "keep_peaks",
)  # fmt: skip


def check_aligner(pairs: PairFile, config: TranslationScore) -> None:
    """Raise `InputError` if these pairs cannot be aligned as the configuration asks.

    `MissingExtra` if it asks for an aligner that is not installed, and `EndpointError` for an
    endpoint that cannot be asked.
    """
    if config.llm is not None:
        check_endpoint(config.llm, ALIGNING)
    if config.found_by_links:
        align.check_aligner(pairs, "eflomal")
    if config.decode != "greedy":
        align.check_aligner(pairs, config.aligner)
    elif config.aligner == "links":
        raise InputError(
            f"{pairs.path}: greedy decoding scores the model's own output, which the data's links "
            "do not cover; use --aligner eflomal or llm, or --decode reference"
        )
    elif config.aligner != "llm":
        align.check_aligner(pairs, "eflomal")
