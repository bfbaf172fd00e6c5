"""Masks that remove as many heads of each layer: does their depth explain the effect?"""

from headscope.evidence.controls.drawing import drawing
from headscope.evidence.rows import Control

SHUFFLED_SAME_LAYERS = Control(
    "random masks of the same layers",
    "the mask removes any so many heads of each layer",
    drawing("same layers", "layer-matched masks"),
)
