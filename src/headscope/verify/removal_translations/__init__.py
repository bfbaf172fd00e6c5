"""Removal with controls: conditions and what they make of a model, then what that shows.

`conditions.py` runs the model without heads and has it read references, `single` removes heads
alone and in pairs; `measures` and `evidence` need no model.
"""

from headscope.verify.removal_translations.conditions import (
    Removal,
    generate,
    translate,
)

__all__ = ["Removal", "generate", "translate"]
