"""The three classes of heads, of the mean and of every direction."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headscope.report.html import Child, Html, tag
from headscope.report.parts import figure, legend, scroll, section, var_style
from headscope.results.classes import Classes

__all__ = ["classes_figure"]

CLASSES = (("ta", "token alignment"), ("low", "low activity"), ("off", "inactive"))


def classes_figure(
    rows: Sequence[tuple[Child, Classes, Classes | None]],
    words: Callable[[float], str],
    title: str,
    by: str,
    caption: Child,
) -> Html:
    """A row of bars each, its classes by TS and, where chance is known, by TS minus chance.

    `words` says the numbers behind the bars, `title` what they are, `by` what a row is of.
    """
    chance = any(above is not None for _, _, above in rows)
    body = []
    for label, plain, above in rows:
        bars = [tag("span", _bar(each), class_="stack") for each in (plain, above) if each]
        numbers = [words(number) for number in plain.each]
        if chance:
            numbers += ["\u2013"] * 3 if above is None else [words(each) for each in above.each]
        body.append(
            tag(
                "tr",
                tag("th", label, scope="row"),
                tag("td", bars, class_="wide", aria_hidden="true"),
                [tag("td", number, class_="number") for number in numbers],
            )
        )
    groups = ["by TS"] + (["by TS \u2212 chance"] if chance else [])
    top = [tag("th", group, scope="colgroup", colspan=3) for group in groups]
    names = [
        tag("th", name, scope="col", class_="number")
        for _ in groups
        for name in ("align", "low", "inactive")
    ]
    header = tag(
        "thead",
        tag("tr", tag("td", rowspan=2), tag("td", class_="wide", rowspan=2), top),
        tag("tr", names),
    )
    unseen = tag("caption", title, class_="unseen")
    picture = tag("table", unseen, header, tag("tbody", body), class_="classes")
    return section(
        "classes",
        "Three classes of heads",
        figure(
            "classes-figure",
            caption,
            legend(*((f"key-{mark}", name) for mark, name in CLASSES)),
            scroll(f"Classes of heads by {by}", picture),
        ),
    )


def _bar(classes: Classes) -> list[Html]:
    total = max(1, sum(classes.each))
    return [
        tag("i", class_=f"key-{mark}", style=var_style(w=number / total))
        for (mark, _), number in zip(CLASSES, classes.each, strict=True)
    ]
