"""What a removal shows, from numbers stored for each sentence; no model takes part.

An NLL, in nats a token, is the mean over sentences of each one's mean over its tokens, and of a
kind of tokens over the sentences that have some; `micro` is the mean over tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscope.estimates import Floats
from headscope.evidence.rows import Condition, Evidence, Statistic
from headscope.evidence.table import evidence
from headscope.evidence.texts import TEXT_MEASURES, MeasuredTexts
from headscope.measure.intervals import FromStatistics
from headscope.progress import Progress
from headscope.verify.removal_translations.conditions import ReferenceLosses

#: The measures of translations.
TEXTS = ("chrf", "bleu", "off_target", "source_copy", "comet", "bleurt", "empty")
#: The tokeniser of counts that were kept without its name.
UNKNOWN = "unknown"
LINKED, UNLINKED = 1, 3
GAP = "nll_linked_minus_unlinked"


def _nll(column: int) -> FromStatistics:
    """The loss of a kind of tokens, of sums of (loss, weight) of each kind."""

    def score(sums: NDArray[Any]) -> Floats:
        with np.errstate(invalid="ignore"):  # no sentence has such a token
            return np.asarray(sums[..., 2 * column] / sums[..., 2 * column + 1])

    return score


#: The losses of tokens: of all, and of each kind.
KINDS = {
    "nll": "NLL",
    "nll_linked": "NLL, first token of a linked word",
    "nll_linked_later": "NLL, later tokens of a linked word",
    "nll_unlinked": "NLL, unlinked tokens",
}
LOSSES = {
    **{
        f"{name}{ending}": Statistic(
            f"{words}{', over tokens' if ending else ''}", "lower", "nats a token", score=_nll(at)
        )
        for ending in ("", "_micro")
        for at, (name, words) in enumerate(KINDS.items())
    },
    GAP: Statistic(
        "NLL, first \u2212 unlinked tokens",
        "lower",
        "nats a token",
        score=lambda sums: _nll(LINKED)(sums) - _nll(UNLINKED)(sums),
    ),
}
STATISTICS = {**{name: TEXT_MEASURES[name].statistic for name in TEXTS}, **LOSSES}
#: Those in which selected heads are compared with random ones.
TESTED = ("chrf", *KINDS, GAP)


def removal_evidence(
    conditions: Sequence[Condition],
    texts: MeasuredTexts | None,
    losses: Mapping[str, ReferenceLosses] | None,
    text_draws: int,
    seed: int = 0,
    progress: Progress | None = None,
    others: Mapping[str, Statistic] = MappingProxyType({}),
) -> Evidence:
    """The table of a removal: losses of all conditions, texts of those with `text_draws` draws.

    `others` are statistics of texts that the user's functions measure.

    BLEU has a mean over directions only where all are cut by one tokeniser.
    """
    counted: dict[str, dict[str, list[NDArray[Any] | None]]] = {}
    for part, arrays in texts.parts.items() if texts else ():
        own = counted.setdefault(part, {})
        for name, array in arrays.items():
            rows = iter(array)
            own[name] = [
                next(rows) if has_texts(condition, text_draws) else None for condition in conditions
            ]
    for part, loss in (losses or {}).items():
        own = counted.setdefault(part, {})
        mean, micro = (list(of_kinds(loss, over_tokens)) for over_tokens in (False, True))
        own |= {name: micro if name.endswith("_micro") else mean for name in LOSSES}
    apart = mixed(texts.bleu_tokenizers) if texts else {}
    return evidence(
        conditions,
        counted,
        {**STATISTICS, **others},
        seed,
        (*TESTED, *others),
        apart=apart.keys(),
        progress=progress,
    )


def has_texts(condition: Condition, draws: int) -> bool:
    """Whether texts of a condition are measured; later draws may have losses alone."""
    return (condition.draw or 0) < draws


def mixed(tokenizers: Mapping[str, str]) -> dict[str, str]:
    """Why BLEU has no mean over directions, where its units differ."""
    names = dict.fromkeys(tokenizers.values())
    if len(tokenizers) < 2 or (len(names) < 2 and UNKNOWN not in names):
        return {}
    return {"bleu": f"directions are cut by {', '.join(names)}, so their BLEU has no mean"}


def of_kinds(losses: ReferenceLosses, over_tokens: bool) -> Floats:
    """(C, S, 8): of all tokens and of each kind NLL and its weight: whether there is one, or,
    `over_tokens`, the number of tokens."""
    tokens = np.concatenate([losses.tokens.sum(axis=1, keepdims=True), losses.tokens], axis=1)
    sums = np.concatenate([losses.sums.sum(axis=2, keepdims=True), losses.sums], axis=2)
    values, weights = (sums, tokens) if over_tokens else (sums / np.maximum(tokens, 1), tokens > 0)
    weights = np.broadcast_to(weights.astype(np.float64), values.shape)
    return np.stack([values, weights], axis=-1).reshape(*sums.shape[:2], -1)
