"""Finding heads: each method is a plain function over one configuration.

`registry` knows all methods by name and imports one where it is used; `scoring` is what they share.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headscope.find.translation import TranslationScore, translation_score

__all__ = ["TranslationScore", "translation_score"]


def __getattr__(name: str) -> Any:
    """What needs torch is imported when it is asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("headscope.find.translation"), name)
