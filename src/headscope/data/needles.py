"""Needles in haystacks: a fact, a question for it, and a long text to hide it in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from headscope.data.files import json_digest
from headscope.data.rows import ID, Field, read_rows
from headscope.errors import InputError


@dataclass(frozen=True)
class Needle:
    """One hidden fact: the sentence `needle` in the text `haystack`, and what is asked afterwards.

    `answer` is the right one, where it is known; no score needs it. `line` is that of its file.
    """

    id: str
    needle: str
    question: str
    haystack: str
    answer: str | None
    line: int


@dataclass(frozen=True)
class NeedleFile:
    """Needles in order; `digest` is of their content."""

    needles: tuple[Needle, ...]
    path: str
    digest: str


def needle_file(needles: Sequence[Needle], path: str) -> NeedleFile:
    """These needles with the digest of what they say."""
    rows = [[*astuple(needle)[:-1]] for needle in needles]
    return NeedleFile(tuple(needles), path, json_digest(rows))


def read_needles(
    path: str | Path, haystacks: Sequence[str] = (), limit: int | None = None
) -> NeedleFile:
    """Read JSON Lines, TSV or Parquet with `needle`, `question` and, unless given, `haystack`.

    `haystacks` are texts for the needles that bring none: needle i begins with text i and goes on
    with the ones after it. `id` and `answer` are optional.

    Raises:
        InputError: naming file and line of an empty needle, question or haystack.
    """
    rows, _ = read_rows(path, (NEEDLE, QUESTION, HAYSTACK, ANSWER, ID), limit)
    needles = []
    for at, row in enumerate(rows):
        needle, question, haystack = row[NEEDLE], row[QUESTION], row[HAYSTACK]
        if haystacks and not str(haystack or "").strip():
            haystack = "\n".join(
                [*haystacks[at % len(haystacks) :], *haystacks[: at % len(haystacks)]]
            )
        haystack = _filled(haystack, row.place, "haystack", ", or give texts with --haystack")
        needles.append(Needle(row.id, needle, question, haystack, row[ANSWER], row.line))
    return needle_file(needles, str(path))


def _filled(cell: Any, place: str, column: str, more: str = "") -> str:
    if not isinstance(cell, str) or not cell.strip():
        raise InputError(f"{place} has no {column}; write one as text{more}")
    return cell.strip()


NEEDLE, QUESTION = Field("needle", _filled), Field("question", _filled)
HAYSTACK = Field("haystack", lambda cell, place, column: cell, None)
ANSWER = Field(
    "answer", lambda cell, place, column: None if cell is None else str(cell).strip(), None
)
