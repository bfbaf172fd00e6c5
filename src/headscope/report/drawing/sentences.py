"""Sentences side by side: of the original model, without selected heads, without random ones.

The page holds the sentences as data and the script shows ten at a time; without scripts the first
ones can be read all the same. Where words are linked, those that belong together light up.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headscope.report.html import Child, Html, dump_json, tag
from headscope.report.parts import Drawn, folded, legend
from headscope.shown.blocks import LinkedWords, Sentence, Sentences
from headscope.shown.words import arrow, count, enumeration, fixed, languages_of, sentence_of

CHRF, SIMILARITY = "chrF++", "similarity to the reference"
DIGITS = {CHRF: 1, SIMILARITY: 2}

SHOWN, OF_A_KIND = 10, 60
"""Sentences shown at a time, and of one kind."""

BYTES = 2_300_000
"""The most that the sentences of one page may take, so that a report stays under about 3 MB."""

ORIGINAL, SELECTED = "original", "selected"
REFERENCE = "reference"
MARKS = {ORIGINAL: "base", SELECTED: "top", "same layers": "matched"}
"""Colours of conditions; all other controls have that of random heads."""

UNSPACED = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR")
"""How Unicode calls the letters of scripts that put no spaces between words."""


@dataclass(frozen=True)
class Browser:
    """The sentences a page shows, in the order it first shows them, and what it left out.

    `labels` are the words of each condition, `left_out` counts sentences, `measure` names what
    `scores` (before, after the removal) holds for each sentence, `data` is for the script.
    """

    sentences: tuple[Sentence, ...]
    scores: tuple[tuple[float, float], ...]
    labels: Mapping[str, str]
    measure: str
    left_out: int
    data: Mapping[str, Any]


def draw_sentences(identifier: str, block: Sentences) -> Drawn:
    """The sentences of a block, those that lost most first."""
    shown = browser(block.sentences, block.labels)
    if shown is None:
        return Drawn(tag("p", "There are no sentences.", class_="note"))
    by_kind = any(sentence.kind for sentence in shown.sentences)
    body = _by_kind(shown, block) if by_kind else _body(shown, block)
    csv = tag("p", tag("button", "Save as CSV", class_="csv"), class_="script")
    html = tag("div", body, csv, id=identifier, class_="sentences")
    return Drawn(html, {} if by_kind else {"sentences": shown.data}, ("sentences.js",))


def browser(sentences: Sequence[Sentence], labels: Mapping[str, str]) -> Browser | None:
    """What to show of these sentences, worst loss first; None where there are none.

    `labels` gives the conditions to be shown, in order, and their words. Where not all fit, each
    direction keeps as many of its first sentences.
    """
    if not sentences:
        return None
    shown = {
        key: words for key, words in labels.items() if any(key in s.outputs for s in sentences)
    }
    measure, scores, ranked = by_loss(sentences)
    directions = list(dict.fromkeys(sentence.direction for sentence in sentences))
    rows = [
        _row(place, sentence, score, directions, tuple(shown))
        for place, (sentence, score) in enumerate(zip(sentences, scores, strict=True))
    ]
    kept = _fitting(sentences, [len(dump_json(row).encode()) + 1 for row in rows])
    order = [place for place in ranked if place in kept]
    return Browser(
        sentences=tuple(sentences[place] for place in order),
        scores=tuple(scores[place] for place in order),
        labels=shown,
        measure=measure,
        left_out=len(sentences) - len(kept),
        data={
            "directions": directions,
            "languages": [_languages(name) for name in directions],
            "conditions": list(shown),
            "digits": DIGITS[measure],
            "rows": [rows[place] for place in order],
        },
    )


def _body(shown: Browser, block: Sentences) -> list[Child]:
    """The first sentences, and what chooses others."""
    first = list(zip(shown.sentences, shown.scores, strict=True))[:SHOWN]
    rest = (
        f"Without scripts these are the first {len(first)} of "
        f"{count(len(shown.sentences), 'sentence')}; all are in outputs.jsonl."
    )
    return [
        tag("p", " ".join(_words(shown, block)), class_="note"),
        _controls(shown.data["directions"]),
        tag("div", [_card(*card, shown) for card in first], id="sentence-list", data_shown=SHOWN),
        tag("p", tag("button", "Back", id="earlier"), " ", tag("button", "Next", id="later"),
            class_="script turn"),
        tag("p", rest, class_="note unscripted") if len(first) < len(shown.sentences) else None,
    ]  # fmt: skip


def _by_kind(shown: Browser, block: Sentences) -> Iterator[Child]:
    """The sentences of each kind, with its evidence; the first kind is open."""
    if block.note:
        yield tag("p", sentence_of(block.note), class_="note")
    yield legend(("made", "without counterpart"), ("lost", "missing in the last output"))
    rows = list(zip(shown.sentences, shown.scores, strict=True))
    for at, kind in enumerate(dict.fromkeys(sentence.kind for sentence in block.sentences)):
        own = [row for row in rows if row[0].kind == kind]
        cards = [_card(*row, shown) for row in own[:OF_A_KIND]]
        left = len(own) - len(cards)
        more = tag("p", f"{left} more are in the run.", class_="note") if left else None
        yield folded(f"{kind}: {count(len(own), 'sentence')}", cards, more, open=at == 0)


def _words(shown: Browser, block: Sentences) -> Iterator[str]:
    """What is shown, in which order, and how words are linked."""
    same = sum(s.outputs[ORIGINAL] == s.outputs[SELECTED] for s in shown.sentences)
    yield (
        f"{count(len(shown.sentences), 'sentence')}, largest loss first, so the first ones are not "
        f"typical; the output of {same or 'none'} is unchanged."
    )
    if shown.measure == SIMILARITY:
        yield (
            "Sentences are ordered by similarity to the reference, the share of character pairs in "
            "common (Dice): a rough guide, not a measure of quality."
        )
    random = [
        f"\u201c{shown.labels[key]}\u201d"
        for key in shown.labels
        if key not in (ORIGINAL, SELECTED, REFERENCE)
    ]
    if random:
        shows = "shows the first draw alone." if len(random) == 1 else "show their first draw."
        yield f"{' and '.join(random)} {shows}"
    if shown.left_out:
        yield (
            f"{count(shown.left_out, 'more sentence')} did not fit on this page, which keeps the "
            "first of every direction; all are in outputs.jsonl of the run."
        )
    if block.links is None:
        yield block.note or "Words are not linked in this run, so none light up."
        return
    yield (
        "Linked words light up under the pointer, at a tap, or by keyboard (Tab to a text, then "
        "the arrow keys)."
    )
    if block.links == "reference":
        yield (
            "A word of an output has the links of the same word in the reference, and none if the "
            "reference lacks it. No number on this page depends on these links."
        )
        if block.note:
            yield block.note
    else:
        yield (
            f"The links were made by {block.links}, a statistical aligner, and are sometimes "
            "wrong, above all in broken output. No number on this page depends on them."
        )
    linked = {key for sentence in shown.sentences for key in sentence.linked}
    none = [f"\u201c{words}\u201d" for key, words in shown.labels.items() if key not in linked]
    if none and linked:
        yield f"The words of {enumeration(none)} are not linked."


def _controls(directions: Sequence[str]) -> Html:
    ways = [("", "all"), *((name, arrow(name)) for name in directions)]
    orders = (
        ("loss", "largest loss first"),
        ("gain", "smallest loss first"),
        ("file", "as in the data"),
    )
    return tag(
        "div",
        _choice("Direction", "of-direction", ways) if len(directions) > 1 else None,
        _choice("Order", "by-loss", orders),
        tag("label", "Search", tag("input", type="search", id="search", size=18), class_="control"),
        tag("span", id="sentence-count", role="status", class_="note"),
        class_="script controls",
    )


def _choice(words: str, name: str, values: Sequence[tuple[str, str]]) -> Html:
    options = [tag("option", label, value=value) for value, label in values]
    return tag("label", words, tag("select", options, id=name), class_="control")


def _card(sentence: Sentence, score: tuple[float, float], shown: Browser) -> Html:
    source, target = _languages(sentence.direction)
    digits = shown.data["digits"]
    before, after = (fixed(value, digits) for value in score)
    title = tag(
        "header",
        tag("bdi", arrow(sentence.direction), class_="direction"),
        tag("bdi", sentence.id, class_="id"),
        tag("span", f"{shown.measure} ", tag("b", f"{before} \u2192 {after}")),
    )
    marks = {ORIGINAL: (sentence.missing, "lost"), SELECTED: (sentence.made, "made")}
    lost = marks[ORIGINAL]
    texts = [
        _text("source", "Source", sentence.source, source or None),
        _text("reference", "Reference", sentence.reference, target or None, *lost),
        *(
            _text(
                f"out {MARKS.get(key, 'random')}",
                words,
                sentence.outputs.get(key),
                None,
                *marks.get(key, ()),
            )
            for key, words in shown.labels.items()
        ),
    ]
    said = [tag("p", words) for words in sentence.evidence]
    look = f"example of{len(shown.labels)}{' case' if said else ''}"
    return tag("article", title, tag("dl", texts), said, class_=look)


def _text(
    kind: str,
    label: str,
    text: str | None,
    language: str | None = None,
    words: Sequence[str] = (),
    mark: str = "",
) -> Html:
    """A text under its label, with these words in marks of a class."""
    content: Child = tag("em", "(nothing)" if text is not None else "–")
    if text and text.strip():
        content = marked(text, words, mark) if words else text
    shown = tag("dd", content, dir="auto", lang=language)
    return tag("div", tag("dt", label), shown, class_=f"text {kind}")


def by_loss(
    sentences: Sequence[Sentence],
) -> tuple[str, list[tuple[float, float]], list[int]]:
    """What sentences are measured by, before and after, and their places, most lost first."""
    stored = all(ORIGINAL in s.chrf and SELECTED in s.chrf for s in sentences)
    scores = [
        (s.chrf[ORIGINAL], s.chrf[SELECTED])
        if stored
        else (
            bigram_similarity(s.outputs[ORIGINAL], s.reference),
            bigram_similarity(s.outputs[SELECTED], s.reference),
        )
        for s in sentences
    ]
    order = sorted(range(len(scores)), key=lambda place: scores[place][1] - scores[place][0])
    return CHRF if stored else SIMILARITY, scores, order


def _fitting(sentences: Sequence[Sentence], sizes: Sequence[int]) -> set[int]:
    """The places of the sentences that fit: one of each direction by turns, up to `BYTES`."""
    by_direction: dict[str, list[int]] = {}
    for place, sentence in enumerate(sentences):
        by_direction.setdefault(sentence.direction, []).append(place)
    kept, left = list[int](), BYTES
    for turn in range(max(map(len, by_direction.values()))):
        round_ = [places[turn] for places in by_direction.values() if turn < len(places)]
        left -= sum(sizes[place] for place in round_)
        if left < 0 and kept:
            break
        kept += round_
    return set(kept)


def _row(
    place: int,
    sentence: Sentence,
    score: tuple[float, float],
    directions: Sequence[str],
    conditions: Sequence[str],
) -> list[Any]:
    """What the script reads: place, direction, id, texts, before, after, and words or 0.

    Words are of the source and of every other text: [gap, length, \u2026] in UTF-16 units, and for
    the others their links [source word, word, \u2026]; 0 for a text without.
    """
    outputs = [sentence.outputs.get(key) for key in conditions]
    texts = [sentence.source, sentence.reference, *outputs]
    before, after = (round(value, 4) for value in score)
    row: list[Any] = [place, directions.index(sentence.direction), sentence.id, texts]
    if not sentence.linked:
        return [*row, before, after, 0]
    source = next(iter(sentence.linked.values())).source
    words: list[Any] = [list(_units(source, sentence.source))]
    for key, text in zip((REFERENCE, *conditions), texts[1:], strict=True):
        linked = sentence.linked.get(key)
        words.append(
            _linked(linked, text) if linked and text is not None and linked.source == source else 0
        )
    return [*row, before, after, words]


def _linked(linked: LinkedWords, text: str) -> list[list[int]]:
    return [list(_units(linked.other, text)), [place for link in linked.links for place in link]]


def _units(spans: Sequence[tuple[int, int]], text: str) -> Iterator[int]:
    """Gaps and lengths of spans as the script counts: a character beyond U+FFFF is two units."""
    last = 0
    for start, end in spans:
        yield _length(text[last:start])
        yield _length(text[start:end])
        last = end


def _length(text: str) -> int:
    return len(text) + sum(character > "\uffff" for character in text)


def _languages(direction: str) -> list[str]:
    return [part.replace("_", "-") for part in languages_of(direction)]


def bigram_similarity(text: str, other: str) -> float:
    """Dice coefficient of the character bigrams of two texts, 0 to 1 (Dice 1945).

    Case and the amount of white space are ignored. It needs no tokenizer and suits every script.
    """
    bigrams, others = _bigrams(text), _bigrams(other)
    size = bigrams.total() + others.total()
    return 2 * (bigrams & others).total() / size if size else 1.0


def _bigrams(text: str) -> Counter[str]:
    plain = " ".join(text.casefold().split())
    padded = f" {plain} " if plain else ""  # so that a single character has pairs, too
    return Counter(padded[start : start + 2] for start in range(len(padded) - 1))


def marked(text: str, words: Collection[str], kind: str) -> list[Child]:
    """`text` with these words in marks of the class `kind`, however they are written.

    Case, accents and signs around a word do not matter. In scripts without spaces a word is
    marked wherever it stands. An empty text gives nothing.
    """
    wanted = {_plain(word) for word in words}
    inside = sorted(filter(_unspaced, words), key=len, reverse=True)
    pattern = "|".join(map(re.escape, inside)) or r"[^\W_](?:\S*[^\W_])?"
    parts: list[Child] = []
    reached = 0
    for match in re.finditer(pattern, text):
        if _plain(match[0]) in wanted:
            parts += [text[reached : match.start()], tag("mark", match[0], class_=kind)]
            reached = match.end()
    return [part for part in (*parts, text[reached:]) if part]


def _plain(word: str) -> str:
    """What two ways to write a word have in common."""
    spread = unicodedata.normalize("NFKD", word.casefold())
    return "".join(sign for sign in spread if not "\u0300" <= sign <= "\u036f").strip()


def _unspaced(word: str) -> bool:
    """Whether the word is of a script that puts no spaces between words."""
    return any(unicodedata.name(sign, "").startswith(UNSPACED) for sign in word)
