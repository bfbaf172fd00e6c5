"""What a removal does to the losses of reference translations: changes, intervals and tests.

Everything follows from losses stored for each sentence; no model takes part. An NLL is the mean
over sentences of each one's mean over its tokens, in nats a token; of a kind of tokens over the
sentences that have some.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscope.measure.intervals import FromStatistics, bootstrap_difference
from headscope.measure.statistics import least_p, p_draws, p_sentences
from headscope.verify.removal.evidence import CONTROLS
from headscope.verify.removal.losses import CLASSES, ReferenceLosses
from headscope.verify.removal.outputs import Kind, Label

__all__ = ["LINKED_MINUS_UNLINKED", "loss_evidence"]

Floats = NDArray[np.float64]

LINKED_MINUS_UNLINKED = "linked_minus_unlinked"
#: Columns of a sentence's statistics: its NLL, and whether it has one, of all tokens and each kind.
ALL, LINKED, UNLINKED = 0, 1, 3


def loss_evidence(
    labels: Sequence[Label],
    sets: Sequence[Collection[str]],
    directions: Mapping[str, ReferenceLosses],
    seed: int = 0,
    ending: str = "",
) -> dict[str, Any]:
    """The NLL figures of a removal over all directions, and in `directions` those of each.

    `labels` name the conditions in the order of the losses, the first of them the model as it is;
    `sets` holds the heads of each. `baseline` and `conditions` have `nll`, `nll_linked`,
    `nll_linked_later` and `nll_unlinked`, each `_micro` too (over tokens), None where there is no
    such token; conditions their `change`. Chosen heads are tested against the random draws, free
    and of the same layers: `against_random` is selected − random, `classes` the same for each kind
    of tokens and for the difference between linked (first tokens) and unlinked ones. The names of
    tests end in `ending`. Over several directions all are plain means, and sentences are drawn
    within directions. Harm is a higher NLL.
    """
    parts = {
        name: _described(_Parts(labels, sets, [one], seed), ending)
        for name, one in directions.items()
    }
    if len(parts) == 1:
        return {**next(iter(parts.values())), "directions": parts}
    whole = _Parts(labels, sets, list(directions.values()), seed)
    return {**_described(whole, ending), "directions": parts}


@dataclass(frozen=True)
class _Parts:
    """One direction, or several of which the plain mean counts."""

    labels: Sequence[Label]
    sets: Sequence[Collection[str]]
    directions: Sequence[ReferenceLosses]
    seed: int

    def statistics(self, numbers: Sequence[int]) -> list[Floats]:
        """Of conditions by direction (N, S, 8): NLL and whether there is one, for `ALL`, …"""
        found = []
        for one in self.directions:
            tokens = np.concatenate([one.tokens.sum(axis=1, keepdims=True), one.tokens], axis=1)
            sums = one.sums[list(numbers)]
            sums = np.concatenate([sums.sum(axis=2, keepdims=True), sums], axis=2)
            has = np.broadcast_to((tokens > 0).astype(np.float64), sums.shape)
            nll = sums / np.maximum(tokens, 1)
            found.append(np.stack([nll, has], axis=-1).reshape(*sums.shape[:2], -1))
        return found

    def nll(self, number: int) -> dict[str, float | None]:
        """NLL of one condition, of all tokens and of each kind, macro and micro."""
        found: dict[str, float | None] = {}
        for column, name in enumerate(["nll", *(f"nll_{kind}" for kind in CLASSES)]):
            score = _nll(column)
            macro = [score(part[0].sum(axis=0)) for part in self.statistics([number])]
            kinds = slice(None) if column == ALL else slice(column - 1, column)
            micro = [
                one.sums[number, :, kinds].sum() / tokens if tokens else math.nan
                for one in self.directions
                if (tokens := int(one.tokens[:, kinds].sum())) >= 0
            ]
            found |= {name: _number(np.mean(macro)), f"{name}_micro": _number(np.mean(micro))}
        return found

    def difference(
        self, number: int, others: Sequence[int], score: FromStatistics
    ) -> dict[str, float | None]:
        """A score of a condition minus the mean of others, with an interval over sentences."""
        if not others:
            return {"value": None, "low": None, "high": None}
        one = [part[0] for part in self.statistics([number])]
        found = bootstrap_difference(one, self.statistics(others), score, seed=self.seed)
        return {name: _number(value) for name, value in found._asdict().items()}

    def tested(self, number: int, draws: Sequence[int], score: FromStatistics) -> dict[str, Any]:
        """The difference to random draws, with p over sentences and over different draws."""
        found: dict[str, Any] = self.difference(number, draws, score)
        known = found["value"] is not None
        ps: tuple[float | None, float | None] = (None, None)
        if known:
            one = [part[0] for part in self.statistics([number])]
            controls = self.statistics(draws)
            different = [draws.index(at) for at in self.different(draws)]
            totals = np.mean([score(part.sum(axis=1)) for part in controls], axis=0)[different]
            own = float(np.mean([score(part.sum(axis=0)) for part in one]))
            ps = (
                p_sentences(one, controls, lambda sums: -score(sums), seed=self.seed),
                p_draws(-own, -totals),
            )
        return {**found, "p_sentences": ps[0], "p_draws": ps[1]}

    def of(self, kind: Kind, label: Label) -> list[int]:
        """The places of the draws of one kind beside a condition."""
        like = replace(label, kind=kind)
        return [n for n, one in enumerate(self.labels) if replace(one, draw=None) == like]

    def different(self, draws: Sequence[int]) -> list[int]:
        """Of draws the first of each set of heads."""
        return sorted({frozenset(self.sets[at]): at for at in reversed(draws)}.values())


def _nll(column: int) -> FromStatistics:
    def score(sums: NDArray[Any]) -> Floats:
        with np.errstate(invalid="ignore"):  # no sentence has such a token
            return np.asarray(sums[..., 2 * column] / sums[..., 2 * column + 1])

    return score


def _gap(sums: NDArray[Any]) -> Floats:
    return _nll(LINKED)(sums) - _nll(UNLINKED)(sums)


def _described(parts: _Parts, ending: str) -> dict[str, Any]:
    """Baseline and conditions of one direction or of the mean over several."""
    rows: list[dict[str, Any]] = []
    for number, label in enumerate(parts.labels[1:], 1):
        change = parts.difference(number, [0], _nll(ALL))
        rows.append({**asdict(label), **parts.nll(number), "change": {"nll": change}})
        if label.kind == "top":
            rows[-1] |= _tests(parts, number, ending)
    largest = max((one.k for one in parts.labels), default=0)
    main = next((row for row in rows if row["kind"] == "top" and row["k"] == largest), None)
    kinds = np.sum([one.tokens.sum(axis=0) for one in parts.directions], axis=0)
    return {
        "sentences": sum(len(one.tokens) for one in parts.directions),
        "reference_tokens": dict(zip(CLASSES, kinds.tolist(), strict=True)),
        "baseline": {**parts.nll(0), **_interval(parts)},
        "conditions": rows,
        f"p_value{ending}": None if main is None else main[f"p_sentences{ending}"],
    }


def _tests(parts: _Parts, number: int, ending: str) -> dict[str, Any]:
    """A condition of the chosen heads against the random draws of the same size and gate."""
    found: dict[str, Any] = {}
    for kind, matched in CONTROLS.items():
        draws = parts.of(kind, parts.labels[number])
        if not draws:
            continue
        test = parts.tested(number, draws, _nll(ALL))
        scores = {name: _nll(column) for column, name in enumerate(CLASSES, LINKED)}
        scores[LINKED_MINUS_UNLINKED] = _gap
        found |= {
            f"p_sentences{matched}{ending}": test.pop("p_sentences"),
            f"p_draws{matched}{ending}": test.pop("p_draws"),
            f"against_random{matched}{ending}": test,
            f"distinct_draws{matched}{ending}": len(parts.different(draws)),
            f"least_p{matched}{ending}": least_p(len(parts.different(draws))),
            f"classes{matched}": {
                name: parts.tested(number, draws, score) for name, score in scores.items()
            },
        }
    return found


def _interval(parts: _Parts) -> dict[str, float | None]:
    """The bounds of the untouched model's NLL: of its difference to a loss of nothing."""
    own = [part[0] for part in parts.statistics([0])]
    nothing = [np.where(np.arange(8) % 2, one, 0.0) for one in own]
    found = bootstrap_difference(own, nothing, _nll(ALL), seed=parts.seed)
    return {"nll_low": float(found.low), "nll_high": float(found.high)}


def _number(value: Any) -> float | None:
    return None if math.isnan(value) else float(value)
