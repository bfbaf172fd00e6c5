"""Masks that remove as many heads of each layer: does their depth explain the effect?"""

from headscope.evidence.controls.shuffled import shuffled
from headscope.evidence.rows import Control

SHUFFLED_SAME_LAYERS = Control(
    "random masks of the same layers",
    "the mask removes any so many heads of each layer",
    lambda heads, draws, seed, basis: shuffled(heads, draws, seed, basis, same_layers=True),
)
