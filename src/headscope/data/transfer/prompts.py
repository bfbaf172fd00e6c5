"""A prompt in which two languages contradict each other, and when an answer follows which."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import astuple, dataclass

from headscope.data.words import plain_words


@dataclass(frozen=True)
class Answer:
    """What one of the statements says: in English, and as the statement's language says it.

    `native` may hold several forms, such as the nominative and the inflected form of the statement.
    """

    english: str
    native: tuple[str, ...]

    @property
    def forms(self) -> tuple[str, ...]:
        """All of them, each once."""
        return tuple(dict.fromkeys((self.english, *self.native)))


@dataclass(frozen=True)
class TransferPrompt:
    """A prompt and its two answers.

    Attributes:
        id: names the prompt among those of its pair.
        a: the language of the first statement.
        b: the language of the second, contradicting one.
        prompt: statements and question, up to where the answer begins.
        stem: the beginning of the answer, which is given too; may be empty.
        answer_a: what the first statement says.
        answer_b: what the second says.
    """

    id: str
    a: str
    b: str
    prompt: str
    stem: str
    answer_a: Answer
    answer_b: Answer

    @property
    def pair(self) -> str:
        """The two languages as `a-b`."""
        return f"{self.a}-{self.b}"


@dataclass(frozen=True)
class TransferFile:
    """Prompts of one ordered pair of languages; `digest` is the SHA-256 of all they hold."""

    prompts: tuple[TransferPrompt, ...]
    path: str
    digest: str


def digest_of(prompts: Sequence[TransferPrompt]) -> str:
    """SHA-256 of everything that prompts hold."""
    rows = [astuple(one) for one in prompts]
    return hashlib.sha256(json.dumps(rows, ensure_ascii=False).encode()).hexdigest()


def follows(text: str, answer: Answer) -> bool:
    """Whether a text holds an answer in any of its forms, as whole words one after the other.

    Small and capital letters and punctuation do not count; where a script puts no spaces between
    words, single characters stand for words.
    """
    words = plain_words(text)
    for form in answer.forms:
        wanted = plain_words(form)
        starts = range(len(words) - len(wanted) + 1)
        if wanted and any(words[at : at + len(wanted)] == wanted for at in starts):
            return True
    return False
