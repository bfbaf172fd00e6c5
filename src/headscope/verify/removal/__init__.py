"""Removal with controls: conditions and their outputs, then what the outputs show.

`controls` draws random heads, `conditions` runs the model without heads, `outputs` is what is kept
of it; `measures` and `evidence` work on what is kept alone, without the model.
"""

from headscope.heads.draws import Draw, Pool, draw_heads
from headscope.verify.removal.conditions import (
    Condition,
    Removal,
    conditions,
    generate,
    translate,
)

__all__ = [
    "Condition",
    "Draw",
    "Pool",
    "Removal",
    "conditions",
    "draw_heads",
    "generate",
    "translate",
]
