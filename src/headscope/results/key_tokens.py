"""What `find key-tokens` returns: the attention of heads to key words of one prompt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headscope.results.common import ModelResult, OneHead, Ranking
from headscope.runs import Record


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


@dataclass(frozen=True)
class OtherHeads(Record):
    """A draw of random other heads; `filled_up` of them had to come from other layers."""

    heads: tuple[str, ...]
    score: float
    filled_up: int


@dataclass(frozen=True)
class KeyTokenControl(Record):
    """Draws of one kind: their mean and range, and how many paid as much as the heads looked at."""

    mean: float
    low: float
    high: float
    at_least_as_much: int
    draws: tuple[OtherHeads, ...]

    @property
    def scores(self) -> tuple[float, ...]:
        """The attention of each draw."""
        return tuple(draw.score for draw in self.draws)


@dataclass(frozen=True, kw_only=True)
class KeyTokensResult(Ranking, ModelResult):
    """The result: heads by attention, highest first, over `tokens` steps.

    `score` and `uniform` are means over the heads. `control` has `random` and
    `random-layer-matched`, empty where too many heads were chosen.
    """

    heads: tuple[HeadAttention, ...]
    examples: int = 1
    tokens: int
    score: float
    uniform: float
    words: tuple[KeyWord, ...]
    control: Mapping[str, KeyTokenControl]
    prompt: str
    answer: str
    generated: bool

    @property
    def names(self) -> tuple[str, ...]:
        """The key words."""
        return tuple(each.word for each in self.words)
