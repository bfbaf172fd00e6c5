"""What the report of an export reads of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headscope.errors import InputError
from headscope.heads import Gate
from headscope.runs.reading import naming, read_result

__all__ = ["Comparison", "ExportRecord", "read_export"]

KIND = "an export"


@dataclass(frozen=True)
class Comparison:
    """How far the export's logits are from the gated model's, and the gate moves them at all.

    `allowed` is what rounding may explain; None in runs that did not note it.
    """

    difference: float
    moved: float
    largest: float
    same: float
    positions: int
    dtype: str
    rounded: str
    allowed: float | None = None


@dataclass(frozen=True)
class ExportRecord:
    """A run of `use export`; `comparison` is None where it was not made, `note` says why."""

    model: str
    form: str
    gate: Gate
    feed_forward: int
    files: tuple[str, ...]
    size: int
    changed: tuple[str, ...]
    found_by: str | None
    same_weights: bool | None
    licence: str | None
    licence_note: str | None
    quantised: str | None
    comparison: Comparison | None
    note: str | None


def read_export(path: Path) -> ExportRecord:
    """Read a finished run; InputError if it is no export or is damaged."""
    result = read_result(path)
    gate = Gate.from_pretrained(path / "gate")
    with naming(path / "result.json", KIND):
        if result["as"] not in ("checkpoint", "ia3"):
            raise InputError(f"{path / 'result.json'}: is damaged; run the same command again")
        base, told = result["base"], result["check"]
        return ExportRecord(
            model=str(result["model"]["name"]),
            form=str(result["as"]),
            gate=gate,
            feed_forward=int(result["gate"]["feed_forward"]),
            files=tuple(map(str, result["files"])),
            size=int(result["bytes"]),
            changed=tuple(map(str, result["changed"])),
            found_by=_text(result["found_by"]),
            same_weights=result["found_on_same_weights"],
            licence=_text(base["license"]),
            licence_note=_text(base["license_note"]),
            quantised=_text(result["model"].get("quantised")),
            comparison=None if told is None else _comparison(told),
            note=_text(result["check_note"]),
        )


def _comparison(told: Mapping[str, Any]) -> Comparison:
    return Comparison(
        difference=float(told["largest_difference"]),
        moved=float(told["untouched_difference"]),
        largest=float(told["largest_logit"]),
        same=float(told["same_choice"]),
        positions=int(told["positions"]),
        dtype=str(told["dtype"]),
        rounded=str(told["rounded_to"]),
        allowed=None if told.get("allowed") is None else float(told["allowed"]),
    )


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
