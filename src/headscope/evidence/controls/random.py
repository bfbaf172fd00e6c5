"""Any heads of the model: does it matter which ones are selected?"""

from headscope.evidence.rows import Control
from headscope.heads.draws import draw_sets

RANDOM = Control(
    "random heads",
    "the selected heads are any so many heads of the model",
    lambda heads, draws, seed, basis: draw_sets(heads, draws, seed, "random", None, basis.watch),
)
