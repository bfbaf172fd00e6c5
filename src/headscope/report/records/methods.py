"""What the report of a comparison of methods reads of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headscope.heads import Geometry, Head
from headscope.runs.reading import naming, read_result

__all__ = [
    "AgreementRow",
    "Column",
    "HeadEntry",
    "MethodEntry",
    "MethodsRecord",
    "SurveyRun",
    "read_methods",
    "read_runs",
]

KIND = "a comparison of methods"


@dataclass(frozen=True)
class Column:
    """One thing that a method says of every head; `own` tells a set of the method's own size."""

    name: str
    method: str
    place: str
    size: int
    own: bool
    ranked: bool
    heads: frozenset[Head]


@dataclass(frozen=True)
class MethodEntry:
    """A method: how many heads it selects in any column, and those no other method selects."""

    name: str
    size: int
    specific: tuple[Head, ...]


@dataclass(frozen=True)
class HeadEntry:
    """One head: the methods that select it, and by column its score, rank and choice."""

    head: Head
    selected_by: tuple[str, ...]
    scores: tuple[float | None, ...]
    ranks: tuple[int | None, ...]
    selected: tuple[bool, ...]


@dataclass(frozen=True)
class AgreementRow:
    """So many methods select so many heads; random sets of their sizes would so many."""

    methods: int
    heads: int
    expected: float


@dataclass(frozen=True)
class MethodsRecord:
    """A run of `compare methods`; `heads` are in the result's order, most selected first."""

    result: Mapping[str, Any]
    model: str
    geometry: Geometry
    k: int
    columns: tuple[Column, ...]
    methods: tuple[MethodEntry, ...]
    shared: tuple[Head, ...]
    agreement: tuple[AgreementRow, ...]
    pairs: Sequence[Mapping[str, Any]]
    heads: tuple[HeadEntry, ...]


def read_methods(path: Path) -> MethodsRecord:
    """Read a finished run; InputError if it holds no comparison of methods or is damaged."""
    result = read_result(path)
    with naming(path / "result.json", KIND):
        columns = tuple(
            Column(
                str(one["name"]),
                str(one["method"]),
                str(one["place"]),
                int(one["size"]),
                bool(one["own_size"]),
                bool(one["ranked"]),
                frozenset(Head.parse(str(head)) for head in one["heads"]),
            )
            for one in result["columns"]
        )
        names = [one.name for one in columns]
        return MethodsRecord(
            result=result,
            model=str(result["model"]["name"] or "a model"),
            geometry=Geometry.from_dict(result["model"]["geometry"]),
            k=int(result["k"]),
            columns=columns,
            methods=tuple(
                MethodEntry(
                    str(one["name"]),
                    int(one["size"]),
                    tuple(Head.parse(str(head)) for head in one["specific"]),
                )
                for one in result["methods"]
            ),
            shared=tuple(Head.parse(str(head)) for head in result["shared"]),
            agreement=tuple(
                AgreementRow(int(one["methods"]), int(one["heads"]), float(one["expected"]))
                for one in result["agreement"]
            ),
            pairs=list(result["pairs"]),
            heads=tuple(_head(one, names) for one in result["heads"]),
        )


def _head(one: Mapping[str, Any], names: Sequence[str]) -> HeadEntry:
    cells = [one["columns"][name] for name in names]
    return HeadEntry(
        Head(int(one["layer"]), int(one["head"])),
        tuple(str(name) for name in one["selected_by"]),
        tuple(None if cell["score"] is None else float(cell["score"]) for cell in cells),
        tuple(None if cell["rank"] is None else int(cell["rank"]) for cell in cells),
        tuple(bool(cell["selected"]) for cell in cells),
    )


@dataclass(frozen=True)
class SurveyRun:
    """A method of a survey: how long it took (None: it was left out), and a remark."""

    method: str
    measures: str
    seconds: float | None
    why: str


def read_runs(path: Path) -> tuple[SurveyRun, ...]:
    """The methods of a finished survey; InputError if the folder holds none or is damaged."""
    result = read_result(path)
    with naming(path / "result.json", "a survey"):
        return tuple(
            SurveyRun(
                str(one["method"]),
                str(one["measures"]),
                None if one["seconds"] is None else float(one["seconds"]),
                str(one["why"] or ""),
            )
            for one in result["runs"]
        )
