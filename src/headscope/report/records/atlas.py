"""What the report of an atlas reads: a finished run folder as frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headscope.errors import InputError
from headscope.heads import HeadScores, Rank, check_geometry, read_scores
from headscope.report.records.outputs import BASELINE, read_sentences
from headscope.results.atlas import AtlasCheck
from headscope.results.classes import Classes
from headscope.runs import decode
from headscope.runs.reading import naming, read_object, read_result
from headscope.shown.blocks import Sentence
from headscope.shown.words import MEAN

__all__ = ["AtlasRecord", "Overlap", "read_atlas"]


@dataclass(frozen=True)
class Overlap:
    """How far the top heads of two directions agree, and what chance would give."""

    a: str
    b: str
    jaccard: float
    expected: float
    expected_exact: float
    p_value: float


@dataclass(frozen=True)
class AtlasRecord:
    """An atlas run. `scores` holds every direction in order and, where several, their mean first.

    `result`, `provenance` and `run` are the JSON objects of the run folder; `rank` is what heads
    are ranked by, `threshold` and `inactive` are those of the classes, counted anew.
    """

    path: Path
    run: Mapping[str, Any]
    result: Mapping[str, Any]
    provenance: Mapping[str, Any]
    scores: dict[str, HeadScores]
    threshold: float
    inactive: float
    rank: Rank
    counts: dict[str, Classes]
    counts_above_chance: dict[str, Classes]
    top_k: int
    overlap: tuple[Overlap, ...]
    removal: AtlasCheck | None
    sentences: tuple[Sentence, ...]

    @property
    def model(self) -> Mapping[str, Any]:
        """The model's entry of the result."""
        return dict(self.result.get("model") or {})

    @property
    def directions(self) -> list[str]:
        """The translation directions, without the mean."""
        return [name for name in self.scores if name != MEAN]

    @property
    def counted_over(self) -> int:
        """The number of directions that the counts of `main` are the mean of."""
        return self.scores[self.main].counted_over

    @property
    def main(self) -> str:
        """What the page shows first: the mean, or the only direction there is."""
        return next(iter(self.scores))


def read_atlas(path: Path) -> AtlasRecord:
    """Read a finished atlas run; InputError if the folder holds no such run or is damaged."""
    return _record(path, read_result(path), read_object(path / "provenance.json"), "an atlas")


def _record(
    path: Path, result: dict[str, Any], provenance: dict[str, Any], what: str
) -> AtlasRecord:
    run = read_object(path / "run.json")
    with naming(path / "result.json", what):
        directions = list(result["directions"])
        scores = _scores(path, directions)
        config = result.get("config") or {}
        threshold = float(config.get("threshold", 0.1))
        inactive = float(config.get("inactive", 0.0))
        above = {n: one.classes_above_chance(threshold, inactive) for n, one in scores.items()}
        overlap = result.get("overlap") or {"pairs": [], "k": 0}
        stored = result.get("removal")
        removal = decode(AtlasCheck, stored, "result.removal") if stored else None
        places = {BASELINE: 0}
        for place, one in enumerate(removal.conditions if removal else (), 1):
            places.setdefault(one.label.kind, place)
        return AtlasRecord(
            path=path,
            run=run,
            result=result,
            provenance=provenance,
            scores=scores,
            threshold=threshold,
            inactive=inactive,
            rank=next(iter(scores.values())).rank_used(result.get("rank") or "score"),
            counts={n: Classes(**one.classes(threshold, inactive)) for n, one in scores.items()},
            counts_above_chance={n: Classes(**one) for n, one in above.items() if one},
            top_k=int(overlap.get("k") or 0),
            overlap=tuple(_overlap(pair) for pair in overlap["pairs"]),
            removal=removal,
            sentences=read_sentences(path, places=places),
        )


def _scores(path: Path, directions: list[str]) -> dict[str, HeadScores]:
    found = read_scores(path)
    if len(directions) == 1 and directions[0] not in found and MEAN in found:
        found = {directions[0]: found[MEAN]}
    names = directions if len(directions) == 1 else [MEAN, *directions]
    missing = [name for name in names if name not in found]
    if missing:
        raise InputError(
            f"{path / 'scores'}: holds no scores named '{missing[0]}', which result.json lists; "
            "run the same command again into a new folder"
        )
    first = found[names[0]].geometry
    for name in names:
        check_geometry(found[name], first, str(path / "scores" / name))
    return {name: found[name] for name in names}


def _overlap(entry: Mapping[str, Any]) -> Overlap:
    numbers = ("jaccard", "expected", "expected_exact", "p_value")
    return Overlap(str(entry["a"]), str(entry["b"]), *(float(entry[name]) for name in numbers))
