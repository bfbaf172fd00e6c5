"""Masks that were found for other tasks or on other models: is the task's own mask its own?

They are given, not drawn, and may remove another number of heads.
"""

from headscope.evidence.rows import Control

FOREIGN = Control("masks of other tasks or models")
