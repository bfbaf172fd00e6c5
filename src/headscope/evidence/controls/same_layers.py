"""As many heads of each layer: does their depth explain the effect?"""

from functools import partial

from headscope.evidence.rows import Control
from headscope.heads.draws import draw_sets

SAME_LAYERS = Control(
    "random heads of the same layers",
    "the selected heads are any so many heads of each of their layers",
    partial(draw_sets, way="same layers"),
)
