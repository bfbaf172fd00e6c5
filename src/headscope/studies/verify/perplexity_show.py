"""What `verify perplexity` shows: text of each language without heads of a language."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from headscope.results.language_texts import (
    LanguageSet,
    LanguageText,
    Matrix,
    TextWithoutHeads,
    WithoutHeads,
)
from headscope.shown.blocks import Bars, Block, Cell, HeadSets, Heatmap, Row, Section, Shown, Table
from headscope.shown.words import between, enumeration, signed
from headscope.studies.shows import (
    ablation_facts,
    against_table,
    compared,
    draws_remedy,
    draws_words,
    leakage_caution,
    model_facts,
    named_places,
    tests_words,
)
from headscope.studies.verify.language_texts import documents_words, few_documents, levels_table

#: The rows of a result by their words, with the text they are about.
Removals = Mapping[str, tuple[LanguageText, WithoutHeads]]


def show(result: TextWithoutHeads, run: Path) -> Shown:
    """Each language without its own heads, heads of one language by text of another, the heads."""
    several = len({one.k for one in result.sets}) > 1
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
    tests = [row.against_random.distinct for _, row in rows.values() if row.against_random]
    draws = min(tests, default=0)
    first = [matrix for matrix in result.matrices if matrix.role == role]
    rest = [matrix for matrix in result.matrices if matrix.role != role]
    sections = [
        Section(
            "Each language",
            _changes(rows, f"Random heads: {result.pool_note}" if result.pool_note else ""),
            brief=True,
        ),
        Section(
            "Heads and texts", [*map(_matrix, first), *_own(first)],
            brief=True,
        ),
        Section("Single draws", [_bars(rows)]),
        Section("Most important heads and texts",
                [*map(_matrix, rest), *_own(rest)]),
        Section("Random heads and texts", _random(result.matrices)),
        Section("Loss and perplexity", [levels_table(result.languages, rows)]),
        Section("The heads", [_sets(result.sets, several, result.ranked)]),
    ]  # fmt: skip
    heads = result.model.heads if result.model else None
    return Shown(
        "Text without language heads",
        "How much worse is text of each language predicted without heads of a language?",
        _finding(result, role, rows),
        f"{documents_words(result.languages)}; {draws_words(draws)}.",
        draws_remedy(draws),
        cautions,
        [
            *model_facts(result.model_name, heads),
            ("languages", ", ".join(result.languages)),
            ("documents", str(sum(text.documents for text in result.languages.values()))),
            *ablation_facts(result),
        ],
        [section for section in sections if section.blocks],
    )


def _role(row: WithoutHeads, name: str, result: TextWithoutHeads) -> str:
    """Which heads are removed, in words."""
    if row.role == "full":
        return "most important"
    return "specific" if result.ranked else "its heads" if row.of == name else "named heads"


def _finding(result: TextWithoutHeads, role: str, rows: Removals) -> list[str]:
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
    changes = [row.change.value for row in main]
    means = [
        f"{words} {signed(fmean(draws), 3)}"
        for words, draws in (
            ("random heads", [r.random.mean for r in main if r.random]),
            ("of the same layers",
             [r.random_layer_matched.mean for r in main if r.random_layer_matched]),
        )
        if draws
    ]  # fmt: skip
    random = f"; {', '.join(means)}" if means else ""
    if len(main) == 1:
        ((name, row),) = named.items()
        span = between(row.change.low, row.change.high, 3)
        return [
            f"Without {removed}, the loss of {name.partition(',')[0]} text changes by "
            f"{signed(changes[0], 3)} nats a token (95\u00a0% CI {span}){random}.",
            f"Selected minus random: {compared(row.against_random, 'documents')}.",
        ]
    answer = (
        f"Without {removed}, the loss of a language's text changes by {signed(fmean(changes), 3)} "
        f"nats a token (mean of {len(main)} languages, {signed(min(changes), 3)} to "
        f"{signed(max(changes), 3)}){random}."
    )
    tests = {
        "with random heads": [row.against_random for row in main],
        "with random heads of the same layers": [row.against_layer_matched for row in main],
    }
    larger = {words: [one.difference for one in each if one] for words, each in tests.items()}
    for matrix in result.matrices:
        if (matrix.role, matrix.k) == (role, k):
            own = [own.own_minus_largest_other for own in matrix.own.values()]
            larger["for text of any other language"] = own
    counts = [
        f"{words} in {sum(one.value > 0 for one in each)} of {len(each)} languages (95\u00a0% CI "
        f"above zero in {sum(one.low > 0 for one in each)})"
        for words, each in larger.items()
        if each
    ]
    return [answer, *([f"The change is larger than {'; '.join(counts)}."] if counts else [])]


def _changes(rows: Removals, note: str) -> list[Block]:
    """The change of each text's loss without its own heads, and against random ones."""
    changes = tuple(
        Row(
            name,
            (
                Cell(row.size),
                Cell.of(row.change, 4),
                *(
                    Cell(None if draws is None else draws.mean, digits=4)
                    for draws in (row.random, row.random_layer_matched)
                ),
            ),
        )
        for name, (_, row) in rows.items()
    )
    columns = ("heads", "change", "random", "random, same layers")
    title = "Change of loss, nats a token"
    against = {n: (r.against_random, r.against_layer_matched) for n, (_, r) in rows.items()}
    method = tests_words("documents", "a larger change")
    tests = against_table(f"{title}: selected minus random heads", against, "documents", 4,
                          note=method)  # fmt: skip
    table = Table(title, columns, changes, note=note)
    return [table, *([tests] if tests else [])]


def _bars(rows: Removals) -> Bars:
    drawn = [
        [
            tuple(draw.change.value for draw in text.draws(row, kind))
            for kind in ("random", "random-layer-matched")
        ]
        for text, row in rows.values()
    ]
    changes = [row.change for _, row in rows.values()]
    return Bars(
        "Change of loss of each language's own text",
        tuple(rows),
        ("selected", "random", "random, same layers"),
        tuple(
            (change.value, *(fmean(each) if each else None for each in draws))
            for change, draws in zip(changes, drawn, strict=True)
        ),
        "change of NLL, nats a token",
        tuple((change.low, None, None) for change in changes),
        tuple((change.high, None, None) for change in changes),
        digits=4,
        draws=tuple(((), *draws) for draws in drawn),
        note="Intervals resample documents: they say nothing of other models",
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
        Table(
            f"Own text against that of other languages, k = {matrix.k}",
            ("own text", "other text that rises most", "its change", "own \u2212 other",
             "p over draws"),
            tuple(
                Row(
                    name,
                    (
                        Cell(own.own),
                        Cell(own.largest_other.language),
                        Cell(own.largest_other.change),
                        Cell.of(own.own_minus_largest_other),
                        Cell(own.p_draws),
                    ),
                )
                for name, own in matrix.own.items()
            ),
            note="The other text is selected anew in every bootstrap draw. An interval below zero: "
            "another language needs these heads more",
        )
        for matrix in matrices
        if matrix.own
    ]  # fmt: skip


def _sets(sets: Sequence[LanguageSet], several: bool, ranked: bool) -> HeadSets:
    named = {
        f"{one.language}, {words}{f', k = {one.k}' if several else ''}": named_places(heads)
        for one in sets
        for words, heads in (
            ("specific" if ranked else "named", one.chosen),
            ("most important", one.full),
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
