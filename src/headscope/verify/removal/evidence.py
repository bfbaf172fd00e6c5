"""What a removal shows: measures, differences with intervals and tests, from measured outputs.

Everything here follows from numbers stored for each sentence; no model takes part.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from headscope.measure.intervals import bootstrap_difference
from headscope.measure.metrics import bleu_from_statistics, chrf_from_statistics
from headscope.measure.statistics import least_p, p_draws, p_sentences
from headscope.verify.removal.measures import UNKNOWN, Measured, Measures
from headscope.verify.removal.outputs import Kind, Label

__all__ = ["CONTROLS", "evidence", "statistics"]

Array = NDArray[Any]
Progress = Callable[[str, int, int], None]
Control = Literal["random", "random-layer-matched"]

#: The kinds of random draws, and how the fields about each end.
CONTROLS: dict[Control, str] = {"random": "", "random-layer-matched": "_layer_matched"}
RATES = ("off_target", "source_copy", "comet", "bleurt", "empty")


def evidence(
    labels: Sequence[Label],
    sets: Sequence[Collection[str]],
    measures: Measures,
    seed: int = 0,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """The figures of a removal over all directions, and in `directions` those of each.

    Over several directions every measure is the plain mean, but BLEU only where all are cut by the
    same tokeniser (`bleu_tokenizers`); tests and intervals resample sentences within directions.
    `labels` name the conditions in the order of the measures, the first of them the model as it is;
    `sets` holds the heads of each. Fields: `baseline`, `conditions`, `curves`, `p_value` (that over
    sentences at the largest k, its first gate and the first kind of ablation), `identifier`, and
    `not_measured`, why a measure is null.
    """
    names, cut = list(measures.directions), measures.bleu_tokenizers
    total = len(names) + (len(names) > 1)
    found: dict[str, dict[str, Any]] = {}
    for number, name in enumerate(names):
        found[name] = _described(
            _Parts(labels, sets, [measures.directions[name]], seed, cut.get(name, ""))
        )
        if progress:
            progress("comparing", number + 1, total)
    whole = found[names[0]]
    if len(names) > 1:
        one = None if _mixed(cut) else ""
        whole = _described(_Parts(labels, sets, list(measures.directions.values()), seed, one))
        if progress:
            progress("comparing", total, total)
    return {
        **whole,
        "identifier": measures.identifier,
        "not_measured": {**measures.missing, **_mixed(cut)},
        "bleu_tokenizers": dict(cut),
        "directions": found,
    }


def _mixed(tokenizers: Mapping[str, str]) -> dict[str, str]:
    """Why BLEU has no mean over directions, where its units differ."""
    names = dict.fromkeys(tokenizers.values())
    if len(tokenizers) < 2 or (len(names) < 2 and UNKNOWN not in names):
        return {}
    return {"bleu": f"directions are cut by {', '.join(names)}, so their BLEU has no mean"}


def statistics(measures: Measures) -> dict[str, Array]:
    """The numbers of each sentence, as `DIRECTION.MEASURE`: arrays (conditions, sentences, …)."""
    return {
        f"{name}.{key}": array
        for name, measured in measures.directions.items()
        for key, array in measured.tensors().items()
    }


@dataclass(frozen=True)
class _Parts:
    """One direction, or several of which the plain mean counts."""

    labels: Sequence[Label]
    sets: Sequence[Collection[str]]
    directions: Sequence[Measured]
    seed: int
    tokenizer: str | None = ""  # of BLEU; None: they differ

    def counts(self, number: int) -> list[Array] | None:
        """The chrF counts of a condition by direction, (S, 24) each."""
        found = [one.chrf[number] for one in self.directions if one.chrf is not None]
        return found if len(found) == len(self.directions) else None

    def measures(self, number: int) -> dict[str, float | None]:
        """All measures of one condition; None where a direction lacks it."""

        def mean(of: Callable[[Measured], float | None]) -> float | None:
            values = [value for one in self.directions if (value := of(one)) is not None]
            return float(np.mean(values)) if len(values) == len(self.directions) else None

        def corpus(counts: Array | None, score: Callable[[Array], Array]) -> float | None:
            return None if counts is None else float(score(counts[number].sum(axis=0)))

        def rate(name: str) -> Callable[[Measured], float | None]:
            def of(one: Measured) -> float | None:
                array = getattr(one, name)
                return None if array is None else float(array[number].mean())

            return of

        return {
            "chrf": mean(lambda one: corpus(one.chrf, chrf_from_statistics)),
            "bleu": None
            if self.tokenizer is None
            else mean(lambda one: corpus(one.bleu, bleu_from_statistics)),
            **{name: mean(rate(name)) for name in RATES},
        }

    def difference(self, number: int, others: Sequence[int]) -> dict[str, float | None]:
        """chrF++ of a condition minus the mean of others, with an interval over sentences."""
        one, draws = self.counts(number), [self.counts(other) for other in others]
        if one is None or not draws:
            return {"value": None, "low": None, "high": None}
        stacked = [np.stack([d[at] for d in draws if d is not None]) for at in range(len(one))]
        value, low, high = bootstrap_difference(one, stacked, chrf_from_statistics, seed=self.seed)
        return {"value": float(value), "low": float(low), "high": float(high)}

    def beside(self, label: Label, kind: Kind) -> list[int]:
        """The places of the draws of one kind beside chosen heads, draw by draw."""
        like = replace(label, kind=kind)
        return [n for n, one in enumerate(self.labels) if replace(one, draw=None) == like]


def _described(parts: _Parts) -> dict[str, Any]:
    """Baseline, conditions and curves of one direction or of the mean over several."""
    measured = [parts.measures(number) for number in range(len(parts.labels))]
    rows: list[dict[str, Any]] = []
    curves: list[dict[str, Any]] = []
    for number, label in enumerate(parts.labels[1:], 1):
        rows.append(
            {
                **asdict(label),
                **measured[number],
                "change": {"chrf": parts.difference(number, [0])},
            }
        )
        if label.kind == "top":
            rows[-1] |= _tests(parts, number, measured)
            curves.append(_point(parts, number, measured))
    largest = max((one.k for one in parts.labels[1:]), default=0)
    first = next((row for row in rows if row["kind"] == "top" and row["k"] == largest), None)
    return {
        "sentences": sum(one.empty.shape[1] for one in parts.directions),
        "baseline": {**measured[0], **_interval(parts)},
        "conditions": rows,
        "curves": curves,
        "p_value": None if first is None else first["p_sentences"],
    }


def _tests(parts: _Parts, number: int, measured: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A condition of the chosen heads against the random draws of the same size and gate.

    Where few sets are possible (layers that leave little choice, almost half of all heads), there
    are fewer draws than asked for; `least_p` is the lowest that p over draws can be. Runs from
    before hold some sets several times, which are counted once.
    """
    label = parts.labels[number]
    found: dict[str, Any] = {}
    for kind, ending in CONTROLS.items():
        draws = parts.beside(label, kind)
        different = list({frozenset(parts.sets[at]): at for at in reversed(draws)}.values())
        one, others = parts.counts(number), [parts.counts(draw) for draw in draws]
        ps: tuple[float | None, float | None] = (None, None)
        if one is not None and draws:
            stacked = [np.stack([o[at] for o in others if o is not None]) for at in range(len(one))]
            ps = (
                p_sentences(one, stacked, chrf_from_statistics, seed=parts.seed),
                p_draws(measured[number]["chrf"], [measured[at]["chrf"] for at in different]),
            )
        found |= {
            f"p_sentences{ending}": ps[0],
            f"p_draws{ending}": ps[1],
            f"against_random{ending}": parts.difference(number, draws),
            f"distinct_draws{ending}": len(different),
            f"least_p{ending}": least_p(len(different)),
        }
    return found


def _point(parts: _Parts, number: int, measured: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A point of the curves over k and gate: chrF++ of the chosen heads, and of random ones."""
    label = parts.labels[number]
    point: dict[str, Any] = {name: getattr(label, name) for name in ("k", "gate", "ablate")}
    point["top"] = measured[number]["chrf"]
    for kind, ending in CONTROLS.items():
        values = [measured[draw]["chrf"] for draw in parts.beside(label, kind)]
        known = bool(values) and None not in values
        point |= {
            f"random{ending}_mean": float(np.mean(values)) if known else None,
            f"random{ending}_low": min(values) if known else None,
            f"random{ending}_high": max(values) if known else None,
        }
    return point


def _interval(parts: _Parts) -> dict[str, float | None]:
    """The bounds of the untouched model's chrF++: of its difference to nothing, which has 0."""
    counts = parts.counts(0)
    if counts is None:
        return {"low": None, "high": None}
    nothing = [np.zeros_like(one) for one in counts]
    _, low, high = bootstrap_difference(counts, nothing, chrf_from_statistics, seed=parts.seed)
    return {"low": float(low), "high": float(high)}
