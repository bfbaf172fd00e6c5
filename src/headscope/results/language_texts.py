"""Results of `verify perplexity` and `verify layers`: text of languages without some heads.

Losses are mean negative log-likelihoods (NLL) in nats a token, each token counting the same;
intervals are 95 % bootstrap intervals over documents.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from headscope.estimates import Against, Draws, Estimate
from headscope.results.common import Ablation, Leakage, ModelResult, Ranking, against
from headscope.runs import Record, entry

Role = Literal["chosen", "full"]


@dataclass(frozen=True, kw_only=True)
class Level(Record):
    """How badly text is predicted.

    `perplexity` is exp of `nll`; `published_perplexity` the mean over documents of exp of each
    one's own mean NLL.
    """

    nll: Estimate
    perplexity: Estimate
    published_perplexity: Estimate


@dataclass(frozen=True, kw_only=True)
class Text(Record):
    """How much text of a language there is, in documents and predicted tokens, and its level."""

    documents: int
    tokens: int
    baseline: Level


@dataclass(frozen=True, kw_only=True)
class WithoutHeads(Level):
    """Text of a language without heads.

    Attributes:
        change: of the NLL.
        of: the language, or the set, whose heads they are.
        role: the "chosen" ones, or as many by importance alone, "full".
        kind: "removed" for the heads themselves, else the kind of random heads.
        k: how many heads were requested, `size` how many there are.
        draw: number of a random draw, from 0.
        heads: what is removed.
        filled_up: of a random draw, heads that are not from the requested pool.
        random: the change under free draws of as many heads; None where nothing was drawn.
        against_random: what these heads have over the draws; both p are small where they hurt
            more.
    """

    change: Estimate

    of: str
    role: Role
    kind: str
    k: int
    size: int
    draw: int | None = None
    heads: tuple[str, ...]
    filled_up: int
    random: Draws | None = entry(absent=True)
    against_random: Against | None = against("", "documents")
    random_layer_matched: Draws | None = entry(absent=True)
    against_layer_matched: Against | None = against("_layer_matched", "documents")


@dataclass(frozen=True, kw_only=True)
class LanguageText(Text):
    """A language's text under the removals that are about it."""

    conditions: tuple[WithoutHeads, ...]

    @property
    def removed(self) -> list[WithoutHeads]:
        """Without the heads themselves; the others are without random ones."""
        return [row for row in self.conditions if row.kind == "removed"]

    def draws(self, row: WithoutHeads, kind: str) -> list[WithoutHeads]:
        """The random draws of one kind for a removal."""
        like = (row.of, row.role, row.k, kind)
        return [each for each in self.conditions if (each.of, each.role, each.k, each.kind) == like]


@dataclass(frozen=True, kw_only=True)
class LanguageSet(Record):
    """The heads of a language, best first, for `k` of them requested.

    `chosen` are the first of the `available` specific ones, or a named set; `full` as many by
    importance alone, None where nobody ranked heads.
    """

    language: str
    k: int
    available: int
    chosen: tuple[str, ...]
    full: tuple[str, ...] | None = None


@dataclass(frozen=True)
class OtherText(Record):
    """The text of another language that rises most, and its change of NLL."""

    language: str
    change: float


@dataclass(frozen=True, kw_only=True)
class OwnText(Record):
    """The change of a language's own text against the text of another that rises most.

    The other is chosen anew in every bootstrap draw. `random` has the difference under each draw
    of random heads, `p_draws` how often chance does as well.
    """

    own: float
    largest_other: OtherText
    own_minus_largest_other: Estimate
    random: tuple[float, ...] | None = entry(absent=True)
    p_draws: float | None = entry(absent=True)
    random_layer_matched: tuple[float, ...] | None = entry(absent=True)
    p_draws_layer_matched: float | None = entry(absent=True)


@dataclass(frozen=True, kw_only=True)
class Answer(Record):
    """For how many `languages` the own text rises most, and more than without random heads.

    `…_surely`: with the whole interval above zero. None where no random heads were read.
    """

    languages: int
    own_rises_most: int
    own_rises_most_surely: int
    above_random: int | None = entry(absent=True)
    above_random_surely: int | None = entry(absent=True)
    above_random_layer_matched: int | None = entry(absent=True)
    above_random_layer_matched_surely: int | None = entry(absent=True)


@dataclass(frozen=True, kw_only=True)
class Matrix(Record):
    """Heads of one language (rows), text of another (columns): changes of NLL.

    `random` has what random heads do on average, `above_random` the difference; None where they
    were not read on the text. `sizes` are the heads removed in each row.
    """

    role: Role
    k: int
    heads_of: tuple[str, ...]
    text_of: tuple[str, ...]
    sizes: tuple[int, ...]
    change: tuple[tuple[Estimate, ...], ...]
    random: tuple[tuple[Estimate | None, ...], ...]
    above_random: tuple[tuple[Estimate | None, ...], ...]
    random_layer_matched: tuple[tuple[Estimate | None, ...], ...] = ()
    above_random_layer_matched: tuple[tuple[Estimate | None, ...], ...] = ()
    own: Mapping[str, OwnText]
    answer: Answer | None = None


@dataclass(frozen=True, kw_only=True)
class TextWithoutHeads(ModelResult, Ranking, Ablation):
    """The result of `verify perplexity`, languages by their codes.

    `k` are the numbers of heads requested, `empty` the languages without heads of their own.
    """

    k: tuple[int, ...]
    draws: int
    layer_matched: bool
    pool: str
    pool_note: str | None = None
    seed: int
    leakage: Leakage
    sets: tuple[LanguageSet, ...]
    empty: tuple[str, ...]
    languages: Mapping[str, LanguageText]
    matrices: tuple[Matrix, ...]
    data: Mapping[str, Any]

    @property
    def ranked(self) -> bool:
        """Whether the heads are a method's specific ones, with others as important to compare."""
        return any(heads.full is not None for heads in self.sets)


@dataclass(frozen=True, kw_only=True)
class WithoutLayer(Level):
    """Text without all `heads` of a layer, and without random ones (see `WithoutHeads`)."""

    layer: int
    heads: int
    change: Estimate
    random: Draws
    against_random: Against = against("", "documents")


@dataclass(frozen=True, kw_only=True)
class LanguageLayers(Text):
    """A language's text without each layer; `draws` has the changes under draws, by their size."""

    layers: tuple[WithoutLayer, ...]
    draws: Mapping[str, tuple[float, ...]]


@dataclass(frozen=True)
class LayerCount(Record):
    """How many `heads` of a layer are `important`, and their share of all that are.

    `even` is the share that the layer has of the model's heads.
    """

    layer: int
    heads: int
    important: int
    share: float
    even: float


@dataclass(frozen=True)
class Profile(Record):
    """Where a language's `important` heads lie."""

    important: int
    layers: tuple[LayerCount, ...]


@dataclass(frozen=True, kw_only=True)
class TextWithoutLayers(ModelResult, Ablation):
    """The result of `verify layers`, languages by their codes."""

    draws: int
    seed: int
    languages: Mapping[str, LanguageLayers]
    profile: Mapping[str, Profile]
    data: Mapping[str, Any]
