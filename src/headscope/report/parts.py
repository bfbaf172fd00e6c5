"""Pieces that several blocks share."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headscope.report.html import Child, Html, join, tag
from headscope.shown.words import sentence_of

RAMP = 16
"""The colour ramp has the steps 0 to RAMP, the classes `s0` to `s16`."""

DIVERGING = [*(f"n{step}" for step in range(RAMP // 2, 0, -1)), "m0",
             *(f"q{step}" for step in range(1, RAMP // 2 + 1))]  # fmt: skip
"""The classes of the ramp with two sides, from its lower end to its upper end."""

COLOURS = [*(f"s{step}" for step in range(RAMP + 1)), *DIVERGING]


@dataclass(frozen=True)
class Drawn:
    """A block as HTML.

    `data` is what its scripts read, by the identifier of the block; `scripts` name files among the
    assets; `parts` are what the page's choice can change in it, such as directions; `more` follows
    it, below the first screen where the block is the figure of a page.
    """

    html: Html
    data: Mapping[str, Any] = field(default_factory=dict)
    scripts: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    more: Html | None = None


def bdi(words: str) -> Html | str:
    """A name whose letters may run from right to left, kept apart from the words around it."""
    return words if words.isascii() else tag("bdi", words)


def section(
    identifier: str,
    title: Child,
    *children: Child,
    class_: str | None = None,
    closed: bool = False,
) -> Html:
    """A part of the page with its heading; `identifier` is what links point to.

    Of a closed one only the heading is seen before it is unfolded.
    """
    heading = tag("h2", title, id=f"{identifier}-title")
    labelled = {"id": identifier, "aria_labelledby": f"{identifier}-title", "class_": class_}
    if closed:
        return tag("section", tag("details", tag("summary", heading), *children), **labelled)
    return tag("section", heading, *children, **labelled)


def named(title: str) -> Html:
    """The title at the beginning of a caption."""
    return tag("strong", title if title.endswith("?") else title.rstrip(".") + ".")


def caption(title: str, note: str, *more: Child) -> Html:
    """The title of a figure, its note as a sentence, and what else there is to say."""
    parts: list[Child] = [named(title), sentence_of(note), *more]
    return join([[part, " "] for part in parts if part])


def figure(
    identifier: str | None, caption: Child, *children: Child, class_: str | None = None
) -> Html:
    """A figure below the words that say what was measured and its uncertainty."""
    return tag("figure", tag("figcaption", caption), *children, id=identifier, class_=class_)


def folded(words: str, *children: Child, **attributes: object) -> Html:
    """What is folded until the reader opens it."""
    return tag("details", tag("summary", words), *children, **attributes)


def scroll(*children: Child) -> Html:
    """A box that scrolls sideways by itself, by keyboard too, so that the page never has to.

    What is in it has a name: a table its caption, a map its description.
    """
    return tag("div", *children, class_="scroll", tabindex=0)


def table(
    caption: str,
    header: Sequence[Child],
    rows: Iterable[Sequence[Child]],
    said: Collection[int] = (),
    **attributes: object,
) -> Html:
    """A table whose first column names the row.

    `said` are the columns (from 0) that hold words in a table of numbers, in which all but the
    first else stand at the right.
    """

    def kind(column: int) -> str | None:
        return "said" if column in said else None

    head = [tag("th", cell, scope="col", class_=kind(at)) for at, cell in enumerate(header)]
    body = [
        tag(
            "tr",
            tag("th", first, scope="row"),
            [tag("td", cell, class_=kind(at)) for at, cell in enumerate(rest, 1)],
        )
        for first, *rest in rows
    ]
    return tag(
        "table",
        tag("caption", caption),
        tag("thead", tag("tr", head)),
        tag("tbody", body),
        **attributes,
    )


def legend(*entries: tuple[str, str]) -> Html:
    """A key: pairs of the class of a mark and its words."""
    items = [tag("li", tag("i", class_=mark, aria_hidden="true"), words) for mark, words in entries]
    return tag("ul", items, class_="legend")


def ends(values: Sequence[float | None]) -> tuple[float, bool]:
    """The end of the colours of these values, and whether they begin at minus that, not at 0.

    They do where a value below 0 would be seen: by half a step of the ramp with two sides or more.
    """
    known = [value for value in values if value is not None] or [0.0]
    size = max(map(abs, known)) or 1.0
    return size, min(known) <= -size / RAMP


def ramp_class(value: float | None, scale: float, diverging: bool = False) -> str:
    """The class of the colour of `value` on a ramp from 0, or from -`scale`, to `scale`."""
    if value is None:
        return "na"
    if diverging:
        return DIVERGING[_step(value, scale, RAMP // 2, -RAMP // 2) + RAMP // 2]
    return f"s{_step(value, scale, RAMP, 0)}"


def _step(value: float, scale: float, most: int, least: int) -> int:
    return min(most, max(least, round(value / scale * most)))


def var_style(**variables: float | None) -> str:
    """A style attribute of custom properties, shares of a width: `--v:0.25`."""
    return ";".join(
        f"--{name}:{round(min(1.0, max(0.0, value)), 4):g}"
        for name, value in variables.items()
        if value is not None
    )
