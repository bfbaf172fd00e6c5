"""HTML by plain functions. Whatever is not already `Html` is escaped when it goes in."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from html import escape as _escape
from typing import Any, TypeAlias

VOID = frozenset({"br", "col", "hr", "input", "link", "meta"})
# HTML has no way to write these: control characters are shown by their pictures (U+2400 on), and
# halves of a surrogate pair, which are no characters and cannot be encoded, by U+FFFD.
_UNWRITABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
_SPECIAL = re.compile("[&<>\"'\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
_UNSAFE = re.compile("[<>&\x7f\u2028\u2029\ud800-\udfff\ufffe\uffff]")


class Html(str):
    """Text that is HTML already and goes into a page as it is."""

    __slots__ = ()


Child: TypeAlias = "str | int | Iterable[Child] | None"
"""What an element may hold: HTML, text to be escaped, a whole number, nothing, or several."""


def escape(text: object) -> Html:
    """`text` as HTML that shows it literally, in element content and in quoted attributes."""
    if isinstance(text, Html):
        return text
    plain = str(text)
    if not _SPECIAL.search(plain):
        return Html(plain)
    return Html(_escape(_UNWRITABLE.sub(_picture, plain), quote=True))


def join(*children: Child) -> Html:
    """The children one after the other."""
    parts: list[str] = []
    _add(children, parts)
    return Html("".join(parts))


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


def dump_json(value: Any) -> str:
    """`value` as JSON that may stand in a script element.

    Nothing there is unescaped by HTML, so `<`, `>` and `&` are written as JSON escapes, and with
    them line separators and the halves of surrogate pairs, which cannot be encoded. Other letters
    stay as they are: escaped, most scripts would be three times as long.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def embed_json(identifier: str, value: Mapping[str, Any]) -> Html:
    """`value` as JSON in a script element that is data, never run."""
    opening = f'<script type="application/json" id="{escape(identifier)}">'
    return Html(f"{opening}{dump_json(value)}</script>")


def _add(children: Iterable[Child], parts: list[str]) -> None:
    for child in children:
        if isinstance(child, (str, int)):
            parts.append(escape(child))
        elif child is not None:
            _add(child, parts)


def _picture(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else "\ufffd"
