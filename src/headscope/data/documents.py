"""Documents: texts of one language each, from files and datasets.

A document is a record with a text, and at times its language and an id, in a file of records, a
folder or a dataset of the Hub, or a line of a plain text file (``.txt``, or another ending where
the first line has no tab and is no JSON).  One file may hold several languages.  Where only the
first so many documents are wanted, no more are read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from headscope.data.files import check_limit, plain_name
from headscope.data.formats import format_of
from headscope.data.languages import is_known, language_name, language_tag, same_language
from headscope.data.rows import ID, Field, language_code, open_rows, text_cell
from headscope.data.tables import ABSENT, is_dataset
from headscope.errors import InputError

#: Tokens that a model reads of a document at most, as in LAHIS; fewer where its context is shorter.
LONGEST = 2048


@dataclass(frozen=True)
class Document:
    """A text.

    ``id`` is the record's own, else its line; ``language`` a code, None where nothing says it;
    ``line`` the line (or Parquet row) it stands on, from 1.
    """

    id: str
    text: str
    language: str | None
    line: int


@dataclass(frozen=True)
class DocumentFile:
    """Documents of one language in file order; ``digest`` is the SHA-256 of their texts.

    ``path`` is where they come from, for messages.
    """

    documents: tuple[Document, ...]
    language: str | None
    path: str
    digest: str


@dataclass(frozen=True)
class DocumentSource:
    """Where documents come from and what to read.

    ``data``: a ``.txt`` (one document a line) or a file of records, compressed or not, a folder
    written by ``datasets``, or a Hub dataset ``name`` or ``name:config``. ``language``
    says the language of all of it. Without it the column ``language_column`` does (None:
    ``language``, if there); ``languages`` then names those that are wanted, all if empty.
    ``split`` is one of a dataset. ``limit``: the first so many documents of each language.
    """

    data: str
    language: str | None = None
    text_column: str = "text"
    language_column: str | None = None
    languages: tuple[str, ...] = ()
    split: str | None = None
    limit: int | None = None


def digest_of(texts: Sequence[str]) -> str:
    """SHA-256 of texts in their order."""
    hasher = hashlib.sha256()
    for text in texts:
        hasher.update(json.dumps(text, ensure_ascii=False).encode() + b"\n")
    return hasher.hexdigest()


def read_documents(source: DocumentSource) -> tuple[DocumentFile, ...]:
    """The documents of each language, in the order asked for, else in that of the file.

    A language that is asked for and not there is left out. Every error is an ``InputError`` with
    file, line and fix: a document without text, a missing column, an unknown language, none of
    the languages asked for.
    """
    _check(source)
    if not source.data:
        raise InputError("no data given; name a file, a folder or a Hub dataset")
    path = Path(source.data)
    dataset = is_dataset(
        source.data, source.split, "dataset; give a file, or a folder with a dataset"
    )
    plain = not dataset and _is_text(path)
    if plain and source.language_column:
        raise InputError(
            f"{path} is plain text, which has no column {source.language_column!r}; leave "
            "--language-column out"
        )
    text = Field(source.text_column, text_cell("give a text", lines=True))
    language = _language_field(source, ABSENT if source.language_column else source.language)
    shelf = _Shelf(source)
    with open_rows(
        source.data, (text, ID, language), dataset=dataset, split=source.split, plain=plain
    ) as rows:
        remote = dataset and not path.is_dir()
        for row in rows:
            document = Document(row.id, row[text], row[language], row.line)
            code = document.language
            if remote and code and source.limit and not (source.language or source.languages):
                raise InputError(
                    f"{source.data} may hold any number of languages, so it would be read to its "
                    "end; name those wanted with --language"
                )
            shelf.put(document)
            if shelf.full:
                break
    return shelf.files()


def _check(source: DocumentSource) -> None:
    check_limit(source.limit)
    for code in (*filter(None, [source.language]), *source.languages):
        language_name(code)


@dataclass
class _Shelf:
    source: DocumentSource
    documents: dict[str | None, list[Document]] = field(default_factory=dict)
    spelt: dict[str, str | None] = field(default_factory=dict)

    def put(self, document: Document) -> None:
        key = document.language
        if key is not None:
            if key not in self.spelt:
                self.spelt[key] = self._key(key)
            key = self.spelt[key]
            if key is None:
                return
        kept = self.documents.setdefault(key, [])
        if self.source.limit is None or len(kept) < self.source.limit:
            kept.append(Document(document.id, document.text, key, document.line))

    def _key(self, code: str) -> str | None:
        """The first spelling of a language, or the one asked for; None if it is not wanted."""
        wanted = self.source.languages
        for known in wanted or self.documents:
            if known is not None and same_language(known, code):
                return known
        return None if wanted and self.source.language is None else code

    @property
    def full(self) -> bool:
        """Whether further documents would be left out, as far as one can know."""
        limit = self.source.limit
        if limit is None or not self.documents:
            return False
        if None in self.documents:
            wanted: Sequence[str | None] = [None]
        elif self.source.language is not None:
            wanted = list(self.documents)
        elif self.source.languages:
            wanted = self.source.languages
        else:
            return False
        return all(len(self.documents.get(code, ())) >= limit for code in wanted)

    def files(self) -> tuple[DocumentFile, ...]:
        name, wanted = self.source.data, self.source.languages
        if not self.documents and not self.spelt:
            raise InputError(f"{name} holds no documents; give a file with at least one")
        order = list(self.documents)
        if wanted and self.source.language is None and None not in self.documents:
            order = [code for code in dict.fromkeys(wanted) if code in self.documents]
            if not order:
                others = ", ".join(sorted(self.spelt)[:20])
                raise InputError(
                    f"{name} holds no documents in {' or '.join(wanted)}; it has {others}"
                )
        return tuple(
            DocumentFile(
                tuple(self.documents[code]),
                code,
                name,
                digest_of([document.text for document in self.documents[code]]),
            )
            for code in order
        )


def _language_field(source: DocumentSource, default: Any) -> Field[str | None]:
    """The language of a row, with `default` where the file has no column for it.

    InputError where the column and the source's language differ.
    """
    column = source.language_column or "language"
    return Field(column, partial(_language, source.language), default)


def _language(given: str | None, cell: Any, place: str, column: str) -> str:
    if given is None:
        return language_code(cell, place, column)
    # Languages may be named in any way there; only a clear contradiction counts.
    code = cell.strip() if isinstance(cell, str) else ""
    if is_known(code) and language_tag(code).macro != language_tag(given).macro:
        raise InputError(
            f"{place}: column {column!r} says {code}, but the data were given as {given}; give the "
            "file without a language, or another one"
        )
    return given


def _is_text(path: Path) -> bool:
    """Whether each line of a file is a document: by its ending, else by its first line."""
    return plain_name(path).suffix.lower() == ".txt" or format_of(path) is None


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
    _check(source)
    # Of a file that does not say its language the only one asked for is taken.
    only = source.languages[0] if len(source.languages) == 1 else None
    default = source.language or (None if source.language_column else only)
    language = _language_field(source, ABSENT if default is None else default)
    text = Field(source.text_column, text_cell("give a text", lines=True))
    summary = Field(summary_column, text_cell("give a summary", lines=True))
    texts: dict[str, list[Summarised]] = {code: [] for code in source.languages}
    others: set[str] = set()
    with open_rows(source.data, (text, summary, ID, language)) as rows:
        for row in rows:
            written = row[language] or ""
            code = next((known for known in texts if same_language(known, written)), written)
            if source.languages and code not in texts:
                others.add(code)
                continue
            kept = texts.setdefault(code, [])
            if source.limit is None or len(kept) < source.limit:
                kept.append(Summarised(row.id, row[text], row[summary], row.line))
    for code, items in texts.items():
        if not items:
            raise InputError(
                f"{source.data} holds no texts in {code}; it has {', '.join(sorted(others))}"
            )
    if not texts:
        raise InputError(f"{source.data} holds no texts; give a file with at least one")
    return tuple(
        SummaryFile(
            tuple(items),
            code,
            source.data,
            digest_of([part for item in items for part in (item.text, item.summary)]),
        )
        for code, items in texts.items()
    )
