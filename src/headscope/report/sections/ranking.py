"""The score table: every head with its interval, chance and the split by surface form."""

from __future__ import annotations

from headscope.heads import Head, HeadScores
from headscope.report.html import Html, join, tag
from headscope.report.parts import figure, scroll, section, var_style
from headscope.report.records.atlas import AtlasRecord
from headscope.report.sections.heads import head_values, scale_of
from headscope.shown.words import between, fixed

__all__ = ["SHOWN", "class_of", "ranking_section"]

SHOWN = 30
"""Rows shown before the reader asks for all."""

# column, heading, whether it can be sorted by, explanation
COLUMNS = (
    ("rank", "#", False, ""),
    ("head", "Head", True, "layer.head, both from 0"),
    ("range", "", False, ""),
    ("score", "TS", True, "Translation Score"),
    ("interval", "Interval", False, "95\u00a0% bootstrap interval over sentences"),
    ("chance", "Chance", True, "the same peaks against the links of other sentences"),
    ("above", "TS \u2212 chance", True, ""),
    ("identical", "Same form", True, "TS where source and target word have the same form"),
    ("different", "Other form", True, "TS where source and target word differ"),
    ("class", "Class", False, ""),
)


def ranking_section(record: AtlasRecord) -> Html:
    """The table of the highest heads, which the script sorts and extends to all."""
    scores, scale = record.scores[record.main], scale_of(record)
    values = head_values(scores)  # as the script has them, so that it writes the same digits
    place = {head: index for index, head in enumerate(scores.geometry.heads())}
    rows = [
        _row(
            rank,
            head,
            {name: numbers[place[head]] for name, numbers in values.items()},
            scale,
            class_of(ranked_by, record.threshold, record.inactive),
        )
        for rank, (head, ranked_by) in enumerate(scores.ranked(record.rank)[:SHOWN], 1)
    ]
    picture = tag(
        "table",
        tag("caption", f"Heads by {_by(record)}", class_="unseen"),
        tag("thead", tag("tr", [_heading(*column, record) for column in COLUMNS])),
        tag("tbody", rows),
        id="ranking-table",
        class_="ranking",
        data_shown=SHOWN,
    )
    more = tag(
        "button",
        f"Show all {scores.geometry.total} heads",
        id="more",
        type="button",
        class_="script",
        aria_expanded="false",
        hidden=scores.geometry.total <= SHOWN,
    )
    return section(
        "scores",
        "The scores",
        figure("ranking", _caption(scores, record), scroll("Score table", picture), more),
    )


def class_of(score: float, threshold: float, inactive: float) -> str:
    """The class of a head by its score, or by what else it is ranked by."""
    if score > threshold:
        return "token alignment"
    return "low activity" if score > inactive else "inactive"


def _by(record: AtlasRecord) -> str:
    return "Translation Score" + (" \u2212 chance" if record.rank == "above-chance" else "")


def _heading(name: str, words: str, sortable: bool, title: str, record: AtlasRecord) -> Html:
    first = "above" if record.rank == "above-chance" else "score"
    if name == "rank":
        title = f"rank by {_by(record)}"
    if name == "class":
        title = (
            f"by {_by(record)}: token alignment above {fixed(record.threshold, 2)}, inactive at "
            f"most {fixed(record.inactive, 2)}"
        )
    content: Html | str = words
    if sortable:
        content = tag("button", words, type="button", data_sort=name)
    return tag(
        "th",
        content,
        scope="col",
        data_c=name,
        title=title or None,
        aria_sort="descending" if name == first else None,
    )


def _row(rank: int, head: Head, entry: dict[str, float | None], scale: float, class_: str) -> Html:
    score, chance = entry["score"] or 0.0, entry.get("chance")
    low, high = entry.get("low"), entry.get("high")

    def share(value: float | None) -> float | None:
        return None if value is None else value / scale

    picture = tag(
        "span",
        tag("b"),
        tag("i"),
        class_="range",
        style=var_style(v=share(score), lo=share(low), hi=share(high), c=share(chance)),
    )
    cells: dict[str, Html | str | int] = {
        "rank": rank,
        "head": str(head),
        "range": picture,
        "score": fixed(score, 3),
        "interval": between(low, high, 3),
        "chance": fixed(chance, 3),
        "above": fixed(entry.get("above"), 3),
        "identical": fixed(entry.get("identical"), 3),
        "different": fixed(entry.get("different"), 3),
        "class": class_,
    }
    return tag(
        "tr",
        [
            tag("th", value, scope="row", data_c=name)
            if name == "head"
            else tag("td", value, data_c=name, aria_hidden="true" if name == "range" else None)
            for name, value in cells.items()
        ],
    )


def _caption(scores: HeadScores, record: AtlasRecord) -> Html:
    interval = (
        "The band is the 95\u00a0% interval from resampling sentences: it tells how far the score "
        "depends on these sentences, not on this choice of language, data or aligner. "
        if scores.low is not None
        else "The mean over directions carries no interval here; the single directions do. "
    )
    return join(
        tag("strong", f"Every head by {_by(record)}, highest first. "),
        "In the picture the dot is the score, the grey tick is chance. ",
        interval,
        "Same form and other form split the score by whether the aligned source word is spelled "
        "like the target word: names, digits and punctuation can be hit by copying alone, so a "
        "head that translates keeps its score in the second column.",
    )
