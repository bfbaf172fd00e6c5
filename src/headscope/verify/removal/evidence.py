"""What a removal shows: measures, differences with intervals and tests, from measured outputs.

Everything here follows from numbers stored for each sentence; no model takes part.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from numpy.typing import NDArray

from headscope.estimates import known
from headscope.measure.intervals import FromStatistics
from headscope.measure.metrics import bleu_from_statistics, chrf_from_statistics
from headscope.measure.statistics import counted, counted_mean
from headscope.measure.trial import Group, Trial
from headscope.verify.removal.measures import UNKNOWN, Measured, Measures
from headscope.verify.removal.outputs import CONTROLS, Label

__all__ = ["evidence", "statistics"]

Array = NDArray[Any]
Progress = Callable[[str, int, int], None]
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
    whole = _trials(labels, sets, list(measures.directions.values()), seed)
    found: dict[str, dict[str, Any]] = {}
    for number, name in enumerate(names):
        own = {measure: Trial([trial.groups[number]]) for measure, trial in whole.items()}
        found[name] = _described(labels, own)
        if progress:
            progress("comparing", number + 1, total)
    described = found[names[0]]
    if len(names) > 1:
        if _mixed(cut):
            del whole["bleu"]
        described = _described(labels, whole)
        if progress:
            progress("comparing", total, total)
    return {
        **described,
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


def _trials(
    labels: Sequence[Label],
    sets: Sequence[Collection[str]],
    directions: Sequence[Measured],
    seed: int,
) -> dict[str, Trial]:
    """A trial of every measure, with one group for each direction."""
    removed = [frozenset(heads) for heads in sets]

    def group(array: Array | None, score: FromStatistics = counted_mean) -> Group:
        statistics = [None] * len(labels) if array is None else list(array)
        return Group(statistics, score, removed, seed)

    def rates(array: Array | None) -> Array | None:
        return None if array is None else counted(array)

    return {
        "chrf": Trial([group(made.chrf, chrf_from_statistics) for made in directions]),
        "bleu": Trial([group(made.bleu, bleu_from_statistics) for made in directions]),
        **{
            name: Trial([group(rates(getattr(made, name))) for made in directions])
            for name in RATES
        },
    }


def _described(labels: Sequence[Label], trials: Mapping[str, Trial]) -> dict[str, Any]:
    """Baseline, conditions and curves of one direction or of the mean over several."""
    chrf = trials["chrf"]
    rows: list[dict[str, Any]] = []
    curves: list[dict[str, Any]] = []
    for at, label in enumerate(labels[1:], 1):
        change = {"chrf": chrf.difference(at).record()}
        rows.append({**asdict(label), **_scores(trials, at), "change": change})
        if label.kind == "top":
            point = {name: getattr(label, name) for name in ("k", "gate", "ablate")}
            point["top"] = rows[-1]["chrf"]
            for kind, ending in CONTROLS.items():
                against = chrf.against(at, label.draws(labels, kind))
                rows[-1] |= against.record("sentences", ending)
                drawn = against.draws.record()
                point |= {f"random{ending}_{name}": value for name, value in drawn.items()}
            curves.append(point)
    largest = max((label.k for label in labels[1:]), default=0)
    main = next((row for row in rows if row["kind"] == "top" and row["k"] == largest), None)
    interval = chrf.level(0).record()
    return {
        "sentences": sum(group.examples for group in trials["empty"].groups),
        "baseline": {**_scores(trials, 0), "low": interval["low"], "high": interval["high"]},
        "conditions": rows,
        "curves": curves,
        "p_value": None if main is None else main["p_sentences"],
    }


def _scores(trials: Mapping[str, Trial], at: int) -> dict[str, float | None]:
    """All measures of one condition; None where a direction lacks it."""
    return {
        name: known(trials[name].scores[at]) if name in trials else None
        for name in ("chrf", "bleu", *RATES)
    }
