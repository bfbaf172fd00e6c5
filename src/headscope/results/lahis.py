"""What commands return that score heads on documents of one or several languages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headscope.heads import Head
from headscope.results.common import LanguagesOverlap, OneHead, ScoredHead, SetOverlap
from headscope.results.head_scores import HeadsResult
from headscope.runs import Record, entry


@dataclass(frozen=True, kw_only=True)
class LanguageScores(Record):
    """Every head for one language, highest first, and what was counted of its documents.

    `left_out` are documents of one token; `fewer_than_usual`, whether there were fewer than without
    a limit; `loss`, the mean over documents of the mean loss of their tokens, in nats.
    """

    scored: tuple[ScoredHead, ...] = entry(name="scores")
    documents: int
    left_out: int
    fewer_than_usual: bool
    tokens: int
    loss: float


@dataclass(frozen=True, kw_only=True)
class DocumentScores(HeadsResult):
    """The result of `find first-order`: the mean over languages, and each of them."""

    languages: Mapping[str, LanguageScores]


@dataclass(frozen=True)
class GeneralHead(OneHead):
    """A head that is important in so many languages."""

    languages: int


@dataclass(frozen=True, kw_only=True)
class LahisLanguage(LanguageScores):
    """One language with its heads: `important` many above `threshold`, the `specific` best first.

    `halves` compares the important heads of every second document with those of the others.
    """

    threshold: float
    important: int
    specific: tuple[ScoredHead, ...]
    halves: SetOverlap | None

    @property
    def specific_heads(self) -> tuple[Head, ...]:
        """The heads that are specific to the language, best first."""
        return tuple(each.place for each in self.specific)


@dataclass(frozen=True, kw_only=True)
class LahisResult(HeadsResult):
    """The result of `find lahis`.

    `general` are the heads important in at least `general_in` languages, most shared first, and
    `general_expected` how many random sets of these sizes would have; both None of one language.
    """

    quantile: float
    update_gate: bool
    general_in: int | None
    general: tuple[GeneralHead, ...]
    general_expected: float | None
    languages: Mapping[str, LahisLanguage]
    overlap: tuple[LanguagesOverlap, ...]
