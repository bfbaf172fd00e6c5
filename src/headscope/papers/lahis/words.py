"""What the tables and sentences of all experiments have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headscope.data.languages import is_known, language_name
from headscope.papers.lahis.scale import HEADS, PAPER_SCALE, said
from headscope.papers.paper import Setting
from headscope.shown.blocks import NOT_RUN, Cell, Row, Table

#: What no interval of an experiment holds.
SAMPLE = (
    "Which heads are specific depends on the documents they are found on: with the bundled model, "
    "other samples of the same languages gave partly other heads (docs/languages.md), and no "
    "interval here holds that uncertainty."
)
MODELS = "Aya-23-8B, Llama-3.2-3B, Mistral-7B-v0.1"


def cell(one: Mapping[str, Any], digits: int = 3, factor: float = 1.0) -> Cell:
    """A value with its interval."""
    value, low, high = (factor * float(one[key]) for key in ("value", "low", "high"))
    return Cell(value, low, high, digits=digits)


def empty(columns: int, why: str = NOT_RUN) -> tuple[Cell, ...]:
    """A row without figures, and why."""
    return tuple(Cell(why=why) for _ in range(columns))


def table_of(
    title: str,
    rows: Mapping[str, Any],
    columns: Mapping[str, Callable[[Any], Cell]],
    note: str = "",
) -> Table:
    """A row for each of `rows`, with what every column makes of it."""
    made = [Row(name, tuple(each(one) for each in columns.values())) for name, one in rows.items()]
    return Table(title, tuple(columns), tuple(made), note=note)


def sign(one: Mapping[str, Any]) -> int:
    """1 if the whole interval lies above zero, -1 if below, 0 if zero is in it."""
    return int(one["low"] > 0) - int(one["high"] < 0)


def spread(one: Mapping[str, Any], digits: int = 3) -> str:
    """`0.047, 0.010 to 0.088`."""
    value, low, high = (f"{float(one[key]):.{digits}f}" for key in ("value", "low", "high"))
    return f"{value}, {low} to {high}"


def span(values: Sequence[float], digits: int = 3) -> str:
    """`0.079 to 0.100`, or the one value."""
    low, high = (f"{one:.{digits}f}" for one in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def count(number: int, what: str) -> str:
    """`1 head`, `2 heads`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def several(number: int, of: int, what: str = "languages") -> str:
    """`in 4 of 5 languages`."""
    return f"in {number} of {of} {what}"


def names(codes: Sequence[str]) -> str:
    """`German, Russian and Turkish`; what is no language stands as it is."""
    known = [_name(one) for one in codes]
    return " and ".join(([", ".join(known[:-1])] if known[1:] else []) + known[-1:])


def draws_limit(draws: int) -> str:
    """What so many random draws can show at best."""
    return f"with {count(draws, 'random draw')} p over draws is at least {1 / (draws + 1):.2g}"


def _name(code: str) -> str:
    return language_name(code) if is_known(code) else code


def documents_said(found: Mapping[str, Any]) -> str:
    """On how many documents intervals of losses rest."""
    tested = [one["examples"] for one in found["data"].values()]
    return (
        f"Intervals are over {span(tested, 0)} documents of each language, and beside the random "
        "sets that were drawn."
    )


def notes(setting: Setting) -> tuple[str, ...]:
    """What holds for every experiment: settings, published figures, documents."""
    told = [
        said(setting),
        # Our sources have the paper's abstract and the published code's description, and no table.
        "No published figure is at hand but the numbers of documents that a language is scored on "
        f"({PAPER_SCALE.found:,}) and of trained gates; the paper's models are {MODELS}.",
    ]
    heads = setting.result(HEADS)
    if heads is not None:
        scored = [one["documents"] for one in heads["languages"].values()]
        where = (
            "the bundled model's dev split, and tested on its test split"
            if setting.pocket
            else "one half of the files, and tested on the other"
        )
        told.append(
            f"Heads are found on {span(scored, 0)} documents a language of {where}; no text that "
            "they are found on is tested on."
        )
    return *told, SAMPLE


def mean_known(values: Sequence[float | None]) -> float | None:
    """The mean of what is known; None if nothing is."""
    known = [one for one in values if one is not None]
    return sum(known) / len(known) if known else None


def capital(text: str) -> str:
    """The text as the beginning of a sentence."""
    return text[:1].upper() + text[1:]
