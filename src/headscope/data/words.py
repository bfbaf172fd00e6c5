"""Units of text that word links point at, with their places in the string.

Where links are given, a unit is a white-space piece of the sentence. Everywhere else units are
found by rule, as in ``\\w+|[^\\w\\s]``: runs of letters, digits and underscores, and every other
sign by itself; characters of scripts written without spaces between words are units of their own.
Two details go beyond that expression, because Python's ``\\w`` leaves out combining marks: a mark
belongs to the unit before it (so Hindi words stay whole), and the zero-width joiner and
non-joiner stand within words. Tables of words have one meaning a row and one language a column.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headscope.data.files import (
    decoded_lines,
    json_digest,
    open_bytes,
    parse_object,
)
from headscope.data.formats import opened_table, record_format
from headscope.data.languages import is_known
from headscope.data.rows import ID, Field, clean_text, read_fields
from headscope.data.tables import named
from headscope.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


Segmenter = Callable[[str], Sequence[str]]

WHITE_SPACE = "white-space"
RULES = "words"
SEGMENTER = "segmenter"
SPANS = "spans"

# Code point ranges (first, last) of scripts without spaces between words.
_UNSPACED = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Burmese
    (0x1780, 0x17FF),  # Khmer
    (0x19E0, 0x19FF),  # Khmer symbols
    (0x2E80, 0x2FDF),  # Han radicals
    (0x3005, 0x3007),  # Han iteration mark, closing mark, zero
    (0x3021, 0x3029),  # Hangzhou numerals
    (0x3038, 0x303B),  # Hangzhou numerals, vertical iteration mark
    (0x3040, 0x30FF),  # Hiragana, Katakana
    (0x31F0, 0x31FF),  # Katakana extensions
    (0x3400, 0x4DBF),  # Han extension A
    (0x4E00, 0x9FFF),  # Han
    (0xA9E0, 0xA9FF),  # Burmese extended B
    (0xAA60, 0xAA7F),  # Burmese extended A
    (0xF900, 0xFAFF),  # Han compatibility
    (0xFF66, 0xFF9F),  # Half-width Katakana
    (0x1AFF0, 0x1B16F),  # Kana supplements
    (0x20000, 0x3FFFD),  # Han extensions B and beyond
)
_JOINERS = "\u200c\u200d\u00ad"  # zero-width non-joiner and joiner, soft hyphen


PACKAGE = "icu4py"
CHARACTERS = "characters"
"""The name of what stands for words where no segmenter is installed."""


@dataclass(frozen=True)
class Word:
    """A unit: ``text`` is ``sentence[start:end]``, positions count characters."""

    text: str
    start: int
    end: int


def split_words(text: str, links_given: bool, segmenter: Segmenter | None = None) -> list[Word]:
    """The units of a sentence, in order.

    With ``links_given`` they are its white-space pieces. Otherwise they are found by rule, or by
    ``segmenter``, a function from the sentence to its words as they occur there in order.
    """
    if links_given:
        return [Word(match[0], match.start(), match.end()) for match in re.finditer(r"\S+", text)]
    if segmenter is not None:
        return _locate(text, segmenter(text))
    return _by_rule(text)


def plain_words(text: str) -> list[str]:
    """The words of a text as overlap measures count them: in small letters, without punctuation.

    Characters of scripts that put no spaces between words stand for words. Spellings of one letter
    that look alike (composed or not, half or full width) are one.
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    words = (word.text for word in _by_rule(folded))
    return [word for word in words if any(char.isalnum() for char in word)]


def units_name(links_given: bool, segmenter: Segmenter | None = None) -> str:
    """The name under which the kind of unit is recorded in results."""
    if links_given:
        return WHITE_SPACE
    return RULES if segmenter is None else SEGMENTER


@lru_cache(maxsize=1 << 12)
def is_unspaced(char: str) -> bool:
    """Whether a character is of a script that puts no spaces between words."""
    code = ord(char)
    return any(first <= code <= last for first, last in _UNSPACED)


def begins_word(before: str, char: str) -> bool:
    """Whether a word of `running_words` begins with a character that stands behind another ("" for
    none)."""
    if char.isspace():
        return False
    if not before or before.isspace():
        return True
    mark = unicodedata.category(char).startswith("M")
    return not mark and (is_unspaced(before) or is_unspaced(char))


def running_words(text: str) -> list[Word]:
    """The words of a text as they arrive one by one: its white-space pieces, in which each
    character of a script without spaces is a word of its own. What follows changes none of them.
    """
    words = []
    for piece in split_words(text, links_given=True):
        cuts = [0, len(piece.text)]
        for at in range(1, len(piece.text)):
            if begins_word(piece.text[at - 1], piece.text[at]):
                cuts.insert(-1, at)
        words += [
            Word(piece.text[a:b], piece.start + a, piece.start + b) for a, b in pairwise(cuts)
        ]
    return words


def cuts_inside(text: str, words: Sequence[Word], anywhere: bool = False) -> list[int]:
    """Where a unit begins or ends within a white-space piece.

    Beside a character of a script without spaces, or `anywhere`.
    """
    return sorted(
        {
            place
            for word in words
            for place in (word.start, word.end)
            if 0 < place < len(text)
            and not text[place - 1].isspace()
            and not text[place].isspace()
            and (anywhere or is_unspaced(text[place - 1]) or is_unspaced(text[place]))
        }
    )


def _by_rule(text: str) -> list[Word]:
    words: list[Word] = []
    start = -1  # where the unit in progress began; -1: there is none
    growing = False  # whether a letter would extend it
    for position, char in enumerate(text):
        category = unicodedata.category(char)
        if char.isspace() or (category == "Cf" and char not in _JOINERS):
            # Invisible signs (zero-width space, direction marks) end a unit and are in none.
            if start >= 0:
                words.append(Word(text[start:position], start, position))
            start, growing = -1, False
        elif category[0] == "M" or char in _JOINERS:
            if start < 0:
                start, growing = position, True
        else:
            letter = char.isalnum() or char == "_"
            extends = letter and (category == "Nd" or not is_unspaced(char))
            if not (growing and extends):
                if start >= 0:
                    words.append(Word(text[start:position], start, position))
                start = position
            growing = extends
    if start >= 0:
        words.append(Word(text[start:], start, len(text)))
    return words


def _locate(text: str, pieces: Sequence[str]) -> list[Word]:
    words: list[Word] = []
    position = 0
    for piece in pieces:
        if not piece.strip():
            continue
        start = text.find(piece, position)
        if start < 0:
            raise InputError(
                f"the segmenter returned {piece!r}, which does not follow in {text!r}; it must "
                "return words unchanged and in order"
            )
        position = start + len(piece)
        words.append(Word(piece, start, position))
    return words


def membership(
    spans: NDArray[np.int64], words: Sequence[Word], offset: int = 0
) -> NDArray[np.bool_]:
    """Which token belongs to which word, bool (T, words); `offset` moves the words' places.

    `spans` (T, 2) are the characters of the tokens, leading white space aside; a token belongs to a
    word if they intersect the word's.
    """
    import numpy as np

    member = np.zeros((len(spans), len(words)), dtype=bool)
    member[belonging(spans, words, offset)] = True
    return member


def belonging(
    spans: NDArray[np.int64], words: Sequence[Word], offset: int = 0
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The pairs of token and word that `membership` marks, by token; words are in their order."""
    import numpy as np

    places = np.array([(word.start, word.end) for word in words], dtype=np.int64).reshape(-1, 2)
    first = np.searchsorted(places[:, 1] + offset, spans[:, 0], "right")
    after = np.searchsorted(places[:, 0] + offset, spans[:, 1], "left")
    counts = np.where(spans[:, 0] < spans[:, 1], np.maximum(after - first, 0), 0)
    shift = np.repeat(first - np.cumsum(counts) + counts, counts)
    return np.repeat(np.arange(len(spans)), counts), np.arange(counts.sum()) + shift


def within(spans: NDArray[np.int64], start: int, end: int) -> NDArray[np.bool_]:
    """Which tokens have characters in `[start, end)`, bool (T,)."""
    return (spans[:, 0] < end) & (spans[:, 1] > start) & (spans[:, 0] < spans[:, 1])


@cache
def segmenter_name() -> str:
    """Name and version of the segmenter; `CHARACTERS` where it is not installed."""
    try:
        return f"{PACKAGE} {version(PACKAGE)}"
    except PackageNotFoundError:
        return CHARACTERS


def has_unspaced(text: str) -> bool:
    """Whether a text has characters of a script that puts no spaces between words."""
    return any(map(is_unspaced, text))


@lru_cache(maxsize=1 << 14)
def words_of(text: str) -> tuple[str, ...]:
    """The units of a sentence as `split_words` finds them by rule, with words for characters.

    ICU cuts Chinese, Japanese, Thai, Lao, Khmer and Burmese, from one wheel (icu4py, MIT, 16 MB).
    Of the boundaries in 60 sentences of ours (`bench/segmenters.py`) it finds, as F1 in per cent:

    ====================  =======  ========  ====  =========
    candidate             Chinese  Japanese  Thai  installed
    ====================  =======  ========  ====  =========
    icu4py                   91.3      93.8  91.3      44 MB
    rjieba                   93.2                       5 MB
    Janome                            99.2            212 MB
    SudachiPy, mode C                 99.0            207 MB
    PyThaiNLP, newmm                         96.3      69 MB
    BudouX                   91.9      56.0  87.8     0.3 MB
    characters               73.5      75.0  40.5       none
    ====================  =======  ========  ====  =========

    The best of each language together find 3 to 5 per cent more, for three packages and six times
    the room; BudouX cuts Japanese into phrases.

    Where no segmenter is installed characters stay units of their own, which `segmenter_name`
    tells.
    """
    units = split_words(text, links_given=False)
    if not has_unspaced(text) or segmenter_name() == CHARACTERS:
        return tuple(word.text for word in units)
    from icu4py.breakers import WordBreaker

    stretches: list[tuple[int, int]] = []
    for unit in units:
        start, end = stretches[-1] if stretches else (0, -1)
        if end == unit.start and is_unspaced(unit.text[0]) and is_unspaced(text[start]):
            stretches[-1] = start, unit.end
        else:
            stretches.append((unit.start, unit.end))
    words: list[str] = []
    for start, end in stretches:
        stretch = text[start:end]
        words += WordBreaker(stretch, "und") if is_unspaced(stretch[0]) else [stretch]
    return tuple(words)


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
    """Read a table of words, columns named by language codes.

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
            f"{named(names)}); name at least three, such as en, de and es"
        )
    fields = [Field(language, _word) for language in languages]
    rows, digest = read_fields(path, [*fields, ID] if "id" in names else fields, limit)
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
    return clean_text(cell or "", f"{place}: column {column!r}").strip()


def _columns(path: Path) -> list[str]:
    """The names of a table's columns, in a file of objects those of the first."""
    form = record_format(path)
    with open_bytes(path) as handle:
        if form.table is not None:
            with opened_table(form, handle, path) as table:
                return list(map(str, table.schema.names))
        lines = decoded_lines(handle, path)
        if form.cells is not None:
            return next(form.cells(lines, path), (1, []))[1]
        assert form.objects is not None
        line, first = next(form.objects(lines, path), (1, "{}"))
    return list(parse_object(first, f"{path}, line {line}"))
