"""Leading a model that answers in the wrong language back, by turning heads of a language up.

LAHIS (Liu et al. 2025, arXiv 2511.07498) moves a model between languages by multiplying the heads
of one by 3 or those of the other by 0. Here the model is asked for answers in a language; counted
is how many are in another one as it is, with that language's heads multiplied by each factor, with
the heads of the language it strays to removed, and with as many random heads multiplied alike.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from headscope import options
from headscope.data.files import write_text_atomically
from headscope.data.languages import language_name
from headscope.data.pairs import PairFile
from headscope.data.prompts import DEFAULT_TEMPLATE
from headscope.errors import InputError
from headscope.evidence.blocks import dose_lines
from headscope.evidence.controls import SelectedHeads
from headscope.evidence.headline import unmoved
from headscope.evidence.rows import Evidence
from headscope.evidence.table import own_heads
from headscope.evidence.texts import TEXT_MEASURES, MeasuredTexts
from headscope.heads import Amount, HeadSet, Rank, read_scores
from headscope.heads.adaptation import Adaptation
from headscope.heads.geometry import keys_of
from headscope.heads.resolve import place_of
from headscope.results.writing import Steering, SteeringDetails
from headscope.settings import UNSIGNED, Option
from headscope.shown.blocks import Section
from headscope.studies.comparison import (
    Bench,
    Chosen,
    Comparing,
    Comparison,
    Examples,
    Measured,
)
from headscope.studies.comparison_page import Extras, Words
from headscope.studies.documents import DocumentsChoice, read_languages
from headscope.studies.models import POCKET
from headscope.studies.pairs import PairsChoice, read_directions
from headscope.studies.use.gates import GateChoice, factors_section
from headscope.studies.use.gates import about as about_gate
from headscope.studies.use.prompts import (
    GivenPrompt,
    OneLine,
    PromptsChoice,
    prompts_digest,
    rendered,
)
from headscope.studies.verify.writing import (
    SHARE,
    about_prompts,
    few_prompts,
    groups_of,
    keep_numbers,
    languages_section,
    mended,
    sent_of,
    unmeasured,
    writing_cases,
    writing_extras,
    writing_heads,
)
from headscope.verify.language_texts.conditions import NAMED, OWN
from headscope.verify.removal_translations.conditions import check_gate
from headscope.verify.writing.measures import identified, identified_rows, languages_of, measured
from headscope.verify.writing.texts import Group, Prompt, write

if TYPE_CHECKING:
    from headscope.lm import LanguageModel

FACTORS = (0.5, 1.5, 2.0, 3.0, 5.0)
#: Prompts of each language where the pocket model's own are taken.
PROMPTS = 60
#: New tokens of an answer where nobody says.
NEW_TOKENS = 64
#: Characters of a text that leads astray.
BEFORE = 1000
#: What is to be proved: fewer answers in another language, closer to the references; and whether
#: more are empty.
STATISTICS = {name: TEXT_MEASURES[name].statistic for name in ("off_target", "empty", "chrf")}

ChosenBy = Literal["specific", "importance"]
#: Answers by language, condition and prompt.
Texts = list[list[list[str]]]


@dataclass(frozen=True, kw_only=True)
class Steer(Comparing):
    """A whole run of the command with `--steer`.

    Attributes:
        heads: a run of LAHIS, or heads that `resolve_heads` reads, which then stand for every
            language; they count in the signature, not their place.
        k: how many heads of each; None: 1 % for a run of LAHIS, a named set whole.
        gate: what is on the model in every condition, such as a mask that leads it astray.
        prompts: file of the only language's prompts, and how it is read.
        data: files by language, as `LANG=FILE`, if there are several.
        max_new_tokens: of an answer; None: 64.
        seed: of the draws and tests, and of the pocket model's sentences.
        rank: what scores are ranked by.
    """

    languages: Annotated[
        tuple[str, ...],
        Option(
            "Instead count answers in another language than this one, with its heads multiplied by "
            "each --factor; repeatable.",
            flag="--steer",
            metavar="LANG",
            default=None,
        ),
    ]
    heads: str = field(metadata=UNSIGNED)
    k: Amount | None = field(default=None, metadata=UNSIGNED)
    ranking: Annotated[
        ChosenBy,
        Option(
            "To --steer: heads specific to the language, or the most important ones.",
            panel="Expert",
        ),
    ] = "specific"
    factors: Annotated[
        tuple[float, ...],
        Option(
            "To --steer; repeatable; without it 0.5, 1.5, 2, 3, 5.", flag="--factor", metavar="X"
        ),
    ] = FACTORS
    away: Annotated[
        str | None,
        Option(
            "To --steer: also remove the heads of this language, as a condition of its own.",
            metavar="LANG",
            panel="Expert",
        ),
    ] = None
    gate: GateChoice | None = None
    prompts: PromptsChoice = field(default_factory=PromptsChoice)
    data: Annotated[
        tuple[str, ...],
        Option(
            "Prompts: text file (.txt, one a line), or JSON Lines, Parquet, CSV, … with texts or "
            "chat messages; to --steer several languages, LANG=FILE, repeatable.",
            metavar="FILE",
            held="documents",
            panel="Data",
        ),
    ] = field(default=(), metadata=UNSIGNED)
    max_new_tokens: options.MaxNewTokens = None
    one_line: OneLine = False
    rank: Rank = field(default="above-chance", metadata=UNSIGNED)

    def __post_init__(self) -> None:
        if not self.languages:
            raise InputError("no language is named to lead the model to; give --steer CODE")
        for code in (*self.languages, *([self.away] if self.away else [])):
            language_name(code)
        if not self.factors:
            raise InputError("there is no factor; give at least one with --factor, such as 2")
        for factor in self.factors:
            check_gate(factor)
        if len(set(self.factors)) != len(self.factors) or 1 in self.factors:
            raise InputError(
                "factors are given once each, and 1 is the model as it is, which is always there; "
                f"these are {', '.join(f'{given:g}' for given in self.factors)}"
            )
        super().__post_init__()


@dataclass(frozen=True)
class PromptsRead:
    """The prompts of a language, and where they come from, in words."""

    path: str
    prompts: tuple[GivenPrompt, ...]

    @property
    def digest(self) -> str:
        """SHA-256 of the prompts."""
        return prompts_digest(self.prompts)


def _read(config: Steer) -> Examples[PromptsRead]:
    files = _asked_for(config)
    if config.gate is not None:
        config.gate.check()
    return Examples(files, {}, {code: file.digest for code, file in files.items()})


def _ready(
    lm: LanguageModel, config: Steer, examples: Examples[PromptsRead]
) -> tuple[Steer, Examples[PromptsRead]]:
    limit, kinds = config.max_new_tokens or NEW_TOKENS, set[bool]()
    prompts, texts = dict[str, tuple[Prompt, ...]](), dict[str, list[str]]()
    for code, file in examples.parts.items():
        rows = rendered(lm, file.prompts, config.prompts.chat)
        kinds |= {row.special for row in rows}
        texts[code] = [row.text for row in rows]
        prompts[code] = tuple(
            Prompt(row.prompt.id, row.text, row.prompt.reference or "", limit) for row in rows
        )
    if len(kinds) > 1:
        raise InputError(
            "some prompts are texts and others conversations; give them in runs of their own, or "
            "all through the chat template with --chat"
        )
    return config, replace(
        examples, prompted=prompts, sent=sent_of(prompts), texts=texts, chat=kinds == {False}
    )


@dataclass(frozen=True)
class Steered:
    """What is on the model throughout, and the heads of each language."""

    base: Adaptation | None
    heads: Mapping[str, HeadSet]


def _heads(lm: LanguageModel, config: Steer, examples: Examples[PromptsRead]) -> Chosen:
    base = None if config.gate is None else config.gate.read(lm.geometry, lm.name)
    heads = steering_heads(config, lm)
    # Of heads that are gone already nothing can be multiplied: they count on neither side.
    gone = None if base is None else base.gate.removed_heads()
    left = {
        code: HeadSet(lm.geometry, (chosen - gone).heads, chosen.origin) if gone else chosen
        for code, chosen in heads.items()
    }
    sets = {}
    for code in examples.parts:
        if not len(left[code]):
            raise InputError(
                f"the gate that is on the model removes every head that {language_name(code)} was "
                "to be steered with; take more of them with --k, or another gate"
            )
        factors = tuple(sorted(config.factors))
        sets[code] = [SelectedHeads(left[code], OWN, len(heads[code]), factors)]
        if config.away and config.away != code:
            other = left[config.away]
            sets[code].append(SelectedHeads(other, config.away, len(heads[config.away])))
    signed = {"applied": None if base is None else base.as_dict()}
    return Chosen(sets, signed=signed, known=Steered(base, heads), gone=gone)


def _measure(bench: Bench[Steer, PromptsRead]) -> Measured:
    """Beside the result the run holds `prompts.jsonl`, `outputs.jsonl` (a row a language, condition
    and prompt, with the identified language) and `statistics.safetensors`."""
    config, known, groups = bench.config, bench.chosen.known, groups_of(bench)
    texts = _written(bench, groups)
    counts = _measured(groups, texts)
    identifier, named = identified(texts)
    bench.run.write_jsonl("outputs.jsonl", identified_rows(groups, texts, named))
    keep_numbers(bench.run, counts.parts)
    found = bench.table(counts.parts, STATISTICS, helps=lambda condition: True, harmed=("empty",))
    about = {
        "steer": config.languages,
        "away": config.away,
        "ranking": config.ranking,
        "factors": tuple(sorted(config.factors)),
        "gate": None if known.base is None else about_gate(known.base),
        "data": about_prompts(bench),
        "heads": {code: keys_of(chosen) for code, chosen in known.heads.items()},
        "heads_of": own_heads(bench.conditions, found),
        "identifier": identifier,
        "written": languages_of(groups, named),
        "mended": mended(groups, counts.parts),
        "not_measured": counts.missing,
    }
    return Measured(found, about)


def _cautions(found: Evidence, details: SteeringDetails) -> Iterator[str]:
    yield "An answer in the right language may be empty or babble: see the outputs and chrF++, too."
    if (several := len(found.selected)) > 1:
        yield (
            f"The condition with the fewest such answers is one of {several} on these same "
            "answers; p is not corrected for that."
        )
    yield from few_prompts(found, details)


def steering_heads(config: Steer, lm: LanguageModel) -> dict[str, HeadSet]:
    """The heads of each language asked for, and of the one to lead away from.

    Raises `InputError` if a language has none.
    """
    codes = list(dict.fromkeys([*config.languages, *([config.away] if config.away else [])]))
    rows = writing_heads(config.heads, config.k, codes, lm, config.rank)
    heads: dict[str, HeadSet] = {}
    for code in codes:
        if code not in rows:
            raise InputError(
                f"{config.heads}: holds no heads of {language_name(code)} ({code}); name a run of "
                "find lahis with documents in it"
            )
        own = rows[code]
        if own.language == NAMED and config.away:
            raise InputError(
                f"{config.heads}: does not say which heads belong to which language, so none are "
                f"those of {config.away}; name a run of find lahis"
            )
        chosen = own.chosen
        if config.ranking == "importance" and own.language != NAMED:
            scores = read_scores(place_of(config.heads) or config.heads)
            chosen = scores.get(code, scores.get("mean", next(iter(scores.values())))).top(
                config.k or SHARE, config.rank
            )
        if not len(chosen):
            raise InputError(
                f"{config.heads}: no head is specific to {language_name(code)}; take the most "
                "important ones with --ranking importance"
            )
        heads[code] = chosen
    return heads


def _written(bench: Bench[Steer, PromptsRead], groups: Sequence[Group]) -> Texts:
    """The answers by language, condition and prompt."""
    from headscope.lm.generation import GenerateConfig

    config, base = bench.config, bench.chosen.known.base
    special = not bench.examples.chat
    limit = groups[0].prompts[0].limit
    newline = config.one_line or not (config.data or config.prompts.prompt)
    how = GenerateConfig(limit, config.batch_tokens, newline)
    with contextlib.nullcontext() if base is None else bench.lm.adapted(base):
        texts = write(bench.lm, groups, how, bench.run, "writing", bench.progress, special=special)
    given = [
        {"language": code, "id": prompt.id, "prompt": prompt.plain}
        for code, file in bench.parts.items()
        for prompt in file.prompts
    ]
    bench.run.write_jsonl("prompts.jsonl", given)
    return texts


def _asked_for(config: Steer) -> dict[str, PromptsRead]:
    """The prompts of each language."""
    codes, choice = config.languages, config.prompts
    if len(set(codes)) != len(codes):
        raise InputError("--steer names a language twice; name each once")
    if config.data:
        files = dict(file.partition("=")[::2] for file in config.data)
        if len(codes) == 1 and len(config.data) == 1 and codes[0] not in files:
            files = {codes[0]: config.data[0]}
        elif sorted(files) != sorted(codes) or len(config.data) != len(files):
            raise InputError(
                f"prompts are needed for {', '.join(codes)}, each in a file of its own; write "
                + " ".join(f"--data {code}=FILE" for code in codes)
            )
        return {
            code: PromptsRead(files[code], tuple(replace(choice, data=files[code]).read()))
            for code in codes
        }
    if choice.prompt:
        if len(codes) > 1:
            raise InputError("--prompt is for one language; with several give --data LANG=FILE")
        return {codes[0]: PromptsRead("--prompt", tuple(choice.read()))}
    if config.model.model != POCKET:
        raise InputError(
            f"no prompts are given; add --data FILE with prompts that ask for an answer in "
            f"{language_name(codes[0])}, or --prompt TEXT"
        )
    number = choice.limit or PROMPTS
    return {
        code: PromptsRead("pocket (test)", _of_pocket(code, number, config.seed)) for code in codes
    }


def _of_pocket(code: str, number: int, seed: int) -> tuple[GivenPrompt, ...]:
    """Translation prompts into a language of the pocket model, from each of its others in turn."""
    from headscope.pocket.world.languages import CODES

    others = [other for other in CODES if other != code]
    each = -(-number // len(others))
    pairs = PairsChoice(tuple(f"{other}-{code}" for other in others), limit=each)
    prompts = []
    for name, file in read_directions(pairs, POCKET, "test", seed=seed).items():
        names = language_name(file.source_language), language_name(file.target_language)
        for pair in file.pairs:
            text = DEFAULT_TEMPLATE.render(pair.source, *names).text
            prompts.append(GivenPrompt(f"{name} {pair.id}", text, f"{name} {pair.id}", pair.target))
    return tuple(prompts)


def _measured(groups: Sequence[Group], texts: Texts) -> MeasuredTexts:
    """The numbers of each answer by language; chrF++ where every prompt has a reference."""
    referenced = all(prompt.reference for group in groups for prompt in group.prompts)
    names = [name for name in STATISTICS if referenced or name != "chrf"]
    counts = measured(groups, texts, names)
    why = {} if referenced else {"chrf": "not every prompt has a reference"}
    return replace(counts, missing={**counts.missing, **why})


def write_astray(path: Path, pairs: PairFile, before: Sequence[str]) -> Path:
    """A file of translation prompts that lead a model astray: each behind one of these texts.

    The texts are taken in turn; they are in a language that the model is to stray to, such as the
    source language. Rows hold `id`, `text` and `reference`.
    """
    names = language_name(pairs.source_language), language_name(pairs.target_language)
    rows = []
    for at, pair in enumerate(pairs.pairs):
        prompt = DEFAULT_TEMPLATE.render(pair.source, *names).text
        text = "\n".join((before[at % len(before)], prompt)) if before else prompt
        rows.append({"id": pair.id, "text": text, "reference": pair.target})
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    write_text_atomically(path, lines)
    return path


def astray_files(
    folder: Path,
    pairs: PairsChoice,
    documents: DocumentsChoice,
    away: str,
    model: str,
    seed: int = 0,
) -> dict[str, Path]:
    """`write_astray` for every direction of the test data, by target language, below `folder`.

    The texts before are the beginnings of documents in the language `away`.
    """
    texts = read_languages(documents, model, "test", seed)[away].documents
    before = [document.text[:BEFORE] for document in texts]
    return {
        file.target_language: write_astray(folder / f"{file.target_language}.jsonl", file, before)
        for file in read_directions(pairs, model, "test", seed=seed).values()
    }


WORDS = Words(
    "Steering the language of answers",
    "Are fewer answers in another language than asked for if a language's heads are scaled?",
    "prompt",
    "The heads of the language that is asked for are multiplied by a factor (1: the original "
    "model), and as many random heads alike. The identifier of languages errs on short texts.",
    case="condition",
    joint="with",
)


def _extras(result: Steering, run: Path) -> Extras:
    """Charts by factor, the gate that is on the model throughout, and answers."""
    details, found = result.details, result.evidence
    doses = [
        lines for name in found.statistics if not unmoved(found, name)
        for lines in dose_lines(found, name)
    ]  # fmt: skip
    gate = details.gate
    return writing_extras(
        result,
        run,
        "off_target",
        heads=details.heads,
        facts=[
            ("identified by", details.identifier or ""),
            *([("on the model throughout", gate.name)] if gate else []),
        ],
        sections=[
            Section("By factor", doses),
            *languages_section(result),
            *(factors_section(result.model, gate.applied) if gate else []),
        ],
    )


comparison = Comparison(
    command="use adapt",
    settings=Steer,
    result=Steering,
    details=SteeringDetails,
    read=_read,
    ready=_ready,
    heads=_heads,
    measure=_measure,
    leads=lambda found: ["off_target"],
    cases=lambda found, details: writing_cases(found, "off_target"),
    answer=lambda found, details: unmeasured(found, "off_target"),
    cautions=_cautions,
    words=WORDS,
    extras=_extras,
    examples="prompts",
)
