"""Applying masks, soft gates and scaled heads while a model generates.

`Adaptation` is what is applied, read from a run or made from heads; `adapted` and `attach` apply it
to a model of `transformers`, for a block or until it is removed; `prompts` reads what a model is
given.
"""

from headscope.heads.adaptation import Adaptation, heads_scaled, read_adaptation
from headscope.use.adapting.applying import Attached, adapted, attach

__all__ = ["Adaptation", "Attached", "adapted", "attach", "heads_scaled", "read_adaptation"]
