"""Mean outputs of heads over reference texts, for mean ablation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from headscope.errors import InputError
from headscope.lm.batching import collate, length_buckets
from headscope.lm.geometry import AttentionSite
from headscope.lm.inputs import evaluating, forward_inputs
from headscope.lm.model import LanguageModel
from headscope.lm.positions import CLASSES, Positions, answers_at


class _Sums:
    """Running sums by class, in 64 bits, of what enters each projection; padding left out."""

    def __init__(self, lm: LanguageModel, classes: int) -> None:
        self.positions = Positions(lm.model, lm.sites)
        self.sums = {
            site.layer: torch.zeros(
                classes, site.heads * site.head_width, dtype=torch.float64, device=lm.device
            )
            for site in lm.sites
        }
        self.tokens = np.zeros(classes, dtype=np.int64)
        self.mask = torch.zeros(0, dtype=torch.bool)

    def hook(self, site: AttentionSite) -> Any:
        def add(_: torch.nn.Module, args: tuple[Any, ...]) -> None:
            x, sums = args[0], self.sums[site.layer]
            found = self.positions.classes(x, len(sums))
            for number in range(len(sums)):
                chosen = (found == number) & self.mask.to(x.device)
                # Layers may lie on different devices; the small sums are kept in one place.
                sums[number] += x[chosen].sum(dim=0, dtype=torch.float64).to(sums.device)
                if site.layer == min(self.sums):
                    self.tokens[number] += int(chosen.sum())

        return add


def head_means(
    lm: LanguageModel,
    rows: Sequence[Sequence[int]],
    starts: Sequence[int] | None = None,
    batch_tokens: int = 4096,
) -> npt.NDArray[np.float32]:
    """Mean of every head's output ``A V`` (before W_O) by class of position.

    Each token counts once; padding does not count.

    Args:
        lm: the model.
        rows: token ids of each reference text, at most the model's context each; empty ones are
            left out.
        starts: for each row where its answer begins, as for `headscope.lm.positions.answers_at`;
            None: the rows are documents.
        batch_tokens: upper bound of a padded batch's size.

    Returns:
        Shape (C, L, W, D), float32, D the widest head; zero where there is no head or channel. The
        C classes are the first three, of documents the first two, of
        `headscope.lm.positions.CLASSES`.

    Raises:
        InputError: if a class has no token.
    """
    begins = [len(row) for row in rows] if starts is None else list(starts)
    kept = [at for at, row in enumerate(rows) if len(row)]
    classes = len(CLASSES) - (starts is None)
    totals = _Sums(lm, classes)
    handles = [site.projection.register_forward_pre_hook(totals.hook(site)) for site in lm.sites]
    try:
        with evaluating(lm.model), torch.no_grad(), totals.positions.watched():
            lengths = [len(rows[at]) for at in kept]
            for bucket in length_buckets(lengths, batch_tokens, lm.pass_overhead):
                some = [kept[place] for place in bucket]
                batch = collate([rows[at] for at in some], lm.pad_token_id)
                totals.mask = batch.attention_mask.bool()
                with answers_at([begins[at] for at in some]):
                    lm.model(**forward_inputs(lm.model, batch, logits=False))
    finally:
        for handle in handles:
            handle.remove()
    if not totals.tokens.all():
        missing = CLASSES[int(np.flatnonzero(totals.tokens == 0)[0])]
        raise InputError(
            f"The reference texts for mean ablation hold no token of the class {missing!r}; give "
            "at least one text of two tokens, with an answer where answers are told apart."
        )
    widest = max(site.head_width for site in lm.sites)
    means = np.zeros((classes, *lm.geometry.shape, widest), dtype=np.float32)
    for site in lm.sites:
        sums = totals.sums[site.layer].cpu().numpy() / totals.tokens[:, None]
        parts = sums.reshape(classes, site.heads, site.head_width)
        means[:, site.layer, : site.heads, : site.head_width] = parts
    return means
