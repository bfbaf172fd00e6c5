"""What the report of plain head scores reads of a run: scores, and what its result tells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headscope.errors import InputError
from headscope.heads import HeadScores, check_geometry, read_scores
from headscope.report.words import MEAN
from headscope.runs.reading import naming, read_object, read_result

__all__ = ["HeadScoresRecord", "Place", "read_head_scores"]

KIND = "a search for heads"


@dataclass(frozen=True)
class Place:
    """Prompts whose hidden fact stood at one depth of a text of one length."""

    length: int
    depth: float
    examples: int
    answered: float | None


@dataclass(frozen=True)
class HeadScoresRecord:
    """A run that gave every head a score.

    `scores` holds, where there are several parts (languages, effects), their mean first. `examples`
    and `tokens` are None where the run does not count them.
    """

    command: str
    result: Mapping[str, Any]
    model: str
    scores: dict[str, HeadScores]
    examples: int | None
    tokens: int | None
    left_out: int | None
    places: tuple[Place, ...]

    @property
    def main(self) -> HeadScores:
        """The scores that the page shows first."""
        return next(iter(self.scores.values()))

    @property
    def parts(self) -> dict[str, HeadScores]:
        """The parts that the mean is over; empty where there is one set of scores alone."""
        return {name: one for name, one in self.scores.items() if name != MEAN}


def read_head_scores(path: Path) -> HeadScoresRecord:
    """Read a finished run; InputError if it holds no scores or is damaged."""
    result, provenance = read_result(path), read_object(path / "provenance.json")
    command = str(read_object(path / "run.json").get("command"))
    found = read_scores(path)
    if MEAN not in found:
        raise InputError(
            f"{path / 'scores'}: holds no scores of heads; run the same command again into a new "
            "folder"
        )
    scores = {MEAN: found[MEAN], **{name: found[name] for name in found if name != MEAN}}
    for name, one in scores.items():
        check_geometry(one, scores[MEAN].geometry, str(path / "scores" / name))
    with naming(path / "result.json", KIND):
        model = result.get("model")
        named = model.get("name") if isinstance(model, Mapping) else model
        left_out = result.get("left_out")
        if isinstance(left_out, Mapping):
            left_out = sum(int(count) for count in left_out.values())
        return HeadScoresRecord(
            command=command,
            result=result,
            model=str(named or provenance.get("model") or "model"),
            scores=scores,
            examples=_count(result.get("examples")),
            tokens=_count(result.get("tokens")),
            left_out=_count(left_out),
            places=tuple(
                Place(
                    int(one["length"]),
                    float(one["depth"]),
                    int(one["examples"]),
                    None if one["answered"] is None else float(one["answered"]),
                )
                for one in result.get("places") or ()
            ),
        )


def _count(value: Any) -> int | None:
    return None if value is None else int(value)
