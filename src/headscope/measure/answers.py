"""Whether a generated text holds a right answer."""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Sequence


def normalize_answer(text: str) -> str:
    """An answer as SQuAD compares it (Rajpurkar et al. 2016, section 6.1).

    In lower case, without ASCII punctuation, the English articles and surplus white space.
    """
    plain = "".join(sign for sign in text.lower() if sign not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", plain).split())


def holds_answer(text: str, answers: Sequence[str]) -> bool:
    """Whether one of the answers occurs in the text, letter for letter.

    Capitals count; white space and the Unicode form of accents do not.
    """
    plain = _plain(text)
    return any(_plain(answer) in plain for answer in answers)


def holds_normalized(text: str, answers: Sequence[str]) -> bool:
    """Whether one of the answers occurs in the text once both are as SQuAD compares them.

    An answer of which nothing is left then, such as "the", is looked for letter for letter.
    """
    plain = normalize_answer(unicodedata.normalize("NFC", text))
    return any(
        norm in plain if (norm := normalize_answer(_plain(answer))) else _plain(answer) in text
        for answer in answers
    )


def _plain(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).split())
