"""What the report of `verify one-by-one` reads: ranks, texts and similarities step by step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headscope.heads import Head
from headscope.runs.reading import naming, read_result

__all__ = ["Cut", "Example", "OneByOneRecord", "RandomOrder", "Step", "read_one_by_one"]


@dataclass(frozen=True)
class Cut:
    """The learned mask whose weights gave the order.

    `step` is that after which exactly its heads are left, None in another order.
    """

    kept: int
    removed: int
    step: int | None


@dataclass(frozen=True)
class RandomOrder:
    """Walks of all prompts in one random order, by step."""

    target_first: tuple[float, ...]
    last_similarity: tuple[float, ...]


@dataclass(frozen=True)
class Example:
    """One prompt by itself: ranks by step, and (step, head, text) where the text changes."""

    id: str
    prompt: str
    target: str
    ranks: tuple[int, ...]
    texts: tuple[tuple[int, str | None, str], ...]


@dataclass(frozen=True)
class Step:
    """What was seen after one step; step 0 is the untouched model."""

    step: int
    head: str
    target: float
    top: tuple[float, ...]
    text: str | None
    changed: int | None
    chrf: float | None
    similarity: tuple[float, ...]


@dataclass(frozen=True)
class OneByOneRecord:
    """A finished run; `directions` is 1 where its prompts are of one, or of none."""

    rows: tuple[Step, ...]
    sentences: int
    order: str
    gate: float
    model: str
    target_token: str | None
    top_tokens: tuple[str, ...]
    reference: str | None
    mask: Cut | None = None
    target_first: tuple[float, ...] = ()
    median_first: float | None = None
    random: tuple[RandomOrder, ...] = ()
    example: Example | None = None
    directions: int = 1


def read_one_by_one(path: Path) -> OneByOneRecord:
    """Read a finished run; InputError if the folder holds none of this kind or is damaged."""
    result = read_result(path)
    with naming(path / "result.json", "verify one-by-one"):
        base = result["baseline"]
        rows = [_row(0, "", base)]
        for place, step in enumerate(result["steps"], 1):
            rows.append(_row(place, str(Head(int(step["layer"]), int(step["head"]))), step))
        return OneByOneRecord(
            rows=tuple(rows),
            sentences=int(result["sentences"]),
            order=str(result["order"]),
            gate=float(result["gate"]),
            model=str(result["model"]["name"]),
            target_token=base.get("target_token"),
            top_tokens=tuple(map(str, base.get("top5_tokens") or ())),
            reference=result.get("reference"),
            directions=len(result.get("directions") or [""]),
            **_extras(result),
        )


def _extras(result: Mapping[str, Any]) -> dict[str, Any]:
    """What later versions tell besides; runs of earlier ones lack it."""
    cut, first, example = (result.get(name) for name in ("mask", "target_first", "example"))
    found: dict[str, Any] = {}
    if cut is not None:
        step = cut["cut_step"]
        found["mask"] = Cut(
            int(cut["kept"]), int(cut["removed"]), None if step is None else int(step)
        )
    if first is not None:
        found["target_first"] = tuple(map(float, first["share"]))
        found["median_first"] = first["median"]
    found["random"] = tuple(
        RandomOrder(
            tuple(map(float, one["target_first"])), tuple(map(float, one["last_similarity"]))
        )
        for one in result.get("random_orders") or ()
    )
    if example is not None:
        found["example"] = Example(
            str(example["id"]),
            str(example["prompt"]),
            str(example["target"]),
            tuple(map(int, example["target_ranks"])),
            tuple((int(one["step"]), one["head"], str(one["text"])) for one in example["texts"]),
        )
    return found


def _row(step: int, head: str, entry: Mapping[str, Any]) -> Step:
    changed, chrf = entry["texts_changed"], entry["chrf"]
    return Step(
        step,
        head,
        float(entry["target_rank"]),
        tuple(float(rank) for rank in entry["top5_ranks"]),
        None if entry["text"] is None else str(entry["text"]),
        None if changed is None else int(changed),
        None if chrf is None else float(chrf),
        tuple(float(value) for value in entry["similarity"]),
    )
