"""What the report of `use adapt` reads of a run: what was applied, and outputs with and without."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headscope.runs.reading import damaged_line, naming, read_result, read_rows

__all__ = ["AdaptRecord", "Output", "read_adapt"]

KIND = "a run of `headscope use adapt`"
#: Outputs that are shown, those that differ first.
SHOWN = 60


@dataclass(frozen=True)
class Output:
    """One prompt with what was written; `as_is` is None where only the adapted model wrote."""

    id: str
    prompt: str
    text: str
    as_is: str | None
    reference: str | None

    @property
    def changed(self) -> bool:
        """Whether the gate made a difference."""
        return self.as_is is not None and self.as_is != self.text


@dataclass(frozen=True)
class AdaptRecord:
    """A finished run; `heads` and `feed_forward` hold the numbers applied, by head and by layer."""

    model: str
    gate: Mapping[str, Any]
    heads: Mapping[str, float]
    feed_forward: Mapping[str, float]
    prompts: int
    changed: int | None
    empty: tuple[int, int | None]
    max_new_tokens: int
    outputs: tuple[Output, ...]


def read_adapt(path: Path) -> AdaptRecord:
    """Read a finished run; InputError if the folder holds none of this kind or is damaged."""
    result = read_result(path)
    with naming(path / "result.json", KIND):
        gate = result["gate"]
        applied = gate["applied"]
        changed, as_is = result["changed"], result["empty_as_is"]
        record = AdaptRecord(
            model=str(result["model"]["name"]),
            gate={
                "name": str(gate["name"]),
                "on": str(gate["on"]),
                **{key: int(gate[key]) for key in ("heads", "removed", "of", "feed_forward")},
            },
            heads={str(name): float(value) for name, value in applied["heads"].items()},
            feed_forward={
                str(name): float(value) for name, value in applied["feed_forward"].items()
            },
            prompts=int(result["prompts"]),
            changed=None if changed is None else int(changed),
            empty=(int(result["empty"]), None if as_is is None else int(as_is)),
            max_new_tokens=int(result["max_new_tokens"]),
            outputs=_outputs(path / "outputs.jsonl"),
        )
    return record


def _outputs(path: Path) -> tuple[Output, ...]:
    """The first outputs that differ from the model's own and, if room is left, others."""
    changed: list[Output] = []
    same: list[Output] = []
    for number, row in read_rows(path):
        try:
            as_is, reference = row.get("text_as_is"), row.get("reference")
            one = Output(
                str(row["id"]),
                _prompt(row["prompt"]),
                str(row["text"]),
                None if as_is is None else str(as_is),
                None if reference is None else str(reference),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise damaged_line(path, number) from error
        kept = changed if one.changed else same
        if len(kept) < SHOWN:
            kept.append(one)
    return (*changed, *same)[:SHOWN]


def _prompt(given: Any) -> str:
    if isinstance(given, str):
        return given
    return "\n".join(f"{one['role']}: {one['content']}" for one in given)
