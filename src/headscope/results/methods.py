"""What several methods say of the heads of one model: `compare methods` and `survey`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headscope.heads import Geometry, Head
from headscope.results.common import ModelFacts, Ranking
from headscope.results.overlap import PairOverlap
from headscope.runs import Result, entry


@dataclass(frozen=True, kw_only=True)
class ComparedRanking(Ranking):
    """One thing that a method says of every head, and the heads that it selects.

    `own_size`: the method chose the set itself; else it is the top of its scores. `ranked`: there
    are scores. `weights` is the digest of the model's weights; `heads` are `LAYER.HEAD`.
    """

    name: str
    method: str
    place: str
    signature: str = ""
    ranked: bool
    own_size: bool
    weights: str | None = None
    size: int
    heads: tuple[str, ...]

    @property
    def places(self) -> frozenset[Head]:
        """The heads that are selected."""
        return frozenset(map(Head.parse, self.heads))


@dataclass(frozen=True)
class MethodHeads:
    """A method: how many heads it selects in any column, and those no other method selects."""

    name: str
    size: int
    specific: tuple[str, ...]


@dataclass(frozen=True)
class Verdict:
    """What one column says of one head; rank 1 is the highest, ties share the lowest."""

    score: float | None
    rank: int | None
    selected: bool


@dataclass(frozen=True)
class HeadVerdicts:
    """One head: the methods that select it in any column, and what every column says by name."""

    layer: int
    head: int
    selected_by: tuple[str, ...]
    columns: Mapping[str, Verdict]

    @property
    def place(self) -> Head:
        """The head itself."""
        return Head(self.layer, self.head)


@dataclass(frozen=True)
class Agreement:
    """How many heads so many methods select.

    `expected` is what independent random sets of the methods' sizes would give.
    """

    methods: int
    heads: int
    expected: float


@dataclass(frozen=True)
class ComparedModel:
    """The model that all methods are about, as their runs name it."""

    name: str | None
    digest: str | None
    geometry: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class MethodComparison(Ranking):
    """A comparison of the top `k` of each method's scores, or of the sets that methods chose.

    `shared` are the heads that all methods select; `heads` are all of the model, most selected
    first.
    """

    k: int
    columns: tuple[ComparedRanking, ...]
    methods: tuple[MethodHeads, ...]
    shared: tuple[str, ...]
    agreement: tuple[Agreement, ...]
    pairs: tuple[PairOverlap, ...]
    heads: tuple[HeadVerdicts, ...]

    @property
    def apart(self) -> list[PairOverlap]:
        """Pairs of different methods: columns of one are alike or apart by their making."""
        method = {column.name: column.method for column in self.columns}
        return [pair for pair in self.pairs if method[pair.a] != method[pair.b]]


@dataclass(frozen=True, kw_only=True)
class MethodsResult(Result):
    """What `compare methods` returns."""

    model: ComparedModel
    comparison: MethodComparison = entry(flat="")

    @property
    def geometry(self) -> Geometry:
        """Of the model."""
        return Geometry.from_dict(self.model.geometry)


@dataclass(frozen=True)
class MethodRun:
    """A method of a survey: its run, below the survey's folder, or `why` it has none."""

    method: str
    measures: str
    needs: str
    run: str | None = None
    compared: bool = False
    seconds: float | None = None
    why: str | None = None


@dataclass(frozen=True, kw_only=True)
class SurveyResult(Result):
    """What `survey` returns: its runs, and their comparison."""

    model: ModelFacts
    quick: bool
    runs: tuple[MethodRun, ...]
    comparison: MethodComparison = entry(flat="")
    report: str | None = entry(absent=True)
