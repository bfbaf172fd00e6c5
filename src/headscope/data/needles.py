"""Needles in haystacks: a fact, a question for it, and a long text to hide it in."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headscope.data.tables import read_table
from headscope.errors import InputError

__all__ = ["Needle", "NeedleFile", "needle_file", "read_needles"]


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
    table = read_table(path, ("needle", "question"), ("haystack", "answer", "id"), limit)
    found = []
    for at, record in enumerate(table.records):
        cells = dict(record.cells)
        if haystacks and not str(cells.get("haystack") or "").strip():
            turned = [*haystacks[at % len(haystacks) :], *haystacks[: at % len(haystacks)]]
            cells["haystack"] = "\n".join(turned)
        for name in ("needle", "question", "haystack"):
            value = cells.get(name)
            if not isinstance(value, str) or not value.strip():
                more = ", or give texts with --haystack" if name == "haystack" else ""
                raise InputError(
                    f"{path}, {table.unit} {record.line} has no {name}; write one as text{more}"
                )
        answer = cells.get("answer")
        needle = Needle(
            str(cells.get("id", record.line)),
            str(cells["needle"]).strip(),
            str(cells["question"]).strip(),
            str(cells["haystack"]).strip(),
            str(answer).strip() if answer is not None else None,
            record.line,
        )
        found.append(needle)
    return needle_file(found, str(path))
