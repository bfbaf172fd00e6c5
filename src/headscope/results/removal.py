"""What removing heads does to translations and to losses of references: its own details."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headscope.evidence.rows import Statistic
from headscope.results.common import Ablation, ComparedDetails, ComparedResult
from headscope.results.head_scores import ScoresResult
from headscope.runs import Record, entry
from headscope.runs.reading import result_of


@dataclass(frozen=True)
class Measuring:
    """What identified languages, why measures are missing, and what BLEU was cut by in each
    direction."""

    identifier: str | None = None
    not_measured: Mapping[str, str] = field(default_factory=dict)
    bleu_tokenizers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ReferenceLinks(Record):
    """How the words of references were linked, and a SHA-256 of the links."""

    aligner: str
    units: str
    digest: str


@dataclass(frozen=True)
class OutputLinks(Record):
    """How words of outputs were linked, for reading them; None: not at all.

    `aligner` names what made the reference's links, where that is known.
    """

    method: str | None = None
    aligner: str | None = entry(absent=True)


@dataclass(frozen=True)
class Tokens(Record):
    """Numbers of tokens: the first of linked words, later ones of such words, and others."""

    linked: int
    linked_later: int
    unlinked: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.linked + self.linked_later + self.unlinked


@dataclass(frozen=True)
class Languages:
    """The languages of a direction."""

    source: str
    target: str


@dataclass(frozen=True, kw_only=True)
class Removed(Record):
    """What a removal measured beside its rows.

    `measuring` tells of texts, `reference_tokens` (by direction) and `reference_links` of losses,
    `links` of the words of outputs.
    """

    directions: Mapping[str, Languages] = field(default_factory=dict)
    measuring: Measuring | None = None
    reference_tokens: Mapping[str, Tokens] | None = None
    reference_links: Mapping[str, ReferenceLinks] | None = None
    links: OutputLinks | None = None


@dataclass(frozen=True, kw_only=True)
class RemovalDetails(ComparedDetails):
    """What was asked of a removal, and what it measured beside its rows.

    `heads` are those of the largest k, the best first; the first `text_draws` random sets are those
    whose texts were measured.
    """

    k: tuple[int, ...] = ()
    gates: tuple[float, ...] = (0.0,)
    measures: tuple[str, ...] = ("text",)
    text_draws: int = 0
    heads: tuple[str, ...] = ()
    threshold: float | None = None
    removed: Removed = field(default_factory=Removed)


@dataclass(frozen=True, kw_only=True)
class RemovalResult(ComparedResult):
    """The result of `verify removal`."""

    details: RemovalDetails = field(default_factory=RemovalDetails)


@dataclass(frozen=True, kw_only=True)
class KnockoutsResult(ScoresResult, Ablation):
    """The result of `find knockouts`: a statistic was regressed on so many random gates.

    `remove` is the share of heads, or the number of them, that a gate removes.
    `explained` is by direction the share of its variance that is predicted at gates left out; None
    where it is the same under all gates. `untold` heads are removed by no gate, by all, or always
    with the same other one: their scores say nothing.
    """

    statistic: Statistic = entry(Statistic(""))
    gates: int = 0
    remove: str = ""
    explained: Mapping[str, float | None] = field(default_factory=dict)
    untold: tuple[str, ...] = ()


def removal_of(path: Path) -> RemovalResult:
    """The result of a finished run; InputError if it is missing, damaged, or of another kind."""
    return result_of(path, RemovalResult, "a removal")
