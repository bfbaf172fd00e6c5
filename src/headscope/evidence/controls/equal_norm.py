"""Heads whose output is as large: does the size of what is removed explain the effect?

A draw has as many of each group of heads, ranked by the norm of their output behind W_O.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headscope.data.documents import LONGEST
from headscope.evidence.rows import Basis, Control
from headscope.heads import HeadSet
from headscope.heads.draws import sets_within

if TYPE_CHECKING:
    from headscope.lm import LanguageModel

GROUP, TEXTS = 8, 32


def output_norms(lm: LanguageModel, rows: list[list[int]]) -> np.ndarray[Any, Any]:
    """The norm of every head's output, summed over the tokens of some rows, float64 (L, W)."""
    from headscope.lm.hooks import hooked

    norms = np.zeros(lm.geometry.shape)

    def adding(site: Any) -> Any:
        def add(projection: Any, args: tuple[Any, ...]) -> None:
            for head in range(site.heads):
                own, part = args[0].clone(), slice(*site.head_width * np.array([head, head + 1]))
                own[..., part] = 0
                change = projection.forward(args[0]) - projection.forward(own)
                norms[site.layer, head] += float(change.detach().double().norm(dim=-1).sum())

        return add

    hooks = (site.projection.register_forward_pre_hook(adding(site)) for site in lm.sites)
    with hooked(lm.model, hooks):
        for row in filter(None, rows):
            lm.forward(lm.collate([row]), logits=False)
    return norms


def _norms(lm: LanguageModel, texts: Sequence[str]) -> np.ndarray[Any, Any]:
    return output_norms(lm, [lm.encode(text, most=LONGEST) for text in texts[:TEXTS]])


def _draw(heads: HeadSet, draws: int, seed: int, basis: Basis) -> list[HeadSet]:
    norms = basis.measured(_norms)
    every = basis.left(heads.geometry)
    ranked = sorted(every, key=lambda head: norms[head.layer, head.head])
    groups = [ranked[at : at + GROUP] for at in range(0, len(ranked), GROUP)]
    sizes = tuple(sum(head in heads for head in group) for group in groups)
    name = f"equal norm {seed}"
    return sets_within(
        groups, sizes, heads.geometry, draws, name, without=frozenset(heads), watch=basis.watch
    )


EQUAL_NORM = Control("random heads of equal output norm",
                     "the selected heads are any so many heads of such outputs", _draw)  # fmt: skip
