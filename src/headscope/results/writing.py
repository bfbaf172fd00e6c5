"""Results of commands in which a model writes under several gates: as it is, with chosen heads
changed, with as many random heads changed alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headscope.estimates import Against, Draws, Estimate
from headscope.results.adapt import AppliedGate
from headscope.results.common import Ablation, Checked, Leakage, ModelResult, Ranking, against
from headscope.runs import Record, entry

#: What the mean over groups is called among them.
MEAN = "mean"


@dataclass(frozen=True)
class Control:
    """Random heads of one kind: their scores, and the chosen heads against them."""

    draws: Draws = entry(name="random")
    against: Against = against()


@dataclass(frozen=True, kw_only=True)
class Effect(Record):
    """Chosen heads by one measure: the score with them changed, `baseline` as the model is.

    `free` are random heads of any layer, `matched` of the same layers; None where there are none.
    `groups` are counted, and `p_change` is a paired test of the prompts before and after.
    """

    value: float
    baseline: float
    change: Estimate
    groups: int = 1
    free: Control | None = entry(flat="")
    matched: Control | None = entry(flat="_layer_matched")
    p_change: float | None = entry(absent=True)

    @property
    def controls(self) -> dict[str, Control]:
        """Random heads by what their conditions are called."""
        both = {"random": self.free, "random-layer-matched": self.matched}
        return {kind: control for kind, control in both.items() if control is not None}

    @property
    def span(self) -> tuple[float, float]:
        """The interval of the change, around the score that it leads to."""
        return self.baseline + self.change.low, self.baseline + self.change.high


@dataclass(frozen=True, kw_only=True)
class WritingCondition(Record):
    """One gate: of chosen heads, or of random ones (`draw`, from 0); `unknown` are its scores.

    Of several groups `groups` says how many have it; its `k` heads differ between them.
    """

    kind: str
    k: int | None = entry(absent=True)
    gate: float | None = entry(absent=True)
    draw: int | None = None
    heads: tuple[str, ...] | None = entry(absent=True)
    filled_up: int | None = entry(absent=True)
    groups: int | None = entry(absent=True)

    @property
    def scores(self) -> Mapping[str, Any]:
        """Its score by measure, None where that was not measured."""
        return self.unknown


@dataclass(frozen=True)
class Written:
    """How many outputs of a condition are in which language, the most frequent first."""

    kind: str
    draw: int | None
    languages: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class WritingEffects(Record):
    """Some prompts under every gate: scores by measure, and effects by chosen kind and measure.

    `written` are the languages of the outputs where they could be identified, `without_gate` the
    scores without the gate that is on the model in every condition.
    """

    prompts: int
    baseline: Mapping[str, float | None] = field(default_factory=dict)
    conditions: tuple[WritingCondition, ...]
    effects: Mapping[str, Mapping[str, Effect]]
    written: tuple[Written, ...] | None = entry(absent=True)
    without_gate: Mapping[str, float | None] | None = entry(absent=True)

    def effect(self, kind: str, measure: str) -> Effect | None:
        """That of a chosen kind by a measure, if it is known."""
        return self.effects.get(kind, {}).get(measure)

    def draws(self, kind: str, control: str, measure: str) -> list[float]:
        """Scores of single draws of the random heads for a chosen kind."""
        own = f"{kind}-{control}", control
        return [
            row.scores[measure]
            for row in self.conditions
            if row.kind in own and row.draw is not None and row.scores[measure] is not None
        ]

    @property
    def sizes(self) -> dict[str, int]:
        """How many heads each chosen kind changes, where the groups do not differ in it."""
        rows = (row for row in self.conditions if row.draw is None)
        return {row.kind: row.k for row in rows if row.k is not None}


@dataclass(frozen=True, kw_only=True)
class WritingResult(ModelResult):
    """What all of these results hold: `whole` is the mean over groups, or the only group.

    `data` says by group what was read. `leakage` and `checked` are None where nobody looked.
    """

    whole: WritingEffects = entry(flat="")
    groups: Mapping[str, WritingEffects] = entry(name="languages")
    draws: int = 0
    seed: int = 0
    data: Mapping[str, Mapping[str, str | int]] = field(default_factory=dict)

    @property
    def parts(self) -> dict[str, WritingEffects]:
        """The mean over groups first, where there are several; then the groups."""
        return {MEAN: self.whole, **self.groups} if len(self.groups) > 1 else dict(self.groups)


@dataclass(frozen=True)
class HeadsOfLanguage(Record):
    """Of `wanted` heads specific to a language `available` exist; `full` are as many by score."""

    wanted: int
    available: int
    specific: tuple[str, ...]
    full: tuple[str, ...] | None


@dataclass(frozen=True, kw_only=True)
class OffTarget(WritingResult, Ablation):
    """Outputs in another language than requested, without the heads of that language.

    `ask` is `translate` (with the `template`) or `continue`. Languages without known heads
    are `without_heads`. `not_measured` says why a measure is missing.
    """

    ask: str
    template: str | None = None
    ranked: Ranking | None = entry(flat="")
    chat: bool = False
    heads: Mapping[str, HeadsOfLanguage]
    without_heads: tuple[str, ...]
    leakage: Leakage | None = entry(absent=True)
    checked: Checked | None = entry(flat="")
    identifier: str | None
    not_measured: Mapping[str, str]

    @property
    def too_few(self) -> dict[str, HeadsOfLanguage]:
        """The languages with fewer specific heads than requested."""
        return {code: own for code, own in self.heads.items() if own.available < own.wanted}


@dataclass(frozen=True, kw_only=True)
class Summaries(WritingResult, Ablation):
    """What is written with `k` heads that all languages share times `gate`.

    `task` is `summarise` or `repeat`; `cut` counts texts that were cut to fit the context.
    """

    task: str
    template: str = ""
    chat: bool = False
    k: int = 0
    ranked: Ranking | None = entry(flat="")
    gate: float
    heads: tuple[str, ...]
    cut: Mapping[str, int] = field(default_factory=dict)
    leakage: Leakage | None = entry(absent=True)
    not_measured: Mapping[str, str]


@dataclass(frozen=True)
class SpecificHeads(Record):
    """The heads of a language that are changed, of `available` ones."""

    available: int
    heads: tuple[str, ...]


@dataclass(frozen=True)
class LensLayer:
    """One layer under the lens: its likeliest tokens, and the best rank of either answer."""

    layer: int
    tokens: tuple[str, ...]
    logits: tuple[float, ...]
    rank_a: int | None
    rank_b: int | None


@dataclass(frozen=True)
class LensCondition:
    """All layers under one gate."""

    kind: str
    layers: tuple[LensLayer, ...]


@dataclass(frozen=True, kw_only=True)
class LensExample(Record):
    """One prompt with the forms of both answers under the lens."""

    pair: str
    id: str
    prompt: str
    answers_a: tuple[str, ...]
    answers_b: tuple[str, ...]
    conditions: tuple[LensCondition, ...]


@dataclass(frozen=True, kw_only=True)
class Transfer(WritingResult, Ablation):
    """Which of two contradicting statements answers follow, A's heads times `up`, B's `down`."""

    groups: Mapping[str, WritingEffects] = entry(name="pairs")
    up: float
    down: float
    chat: bool = False
    heads: Mapping[str, SpecificHeads]
    lens: LensExample

    @property
    def without_heads(self) -> list[str]:
        """The languages that no head is specific to."""
        return [code for code, own in self.heads.items() if not own.heads]


@dataclass(frozen=True, kw_only=True)
class Steering(WritingResult):
    """Answers requested in the languages `steer`, with their heads times each of `factors`.

    The heads of the language `away` are removed in a condition of its own; `gate` is on the model
    throughout. `ranking` is `specific` or `importance`.
    """

    steer: tuple[str, ...]
    away: str | None
    ranking: str = "specific"
    ranked: Ranking | None = entry(flat="")
    factors: tuple[float, ...]
    gate: AppliedGate | None
    heads: Mapping[str, tuple[str, ...]]
    identifier: str | None
    not_measured: Mapping[str, str]
