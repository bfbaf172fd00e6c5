"""Packages that only some inputs need, imported when they are needed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from headscope.errors import MissingExtra


def need(module: str, purpose: str, extra: str) -> Any:
    """Imports a module, or raises ``MissingExtra`` with the line that installs it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != package:
            raise
        raise MissingExtra.needed(purpose, package, extra) from None
