"""How Translation Scores are computed: what the paper fixes, and what may be chosen."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from headscope.data.align import LlmAligner
from headscope.data.prompts import DEFAULT_TEMPLATE, Template, TemplateField
from headscope.errors import InputError

__all__ = ["TranslationScore"]


@dataclass(frozen=True)
class TranslationScore:
    """How to score.

    Attributes:
        decode: "reference", the reference translation in one forward pass (teacher forcing), or
            "greedy", the model's own output, captured while it is generated (the paper).
        scope: "all" keys a query can see, or the "source" tokens only.
        query: "predict", the row that predicts the target token (the paper), or "read", its own.
        average: "macro", the mean of sentence scores (the paper), or "micro", over all tokens.
        aligner: "links", "eflomal" or "llm"; None: the data's links if it has them, else eflomal.
        llm: the annotator for "llm".
        template: the prompt up to where the target begins.
        chat: whether prompts go through the chat template; None: where the tokenizer has one.
        skip_identical: leave out target tokens whose aligned word has the same surface form.
        max_new_tokens: limit of "greedy"; None: twice the source tokens and 32.
        chance_draws: other sentences whose links give each sentence's chance.
        bootstrap_draws, level: of the interval over sentences.
        seed: of the draws.
        batch_tokens: padded tokens of a batch.
        keep_peaks: keep all peaks in the run folder when it is finished, so that it can be scored
            again without the model; else those of few heads (`headscope.find.capture.keep_peaks`).
    """

    decode: Literal["reference", "greedy"] = "reference"
    scope: Literal["all", "source"] = "all"
    query: Literal["predict", "read"] = "predict"
    average: Literal["macro", "micro"] = "macro"
    aligner: Literal["links", "eflomal", "llm"] | None = None
    llm: LlmAligner | None = None
    template: TemplateField[Template] = TemplateField(DEFAULT_TEMPLATE, Template)
    chat: bool | None = None
    skip_identical: bool = False
    max_new_tokens: int | None = None
    chance_draws: int = 20
    bootstrap_draws: int = 1000
    level: float = 0.95
    seed: int = 0
    batch_tokens: int = field(default=8192, metadata={"signature": False})
    keep_peaks: bool = field(default=False, metadata={"signature": False})

    def __post_init__(self) -> None:
        for name, known in (
            ("decode", ("reference", "greedy")),
            ("scope", ("all", "source")),
            ("query", ("predict", "read")),
            ("average", ("macro", "micro")),
        ):
            if getattr(self, name) not in known:
                raise InputError(
                    f"{name} is {getattr(self, name)!r}; it must be {' or '.join(known)}"
                )
        if self.chance_draws < 0 or self.bootstrap_draws < 1:
            raise InputError("chance_draws must be 0 or more and bootstrap_draws 1 or more")
        if self.batch_tokens < 1 or (self.max_new_tokens is not None and self.max_new_tokens < 1):
            raise InputError("batch_tokens and max_new_tokens must be 1 or more")
        if not 0 < self.level < 1:
            raise InputError(f"level is {self.level}; it must lie between 0 and 1, such as 0.95")
