"""The cross-method atlas: what several methods say of every head of one model."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from headscope import options
from headscope.compare.methods import (
    MethodColumn,
    agreement,
    amount,
    head_rows,
    read_methods,
    selections,
)
from headscope.compare.overlap import overlaps
from headscope.heads import Amount, HeadSet, about_rank, count_of
from headscope.heads.store import write_bytes
from headscope.results.methods import (
    Column,
    ComparedModel,
    Comparison,
    HeadVerdicts,
    MethodHeads,
    MethodsResult,
)
from headscope.runs import Run, carry_out, encode
from headscope.settings import Option, Settings

__all__ = ["COMMAND", "CompareMethods", "TopHeads", "compare_methods"]

COMMAND = "compare methods"


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

    Beside every overlap stands what random sets of the same sizes would share.
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
        InputError: see `headscope.compare.methods.read_methods`.
    """
    began = time.monotonic()
    columns, geometry = read_methods(config.runs, config.every_part)
    k = count_of(amount(geometry, config.k), geometry.total)
    sets = [column.selected(k, config.rank) for column in columns]
    ranking = [about_rank(one) for one in sets]
    settings = {
        "k": k,
        "rank": about_rank(*sets)["rank"],
        "ranks": [one["rank"] for one in ranking],
        "columns": [column.name for column in columns],
    }
    inputs = {column.name: column.artifact.digest for column in columns}
    weights = next((one.weights for one in columns if one.weights), None)
    model = next(
        (one.artifact.origin.provenance.get("model") for one in columns if one.weights), None
    )
    about = {"model": model, "weights": weights}

    def compute(run: Run) -> MethodsResult:
        named = {column.name: one for column, one in zip(columns, sets, strict=True)}
        scores = {
            column.name: column.artifact.scores
            for column in columns
            if column.artifact.scores is not None
        }
        rows = head_rows(columns, sets, config.rank)
        write_bytes(run.path / "methods.csv", _csv(rows, columns).encode())
        run.write_json("methods.json", encode(rows))
        unions = selections(columns, sets)
        comparison = Comparison(
            k=k,
            **about_rank(*sets),
            columns=tuple(_column(column, one) for column, one in zip(columns, sets, strict=True)),
            methods=tuple(
                MethodHeads(
                    name,
                    len(one),
                    tuple(str(row.place) for row in rows if row.selected_by == (name,)),
                )
                for name, one in unions.items()
            ),
            shared=tuple(str(row.place) for row in rows if len(row.selected_by) == len(unions)),
            agreement=tuple(agreement(columns, sets)),
            pairs=tuple(overlaps(named, scores, dict.fromkeys(named))),
            heads=tuple(rows),
        )
        of = ComparedModel(model, weights, geometry.as_dict())
        return MethodsResult(model=of, comparison=comparison)

    return carry_out(COMMAND, out, settings, inputs, compute, began, about, kind=MethodsResult)


def _column(column: MethodColumn, selected: HeadSet) -> Column:
    return Column(
        name=column.name,
        method=column.method,
        place=column.artifact.place,
        signature=column.signature,
        ranked=column.artifact.scores is not None,
        own_size=column.own is not None,
        **about_rank(selected),
        weights=column.weights,
        size=len(selected),
        heads=tuple(map(str, selected)),
    )


def _csv(rows: Sequence[HeadVerdicts], columns: Sequence[MethodColumn]) -> str:
    """One line a head: score, rank and choice of every column; names may hold commas."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = [f"{one.name} {what}" for one in columns for what in ("score", "rank", "selected")]
    writer.writerow(["layer", "head", "methods", *names])
    for row in rows:
        cells: list[object] = [row.layer, row.head, len(row.selected_by)]
        for one in row.columns.values():
            cells += [
                "" if one.score is None else repr(one.score),
                "" if one.rank is None else one.rank,
                int(one.selected),
            ]
        writer.writerow(cells)
    return text.getvalue()
