"""The same words in several languages: a table with one meaning a row and one language a column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headscope.data.files import file_kind, json_digest, open_bytes, parse_object, text_lines
from headscope.data.languages import is_known
from headscope.data.rows import ID, Field, read_rows
from headscope.data.tables import readable_parquet
from headscope.errors import InputError, need


@dataclass(frozen=True)
class Concept:
    """One meaning: its words by language code, where it has one, and the line it stands on."""

    id: str
    words: Mapping[str, str]
    line: int


@dataclass(frozen=True)
class ConceptFile:
    """Meanings in order; `languages` are the codes of the columns, `digest` is of the content."""

    concepts: tuple[Concept, ...]
    languages: tuple[str, ...]
    path: str
    digest: str


def concept_file(
    concepts: Sequence[Concept], languages: Sequence[str], path: str, digest: str | None = None
) -> ConceptFile:
    """A table of these meanings; without a digest that of its words is taken."""
    words = [[concept.id, dict(concept.words)] for concept in concepts]
    digest = digest or json_digest(words, sort_keys=True)
    return ConceptFile(tuple(concepts), tuple(languages), path, digest)


def read_concepts(path: str | Path, limit: int | None = None) -> ConceptFile:
    """Read a table of words: TSV, JSON Lines or Parquet, columns named by language codes.

    A column `id` names the meanings, else their line does (Indonesian, whose code this is too, is
    written `ind`). A cell may be empty where a language has no word. Columns with other names are
    left out.

    Raises:
        InputError: naming file and line, if fewer than three columns are languages, or a cell is
            no text.
    """
    path = Path(path)
    names = _columns(path)
    languages = [name for name in names if name != "id" and is_known(name)]
    if len(languages) < 3:
        raise InputError(
            f"{path} has {len(languages)} columns named by a language code (found: "
            f"{', '.join(names) or 'none'}); name at least three, such as en, de and es"
        )
    fields = [Field(language, _word) for language in languages]
    rows, digest = read_rows(path, [*fields, ID] if "id" in names else fields, limit)
    concepts = []
    for row in rows:
        words = {field.column: word for field in fields if (word := row[field])}
        concepts.append(Concept(row.id, words, row.line))
    return concept_file(concepts, languages, str(path), digest)


def _word(cell: Any, place: str, column: str) -> str:
    if cell is not None and not isinstance(cell, str):
        raise InputError(
            f"{place}: the word in {column!r} is {type(cell).__name__}, not text; write it as text"
        )
    return (cell or "").strip()


def _columns(path: Path) -> list[str]:
    """The names of a table's columns, from its first record."""
    kind = file_kind(path)
    with open_bytes(path) as handle:
        if kind == "parquet":
            with readable_parquet(path):
                pq = need("pyarrow.parquet", f"reading {path}", "data")
                return [str(name) for name in pq.ParquetFile(handle).schema_arrow.names]
        _, first = next(text_lines(handle, path), (1, ""))
    if kind == "tsv":
        return first.split("\t")
    return list(parse_object(first, f"{path}, line 1"))
