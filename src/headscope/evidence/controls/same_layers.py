"""As many heads of each layer: does their depth explain the effect?"""

from headscope.evidence.rows import Control
from headscope.heads.draws import draw_sets

SAME_LAYERS = Control(
    "random heads of the same layers",
    "the selected heads are any so many heads of each of their layers",
    lambda heads, draws, seed, basis: draw_sets(
        heads, draws, seed, "same layers", None, basis.watch
    ),
)
