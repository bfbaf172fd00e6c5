"""Results of commands in which a model writes under several conditions: as it is, with selected
heads changed, with as many random heads changed alike.

Parts are languages or pairs of them. `of` of a condition says whose heads it changes: `own`, those
of the part itself; those of statement `A` or `B`; of a language by its code; or "", named ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headscope.results.adapt import AppliedGate
from headscope.results.common import ComparedDetails, ComparedResult
from headscope.results.language_texts import LanguageSet
from headscope.runs import Record

#: How many outputs are in which language, by part and condition.
Written = Mapping[str, Mapping[str, Mapping[str, int]]]


@dataclass(frozen=True, kw_only=True)
class WritingDetails(ComparedDetails):
    """What all of these results have of their own.

    `data` says by part what was read, `heads_of` of a part which heads its conditions change where
    those of other parts are others, `not_measured` why a measure is missing.
    """

    data: Mapping[str, Mapping[str, str | int]] = field(default_factory=dict)
    heads_of: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    not_measured: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Mended:
    """Of the outputs that are `wrong` without any change (in another language, or empty) how many a
    condition mends, and of those that are `right` how many it breaks."""

    wrong: int
    mended: int
    right: int
    broken: int


@dataclass(frozen=True, kw_only=True)
class IdentifiedDetails(WritingDetails):
    """Outputs whose language the `identifier` tells: how many are in which, and what is mended, by
    part and condition."""

    identifier: str | None
    written: Written
    mended: Mapping[str, Mapping[str, Mended]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class OffTargetDetails(IdentifiedDetails):
    """`ask` is `translate` (with the `template`) or `continue`; languages without known heads are
    `without_heads`; heads write their mean output in translations into `give` instead of nothing.
    """

    ask: str
    give: str | None = None
    template: str | None = None
    chat: bool = False
    heads: Mapping[str, LanguageSet]
    without_heads: tuple[str, ...]

    @property
    def too_few(self) -> dict[str, LanguageSet]:
        """The languages with fewer specific heads than requested."""
        return {code: own for code, own in self.heads.items() if own.available < own.k}


@dataclass(frozen=True, kw_only=True)
class OffTarget(ComparedResult):
    """Outputs in another language than requested, without the heads of that language."""

    details: OffTargetDetails


@dataclass(frozen=True, kw_only=True)
class SummariesDetails(WritingDetails):
    """`task` is `summarise` or `repeat`; `cut` counts texts that were cut to fit the context."""

    task: str
    template: str = ""
    chat: bool = False
    gate: float
    heads: tuple[str, ...]
    cut: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Summaries(ComparedResult):
    """What is written with heads that all languages share times a gate."""

    details: SummariesDetails


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
    """All layers under one condition."""

    condition: str
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
class TransferDetails(WritingDetails):
    """A's heads are multiplied by `up`, B's by `down`."""

    up: float
    down: float
    chat: bool = False
    heads: Mapping[str, LanguageSet]
    lens: LensExample

    @property
    def without_heads(self) -> list[str]:
        """The languages that no head is specific to."""
        return [code for code, own in self.heads.items() if not own.chosen]


@dataclass(frozen=True, kw_only=True)
class Transfer(ComparedResult):
    """Which of two contradicting statements answers follow."""

    details: TransferDetails


@dataclass(frozen=True, kw_only=True)
class SteeringDetails(IdentifiedDetails):
    """Answers requested in the languages `steer`, with their heads times each of `factors`.

    The heads of the language `away` are removed in a condition of its own; `gate` is on the model
    throughout. `ranking` is `specific` or `importance`.
    """

    steer: tuple[str, ...]
    away: str | None
    ranking: str = "specific"
    factors: tuple[float, ...]
    gate: AppliedGate | None
    heads: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, kw_only=True)
class Steering(ComparedResult):
    """Answers in the language asked for, with its heads multiplied."""

    details: SteeringDetails


#: A result of what is written.
WritingResult = OffTarget | Summaries | Transfer | Steering
