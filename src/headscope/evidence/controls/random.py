"""Any heads of the model: does it matter which ones are selected?"""

from functools import partial

from headscope.evidence.rows import Control
from headscope.heads.draws import draw_sets

RANDOM = Control(
    "random heads",
    "the selected heads are any so many heads of the model",
    partial(draw_sets, way="random"),
)
