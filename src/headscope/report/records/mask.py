"""What the report of a learned mask reads of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscope.errors import InputError
from headscope.heads import Geometry, Head, HeadScores
from headscope.runs.reading import naming, read_result

__all__ = ["HeadCourse", "MaskRecord", "read_mask"]

KIND = "a learned mask"
FATES = ("kept", "never", "dropped", "added", "tried", "regained")


@dataclass(frozen=True)
class HeadCourse:
    """A head with its final weight, whether the mask has it, and what became of it on the way."""

    head: Head
    weight: float
    selected: bool
    fate: str
    changes: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class MaskRecord:
    """A run of `find mask`.

    `steps` (S,) and `weights` (S, L, W) are the history, `losses` (steps,) one loss a step;
    `courses` are the heads by falling weight.
    """

    result: Mapping[str, Any]
    model: str
    task: str
    start: str
    on: str
    shots: int
    examples: int
    geometry: Geometry
    courses: tuple[HeadCourse, ...]
    feed_forward: tuple[bool, ...] | None
    steps: NDArray[np.int64]
    weights: NDArray[np.float32]
    losses: NDArray[np.float64]
    notes: tuple[str, ...]

    @property
    def selected(self) -> int:
        """How many heads the mask keeps."""
        return sum(course.selected for course in self.courses)


def read_mask(path: Path) -> MaskRecord:
    """Read a finished run; InputError if it holds no learned mask or is damaged."""
    result = read_result(path)
    arrays = _history(path / "history.safetensors")
    geometry = HeadScores.from_pretrained(path / "scores").geometry
    with naming(path / "result.json", KIND):
        ways = result["feed_forward"]
        record = MaskRecord(
            result=result,
            model=str(result["model"]["name"]),
            task=str(result["task"]),
            start=str(result["start"]),
            on=str(result["on"]),
            shots=int(result["shots"]),
            examples=int(result["examples"]),
            geometry=geometry,
            courses=tuple(_course(one) for one in result["heads"]),
            feed_forward=None if ways is None else tuple(bool(one["selected"]) for one in ways),
            notes=tuple(str(note) for note in result["notes"]),
            **arrays,
        )
    heads = {course.head for course in record.courses}
    if (
        heads != set(geometry.heads())
        or len(record.courses) != len(heads)
        or record.weights.shape != (len(record.steps), *geometry.shape)
        or record.losses.ndim != 1
        or len(record.steps) < 2
        or int(record.steps[-1]) != len(record.losses)
    ):
        raise InputError(
            f"{path}: its files are not of one run; run the same command again into a new folder"
        )
    return record


def _course(one: Mapping[str, Any]) -> HeadCourse:
    fate = str(one["fate"])
    if fate not in FATES:
        raise ValueError(f"the fate {fate!r} is unknown")
    changes = tuple(int(step) for step in one["changes"])
    head = Head(int(one["layer"]), int(one["head"]))
    return HeadCourse(head, float(one["score"]), bool(one["selected"]), fate, changes)


def _history(path: Path) -> dict[str, Any]:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        arrays = load(path.read_bytes())
        return {name: arrays[name] for name in ("steps", "weights", "losses")}
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    except (SafetensorError, KeyError, ValueError) as error:
        raise InputError(f"{path}: is damaged; run the same command again") from error
