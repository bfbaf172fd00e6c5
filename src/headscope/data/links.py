"""Word links in the Pharaoh format: ``0-0 1-2``, source position, hyphen, target position."""

from __future__ import annotations

import re
from collections.abc import Iterable

from headscope.errors import InputError

Links = frozenset[tuple[int, int]]

# Positions of more digits than any sentence has words are no numbers worth reading.
_LINK = re.compile(r"([0-9]{1,20})-([0-9]{1,20})")


def parse_links(text: str) -> Links:
    """Links from their text; positions count words from 0, the empty text holds no links.

    Raises ``InputError`` naming the first malformed link.
    """
    links = set()
    for piece in text.split():
        match = _LINK.fullmatch(piece)
        if match is None:
            shown = piece if len(piece) <= 30 else f"{piece[:29]}…"
            raise InputError(
                f"the link {shown!r} is malformed; write links like 0-0 1-2, source position "
                "first, counted from 0"
            )
        links.add((int(match[1]), int(match[2])))
    return frozenset(links)


def format_links(links: Iterable[tuple[int, int]]) -> str:
    """The text of links, in ascending order."""
    return " ".join(f"{i}-{j}" for i, j in sorted(links))


def check_links(links: Links, source_length: int, target_length: int) -> None:
    """Raises ``InputError`` naming the first link outside sentences of these many words."""
    for i, j in sorted(links):
        if i >= source_length or j >= target_length:
            raise InputError(
                f"the link {i}-{j} lies outside its sentences of {source_length} and "
                f"{target_length} words (white-space pieces, counted from 0); correct the link, "
                "or separate the words of the sentences by spaces"
            )
