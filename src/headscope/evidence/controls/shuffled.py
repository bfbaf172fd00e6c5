"""Masks that remove as many heads: does it matter which ones a mask removes?

After Heads Up! (ICML 2025), section 3.4: the task's mask, shuffled, and never the mask itself.
"""

from headscope.errors import InputError
from headscope.evidence.rows import NOTHING, Basis, Control
from headscope.heads import HeadSet
from headscope.heads.draws import sets_within


def shuffled(
    removed: HeadSet,
    draws: int,
    seed: int = 0,
    basis: Basis = NOTHING,
    same_layers: bool = False,
) -> list[HeadSet]:
    """Different sets of as many heads as a mask removes, or of each layer, and not that set.

    Raises `InputError` if the mask keeps or removes every head, since then there is nothing to
    shuffle.
    """
    geometry = removed.geometry
    if draws and not 0 < len(removed) < geometry.total:
        what = "removes" if len(removed) else "keeps"
        raise InputError(
            f"the mask {what} all {geometry.total} heads, so there is no other of its size to "
            "compare it with; train it otherwise"
        )
    every = list(geometry.heads())
    groups = (
        [[head for head in every if head.layer == layer] for layer in range(geometry.layers)]
        if same_layers
        else [every]
    )
    sizes = tuple(sum(head in removed for head in group) for group in groups)
    name = f"{'layer-matched' if same_layers else 'free'} masks {seed}"
    return sets_within(groups, sizes, geometry, draws, name, frozenset(removed), basis.watch)


SHUFFLED = Control("random masks", "the mask removes any so many heads of the model", shuffled)
