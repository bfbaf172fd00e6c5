"""Heads that are not selected, nor token alignment heads: how large is the effect?

The control of Token Alignment Heads (ICLR 2026). The selected heads cannot be among the draws, so
their rank gives no p-value.
"""

from headscope.evidence.rows import Control
from headscope.heads.draws import draw_sets

OUTSIDE = Control(
    "random heads that are neither selected nor related",
    "",
    lambda heads, draws, seed, basis: draw_sets(
        heads, draws, seed, "outside", basis.avoid, basis.watch
    ),
)
