"""headscope finds, proves, compares and uses single attention heads of decoder language models.

    lm = headscope.load("pocket")
    scores = headscope.find.translation_score(lm, pairs)
    with lm.gated(scores.top(20).removed()):
        ...

Importing the package loads nothing heavy: every name is fetched from its room when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headscope import find
    from headscope.errors import InputError
    from headscope.heads import Gate, Geometry, Head, HeadScores, HeadSet
    from headscope.lm import load

    __version__: str

__all__ = [
    "Gate",
    "Geometry",
    "Head",
    "HeadScores",
    "HeadSet",
    "InputError",
    "__version__",
    "find",
    "load",
]

#: Where each public name lives.
_ROOMS = {
    "Gate": "headscope.heads",
    "Geometry": "headscope.heads",
    "Head": "headscope.heads",
    "HeadScores": "headscope.heads",
    "HeadSet": "headscope.heads",
    "InputError": "headscope.errors",
    "load": "headscope.lm",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("headscope.heads.store").installed_version()
    if name == "find":
        return import_module("headscope.find")
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_ROOMS[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
