"""Sentence pairs with their word links, from files, FLORES folders and Hub datasets.

Links are written in the Pharaoh format: ``0-0 1-2``, source position, hyphen, target position;
files that count from 1, or name the target first, are read so where that is asked for, and files
that seem to are warned of (`link_readings`).
Positions count white-space pieces, or the units of a column ``units``, which holds the characters
of each: ``0:2 2:4 | 0:3 4:8``, those of the source first, ends not included. A column ``aligner``
names what made the links; links without a name are given.

The word alignments that AlignAtt4LLM publishes are read as they are: JSON objects with the words of
both sentences and, in ``alignments``, spans of words that belong together, with a confidence.

A FLORES folder has one file a language, one sentence a line, named as in FLORES-101 (``eng.dev``,
``deu.devtest``) or FLORES-200 (``eng_Latn.dev``), in itself or in a folder named after the split.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from headscope import options
from headscope.data.files import check_limit, drain, open_bytes, text_lines, write_text_atomically
from headscope.data.formats import record_format
from headscope.data.languages import (
    Direction,
    is_known,
    language_name,
    language_tag,
    settled_direction,
)
from headscope.data.link_readings import Linked, Reading, doubt, remedy
from headscope.data.link_readings import Links as Links
from headscope.data.rows import (
    Field,
    Row,
    clean_text,
    kind_of,
    open_rows,
    read_fields,
    text_cell,
    unusable,
)
from headscope.data.tables import ABSENT, is_dataset
from headscope.data.words import Word, cuts_inside, is_unspaced, split_words
from headscope.errors import InputError, caution, naming
from headscope.settings import GIVEN as UNLESS_NONE
from headscope.settings import Settings

Spans = tuple[tuple[int, int], ...]
#: Characters [start, end) of the units of a source and of its target.
Units = tuple[Spans, Spans]

#: What is written of links that no aligner made.
GIVEN = "links"
#: Of the files that `headscope align` writes; the first, without a number, changed the text.
ALIGN_FORMAT = 2
#: Pairs of a file, from its beginning, that an aligner is fitted on beside those that it links:
#: two minutes of eflomal on one core.
FITTED_AT_MOST = 100_000
#: Pairs of which the text is looked at for spaces that an earlier `headscope align` put there.
LOOKED_AT = 200

# Positions of more digits than any sentence has words are no numbers worth reading.
_LINK = re.compile(r"([0-9]{1,20})-([0-9]{1,20})")
_POSSIBLE = re.compile(r"([0-9]{1,20})p([0-9]{1,20})")
_SPAN = re.compile(r"([0-9]{1,20}):([0-9]{1,20})")
#: What an object of word alignments holds; its links are a language model's.
_ALIGNED = ("source_text", "target_text", "source_words", "target_words", "alignments")
_FLORES = re.compile(r"([a-z]{2,3}(?:[-_][A-Za-z0-9]+)*)\.(dev|devtest|test)")


def parse_links(text: str) -> Links:
    """Links from their text; positions count words from 0, the empty text holds no links.

    Raises ``InputError`` naming the first malformed link.
    """
    advice = "write links like 0-0 1-2, source position first, counted from 0"
    return frozenset(_numbers(_LINK, text, "link", advice))


def format_links(links: Iterable[tuple[int, int]]) -> str:
    """The text of links, in ascending order."""
    return " ".join(f"{i}-{j}" for i, j in sorted(links))


def parse_units(text: str) -> Units:
    """Units from their text; a side without units is empty.

    Raises ``InputError`` naming what is malformed.
    """
    advice = "write those of both sides like 0:2 2:4 | 0:3 4:8, in characters from 0"
    source, bar, target = text.partition("|")
    if not bar or "|" in target:
        raise InputError(f"the units {_short(text)!r} are malformed; {advice}")
    first, second = (tuple(_numbers(_SPAN, side, "unit", advice)) for side in (source, target))
    return first, second


def format_units(units: Units) -> str:
    """The text of units."""
    return " | ".join(" ".join(f"{start}:{end}" for start, end in side) for side in units)


def _numbers(form: re.Pattern[str], text: str, what: str, advice: str) -> list[tuple[int, int]]:
    """The two numbers of each piece of a text."""
    numbers = []
    for piece in text.split():
        match = form.fullmatch(piece)
        if match is None:
            raise InputError(f"the {what} {_short(piece)!r} is malformed; {advice}")
        numbers.append((int(match[1]), int(match[2])))
    return numbers


def _short(text: str) -> str:
    return text if len(text) <= 30 else f"{text[:29]}…"


def check_links(links: Links, source: str, target: str, units: Units | None = None) -> None:
    """Raises ``InputError`` naming the first unit or link outside its sentences.

    Units follow one another in their sentence and hold at least one character. ``units`` None:
    links are between white-space pieces.
    """
    for side, spans, text in zip(("source", "target"), units or (), (source, target), strict=False):
        last = 0
        for start, end in spans:
            if end > len(text):
                raise InputError(
                    f"the unit {start}:{end} lies outside the {side}, which has {len(text)} "
                    "characters; correct it (the end is not included)"
                )
            if start >= end:
                raise InputError(f"the unit {start}:{end} of the {side} is empty; remove it")
            if start < last:
                raise InputError(
                    f"the unit {start}:{end} of the {side} begins before the one before it ends; "
                    "give units in the order of the sentence, without overlaps"
                )
            last = end
    lengths = [len(words) for words in linked_words(source, target, units)]
    for i, j in sorted(links):
        if i >= lengths[0] or j >= lengths[1]:
            what, fix = "units", "or the units"
            if units is None:
                what = "words (white-space pieces, counted from 0)"
                fix = "or separate the words of the sentences by spaces"
            raise InputError(
                f"the link {i}-{j} lies outside its sentences of {lengths[0]} and {lengths[1]} "
                f"{what}; correct the link, {fix}"
            )


def linked_words(
    source: str, target: str, units: Units | None = None
) -> tuple[tuple[Word, ...], tuple[Word, ...]]:
    """What links of two sentences point at: their units, or their white-space pieces."""
    if units is None:
        first, second = (split_words(text, links_given=True) for text in (source, target))
    else:
        first, second = (
            [Word(text[start:end], start, end) for start, end in spans]
            for text, spans in zip((source, target), units, strict=True)
        )
    return tuple(first), tuple(second)


def spans_of(words: tuple[Sequence[Word], Sequence[Word]]) -> Units:
    """The characters of the words of two sentences."""
    first, second = (tuple((word.start, word.end) for word in side) for side in words)
    return first, second


def carried_links(
    links: Links,
    units: tuple[Sequence[Word], Sequence[Word]],
    words: tuple[Sequence[Word], Sequence[Word]],
) -> Links:
    """Links between units of two sentences, as links between the words that share characters."""
    sources, targets = (
        [
            [at for at, word in enumerate(side) if word.start < unit.end and unit.start < word.end]
            for unit in side_units
        ]
        for side_units, side in zip(units, words, strict=True)
    )
    return frozenset((a, b) for i, j in links for a in sources[i] for b in targets[j])


@dataclass(frozen=True)
class SentencePair:
    """A sentence and its translation.

    ``links`` are pairs of positions (source, target) of white-space pieces or, where there are
    ``units``, of these; the empty set means that nothing is linked, None that the file says nothing
    about links. ``possible`` are further links of which people were not sure (``1p2``).
    ``aligner`` names what made the links, None: they are given. ``line`` is the line (or Parquet
    row) the pair stands on, from 1.
    """

    id: str
    source: str
    target: str
    links: Links | None = None
    line: int | None = None
    units: Units | None = None
    aligner: str | None = None
    possible: Links = frozenset()

    @property
    def words(self) -> tuple[tuple[Word, ...], tuple[Word, ...]]:
        """What links point at, of the source and of the target."""
        return linked_words(self.source, self.target, self.units)

    @property
    def unlinked(self) -> SentencePair:
        """The pair as a file without links has it."""
        return replace(self, links=None, units=None, aligner=None, possible=frozenset())

    def check_links(self) -> None:
        """Raises ``InputError`` naming the first unit or link outside the sentences."""
        links = (self.links or frozenset()) | self.possible
        check_links(links, self.source, self.target, self.units)


def links_by(pairs: Iterable[SentencePair]) -> str:
    """What made the links of pairs: `GIVEN`, or the names of aligners."""
    return " and ".join(sorted({pair.aligner or GIVEN for pair in pairs})) or GIVEN


@dataclass(frozen=True)
class PairFile:
    """Sentence pairs of one direction; ``digest`` is the SHA-256 of the content they are from.

    ``shots`` are examples that a prompt shows before its sentence; none of their sentences is
    among ``pairs``, nor of those of ``reference``, which what replaces heads is made from.
    ``names`` are what prompts call the two languages, instead of their English
    names. ``read`` is where the pairs were read, and how many there were (see `further_pairs`);
    ``cautions`` say in sentences what seems wrong with the file.
    """

    pairs: tuple[SentencePair, ...]
    source_language: str
    target_language: str
    path: str
    digest: str
    shots: tuple[SentencePair, ...] = ()
    reference: tuple[SentencePair, ...] = ()
    names: tuple[str, str] | None = None
    read: tuple[PairSource, int] | None = None
    cautions: tuple[str, ...] = ()

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
    ``links_from`` is what links call the first word (None: 0); with ``links_swapped`` they name the
    target word first. ``split`` is one of a FLORES folder (default ``dev``) or a dataset.
    ``limit``: the first so many pairs, None for all. ``min_confidence``: of a file of word
    alignments, only links with a higher confidence.
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
    min_confidence: options.MinConfidence = field(default=None, metadata=UNLESS_NONE)
    links_from: options.LinksFrom = field(default=None, metadata=UNLESS_NONE)
    links_swapped: options.LinksSwapped = field(default=None, metadata=UNLESS_NONE)

    @property
    def reading(self) -> Reading:
        """How the numbers of links are read."""
        return Reading(self.links_from or 0, bool(self.links_swapped))


def read_pairs(source: PairSource) -> PairFile:
    """Reads sentence pairs; every error is an ``InputError`` with file, line and fix.

    Warns (``Caution``) of what seems wrong with the file.
    """
    pairs = _read(source)
    for words in pairs.cautions:
        caution(words)
    return pairs


def _read(source: PairSource) -> PairFile:
    direction = direction_of(source)
    check_limit(source.limit)
    path = Path(source.data)
    if not source.data:
        raise InputError("no data given; name a file, a FLORES folder or a Hub dataset")
    cautions: list[str] = []
    if path.is_dir() and is_flores(path):
        pairs, digest = _read_flores(path, direction, source.split or "dev", source.limit)
    else:
        pairs, digest, cautions = _read_table(source)
    read, said = (source, len(pairs)), tuple(f"{source.data}: {words}." for words in cautions)
    languages = direction.source, direction.target
    return PairFile(tuple(pairs), *languages, source.data, digest, read=read, cautions=said)


def further_pairs(pairs: PairFile) -> tuple[SentencePair, ...]:
    """What a file has beside these pairs: beyond a limit, in the other half, shots, references.

    They help a statistical aligner. Only the first `FITTED_AT_MOST` pairs of the file are looked
    at. Raises ``InputError`` if the file is no longer the one that was read.
    """
    if pairs.read is None or pairs.read == (replace(pairs.read[0], limit=None), len(pairs.pairs)):
        return ()
    own = {pair.line: pair for pair in pairs.pairs}
    again = _read(replace(pairs.read[0], limit=FITTED_AT_MOST))
    if any(own.get(pair.line, pair) != pair for pair in again.pairs):
        raise InputError(f"{pairs.path} was changed while it was read; run the same command again")
    return tuple(pair for pair in again.pairs if pair.line not in own)


def _read_table(source: PairSource) -> tuple[list[SentencePair], str, list[str]]:
    """The pairs of a table, its digest, and what seems wrong with it."""
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
    source = _with_columns(source, dataset)
    if not dataset and _holds_alignments(source):
        return _read_alignments(source, sentence)
    if source.min_confidence is not None:
        raise InputError(
            f"{source.data} is no file of word alignments ({', '.join(_ALIGNED)}), so its links "
            "have no confidence; leave --min-confidence out"
        )
    first = Field(source.source_column, sentence)
    second = Field(source.target_column, sentence)
    links = Field(source.links_column or "links", _links, ABSENT if source.links_column else None)
    read = partial(read_fields, source.data, limit=source.limit, dataset=dataset)
    rows, digest = read((first, second, links), split=source.split)
    linked = rows[0][links] is not None
    if linked:  # without links, columns of these names are something else
        rows, digest = read((first, second, links, UNITS, ALIGNER), split=source.split)
    pairs, written = [], list[Linked]()
    for row in rows:
        sure, possible = row[links] or (None, frozenset[tuple[int, int]]())
        pair = SentencePair(str(row.line), row[first], row[second], sure, row.line)
        if linked:
            pair = replace(pair, units=row[UNITS], aligner=row[ALIGNER], possible=possible)
        pairs.append(pair)
        words = ([word.text for word in side] for side in pair.words)
        written.append(Linked((sure or frozenset()) | possible, *words))
    read_so = [_as_read(pair, source.reading) for pair in pairs]
    for row, pair, row_written in zip(rows, read_so, written, strict=True):
        with naming(row.place):
            _check_read(pair, row_written, written, source.reading)
    given = (
        row_written
        for row_written, pair in zip(written, pairs, strict=True)
        if pair.aligner is None
    )
    found = [doubt(given, source.reading)]
    if not dataset:
        found.append(_check_format(Path(source.data), pairs, digest))
    return read_so, digest, [words for words in found if words]


def _with_columns(source: PairSource, dataset: bool) -> PairSource:
    """The columns of both sides: where none are named nor there, those that are called after the
    languages, `en` and `de`, or `translation.en` and `translation.de`."""
    named = source.source_column, source.target_column
    if named != ("source", "target"):
        return source
    languages = direction_of(source)
    codes = languages.source, languages.target
    ways = (named, codes, (f"translation.{codes[0]}", f"translation.{codes[1]}"))
    fields = [Field(name, _as_it_is, None) for way in ways for name in way]
    with open_rows(source.data, fields, dataset=dataset, split=source.split) as rows:
        there = next(rows, Row(0, "", {})).cells.keys()
    first, second = next((way for way in ways if {*way} <= there), named)
    return replace(source, source_column=first, target_column=second)


def _as_read(pair: SentencePair, reading: Reading) -> SentencePair:
    """A pair with links from 0, source first."""
    if reading == Reading() or pair.links is None:
        return pair
    return replace(pair, links=reading.read(pair.links), possible=reading.read(pair.possible))


def _check_read(
    pair: SentencePair, own: Linked, written: Sequence[Linked], reading: Reading
) -> None:
    """As `SentencePair.check_links`, with the reading of the file's links in which they fit."""
    try:
        if below := [link for link in own.links if min(link) < reading.start]:
            raise InputError(
                f"the link {format_links(below[:1])} names a word 0, where the first is 1; "
                "correct it, or remove it if it stands for no word"
            )
        pair.check_links()
    except InputError as error:
        fix = "" if own.fits(reading) else remedy(written, reading)
        so = f" (links are read with {reading.options})" if reading.options else ""
        raise InputError(f"{error}{so}{fix and '; '}{fix}") from None


def _holds_alignments(source: PairSource) -> bool:
    """Whether a file's first record is one of word alignments, and no columns are named."""
    named = source.source_column, source.target_column, source.links_column
    path = Path(source.data)
    if named != ("source", "target", None) or record_format(path).objects is None:
        return False
    with open_rows(path, [Field(name, _as_it_is, None) for name in _ALIGNED]) as rows:
        return set(_ALIGNED) <= next(rows, Row(0, "", {})).cells.keys()


def _as_it_is(cell: Any, place: str, column: str) -> Any:
    return cell


def _read_alignments(
    source: PairSource, sentence: Callable[[Any, str, str], str]
) -> tuple[list[SentencePair], str, list[str]]:
    """The pairs of a file of word alignments whose words follow one another in their sentences; its
    digest, and what is left out."""
    if source.reading.options:
        raise InputError(
            f"{source.data} is a file of word alignments, whose spans count from 0 and name their "
            f"sides; leave {source.reading.options} out"
        )
    if source.min_confidence is not None and source.min_confidence >= 1:
        raise InputError("--min-confidence is 1, and no link is above that; give a smaller one")
    texts = [Field(name, sentence) for name in _ALIGNED[:2]]
    words = [Field(name, _words) for name in _ALIGNED[2:4]]
    named = Field("direction", text_cell("give languages such as en-de"), None)
    spans = Field("alignments", _as_it_is)
    rows, digest = read_fields(source.data, (*texts, *words, spans, named), source.limit)
    languages = direction_of(source)
    pairs, unplaced = [], []
    for row in rows:
        with naming(row.place):
            own = settled_direction(row[named], None, None)
            if own not in (None, languages):
                raise InputError(f"is of the direction {own}, not {languages}; name that by --pair")
            sizes = len(row[words[0]]), len(row[words[1]])
            links = _linked(row[spans], sizes, source.min_confidence)
        first, second = row[texts[0]], row[texts[1]]
        sources, targets = _placed(first, row[words[0]]), _placed(second, row[words[1]])
        if sources is None or targets is None:
            unplaced.append(row.line)
            continue
        units = sources, targets
        pairs.append(SentencePair(str(row.line), first, second, links, row.line, units, "llm"))
    if not pairs:
        raise InputError(f"{source.data}: no pair has words that stand in its sentences")
    cautions = [
        f"{len(unplaced)} of {len(rows)} pairs are left out, since their words do not follow one "
        f"another in their sentences (the first on line {line})"
        for line in unplaced[:1]
    ]
    return pairs, digest, cautions


def _words(cell: Any, place: str, column: str) -> Sequence[str]:
    if not isinstance(cell, list) or not all(isinstance(word, str) for word in cell):
        raise InputError(f'{place}: {column} is no list of words; write them like ["So", "?"]')
    return [word.strip() for word in cell]


def _placed(text: str, words: Sequence[str]) -> Spans | None:
    """The characters of words that follow one another in a text; None where they do not."""
    spans, end = [], 0
    for word in words:
        start = text.find(word, end)
        if start < 0 or not word:
            return None
        end = start + len(word)
        spans.append((start, end))
    return tuple(spans)


def _linked(spans: Any, sizes: tuple[int, int], above: float | None) -> Links:
    """Every word of a source span with every word of its target span."""
    links: set[tuple[int, int]] = set()
    sources, targets = sizes
    for span in spans if isinstance(spans, list) else [spans]:
        match span:
            case {
                "source_span": [int(i), int(i_end)],
                "target_span": [int(j), int(j_end)],
                "confidence": int() | float() as confidence,
            } if (
                0 <= i < i_end <= sources
                and 0 <= j < j_end <= targets
                and 0 <= confidence <= 1
                and bool not in map(type, (i, i_end, j, j_end, confidence))
            ):
                if above is None or confidence > above:
                    links |= set(product(range(i, i_end), range(j, j_end)))
            case _:
                raise InputError(
                    f"the alignment {span!s:.150} is no span of its {sources} and {targets} "
                    'words with a confidence; write {"source_span": [0, 1], "target_span": [2, 4], '
                    '"confidence": 0.9}, ends not included'
                )
    return frozenset(links)


def _check_format(path: Path, pairs: Sequence[SentencePair], digest: str) -> str | None:
    """Refuse a file in which an earlier version of `headscope align` put spaces between units.

    Where nothing but the text speaks for it, say so.
    """
    linked = [pair for pair in pairs if pair.links is not None and pair.units is None]
    if not linked:
        return None
    try:
        note = json.loads(align_note(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        note = None
    if isinstance(note, dict) and note.get("sha256") == digest and "format" not in note:
        result = note.get("result")
        if isinstance(result, dict) and result.get("aligner", GIVEN) != GIVEN:
            raise InputError(
                f"{path} was written by an earlier version of headscope align, which put spaces "
                "into the text and did not keep who made the links; run headscope align again on "
                "the original file"
            )
    spaced = [
        not cuts_inside(text, words)
        for pair in linked[:LOOKED_AT]
        for text in (pair.source, pair.target)
        if (words := split_words(text, links_given=False))
        and sum(is_unspaced(word.text[0]) for word in words) > 3
    ]
    if spaced and sum(spaced) >= 0.95 * len(spaced):
        return (
            "spaces stand between all characters of scripts without spaces, and models read them "
            "so. If headscope align put them there, run it again on the original file, whose text "
            "it now keeps"
        )
    return None


def align_note(path: Path) -> Path:
    """Where `headscope align` says what it computed a file from."""
    return path.with_name(f"{path.name}.json")


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

    ``units`` and ``aligner`` follow where a pair has links between units, or by an aligner. The
    file appears complete or not at all. Raises ``InputError`` if a sentence is empty or holds a
    control character, if a link lies outside its sentence, or if only some pairs have links.
    """
    path = Path(path)
    linked = [pair for pair in pairs if pair.links is not None]
    if linked and len(linked) != len(pairs):
        raise InputError(
            f"{len(linked)} of {len(pairs)} pairs have links; give links for all or for none"
        )
    columns = ["source", "target"] + ["links"] * bool(linked)
    columns += ["units"] * any(pair.units is not None for pair in linked)
    columns += ["aligner"] * any(pair.aligner is not None for pair in linked)
    lines = ["\t".join(columns)]
    for pair in pairs:
        cells = {"source": pair.source, "target": pair.target}
        if pair.links is not None:
            with naming(f"pair {pair.id}"):
                pair.check_links()
            possible = format_links(pair.possible).replace("-", "p")
            cells["links"] = f"{format_links(pair.links)} {possible}".strip()
            cells["aligner"] = pair.aligner or ""
            cells["units"] = format_units(spans_of(pair.words))
        for name in columns:
            empty = name in ("source", "target") and not cells[name].strip()
            if reason := "nothing" if empty else unusable(cells[name]):
                raise InputError(
                    f"the {name} of pair {pair.id} holds {reason}, which a file of sentence pairs "
                    "cannot hold; correct it, or replace the sign by a space"
                )
        lines.append("\t".join(cells[name] for name in columns))
    write_text_atomically(path, "".join(line + "\n" for line in lines))


def _links(cell: Any, place: str, column: str) -> tuple[Links, Links] | None:
    """Sure and possible links from a cell: Pharaoh text (``1p2`` is possible), nothing, or a list
    of such links or position pairs."""
    if cell is None:
        return frozenset(), frozenset()
    if isinstance(cell, list):
        cell = " ".join(
            f"{link[0]}-{link[1]}"
            if isinstance(link, list) and len(link) == 2
            else str(link).replace(" ", "_")
            for link in cell
        )
    if not isinstance(cell, str):
        raise InputError(f"{place}: the links are {kind_of(cell)}; write them like 0-0 1-2")
    pieces = cell.split()
    unsure = [piece for piece in pieces if _POSSIBLE.fullmatch(piece)]
    with naming(place):
        sure = parse_links(" ".join(piece for piece in pieces if piece not in unsure))
    return sure, parse_links(" ".join(unsure).replace("p", "-")) - sure


def _units(cell: Any, place: str, column: str) -> Units | None:
    """Units from a cell: their text, or a list of spans for each side."""
    if isinstance(cell, list | tuple) and len(cell) == 2:
        sides = [side if isinstance(side, list | tuple) else [side] for side in cell]
        cell = " | ".join(
            " ".join(
                f"{span[0]}:{span[1]}"
                if isinstance(span, list | tuple) and len(span) == 2
                else str(span).replace(" ", "_")
                for span in side
            )
            for side in sides
        )
    if not isinstance(cell, str):
        raise InputError(
            f"{place}: the units are {kind_of(cell)}; write them like 0:2 2:4 | 0:3 4:8"
        )
    with naming(place):
        return parse_units(cell)


def _aligner(cell: Any, place: str, column: str) -> str | None:
    """The name of an aligner, None for links that are given."""
    if not isinstance(cell, str | None):
        raise InputError(f"{place}: the aligner is {kind_of(cell)}; give its name, or leave it out")
    return (cell or "").strip() or None


UNITS: Field[Units | None] = Field("units", _units, None)
ALIGNER: Field[str | None] = Field("aligner", _aligner, None)


def given_links(
    pairs: Sequence[SentencePair],
    instead: str = ", or choose another aligner (--aligner eflomal or llm)",
) -> tuple[Links, ...]:
    """The links of each pair; raises ``InputError`` naming the first pair without."""
    for pair in pairs:
        if pair.links is None:
            raise InputError(
                f"sentence pair {pair.id} has no links; name the column that holds them with "
                f"--links-column{instead}"
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
