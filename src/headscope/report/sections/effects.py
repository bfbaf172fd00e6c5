"""chrF++ with and without heads for many directions: a line of marks for each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import ceil

from headscope.report.charts import SAID
from headscope.report.html import Html, tag
from headscope.report.parts import legend, var_style
from headscope.results.removal import Effect
from headscope.shown.words import MEAN, direction_label, signed

__all__ = ["axis_end", "effect_key", "effect_rows", "heads_list", "is_crowded"]


def axis_end(values: Iterable[float]) -> float:
    """Where an axis for these chrF++ values ends, a round number up to 100."""
    return float(min(100, max(10, ceil(max(values, default=0.0) / 10) * 10)))


def is_crowded(effect: Effect) -> bool:
    """Whether there are more draws than can be told apart as rings."""
    return max(len(effect.random), len(effect.matched)) > SAID


def effect_rows(effects: Mapping[str, Effect], directions: int) -> Html:
    """One line a direction: as is, every random draw, the highest heads, and the change."""
    end = axis_end(value for one in effects.values() for value in one.values)
    rows = [_row(name, effect, end, directions) for name, effect in effects.items()]
    return tag("div", _axis(end), rows, class_="dots", aria_hidden="true")


def effect_key(matched: bool = False, many: bool = False) -> Html:
    """The key of the marks; those of `many` draws are strokes."""
    end = "-stroke" if many else ""
    entries = [
        ("dot-base", "as is"),
        (f"dot-random{end}", "random heads removed, one mark a draw"),
    ]
    if matched:
        entries.append((f"dot-matched{end}", "random heads of the same layers, one mark a draw"))
    return legend(*entries, ("dot-top", "highest heads removed"))


def heads_list(k: int, heads: Iterable[str], draws: Mapping[str, Iterable[Iterable[str]]]) -> Html:
    """The heads that were removed, to be copied; draws by the words of their kind."""
    drawn = [
        [
            tag("p", f"{words}:"),
            tag("ol", [tag("li", tag("code", ", ".join(one))) for one in several], start=0),
        ]
        for words, several in draws.items()
    ]
    return tag(
        "details",
        tag("summary", f"The {k} heads that were removed" if k != 1 else "The head removed"),
        tag(
            "p",
            "Highest, ready to be given to ",
            tag("code", "--heads"),
            ": ",
            tag("code", ",".join(heads), class_="heads"),
        ),
        drawn,
    )


def _row(name: str, effect: Effect, end: float, directions: int) -> Html:
    many = is_crowded(effect)
    span = var_style(
        a=min(effect.top, effect.baseline) / end, z=max(effect.top, effect.baseline) / end
    )
    marks = [
        tag("b", style=span),
        _rings(effect.random, end),
        _rings(effect.matched, end, "matched"),
        tag("i", class_="base", style=var_style(v=effect.baseline / end)),
        tag("i", class_="top", style=var_style(v=effect.top / end)),
    ]
    return tag(
        "div",
        tag("span", direction_label(name, directions), class_="name"),
        tag("span", marks, class_="track many" if many else "track"),
        tag("span", signed(effect.top - effect.baseline), class_="change"),
        class_="row mean" if name == MEAN else "row",
    )


def _rings(draws: Iterable[float], end: float, class_: str | None = None) -> list[Html]:
    """A mark for each draw; draws at one place, to a thousandth of the width, share theirs."""
    places = dict.fromkeys(round(draw / end, 3) for draw in draws)
    return [tag("u", class_=class_, style=var_style(v=place)) for place in places]


def _axis(end: float) -> Html:
    step = 20 if end > 50 else 10 if end > 20 else 5
    ticks = [
        tag("span", tick, style=var_style(v=tick / end)) for tick in range(0, int(end) + 1, step)
    ]
    return tag(
        "div",
        tag("span", "chrF++", class_="name"),
        tag("span", ticks, class_="track"),
        tag("span", "change", class_="change"),
        class_="row axis",
    )
