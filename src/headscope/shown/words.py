"""How numbers and directions are written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from math import floor, isnan, log10

MEAN = "mean"
MINUS = "\u2212"
NONE = "\u2013"
_LANGUAGE = r"[A-Za-z]{2,3}(?:[-_](?:[A-Z][A-Za-z0-9]*|[0-9]{3}))*"
_DIRECTION = re.compile(f"({_LANGUAGE})-({_LANGUAGE})")


def fixed(number: float | None, digits: int) -> str:
    """A number with so many decimals and a real minus sign; an en dash for no number or NaN.

    Whole numbers of five digits and more have their thousands set apart.
    """
    if number is None or isnan(number):
        return "\u2013"
    if digits == 0 and abs(number) >= 10_000:
        return f"{number:,.0f}".replace(",", "\u202f").replace("-", MINUS)
    text = f"{number:.{digits}f}"
    return text.lstrip("-") if float(text) == 0 else text.replace("-", MINUS)


def number(value: float) -> str:
    """A number as short as it can be said: three significant digits, thousands set apart.

    Numbers below a ten thousandth are written like `5.3e\u22127`.
    """
    if value == int(value) or abs(value) >= 1000:
        return f"{round(value):,}".replace(",", "\u202f").replace("-", MINUS)
    if abs(value) < 1e-4:
        return tiny(value)
    digits = max(0, 2 - floor(log10(abs(value))))
    return f"{value:.{digits}f}".rstrip("0").rstrip(".").replace("-", MINUS)


#: Digits of a power of ten.
_RAISED = str.maketrans(
    "-0123456789", "\u207b\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079"
)


def power_of(highest: float, least: float) -> int:
    """The power of ten of a column whose highest number is below `least`; of any other 0."""
    return min(0, 3 * floor(log10(highest) / 3)) if 0 < highest < least else 0


def in_power(title: str, power: int) -> str:
    """The title of a column with the power of ten of its numbers."""
    return f"{title} (10{str(power).translate(_RAISED)})" if power else title


def tiny(value: float) -> str:
    """A small number with two significant digits: `5.3e\u22127`."""
    mantissa, power = f"{value:.1e}".split("e")
    return f"{mantissa.removesuffix('.0')}e{int(power)}".replace("-", MINUS)


def between(low: float | None, high: float | None, digits: int) -> str:
    """An interval of numbers with so many decimals; an en dash for none."""
    return interval(fixed(low, digits), fixed(high, digits))


def interval(low: str, high: str) -> str:
    """Two ends, with a word between them where one is negative; an en dash where one is."""
    if NONE in (low, high):
        return NONE
    negative = MINUS in (low[:1], high[:1])
    return f"{low}\u00a0to\u00a0{high}" if negative else f"{low}\u2009{NONE}\u2009{high}"


def confidence(low: float | None, high: float | None, digits: int) -> str:
    """`95 % CI 0.31 – 0.50`; that there is none, where there is a single example."""
    ends = between(low, high, digits)
    return "no interval" if ends == NONE else f"95\u00a0% CI {ends}"


def percent(share: float | None, digits: int = 0) -> str:
    """A share in per cent; an en dash for no number."""
    return "\u2013" if share is None else f"{fixed(share * 100, digits)}\u00a0%"


def p_value(number: float | None) -> str:
    """A p-value: three decimals, four where it is small, or its order of magnitude if smaller; an
    en dash for no number."""
    if number is None:
        return "\u2013"
    if number >= 0.00005:
        return f"{number:.3f}" if number >= 0.001 else f"{number:.4f}"
    return "0" if number == 0 else f"{number:.0e}".replace("e-0", "e-").replace("-", MINUS)


def count(number: int, one: str, several: str | None = None) -> str:
    """`1 head`, `14 heads`."""
    return f"{number:,} {one if number == 1 else several or one + 's'}".replace(",", "\u202f")


def duration(low: float, high: float | None = None) -> str:
    """Seconds, or from how many to how many, such as `9 to 40 minutes`."""
    high = low if high is None else high
    units = {"hour": 3600, "minute": 60, "second": 1}
    unit, size = next(item for item in units.items() if high >= 1.5 * item[1] or item[1] == 1)
    digits = 1 if unit == "hour" and high < 10 * size else 0
    ends = dict.fromkeys(f"{end / size:.{digits}f}" for end in (low, high))
    words = " to ".join("less than 1" if end == "0" else end for end in ends)
    return f"{words} {unit if [*ends] in (['1'], ['0']) else unit + 's'}"


def enumeration(parts: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join(part for part in (", ".join(parts[:-1]), *parts[-1:]) if part)


def ranges(numbers: Iterable[int]) -> str:
    """Whole numbers in words: `2\u20134, 6 and 9`."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return enumeration([str(a) if a == b else f"{a}\u2013{b}" for a, b in runs])


def sentence_of(words: str) -> str:
    """Words with a capital at their beginning and a stop at their end."""
    end = "" if words.endswith((".", "!", "?", "\u2026")) else "."
    return f"{words[:1].upper()}{words[1:]}{end}" if words else ""


def capitalised(words: str) -> str:
    """Words at the beginning of a line; names such as chrF++ stay as they are."""
    return f"{words[:1].upper()}{words[1:]}" if words.split()[0].islower() else words


def languages_of(direction: str) -> tuple[str, str]:
    """Source and target of `en-de`, `pt-BR-en` or `eng_Latn-deu_Latn`."""
    match = _DIRECTION.fullmatch(direction)
    source, _, target = direction.partition("-")
    return (match[1], match[2]) if match else (source, target)


def arrow(direction: str) -> str:
    """`en-de` as `en \u2192 de`; any other name as it is."""
    match = _DIRECTION.fullmatch(direction)
    return f"{match[1]} \u2192 {match[2]}" if match else direction


def tasks_of(names: Iterable[str]) -> str:
    """Tasks in a sentence: directions as `en \u2192 de`, other names in quotation marks."""
    shown = ((name, arrow(name)) for name in names)
    return enumeration(
        [
            f"\u201c{shown_name}\u201d" if shown_name == name else shown_name
            for name, shown_name in shown
        ]
    )


def direction_label(name: str, directions: int) -> str:
    """The name of a row or an option: a direction, or the mean over so many of them."""
    return f"mean of {directions}" if name == MEAN else arrow(name)


def signed(change: float, digits: int = 1) -> str:
    """A change with its sign."""
    text = fixed(change, digits)
    return f"+{text}" if change > 0 and float(f"{change:.{digits}f}") != 0 else text


def unbroken(words: str) -> str:
    """Words whose lines do not break within an interval, a p-value, or a flag with its value."""
    return _TOGETHER.sub(
        lambda match: match[0].replace(" ", "\u00a0").replace("\u2009", "\u202f"), words
    )


_FIGURE = r"[\u2212+]?\d[\d.e\u2212]*"
_ENDS = rf"{_FIGURE}[ \u00a0\u2009](?:to|\u2013)[ \u00a0\u2009]{_FIGURE}"
_TOGETHER = re.compile(
    rf"(?:95[ \u00a0]% CI )?{_ENDS}|{_FIGURE} (?:%|pp)|95[ \u00a0]% (?:CI|interval)"
    r"|p [=<] \d|p over \w|--[a-z][a-z-]* (?:\d+|\w+$)"
)
