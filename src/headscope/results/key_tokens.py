"""What `find key-tokens` returns: the attention of heads to key words of one prompt."""

from __future__ import annotations

from dataclasses import dataclass, field

from headscope.results.common import ComparedDetails, ComparedResult, OneHead
from headscope.runs import Record, entry


@dataclass(frozen=True)
class WordAttention(Record):
    """The attention of a head to a key word, over the steps.

    `uniform` is what it would be were it spread evenly; `step` is where it is largest, `max`, and
    `token` what that step predicts, None where no answer is predicted.
    """

    word: str
    mean: float
    uniform: float
    max: float
    step: int
    token: str | None


@dataclass(frozen=True, kw_only=True)
class HeadAttention(OneHead):
    """A head with its mean attention to all key words (`score`, each token once) and to each.

    `low` and `high` are None: one prompt has no other prompts to vary over.
    """

    score: float
    low: float | None = None
    high: float | None = None
    uniform: float
    words: tuple[WordAttention, ...]


@dataclass(frozen=True)
class KeyWord(Record):
    """A key word: its places in the prompt, its number of tokens, and the mean over all heads."""

    word: str
    spans: tuple[tuple[int, int], ...]
    tokens: int
    mean: float
    uniform: float


@dataclass(frozen=True, kw_only=True)
class KeyTokensDetails(ComparedDetails):
    """What was read, over `tokens` steps; `uniform` is the mean over heads of even attention."""

    tokens: int = 0
    uniform: float = 0.0
    words: tuple[KeyWord, ...] = ()
    prompt: str = ""
    answer: str = ""
    generated: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The key words."""
        return tuple(each.word for each in self.words)


@dataclass(frozen=True, kw_only=True)
class KeyTokensResult(ComparedResult):
    """The result: heads by attention, highest first; its rows compare them with random heads."""

    scored: tuple[HeadAttention, ...] = entry((), name="scores")
    examples: int = 1
    details: KeyTokensDetails = field(default_factory=KeyTokensDetails)
