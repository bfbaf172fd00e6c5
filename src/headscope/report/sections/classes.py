"""The three classes of heads, of the mean and of every direction."""

from __future__ import annotations

from headscope.heads import count_words
from headscope.report.html import Html, join, tag
from headscope.report.parts import figure, legend, scroll, section, var_style
from headscope.report.records.atlas import AtlasRecord, Counts
from headscope.report.words import direction_label, fixed

__all__ = ["classes_section"]

CLASSES = (("ta", "token alignment"), ("low", "low activity"), ("off", "inactive"))


def classes_section(record: AtlasRecord) -> Html:
    """Stacked bars of the classes, by TS and by TS minus chance, with their numbers."""
    rows = []
    for name in record.scores:
        plain, above = record.counts[name], record.counts_above_chance.get(name)
        bars = [tag("span", _bar(plain), class_="stack")]
        if above is not None:
            bars.append(tag("span", _bar(above), class_="stack"))
        numbers = [*_numbers(plain), *(_numbers(above) if record.counts_above_chance else [])]
        label = direction_label(name, len(record.directions))
        rows.append(
            tag(
                "tr",
                tag("th", label, scope="row"),
                tag("td", bars, class_="wide", aria_hidden="true"),
                [tag("td", number, class_="number") for number in numbers],
            )
        )
    groups = ["by TS"] + (["by TS \u2212 chance"] if record.counts_above_chance else [])
    top = [tag("th", group, scope="colgroup", colspan=3) for group in groups]
    names = [
        tag("th", words, scope="col", class_="number")
        for _ in groups
        for words in ("align", "low", "inactive")
    ]
    header = tag(
        "thead",
        tag("tr", tag("td", rowspan=2), tag("td", class_="wide", rowspan=2), top),
        tag("tr", names),
    )
    caption = tag("caption", "Heads in each class, by direction", class_="unseen")
    picture = tag("table", caption, header, tag("tbody", rows), class_="classes")
    return section(
        "classes",
        "Three classes of heads",
        figure(
            "classes-figure",
            _caption(record),
            legend(*((f"key-{mark}", words) for mark, words in CLASSES)),
            scroll("Classes of heads by direction", picture),
        ),
    )


def _caption(record: AtlasRecord) -> Html:
    threshold, inactive = fixed(record.threshold, 2), fixed(record.inactive, 2)
    many = record.counted_over
    two = (
        "The upper bar of a row sorts heads by TS, the lower one by TS \u2212 chance: what a head "
        "gains by looking at the right word and not merely at the usual place. Where sentences "
        "are short the two differ widely, and the lower one is the one to go by. "
        if record.counts_above_chance
        else ""
    )
    return join(
        tag("strong", f"How the {record.scores[record.main].geometry.total} heads divide. "),
        f"Token alignment: score above {threshold}; low activity: above {inactive} and at most "
        f"{threshold}; inactive: at most {inactive}. ",
        f"The first row is the mean of the counts of {many} directions. " if many > 1 else "",
        two,
        "The thresholds cut a continuous scale; heads near them may change class with other "
        "sentences, as the intervals in the table show.",
    )


def _bar(counts: Counts) -> list[Html]:
    shares = (counts.token_alignment, counts.low_activity, counts.inactive)
    return [
        tag("i", class_=f"key-{mark}", style=var_style(w=number / max(1, sum(shares))))
        for (mark, _), number in zip(CLASSES, shares, strict=True)
    ]


def _numbers(counts: Counts | None) -> list[str]:
    if counts is None:
        return ["\u2013"] * 3
    numbers = (counts.token_alignment, counts.low_activity, counts.inactive)
    return [count_words(number) for number in numbers]
