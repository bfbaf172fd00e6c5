"""Words picked out in a text."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection

from headscope.report.html import Child, tag

UNSPACED = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR")
"""How Unicode calls the letters of scripts that put no spaces between words."""


def marked(text: str, words: Collection[str], kind: str) -> list[Child]:
    """`text` with these words in marks of the class `kind`, however they are written.

    Case, accents and signs around a word do not matter. In scripts without spaces a word is
    marked wherever it stands. An empty text gives nothing.
    """
    wanted = {_key(word) for word in words}
    inside = sorted(filter(_unspaced, words), key=len, reverse=True)
    pattern = "|".join(map(re.escape, inside)) or r"[^\W_](?:\S*[^\W_])?"
    parts: list[Child] = []
    reached = 0
    for found in re.finditer(pattern, text):
        if _key(found[0]) in wanted:
            parts += [text[reached : found.start()], tag("mark", found[0], class_=kind)]
            reached = found.end()
    return [part for part in (*parts, text[reached:]) if part]


def _key(word: str) -> str:
    """What two ways to write a word have in common."""
    spread = unicodedata.normalize("NFKD", word.casefold())
    return "".join(sign for sign in spread if not "\u0300" <= sign <= "\u036f").strip()


def _unspaced(word: str) -> bool:
    """Whether the word is of a script that puts no spaces between words."""
    return any(unicodedata.name(sign, "").startswith(UNSPACED) for sign in word)
