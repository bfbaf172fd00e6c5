"""What several methods say of the heads of one model: `compare methods` and `survey`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headscope.estimates import Draws, Estimate
from headscope.heads import Geometry
from headscope.results.common import ModelFacts, ModelResult, OneHead, Ranking
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
class HeadVerdicts(OneHead):
    """One head: the methods that select it in any column, and what every column says by name."""

    selected_by: tuple[str, ...]
    columns: Mapping[str, Verdict]


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
    """A method of a survey: its run, below the survey's folder, or `why` it has none.

    `forward_tokens` went through all layers without gradients, `gradient_tokens` with; None where
    they were not counted, since a run was stopped and went on.
    """

    method: str
    measures: str
    needs: str
    run: str | None = None
    compared: bool = False
    seconds: float | None = None
    why: str | None = None
    forward_tokens: int | None = entry(absent=True)
    gradient_tokens: int | None = entry(absent=True)


@dataclass(frozen=True)
class Judgement(Estimate):
    """What a judge says of the ranking of a method, with its 95 % interval over examples.

    `judge` is CPR or CMD with what replaces heads (`CPR zero`), or `prediction`: Spearman's
    correlation of the harm of removing random sets with the sum of the scores of their heads.
    `difference` is from the mean of random rankings, `p_draws` from the rank among them: of
    `draws` different ones `at_least_as_harmful` do as well.
    """

    method: str = ""
    judge: str = ""
    difference: Estimate | None = None
    p_draws: float | None = None
    draws: int = 0
    at_least_as_harmful: int | None = None

    @property
    def as_far(self) -> str:
        """How many random rankings do as well, such as `0 of 19`; empty where that is unknown."""
        known = self.at_least_as_harmful is not None
        return f"{self.at_least_as_harmful} of {self.draws}" if known else ""


@dataclass(frozen=True, kw_only=True)
class JudgesResult(ModelResult):
    """The rankings of several methods beside one another and beside random ones.

    `measure` is what circuits keep and sets harm. `random` has, by judge, the mean and the range of
    random rankings, `draws` different ones; `sets` random sets of `size` heads were removed.
    `left_out` counts examples without a difference of two answers. `unjudged` says why a method or
    an ablation has no judgement. `ahead` is the first method of `CPR zero` minus the second.
    """

    tasks: tuple[str, ...] = ()
    measure: str = ""
    examples: int = 0
    left_out: int = 0
    draws: int = 0
    sets: int = 0
    size: int = 0
    judgements: tuple[Judgement, ...] = ()
    random: Mapping[str, Draws] = field(default_factory=dict)
    unjudged: Mapping[str, str] = field(default_factory=dict)
    ahead: Estimate | None = None

    def of(self, judge: str) -> dict[str, Judgement]:
        """What a judge says of each method, the best first."""
        sign = 1 if judge.startswith("CMD") else -1
        own = [each for each in self.judgements if each.judge == judge]
        return {each.method: each for each in sorted(own, key=lambda each: sign * each.value)}


@dataclass(frozen=True, kw_only=True)
class SurveyResult(Result):
    """What `survey` returns: its runs, and their comparison."""

    model: ModelFacts
    quick: bool
    runs: tuple[MethodRun, ...]
    comparison: MethodComparison = entry(flat="")
    judges: JudgesResult | None = entry(absent=True)
    report: str | None = entry(absent=True)

    @property
    def checked(self) -> JudgesResult | None:
        """What says if the original model does the task that methods are judged by."""
        return self.judges
