"""The result of `verify failures`: kinds of failed translations, and the evidence for each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from headscope.evidence.rows import Condition
from headscope.results.common import ModelFacts
from headscope.runs import Record, Result, entry

Kind = Literal["no translation", "hallucination", "missing details", "other"]
KINDS: tuple[Kind, ...] = ("no translation", "hallucination", "missing details", "other")


@dataclass(frozen=True)
class Backing:
    """What backs an output, in shares between 0 and 1; None where there is nothing to count.

    `copied`: output words that stand in the source and in no translation. `unsupported`: output
    content words that stand, in any form, neither in a translation nor in the source, and that
    translate no source word by the lexicon. `missing`: content words of a translation without a
    counterpart in the output (of the translation that lacks the least). A paraphrase has as many
    words of the one sort as of the other, so two shares count what is left of one of them without
    the number of the other: `added`, unsupported words less missing ones, of the output's content
    words; `dropped`, missing words less unsupported ones, of the translation's. `left_out`: words
    that an output lacks which is a translation otherwise, word by word, as a share of the
    translation's content words; 0 where anything else differs. `source_covered`: source
    content words that the output translates, by links and lexicon; `output_covered`: output
    content words linked to a source word. `repeated`: output words beyond the times that a
    translation or the source has them.
    """

    copied: float | None = None
    unsupported: float | None = None
    unsupported_words: tuple[str, ...] = ()
    missing: float | None = None
    missing_words: tuple[str, ...] = ()
    added: float | None = None
    dropped: float | None = None
    left_out: float | None = None
    left_out_words: tuple[str, ...] = ()
    source_covered: float | None = None
    output_covered: float | None = None
    repeated: float | None = None


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The evidence for a kind.

    `because` says in words what decided. `language`: the one identified in the output, None if
    undecided or not looked for. `chrf_source` is the chrF of the output to its source;
    `chrf_before` and `chrf_after` are chrF++ to the reference, all 0 to 100. `repeats_source`: it
    is a copy by the rule of `source_copies`.
    """

    because: str = ""
    empty: bool
    language: str | None
    chrf_source: float
    chrf_before: float
    chrf_after: float
    repeats_source: bool = False
    backing: Backing = entry(Backing(), flat="")

    @property
    def loss(self) -> float:
        """How much chrF++ was lost."""
        return self.chrf_before - self.chrf_after


@dataclass(frozen=True)
class Verdict:
    """The kind that a language model chose, and its reason."""

    kind: Kind
    reason: str


@dataclass(frozen=True)
class Judged:
    """The verdict on a case of a run with a judge; None: no answer, or none that can be read."""

    judge: Verdict | None = None


@dataclass(frozen=True, kw_only=True)
class FailedCase(Record):
    """A row with its kind; `selected`: good before and bad after."""

    id: str
    direction: str | None
    kind: Kind
    selected: bool
    evidence: Evidence
    judged: Judged | None = entry(flat="")

    @property
    def verdict(self) -> Verdict | None:
        """What a judge said, if one did."""
        return None if self.judged is None else self.judged.judge


@dataclass(frozen=True, kw_only=True)
class FailedText(FailedCase):
    """A row with its kind and its texts, as `cases.jsonl` has it."""

    source: str
    reference: str
    before: str
    after: str


@dataclass(frozen=True, kw_only=True)
class Sorted(Record):
    """How many rows there are, how many are selected, and how many of these are of each kind.

    Shares are None where there are no cases.
    """

    rows: int
    selected: int
    shares: Mapping[Kind, float | None]
    counts: Mapping[Kind, int]


@dataclass(frozen=True, kw_only=True)
class Judging(Record):
    """What a language model said of the cases: shares of the kinds, and agreement with the rules.

    `rules_and_judge` counts cases by the kind of the rules and that of the judge. `cached` answers
    were known before, `answered` ones are new, `invalid` ones could not be read.
    """

    model: str | None
    shares: Mapping[Kind, float | None]
    agreement: float | None
    rules_and_judge: Mapping[Kind, Mapping[Kind, int]]
    cached: int = 0
    answered: int
    invalid: int
    retries: int = 0

    @property
    def cases(self) -> int:
        """How many cases have a verdict."""
        return sum(sum(row.values()) for row in self.rules_and_judge.values())


@dataclass(frozen=True)
class Selected:
    """A row counts from this chrF++ (`good`) on before, if it lost as much as `loss`."""

    good: float
    loss: float


@dataclass(frozen=True)
class Subject:
    """The model and the removed heads of a run; a file of outputs does not name them."""

    model: ModelFacts | None = None
    heads: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class FailuresResult(Result, Sorted):
    """The result of `verify failures`.

    `condition` is None of a file, whose rows all count. What the heads of a run are ranked by is
    carried as the run says it. `random`: where selected heads were removed, the failures of each
    draw of as many random ones, sorted likewise.
    """

    of: str = ""
    subject: Subject | None = entry(flat="")
    condition: Condition | None
    rule: Selected
    rules: Mapping[str, float] = field(default_factory=dict)
    identifier: str | None
    segmenter: str | None = None
    links: str | None
    directions: Mapping[str, Sorted]
    judge: Judging | None
    cases: tuple[FailedCase, ...] = ()
    random: tuple[Sorted, ...] | None = entry(absent=True)

    @property
    def counted(self) -> int:
        """The cases that shares are over."""
        return self.rows if self.condition is None else self.selected
