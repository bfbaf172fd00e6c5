"""What the report of a rated corpus reads of a run: its result and its summary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from headscope.runs.reading import finite, naming, read_object, read_result

__all__ = ["Histogram", "RatedLanguage", "RatingRecord", "TopDocument", "read_rating"]

KIND = "a rated corpus"


@dataclass(frozen=True)
class Histogram:
    """How many documents have a score from one edge to the next; one edge more than counts."""

    edges: tuple[float, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True)
class TopDocument:
    """A document with one of the highest scores, and how its text begins."""

    id: str
    score: float
    text: str


@dataclass(frozen=True)
class RatedLanguage:
    """The rated documents of one language; `name` is empty where the data tells no language.

    `mean` is the mean score over documents, None where there are none.
    """

    name: str
    documents: int
    tokens: int
    mean: float | None
    histogram: Histogram
    top: tuple[TopDocument, ...]


@dataclass(frozen=True)
class RatingRecord:
    """A finished run; languages with the most documents first."""

    result: Mapping[str, Any]
    model: str
    heads: tuple[str, ...]
    documents: int
    rejected: int
    tokens: int
    tokens_per_second: float | None
    reasons: Mapping[str, int]
    languages: tuple[RatedLanguage, ...]


def read_rating(path: Path) -> RatingRecord:
    """Read a finished run of `use rate`; InputError if it is damaged."""
    result, provenance = read_result(path), read_object(path / "provenance.json")
    file = path / "summary.json"
    summary = read_object(file)
    with naming(file, KIND):
        languages = [_language(str(name), one) for name, one in summary["languages"].items()]
        reasons = {str(name): int(number) for name, number in summary["reasons"].items()}
    with naming(path / "result.json", KIND):
        model = result.get("model")
        named = model.get("name") if isinstance(model, Mapping) else model
        speed = result["tokens_per_second"]
        return RatingRecord(
            result=result,
            model=str(named or provenance.get("model") or "model"),
            heads=tuple(map(str, result["heads"])),
            documents=int(result["documents"]),
            rejected=int(result["rejected"]),
            tokens=int(result["tokens"]),
            tokens_per_second=None if speed is None else float(speed),
            reasons=dict(sorted(reasons.items(), key=lambda one: (-one[1], one[0]))),
            languages=tuple(sorted(languages, key=lambda one: (-one.documents, one.name))),
        )


def _language(name: str, one: Mapping[str, Any]) -> RatedLanguage:
    histogram = one["histogram"]
    edges = tuple(finite(edge) for edge in histogram["edges"])
    counts = tuple(int(number) for number in histogram["counts"])
    if len(edges) != len(counts) + 1 or any(a >= b for a, b in pairwise(edges)):
        raise ValueError(f"the histogram of {name or 'all documents'} has no rising edges")
    if min(counts, default=0) < 0:
        raise ValueError(f"the histogram of {name or 'all documents'} counts fewer than none")
    return RatedLanguage(
        name=name,
        documents=int(one["documents"]),
        tokens=int(one["tokens"]),
        mean=None if one["mean"] is None else finite(one["mean"]),
        histogram=Histogram(edges, counts),
        top=tuple(
            TopDocument(str(row["id"]), finite(row["score"]), str(row["text"]))
            for row in one["top"]
        ),
    )
