"""Heads that are not selected, nor token alignment heads: how large is the effect?

The control of Token Alignment Heads (ICLR 2026). The selected heads cannot be among the draws, so
their rank gives no p-value.
"""

from headscope.evidence.controls.drawing import drawing
from headscope.evidence.rows import Control

OUTSIDE = Control(
    "random heads that are neither selected nor related",
    "",
    drawing("outside"),
)
