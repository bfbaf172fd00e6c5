"""HTML by plain functions. Whatever is not already `Html` is escaped when it goes in."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from html import escape as _escape
from typing import Any, TypeAlias

__all__ = ["Child", "Html", "embed_json", "escape", "join", "tag"]

VOID = frozenset({"br", "col", "hr", "input", "link", "meta"})
# HTML has no way to write these: control characters are shown by their pictures (U+2400 on), and
# halves of a surrogate pair, which are no characters and cannot be encoded, by U+FFFD.
_UNWRITABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")


class Html(str):
    """Text that is HTML already and goes into a page as it is."""

    __slots__ = ()


Child: TypeAlias = "str | int | Iterable[Child] | None"
"""What an element may hold: HTML, text to be escaped, a whole number, nothing, or several."""


def escape(text: object) -> Html:
    """`text` as HTML that shows it literally, in element content and in quoted attributes."""
    if isinstance(text, Html):
        return text
    return Html(_escape(_UNWRITABLE.sub(_picture, str(text)), quote=True))


def join(*children: Child) -> Html:
    """The children one after the other."""
    return Html("".join(_flat(children)))


def tag(name: str, /, *children: Child, **attributes: object) -> Html:
    """An element. `class_` becomes `class`, `data_x` becomes `data-x`.

    An attribute that is None or False is left out; True writes its bare name.
    """
    written = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{escape(value)}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in VOID:
        return Html(f"<{name}{written}>")
    return Html(f"<{name}{written}>{join(*children)}</{name}>")


def embed_json(identifier: str, value: Mapping[str, Any]) -> Html:
    """`value` as JSON in a script element that is data, never run.

    Inside a script element nothing is unescaped by HTML, so `<`, `>` and `&` are written as JSON
    escapes; `ensure_ascii` does the same for line separators and all else beyond ASCII.
    """
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Html(f'<script type="application/json" id="{escape(identifier)}">{text}</script>')


def _flat(children: Iterable[Child]) -> Iterable[str]:
    for child in children:
        if child is None:
            continue
        if isinstance(child, (str, int)):
            yield escape(child)
        else:
            yield from _flat(child)


def _picture(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else "\ufffd"
