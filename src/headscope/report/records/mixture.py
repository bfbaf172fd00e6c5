"""What the report of a mixture reads of a run: its manifest and what its summary shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from headscope.results.rating import Histogram
from headscope.runs.reading import finite, naming, read_object, read_result

__all__ = ["MixedLanguage", "MixtureRecord", "Shown", "read_mixture"]

KIND = "a mixture"


@dataclass(frozen=True)
class Shown:
    """A document near the cut and why it is shown: `highest`, `last selected`, `first not …`."""

    id: str
    score: float
    place: str
    text: str


@dataclass(frozen=True)
class MixedLanguage:
    """One language: the numbers of the manifest, the scores of its baseline, some documents.

    `name` is empty where the data tells no language.
    """

    name: str
    numbers: Mapping[str, Any]
    scores: Histogram | None
    documents: tuple[Shown, ...]

    @property
    def threshold(self) -> float | None:
        """The least score before the cut."""
        value = self.numbers["threshold"]
        return None if value is None else float(value)


@dataclass(frozen=True)
class MixtureRecord:
    """A finished run; languages with the largest share of the baseline first."""

    manifest: Mapping[str, Any]
    languages: tuple[MixedLanguage, ...]

    @property
    def kind(self) -> str:
        """`baseline`, `remove` or `enhance`."""
        return str(self.manifest["plan"]["kind"])

    @property
    def unit(self) -> str:
        """What shares and budgets count: `documents` or `tokens`."""
        return str(self.manifest["plan"]["by"])


def read_mixture(path: Path) -> MixtureRecord:
    """Read a finished run of `use mix`; InputError if it is damaged."""
    read_result(path)
    manifest, summary = read_object(path / "manifest.json"), read_object(path / "summary.json")
    with naming(path / "summary.json", KIND):
        shown = {str(code): one for code, one in summary["languages"].items()}
    with naming(path / "manifest.json", KIND):
        numbers = {str(code): one for code, one in manifest["languages"].items()}
        order = sorted(numbers, key=lambda code: (-float(numbers[code]["share_before"]), code))
        numbers_there = (manifest["factor"], manifest["documents"], manifest["plan"]["select"])
        if None in numbers_there:
            raise ValueError("a number is missing")
    with naming(path / "summary.json", KIND):
        languages = tuple(_language(code, numbers[code], shown[code]) for code in order)
    return MixtureRecord(manifest, languages)


def _language(name: str, numbers: Mapping[str, Any], shown: Mapping[str, Any]) -> MixedLanguage:
    edges = tuple(finite(edge) for edge in shown["edges"])
    counts = tuple(int(count) for count in shown["baseline"])
    if edges and (len(edges) != len(counts) + 1 or any(a >= b for a, b in pairwise(edges))):
        raise ValueError(f"the scores of {name or 'all documents'} have no rising edges")
    return MixedLanguage(
        name,
        numbers,
        Histogram(edges, counts) if edges else None,
        tuple(
            Shown(
                str(row["id"]),
                finite(row["score"]),
                str(row["place"]),
                str(row["text"]) + ("\u2026" if row["cut"] else ""),
            )
            for row in shown["documents"]
        ),
    )
