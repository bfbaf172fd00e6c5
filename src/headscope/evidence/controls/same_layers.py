"""As many heads of each layer: does their depth explain the effect?"""

from headscope.evidence.controls.drawing import drawing
from headscope.evidence.rows import Control

SAME_LAYERS = Control(
    "random heads of the same layers",
    "the selected heads are any so many heads of each of their layers",
    drawing("same layers"),
)
