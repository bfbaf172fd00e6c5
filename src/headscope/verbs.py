"""The studies of a verb as functions of its package, each read when it is asked for.

It is the one way up in the order of imports: packages of methods serve functions of the studies.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from headscope.errors import nearest


def served(package: str, verb: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package that serves the studies of a verb."""

    def get(name: str) -> Any:
        registry = import_module("headscope.studies.registry")
        command = f"{verb} {name.replace('_', '-')}".strip()
        if command not in registry.COMMANDS:
            hint = nearest(name, names()).rstrip()
            raise AttributeError(
                f"module {package!r} has no attribute {name!r}" + (hint and f"; {hint}")
            )
        return import_module("headscope.studies.functions").function_of(command)

    def names() -> list[str]:
        registry = import_module("headscope.studies.registry")
        studies = [each.split(" ") for each in registry.COMMANDS]
        functions = [words[-1].replace("-", "_") for words in studies if words[:-1] == verb.split()]
        return sorted(functions)

    return get, names
