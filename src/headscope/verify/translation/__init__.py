"""Removal with controls: conditions and what they make of a model, then what that shows.

`conditions` runs the model without heads, `losses` has it read references, and `single` removes
heads alone and in pairs; `measures` and `evidence` need no model.
"""

from headscope.verify.translation.conditions import (
    Condition,
    Removal,
    conditions,
    generate,
    translate,
)

__all__ = ["Condition", "Removal", "conditions", "generate", "translate"]
