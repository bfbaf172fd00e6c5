"""What a report reads: a finished run folder as frozen values."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headscope.errors import InputError
from headscope.heads import Head, HeadScores, check_geometry, read_scores
from headscope.report.words import MEAN
from headscope.runs import file_digest

__all__ = ["AtlasRecord", "Counts", "Effect", "Overlap", "Removal", "Sentence", "read_atlas"]


@dataclass(frozen=True)
class Counts:
    """How many heads are in each of the three classes."""

    token_alignment: int
    low_activity: int
    inactive: int

    @property
    def total(self) -> int:
        return self.token_alignment + self.low_activity + self.inactive


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
class Effect:
    """chrF++ (0 to 100) of the untouched model, without the top heads, and of every random draw."""

    baseline: float
    top: float
    random: tuple[float, ...]

    @property
    def random_mean(self) -> float:
        return sum(self.random) / len(self.random)

    @property
    def at_least_as_harmful(self) -> int:
        """How many random draws lowered chrF++ as much as the top heads did."""
        return sum(draw <= self.top for draw in self.random)


@dataclass(frozen=True)
class Removal:
    """The causal check: what was removed, and its effect on the mean and on every direction.

    `mean` is None, and `directions` lacks a direction, where chrF++ has not been computed.
    """

    k: int
    heads: tuple[str, ...]
    random: tuple[tuple[str, ...], ...]
    mean: Effect | None
    directions: dict[str, Effect]
    sentences: dict[str, int]


@dataclass(frozen=True)
class Sentence:
    """One sentence of the causal check and what the model wrote under each condition."""

    direction: str
    id: str
    source: str
    reference: str
    baseline: str
    top: str
    random: str | None


@dataclass(frozen=True)
class AtlasRecord:
    """An atlas run. `scores` holds every direction in order and, where several, their mean first.

    `result`, `provenance` and `run` are the JSON objects of the run folder.
    """

    path: Path
    run: Mapping[str, Any]
    result: Mapping[str, Any]
    provenance: Mapping[str, Any]
    scores: dict[str, HeadScores]
    threshold: float
    counts: dict[str, Counts]
    counts_above_chance: dict[str, Counts]
    top_k: int
    overlap: tuple[Overlap, ...]
    removal: Removal | None
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
    def main(self) -> str:
        """What the page shows first: the mean, or the only direction there is."""
        return next(iter(self.scores))


def read_atlas(path: Path) -> AtlasRecord:
    """Read a finished atlas run; InputError if the folder holds no such run or is damaged."""
    run, provenance = read_object(path / "run.json"), read_object(path / "provenance.json")
    result = _read_result(path)
    with _naming(path / "result.json"):
        directions = list(result["directions"])
        scores = _scores(path, directions)
        per_direction = {MEAN: result, **result["directions"]}
        overlap = result.get("overlap") or {"pairs": [], "k": 0}
        return AtlasRecord(
            path=path,
            run=run,
            result=result,
            provenance=provenance,
            scores=scores,
            threshold=float(result.get("config", {}).get("threshold", 0.1)),
            counts={name: _counts(per_direction[name]["counts"]) for name in scores},
            counts_above_chance={
                name: _counts(per_direction[name]["counts_above_chance"])
                for name in scores
                if per_direction[name].get("counts_above_chance")
            },
            top_k=int(overlap.get("k") or 0),
            overlap=tuple(_overlap(pair) for pair in overlap["pairs"]),
            removal=_removal(result["removal"]) if result.get("removal") else None,
            sentences=_sentences(path / "outputs.jsonl"),
        )


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file of a run; InputError if it is missing or damaged."""
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise InputError(
            f"{path.parent}: holds no {path.name}, so it is not a finished run; "
            "name the folder of a finished run"
        ) from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise InputError(f"{path}: is damaged; run the same command again") from error
    if not isinstance(value, dict):
        raise InputError(f"{path}: is damaged; run the same command again")
    return value


def _read_result(path: Path) -> dict[str, Any]:
    done = read_object(path / "DONE.json")
    file = path / "result.json"
    if file.is_file() and done.get("result") != file_digest(file):
        raise InputError(
            f"{file}: is not the result that DONE.json stands for; "
            "delete DONE.json and run the same command again"
        )
    return read_object(file)


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


def _counts(entry: Mapping[str, Any]) -> Counts:
    names = ("token_alignment", "low_activity", "inactive")
    return Counts(*(int(entry[name]) for name in names))


def _overlap(entry: Mapping[str, Any]) -> Overlap:
    numbers = ("jaccard", "expected", "expected_exact", "p_value")
    return Overlap(str(entry["a"]), str(entry["b"]), *(float(entry[name]) for name in numbers))


def _removal(entry: Mapping[str, Any]) -> Removal:
    effects = {name: _effect(part) for name, part in (entry.get("directions") or {}).items()}
    return Removal(
        k=int(entry["k"]),
        heads=tuple(_head(head) for head in entry["heads"]),
        random=tuple(tuple(_head(head) for head in draw) for draw in entry["random"]),
        mean=_effect(entry),
        directions={name: effect for name, effect in effects.items() if effect is not None},
        sentences={
            name: int(part.get("sentences") or 0)
            for name, part in (entry.get("directions") or {}).items()
        },
    )


def _head(text: Any) -> str:
    return str(Head.parse(str(text)))


def _effect(entry: Mapping[str, Any]) -> Effect | None:
    """The effect, or None while a number is not computed (null)."""
    kinds: dict[str, list[Any]] = {"top": [], "random": []}
    for condition in entry["conditions"]:
        kinds.setdefault(str(condition["kind"]), []).append(condition["chrf"])
    baseline = entry["baseline"]["chrf"]
    known = [baseline, *kinds["top"], *kinds["random"]]
    if None in known or not kinds["top"] or not kinds["random"]:
        return None
    return Effect(float(baseline), float(kinds["top"][0]), tuple(map(float, kinds["random"])))


def _sentences(path: Path) -> tuple[Sentence, ...]:
    """The sentences that have an output as is and with the top heads removed, in file order."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for number, line in enumerate(_lines(path), 1):
        try:
            entry = json.loads(line)
            row = rows.setdefault((str(entry["direction"]), str(entry["id"])), {})
            row |= {name: str(entry[name]) for name in ("source", "reference")}
            row.setdefault(str(entry["condition"]), str(entry["output"]))  # random: the first draw
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"{path}, line {number}: is damaged; run the same command again"
            ) from error
    return tuple(
        Sentence(
            direction,
            identifier,
            row["source"],
            row["reference"],
            row["baseline"],
            row["top"],
            row.get("random"),
        )
        for (direction, identifier), row in rows.items()
        if "baseline" in row and "top" in row
    )


def _lines(path: Path) -> Iterator[bytes]:
    if path.exists():
        yield from (line for line in path.read_bytes().split(b"\n") if line.strip())


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Turn a missing or misshapen entry into an InputError that names the file."""
    try:
        yield
    except KeyError as error:
        raise InputError(
            f"{path}: holds no {error}, which the report of an atlas needs; "
            "run the same command again with this version of headscope"
        ) from error
    except (TypeError, AttributeError) as error:
        raise InputError(
            f"{path}: is not the result of an atlas ({error}); run the same command again"
        ) from error
