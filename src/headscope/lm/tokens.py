"""Texts and outputs as tokens, each with the characters that it covers."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscope.errors import InputError
from headscope.lm.prompting import tokenise

Spans = NDArray[np.int64]


@dataclass(frozen=True)
class Encoded:
    """A text as tokens: `ids`, and for each the half-open character span it covers, (T, 2).

    A span leaves out white space in front; it is empty (start = end) for tokens that cover no
    other characters, such as special tokens and bare white space.
    """

    ids: tuple[int, ...]
    spans: Spans


def encode(tokenizer: Any, text: str, special: bool = True) -> Encoded:
    """Tokenise `text` as `headscope.lm.prompting.tokenise` does.

    Raises `InputError` if the tokenizer cannot tell the characters of its tokens, or leaves
    characters of the text out: a score would then be credited to the wrong word.
    """
    tokens = tokenise(tokenizer, text, special)
    covered = np.zeros(len(text) + 1, dtype=bool)
    for start, end in tokens.spans:
        covered[start:end] = True
    # Accents and a few signs (a byte order mark, control characters) are dropped by some
    # tokenizers' own normalisation; more than that means that the spans are wrong.
    lost = [at for at, char in enumerate(text) if not covered[at] and _counts(char)]
    if len(lost) > max(2, len(text) // 10):
        at = lost[0]
        raise InputError(
            f"the tokenizer's character positions leave out {len(lost)} of {len(text)} characters "
            f"(first at {at}: {text[at : at + 20]!r}); its tokenizer.json is faulty or too old"
        )
    return Encoded(tokens.ids, np.array(tokens.spans, dtype=np.int64).reshape(-1, 2))


def encode_output(tokenizer: Any, ids: Sequence[int]) -> tuple[str, Spans]:
    """The text of generated tokens, and the characters each of them adds to it, (n, 2).

    Decoding grows token by token, so the spans hold for any tokenizer; a character spread over
    several tokens belongs to each of them, as in `encode`.
    """
    grown = [
        tokenizer.decode(
            list(ids[:count]), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        for count in range(1, len(ids) + 1)
    ]
    text = grown[-1] if grown else ""
    spans, settled = [], 0  # characters of the text that are there for good
    for part in grown:
        start = settled
        settled = max(settled, _agreement(part, text))
        # What else the part ends with stands for a character whose last byte has not come yet.
        end = settled + (len(part) > settled and settled < len(text))
        while start < end and text[start].isspace():
            start += 1
        spans.append((start, end))
    return text, np.array(spans, dtype=np.int64).reshape(-1, 2)


def _counts(char: str) -> bool:
    return not char.isspace() and not unicodedata.category(char).startswith("M")


def _agreement(a: str, b: str) -> int:
    """How many characters two texts have in common at their beginning."""
    unlike = (at for at, (one, other) in enumerate(zip(a, b, strict=False)) if one != other)
    return next(unlike, min(len(a), len(b)))
