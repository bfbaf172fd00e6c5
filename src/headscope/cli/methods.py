"""`headscope methods`: every method of finding heads, what it measures and what it needs."""

from __future__ import annotations

import time

from headscope.cli import old_options as options
from headscope.cli.output import emit


def methods(as_json: options.AsJson = False) -> None:
    """List the methods of finding heads: what each measures, and what data it needs."""
    began = time.monotonic()
    from dataclasses import asdict

    from headscope.find.registry import methods as registered
    from headscope.runs import Signature

    found = registered()
    width = max(len(one.name) for one in found)
    lines = [
        f"{one.name:<{width}}  {one.measures}\n{'':<{width}}  needs: {one.needs}" for one in found
    ]
    result = {
        "signature": str(Signature.of("methods", {"methods": [one.name for one in found]}, {})),
        "run": None,
        "seconds": time.monotonic() - began,
        "methods": [asdict(one) for one in found],
    }
    emit(result, as_json, "\n".join(lines))


command = methods
