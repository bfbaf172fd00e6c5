"""The page's first lines: what was found, in words made from the figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headscope.heads import count_words
from headscope.report.html import Html, join, tag
from headscope.report.records.atlas import AtlasRecord
from headscope.shown.words import count, fixed, percent, ranges, sentence_of

__all__ = ["summary_section"]


def summary_section(record: AtlasRecord) -> Html:
    """The plain-words summary: how many heads, where, how sure."""
    tiles = [tile for tile in _tiles(record) if tile]
    words = [_found(record), _sure(record)]
    return tag(
        "section",
        tag("h2", "In short", id="summary-title", class_="unseen"),
        tag("dl", tiles, class_="tiles"),
        [tag("p", text) for text in words if text],
        id="summary",
        aria_labelledby="summary-title",
    )


def _tiles(record: AtlasRecord) -> list[Html]:
    aligned, beside = _aligned(record)
    tiles = [
        (
            f"{count_words(aligned)} of {record.scores[record.main].geometry.total}",
            f"token alignment heads{f'; {beside}' if beside else ''}{_mean(record)}",
        )
    ]
    return [tag("div", tag("dt", words), tag("dd", number)) for number, words in tiles]


def _aligned(record: AtlasRecord) -> tuple[float, str]:
    """How many heads are token alignment heads by what ranks them, and by the other measure."""
    plain = record.counts[record.main].token_alignment
    above = record.counts_above_chance.get(record.main)
    if above is None:
        return plain, ""
    if record.rank == "score":
        return plain, f"corrected for chance {count_words(above.token_alignment)}"
    return above.token_alignment, f"by TS alone, as in the paper, {count_words(plain)}"


def _mean(record: AtlasRecord) -> str:
    many = record.counted_over
    return f" (mean of {many} directions)" if many > 1 else ""


def _found(record: AtlasRecord) -> Html:
    scores, (number, beside) = record.scores[record.main], _aligned(record)
    total, corrected = scores.geometry.total, record.rank == "above-chance"
    ranked = scores.ranked(record.rank)
    head = ranked[0][0]
    entry: Mapping[str, Any] = next(one for one in scores.records(record.rank) if one["rank"] == 1)
    where = ""
    layers = [one.layer for one, value in ranked if value > record.threshold]
    if layers:
        # Of several directions the number of heads is a mean, and these are counts on the mean.
        most = max(map(layers.count, layers))
        fullest = {layer for layer in layers if layers.count(layer) == most}
        each = f" ({most}{' each' if len(fullest) > 1 else ''})" if record.counted_over == 1 else ""
        where = f" They lie in {_layers(layers)}" + (
            f", most of them in {_layers(fullest)}{each}." if fullest != set(layers) else "."
        )
    beyond = f" {sentence_of(f'{beside} exceed {fixed(record.threshold, 2)}')}" if beside else ""
    interval = (
        ""
        if entry["low"] is None
        else f" (95\u00a0% interval {fixed(entry['low'], 2)} to {fixed(entry['high'], 2)})"
    )
    chance = (
        "" if entry.get("chance") is None else f", against {fixed(entry['chance'], 2)} by chance"
    )
    return join(
        tag(
            "strong",
            f"{count_words(number)} of the {total} attention heads ({percent(number / total)}) are "
            "token alignment heads",
        ),
        _mean(record),
        ": while the model writes a translation, the place they look at most is, for more than "
        f"{percent(record.threshold)} of the tokens"
        f"{' (corrected for chance)' if corrected else ''}, the source word that the token "
        f"translates.{where}{beyond} The strongest is head {head}: "
        f"{fixed(entry['score'], 2)}{interval}{chance}.",
    )


def _layers(numbers: Iterable[int]) -> str:
    known = set(numbers)
    return f"{'layer' if len(known) == 1 else 'layers'}\u00a0{ranges(known)}"


def _sure(record: AtlasRecord) -> Html:
    data = dict(record.result.get("data") or {})
    found = sum(int(part.get("found_on") or 0) for part in data.values())
    text = f"scores rest on {count(found, 'sentence pair')}."
    return tag("span", f"How sure: {text}", class_="sure")
