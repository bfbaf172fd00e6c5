"""The cross-method atlas: what several methods say of every head of one model."""

from __future__ import annotations

import csv
import io
import time
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from headscope import options
from headscope.compare.methods_agreement import (
    MethodColumn,
    agreement,
    head_rows,
    read_methods,
    selections,
)
from headscope.compare.overlap_sets import overlaps
from headscope.heads import Amount, Geometry, Head, HeadSet, about_rank, count_of, default_amount
from headscope.heads.geometry import keys_of
from headscope.heads.store import write_bytes
from headscope.results.methods import (
    ComparedModel,
    ComparedRanking,
    HeadVerdicts,
    MethodComparison,
    MethodHeads,
    MethodsResult,
)
from headscope.runs import Run, carry_out, encode
from headscope.settings import Option, Settings
from headscope.shown import blocks
from headscope.shown.blocks import (
    Bars,
    HeadMap,
    HeadMaps,
    HeadSets,
    Section,
    Shown,
    Table,
    table_of,
)
from headscope.shown.words import count, enumeration, number
from headscope.studies.shows import alike, by_chance, model_facts, overlap_blocks, places
from headscope.studies.study import Study

COMMAND = "compare methods"
#: Pairs that a terminal lists, and heads that come first.
ALIKE, FIRST = 10, 5


#: Without it 20 heads, or 15 % below 256.
TopHeads = Annotated[
    Amount | None,
    Option(
        "Top heads of each method's scores: a number or a share such as 15%; sets that a method "
        "chose itself keep their size.",
        metavar="K",
        typed=str,
    ),
]


@dataclass(frozen=True)
class CompareMethods(Settings):
    """Show, for every head, which methods select it, and how far the methods agree.

    Every overlap is compared with that of random sets of the same sizes.
    """

    runs: Annotated[
        tuple[str, ...],
        Option("Finished runs of any methods on one model.", metavar="RUN...", argument=True),
    ]
    k: TopHeads = None
    rank: options.Rank = "above-chance"
    every_part: Annotated[
        bool, Option("Of runs with several directions also each of them.", flag="--parts")
    ] = False


def compare_methods(config: CompareMethods, out: Path | None = None) -> MethodsResult:
    """Compare, write `methods.csv` and `methods.json` into the run and return the result.

    Raises:
        InputError: see `headscope.compare.methods_agreement.read_methods`.
    """
    began = time.monotonic()
    columns, geometry = read_methods(config.runs, config.every_part)
    wanted = default_amount(geometry) if config.k is None else config.k
    k = count_of(wanted, geometry.total)
    sets = [column.selected(k, config.rank) for column in columns]
    ranking = [about_rank(heads) for heads in sets]
    settings = {
        "k": k,
        "rank": about_rank(*sets)["rank"],
        "ranks": [way["rank"] for way in ranking],
        "columns": [column.name for column in columns],
    }
    inputs = {column.name: column.artifact.digest for column in columns}
    weights = next((column.weights for column in columns if column.weights), None)
    model = next(
        (column.artifact.origin.provenance.get("model") for column in columns if column.weights),
        None,
    )
    about = {"model": model, "weights": weights}

    def compute(run: Run) -> MethodsResult:
        named = {column.name: heads for column, heads in zip(columns, sets, strict=True)}
        scores = {
            column.name: column.artifact.scores
            for column in columns
            if column.artifact.scores is not None
        }
        rows = head_rows(columns, sets, config.rank)
        write_bytes(run.path / "methods.csv", _csv(rows, columns).encode())
        run.write_json("methods.json", encode(rows))
        unions = selections(columns, sets)
        comparison = MethodComparison(
            k=k,
            **about_rank(*sets),
            columns=tuple(map(_column, columns, sets)),
            methods=tuple(
                MethodHeads(
                    name,
                    len(union),
                    tuple(row.place.key for row in rows if row.selected_by == (name,)),
                )
                for name, union in unions.items()
            ),
            shared=tuple(row.place.key for row in rows if len(row.selected_by) == len(unions)),
            agreement=tuple(agreement(columns, sets)),
            pairs=tuple(overlaps(named, scores, dict.fromkeys(named))),
            heads=tuple(rows),
        )
        of = ComparedModel(model, weights, geometry.as_dict())
        return MethodsResult(model=of, comparison=comparison)

    return carry_out(COMMAND, out, settings, inputs, compute, began, about, kind=MethodsResult)


def _column(column: MethodColumn, selected: HeadSet) -> ComparedRanking:
    return ComparedRanking(
        name=column.name,
        method=column.method,
        place=column.artifact.place,
        signature=column.signature,
        ranked=column.artifact.scores is not None,
        own_size=column.own is not None,
        **about_rank(selected),
        weights=column.weights,
        size=len(selected),
        heads=keys_of(selected),
    )


def _csv(rows: Sequence[HeadVerdicts], columns: Sequence[MethodColumn]) -> str:
    """One line a head: score, rank and choice of every column; names may hold commas."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = [
        f"{column.name} {what}" for column in columns for what in ("score", "rank", "selected")
    ]
    writer.writerow(["layer", "head", "methods", *names])
    for row in rows:
        cells: list[object] = [row.layer, row.head, len(row.selected_by)]
        for verdict in row.columns.values():
            cells += [
                "" if verdict.score is None else repr(verdict.score),
                "" if verdict.rank is None else verdict.rank,
                int(verdict.selected),
            ]
        writer.writerow(cells)
    return text.getvalue()


def show_methods(compared: MethodComparison, geometry: Geometry, model: str) -> Shown:
    """Which methods select which heads, how far they agree, and every head."""
    apart = {(pair.a, pair.b) for pair in compared.apart}
    near = sorted(compared.pairs, key=lambda pair: ((pair.a, pair.b) not in apart, -pair.jaccard))
    shared, table = overlap_blocks(compared.pairs)[0], overlap_blocks(near)[1]
    several = [_several(compared)]
    assert isinstance(table, Table)
    first = replace(
        table, title="Pairs most alike, different methods first", rows=table.rows[:ALIKE]
    )
    further = [replace(table, title="Further pairs", rows=table.rows[ALIKE:])]
    return Shown(
        "One model, many methods",
        "Which attention heads do different methods find, and how far do the methods agree?",
        _finding(compared),
        "Exact for these sets; other data may give other sets.",
        "",
        [],
        [
            *model_facts(model, geometry.total),
            ("layers", str(geometry.layers)),
            ("methods", str(len(compared.methods))),
            ("top heads of a method's scores", str(compared.k)),
        ],
        [
            Section("Heads selected", [_sets(compared)]),
            *([Section("Heads of several methods", several)] if several[0].rows else []),
            Section("Agreement", [_agreement(compared), shared], brief=True),
            Section("Rankings", [_maps(compared, geometry), _columns(compared)]),
            Section("Methods", [_sizes(compared)], brief=True),
            Section("Pairs", [first, *(further if table.rows[ALIKE:] else [])], brief=True),
        ],
        _map(compared, geometry),
    )


def _finding(compared: MethodComparison) -> list[str]:
    apart = compared.apart
    if not apart:
        return ["All rankings are of one method, so no methods are compared."]
    return [_first(compared), alike(apart, several="pairs of different methods")]


def _first(compared: MethodComparison) -> str:
    """The heads that most methods choose, if these are more than would be chosen so by chance."""
    most = max((len(head.selected_by) for head in compared.heads), default=0)
    if most < 2:
        return "No head is chosen by two methods, so none comes first."
    chosen = [str(head.place) for head in compared.heads if len(head.selected_by) == most]
    listed = chosen if len(chosen) <= FIRST else [*chosen[:FIRST], f"{len(chosen) - FIRST} more"]
    expected = sum(row.expected for row in compared.agreement if row.methods >= most)
    chosen_by = f"chosen by {most} of {count(len(compared.methods), 'method')}"
    if len(chosen) <= expected:
        return f"No head comes first: {len(chosen)} {chosen_by} ({by_chance(expected)})."
    return f"Use first: {enumeration(listed)}, {chosen_by} ({by_chance(expected)})."


def _signs(compared: MethodComparison) -> dict[str, str]:
    """A letter for each method: A to Z, then AA, AB \u2026"""
    letters = [chr(ord("A") + at) for at in range(26)]
    letters += [first + second for first in letters for second in letters]
    return {method.name: sign for method, sign in zip(compared.methods, letters, strict=False)}


def _sizes(compared: MethodComparison) -> Table:
    signs = _signs(compared)
    return table_of(
        "Methods",
        ((method.name, method) for method in compared.methods),
        {
            "sign": lambda method: signs[method.name],
            "heads selected": lambda method: method.size,
            "by no other method": lambda method: len(method.specific),
        },
        "A method with several rankings, such as languages, selects the heads of all of them",
    )


def _columns(compared: MethodComparison) -> Table:
    specific = {method.name: set(method.specific) for method in compared.methods}
    return table_of(
        "Rankings and sets",
        ((column.name, column) for column in compared.columns),
        {
            "heads": lambda column: column.size,
            "by this method alone": lambda column: len(specific[column.method] & set(column.heads)),
            "chosen": lambda column: "set of the method" if column.own_size else "highest heads",
            "ranked by": lambda column: column.ranked_by,
        },
    )


def _agreement(compared: MethodComparison) -> Bars:
    seen = (row.methods for row in compared.agreement if row.heads or row.expected >= 0.05)
    shown = compared.agreement[: max(seen, default=0) + 1]
    return Bars(
        "Heads by the number of methods that select them",
        tuple(count(row.methods, "method") if row.methods else "no method" for row in shown),
        ("these methods", "random"),
        tuple((float(row.heads), row.expected) for row in shown),
        "heads",
        note="Random: each method draws as many heads independently. The methods agree where there "
        "are more heads than that at both ends",
    )


def _sets(compared: MethodComparison) -> HeadSets:
    """Heads by how many methods select them, and those of one method alone."""
    most = max((len(head.selected_by) for head in compared.heads), default=0)
    sets = {
        f"by {several} methods": [h.place for h in compared.heads if len(h.selected_by) == several]
        for several in range(most, 1, -1)
    }
    sets |= {
        f"by {method.name} alone": list(map(Head.parse, method.specific))
        for method in compared.methods
        if method.specific
    }
    return HeadSets("Heads selected", {name: places(heads) for name, heads in sets.items()})


def _map(compared: MethodComparison, geometry: Geometry) -> HeadMaps:
    """Every head with the letter of the method that alone selects it, or how many do."""
    signs, heads = _signs(compared), {head.place: head for head in compared.heads}
    words, marks = [], []
    for place, head in heads.items():
        lines = [enumeration(head.selected_by) or "no method"]
        lines += [
            f"{name} {number(verdict.score)}, rank {verdict.rank}"
            for name, verdict in head.columns.items()
            if verdict.score is not None
        ]
        words.append(((place.layer, place.head), "\n".join(lines)))
        if several := len(head.selected_by):
            sign = signs[head.selected_by[0]] if several == 1 else str(several)
            marks.append(((place.layer, place.head), sign))
    values = {place: float(len(head.selected_by)) for place, head in heads.items()}
    methods = HeadMap("", _grid(geometry, values), signs=tuple(marks), words=tuple(words))
    return HeadMaps(
        "Which methods select each head",
        (methods,),
        "methods",
        high=float(max(2, len(compared.methods))),
        digits=0,
        note="A letter: only that method selects the head. A number: how many methods do. "
        + ", ".join(f"{sign}: {name}" for name, sign in signs.items()),
    )


def _several(compared: MethodComparison) -> Table:
    return table_of(
        "Heads that several methods select",
        ((str(head.place), head) for head in compared.heads if len(head.selected_by) > 1),
        {
            "methods": lambda head: len(head.selected_by),
            "selected by": lambda head: enumeration(head.selected_by),
        },
    )


def _maps(compared: MethodComparison, geometry: Geometry) -> HeadMaps:
    """A map of each column: how high each head ranks, and which are selected."""
    return HeadMaps(
        "Each method's ranking",
        tuple(
            HeadMap(column.name, _grid(geometry, _lower(compared, column)),
                    places(map(Head.parse, column.heads)))
            for column in compared.columns
        ),
        "other heads that rank lower, %",
        high=100.0,
        digits=0,
        marked="selected",
        note="Ranks of methods on different scales can be compared; a set without scores has 100 "
        "where a head is selected",
    )  # fmt: skip


def _lower(compared: MethodComparison, column: ComparedRanking) -> Mapping[Head, float]:
    """Of each head the share of the others that rank lower, in per cent; of a bare set 100 or 0."""
    verdicts = {head.place: head.columns[column.name] for head in compared.heads}
    ranks = sorted(verdict.rank or 0 for verdict in verdicts.values())
    others = max(1, len(ranks) - 1)
    return {
        head: 100.0 * verdict.selected
        if verdict.rank is None
        else 100 * (len(ranks) - bisect_right(ranks, verdict.rank)) / others
        for head, verdict in verdicts.items()
    }


def _grid(geometry: Geometry, values: Mapping[Head, float]) -> blocks.Values:
    return tuple(
        tuple(values.get(Head(layer, head)) for head in range(geometry.width))
        for layer in range(geometry.layers)
    )


def _show(result: MethodsResult, run: Path) -> Shown:
    return show_methods(result.comparison, result.geometry, result.model.name or "model")


command = Study(
    CompareMethods, compare_methods, result=MethodsResult, show=_show, usage="runs/found runs/lahis"
)
