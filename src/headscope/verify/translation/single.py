"""Single removal: what every head by itself costs the reference translation.

A lower bound of what a head does: others may stand in for it once it is gone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headscope.data.align import Alignment
from headscope.data.pairs import PairFile
from headscope.errors import InputError
from headscope.evidence.rows import SELECTED, Condition
from headscope.heads import Head, HeadScores, HeadSet
from headscope.heads.draws import draw_heads
from headscope.measure.intervals import bootstrap_interval
from headscope.measure.statistics import counted, holm, least_p
from headscope.measure.trial import Group, Trial
from headscope.progress import Progress
from headscope.runs.plain import plain
from headscope.verify.translation.conditions import (
    CLASSES,
    ReferenceLosses,
    Removal,
    reference_losses,
)

if TYPE_CHECKING:
    from headscope.lm import LanguageModel
    from headscope.runs import Run


METHOD = "single-removal"
Floats = NDArray[np.float64]


def single_removal(
    lm: LanguageModel,
    directions: Mapping[str, PairFile],
    alignments: Mapping[str, Alignment],
    config: Removal,
    run: Run,
    means: NDArray[np.float32],
    progress: Progress | None = None,
) -> dict[str, HeadScores]:
    """The change of NLL without each head, by direction; the run keeps the losses.

    `means` are the heads' mean outputs (see `headscope.lm.ablation.head_means`).

    Returns:
        Scores in nats a token, the mean over sentences of the change of each one's mean over its
            tokens under zero ablation, with bootstrap bounds over sentences. `extra`:
            `mean_ablation`, and `linked`, `linked_later` and `unlinked`, zero ablation on tokens of
            that kind (NaN where there is none). `statistics`, by sentence: `change` and
            `change_mean` (S, L, W), `tokens` (S, 3).
    """
    heads = list(lm.geometry.heads())
    planned = [Condition()] + [
        Condition(SELECTED, str(head), 1, 0.0, replacement, heads=(str(head),))
        for replacement in ("zero", "mean")
        for head in heads
    ]
    losses = reference_losses(lm, directions, alignments, planned, config, run, means, progress)
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
                "change": over_heads(zero),
                "change_mean": over_heads(mean),
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


Pair = tuple[Head, Head]


def pairs_of(
    heads: HeadSet, draws: int, seed: int = 0, avoid: HeadSet | None = None
) -> tuple[list[Pair], list[Pair]]:
    """Every two of `heads`, and `draws` different random pairs of heads outside them.

    `avoid` are the token alignment heads, left out of the random pairs as far as possible. Raises
    `InputError` for fewer than two heads, or if fewer than two are left to be drawn.
    """
    if len(heads) < 2:
        raise InputError(f"{len(heads)} heads make no pair; choose a larger k")
    two = HeadSet(heads.geometry, heads.heads[:2])
    drawn = draw_heads(two, draws, seed, heads if avoid is None else heads | avoid)
    pairs = [(draw.heads.heads[0], draw.heads.heads[1]) for draw in drawn]
    random = [pair for pair in pairs if not set(pair) & set(heads)]
    if not random:
        raise InputError(
            f"no two heads are left beside {len(heads)} of them to be drawn; choose a smaller k"
        )
    return list(combinations(heads, 2)), random


def planned_pairs(heads: HeadSet, pairs: Sequence[Pair]) -> list[Condition]:
    """The model of `heads` as it is, without each head of the pairs, and without each pair."""
    singles = sorted({head for pair in pairs for head in pair})
    sets = [(head,) for head in singles] + [tuple(pair) for pair in pairs]
    return [Condition()] + [
        Condition(SELECTED, k=len(pair), gate=0.0, heads=tuple(map(str, pair))) for pair in sets
    ]


def interactions(
    directions: Mapping[str, ReferenceLosses],
    sets: Sequence[Sequence[str]],
    chosen: Sequence[Sequence[str]],
    random: Sequence[Sequence[str]],
    seed: int = 0,
) -> dict[str, Any]:
    """The interactions of chosen pairs and of random ones, from stored losses by direction.

    `sets` are the heads that each condition removes, none in the first; they hold each head of the
    pairs alone and together. `seed` is that of resampled sentences and of swaps.

    Returns:
        `pairs`: of each chosen pair `heads`, `harms` (of each alone), `together`, the `interaction`
            with `value`, `low` and `high` (95 % over sentences; over several directions of their
            plain mean), `p_sentences` (its sign swapped sentence by sentence, 9,999 times, two-
            sided), `p_holm` over the chosen pairs, and `p_draws`, over random pairs whose
            interaction is at least as far from 0. `random`: heads and interaction of each random
            pair; `least_p`: the lowest that `p_draws` can be. `difference`: the mean of the chosen
            pairs minus that of the random ones, with an interval over sentences.
    """
    places = {frozenset(pair): number for number, pair in enumerate(sets)}
    means = [loss.sums.sum(axis=2) / loss.tokens.sum(axis=1) for loss in directions.values()]

    def harm(*heads: str) -> float:
        at = places[frozenset(heads)]
        return float(np.mean([np.mean(mean[at] - mean[0]) for mean in means]))

    pairs = [*chosen, *random]
    removed: list[frozenset[str]] = [frozenset(), *map(frozenset, pairs)]
    groups = []
    for mean in means:
        as_is = mean[0]
        extra = [np.zeros_like(as_is)]
        for a, b in pairs:
            alone = mean[places[frozenset([a])]] + mean[places[frozenset([b])]]
            extra.append(mean[places[frozenset([a, b])]] + as_is - alone)
        groups.append(Group(list(counted(extra)), sets=removed, seed=seed))
    trial = Trial(groups)
    own, drawn = range(1, 1 + len(chosen)), range(1 + len(chosen), 1 + len(pairs))
    rows: list[dict[str, Any]] = [
        {
            "heads": list(pair),
            "harms": [harm(head) for head in pair],
            "together": harm(*pair),
            "interaction": trial.difference(at).record(),
            "p_sentences": trial.p_examples(at, [0], "two-sided"),
            "p_draws": trial.p_draws(at, drawn, "two-sided"),
        }
        for at, pair in zip(own, chosen, strict=True)
    ]
    for row, p in zip(rows, holm([row["p_sentences"] for row in rows]), strict=True):
        row["p_holm"] = p
    return {
        "pairs": rows,
        "random": [
            {"heads": list(pair), "interaction": float(trial.scores[at])}
            for at, pair in zip(drawn, random, strict=True)
        ],
        "least_p": least_p(len(drawn)),
        "difference": trial.difference(own, drawn).record(),
    }
