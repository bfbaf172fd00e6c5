"""Each language's text without its own and without other languages' heads."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
from safetensors.numpy import load_file

from headscope import options
from headscope.ablations import gives
from headscope.data.documents import DocumentFile
from headscope.errors import InputError
from headscope.evidence.headline import Case
from headscope.evidence.rows import SELECTED, Condition, Evidence
from headscope.heads import Amount, Rank, count_of
from headscope.measure.intervals import bootstrap_difference
from headscope.measure.statistics import counted_mean
from headscope.results.language_texts import LanguageSet, OwnText, TextDetails, TextWithoutHeads
from headscope.runs import encode
from headscope.settings import UNSIGNED, Option
from headscope.shown.blocks import (
    AS_MUCH,
    Block,
    Cell,
    Content,
    Heatmap,
    Section,
    table_of,
)
from headscope.shown.words import count, enumeration
from headscope.studies.comparison import (
    ALL_PARTS,
    Bench,
    Chosen,
    Comparison,
    Examples,
    InWorkers,
    Measured,
    Removing,
    Selecting,
)
from headscope.studies.comparison_page import Extras, Words
from headscope.studies.documents import DocumentsChoice
from headscope.studies.models import ModelChoice
from headscope.studies.verify.language_texts import (
    PERPLEXITIES,
    about_documents,
    few_documents,
    language_examples,
    measured,
    named_heads,
    read_documents,
    text_facts,
)
from headscope.verify.language_texts.conditions import (
    FULL,
    NAMED,
    LanguageHeads,
    language_heads,
    language_of,
    sets_by_language,
)
from headscope.verify.language_texts.evidence import matrix, own_texts, own_view, together

if TYPE_CHECKING:
    from headscope.lm import LanguageModel

#: Languages whose heads are a row of the matrix, and above which controls.
MATRIX = "Heads removed (rows), text of (columns)"


@dataclass(frozen=True, kw_only=True)
class VerifyPerplexity(Removing, Selecting, InWorkers):
    """Measure how the loss of each language's text changes when a language's heads are removed.

    Removed are its specific heads, as many most important ones, and as many random ones; the text
    of every language without the heads of every other gives the cross-language matrix.
    """

    # The heads themselves, not their place, count in the run's signature.
    heads: Annotated[
        tuple[str, ...],
        Option(
            "A run folder of find lahis; or a saved set, a CSV or JSON of layer and head, or a "
            "list: 5.3,7.11; for several languages LANG=HEADS, repeatable.",
            metavar="HEADS|LANG=HEADS",
            held="heads",
        ),
    ] = field(metadata=UNSIGNED)
    draws: options.Draws = 10
    k: Annotated[
        tuple[Amount, ...],
        Option(
            "Number of heads of each language, or a share such as 0.02 or 2%; repeatable. Without "
            "it 2%, or at most 5% in a model of fewer than 256; a set is used whole.",
            metavar="K",
            typed=str,
        ),
    ] = field(default=(), metadata=UNSIGNED)
    model: ModelChoice = field(default_factory=ModelChoice)
    documents: DocumentsChoice = field(default_factory=DocumentsChoice)

    @property
    def in_sequence(self) -> None:
        """The number of draws is fixed, since those of all languages are tested together."""


def _read(config: VerifyPerplexity) -> Examples[DocumentFile]:
    specs = [spec for _, spec in named_heads(config.heads)]
    return language_examples(config.documents, config, specs, config.allow_overlap)


def _heads(lm: LanguageModel, config: VerifyPerplexity, examples: Examples[DocumentFile]) -> Chosen:
    sized = _sized(named_heads(config.heads), config.k, list(examples.parts), lm, config.rank)
    sets = tuple(heads.row for heads in sized)
    return Chosen({ALL_PARTS: sets_by_language(sized)}, signed={"sets": encode(sets)}, known=sets)


def _measure(bench: Bench[VerifyPerplexity, DocumentFile]) -> Measured:
    texts, found = measured(bench)
    sets: tuple[LanguageSet, ...] = bench.chosen.known
    about = {
        "k": tuple(sorted({heads.k for heads in sets})),
        "sets": sets,
        "empty": tuple(sorted({heads.language for heads in sets if not heads.chosen})),
        "own": own_texts(found, bench.conditions[ALL_PARTS], texts, bench.config.seed),
        "data": about_documents(bench),
        "together": together(bench.conditions[ALL_PARTS], texts, bench.config.seed),
    }
    return Measured(found, about)


def paired_loss(
    first: Path, other: Path, language: str, seed: int = 0
) -> dict[str, float | None] | None:
    """What the heads removed in `first` cost their language's text more than those in `other`.

    Both are folders of finished runs on the same documents. Nats a token, with the interval of the
    paired bootstrap over documents; None where a run has removed no heads of the language.
    InputError if the documents differ.
    """
    if (first / "documents.jsonl").read_bytes() != (other / "documents.jsonl").read_bytes():
        raise InputError(f"{first} and {other} read other documents; give both the same")
    read = []
    for folder in (first, other):
        rows = [json.loads(row) for row in (folder / "conditions.jsonl").open(encoding="utf-8")]
        names = [(row["of"], row["kind"]) for row in rows]
        if (language, SELECTED) not in names:
            return None
        losses = load_file(folder / "losses.safetensors")
        nll = losses[f"{language}.nll"][names.index((language, SELECTED))]
        read.append(np.stack([nll, losses[f"{language}.tokens"]], axis=-1))
    return bootstrap_difference(read[0], read[1], counted_mean, seed=seed).record()


def _sized(
    specs: Sequence[tuple[str | None, str]],
    k: Sequence[Amount],
    languages: Sequence[str],
    lm: LanguageModel,
    rank: Rank,
) -> list[LanguageHeads]:
    """The heads of each language for each k, from few to many, each number once."""
    total = lm.geometry.total
    wanted: list[Amount | None] = [*sorted({count_of(amount, total) for amount in k})] or [None]
    sized = [
        found
        for language, spec in specs
        for amount in wanted
        for found in language_heads(spec, amount, languages, language, lm.geometry, rank)
    ]
    if not any(len(each.chosen) or each.full for each in sized):
        raise InputError("none of the languages has heads of its own, so there is nothing to do")
    return sized


def _main(found: Evidence) -> list[tuple[str, Condition]]:
    """Each language with the heads of its own of which a page speaks: the specific ones, or the
    most important ones where there are none such, the most of them."""
    view = own_view(found)
    specific = [each for each in view.selected if not each.of.endswith(FULL)]
    most = max(specific or view.selected, key=lambda each: each.k)
    return [
        (part, each)
        for part in found.parts
        for each in found.selected
        if each.k == most.k
        and each.of.endswith(FULL) == most.of.endswith(FULL)
        and language_of(each) in ("", part)
    ]


def _cases(found: Evidence, details: TextDetails) -> list[Case]:
    def lead(each: Condition) -> str:
        most = "most important " if each.of.endswith(FULL) else ""
        many = count(len(each.heads) or each.k, f"{most}head")
        removed = not gives(each.replacement)
        words = f"Without its {many}" if removed else f"With its {many} {each.done}"
        return words if language_of(each) else ""

    return [Case("nll", each, part, part, lead(each)) for part, each in _main(found)]


def _cautions(found: Evidence, details: TextDetails) -> Iterator[str]:
    yield from few_documents(details.data)
    if details.empty:
        yield f"{enumeration(details.empty)}: no specific heads were found, so none are removed."
    fewer = [f"{s.language} {s.available} of {s.k}" for s in details.sets if 0 < s.available < s.k]
    if fewer:
        yield f"Fewer specific heads than asked for: {enumeration(fewer)}."


def _extras(result: TextWithoutHeads, run: Path) -> Extras:
    """Each language without its own heads, and heads of one language by text of another."""
    found, details = result.evidence, result.details
    view, main = own_view(found), _main(found)
    k, full = main[0][1].k, main[0][1].of.endswith(FULL)
    first, *more = [
        conditions
        for role, size in product((full, not full), details.k)
        if (conditions := [each for each in found.selected
                           if (each.of.endswith(FULL), each.k) == (role, size)])
    ]  # fmt: skip
    return Extras(
        evidence=view,
        conditions=[each for each in view.selected
                    if (each.k, each.of.endswith(FULL)) == (k, full)],
        heads=_sets(details),
        facts=text_facts(result),
        sections=[
            Section("Heads and texts", _maps(found, details, first), brief=True),
            Section(
                "Other sets of heads",
                [block for group in more for block in _maps(found, details, group)],
            ),
            Section("Heads and texts, minus random heads", _random(found, [first, *more])),
        ],
    )  # fmt: skip


def _heatmap(found: Evidence, conditions: Sequence[Condition], control: str = "") -> Heatmap:
    cells = matrix(found, conditions, control)
    sizes = {each.of: len(each.heads) for each in conditions}

    def ends(which: str) -> tuple[tuple[float | None, ...], ...]:
        return tuple(
            tuple(getattr(row[part], which) if part in row else None for part in found.parts)
            for row in cells.values()
        )

    note = "If heads are a language's own, the diagonal is the darkest of its row"
    title = f"{MATRIX}, k = {conditions[0].k}"
    return Heatmap(
        f"{title}, selected \u2212 {control}" if control else title,
        tuple(f"{of or NAMED} ({sizes[of]})" for of in cells),
        found.parts,
        ends("value"),
        "change of NLL, nats a token",
        "heads of",
        "text of",
        diverging=True,
        digits=3,
        lowest=ends("low"),
        highest=ends("high"),
        note=note,
    )


def _random(found: Evidence, maps: Iterable[Sequence[Condition]]) -> list[Block]:
    """What heads do beyond random ones to the text of every language, where these were read."""
    return [
        _heatmap(found, conditions, control)
        for conditions in maps
        for control in found.controls
        if conditions
        and all(len(row) == len(found.parts) for row in matrix(found, conditions, control).values())
    ]


def _maps(found: Evidence, details: TextDetails, conditions: Sequence[Condition]) -> list[Block]:
    """Heads by text, and each language's own text against the other whose loss rises most."""
    by_id = {each.id: each for each in conditions}
    cells = matrix(found, conditions)
    rows = [(own.language, own) for own in details.own if own.condition in by_id]
    controls = dict.fromkeys(name for _, own in rows for name in own.draws)

    def as_far(control: str) -> Callable[[OwnText], Content]:
        return lambda own: (
            f"{own.at_least_as_harmful[control]} of {own.draws[control]}"
            if control in own.draws
            else None
        )

    table = table_of(
        f"Own text against that of other languages, k = {conditions[0].k}",
        rows,
        {
            "own text": lambda own: cells[by_id[own.condition].of][own.language].value,
            "other text that rises most": lambda own: own.other,
            "its change": lambda own: cells[by_id[own.condition].of][own.other].value,
            "own \u2212 other": lambda own: Cell.of(own.difference),
            "own \u2212 mean of others": lambda own: Cell.of(own.mean_difference),
            **{f"{AS_MUCH}, {control}": as_far(control) for control in controls},
        },
        "The other text is selected anew in every bootstrap draw. An interval below zero: "
        "another language needs these heads more",
    )
    return [_heatmap(found, conditions), *([table] if rows else [])]


def _sets(details: TextDetails) -> dict[str, Sequence[str]]:
    """The heads removed, by language and why they were chosen."""
    return {
        f"{each.language}, {words}{f', k = {each.k}' if len(details.k) > 1 else ''}": heads
        for each in details.sets
        for words, heads in (
            ("specific" if details.ranked else "named", each.chosen),
            ("most important", each.full),
        )
        if heads is not None
    }


WORDS = Words(
    "Text without language heads",
    "How much worse is text of each language predicted without heads of a language?",
    "document",
    "Specific heads are important for a language and few others; the most important ones are as "
    f"many by score. {PERPLEXITIES} Each language is judged by itself.",
    case="language",
)

comparison = Comparison(
    command="verify perplexity",
    settings=VerifyPerplexity,
    result=TextWithoutHeads,
    details=TextDetails,
    read=_read,
    ready=read_documents,
    heads=_heads,
    measure=_measure,
    cases=_cases,
    cautions=_cautions,
    words=WORDS,
    extras=_extras,
    examples="documents",
    usage="--heads runs/lahis --limit 20",
)
command = comparison.study
