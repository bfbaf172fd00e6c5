"""Masks that remove as many heads: does it matter which ones a mask removes?

After Heads Up! (ICML 2025), section 3.4: the task's mask, shuffled, and never the mask itself. They
are drawn as random heads are, from a stream of their own.
"""

from headscope.evidence.controls.drawing import drawing
from headscope.evidence.rows import Control

SHUFFLED = Control(
    "random masks",
    "the mask removes any so many heads of the model",
    drawing("random", "free masks"),
)
