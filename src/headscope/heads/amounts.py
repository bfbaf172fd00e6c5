"""How many heads: `20`, `0.15` and `15%`."""

from __future__ import annotations

import re
from fractions import Fraction

from headscope.errors import InputError
from headscope.heads.geometry import Geometry
from headscope.options import Amount

# No amount needs more digits, and a fraction with millions of them would never be done.
_NUMBER = re.compile(
    r"(?P<number>\d{0,30}(?P<point>\.)?\d{1,30}(?P<exponent>[eE][-+]?\d{1,3})?)\s*(?P<percent>%)?",
    re.ASCII,
)


def count_of(k: Amount, total: int) -> int:
    """The number of heads that `k` stands for among `total` heads.

    A whole number is that many heads. A number below 1 or a percentage is a share of `total`,
    rounded to the nearest whole number (halves to even) and at least 1. Anything else, and more
    heads than there are, raises InputError.
    """
    known = read_amount(k)
    if known is None:
        raise InputError(
            f"k = {k} is not a number of heads; write a whole number from 1 (20), "
            "a share between 0 and 1 (0.15) or a percentage (15%)"
        )
    number, is_share = known
    count = max(1, round(number * total)) if is_share else int(number)
    if count > total:
        raise InputError(
            f"k = {k} asks for more heads than the {total} there are; use at most {total} or 100%"
        )
    return count


def default_amount(geometry: Geometry) -> Amount:
    """The usual size of a top set: 20 heads, or 15 % of them in models below 256 heads."""
    return 20 if geometry.total >= 256 else "15%"


def count_words(number: float) -> str:
    """A number of heads as it is shown: `14`, and a mean of numbers with one decimal, `14.5`."""
    number = round(number, 6)
    return f"{number:.0f}" if number == int(number) else f"{number:.1f}"


def read_amount(amount: Amount) -> tuple[Fraction, bool] | None:
    """The number that is written, a percentage as its share, and whether it is a share.

    None for what is neither a whole number from 1 nor a share above 0 and, but for 100%, below 1.
    """
    match = None if isinstance(amount, bool) else _NUMBER.fullmatch(str(amount).strip())
    if match is not None:
        number = Fraction(match["number"])
        if match["percent"] and 0 < number <= 100:
            return number / 100, True
        whole = match["point"] is None and match["exponent"] is None
        if not match["percent"] and whole and number >= 1:
            return number, False
        if not match["percent"] and not whole and 0 < number < 1:
            return number, True
    return None
