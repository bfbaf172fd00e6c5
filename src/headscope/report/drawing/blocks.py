"""Any block as HTML."""

from __future__ import annotations

from typing import assert_never

from headscope.report.drawing import arcs, charts, heads, key_text, maps, sentences, tables
from headscope.report.html import tag
from headscope.report.parts import Drawn, bdi, caption, figure, folded
from headscope.shown import blocks
from headscope.shown.words import count, sentence_of

OPEN, FEW = 5, 8
"""So many texts of more than the second stand open."""


def draw(identifier: str, block: blocks.Block) -> Drawn:
    """A block; `identifier` is that of its element, and names its data."""
    match block:
        case blocks.Table():
            return tables.draw_table(identifier, block)
        case blocks.Heatmap():
            return maps.draw_heatmap(identifier, block)
        case blocks.Lines():
            return charts.draw_lines(identifier, block)
        case blocks.Bars():
            return charts.draw_bars(identifier, block)
        case blocks.Forest():
            return charts.draw_forest(identifier, block)
        case blocks.HeadTable():
            return heads.draw_head_table(identifier, block)
        case blocks.HeadMaps():
            return maps.draw_head_maps(identifier, block)
        case blocks.HeadSets():
            return heads.draw_head_sets(identifier, block)
        case blocks.Histograms():
            return charts.draw_histograms(identifier, block)
        case blocks.Sentences():
            return sentences.draw_sentences(identifier, block)
        case blocks.HeadSentences():
            return arcs.draw_head_sentences(identifier, block)
        case blocks.KeyText():
            return key_text.draw_key_text(identifier, block)
        case blocks.Text():
            return _text(identifier, block)
        case blocks.NotMeasured():
            title = tag("strong", block.title, ": ")
            why = sentence_of(block.why)
            return Drawn(tag("p", title, "not measured. ", why, id=identifier, class_="note"))
    assert_never(block)  # a block that is forgotten is a type error


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
