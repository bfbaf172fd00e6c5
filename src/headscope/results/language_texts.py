"""Results of `verify perplexity` and `verify layers`: text of languages without some heads.

Parts are languages of the text; `of` of a condition is the language or the layer whose heads are
removed. Losses are mean negative log-likelihoods (NLL) in nats a token, each token counting the
same; intervals are 95 % bootstrap intervals over documents.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headscope.estimates import Estimate
from headscope.evidence.rows import Evidence
from headscope.results.common import ComparedDetails, ComparedResult
from headscope.runs import Record


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


@dataclass(frozen=True, kw_only=True)
class OwnText(Record):
    """The change of a language's own text minus that of the `other` text which rises most.

    The other is chosen anew in every bootstrap draw. By control `p_draws`, the different `draws`,
    and how many of them set the own text as far apart. `mean_difference` is from the mean change of
    all other text; runs of old versions lack it.
    """

    condition: str
    language: str
    other: str
    difference: Estimate
    p_draws: Mapping[str, float]
    draws: Mapping[str, int] = field(default_factory=dict)
    at_least_as_harmful: Mapping[str, int] = field(default_factory=dict)
    mean_difference: Estimate = field(default_factory=Estimate)


@dataclass(frozen=True, kw_only=True)
class TextDetails(ComparedDetails):
    """What only `verify perplexity` has; `empty` are the languages without heads of their own.

    `data` says of each language's documents what was read, and how many predicted tokens they have.
    `together` is the mean over languages, of each without its own heads (see
    `headscope.verify.language_texts.evidence.together`); runs of old versions lack it.
    """

    k: tuple[int, ...]
    sets: tuple[LanguageSet, ...]
    empty: tuple[str, ...]
    own: tuple[OwnText, ...]
    data: Mapping[str, Mapping[str, Any]]
    together: Evidence = field(default_factory=Evidence)

    @property
    def ranked(self) -> bool:
        """Whether the heads are a method's specific ones, with others as important to compare."""
        return any(heads.full is not None for heads in self.sets)


@dataclass(frozen=True, kw_only=True)
class TextWithoutHeads(ComparedResult):
    """The result of `verify perplexity`, languages by their codes."""

    details: TextDetails


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
class LayerDetails(ComparedDetails):
    """What only `verify layers` has: where each language's important heads lie."""

    profile: Mapping[str, Profile]
    data: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class TextWithoutLayers(ComparedResult):
    """The result of `verify layers`, languages by their codes."""

    details: LayerDetails
