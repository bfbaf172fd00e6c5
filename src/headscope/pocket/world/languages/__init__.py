"""The five languages of the pocket world, one module and one table a language."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from headscope.pocket.world.sentences import Language

CODES = ("en", "de", "es", "ru", "tr")


def language(code: str) -> Language:
    """The language module for a code of `CODES`."""
    if code not in CODES:
        raise KeyError(f"the pocket world speaks {', '.join(CODES)}, not {code!r}")
    return cast(Language, import_module(f"{__name__}.{code}"))


DIRECTIONS = tuple(f"{a}-{b}" for a in CODES for b in CODES if a != b)
