"""What commands return that give every head one score."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headscope.errors import InputError
from headscope.estimates import Estimate
from headscope.heads import HeadScores
from headscope.heads.resolve import MEAN, read_scores
from headscope.results.common import DataRead, ModelResult, ReferenceText, ScoredHead
from headscope.runs import Record, entry


@dataclass(frozen=True)
class LayerScores(Record):
    """The scores of one layer; None for a layer without heads.

    `token_alignment`: of translation scores, how many heads score above the threshold.
    """

    layer: int
    heads: int
    mean: float | None
    highest: float | None
    token_alignment: float | None = entry(absent=True)


@dataclass(frozen=True, kw_only=True)
class ScoredHeads(Record):
    """Every head with its score, highest first, and what was counted, where known.

    `left_out` counts examples that could not be used, or those left out for each reason.
    """

    scored: tuple[ScoredHead, ...] = entry(name="scores")
    layer_profile: tuple[LayerScores, ...] | None = entry(absent=True)
    examples: int | None = entry(absent=True)
    left_out: int | Mapping[str, int] | None = entry(absent=True)
    tokens: int | None = entry(absent=True)

    @property
    def left_out_in_all(self) -> int:
        """How many examples could not be used, for whatever reason; 0 where unknown."""
        left_out = self.left_out or 0
        return left_out if isinstance(left_out, int) else sum(left_out.values())


class Scored:
    """The result of a run that holds scores."""

    run: str | None

    @property
    def scores(self) -> HeadScores:
        """The scores that the run holds; of several directions or languages their mean."""
        scores = {} if self.run is None else read_scores(self.run)
        if MEAN not in scores:
            raise InputError(f"{self.run}: holds no scores")
        return scores[MEAN]


@dataclass(frozen=True, kw_only=True)
class HeadsResult(ScoredHeads, ModelResult, Scored):
    """The result of any command that gives every head a score."""


@dataclass(frozen=True, kw_only=True)
class ScoresResult(HeadsResult):
    """Scores on data, or of several parts, such as directions or effects, the mean and `parts`.

    `data` has for everything read its `digest`, and `path` and `examples` if it has them.
    """

    parts: Mapping[str, ScoredHeads] | None = entry(absent=True)
    data: Mapping[str, DataRead] = field(default_factory=dict)


@dataclass(frozen=True)
class NeedlePlace(Record):
    """Prompts whose hidden fact stood at one depth of a text of one length in tokens.

    `depth` is the share of the text before the fact, `answered` the share of right answers.
    """

    length: int
    depth: float
    examples: int
    tokens: int
    answered: float | None


@dataclass(frozen=True, kw_only=True)
class RetrievalResult(ScoresResult):
    """The result of `find retrieval`."""

    places: tuple[NeedlePlace, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PatchingResult(ScoresResult):
    """The result of `find patching`; `clean` is the mean probability of each answer, unpatched."""

    parts: Mapping[str, ScoredHeads] = field(default_factory=dict)
    left_out: Mapping[str, int] = field(default_factory=dict)
    clean: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class LanguageNameResult(ScoresResult):
    """The result of `find language-name`; `languages`: how many were asked for, `sentences`: how
    many different ones intervals are over."""

    languages: int = 0
    sentences: int = 0


@dataclass(frozen=True, kw_only=True)
class Correlation(Record):
    """Spearman's correlation of single removal with another score, and that of ranks within layers.

    Without values where one of the two has no ranking.
    """

    ablate: str
    other: str = entry(name="with")
    all: Estimate
    within_layers: Estimate
    p_within_layers: float | None


@dataclass(frozen=True, kw_only=True)
class RemovedHeads(ScoresResult):
    """The result of `verify heads`; `beside` names the run of each other score."""

    beside: Mapping[str, str] = field(default_factory=dict)
    correlations: tuple[Correlation, ...] = ()
    reference_text: ReferenceText | None = entry(absent=True)
