"""Pieces that several sections share."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from headscope.report.html import Child, Html, tag

RAMP = 16
"""The colour ramp has the steps 0 to RAMP, the classes `s0` to `s16` of the style sheet."""


def section(identifier: str, title: str, *children: Child, class_: str | None = None) -> Html:
    """A part of the page with its heading; `identifier` is what links point to."""
    heading = tag("h2", title, id=f"{identifier}-title")
    labelled = {"id": identifier, "aria_labelledby": f"{identifier}-title"}
    return tag("section", heading, *children, class_=class_, **labelled)


def named(title: str) -> Html:
    """The title at the beginning of a caption."""
    return tag("strong", title if title.endswith("?") else title.rstrip(".") + ".", " ")


def figure(identifier: str, caption: Child, *children: Child, class_: str | None = None) -> Html:
    """A figure and, below it, the words that say what was measured and how sure it is."""
    name = f"{identifier}-caption"
    below = tag("figcaption", caption, id=name)
    return tag("figure", *children, below, id=identifier, class_=class_, aria_labelledby=name)


def scroll(label: str, *children: Child) -> Html:
    """A box that scrolls sideways by itself, by keyboard too, so that the page never has to."""
    return tag("div", *children, class_="scroll", tabindex=0, role="region", aria_label=label)


def table(
    caption: str,
    header: Sequence[Child],
    rows: Iterable[Sequence[Child]],
    said: Collection[int] = (),
    **attributes: object,
) -> Html:
    """A table whose first column names the row.

    `said` are the columns (from 0) that hold words in a table of the class `numbers`, in which
    all but the first else stand at the right.
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


def ramp_class(value: float | None, scale: float) -> str:
    """The class of the colour that stands for `value` on a ramp from 0 to `scale`."""
    if value is None:
        return "na"
    return f"s{min(RAMP, max(0, round(value / scale * RAMP)))}"


def diverging_class(value: float | None, scale: float) -> str:
    """The class of the colour of `value` on a ramp from -`scale` over 0 to `scale`.

    Its two sides, `n1` to `n8` and `q1` to `q8`, are of the style sheet `paper.css`.
    """
    if value is None:
        return "na"
    half = RAMP // 2
    step = min(half, max(-half, round(value / scale * half)))
    return f"q{step}" if step > 0 else f"n{-step}" if step < 0 else "m0"


def var_style(**variables: float | None) -> str:
    """A style attribute of custom properties, shares of a width: `--v:0.25`."""
    return ";".join(
        f"--{name}:{min(1.0, max(0.0, value)):.4f}"
        for name, value in variables.items()
        if value is not None
    )
