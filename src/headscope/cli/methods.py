"""`headscope methods`: every method of finding heads, what it measures and what it needs."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

from headscope.cli.commands import Study
from headscope.find.registry import methods
from headscope.runs import Signature
from headscope.settings import Settings


@dataclass(frozen=True)
class Methods(Settings):
    """List the methods of finding heads: what each measures, and what data it needs."""


def _methods(config: Methods) -> dict[str, Any]:
    began = time.monotonic()
    found = methods()
    return {
        "signature": str(Signature.of("methods", {"methods": [one.name for one in found]}, {})),
        "run": None,
        "seconds": time.monotonic() - began,
        "methods": [asdict(one) for one in found],
    }


def _text(result: dict[str, Any]) -> str:
    width = max(len(one["name"]) for one in result["methods"])
    return "\n".join(
        f"{one['name']:<{width}}  {one['measures']}\n{'':<{width}}  needs: {one['needs']}"
        for one in result["methods"]
    )


command = Study(Methods, _methods, _text, out=None)
