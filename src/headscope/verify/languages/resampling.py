"""Losses of documents, and how means over documents vary when documents are drawn anew."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscope.errors import InputError
from headscope.measure.intervals import resamples

__all__ = ["LEVEL", "Resampled", "Text", "resample", "spread"]

Floats = NDArray[np.float64]

LEVEL = 0.95
DRAWS = 1000


@dataclass(frozen=True, eq=False)
class Text:
    """The documents of one language, read under every condition.

    Attributes:
        nll: float64 (C, D), the summed negative log-likelihood in nats of each document's
            predicted tokens under each condition; a row of NaN where a condition was not run on
            this language. Row 0 is the model as it is.
        tokens: int64 (D,), how many tokens of each document are predicted, each at least 1.
    """

    nll: Floats
    tokens: NDArray[np.int64]

    def __post_init__(self) -> None:
        if self.nll.ndim != 2 or self.tokens.shape != self.nll.shape[1:] or not self.tokens.size:
            raise InputError(
                f"losses of shape {self.nll.shape} and token counts of shape {self.tokens.shape} "
                "do not belong together; give both for the same documents, at least one"
            )
        if (self.tokens < 1).any():
            raise InputError("a document has no predicted token; leave it out")

    @property
    def mean(self) -> Floats:
        """Token-weighted mean NLL of each condition, nats a token, (C,)."""
        return np.asarray(self.nll.sum(axis=1) / self.tokens.sum())

    @property
    def published(self) -> Floats:
        """The published perplexity of each condition, (C,): mean over documents of exp of the
        document's own mean NLL (the code of LAHIS, arXiv 2511.07498)."""
        return np.asarray(np.exp(self.nll / self.tokens).mean(axis=1))


@dataclass(frozen=True, eq=False)
class Resampled:
    """Means of one language's documents in every bootstrap draw: `mean` and `published`, (B, C)."""

    mean: Floats
    published: Floats


def resample(texts: Mapping[str, Text], seed: int = 0, draws: int = DRAWS) -> dict[str, Resampled]:
    """The bootstrap over documents (Efron 1979) of all conditions and languages at once.

    Each draw takes as many documents of a language as there are, with replacement, the same ones
    for all conditions, so that differences of conditions are paired. Languages with equally many
    documents are drawn alike, since these may be translations of each other.
    """
    return {name: _resample(text, seed, draws) for name, text in texts.items()}


def _resample(text: Text, seed: int, draws: int) -> Resampled:
    documents = text.tokens.size
    random = np.random.default_rng([seed, documents])
    single = np.exp(text.nll / text.tokens)
    means, published = (np.empty((draws, len(text.nll))) for _ in range(2))
    for rows, weights in resamples(documents, draws, random):
        means[rows] = weights @ text.nll.T / (weights @ text.tokens)[:, None]
        published[rows] = weights @ single.T / documents
    return Resampled(means, published)


def spread(value: float, estimates: Floats) -> dict[str, Any]:
    """A value with the percentile interval of its bootstrap estimates, as JSON."""
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(estimates, [tail, 1 - tail])
    return {"value": float(value), "low": float(low), "high": float(high)}
