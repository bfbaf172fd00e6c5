"""What a removal shows: measures, differences with intervals and tests, from measured outputs.

Everything here follows from numbers stored for each sentence; no model takes part.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from headscope.estimates import known
from headscope.measure.intervals import FromStatistics
from headscope.measure.metrics import bleu_from_statistics, chrf_from_statistics
from headscope.measure.statistics import counted, counted_mean
from headscope.measure.trial import Group, Trial
from headscope.results.removal import (
    CONTROLS,
    Baseline,
    Change,
    Condition,
    Dose,
    Label,
    Measuring,
    Part,
    Shown,
    TextLevel,
    Texts,
    main_p,
)
from headscope.verify.removal.measures import UNKNOWN, Measured, Measures

Array = NDArray[Any]
Progress = Callable[[str, int, int], None]
RATES = ("off_target", "source_copy", "comet", "bleurt", "empty")


def evidence(
    labels: Sequence[Label],
    sets: Sequence[Collection[str]],
    measures: Measures,
    seed: int = 0,
    progress: Progress | None = None,
) -> Shown:
    """What the texts of a removal show over all directions and in each.

    Over several directions every measure is the plain mean, but BLEU only where all are cut by the
    same tokeniser (`bleu_tokenizers`); tests and intervals resample sentences within directions.
    `labels` name the conditions in the order of the measures, the first of them the model as it is;
    `sets` holds the heads of each.
    """
    names, cut = list(measures.directions), measures.bleu_tokenizers
    total = len(names) + (len(names) > 1)
    whole = _trials(labels, sets, list(measures.directions.values()), seed)
    found: dict[str, Part] = {}
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
    missing = {**measures.missing, **_mixed(cut)}
    measuring = Measuring(measures.identifier, missing, dict(cut))
    return Shown(**vars(described), measuring=measuring, directions=found)


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


def _described(labels: Sequence[Label], trials: Mapping[str, Trial]) -> Part:
    """Baseline, conditions and curves of one direction or of the mean over several."""
    chrf = trials["chrf"]
    rows: list[Condition] = []
    curves: list[Dose] = []
    for at, label in enumerate(labels[1:], 1):
        text, change = Texts(**_scores(trials, at)), Change(chrf=chrf.difference(at))
        if label.kind != "top":
            rows.append(Condition(label=label, text=text, change=change))
            continue
        free, matched = (chrf.against(at, label.draws(labels, kind)) for kind in CONTROLS)
        rows.append(Condition(label=label, text=text, change=change, free=free, matched=matched))
        curves.append(
            Dose(
                k=label.k,
                gate=label.gate,
                ablate=label.ablate,
                top=text.chrf,
                random=free.draws,
                random_layer_matched=matched.draws,
            )
        )
    level = chrf.level(0)
    text = TextLevel(**_scores(trials, 0), low=known(level.low), high=known(level.high))
    return Part(
        sentences=sum(group.examples for group in trials["empty"].groups),
        baseline=Baseline(text=text),
        conditions=tuple(rows),
        curves=tuple(curves),
        p_value=main_p(rows),
    )


def _scores(trials: Mapping[str, Trial], at: int) -> dict[str, float | None]:
    """All measures of one condition; None where a direction lacks it."""
    return {
        name: known(trials[name].scores[at]) if name in trials else None
        for name in ("chrf", "bleu", *RATES)
    }
