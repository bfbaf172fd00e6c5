"""Where a result comes from: versions, machine, model, data, time."""

from __future__ import annotations

import platform
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from headscope.heads.store import installed_version
from headscope.runs.plain import plain

PACKAGES = ("torch", "transformers", "numpy", "safetensors", "tokenizers", "sacrebleu")


def now() -> str:
    """The time in UTC, to the second, as ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def collect_provenance(**known: Any) -> dict[str, Any]:
    """Versions of headscope, Python and the packages it computes with, the platform, the command.

    No package is imported; one that is not installed has the version null. `known` adds what only
    the caller knows, by these names: `model`, `revision`, `weights` (digest), `dtype`, `device`,
    `data` (name to content hash), `seed`.
    """
    program = Path(sys.argv[0]).name if sys.argv else ""
    if program == "__main__.py":  # python -m headscope
        program = "headscope"
    return {
        "headscope": installed_version(),
        "python": platform.python_version(),
        **{name: _version(name) for name in PACKAGES},
        "platform": platform.platform(),
        "command_line": [program, *sys.argv[1:]],
        **{name: plain(value) for name, value in known.items()},
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
