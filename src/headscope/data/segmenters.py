"""Words of scripts that put no spaces between them, by ICU's dictionaries and rules.

ICU cuts Chinese, Japanese, Thai, Lao, Khmer and Burmese, from one wheel (icu4py, MIT, 16 MB). Of
the boundaries in 60 sentences of ours (`bench/segmenters.py`) it finds, as F1 in per cent:

====================  =======  ========  ====  =========
candidate             Chinese  Japanese  Thai  installed
====================  =======  ========  ====  =========
icu4py                   91.3      93.8  91.3      44 MB
rjieba                   93.2                       5 MB
Janome                            99.2            212 MB
SudachiPy, mode C                 99.0            207 MB
PyThaiNLP, newmm                         96.3      69 MB
BudouX                   91.9      56.0  87.8     0.3 MB
characters               73.5      75.0  40.5       none
====================  =======  ========  ====  =========

The best of each language together find 3 to 5 per cent more, for three packages and six times the
room; BudouX cuts Japanese into phrases.
"""

from __future__ import annotations

from functools import cache, lru_cache
from importlib.metadata import PackageNotFoundError, version

from headscope.data.words import is_unspaced, split_words

PACKAGE = "icu4py"
CHARACTERS = "characters"
"""The name of what stands for words where no segmenter is installed."""


@cache
def segmenter_name() -> str:
    """Name and version of the segmenter; `CHARACTERS` where it is not installed."""
    try:
        return f"{PACKAGE} {version(PACKAGE)}"
    except PackageNotFoundError:
        return CHARACTERS


def has_unspaced(text: str) -> bool:
    """Whether a text has characters of a script that puts no spaces between words."""
    return any(map(is_unspaced, text))


@lru_cache(maxsize=1 << 14)
def words_of(text: str) -> tuple[str, ...]:
    """The units of a sentence as `split_words` finds them by rule, with words for characters.

    Where no segmenter is installed characters stay units of their own, which `segmenter_name`
    tells.
    """
    units = split_words(text, links_given=False)
    if not has_unspaced(text) or segmenter_name() == CHARACTERS:
        return tuple(word.text for word in units)
    from icu4py.breakers import WordBreaker

    stretches: list[tuple[int, int]] = []
    for unit in units:
        start, end = stretches[-1] if stretches else (0, -1)
        if end == unit.start and is_unspaced(unit.text[0]) and is_unspaced(text[start]):
            stretches[-1] = start, unit.end
        else:
            stretches.append((unit.start, unit.end))
    found: list[str] = []
    for start, end in stretches:
        stretch = text[start:end]
        found += WordBreaker(stretch, "und") if is_unspaced(stretch[0]) else [stretch]
    return tuple(found)
