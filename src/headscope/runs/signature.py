"""What a run computes, as a hash and a readable signature, and where a result comes from."""

from __future__ import annotations

import hashlib
import json
import math
import platform
import sys
from collections.abc import Mapping
from dataclasses import Field, dataclass, fields, is_dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from headscope.heads.store import installed_version
from headscope.installed import package_of
from headscope.runs.plain import plain


@dataclass(frozen=True)
class Signature:
    """The command, configuration, inputs and version that together say what a run computes.

    `config` is what `configuration` made; `inputs` maps names to content hashes.
    """

    command: str
    config: Mapping[str, Any]
    inputs: Mapping[str, str]
    version: str

    @classmethod
    def of(cls, command: str, config: Any, inputs: Mapping[str, str]) -> Signature:
        """The signature of `command` under a configuration (a dataclass or a mapping)."""
        version = " with ".join(filter(None, [installed_version(), package_of(command)]))
        return cls(command, configuration(config), dict(sorted(inputs.items())), version)

    @property
    def hash(self) -> str:
        """12 hexadecimal digits of the SHA-256 over all four fields."""
        everything = {f.name: getattr(self, f.name) for f in fields(self)}
        text = json.dumps(everything, sort_keys=True, ensure_ascii=False, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def __str__(self) -> str:
        return f"headscope-{self.version}|{self.command}|{self.hash}"

    def differences(self, other: Mapping[str, Any]) -> list[str]:
        """Where a stored `as_dict` differs: `decode ('greedy' there, 'reference' here)`."""
        mine, theirs = _flat(self.as_dict()), _flat(other)
        return [
            f"{name} ({theirs.get(name)!r} there, {mine.get(name)!r} here)"
            for name in sorted(mine.keys() | theirs.keys())
            if theirs.get(name) != mine.get(name)
        ]

    def as_dict(self) -> dict[str, Any]:
        """The four fields as a JSON object."""
        return {f.name: plain(getattr(self, f.name)) for f in fields(self)}


def configuration(config: Any) -> dict[str, Any]:
    """The fields of a configuration that decide what is computed, as a JSON object.

    Every field of a dataclass counts, nested ones included, unless it opts out by
    `field(metadata={"signature": False})`, as a device, a batch size or an output folder does: it
    changes where and how fast a result is computed, not which. One with
    `field(metadata={"signature": "given"})` counts unless it is None, so that a choice that came
    later leaves the signatures as they were for those who do not make it. All entries of a mapping
    count.
    """
    kept = _kept(config)
    if not isinstance(kept, dict):
        raise TypeError(f"a configuration is a dataclass or a mapping, not {type(config).__name__}")
    return kept


def _kept(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: _kept(getattr(value, f.name)) for f in fields(value) if _counts(f, value)}
    if isinstance(value, Mapping):
        return {str(plain(key)): _kept(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_kept(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON would write every one of them as null
    return plain(value)


def _counts(part: Field[Any], owner: Any) -> bool:
    counts = part.metadata.get("signature", True)
    return getattr(owner, part.name) is not None if counts == "given" else bool(counts)


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(value, Mapping):
        return {prefix: value}
    flat: dict[str, Any] = {}
    for key, item in value.items():
        name = str(key) if prefix in ("", "config") else f"{prefix}.{key}"
        flat |= _flat(item, name)
    return flat


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
