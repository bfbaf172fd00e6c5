"""headscope finds, proves, compares and uses single attention heads of decoder language models.

    lm = headscope.load("pocket")
    found = headscope.find.translation_score(lm, "pairs.tsv", pair="en-de")
    result = headscope.verify.removal(lm, "test.tsv", found, pair="en-de", draws=20)
    with lm.gated(found.scores.top(20).removed()):
        ...

Importing the package loads nothing heavy: every name is fetched from its room when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from headscope.display import set_renderer

if TYPE_CHECKING:
    from headscope import compare, find, use, verify
    from headscope.errors import InputError
    from headscope.heads import Gate, Geometry, Head, HeadScores, HeadSet
    from headscope.live import explore
    from headscope.lm import load
    from headscope.studies.report import read_run, read_tests

    __version__: str

__all__ = [
    "Gate",
    "Geometry",
    "Head",
    "HeadScores",
    "HeadSet",
    "InputError",
    "__version__",
    "compare",
    "explore",
    "find",
    "load",
    "read_run",
    "read_tests",
    "use",
    "verify",
]

#: Where each public name lives.
_ROOMS = {
    "Gate": "headscope.heads",
    "Geometry": "headscope.heads",
    "Head": "headscope.heads",
    "HeadScores": "headscope.heads",
    "HeadSet": "headscope.heads",
    "InputError": "headscope.errors",
    "explore": "headscope.live",
    "load": "headscope.lm",
    "read_run": "headscope.studies.report",
    "read_tests": "headscope.studies.report",
}

_VERBS = ("compare", "find", "use", "verify")


set_renderer(lambda: import_module("headscope.studies.report"))


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("headscope.heads.store").installed_version()
    if name in _VERBS:
        return import_module(f"headscope.{name}")
    if name not in _ROOMS:
        hint = import_module("headscope.errors").nearest(name, __all__).rstrip()
        raise AttributeError(
            f"module {__name__!r} has no attribute {name!r}" + (hint and f"; {hint}")
        )
    value = getattr(import_module(_ROOMS[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
