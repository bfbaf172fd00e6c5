"""First-order importance: how steeply documents' losses change when a head's gate moves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from headscope import options
from headscope.data.documents import DocumentFile
from headscope.find.scoring import Resampled, RunPart, scored
from headscope.progress import Steps
from headscope.settings import UNSIGNED

if TYPE_CHECKING:
    from headscope.heads import HeadScores
    from headscope.lm import LanguageModel
    from headscope.runs import Run


@dataclass(frozen=True)
class FirstOrder(Resampled):
    """How heads are scored by the gradients of documents.

    Attributes:
        seed: of the bootstrap over documents.
        batch_tokens: padded tokens of a batch; no part of what is computed.
        checkpoint: save memory by computing each layer twice, see `gate_gradients`.
    """

    seed: options.Seed = 0
    batch_tokens: options.BatchTokens = field(default=2048, metadata=UNSIGNED)
    checkpoint: options.Checkpointing = field(default=False, metadata=UNSIGNED)


def first_order(
    lm: LanguageModel,
    documents: DocumentFile,
    config: FirstOrder = FirstOrder(),
    run: Run | None = None,
    progress: Steps | None = None,
) -> HeadScores:
    """Score every head by the mean of |∂L/∂g| over documents, at gate 1.

    Michel, Levy and Neubig 2019 (Are sixteen heads really better than one?, equation 2 in the form
    of their section 4.1); unlike LAHIS it does not ask in which way the loss changes.  Arguments,
    units, statistics and errors are those of `lahis`; of `extra` there is `raising`.
    """
    from headscope.find.gate_gradients import gate_gradients, texts_of

    texts = texts_of(lm, documents)
    part = RunPart(run, documents.language or "documents")
    found = gate_gradients(lm, texts, config.batch_tokens, config.checkpoint, part, progress)
    extra = {"raising": (found.products < 0).mean(axis=0)}
    sizes, ones = np.abs(found.products), np.ones(len(texts))
    return scored(
        lm, "first-order", config, run, sizes, ones, extra, dict(vars(found)),
        found.about(documents), counts=False,
    )  # fmt: skip
