"""Any block as HTML."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headscope.report.drawing.charts import draw_bars, draw_histograms, draw_lines
from headscope.report.drawing.heads import draw_head_sets, draw_head_table
from headscope.report.drawing.key_text import draw_key_text
from headscope.report.drawing.maps import draw_head_maps, draw_heatmap
from headscope.report.drawing.sentences import draw_sentences
from headscope.report.drawing.tables import draw_table
from headscope.report.html import tag
from headscope.report.parts import Drawn, bdi, caption, figure, folded
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
    return DRAWN[type(block)](identifier, block)


def _text(identifier: str, block: Text) -> Drawn:
    rows = []
    for name, words in block.texts:
        shown = words if words.strip() else tag("em", "(nothing)")
        rows.append(tag("div", tag("dt", bdi(name)), tag("dd", shown, dir="auto")))
    first = 0 if block.folded else OPEN if len(rows) > FEW else len(rows)
    parts = [tag("dl", rows[:first], class_="texts")] if first else []
    if left := rows[first:]:
        words = f"The other {len(left)}" if first else count(len(left), "text")
        parts.append(folded(words, tag("dl", left, class_="texts")))
    return Drawn(figure(identifier, caption(block.title, block.note), *parts))


def _not_measured(identifier: str, block: NotMeasured) -> Drawn:
    title = tag("strong", block.title, ": ")
    words = tag("p", title, "not measured. ", sentence_of(block.why), id=identifier, class_="note")
    return Drawn(words)


DRAWN: dict[type[Block], Callable[[str, Any], Drawn]] = {
    Table: draw_table,
    Heatmap: draw_heatmap,
    Lines: draw_lines,
    Bars: draw_bars,
    HeadTable: draw_head_table,
    HeadMaps: draw_head_maps,
    HeadSets: draw_head_sets,
    Histograms: draw_histograms,
    Sentences: draw_sentences,
    KeyText: draw_key_text,
    Text: _text,
    NotMeasured: _not_measured,
}
