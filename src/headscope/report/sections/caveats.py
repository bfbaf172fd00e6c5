"""What the numbers of an atlas do not say."""

from __future__ import annotations

from headscope.report.html import Html, tag
from headscope.report.parts import section
from headscope.report.records.atlas import AtlasRecord
from headscope.shown.words import enumeration

__all__ = ["caveats_section"]


def caveats_section(record: AtlasRecord) -> Html:
    """Known limits, in plain words, with this run's units and aligner where they matter."""
    data = [part for part in dict(record.result.get("data") or {}).values() if part]
    units = enumeration(sorted({str(part["units"]) for part in data if part.get("units")}))
    made = {str(part["aligner"]) for part in data if part.get("aligner")}
    aligners = enumeration(sorted({"links": "given with the data"}.get(a, f"by {a}") for a in made))
    notes = [
        (
            "Short sentences score by position.",
            "A head that always looks at the same distance hits the right word often when there "
            "are few words to hit, the more so where word order is alike. That is why chance "
            "stands beside every score.",
        ),
        (
            "A hit depends on the links.",
            "Word links decide what the right word is. "
            + (f"Here they are {aligners}" if aligners else "They are made by an aligner")
            + (f", between units of the kind \u201c{units}\u201d. " if units else ". ")
            + "Coarser units make hits easier, a careless aligner makes them noisier, and tokens "
            "without a link are not counted at all.",
        ),
        (
            "Ranks are found in the same sentences as the scores.",
            "The highest of many noisy scores is on average a little too high. Intervals are per "
            "head and do not correct for having picked the best.",
        ),
        (
            "Looking is not causing.",
            "A score says where a head looks. Only removing the head (headscope verify removal) "
            "says whether the model needs it, and removing many heads at once also takes the "
            "model away from what it was trained on; hence the random heads beside it.",
        ),
    ]
    items = [tag("li", tag("strong", title), " ", text) for title, text in notes]
    return section("caveats", "What to keep in mind", tag("ul", items, class_="caveats"))
