"""Texts with summaries, by language, from JSON Lines, TSV and Parquet files."""

from __future__ import annotations

from dataclasses import dataclass

from headscope.data.columns import ABSENT
from headscope.data.documents import DocumentSource, digest_of, language_field
from headscope.data.files import check_limit
from headscope.data.languages import language_name, same_language
from headscope.data.rows import ID, Field, open_rows, text_cell
from headscope.errors import InputError


@dataclass(frozen=True)
class Summarised:
    """A text and its summary; `id` is the record's own, else its line (or Parquet row), from 1."""

    id: str
    text: str
    summary: str
    line: int


@dataclass(frozen=True)
class SummaryFile:
    """Texts and summaries of one language in file order; `digest` is the SHA-256 of them all."""

    items: tuple[Summarised, ...]
    language: str
    path: str
    digest: str


def read_summaries(
    source: DocumentSource, summary_column: str = "summary"
) -> tuple[SummaryFile, ...]:
    """Texts with their summaries, by language, in the order asked for, else in that of the file.

    `source` names the file, its columns and languages as it does for documents; here it is a file,
    and its language is given or stands in a column (None: `language`). Every error is an
    `InputError` with file, line and fix: an empty text or summary, a missing column, an unknown
    language, a language that is asked for and not there.
    """
    check_limit(source.limit)
    for asked in (*filter(None, [source.language]), *source.languages):
        language_name(asked)
    # Of a file that does not say its language the only one asked for is taken.
    only = source.languages[0] if len(source.languages) == 1 else None
    default = source.language or (None if source.language_column else only)
    language = language_field(source, ABSENT if default is None else default)
    text = Field(source.text_column, text_cell("give a text"))
    summary = Field(summary_column, text_cell("give a summary"))
    found: dict[str, list[Summarised]] = {code: [] for code in source.languages}
    others: set[str] = set()
    with open_rows(source.data, (text, summary, ID, language)) as rows:
        for row in rows:
            written = row[language] or ""
            code = next((one for one in found if same_language(one, written)), written)
            if source.languages and code not in found:
                others.add(code)
                continue
            kept = found.setdefault(code, [])
            if source.limit is None or len(kept) < source.limit:
                kept.append(Summarised(row.id, row[text], row[summary], row.line))
    for code, items in found.items():
        if not items:
            raise InputError(
                f"{source.data} holds no texts in {code}; it has {', '.join(sorted(others))}"
            )
    if not found:
        raise InputError(f"{source.data} holds no texts; give a file with at least one")
    return tuple(
        SummaryFile(
            tuple(items),
            code,
            source.data,
            digest_of([part for one in items for part in (one.text, one.summary)]),
        )
        for code, items in found.items()
    )
