"""Any block as HTML."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headscope.report.drawing import arcs, charts, heads, key_text, maps, sentences, tables
from headscope.report.html import tag
from headscope.report.parts import Drawn, bdi, caption, figure, folded
from headscope.shown import blocks
from headscope.shown.words import count, sentence_of

OPEN, FEW = 5, 8
"""So many texts of more than the second stand open."""


def draw(identifier: str, block: blocks.Block) -> Drawn:
    """A block; `identifier` is that of its element, and names its data."""
    return DRAWN[type(block)](identifier, block)


def _text(identifier: str, block: blocks.Text) -> Drawn:
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


def _not_measured(identifier: str, block: blocks.NotMeasured) -> Drawn:
    title = tag("strong", block.title, ": ")
    words = tag("p", title, "not measured. ", sentence_of(block.why), id=identifier, class_="note")
    return Drawn(words)


DRAWN: dict[type[blocks.Block], Callable[[str, Any], Drawn]] = {
    blocks.Table: tables.draw_table,
    blocks.Heatmap: maps.draw_heatmap,
    blocks.Lines: charts.draw_lines,
    blocks.Bars: charts.draw_bars,
    blocks.HeadTable: heads.draw_head_table,
    blocks.HeadMaps: maps.draw_head_maps,
    blocks.HeadSets: heads.draw_head_sets,
    blocks.Histograms: charts.draw_histograms,
    blocks.Sentences: sentences.draw_sentences,
    blocks.HeadSentences: arcs.draw_head_sentences,
    blocks.KeyText: key_text.draw_key_text,
    blocks.Text: _text,
    blocks.NotMeasured: _not_measured,
}
