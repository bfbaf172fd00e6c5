"""What a removal does to the losses of reference translations: changes, intervals and tests.

Everything follows from losses stored for each sentence; no model takes part. An NLL is the mean
over sentences of each one's mean over its tokens, in nats a token; of a kind of tokens over the
sentences that have some.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscope.estimates import known
from headscope.measure.intervals import FromStatistics
from headscope.measure.trial import Group, Trial
from headscope.results.removal import (
    Baseline,
    Change,
    Condition,
    Label,
    Losses,
    LossLevel,
    Part,
    Shown,
    Tested,
    TokenKinds,
    Tokens,
    main_p,
)
from headscope.verify.removal.losses import CLASSES, ReferenceLosses

Floats = NDArray[np.float64]

LINKED_MINUS_UNLINKED = "linked_minus_unlinked"
#: The NLL of all tokens and of each kind, in the order of a sentence's statistics.
LEVELS = ("nll", *(f"nll_{kind}" for kind in CLASSES))
LINKED, UNLINKED = 1, 3


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
    trials = _trials(labels, sets, list(directions.values()), seed)

    def described(numbers: Sequence[int]) -> Part:
        some = {name: Trial([one.groups[at] for at in numbers]) for name, one in trials.items()}
        return _described(labels, some, [list(directions.values())[at] for at in numbers])

    parts = {name: described([at]) for at, name in enumerate(directions)}
    whole = next(iter(parts.values())) if len(parts) == 1 else described(range(len(parts)))
    return Shown(**vars(whole), directions=parts)


def _trials(
    labels: Sequence[Label],
    sets: Sequence[Collection[str]],
    directions: Sequence[ReferenceLosses],
    seed: int,
) -> dict[str, Trial]:
    """A trial of the NLL of all tokens and of each kind, over sentences and over tokens (`_micro`),
    and of the difference of two kinds."""
    removed = [frozenset(heads) for heads in sets]
    means, totals = ([_statistics(losses, m) for losses in directions] for m in (False, True))

    def trial(statistics: Sequence[Floats], score: FromStatistics) -> Trial:
        return Trial([Group(list(part), score, removed, seed) for part in statistics])

    found = {LINKED_MINUS_UNLINKED: trial(means, _gap)}
    for column, name in enumerate(LEVELS):
        found[name] = trial(means, _nll(column))
        found[f"{name}_micro"] = trial(totals, _nll(column))
    return found


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


def _described(
    labels: Sequence[Label], trials: Mapping[str, Trial], directions: Sequence[ReferenceLosses]
) -> Part:
    """Baseline and conditions of one direction or of the mean over several."""
    nll = trials["nll"]
    rows: list[Condition] = []
    for at, label in enumerate(labels[1:], 1):
        levels, change = Losses(**_levels(trials, at)), Change(nll=nll.difference(at))
        rows.append(Condition(label=label, loss=levels, change=change))
        if label.kind != "top":
            continue
        if free := label.draws(labels, "random"):
            against, classes = nll.against(at, free, "higher"), _classes(trials, at, free)
            rows[-1] = replace(rows[-1], free=against, classes=classes)
        if matched := label.draws(labels, "random-layer-matched"):
            against, classes = nll.against(at, matched, "higher"), _classes(trials, at, matched)
            rows[-1] = replace(rows[-1], matched=against, classes_layer_matched=classes)
    kinds = np.sum([losses.tokens.sum(axis=0) for losses in directions], axis=0)
    level = nll.level(0)
    return Part(
        sentences=sum(len(losses.tokens) for losses in directions),
        reference_tokens=Tokens(*kinds.tolist()),
        baseline=Baseline(
            loss=LossLevel(**_levels(trials, 0), nll_low=level.low, nll_high=level.high)
        ),
        conditions=tuple(rows),
        p_value=main_p(rows),
    )


def _levels(trials: Mapping[str, Trial], at: int) -> dict[str, Any]:
    """NLL of one condition, of all tokens and of each kind, macro and micro."""
    return {
        key: known(trials[key].scores[at]) for name in LEVELS for key in (name, f"{name}_micro")
    }


def _classes(trials: Mapping[str, Trial], at: int, draws: Sequence[int]) -> TokenKinds:
    """A condition beside random draws on tokens of each kind, and on the difference of two."""
    names = [*(f"nll_{kind}" for kind in CLASSES), LINKED_MINUS_UNLINKED]
    return TokenKinds(*(Tested.told(trials[name].against(at, draws, "higher")) for name in names))
