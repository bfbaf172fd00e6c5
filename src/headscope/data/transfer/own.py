"""Prompts of the user's own, from a JSON Lines file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headscope.data.columns import ABSENT, Record, cell_text
from headscope.data.files import check_limit
from headscope.data.languages import language_name
from headscope.data.tables import open_records
from headscope.data.transfer.prompts import Answer, TransferFile, TransferPrompt, digest_of
from headscope.errors import InputError, naming

__all__ = ["read_prompts"]

_REQUIRED = ("a", "b", "prompt", "answers_a", "answers_b")


def read_prompts(path: str | Path, limit: int | None = None) -> dict[str, TransferFile]:
    """Prompts by pair of languages, in file order; the first `limit` of each pair.

    Each line is an object with `a` and `b`, the codes of the languages of the two statements;
    `prompt`, the text up to where the answer begins; `answers_a` and `answers_b`, the answer of
    either statement as one text or a list, first in English, then in its own language; and, if
    wanted, in every line, `stem`, the beginning of the answer, and `id`. Every error is an
    `InputError` with file, line and fix.
    """
    check_limit(limit)
    found: dict[str, list[TransferPrompt]] = {}
    with open_records(Path(path), _REQUIRED, ("stem", "id")) as (records, unit):
        for record in records:
            one = _prompt(record, f"{path}, {unit} {record.line}")
            kept = found.setdefault(one.pair, [])
            if limit is None or len(kept) < limit:
                kept.append(one)
    if not found:
        raise InputError(f"{path} holds no prompts; give a file with at least one")
    return {
        pair: TransferFile(tuple(prompts), str(path), digest_of(prompts))
        for pair, prompts in found.items()
    }


def _prompt(record: Record, place: str) -> TransferPrompt:
    codes = []
    for column in ("a", "b"):
        code = cell_text(record, column, place, "give a language code such as en").strip()
        with naming(place):
            language_name(code)
        codes.append(code)
    stem = record.cells.get("stem", ABSENT)
    if stem in (ABSENT, None):
        stem = ""
    if not isinstance(stem, str):
        raise InputError(f"{place}: column 'stem' holds no text; give one or leave it out")
    named = record.cells.get("id")
    answers = [_answer(record, column, place) for column in ("answers_a", "answers_b")]
    if set(answers[0].forms) & set(answers[1].forms):
        raise InputError(
            f"{place}: both answers are the same, so nothing tells which statement was followed; "
            "give statements that contradict each other"
        )
    return TransferPrompt(
        id=str(named) if isinstance(named, str | int) and str(named).strip() else str(record.line),
        a=codes[0],
        b=codes[1],
        prompt=cell_text(record, "prompt", place, "give the text up to the answer"),
        stem=stem.strip(),
        answer_a=answers[0],
        answer_b=answers[1],
    )


def _answer(record: Record, column: str, place: str) -> Answer:
    value: Any = record.cells[column]
    forms = [value] if isinstance(value, str) else value
    good = isinstance(forms, list) and forms
    if not good or not all(isinstance(one, str) and one.strip() for one in forms):
        raise InputError(
            f"{place}: column {column!r} holds no answers; give a text or a list of texts, the "
            "English one first"
        )
    return Answer(forms[0].strip(), tuple(one.strip() for one in forms[1:] or forms))
