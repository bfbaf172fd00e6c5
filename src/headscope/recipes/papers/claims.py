"""A paper's claims, each held against what was measured here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from headscope.measure.statistics import holm
from headscope.recipes.papers.told import Told

__all__ = [
    "LEVEL",
    "Claim",
    "answer_of",
    "claims_of",
    "judged",
    "of_removal",
    "with_claims",
]

#: What p over draws, and p over examples after Holm, may be at most.
LEVEL = 0.05


@dataclass(frozen=True)
class Claim:
    """A claim of the paper on this model.

    Attributes:
        name: the claim, as the end of "the claim that ...".
        holds: whether it holds here; None where the measurement leaves it open.
        by: the figures that say so.
        sure: what the figures were tested by; empty where by nothing, so that they only describe.
        p: p over examples of a claim about removal, before Holm; None for other claims.
        decides: what would decide a claim that is left open.
    """

    name: str
    holds: bool | None
    by: str
    sure: str = ""
    p: float | None = None
    decides: str = ""


def of_removal(name: str, row: Mapping[str, Any], by: str, *, ending: str = "", sign: int) -> Claim:
    """A claim that heads are needed more than random ones, from the condition without them.

    It holds where the interval of the condition less the mean of the random ones lies on the side
    of harm (`sign`: -1 for a measure that falls, 1 for one that rises) and p over free draws is at
    most 0.05; `judged` asks p over examples. `ending` is that of the measure's keys.
    """
    beside, p_draws = row[f"against_random{ending}"], row.get(f"p_draws{ending}")
    ends = [beside.get(name) for name in ("low", "high")]
    if None in ends or p_draws is None:
        return Claim(name, None, by, decides="random sets of heads beside")
    low, high = sorted(sign * float(end) for end in ends if end is not None)
    p, least = float(row[_examples(row, ending)]), float(row.get(f"least_p{ending}") or 0.0)
    by = f"{by}; p over examples {p:.2g}, over {_draws(row, ending)} {p_draws:.2g}"
    tested = "its interval beside random heads, swapped examples (Holm) and random sets"
    holds = False if high < 0 else True if low > 0 and p_draws <= LEVEL else None
    decides = ""
    if holds is None and low <= 0:
        decides = "more examples"
    elif holds is None and least > LEVEL:
        decides = "more random sets, where the model has 19 or more: with 19 p can be 0.05"
    elif holds is None:
        decides = "more random sets: some of these do as much harm"
    matched = float(row.get(f"least_p_layer_matched{ending}") or 0.0)
    sets = int(row.get(f"distinct_draws_layer_matched{ending}") or 0)
    # Fewer sets than free ones: the layers have no more, whatever was asked for.
    if matched > LEVEL and 0 < sets < int(row.get(f"distinct_draws{ending}") or 0):
        by += (
            f"; not decidable against the same layers on this model: {sets} different "
            f"set{'' if sets == 1 else 's'}"
        )
    return Claim(name, holds, by, tested, p, decides)


def _examples(row: Mapping[str, Any], ending: str) -> str:
    """The key of p over examples, which says what the examples are."""
    names = [f"p_{what}{ending}" for what in ("sentences", "documents", "prompts", "examples")]
    return next(name for name in names if name in row)


def _draws(row: Mapping[str, Any], ending: str) -> str:
    number = row.get(f"distinct_draws{ending}")
    return "draws" if number is None else f"{number} draws"


def with_claims(*claims: Claim) -> dict[str, Any]:
    """What goes into `Told.more`."""
    return {"claims": [asdict(one) for one in claims]}


def claims_of(told: Mapping[str, Told]) -> list[Claim]:
    """The claims that experiments told, in their order."""
    return [Claim(**one) for each in told.values() for one in each.more.get("claims", ())]


def judged(claims: Iterable[Claim]) -> list[Claim]:
    """The claims, with those left open whose p over examples is above 0.05 after Holm over all."""
    known = list(claims)
    tested = [one for one in known if one.p is not None]
    corrected = dict(
        zip(map(id, tested), holm([one.p for one in tested if one.p is not None]), strict=True)
    )
    found = []
    for one in known:
        p = corrected.get(id(one))
        if one.holds and p is not None and p > LEVEL:
            more = f"more examples: p over examples is {p:.2g} after Holm"
            one = replace(one, holds=None, decides=more)
        found.append(one)
    return found


def answer_of(claims: Iterable[Claim]) -> tuple[str, str]:
    """All claims as a list, a line each, and how they were tested.

    Both are empty where nothing was told.
    """
    known = judged(claims)
    if not known:
        return "", ""
    tested = [one for one in known if one.sure or one.holds is None]
    groups = (
        ("Holds here", [one for one in tested if one.holds is True]),
        ("Does not hold here", [one for one in tested if one.holds is False]),
        ("Open", [one for one in tested if one.holds is None]),
        ("Described, not tested", [one for one in known if one not in tested]),
    )
    said = [
        "\n".join([f"{title}:", *(f"\u2013 {_told(one)}." for one in own)])
        for title, own in groups
        if own
    ]
    ways = dict.fromkeys(one.sure for one in tested if one.sure)
    sure = f"Tested by {'; by '.join(ways)}." if ways else "Nothing was tested."
    return "\n".join(said), f"{sure} All of it is one model."


def _told(one: Claim) -> str:
    """The claim with its figures; of a described one whether it is so, of an open one what would
    decide it."""
    words = f"{one.name[:1].upper()}{one.name[1:]}"
    if not one.sure and one.holds is not None:
        words += ": so here" if one.holds else ": not so here"
    end = f"; would decide it: {one.decides}" if one.holds is None and one.decides else ""
    return f"{words} ({one.by}{end})"
