"""Sentence pairs from files, FLORES folders and Hub datasets, and back to a file."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headscope import options
from headscope.data.columns import ABSENT
from headscope.data.files import check_limit, write_text_atomically
from headscope.data.flores import is_flores, read_flores
from headscope.data.hub import is_dataset
from headscope.data.languages import Direction, language_name, settled_direction
from headscope.data.links import Links, check_links, format_links, parse_links
from headscope.data.rows import Field, Row, kind_of, read_rows, text_cell
from headscope.errors import InputError, naming
from headscope.settings import Settings


@dataclass(frozen=True)
class SentencePair:
    """A sentence and its translation.

    ``links`` are pairs of positions (source, target) of white-space pieces; the empty set means
    that nothing is linked, None that the file says nothing about links. ``line`` is the line (or
    Parquet row) the pair stands on, from 1.
    """

    id: str
    source: str
    target: str
    links: Links | None = None
    line: int | None = None


@dataclass(frozen=True)
class PairFile:
    """Sentence pairs of one direction; ``digest`` is the SHA-256 of the content they are from.

    ``shots`` are examples that a prompt shows before its sentence; none of their sentences is
    among ``pairs``, nor of those of ``reference``, which mean ablation takes its means over.
    ``names`` are what prompts call the two languages, instead of their English
    names.
    """

    pairs: tuple[SentencePair, ...]
    source_language: str
    target_language: str
    path: str
    digest: str
    shots: tuple[SentencePair, ...] = ()
    reference: tuple[SentencePair, ...] = ()
    names: tuple[str, str] | None = None

    @property
    def direction(self) -> Direction:
        """The two language codes."""
        return Direction(self.source_language, self.target_language)

    @property
    def all_pairs(self) -> tuple[SentencePair, ...]:
        """The pairs and the shots."""
        return (*self.pairs, *self.shots)

    @property
    def language_names(self) -> tuple[str, str]:
        """What prompts call the source and the target language."""
        return self.names or (
            language_name(self.source_language),
            language_name(self.target_language),
        )

    @property
    def shots_digest(self) -> str:
        """SHA-256 of the sentences of the shots, in their order."""
        texts = [text for shot in self.shots for text in (shot.source, shot.target)]
        return hashlib.sha256("\0".join(texts).encode()).hexdigest()

    def too_long(self, number: int, tokens: int, context: int) -> InputError:
        """The error of a pair (by its number from 0) that does not fit with its prompt."""
        line = self.pairs[number].line
        place = f"pair {number + 1}" if line is None else f"line {line}"
        return InputError(
            f"{self.path}, {place}: has {tokens} tokens with its prompt and the model's context "
            f"holds {context}; shorten the sentence or leave it out"
            + (", or give fewer --shots" if self.shots else "")
        )

    @property
    def has_links(self) -> bool:
        """Whether the file gives word links."""
        return all(pair.links is not None for pair in self.pairs)


@dataclass(frozen=True)
class PairSource(Settings):
    """Where sentence pairs come from and what to read.

    ``data``: a TSV, JSON Lines or Parquet file, a FLORES folder, a folder written by
    ``datasets``, or a Hub dataset ``name`` or ``name:config``. The languages are given by
    ``pair`` (``en-de``) or by both language codes. Columns are named as in
    ``headscope.data.tables``; ``links_column`` None means ``links`` if the file has it.
    ``split`` is one of a FLORES folder (default ``dev``) or a dataset. ``limit``: the first so
    many pairs, None for all.
    """

    data: options.Data
    pair: options.Pair = None
    source_language: options.SourceLanguage = None
    target_language: options.TargetLanguage = None
    source_column: options.SourceColumn = "source"
    target_column: options.TargetColumn = "target"
    links_column: options.LinksColumn = None
    split: options.Split = None
    limit: options.Limit = None


def read_pairs(source: PairSource) -> PairFile:
    """Reads sentence pairs; every error is an ``InputError`` with file, line and fix."""
    direction = direction_of(source)
    check_limit(source.limit)
    path = Path(source.data)
    if not source.data:
        raise InputError("no data given; name a file, a FLORES folder or a Hub dataset")
    if path.is_dir() and is_flores(path):
        texts = read_flores(path, direction, source.split or "dev", source.limit)
        pairs = tuple(
            SentencePair(str(line), first, second, None, line)
            for line, first, second in texts.sentences
        )
        return _file(pairs, direction, source.data, texts.digest)
    if source.source_column == source.target_column:
        raise InputError(
            f"source and target are both the column {source.source_column!r} of {source.data}; "
            "name two columns with --source-column and --target-column"
        )
    dataset = is_dataset(
        source.data,
        source.split,
        "FLORES files (like eng.dev or dev/eng_Latn.dev) and no dataset; give a file, or a folder "
        "with one of these",
    )
    sentence = text_cell("give a sentence")
    first = Field(source.source_column, sentence)
    second = Field(source.target_column, sentence)
    links = Field(source.links_column or "links", _links, ABSENT if source.links_column else None)
    rows, digest = read_rows(
        source.data, (first, second, links), source.limit, dataset=dataset, split=source.split
    )
    pairs = tuple(
        _checked(SentencePair(str(row.line), row[first], row[second], row[links], row.line), row)
        for row in rows
    )
    return _file(pairs, direction, source.data, digest)


def direction_of(source: PairSource) -> Direction:
    """The languages that a source names; raises ``InputError`` if unknown or contradictory."""
    direction = settled_direction(
        source.pair, source.source_language, source.target_language, f", for {source.data}"
    )
    if direction is None:
        raise InputError(
            f"the languages of {source.data} are not given; add --pair en-de, or "
            "--source-language and --target-language"
        )
    return direction


def write_pairs(path: str | Path, pairs: Sequence[SentencePair]) -> None:
    """Writes a TSV with a header, ``source``, ``target`` and, if the pairs have them, ``links``.

    The file appears complete or not at all. Raises ``InputError`` if a sentence is empty or holds
    a tab or line break, if a link lies outside its sentence, or if only some pairs have links.
    """
    path = Path(path)
    linked = [pair for pair in pairs if pair.links is not None]
    if linked and len(linked) != len(pairs):
        raise InputError(
            f"{len(linked)} of {len(pairs)} pairs have links; give links for all or for none"
        )
    lines = ["source\ttarget\tlinks" if linked else "source\ttarget"]
    for pair in pairs:
        for side, text in (("source", pair.source), ("target", pair.target)):
            if not text.strip() or any(sign in text for sign in "\t\n\r"):
                raise InputError(
                    f"the {side} of pair {pair.id} is empty or holds a tab or line break, which "
                    "a TSV file cannot hold; replace it by a space"
                )
        cells = [pair.source, pair.target]
        if pair.links is not None:
            try:
                check_links(pair.links, len(pair.source.split()), len(pair.target.split()))
            except InputError as error:
                raise InputError(f"pair {pair.id}: {error}") from None
            cells.append(format_links(pair.links))
        lines.append("\t".join(cells))
    write_text_atomically(path, "".join(line + "\n" for line in lines))


def _file(
    pairs: tuple[SentencePair, ...], direction: Direction, path: str, digest: str
) -> PairFile:
    return PairFile(pairs, direction.source, direction.target, path, digest)


def _checked(pair: SentencePair, row: Row) -> SentencePair:
    with naming(row.place):
        check_links(pair.links or frozenset(), len(pair.source.split()), len(pair.target.split()))
    return pair


def _links(cell: Any, place: str, column: str) -> Links | None:
    """Links from a cell: Pharaoh text, nothing, or a list of such links or position pairs."""
    if cell is None:
        return frozenset()
    if isinstance(cell, list):
        cell = " ".join(
            f"{link[0]}-{link[1]}"
            if isinstance(link, list) and len(link) == 2
            else str(link).replace(" ", "_")
            for link in cell
        )
    if not isinstance(cell, str):
        raise InputError(f"{place}: the links are {kind_of(cell)}; write them like 0-0 1-2")
    with naming(place):
        return parse_links(cell)
