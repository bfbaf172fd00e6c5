"""One score for every head, with what is needed to rank, cut and test the scores again."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from types import MappingProxyType
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headscope.display import some
from headscope.errors import InputError
from headscope.heads.geometry import (
    Geometry,
    Head,
    HeadLike,
    check_geometry,
    count_of,
    without_gradients,
)
from headscope.heads.hub import Artifact
from headscope.heads.sets import HeadSet
from headscope.heads.store import Origin, Saved
from headscope.options import Amount

Array = NDArray[Any]
Rank = Literal["above-chance", "score"]
"""What heads are ranked by: their score minus what chance gives it, or the score itself."""
#: The method whose scores are ranked above chance; others' papers rank by the score itself.
TRANSLATION_SCORE = "translation-score"
#: How the note on other scores begins; the method follows in parentheses.
NO_CHANCE = "these have no chance"


@dataclass(frozen=True)
class LayerProfile:
    """The scores of one layer: how many heads, their mean and largest score, how many are active.

    `mean` and `highest` are None for a layer without attention heads. `token_alignment` is the
    mean over directions, as in `HeadScores.classes`.
    """

    layer: int
    heads: int
    mean: float | None
    highest: float | None
    token_alignment: float


def check_thresholds(active: float, inactive: float) -> None:
    """`InputError` unless 0 ≤ inactive ≤ active: else a head could be both."""
    if not 0 <= inactive <= active:
        raise InputError(
            f"--inactive is {inactive:g} and --threshold {active:g}; both must be 0 or more, and "
            "--inactive not above --threshold"
        )


@dataclass(frozen=True, eq=False)
class HeadScores(Artifact):
    """A score for every head of a model.

    `values`, `low` and `high` (the bounds of an interval) and each array of `extra` (for example
    `chance`) are float64 arrays (L, W), NaN where the model has no head; scores are finite, bounds
    and extras may be NaN at a head for which they are not defined. `statistics` holds arrays per
    example, for example `hits` (sentences, L, W) and `totals` (sentences,), from which intervals
    and tests are computed again without the model; those of a mean over directions are `parts`
    (directions, L, W), each direction's scores, and `parts_chance`, for the classes. `signature`
    is the run's. All arrays are read-only copies.
    """

    kind = "scores"
    geometry: Geometry
    values: NDArray[np.float64]
    method: str
    low: NDArray[np.float64] | None = None
    high: NDArray[np.float64] | None = None
    extra: Mapping[str, Array] = field(default_factory=dict)
    statistics: Mapping[str, Array] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    signature: str = ""

    def __post_init__(self) -> None:
        values = self._over_heads("the scores", self.values)
        if not np.isfinite(values[self.geometry.mask()]).all():
            raise InputError("scores must be finite numbers; these hold NaN or infinity")
        object.__setattr__(self, "values", values)
        if (self.low is None) != (self.high is None):
            raise InputError("an interval needs both bounds, low and high")
        for name in ("low", "high"):
            bound = getattr(self, name)
            if bound is not None:
                object.__setattr__(self, name, self._over_heads(f"'{name}'", bound))
        extra = {name: self._over_heads(f"'{name}'", array) for name, array in self.extra.items()}
        statistics = {name: _read_only(np.array(a)) for name, a in self.statistics.items()}
        object.__setattr__(self, "extra", MappingProxyType(extra))
        object.__setattr__(self, "statistics", MappingProxyType(statistics))
        for name in {"parts", "parts_chance"} & statistics.keys():
            if statistics[name].shape[1:] != self.geometry.shape or not len(statistics[name]):
                raise InputError(
                    f"'{name}' of {self.geometry} have the shape (directions, "
                    f"{', '.join(map(str, self.geometry.shape))}), not {statistics[name].shape}"
                )

    def _over_heads(self, name: str, array: ArrayLike) -> NDArray[np.float64]:
        copy = np.array(without_gradients(array), dtype=np.float64)
        if copy.shape != self.geometry.shape:
            raise InputError(
                f"{name} of {self.geometry} have the shape {self.geometry.shape}, not {copy.shape}"
            )
        copy[~self.geometry.mask()] = np.nan
        if np.isinf(copy).any():
            raise InputError(f"{name} must be finite numbers; these hold infinity")
        return _read_only(copy)

    @property
    def origin(self) -> Origin:
        """What made these scores."""
        return Origin(self.method, self.signature, self.config, self.provenance)

    def __getitem__(self, head: HeadLike) -> float:
        """The score of a head: `scores["5.1"]`, `scores[5, 1]` or `scores[Head(5, 1)]`."""
        head = self.geometry.check(head)
        return float(self.values[head.layer, head.head])

    def __repr__(self) -> str:
        best = some([f"{head} {score:.3g}" for head, score in self.ranked("score")])
        return f"HeadScores({self.method} of {self.geometry}: {best})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, HeadScores):
            return NotImplemented
        return (
            self.geometry == other.geometry
            and self.origin == other.origin
            and _same(self._tensors(), other._tensors())
        )

    @property
    def chance_known(self) -> bool:
        """Whether chance is known at every head, and of a mean in every direction."""
        known = [self.extra.get("chance"), self.statistics.get("parts_chance")]
        arrays = known if "parts" in self.statistics else known[:1]
        mask = self.geometry.mask()
        return all(part is not None and bool(np.isfinite(part[..., mask]).all()) for part in arrays)

    @property
    def counted_over(self) -> int:
        """The number of directions that classes are counted in; 1 unless this is a mean."""
        return len(self.statistics.get("parts", (self.values,)))

    def rank_used(self, by: Rank = "above-chance") -> Rank:
        """`by`, but `score` unless chance is known."""
        if by not in get_args(Rank):
            raise InputError(f"heads are ranked by {' or '.join(get_args(Rank))}, not by {by!r}")
        return by if self.chance_known else "score"

    def ranked(self, by: Rank = "above-chance") -> list[tuple[Head, float]]:
        """All heads with what they are ranked by, highest first, ties by layer, then head.

        That is the score minus chance, or the score: see `rank_used`.
        """
        above = self.rank_used(by) == "above-chance"
        values = self.values - self.extra["chance"] if above else self.values
        pairs = [(head, float(values[head.layer, head.head])) for head in self.geometry.heads()]
        return sorted(pairs, key=lambda pair: -pair[1])

    def records(self, by: Rank = "above-chance") -> list[dict[str, Any]]:
        """All heads by score as JSON objects: layer, head, score, low, high and every extra.

        `above_chance` is the score minus chance, None where that is not known, `rank` the place
        (from 1) in `ranked(by)`.
        """
        rank = {head: place for place, (head, _) in enumerate(self.ranked(by), 1)}
        chance = self.extra.get("chance")
        above = None if chance is None else self.values - chance
        return [
            {
                "layer": head.layer,
                "head": head.head,
                "score": score,
                "low": _number(self.low, head),
                "high": _number(self.high, head),
                **{name: _number(array, head) for name, array in self.extra.items()},
                "above_chance": _number(above, head),
                "rank": rank[head],
            }
            for head, score in self.ranked("score")
        ]

    def top(self, k: Amount, by: Rank = "above-chance") -> HeadSet:
        """The first `k` heads of `ranked(by)`, in that order; a number or a share of all.

        The configuration of the set's origin holds `ranking(by)`.
        """
        heads = tuple(head for head, _ in self.ranked(by)[: count_of(k, self.geometry.total)])
        origin = replace(self.origin, config={**self.config, **self.ranking(by)})
        return HeadSet(self.geometry, heads, origin)

    def ranking(self, by: Rank = "above-chance") -> dict[str, str | None]:
        """What a result says of `ranked(by)`: `rank`, and in `rank_note` why, if not by `by`."""
        used, why = self.rank_used(by), None
        if used != by and not {"chance", "parts_chance"} & {*self.extra, *self.statistics}:
            why = f"{NO_CHANCE} ({self.method})"
        elif used != by:
            why = "chance is not known at every head"
        return {"rank": used, "rank_note": why}

    def select(self, threshold: float) -> HeadSet:
        """The heads with a score above `threshold`, highest first."""
        heads = tuple(head for head, score in self.ranked("score") if score > threshold)
        return HeadSet(self.geometry, heads, self.origin)

    def classes(self, active: float = 0.1, inactive: float = 0.0) -> dict[str, float]:
        """How many heads are in each of the three classes.

        `token_alignment`: score above `active`; `inactive`: score at most `inactive`;
        `low_activity`: between them (Token Alignment Heads, section on head classes; the paper's
        thresholds are 0.1 and 0). Of a mean over directions the heads are counted in each
        direction, and the counts averaged, so that they need not be whole.
        """
        above, idle = self._over_and_under(active, inactive)
        counts = {
            "token_alignment": above,
            "low_activity": self.geometry.mask() & ~(above | idle),
            "inactive": idle,
        }
        return {name: _mean_count(heads) for name, heads in counts.items()}

    def classes_above_chance(
        self, active: float = 0.1, inactive: float = 0.0
    ) -> dict[str, float] | None:
        """The classes of score minus chance; None where chance is not known at every head."""
        return self.above_chance().classes(active, inactive) if self.chance_known else None

    def layer_profile(self, active: float = 0.1) -> list[LayerProfile]:
        """For each layer: number of heads, mean and highest score, heads above `active`."""
        above, _ = self._over_and_under(active)
        profile = []
        for layer, count in enumerate(self.geometry.counts):
            row = self.values[layer, :count]
            mean, highest = (float(row.mean()), float(row.max())) if count else (None, None)
            profile.append(LayerProfile(layer, count, mean, highest, _mean_count(above[:, layer])))
        return profile

    def _over_and_under(
        self, active: float, inactive: float = 0.0
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """The token alignment heads and the inactive ones of each direction, (directions, L, W)."""
        check_thresholds(active, inactive)
        parts = self.statistics.get("parts", self.values[np.newaxis])
        return parts > active, parts <= inactive  # NaN, where there is no head, is neither

    def above_chance(self) -> HeadScores:
        """Scores minus `extra["chance"]`, with the bounds shifted by the same amount.

        So are the parts of a mean whose own chances are known; it loses them if they are not.
        """
        if "chance" not in self.extra:
            raise InputError(f"these scores ({self.method}) hold no 'chance' to subtract")
        chance = self.extra["chance"]
        parts = {name: self.statistics.get(name) for name in ("parts", "parts_chance")}
        statistics = {name: array for name, array in self.statistics.items() if name not in parts}
        if parts["parts"] is not None and parts["parts_chance"] is not None:
            statistics["parts"] = parts["parts"] - parts["parts_chance"]
        return replace(
            self,
            values=self.values - chance,
            low=None if self.low is None else self.low - chance,
            high=None if self.high is None else self.high - chance,
            method=f"{self.method} minus chance",
            extra=dict(self.extra),
            statistics=statistics,
        )

    @classmethod
    def mean(cls, scores: Mapping[str, HeadScores]) -> HeadScores:
        """The plain mean over several directions (or languages), of scores and shared extras.

        Its bounds are the means of the parts' bounds: right where the parts rise and fall
        together, as directions over the same sentences do, and too wide otherwise. An extra that
        a part does not define at a head (NaN) is averaged over the parts that do. Statistics
        stay with the parts, whose scores and chances the mean keeps (see `classes`). Of their
        configurations it keeps what they agree on; its signature stands for all of theirs.
        InputError for scores of several methods, whose mean has no name.
        """
        parts = list(scores.values())
        if not parts:
            raise InputError("there are no scores to take the mean of")
        first = parts[0]
        for part in parts[1:]:
            check_geometry(part, first.geometry, "one of the scores")
        if len(methods := sorted({part.method for part in parts})) > 1:
            raise InputError(f"scores of several methods ({', '.join(methods)}) have no mean")
        names = [name for name in first.extra if all(name in part.extra for part in parts)]
        lows = [part.low for part in parts if part.low is not None]
        highs = [part.high for part in parts if part.high is not None]
        bounded = len(lows) == len(parts)
        return cls(
            first.geometry,
            np.mean([part.values for part in parts], axis=0),
            first.method,
            np.mean(lows, axis=0) if bounded else None,
            np.mean(highs, axis=0) if bounded else None,
            extra={name: mean_of_defined([part.extra[name] for part in parts]) for name in names},
            statistics=_parts(parts) if len(parts) > 1 else {},
            config={**_agreed([part.config for part in parts]), "mean_over": list(scores)},
            provenance=_agreed([part.provenance for part in parts]),
            signature=_joined([part.signature for part in parts]),
        )

    @classmethod
    def _of(cls, saved: Saved) -> HeadScores:
        shape = saved.geometry.shape
        arrays: dict[str, Any] = {"extra": {}, "statistics": {}}
        for name in sorted(saved.tensors):
            group, _, key = name.partition(".")
            if key and group in arrays:
                arrays[group][key] = saved.tensors[name]
        for name in ("values", *({"low", "high"} & saved.tensors.keys())):
            arrays[name] = saved.tensor(name, np.float64, shape)
        return cls(saved.geometry, **arrays, **vars(saved.origin))

    def _tensors(self) -> dict[str, Array]:
        tensors: dict[str, Array] = {"values": self.values}
        if self.low is not None and self.high is not None:
            tensors |= {"low": self.low, "high": self.high}
        tensors |= {f"extra.{name}": array for name, array in self.extra.items()}
        tensors |= {f"statistics.{name}": array for name, array in self.statistics.items()}
        return tensors


def _parts(scores: Sequence[HeadScores]) -> dict[str, Array]:
    """The scores of several directions and, where all have one, their chances, as statistics."""
    statistics = {"parts": np.stack([part.values for part in scores])}
    if all("chance" in part.extra for part in scores):
        statistics["parts_chance"] = np.stack([part.extra["chance"] for part in scores])
    return statistics


def _mean_count(heads: NDArray[np.bool_]) -> float:
    """The mean over the first axis of how many are True in the others; an int where it is whole."""
    whole, rest = divmod(int(heads.sum()), len(heads))
    return whole if rest == 0 else int(heads.sum()) / len(heads)


def _read_only(array: Array) -> Array:
    array.flags.writeable = False
    return array


def _agreed(settings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    first, *others = settings
    return {
        name: value
        for name, value in first.items()
        if all(name in record and record[name] == value for record in others)
    }


def _joined(signatures: Sequence[str]) -> str:
    """One signature for several: the fields they begin with, and a digest of them all."""
    if len(set(signatures)) == 1:
        return signatures[0]
    digest = hashlib.sha256("\n".join(signatures).encode()).hexdigest()[:12]
    fields = zip(*(signature.split("|") for signature in signatures), strict=False)
    common = [same[0] for same in takewhile(lambda same: len(set(same)) == 1, fields)]
    return "|".join([*common, f"mean:{digest}"])


def mean_of_defined(values: ArrayLike, axis: int = 0) -> Array:
    """The mean over an axis of what is not NaN; NaN where all is."""
    numbers = np.asarray(values)
    defined = ~np.isnan(numbers)
    count = defined.sum(axis=axis)
    total = np.where(defined, numbers, 0.0).sum(axis=axis)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _number(array: Array | None, head: Head) -> float | None:
    number = np.nan if array is None else array[head.layer, head.head]
    return None if np.isnan(number) else float(number)


def _same(first: Mapping[str, Array], other: Mapping[str, Array]) -> bool:
    return first.keys() == other.keys() and all(
        np.array_equal(first[name], other[name], equal_nan=first[name].dtype.kind == "f")
        for name in first
    )
