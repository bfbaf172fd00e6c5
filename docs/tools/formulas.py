"""Formulas as MathML: blocks fenced as ```math and $`inline`$, the two forms GitHub draws too."""

from __future__ import annotations

import re

from latex2mathml.converter import convert

__all__ = ["as_mathml"]

_BLOCK = re.compile(r"^```math\n(.+?)\n```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"\$`([^`]+)`\$")
#: Signs that Markdown would read as its own inside the tags.
_ENTITIES = {"*": "&#42;", "_": "&#95;", "`": "&#96;", "[": "&#91;", "]": "&#93;", "|": "&#124;"}


def as_mathml(text: str) -> str:
    """The page with its formulas converted; everything else stays as it is."""
    text = _BLOCK.sub(
        lambda found: f'<div class="formula">{_mathml(found[1], "block")}</div>', text
    )
    return _INLINE.sub(lambda found: _mathml(found[1], "inline"), text)


def _mathml(latex: str, display: str) -> str:
    markup = convert(" ".join(latex.split()), display=display)
    parts = re.split(r"(<[^>]+>)", markup)
    return "".join(
        part if part.startswith("<") else "".join(_ENTITIES.get(sign, sign) for sign in part)
        for part in parts
    )
