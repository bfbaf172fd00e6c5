"""Each language's text without its own and without other languages' heads."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from safetensors.numpy import load_file

from headscope import options
from headscope.errors import InputError
from headscope.estimates import Draws
from headscope.executors import Execution
from headscope.heads import Amount, Rank, about_rank, count_of
from headscope.measure.intervals import bootstrap_difference
from headscope.measure.statistics import counted_mean
from headscope.progress import Progress
from headscope.results.language_texts import (
    LanguageSet,
    LanguageText,
    Matrix,
    TextWithoutHeads,
    WithoutHeads,
)
from headscope.runs import Run, encode
from headscope.settings import UNSIGNED, Nested, Option, Settings
from headscope.shown.blocks import (
    Block,
    Cell,
    HeadSets,
    Heatmap,
    Section,
    Shown,
    Table,
    table_of,
)
from headscope.shown.words import enumeration, signed
from headscope.studies.comparison import Compared, Comparison, clear, draws_remedy, draws_words
from headscope.studies.documents import DocumentsChoice, read_languages
from headscope.studies.models import ModelChoice, run_with_model
from headscope.studies.shows import leakage_caution, named_places
from headscope.studies.study import Study
from headscope.studies.verify.language_texts import (
    CHANGE,
    about_documents,
    documents_leakage,
    documents_words,
    few_documents,
    levels_table,
    measured,
    named_heads,
    read_rows,
    set_apart,
    text_facts,
)
from headscope.studies.verify.removal import alignment_heads
from headscope.verify.languages.conditions import (
    LanguageHeads,
    LanguageRemoval,
    language_heads,
    plan,
)
from headscope.verify.languages.evidence import describe_languages, matrices
from headscope.verify.translation import Removal

if TYPE_CHECKING:
    from headscope.lm import LanguageModel

COMMAND = "verify perplexity"
#: Why random heads of several sets are from everywhere, by the pool that is asked for.
SEVERAL = {
    "outside": None,
    "non-alignment": "several sets of heads are named, so random heads are drawn from all heads "
    "outside each set, token alignment heads among them",
}

#: The rows of a result by their words, with the text they are about.
Removals = Mapping[str, tuple[LanguageText, WithoutHeads]]


@dataclass(frozen=True)
class VerifyPerplexity(Settings):
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
        ),
    ] = field(metadata=UNSIGNED)
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
    removal: Annotated[LanguageRemoval, Nested(without=("layer_matched",))] = field(
        default_factory=LanguageRemoval
    )
    allow_overlap: options.AllowOverlap = field(default=False, metadata=UNSIGNED)
    rank: options.Rank = field(default="above-chance", metadata=UNSIGNED)
    execution: Execution = field(default_factory=Execution, metadata=UNSIGNED)


def verify_perplexity(
    config: VerifyPerplexity, out: Path | None = None, progress: Progress | None = None
) -> TextWithoutHeads:
    """Read every language's documents without each language's heads; the command's result.

    A run that was stopped goes on where it was: each language's documents under each removal are
    kept as soon as they are read. Raises `InputError` if the heads were found on documents of the
    test data, unless `allow_overlap`.
    """
    began = time.monotonic()
    removal = config.removal
    specs = named_heads(config.heads)
    files = read_languages(config.documents, config.model.model, "test", removal.seed)
    leakage = documents_leakage([spec for _, spec in specs], files, config.allow_overlap)
    files, reference = set_apart(
        config.documents, config.model.model, removal.seed, files, removal.ablate
    )
    lm = config.model.load_for(config.execution)
    sized = _sized(specs, config.k, list(files), lm, config.rank)
    ranking = about_rank(*(heads for sets in sized for heads in (sets.chosen, sets.full)))
    pool = Removal(pool=removal.pool, threshold=removal.threshold)
    pools = [alignment_heads(spec, pool, lm) for _, spec in specs]
    avoid, pool_note = pools[0] if len(pools) == 1 else (None, SEVERAL[removal.pool])
    documents, left_out = read_rows(lm, files)
    planned = plan(sized, list(documents), removal, avoid)
    sets = tuple(
        LanguageSet(
            language=heads.language,
            k=heads.wanted,
            available=heads.available,
            chosen=tuple(map(str, heads.chosen)),
            full=None if heads.full is None else tuple(map(str, heads.full)),
        )
        for heads in sized
    )
    settings = {
        "settings": config,
        "sets": [encode(each) for each in sets],
        "rank": ranking["rank"],
        "token alignment heads": None if avoid is None else sorted(map(str, avoid)),
        "reference text": reference.digest,
        "leakage": encode(leakage),
    }
    data = {name: file.digest for name, file in files.items()}

    def compute(run: Run) -> TextWithoutHeads:
        trials = measured(lm, run, documents, planned, removal, reference, progress)
        result = TextWithoutHeads(
            **ranking,
            k=tuple(sorted({heads.wanted for heads in sized})),
            draws=removal.draws,
            layer_matched=removal.layer_matched,
            pool="outside" if avoid is None else "non-alignment",
            pool_note=pool_note,
            ablate=removal.ablate,
            reference_text=reference.facts,
            seed=removal.seed,
            leakage=leakage,
            sets=sets,
            empty=tuple(sorted({each.language for each in sets if not each.chosen})),
            languages=describe_languages(planned, trials),
            matrices=tuple(matrices(planned, trials)),
            data=about_documents(files, left_out),
        )
        if progress:
            progress("comparing", 1, 1)
        return result

    kind, seed = TextWithoutHeads, removal.seed
    return run_with_model(
        lm, COMMAND, out, settings, data, compute, began, kind=kind, config=config, seed=seed
    )


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
        names = [(row["of"], row["role"], row["kind"]) for row in rows]
        if (language, "chosen", "removed") not in names:
            return None
        losses = load_file(folder / "losses.safetensors")
        nll = losses[f"{language}.nll"][names.index((language, "chosen", "removed"))]
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


def _show(result: TextWithoutHeads, run: Path) -> Shown:
    """Each language without its own heads, heads of one language by text of another, the heads."""
    several = len({each.k for each in result.sets}) > 1
    rows: Removals = {
        f"{name}, {_role(row, name, result)}{f', k = {row.k}' if several else ''}": (text, row)
        for name, text in result.languages.items()
        for row in text.removed
    }
    role = "chosen" if any(row.role == "chosen" for _, row in rows.values()) else "full"
    cautions = [*leakage_caution(result.leakage, "documents"), *few_documents(result.languages)]
    if result.empty:
        cautions.append(
            f"{enumeration(result.empty)}: no specific heads were found, so none are removed."
        )
    fewer = [f"{s.language} {s.available} of {s.k}" for s in result.sets if 0 < s.available < s.k]
    if fewer:
        cautions.append(f"Fewer specific heads than asked for: {enumeration(fewer)}.")
    comparison = Comparison(
        {name: _compared(text, row) for name, (text, row) in rows.items()}, "documents"
    )
    draws = comparison.distinct
    note = f"Random heads: {result.pool_note}" if result.pool_note else ""
    changes = comparison.tables("Change of loss, nats a token", "a larger change", note)
    bars = comparison.bars(
        "Change of loss of each language's own text",
        note="Intervals resample documents: they say nothing of other models",
    )
    first = [matrix for matrix in result.matrices if matrix.role == role]
    rest = [matrix for matrix in result.matrices if matrix.role != role]
    sections = [
        Section("Each language", changes, brief=True),
        Section("Heads and texts", [*map(_matrix, first), *_own(first)], brief=True),
        Section("Single draws", [bars]),
        Section("Most important heads and texts",
                [*map(_matrix, rest), *_own(rest)]),
        Section("Random heads and texts", _random(result.matrices)),
        Section("Loss and perplexity", [levels_table(result.languages, rows)]),
        Section("The heads", [_sets(result.sets, several, result.ranked)]),
    ]  # fmt: skip
    return Shown(
        "Text without language heads",
        "How much worse is text of each language predicted without heads of a language?",
        _finding(result, role, rows, comparison),
        f"{documents_words(result.languages)}; {draws_words(draws)}.",
        draws_remedy(draws),
        cautions,
        text_facts(result),
        [section for section in sections if section.blocks],
    )


def _role(row: WithoutHeads, name: str, result: TextWithoutHeads) -> str:
    """Which heads are removed, in words."""
    if row.role == "full":
        return "most important"
    return "specific" if result.ranked else "its heads" if row.of == name else "named heads"


def _finding(
    result: TextWithoutHeads, role: str, rows: Removals, comparison: Comparison
) -> list[str]:
    """The own text on average, against random heads, and against other languages' text."""
    k = max((row.k for _, row in rows.values() if row.role == role), default=0)
    named = {name: row for name, (_, row) in rows.items() if (row.role, row.k) == (role, k)}
    main = list(named.values())
    if not main:
        return []
    sizes = sorted({row.size for row in main})
    what = "most important" if role == "full" else "specific" if result.ranked else "selected"
    removed = f"{' or '.join(map(str, sizes))} {what} {'head' if sizes == [1] else 'heads'}"
    removed += " of its own" if result.ranked else ""
    if len(main) == 1:
        (name,) = named
        loss = f"the loss of {name.partition(',')[0]} text in nats a token"
        return comparison.said(name, f"Without {removed}", loss)
    changes = [row.change.value for row in main]
    means = [comparison.rows[name].means for name in named]
    random = [
        f"{words} {signed(fmean(known), 3)}"
        for at, words in enumerate(("random heads", "of the same layers"))
        if (known := [mean for each in means if (mean := each[at]) is not None])
    ]
    answer = (
        f"Without {removed}, the loss of a language's text changes by {signed(fmean(changes), 3)} "
        f"nats a token (mean of {len(main)} languages, {signed(min(changes), 3)} to "
        f"{signed(max(changes), 3)}){'; ' if random else ''}{', '.join(random)}."
    )
    larger = {
        f"with random heads{layers}": [each.difference for each in tests if each]
        for layers, tests in {
            "": [row.against_random for row in main],
            " of the same layers": [row.against_layer_matched for row in main],
        }.items()
    }
    for matrix in result.matrices:
        if (matrix.role, matrix.k) == (role, k):
            own = [own.own_minus_largest_other for own in matrix.own.values()]
            larger["for text of any other language"] = own
    counts = [f"{words} in {clear(gaps, 'language')}" for words, gaps in larger.items() if gaps]
    return [answer, *([f"The change is larger than {'; '.join(counts)}."] if counts else [])]


def _compared(text: LanguageText, row: WithoutHeads) -> Compared:
    """The change of a text's loss without heads; draws have changes, too."""
    drawn = {
        kind: Draws.of([draw.change.value for draw in text.draws(row, kind)])
        for kind in ("random", "random-layer-matched")
    }
    return Compared(
        CHANGE,
        row.change,
        random=(drawn["random"], drawn["random-layer-matched"]),
        tests=(row.against_random, row.against_layer_matched),
        more={"heads": Cell(row.size)},
    )


def _matrix(matrix: Matrix) -> Heatmap:
    return _heatmap(
        matrix,
        matrix.change,
        f"{'Most important heads' if matrix.role == 'full' else 'Heads'} removed (rows), "
        f"text of (columns), k = {matrix.k}",
        "If heads are a language's own, the diagonal is the darkest of its row",
    )


def _random(matrices: Iterable[Matrix]) -> list[Block]:
    """What random heads do to the text of every language, where they were read on it."""
    return [
        _heatmap(
            matrix,
            matrix.random,
            f"As many random heads removed, k = {matrix.k}",
            "Mean of the draws, outside the selected heads of all languages",
        )
        for matrix in matrices
        if all(cell for row in matrix.random for cell in row)
    ]


def _heatmap(matrix: Matrix, cells: Sequence[Sequence[Any]], title: str, note: str) -> Heatmap:
    value, low, high = (
        tuple(tuple(getattr(cell, end) for cell in row) for row in cells)
        for end in ("value", "low", "high")
    )
    return Heatmap(
        title,
        tuple(f"{name} ({n})" for name, n in zip(matrix.heads_of, matrix.sizes, strict=True)),
        matrix.text_of,
        value,
        "change of NLL, nats a token",
        "heads of",
        "text of",
        diverging=True,
        digits=3,
        lowest=low,
        highest=high,
        note=note,
    )


def _own(matrices: Iterable[Matrix]) -> list[Table]:
    """Each language's own text against the other text whose loss rises most."""
    return [
        table_of(
            f"Own text against that of other languages, k = {matrix.k}",
            matrix.own.items(),
            {
                "own text": lambda own: own.own,
                "other text that rises most": lambda own: own.largest_other.language,
                "its change": lambda own: own.largest_other.change,
                "own \u2212 other": lambda own: Cell.of(own.own_minus_largest_other),
                "p over draws": lambda own: own.p_draws,
            },
            "The other text is selected anew in every bootstrap draw. An interval below zero: "
            "another language needs these heads more",
        )
        for matrix in matrices
        if matrix.own
    ]  # fmt: skip


def _sets(sets: Sequence[LanguageSet], several: bool, ranked: bool) -> HeadSets:
    named = {
        f"{each.language}, {words}{f', k = {each.k}' if several else ''}": named_places(heads)
        for each in sets
        for words, heads in (
            ("specific" if ranked else "named", each.chosen),
            ("most important", each.full),
        )
        if heads is not None
    }
    found = enumeration([f"{language} {n}" for language, n in
                         {one.language: one.available for one in sets}.items()])  # fmt: skip
    note = (
        f"Specific: important for the language and few others ({found}). Most important: as many "
        "by score"
    )
    return HeadSets("Heads removed, best first", named, note if ranked else "")


command = Study(VerifyPerplexity, verify_perplexity, result=TextWithoutHeads, show=_show)
