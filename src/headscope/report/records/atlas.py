"""What the report of translation scores reads: a finished run folder as frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headscope.errors import InputError
from headscope.heads import HeadScores, Rank, check_geometry, read_scores
from headscope.results.classes import Classes
from headscope.runs.reading import naming, read_object, read_result
from headscope.shown.words import MEAN

__all__ = ["AtlasRecord", "read_scores_run"]


@dataclass(frozen=True)
class AtlasRecord:
    """A run. `scores` holds every direction in order and, where several, their mean first.

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


def read_scores_run(path: Path) -> AtlasRecord:
    """Read a finished run of `find translation-score`."""
    result, provenance = read_result(path), read_object(path / "provenance.json")
    config = read_object(path / "run.json").get("config")
    what = "a search for heads"
    with naming(path / "run.json", what):
        settings = dict(dict(config or {}).get("settings") or {})
        thresholds = {n: float(settings[n]) for n in ("threshold", "inactive") if n in settings}
    if "directions" not in result:  # a run of one direction is told as that direction
        with naming(path / "found_on.json", what):
            (pair,) = read_object(path / "found_on.json")
        result["directions"] = {pair: dict(result)}
    with naming(path / "result.json", what):
        result["config"] = thresholds
        result["data"] = {
            name: {
                "found_on": part.get("examples"),
                **{key: part.get(key) for key in ("units", "aligner", "links_digest")},
            }
            for name, part in result["directions"].items()
        }
    names = {"name": "model", "digest": "weights"}
    model = {key: provenance.get(name) for key, name in names.items()}
    result["model"] = model | {key: provenance.get(key) for key in ("revision", "dtype", "device")}
    return _record(path, result, provenance, what)


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
