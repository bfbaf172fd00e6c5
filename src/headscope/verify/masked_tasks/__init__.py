"""Learned masks put to the test: what a masked model does with a task nobody tells it.

After Heads Up! (ICML 2025). `asking` reads masks and runs a model on a task under a condition,
`conditions` says which are compared; `evidence` says what its outputs show.
"""

from headscope.verify.masked_tasks.asking import (
    Asked,
    Asking,
    Mask,
    MaskRecord,
    Way,
    ask,
    asked,
    read_mask,
)

__all__ = ["Asked", "Asking", "Mask", "MaskRecord", "Way", "ask", "asked", "read_mask"]
