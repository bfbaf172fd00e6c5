"""Learned head masks: which heads a model keeps to do a task that nobody tells it.

After Heads Up! (ICML 2025), section 3.2: every head has a weight, trained by gradient descent on a
task's inputs and outputs without instruction while the model is frozen; the heads whose weight ends
at 0 or above are the mask.  `config` says what is trained and by which schedule, `sampling` how
weights become the gates of one step, `train` takes the steps, `history` reads what happened on the
way.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from headscope.find.mask.config import PRESETS, MaskTraining, preset
from headscope.find.mask.history import Course, History

if TYPE_CHECKING:
    from headscope.find.mask.train import TrainedMask, seconds_a_step, train_mask

__all__ = [
    "PRESETS",
    "Course",
    "History",
    "MaskTraining",
    "TrainedMask",
    "preset",
    "seconds_a_step",
    "train_mask",
]


def __getattr__(name: str) -> Any:
    """What needs torch is imported when it is asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("headscope.find.mask.train"), name)
