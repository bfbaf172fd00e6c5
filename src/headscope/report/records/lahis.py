"""What the report of language heads reads of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headscope.errors import InputError
from headscope.heads import Head, HeadScores
from headscope.report.records.head_scores import HeadScoresRecord, read_head_scores
from headscope.runs.reading import naming

__all__ = ["Both", "LahisRecord", "Language", "read_lahis"]

KIND = "language heads"


@dataclass(frozen=True)
class Both:
    """How far two sets are the same: Jaccard, and what random sets of these sizes would give."""

    jaccard: float
    expected: float


@dataclass(frozen=True)
class Language:
    """One language: what was counted, and its heads (`important` in number, `specific` by name).

    `layers` holds for each layer how many of its heads are important and how many specific.
    """

    documents: int
    left_out: int
    fewer_than_usual: bool
    tokens: int
    loss: float
    important: int
    specific: tuple[Head, ...]
    halves: Both | None
    layers: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class LahisRecord:
    """A run of `find lahis`; `overlap` is by two languages, `general` says in how many sets."""

    base: HeadScoresRecord
    languages: dict[str, Language]
    scores: dict[str, HeadScores]
    quantile: float
    update_gate: bool
    general_in: int | None
    general: tuple[tuple[Head, int], ...]
    general_expected: float | None
    overlap: dict[tuple[str, str], Both]


def read_lahis(path: Path) -> LahisRecord:
    """Read a finished run; InputError if it holds no language heads or is damaged."""
    base = read_head_scores(path)
    result = base.result
    with naming(path / "result.json", KIND):
        languages = {str(code): _language(one) for code, one in result["languages"].items()}
        several = len(languages) > 1
        stored = base.parts if several else dict.fromkeys(languages, base.main)
        scores = {code: stored[code] for code in languages}
        record = LahisRecord(
            base=base,
            languages=languages,
            scores=scores,
            quantile=float(result["quantile"]),
            update_gate=bool(result["update_gate"]),
            general_in=int(result["general_in"]) if several else None,
            general=tuple((_head(one), int(one["languages"])) for one in result["general"]),
            general_expected=float(result["general_expected"]) if several else None,
            overlap={(str(one["a"]), str(one["b"])): _both(one) for one in result["overlap"]},
        )
        geometry = base.main.geometry
        named = [head for one in languages.values() for head in one.specific]
        for head in (*named, *(head for head, _ in record.general)):
            geometry.check(head)
    if not languages or stored.keys() != languages.keys():
        raise InputError(
            f"{path}: its files are not of one run; run the same command again into a new folder"
        )
    return record


def _language(one: Mapping[str, Any]) -> Language:
    return Language(
        documents=int(one["documents"]),
        left_out=int(one["left_out"]),
        fewer_than_usual=bool(one["fewer_than_usual"]),
        tokens=int(one["tokens"]),
        loss=float(one["loss"]),
        important=int(one["important"]),
        specific=tuple(_head(head) for head in one["specific"]),
        halves=None if one["halves"] is None else _both(one["halves"]),
        layers=tuple((int(row["important"]), int(row["specific"])) for row in one["layers"]),
    )


def _both(one: Mapping[str, Any]) -> Both:
    return Both(float(one["jaccard"]), float(one["expected"]))


def _head(one: Mapping[str, Any]) -> Head:
    return Head(int(one["layer"]), int(one["head"]))
