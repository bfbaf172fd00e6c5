"""Any block as HTML."""

from __future__ import annotations

from headscope.report.drawing.drawn import Drawn
from headscope.report.drawing.figures import told_figure
from headscope.report.drawing.heads import head_maps, head_sets, head_table
from headscope.report.drawing.histograms import draw_histograms
from headscope.report.drawing.key_text import key_text
from headscope.report.drawing.sentences import sentences
from headscope.report.drawing.tables import table_figure
from headscope.report.html import join, tag
from headscope.report.parts import figure, named
from headscope.shown.blocks import (
    Bars,
    Block,
    HeadMaps,
    HeadSets,
    HeadTable,
    Heatmap,
    Histograms,
    KeyText,
    Lines,
    NotMeasured,
    Sentences,
    Table,
    Text,
)
from headscope.shown.words import count, sentence_of

OPEN, FEW = 5, 8
"""So many texts of more than the second stand open."""


def draw(identifier: str, block: Block) -> Drawn:
    """A block; `identifier` is that of its element, and names its data."""
    match block:
        case Table():
            return Drawn(table_figure(identifier, block))
        case Heatmap() | Lines() | Bars():
            return Drawn(told_figure(identifier, block))
        case HeadTable():
            return head_table(identifier, block)
        case HeadMaps():
            return head_maps(identifier, block)
        case HeadSets():
            return head_sets(identifier, block)
        case Histograms():
            return draw_histograms(identifier, block)
        case Sentences():
            return sentences(identifier, block)
        case KeyText():
            return key_text(identifier, block)
        case Text():
            return _text(identifier, block)
        case NotMeasured():
            words = join(tag("strong", block.title, ": "), "not measured. ", sentence_of(block.why))
            return Drawn(tag("p", words, id=identifier, class_="note"))
        case _:
            raise TypeError(f"{type(block).__name__} is no block that can be drawn")


def _text(identifier: str, block: Text) -> Drawn:
    rows = []
    for name, words in block.texts:
        shown = words if words.strip() else tag("em", "(nothing)")
        text = tag("dd", shown, dir="auto")
        rows.append(tag("div", tag("dt", tag("bdi", name)), text, class_="text"))
    note = sentence_of(block.note) if block.note else None
    caption = join(named(block.title), note)
    first = 0 if block.folded else OPEN if len(rows) > FEW else len(rows)
    parts = [tag("dl", rows[:first], class_="texts")] if first else []
    if left := len(rows) - first:
        words = f"The other {left}" if first else count(left, "text")
        rest = tag("dl", rows[first:], class_="texts")
        parts.append(tag("details", tag("summary", words), rest))
    return Drawn(figure(identifier, caption, *parts))
