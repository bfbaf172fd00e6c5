"""The paper's claims, each held against what was measured here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from headscope.recipes.papers.told import Told

__all__ = ["Claim", "answer_of", "claims_of", "with_claims"]


@dataclass(frozen=True)
class Claim:
    """A claim of the paper on this model.

    Attributes:
        name: the claim, as the end of "the claim that ...".
        holds: whether it holds here; None where the measurement leaves it open.
        by: the figures that say so.
        sure: what the figures were tested by, empty where by nothing.
    """

    name: str
    holds: bool | None
    by: str
    sure: str = ""


def with_claims(*claims: Claim) -> dict[str, Any]:
    """What goes into `Told.more`."""
    return {"claims": [asdict(one) for one in claims]}


def claims_of(told: Mapping[str, Told]) -> list[Claim]:
    """The claims that experiments told, in their order."""
    return [Claim(**one) for each in told.values() for one in each.more.get("claims", ())]


def answer_of(claims: Iterable[Claim]) -> tuple[str, str]:
    """All claims as a list, a line each, and which of them were tested.

    Both are empty where nothing was told.
    """
    known = list(claims)
    if not known:
        return "", ""
    groups = (
        ("Holds here", [one for one in known if one.holds is True]),
        ("Does not hold here", [one for one in known if one.holds is False]),
        ("Left open", [one for one in known if one.holds is None]),
    )
    said = [
        "\n".join([f"{title}:", *(f"\u2013 {_capital(one.name)} ({one.by})." for one in own)])
        for title, own in groups
        if own
    ]
    bare = [one.name for one in known if not one.sure]
    if not bare:
        sure = "Each is tested by intervals or random sets, told below."
    elif len(bare) == len(known):
        sure = "None is tested by an interval or random sets."
    else:
        sure = (
            f"Tested by intervals or random sets, told below, are all but these: {'; '.join(bare)}."
        )
    return "\n".join(said), f"{sure} All of it is one model."


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]
