"""Finding heads: one method a file, each a plain function over one configuration.

`registry` knows all methods by name and imports one where it is used; a method of several files is
a folder (`mask`).
"""

from typing import TYPE_CHECKING, Any

from headscope.find.translation_config import TranslationScore

if TYPE_CHECKING:
    from headscope.find.translation import translation_score

__all__ = ["TranslationScore", "translation_score"]


def __getattr__(name: str) -> Any:
    """What runs a model is read when it is asked for; settings alone need no torch."""
    if name != "translation_score":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from headscope.find.translation import translation_score

    return translation_score
