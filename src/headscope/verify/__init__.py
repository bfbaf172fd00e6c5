"""Proving heads: what a model does without them, beside the untouched model and random heads.

One folder a question: does translation need them (`removal`), how does it fail (`failures`), when
does behaviour change (`one_by_one`), what else needs them (`tasks`); does a language need its heads
(`languages`), what is written without them (`writing`); what does a model do under a learned mask
(`masks`), and does the mask pick heads that look at the answer (`attention`).
"""

from headscope.heads.draws import Draw, draw_heads
from headscope.verify.removal import Condition, Removal, conditions, generate, translate

__all__ = ["Condition", "Draw", "Removal", "conditions", "draw_heads", "generate", "translate"]
