"""The kinds of ablation: what stands in the place of a removed head's output.

Their names and words need no torch; `headscope.lm.replacement` makes what each puts there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

AblateName = Literal["zero", "mean", "resample"]


class Kind(NamedTuple):
    """A kind of ablation in words.

    Attributes:
        option: what replaces a head's output, as the options say it.
        gives: what the head gives instead, as pages say it; "" where that is nothing.
        by: how it is taken from reference texts.
    """

    option: str
    gives: str = ""
    by: str = ""


#: The default first.
KINDS: Mapping[str, Kind] = {
    "zero": Kind("zero"),
    "mean": Kind("its mean over other examples", "mean output", "by class of position"),
    "resample": Kind(
        "one of these (resample)", "output in another example", "by class of position"
    ),
}


def gives(kind: str) -> str:
    """What removed heads give by a kind of ablation; "" where that is nothing, or not known."""
    return KINDS[kind].gives if kind in KINDS else ""
