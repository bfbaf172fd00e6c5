"""Sentences of a head: source words above, target tokens below, an arc from each token to its peak.

The page holds sentences of a few heads as data, and the script draws those of the chosen one;
without scripts those of the best head stand there.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

from headscope.heads import Head
from headscope.report.html import Html, dump_json, tag
from headscope.report.parts import Drawn, caption, figure
from headscope.shown.blocks import HeadPlace, HeadSentences, PeakSentence
from headscope.shown.words import arrow, count

#: Sentences drawn at a time; bytes that a page may take for its data, and for what is drawn in it.
SHOWN, DATA, DRAWN = 10, 32_000, 20_000
#: Pixels: an em, the gaps between words and within one, and where arcs begin, end and letters are.
EM, BETWEEN, WITHIN = 14, 12, 3
WORDS, ARC_TOP, ARC_END, TOKENS, HEIGHT = 14, 20, 84, 98, 104
#: A row is spread at most so far to be as wide as the other.
SPREAD = 1.5
#: Of hits, misses and tokens that do not count: the sign in the data, colour, dashes and words.
LOOKS = {
    True: ("+", "key-base", "d0", "hit"),
    False: ("-", "key-top", "d1", "miss (a short stroke: the peak is on no source word)"),
    None: (".", "key-off", "d2", "not counted: the token has no link"),
}
_NARROW, _WIDE = (
    frozenset("fijlrtI.,;:'|!()[] \u0131"),
    frozenset("mwMW@%\u0429\u0448\u0449\u0436\u044e"),
)


class _Laid(NamedTuple):
    """A sentence pair with the middle of each word and token, in pixels."""

    part: str
    label: str
    words: tuple[str, ...]
    tokens: tuple[str, ...]
    words_at: tuple[int, ...]
    tokens_at: tuple[int, ...]
    width: int


class _Arcs(NamedTuple):
    """Where the peaks of a head lie in a text (by number), and which are hits (by sign)."""

    text: int
    peaks: tuple[int, ...]
    hit: str
    hits: int
    of: int


def draw_head_sentences(identifier: str, block: HeadSentences) -> Drawn:
    """The sentences of the best head, and those of the others as data."""
    texts, heads = _fitting(block)
    best = next(iter(heads))
    shown, left = list[Html](), DRAWN
    for number, arcs in enumerate(heads[best][:SHOWN]):
        drawn = _sentence(number, arcs, texts[arcs.text])
        left -= len(drawn.encode())
        if shown and left < 0:
            break
        shown.append(drawn)
    now = {best: "true"}
    chips = [
        [
            tag(
                "a",
                str(Head.parse(head)),
                href=f"#head={head}",
                class_="chip",
                aria_current=now.get(head),
            ),
            " ",
        ]
        for head in heads
    ]
    missing = min(SHOWN, len(heads[best])) - len(shown)
    rest = f"{count(missing, 'more sentence')} are drawn with scripts." if missing else None
    command = f"{block.command} {best}"
    html = figure(
        identifier,
        caption(block.title, block.note,
                tag("span", "Point at a token, tap it or use the arrow keys.", class_="script")),
        tag("p", "Head ", chips, tag("span", class_="note", role="status")),
        _legend(),
        tag("div", shown, class_="scroll arcs", tabindex=0, role="group",
            aria_label="Sentences with the peaks of the head"),
        tag("p", rest, class_="note unscripted") if rest else None,
        tag("p", "Switch this head off and watch the output: ", tag("code", command), " ",
            tag("button", "copy", class_="copy script", data_text=command)),
        class_="head-sentences",
    )  # fmt: skip
    data = {"command": block.command, "shown": SHOWN, "texts": texts, "heads": heads}
    parts = tuple(dict.fromkeys(text.part for text in texts))
    return Drawn(html, {identifier: data}, ("arcs.js",), parts if len(parts) > 1 else ())


def _fitting(block: HeadSentences) -> tuple[list[_Laid], dict[str, list[_Arcs]]]:
    """The texts and each head's arcs in them, as many as fit: the best of each part first."""
    ranks = dict[tuple[HeadPlace, str], int]()
    queue = list[tuple[int, HeadPlace, PeakSentence]]()
    for head, sentences in block.heads.items():
        for sentence in sentences:
            rank = ranks[head, sentence.part] = ranks.get((head, sentence.part), -1) + 1
            queue.append((rank, head, sentence))
    texts, heads, left = dict[_Laid, int](), dict[str, list[_Arcs]](), DATA
    for _, head, sentence in sorted(queue, key=lambda queued: queued[0]):
        laid, known = _laid(sentence), len(texts)
        # A token without letters, such as an end of text, has no link.
        kept = [at for at, (start, end) in enumerate(sentence.tokens) if start < end]
        peaks = tuple(sentence.peaks[at] for at in kept)
        hit = "".join(LOOKS[sentence.hit[at]][0] for at in kept)
        arcs = _Arcs(texts.get(laid, known), peaks, hit, sentence.hits, sentence.of)
        left -= len(dump_json([arcs, laid if arcs.text == known else None]).encode())
        if left < 0 and texts:
            break
        texts.setdefault(laid, known)
        heads.setdefault(Head(*head).key, []).append(arcs)
    return list(texts), heads


def _laid(sentence: PeakSentence) -> _Laid:
    tokens = [(start, end) for start, end in sentence.tokens if start < end]
    sides = ((sentence.source, sentence.words), (sentence.target, tokens))
    rows = [_row(text, spans) for text, spans in sides]
    width = max(row_width for _, row_width in rows)
    places = list[tuple[int, ...]]()
    for (text, _), (middles, row_width) in zip(sides, rows, strict=True):
        spread = min(SPREAD, width / max(1, row_width))
        spots = [spread * middle for middle in middles]
        places.append(tuple(round(width - x if _from_right(text) else x) for x in spots))
    words, labels = (tuple(text[a:b].strip() for a, b in spans) for text, spans in sides)
    label = " \u00b7 ".join(filter(None, (arrow(sentence.part), sentence.id)))
    return _Laid(sentence.part, label, words, labels, places[0], places[1], round(width))


def _row(text: str, spans: Sequence[tuple[int, int]]) -> tuple[list[float], float]:
    """The middle of each span if they stand in a row, and the width of all."""
    middles, reached, x = list[float](), None, 0.0
    for start, end in spans:
        if reached is not None:
            x += WITHIN if start <= reached else BETWEEN
        wide = EM * max(0.5, sum(map(_em, text[start:end])))
        middles.append(x + wide / 2)
        x, reached = x + wide, end
    return middles, x


def _em(sign: str) -> float:
    """About how wide a letter is."""
    if unicodedata.category(sign) in ("Mn", "Me", "Cf"):
        return 0.0
    if unicodedata.east_asian_width(sign) in "WF":
        return 1.0
    return 0.36 if sign in _NARROW else 0.9 if sign in _WIDE else 0.72 if sign.isupper() else 0.6


def _from_right(text: str) -> bool:
    """Whether the first letter is of a script that runs from right to left."""
    kinds = (unicodedata.bidirectional(sign) for sign in text)
    return next((kind for kind in kinds if kind in ("L", "R", "AL")), "L") != "L"


def _sentence(number: int, arcs: _Arcs, text: _Laid) -> Html:
    """One sentence, as the script draws it too."""
    words = [
        tag("text", word, x=x, y=WORDS) for word, x in zip(text.words, text.words_at, strict=True)
    ]
    looks = {sign: look for sign, *look in LOOKS.values()}
    tokens = []
    middle = (ARC_TOP + ARC_END) // 2
    for token, x, peak, sign in zip(text.tokens, text.tokens_at, arcs.peaks, arcs.hit, strict=True):
        colour, dashes, _ = looks[sign]
        to, line = text.words_at[peak] if peak >= 0 else None, None
        if to is not None or sign == "-":
            end = "v-14" if to is None else f"C{x} {middle} {to} {middle} {to} {ARC_TOP}"
            line = tag("path", d=f"M{x} {ARC_END}{end}", class_=dashes)
        label = tag("text", token, x=x, y=TOKENS)
        tokens.append(tag("g", line, label, class_=f"cell {colour}", x=x, y=number))
    return tag(
        "div",
        tag("p", tag("bdi", text.label), f" \u00b7 {arcs.hits} of {arcs.of} hit", class_="note"),
        tag("svg", words, tokens, width=text.width, height=HEIGHT,
            viewBox=f"0 0 {text.width} {HEIGHT}"),
    )  # fmt: skip


def _legend() -> Html:
    items = []
    for _, colour, dashes, words in LOOKS.values():
        line = tag("line", x1=0, x2=30, y1=6, y2=6, class_=dashes)
        drawing = tag("svg", line, viewBox="0 0 30 12")
        items.append(tag("li", tag("i", drawing, class_=f"line {colour}"), words))
    return tag("ul", items, class_="legend")
