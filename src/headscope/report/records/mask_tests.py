"""What the reports of `verify mask`, `verify scaling` and `verify families` read of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headscope.errors import InputError
from headscope.runs.reading import damaged_line, naming, read_result, read_rows

__all__ = [
    "Alpha",
    "FamilyRow",
    "MaskTests",
    "Row",
    "Sample",
    "TaskTests",
    "read_mask_tests",
    "read_samples",
]

MEASURES = (
    "nll",
    "nll_tokens",
    "perplexity",
    "rouge_l",
    "chrf",
    "bleu",
    "bleu_published",
    "accuracy",
    "accuracy_words",
)
#: Examples whose outputs a page shows.
SHOWN = 20


@dataclass(frozen=True)
class Difference:
    """A difference with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Row:
    """One condition: its measures (None where one was not taken), intervals and differences.

    `against` holds differences by what they are to (`change` to the first condition, `shuffled`,
    `random`, …) and measure; `p_draws` likewise. `of` names the condition a random draw is for.
    `unseen` says whether the task is none of those that another task's mask was trained on.
    """

    kind: str
    name: str
    draw: int | None
    of: str | None
    values: Mapping[str, float | None]
    intervals: Mapping[str, tuple[float, float]]
    against: Mapping[str, Mapping[str, Difference]]
    p_draws: Mapping[str, Mapping[str, float]]
    unseen: bool | None = None


@dataclass(frozen=True)
class Alpha:
    """The loss of the instructed task with the heads outside the mask at α.

    `shuffled` are the losses with shuffled masks, `chosen` the share of resamples of the examples
    that have their lowest loss here.
    """

    alpha: float
    nll: float
    low: float
    high: float
    shuffled: tuple[float, ...]
    chosen: float


@dataclass(frozen=True)
class TaskTests:
    """One task: its conditions, and for `verify scaling` the losses by α.

    `too_long` answers have more tokens than the model was let write.
    """

    name: str
    examples: int
    translation: bool
    at_start: bool
    instruction: str | None
    unseen: bool | None
    removed: int
    kept: int
    rows: tuple[Row, ...]
    leakage: Mapping[str, Any]
    alphas: tuple[Alpha, ...] = ()
    best: float | None = None
    chosen_on: int = 0
    uninstructed: tuple[Row, ...] = ()
    too_long: int = 0

    def of_kind(self, kind: str, of: str | None = None) -> tuple[Row, ...]:
        """The conditions of one kind, of random draws those for one condition."""
        return tuple(row for row in self.rows if row.kind == kind and (not of or row.of == of))

    def one(self, kind: str) -> Row | None:
        """The first condition of a kind."""
        return next(iter(self.of_kind(kind)), None)


@dataclass(frozen=True)
class FamilyRow:
    """The heads shared by a family's masks: how many, of which tasks, drawn against what."""

    name: str
    tasks: tuple[str, ...]
    removed: int
    pool: str
    tested: bool


@dataclass(frozen=True)
class MaskTests:
    """A whole run."""

    result: Mapping[str, Any]
    model: str
    heads: int
    tasks: tuple[TaskTests, ...]
    shots: int
    draws: int
    families: tuple[FamilyRow, ...]


@dataclass(frozen=True)
class Sample:
    """One example with what was written under each condition, by the condition's name."""

    input: str
    reference: str
    outputs: Mapping[str, str]
    nll: Mapping[str, float]


def read_mask_tests(path: Path) -> MaskTests:
    """Read a finished run of one of the three commands; InputError if it is another or damaged."""
    result = read_result(path)
    with naming(path / "result.json", "tests of a mask"):
        model = dict(result["model"])
        found = MaskTests(
            result=result,
            model=str(model["name"]),
            heads=int(model["heads"]),
            tasks=tuple(_task(str(name), dict(one)) for name, one in result["tasks"].items()),
            shots=int(result.get("shots", 0)),
            draws=int(result["draws"]),
            families=tuple(_family(dict(one)) for one in result.get("families", ())),
        )
    if not found.tasks or not all(task.rows for task in found.tasks):
        raise InputError(f"{path / 'result.json'}: is damaged; run the same command again")
    return found


def read_samples(path: Path, task: str) -> list[Sample]:
    """The first examples of a task with all outputs that were written."""
    file = path / "samples" / f"{task}.jsonl"
    texts: dict[str, tuple[str, str]] = {}
    outputs: dict[str, dict[str, str]] = {}
    losses: dict[str, dict[str, float]] = {}
    for number, row in read_rows(file):
        try:
            identifier, condition = str(row["id"]), str(row["condition"])
            if identifier not in texts and len(texts) == SHOWN:
                continue
            texts.setdefault(identifier, (str(row["input"]), str(row["reference"])))
            losses.setdefault(identifier, {})[condition] = float(row["nll"]) / int(row["tokens"])
            if row["output"] is not None:
                outputs.setdefault(identifier, {})[condition] = str(row["output"])
        except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
            raise damaged_line(file, number) from error
    return [Sample(*texts[one], outputs.get(one, {}), losses[one]) for one in texts]


def _task(name: str, one: Mapping[str, Any]) -> TaskTests:
    mask = dict(one.get("mask") or {})
    shares = {float(row["alpha"]): float(row["share"]) for row in one.get("chosen_again", ())}
    return TaskTests(
        name=name,
        examples=int(one["examples"]),
        translation=bool(one["translation"]),
        at_start=bool(one.get("at_start", False)),
        instruction=None if one.get("instruction") is None else str(one["instruction"]),
        unseen=one.get("unseen"),
        removed=int(mask.get("removed", 0)),
        kept=int(mask.get("kept", 0)),
        rows=tuple(_row(dict(row)) for row in one["conditions"]),
        leakage=dict(one.get("leakage") or {}),
        alphas=tuple(_alpha(dict(row), shares) for row in one.get("alphas", ())),
        best=None if one.get("best") is None else float(one["best"]),
        chosen_on=int(one.get("chosen_on", 0)),
        too_long=int(one.get("too_long", 0)),
        uninstructed=tuple(_row(dict(row)) for row in one.get("uninstructed", ())),
    )


def _row(row: Mapping[str, Any]) -> Row:
    against = {
        name.removeprefix("against_"): _differences(value)
        for name, value in row.items()
        if name == "change" or name.startswith("against_")
    }
    tests = {
        name.removeprefix("p_draws_"): {key: float(p) for key, p in value.items()}
        for name, value in row.items()
        if name.startswith("p_draws_")
    }
    return Row(
        kind=str(row["kind"]),
        name=str(row["name"]),
        draw=None if row["draw"] is None else int(row["draw"]),
        of=None if row["of"] is None else str(row["of"]),
        values={name: _number(row.get(name)) for name in MEASURES},
        intervals={
            str(name): (float(ends["low"]), float(ends["high"]))
            for name, ends in row["intervals"].items()
        },
        against=against,
        p_draws=tests,
        unseen=row.get("unseen"),
    )


def _differences(value: Mapping[str, Any]) -> dict[str, Difference]:
    return {
        str(name): Difference(float(one["value"]), float(one["low"]), float(one["high"]))
        for name, one in value.items()
    }


def _number(value: object) -> float | None:
    if value is None:
        return None
    number = float(str(value))
    return number if math.isfinite(number) else None


def _alpha(row: Mapping[str, Any], shares: Mapping[float, float]) -> Alpha:
    alpha, ends = float(row["alpha"]), row["intervals"]["nll"]
    losses: Sequence[Any] = row["shuffled"]
    return Alpha(
        alpha,
        float(row["nll"]),
        float(ends["low"]),
        float(ends["high"]),
        tuple(float(one) for one in losses),
        shares[alpha],
    )


def _family(one: Mapping[str, Any]) -> FamilyRow:
    return FamilyRow(
        str(one["name"]),
        tuple(str(task) for task in one["tasks"]),
        int(one["removed"]),
        str(one["pool"]),
        bool(one["tested"]),
    )
