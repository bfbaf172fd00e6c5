"""First-order importance: how steeply the loss changes when a head's gate moves, in either way.

Michel, Levy and Neubig 2019 (Are sixteen heads really better than one?, equation 2 in the form of
their section 4.1): the mean over documents of |∂L/∂g| at gate 1, L the document's mean next-token
loss.  Unlike LAHIS it does not ask in which way.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from headscope import options
from headscope.data.documents import DocumentFile
from headscope.errors import InputError
from headscope.heads import HeadScores
from headscope.measure.intervals import bootstrap_interval
from headscope.runs.plain import plain
from headscope.settings import UNSIGNED, Settings

if TYPE_CHECKING:
    from headscope.find.capture import Progress
    from headscope.lm import LanguageModel
    from headscope.runs import Run


@dataclass(frozen=True)
class FirstOrder(Settings):
    """How heads are scored.

    Attributes:
        bootstrap_draws, level: of the interval over documents.
        seed: of its draws.
        batch_tokens: padded tokens of a batch; no part of what is computed.
        checkpoint: save memory by computing each layer twice, see `gate_gradients`.
    """

    bootstrap_draws: int = 1000
    level: float = 0.95
    seed: options.Seed = 0
    batch_tokens: options.BatchTokens = field(default=2048, metadata=UNSIGNED)
    checkpoint: options.Checkpointing = field(default=False, metadata=UNSIGNED)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bootstrap_draws < 1:
            raise InputError("bootstrap_draws must be 1 or more")
        if not 0 < self.level < 1:
            raise InputError(f"level is {self.level}; it must lie between 0 and 1, such as 0.95")


def first_order(
    lm: LanguageModel,
    documents: DocumentFile,
    config: FirstOrder = FirstOrder(),
    run: Run | None = None,
    progress: Progress | None = None,
) -> HeadScores:
    """Score every head by the mean of |∂L/∂g| over documents.

    Arguments and errors are those of `headscope.find.lahis.lahis`.  Scores are in nats a token,
    with bootstrap bounds over documents.  `extra`: `raising`, the share of documents that raising
    the head would make likelier; `statistics`, by document: `products`, `losses` and `tokens`.
    """
    from headscope.find.capture import Part
    from headscope.find.gate_gradients import gate_gradients, texts_of

    texts = texts_of(lm, documents)
    part = Part(run, documents.language or "documents")
    found = gate_gradients(lm, texts, config.batch_tokens, config.checkpoint, part, progress)
    magnitude = np.abs(found.products)
    low, high = bootstrap_interval(
        magnitude,
        np.ones(len(magnitude)),
        "macro",
        config.bootstrap_draws,
        config.seed,
        config.level,
    )
    return HeadScores(
        lm.geometry,
        magnitude.mean(axis=0, dtype=np.float64),
        "first-order",
        low,
        high,
        extra={"raising": (found.products < 0).mean(axis=0)},
        statistics={
            "products": found.products,
            "losses": found.losses,
            "tokens": found.tokens,
        },
        config={
            **plain(config),
            "language": documents.language,
            "examples": len(texts),
            "left_out": len(documents.documents) - len(texts),
            "tokens": int(found.tokens.sum()),
            "loss": float(found.losses.mean(dtype=np.float64)),
        },
        provenance=dict(run.provenance) if run is not None else {},
        signature=run.signature if run is not None else "",
    )
