"""Prompts of the user's own, from a JSON Lines file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headscope.data.files import check_limit
from headscope.data.rows import ID, Field, Row, language_code, open_rows, text_cell
from headscope.data.transfer.prompts import Answer, TransferFile, TransferPrompt, digest_of
from headscope.errors import InputError


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
    with open_rows(path, (A, B, PROMPT, ANSWERS_A, ANSWERS_B, STEM, ID)) as rows:
        for row in rows:
            prompt = _prompt(row)
            kept = found.setdefault(prompt.pair, [])
            if limit is None or len(kept) < limit:
                kept.append(prompt)
    if not found:
        raise InputError(f"{path} holds no prompts; give a file with at least one")
    return {
        pair: TransferFile(tuple(prompts), str(path), digest_of(prompts))
        for pair, prompts in found.items()
    }


def _prompt(row: Row) -> TransferPrompt:
    a, b, stem = row[A], row[B], row[STEM]
    answers = row[ANSWERS_A], row[ANSWERS_B]
    if set(answers[0].forms) & set(answers[1].forms):
        raise InputError(
            f"{row.place}: both answers are the same, so nothing tells which statement was "
            "followed; give statements that contradict each other"
        )
    return TransferPrompt(row.id, a, b, row[PROMPT], stem, *answers)


def _stem(cell: Any, place: str, column: str) -> str:
    if not isinstance(cell, str | None):
        raise InputError(f"{place}: column {column!r} holds no text; give one or leave it out")
    return (cell or "").strip()


def _answer(cell: Any, place: str, column: str) -> Answer:
    forms = [cell] if isinstance(cell, str) else cell
    good = isinstance(forms, list) and forms
    if not good or not all(isinstance(form, str) and form.strip() for form in forms):
        raise InputError(
            f"{place}: column {column!r} holds no answers; give a text or a list of texts, the "
            "English one first"
        )
    return Answer(forms[0].strip(), tuple(form.strip() for form in forms[1:] or forms))


A, B = Field("a", language_code), Field("b", language_code)
PROMPT = Field("prompt", text_cell("give the text up to the answer"))
ANSWERS_A, ANSWERS_B = Field("answers_a", _answer), Field("answers_b", _answer)
STEM = Field("stem", _stem, "")
