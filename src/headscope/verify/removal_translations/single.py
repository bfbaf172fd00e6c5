"""Single removal: what every head by itself costs the reference translation.

A lower bound of what a head does: others may stand in for it once it is gone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from headscope.ablations import AblateName
from headscope.data.align import Alignment
from headscope.data.pairs import PairFile
from headscope.evidence.rows import SELECTED, Condition
from headscope.evidence.runner import ZERO
from headscope.heads import HeadScores
from headscope.measure.intervals import bootstrap_interval
from headscope.progress import Progress
from headscope.runs.plain import plain
from headscope.verify.removal_translations.conditions import (
    CLASSES,
    Removal,
    reference_losses,
)

if TYPE_CHECKING:
    from headscope.lm import LanguageModel
    from headscope.lm.replacement import Replacement
    from headscope.runs import Run


METHOD = "single-removal"
#: The kinds of ablation that are compared, with the statistic that holds each one's changes; the
#: first gives the score.
COMPARED: Mapping[AblateName, str] = {"zero": "change", "mean": "change_mean"}
Floats = NDArray[np.float64]


def single_removal(
    lm: LanguageModel,
    directions: Mapping[str, PairFile],
    alignments: Mapping[str, Alignment],
    config: Removal,
    run: Run,
    replacement: Replacement | None,
    progress: Progress | None = None,
) -> dict[str, HeadScores]:
    """The change of NLL without each head, by direction; the run keeps the losses.

    `replacement` is that of mean ablation (see `headscope.lm.replacement`).

    Returns:
        Scores in nats a token, the mean over sentences of the change of each one's mean over its
            tokens under zero ablation, with bootstrap bounds over sentences. `extra`:
            `mean_ablation`, and `linked`, `linked_later` and `unlinked`, zero ablation on tokens of
            that kind (NaN where there is none). `statistics`, by sentence: `change` and
            `change_mean` (S, L, W), `tokens` (S, 3).
    """
    heads = list(lm.geometry.heads())
    planned = [Condition()] + [
        Condition(SELECTED, head.key, 1, 0.0, replacement, heads=(head.key,))
        for replacement in COMPARED
        for head in heads
    ]
    replacements = {**ZERO, "mean": replacement}
    losses = reference_losses(
        lm, directions, alignments, planned, config, run, replacements, progress
    )
    mask = lm.geometry.mask()
    scores = {}
    for name, loss in losses.items():

        def over_heads(changes: Floats) -> Floats:
            """(…, N) as (…, L, W)."""
            placed = np.full((*changes.shape[:-1], *lm.geometry.shape), np.nan)
            placed[..., mask] = changes
            return placed

        def changes(sums: Floats, tokens: NDArray[np.int64]) -> tuple[Floats, Floats]:
            """(S, N) under zero and under mean ablation, of sentences with such tokens."""
            some = tokens > 0
            nll = sums[:, some] / tokens[some]
            zero, mean = np.split((nll[1:] - nll[0]).T, 2, axis=1)
            return zero, mean

        zero, mean = changes(loss.sums.sum(axis=2), loss.tokens.sum(axis=1))
        low, high = bootstrap_interval(zero, np.ones(len(zero)), seed=config.seed)
        extra = {"mean_ablation": over_heads(mean.mean(axis=0))}
        for number, kind in enumerate(CLASSES):
            own, _ = changes(loss.sums[..., number], loss.tokens[:, number])
            value = own.mean(axis=0) if len(own) else np.full(len(heads), np.nan)
            extra[kind] = over_heads(value)
        digest = hashlib.sha256(alignments[name].digest.encode()).hexdigest()[:12]
        scores[name] = HeadScores(
            lm.geometry,
            over_heads(zero.mean(axis=0)),
            METHOD,
            over_heads(low),
            over_heads(high),
            extra=extra,
            statistics={
                **dict(zip(COMPARED.values(), (over_heads(zero), over_heads(mean)), strict=True)),
                "tokens": loss.tokens.astype(np.int32),
            },
            config={
                **plain(config),
                "pair": name,
                "examples": len(zero),
                "tokens": int(loss.tokens.sum()),
                "aligner": alignments[name].aligner,
                "links_digest": alignments[name].digest,
            },
            provenance=dict(run.provenance),
            signature=f"{run.signature}|links:{digest}",
        )
    return scores
