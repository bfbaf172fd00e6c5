"""What removals do to each language's own text, from stored losses of documents.

Effects are changes of the mean negative log-likelihood (NLL) in nats a token, each token counting
the same: perplexities of languages start from different heights, and their ratios are these
differences.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscope.measure.statistics import least_p, p_draws, p_sentences
from headscope.verify.languages.conditions import Condition
from headscope.verify.languages.resampling import Resampled, Text, spread

__all__ = [
    "CONTROLS",
    "against_random",
    "change",
    "describe_languages",
    "different_sets",
    "level",
    "random_rows",
]

Floats = NDArray[np.float64]

#: The kinds of random draws, with what is put behind the names of figures that use them.
CONTROLS = {"random": "", "random-layer-matched": "_layer_matched"}


def describe_languages(
    planned: Sequence[Condition],
    texts: Mapping[str, Text],
    drawn: Mapping[str, Resampled],
    seed: int = 0,
) -> dict[str, Any]:
    """For each language its text under the removals that are about it, as JSON.

    `baseline` and every one of `conditions` have `nll`, `perplexity` (its exponential) and
    `published_perplexity` (the mean over documents of exp of each one's own mean NLL), each with
    its 95 % bootstrap interval over documents, and conditions their `change` of NLL. Heads that
    are removed for themselves have `random` (mean, lowest and highest change of the free draws),
    `against_random` (their change less the mean of the draws'), `p_documents` (approximate
    randomisation that swaps single documents with those under a random draw) and `p_draws`, over
    the `distinct_draws`, never below `least_p`, all with `_layer_matched` too; both p are small
    where they hurt more than random heads. A set that belongs to no language is told for every
    language.
    """
    return {
        name: {
            "documents": int(text.tokens.size),
            "tokens": int(text.tokens.sum()),
            "baseline": level(0, text, drawn[name]),
            "conditions": [
                _condition(at, planned, name, text, drawn[name], seed)
                for at, one in enumerate(planned)
                if at and name in one.texts and (one.of == name or one.of not in texts)
            ],
        }
        for name, text in texts.items()
    }


def level(at: int, text: Text, drawn: Resampled) -> dict[str, Any]:
    """NLL and both perplexities of a text under one condition, with intervals."""
    nll = spread(text.mean[at], drawn.mean[:, at])
    return {
        "nll": nll,
        "perplexity": {name: math.exp(value) for name, value in nll.items()},
        "published_perplexity": spread(text.published[at], drawn.published[:, at]),
    }


def change(at: int, text: Text, drawn: Resampled) -> dict[str, float]:
    """How much more loss a text has under a condition than as it is."""
    return spread(text.mean[at] - text.mean[0], drawn.mean[:, at] - drawn.mean[:, 0])


def random_rows(at: int, planned: Sequence[Condition], kind: str, language: str) -> list[int]:
    """The random draws of one kind beside a removal that this language's text was read under."""
    like = planned[at]
    return [
        place
        for place, one in enumerate(planned)
        if (one.of, one.role, one.k, one.kind) == (like.of, like.role, like.k, kind)
        and language in one.texts
    ]


def different_sets(rows: Sequence[int], planned: Sequence[Condition]) -> list[int]:
    """Of random draws the first of each set of heads: a set drawn again proves nothing more.

    Draws repeat where few sets are possible, as in a layer that leaves little choice.
    """
    return list({planned[at].key: at for at in reversed(rows)}.values())


def against_random(
    at: int,
    rows: Sequence[int],
    planned: Sequence[Condition],
    text: Text,
    drawn: Resampled,
    seed: int,
    suffix: str = "",
) -> dict[str, Any]:
    """What a removal has over random draws; the names of the figures end in `suffix`."""
    mean = text.mean
    different = different_sets(rows, planned)
    difference = spread(
        mean[at] - mean[list(rows)].mean(),
        drawn.mean[:, at] - drawn.mean[:, list(rows)].mean(axis=1),
    )
    statistics = _statistics(text)
    return {
        f"random{suffix}": {
            "mean": float(mean[list(rows)].mean() - mean[0]),
            "low": float(mean[list(rows)].min() - mean[0]),
            "high": float(mean[list(rows)].max() - mean[0]),
        },
        f"against_random{suffix}": difference,
        f"p_documents{suffix}": p_sentences(
            statistics[at], statistics[list(rows)], _mean_score, seed=seed
        ),
        f"p_draws{suffix}": p_draws(-mean[at], -mean[different]),
        f"distinct_draws{suffix}": len(different),
        f"least_p{suffix}": least_p(len(different)),
    }


def _condition(
    at: int, planned: Sequence[Condition], name: str, text: Text, drawn: Resampled, seed: int
) -> dict[str, Any]:
    row = {**planned[at].as_dict(), **level(at, text, drawn), "change": change(at, text, drawn)}
    if planned[at].kind == "removed":
        for kind, suffix in CONTROLS.items():
            rows = random_rows(at, planned, kind, name)
            if rows:
                row |= against_random(at, rows, planned, text, drawn, seed, suffix)
    return row


def _statistics(text: Text) -> Floats:
    """(C, D, 2): minus the loss of each document, so that harm is a low score, and its tokens."""
    tokens = np.broadcast_to(text.tokens.astype(np.float64), text.nll.shape)
    return np.stack([-text.nll, tokens], axis=-1)


def _mean_score(sums: NDArray[Any]) -> Floats:
    return np.asarray(sums[..., 0] / sums[..., 1])
