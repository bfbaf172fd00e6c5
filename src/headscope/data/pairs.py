"""Sentence pairs with their word links, from files, FLORES folders and Hub datasets.

Links are written in the Pharaoh format: ``0-0 1-2``, source position, hyphen, target position. A
FLORES folder has one file a language, one sentence a line, named as in FLORES-101 (``eng.dev``,
``deu.devtest``) or FLORES-200 (``eng_Latn.dev``), in itself or in a folder named after the split.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headscope import options
from headscope.data.files import check_limit, drain, open_bytes, text_lines, write_text_atomically
from headscope.data.languages import (
    Direction,
    is_known,
    language_name,
    language_tag,
    settled_direction,
)
from headscope.data.rows import Field, clean_text, kind_of, read_fields, text_cell
from headscope.data.tables import ABSENT, is_dataset
from headscope.errors import InputError, naming
from headscope.settings import Settings

Links = frozenset[tuple[int, int]]

# Positions of more digits than any sentence has words are no numbers worth reading.
_LINK = re.compile(r"([0-9]{1,20})-([0-9]{1,20})")
_FLORES = re.compile(r"([a-z]{2,3}(?:[-_][A-Za-z0-9]+)*)\.(dev|devtest|test)")


def parse_links(text: str) -> Links:
    """Links from their text; positions count words from 0, the empty text holds no links.

    Raises ``InputError`` naming the first malformed link.
    """
    links = set()
    for piece in text.split():
        match = _LINK.fullmatch(piece)
        if match is None:
            shown = piece if len(piece) <= 30 else f"{piece[:29]}…"
            raise InputError(
                f"the link {shown!r} is malformed; write links like 0-0 1-2, source position "
                "first, counted from 0"
            )
        links.add((int(match[1]), int(match[2])))
    return frozenset(links)


def format_links(links: Iterable[tuple[int, int]]) -> str:
    """The text of links, in ascending order."""
    return " ".join(f"{i}-{j}" for i, j in sorted(links))


def check_links(links: Links, source_length: int, target_length: int) -> None:
    """Raises ``InputError`` naming the first link outside sentences of these many words."""
    for i, j in sorted(links):
        if i >= source_length or j >= target_length:
            raise InputError(
                f"the link {i}-{j} lies outside its sentences of {source_length} and "
                f"{target_length} words (white-space pieces, counted from 0); correct the link, "
                "or separate the words of the sentences by spaces"
            )


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

    def check_links(self) -> None:
        """Raises ``InputError`` naming the first link outside the sentences."""
        check_links(self.links or frozenset(), len(self.source.split()), len(self.target.split()))


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
        pairs, digest = _read_flores(path, direction, source.split or "dev", source.limit)
    else:
        pairs, digest = _read_table(source)
    return PairFile(tuple(pairs), direction.source, direction.target, source.data, digest)


def _read_table(source: PairSource) -> tuple[list[SentencePair], str]:
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
    rows, digest = read_fields(
        source.data, (first, second, links), source.limit, dataset=dataset, split=source.split
    )
    pairs = [
        SentencePair(str(row.line), row[first], row[second], row[links], row.line) for row in rows
    ]
    for pair, row in zip(pairs, rows, strict=True):
        with naming(row.place):
            pair.check_links()
    return pairs, digest


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
            with naming(f"pair {pair.id}"):
                pair.check_links()
            cells.append(format_links(pair.links))
        lines.append("\t".join(cells))
    write_text_atomically(path, "".join(line + "\n" for line in lines))


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


def given_links(pairs: Sequence[SentencePair]) -> tuple[Links, ...]:
    """The links of each pair; raises ``InputError`` naming the first pair without."""
    for pair in pairs:
        if pair.links is None:
            raise InputError(
                f"sentence pair {pair.id} has no links; name the column that holds them with "
                "--links-column, or choose another aligner (--aligner eflomal or llm)"
            )
    return tuple(pair.links for pair in pairs if pair.links is not None)


def is_flores(folder: Path) -> bool:
    """Whether a folder holds files in FLORES naming."""
    places = [folder, *(folder / split for split in ("dev", "devtest", "test"))]
    return any(
        _FLORES.fullmatch(path.name) and is_known(path.name.split(".")[0])
        for place in places
        if place.is_dir()
        for path in place.iterdir()
    )


def directions_in(folder: Path, directions: Iterable[Direction], split: str) -> list[Direction]:
    """Those of some directions for whose languages the folder has files of a split.

    Raises ``InputError`` if it has no files of the split at all.
    """
    files = _files(folder, split)
    return [
        direction
        for direction in directions
        if _fitting(files, direction.source) and _fitting(files, direction.target)
    ]


def _read_flores(
    folder: Path, direction: Direction, split: str, limit: int | None
) -> tuple[list[SentencePair], str]:
    """The sentences of two languages of one split, and the SHA-256 of both files' digests.

    Raises ``InputError`` if a language or the split is not there, if several files fit a code, or
    if the files differ in length.
    """
    files = _files(folder, split)
    paths = [_choose(folder, files, code, split) for code in (direction.source, direction.target)]
    (first, first_digest), (second, second_digest) = map(_sentences, paths)
    if len(first) != len(second):
        raise InputError(
            f"{paths[0]} has {len(first)} lines but {paths[1]} has {len(second)}; line n of one "
            "must translate line n of the other, so give files of equal length"
        )
    pairs = [
        SentencePair(str(line), source, target, None, line)
        for (line, source), (_, target) in zip(first, second, strict=True)
    ]
    digest = hashlib.sha256(f"{first_digest} {second_digest}".encode()).hexdigest()
    return pairs[:limit], digest


def _files(folder: Path, split: str) -> dict[str, Path]:
    files: dict[str, Path] = {}
    splits = set()
    for place in (folder, *sorted(path for path in folder.iterdir() if path.is_dir())):
        for path in sorted(place.iterdir()):
            match = _FLORES.fullmatch(path.name)
            if match and is_known(match[1]):
                splits.add(match[2])
                if match[2] == split:
                    files.setdefault(match[1], path)
    if not files:
        raise InputError(
            f"{folder} has no files of the split {split!r}; found: {', '.join(sorted(splits))}; "
            "name one with --split"
        )
    return files


def _choose(folder: Path, files: dict[str, Path], code: str, split: str) -> Path:
    """The file of a language, however either side spells its code."""
    fitting = _fitting(files, code)
    in_script = [name for name in fitting if language_tag(name).script == language_tag(code).script]
    if len(in_script) == 1:
        return files[in_script[0]]
    if fitting:
        raise InputError(
            f"{folder} has {', '.join(sorted(fitting))} for {code} ({language_name(code)}); name "
            "one of them by its full code"
        )
    raise InputError(
        f"{folder} has no file for {code} ({language_name(code)}) in the split {split!r}; found: "
        f"{', '.join(sorted(files))}"
    )


def _fitting(files: dict[str, Path], code: str) -> list[str]:
    """The names of a language's files: its own, else those that stand for its macrolanguage."""
    if code in files:
        return [code]
    wanted = language_tag(code)
    tags = {name: language_tag(name) for name in files}
    own = [name for name, tag in tags.items() if tag.language == wanted.language]
    return own or [  # such as arb for ar
        name
        for name, tag in tags.items()
        if wanted.language == tag.macro or wanted.macro == tag.language
    ]


def _sentences(path: Path) -> tuple[list[tuple[int, str]], str]:
    hasher = hashlib.sha256()
    with open_bytes(path) as handle:
        lines = [
            (number, clean_text(line, f"{path}, line {number}"))
            for number, line in text_lines(handle, path, hasher)
        ]
        drain(handle, hasher)
    return lines, hasher.hexdigest()
