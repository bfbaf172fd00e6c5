"""Masks that remove as many heads: does it matter which ones a mask removes?

After Heads Up! (ICML 2025), section 3.4: the task's mask, shuffled, and never the mask itself.
"""

import random
from collections.abc import Iterator

from headscope.errors import InputError
from headscope.evidence.rows import Control
from headscope.heads import Head, HeadSet
from headscope.heads.draws import Choices, distinct_sets


def shuffled(
    removed: HeadSet, draws: int, seed: int = 0, layer_matched: bool = False
) -> list[HeadSet]:
    """Different sets of as many heads as a mask removes, drawn from all heads, and not that set.

    `layer_matched` shuffles within each layer. Draw i is the same however many there are; where
    fewer sets exist than asked for (within layers perhaps none), each is drawn once. Raises
    `InputError` if the mask keeps or removes every head, since then there is nothing to shuffle.
    """
    geometry = removed.geometry
    if draws and not 0 < len(removed) < geometry.total:
        what = "removes" if len(removed) else "keeps"
        raise InputError(
            f"the mask {what} all {geometry.total} heads, so there is no other of its size to "
            "compare it with; train it otherwise"
        )
    heads = list(geometry.heads())
    groups = (
        [[head for head in heads if head.layer == layer] for layer in range(geometry.layers)]
        if layer_matched
        else [heads]
    )
    lost = [sum(head in removed for head in group) for group in groups]

    def draw(stream: random.Random) -> Iterator[Head]:
        for group, count in zip(groups, lost, strict=True):
            yield from stream.sample(group, count)

    name = f"{'layer-matched' if layer_matched else 'free'} masks {seed}"
    sets = distinct_sets(
        Choices(groups, [tuple(lost)]), draw, draws, name, without=[frozenset(removed)]
    )
    return [HeadSet(geometry, chosen) for chosen in sets]


SHUFFLED = Control(
    "random masks",
    "the mask removes any so many heads of the model",
    lambda heads, draws, seed, avoid: shuffled(heads, draws, seed),
)
