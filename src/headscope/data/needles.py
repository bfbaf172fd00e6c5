"""Needles in haystacks: a fact, a question for it, and a long text to hide it in."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headscope.data.rows import Field, read_rows
from headscope.errors import InputError


@dataclass(frozen=True)
class Needle:
    """One hidden fact.

    Attributes:
        id: its name.
        needle: the sentence that is hidden.
        question: what is asked afterwards.
        haystack: the text it is hidden in.
        answer: the right answer, where it is known; no score needs it.
        line: where it stands in its file.
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
    rows = [[one.id, one.needle, one.question, one.haystack, one.answer] for one in needles]
    text = json.dumps(rows, ensure_ascii=False)
    return NeedleFile(tuple(needles), path, hashlib.sha256(text.encode()).hexdigest())


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
        identity = str(row.line) if row[ID] is None else str(row[ID])
        needles.append(Needle(identity, needle, question, haystack, row[ANSWER], row.line))
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
ID = Field("id", lambda cell, place, column: str(cell), None)
