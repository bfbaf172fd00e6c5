"""What a removal shows: measures, differences with intervals and tests, from what was measured.

Everything here follows from numbers stored for each sentence; no model takes part. An NLL, in nats
a token, is the mean over sentences of each one's mean over its tokens, and of a kind of tokens over
the sentences that have some.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscope.estimates import Floats, known
from headscope.measure.intervals import FromStatistics
from headscope.measure.metrics import bleu_from_statistics, chrf_from_statistics
from headscope.measure.statistics import counted, counted_mean
from headscope.measure.trial import Group, Trial
from headscope.progress import Progress
from headscope.results.removal import (
    CONTROLS,
    Baseline,
    Change,
    Condition,
    Dose,
    Label,
    Losses,
    LossLevel,
    Measuring,
    Part,
    Shown,
    Tested,
    TextLevel,
    Texts,
    TokenKinds,
    Tokens,
    main_p,
)
from headscope.verify.translation.conditions import CLASSES, ReferenceLosses
from headscope.verify.translation.measures import UNKNOWN, Array, Measures

RATES = ("off_target", "source_copy", "comet", "bleurt", "empty")
LINKED_MINUS_UNLINKED = "linked_minus_unlinked"
#: The NLL of all tokens and of each kind, in the order of a sentence's statistics.
LEVELS = ("nll", *(f"nll_{kind}" for kind in CLASSES))
LINKED, UNLINKED = 1, 3


def _shown(
    names: Sequence[str],
    trials: Mapping[str, Trial],
    describe: Callable[[Mapping[str, Trial]], Part],
    progress: Progress | None = None,
) -> Shown:
    """What trials show in each direction, a group each, and over all of several directions."""
    alone = [
        {key: Trial([trial.groups[at]]) for key, trial in trials.items()}
        for at in range(len(names))
    ]
    parts = []
    chosen = [*alone, trials] if len(names) > 1 else alone
    for number, some in enumerate(chosen, 1):
        parts.append(describe(some))
        if progress:
            progress("comparing", number, len(chosen))
    return Shown(**vars(parts[-1]), directions=dict(zip(names, parts, strict=False)))


# ---- texts -------------------------------------------------------------------------------------
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
    removed = [frozenset(heads) for heads in sets]
    directions = measures.directions.values()
    mixed = _mixed(measures.bleu_tokenizers)

    def trial(name: str, score: FromStatistics | None = None) -> Trial:
        groups = []
        for direction in directions:
            array = getattr(direction, name)
            rows = array if array is None or score else counted(array)
            statistics = [None] * len(labels) if rows is None else list(rows)
            groups.append(Group(statistics, score or counted_mean, removed, seed))
        return Trial(groups)

    trials = {
        "chrf": trial("chrf", chrf_from_statistics),
        "bleu": trial("bleu", bleu_from_statistics),
        **{name: trial(name) for name in RATES},
    }

    def describe(some: Mapping[str, Trial]) -> Part:
        several = len(some["chrf"].groups) > 1
        return _texts(labels, {n: t for n, t in some.items() if not (several and n in mixed)})

    shown = _shown(list(measures.directions), trials, describe, progress)
    measuring = Measuring(
        measures.identifier, {**measures.missing, **mixed}, dict(measures.bleu_tokenizers)
    )
    return replace(shown, measuring=measuring)


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


def _texts(labels: Sequence[Label], trials: Mapping[str, Trial]) -> Part:
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


# ---- losses ------------------------------------------------------------------------------------
def loss_evidence(
    labels: Sequence[Label],
    sets: Sequence[Collection[str]],
    directions: Mapping[str, ReferenceLosses],
    seed: int = 0,
) -> Shown:
    """What the losses of a removal show over all directions and in each.

    `labels` name the conditions in the order of the losses, the first of them the model as it is;
    `sets` holds the heads of each. Chosen heads are tested against the random draws, free and of
    the same layers: `against` is selected − random, `classes` the same for each kind of tokens and
    for the difference between linked (first tokens) and unlinked ones. Over several directions all
    are plain means, and sentences are drawn within directions. Harm is a higher NLL.
    """
    removed = [frozenset(heads) for heads in sets]
    means, totals = (
        [_statistics(losses, micro) for losses in directions.values()] for micro in (False, True)
    )

    def trial(statistics: Sequence[Floats], score: FromStatistics) -> Trial:
        return Trial([Group(list(part), score, removed, seed) for part in statistics])

    trials = {LINKED_MINUS_UNLINKED: trial(means, _gap)}
    for column, name in enumerate(LEVELS):
        trials[name] = trial(means, _nll(column))
        trials[f"{name}_micro"] = trial(totals, _nll(column))
    return _shown(list(directions), trials, lambda some: _losses(labels, some))


def _statistics(losses: ReferenceLosses, micro: bool) -> Floats:
    """(C, S, 8): of all tokens and of each kind NLL and whether there is one; `micro`: summed
    losses and tokens."""
    tokens = np.concatenate([losses.tokens.sum(axis=1, keepdims=True), losses.tokens], axis=1)
    sums = np.concatenate([losses.sums.sum(axis=2, keepdims=True), losses.sums], axis=2)
    values, weights = (sums, tokens) if micro else (sums / np.maximum(tokens, 1), tokens > 0)
    weights = np.broadcast_to(weights.astype(np.float64), values.shape)
    return np.stack([values, weights], axis=-1).reshape(*sums.shape[:2], -1)


def _nll(column: int) -> FromStatistics:
    def score(sums: NDArray[Any]) -> Floats:
        with np.errstate(invalid="ignore"):  # no sentence has such a token
            return np.asarray(sums[..., 2 * column] / sums[..., 2 * column + 1])

    return score


def _gap(sums: NDArray[Any]) -> Floats:
    return _nll(LINKED)(sums) - _nll(UNLINKED)(sums)


def _losses(labels: Sequence[Label], trials: Mapping[str, Trial]) -> Part:
    """Baseline and conditions of one direction or of the mean over several."""
    nll, tokens = trials["nll"], np.zeros(len(CLASSES))
    for group in trials["nll_micro"].groups:
        tokens += np.asarray(group.statistics[0]).sum(axis=0)[3::2]
    rows: list[Condition] = []
    for at, label in enumerate(labels[1:], 1):
        levels, change = Losses(**_levels(trials, at)), Change(nll=nll.difference(at))
        tests: dict[str, Any] = {}
        for kind, name in zip(CONTROLS, ("free", "matched"), strict=True):
            draws = label.draws(labels, kind) if label.kind == "top" else []
            if draws:
                tests[name] = nll.against(at, draws, "higher")
                tests[f"classes{CONTROLS[kind]}"] = _classes(trials, at, draws)
        rows.append(Condition(label=label, loss=levels, change=change, **tests))
    level = nll.level(0)
    return Part(
        sentences=sum(group.examples for group in nll.groups),
        reference_tokens=Tokens(*map(int, tokens)),
        baseline=Baseline(
            loss=LossLevel(
                **_levels(trials, 0), nll_low=known(level.low), nll_high=known(level.high)
            )
        ),
        conditions=tuple(rows),
        p_value=main_p(rows),
    )


def _levels(trials: Mapping[str, Trial], at: int) -> dict[str, Any]:
    return {
        key: known(trials[key].scores[at]) for name in LEVELS for key in (name, f"{name}_micro")
    }


def _classes(trials: Mapping[str, Trial], at: int, draws: Sequence[int]) -> TokenKinds:
    """A condition beside random draws on tokens of each kind, and on the difference of two."""
    names = [*(f"nll_{kind}" for kind in CLASSES), LINKED_MINUS_UNLINKED]
    return TokenKinds(
        *(Tested.against(trials[name].against(at, draws, "higher")) for name in names)
    )
