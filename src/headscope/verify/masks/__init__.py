"""Learned masks put to the test: what a masked model does with a task nobody tells it.

After Heads Up! (ICML 2025). `mask` reads masks and shuffles them; `asking` runs a model on a task
under a condition, `conditions` says which are compared; `evidence` turns outputs into numbers
(`published` has the paper's BLEU) and says what the numbers of all conditions show.
"""

from headscope.verify.masks.asking import (
    Asked,
    Asking,
    Condition,
    Mask,
    Record,
    ask,
    asked,
    read_mask,
)

__all__ = ["Asked", "Asking", "Condition", "Mask", "Record", "ask", "asked", "read_mask"]
