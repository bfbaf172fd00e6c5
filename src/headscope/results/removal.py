"""What removing heads does to translations and losses of references, against random heads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias, get_args

from headscope.estimates import Against, Draws, Estimate
from headscope.options import AblateName
from headscope.results.common import Ablation, Checked, Leakage, ModelResult, Ranking, against
from headscope.runs import Record, entry
from headscope.runs.reading import result_of

Kind = Literal["baseline", "top", "random", "random-layer-matched"]
Ablate: TypeAlias = AblateName


@dataclass(frozen=True)
class Label:
    """Names a condition: the heads removed (`kind`, `k`, `draw`) and the gate put on them.

    The model as it is has k 0 and gate 1; `draw` numbers random draws from 0, else it is None.
    `ablate` is what takes the place of what the gate removes.
    """

    kind: Kind
    k: int
    gate: float
    draw: int | None = None
    ablate: Ablate = "zero"

    @classmethod
    def of_row(cls, row: Mapping[str, Any], kind: str = "kind", absent: str = "zero") -> Label:
        """The label in a row of a file or a result; `kind` is what that is called there.

        `absent` is the ablation of a run whose rows do not name any. Raises `KeyError`,
        `TypeError` or `ValueError` if the row holds no label.
        """
        draw, ablate = row["draw"], row.get("ablate", absent)
        if row[kind] not in get_args(Kind) or ablate not in get_args(Ablate):
            raise ValueError(row[kind])
        number = None if draw is None else int(draw)
        return cls(row[kind], int(row["k"]), float(row["gate"]), number, ablate)

    def matches(self, other: Label) -> bool:
        """Whether both are of as many heads, at one gate and of one kind of ablation."""
        return (self.k, self.gate, self.ablate) == (other.k, other.gate, other.ablate)

    def draws(self, labels: Sequence[Label], kind: Kind) -> list[int]:
        """The places among `labels` of this condition's random draws of one kind."""
        return [at for at, label in enumerate(labels) if label.kind == kind and label.matches(self)]


BASELINE = Label("baseline", 0, 1.0)
#: The kinds of random draws, and how the fields about each end.
CONTROLS: dict[Kind, str] = {"random": "", "random-layer-matched": "_layer_matched"}


@dataclass(frozen=True)
class Texts:
    """Measures of translations: chrF++ and BLEU from 0 to 100, else shares or mean scores.

    None where a measure was not computed.
    """

    chrf: float | None = None
    bleu: float | None = None
    off_target: float | None = None
    source_copy: float | None = None
    comet: float | None = None
    bleurt: float | None = None
    empty: float | None = None


@dataclass(frozen=True)
class Losses:
    """The NLL of references in nats a token, of all tokens and of each kind.

    The mean over sentences of each one's mean; `micro` over tokens. None where there is no such
    token.
    """

    nll: float
    nll_micro: float | None = None
    nll_linked: float | None = None
    nll_linked_micro: float | None = None
    nll_linked_later: float | None = None
    nll_linked_later_micro: float | None = None
    nll_unlinked: float | None = None
    nll_unlinked_micro: float | None = None


@dataclass(frozen=True, kw_only=True)
class TextLevel(Texts):
    """Measures with the 95 % interval of chrF++ over sentences."""

    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, kw_only=True)
class LossLevel(Losses):
    """Losses with the 95 % interval of `nll` over sentences; None of a single sentence."""

    nll_low: float | None
    nll_high: float | None


@dataclass(frozen=True)
class Measured(Record):
    """What a condition made, by texts, losses or both."""

    text: Texts | None = entry(flat="")
    loss: Losses | None = entry(flat="")

    @property
    def chrf(self) -> float | None:
        """chrF++ from 0 to 100; None where it was not computed."""
        return None if self.text is None else self.text.chrf

    @property
    def nll(self) -> float | None:
        """The NLL of references; None where it was not measured."""
        return None if self.loss is None else self.loss.nll


@dataclass(frozen=True)
class Baseline(Measured):
    """What the model as it is made."""

    text: TextLevel | None = entry(flat="")
    loss: LossLevel | None = entry(flat="")


@dataclass(frozen=True)
class Change(Record):
    """What a condition has less the model as it is, with intervals over sentences."""

    chrf: Estimate | None = entry(absent=True)
    nll: Estimate | None = entry(absent=True)


@dataclass(frozen=True)
class Tested(Estimate):
    """A difference to random heads with its tests (see `Against`)."""

    p_sentences: float | None = None
    p_draws: float | None = None

    @classmethod
    def against(cls, than: Against) -> Tested:
        """The difference and the tests of a comparison."""
        gap = than.difference
        return cls(gap.value, gap.low, gap.high, than.p_examples, than.p_draws)


@dataclass(frozen=True)
class TokenKinds(Record):
    """Tests of the losses of each kind of tokens, and of the difference of two kinds."""

    linked: Tested
    linked_later: Tested
    unlinked: Tested
    linked_minus_unlinked: Tested


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


@dataclass(frozen=True, kw_only=True)
class Condition(Measured):
    """The model without heads: what it made, and the change from the model as it is.

    Chosen heads are tested against random ones, free and of the same layers: their chrF++, or their
    losses where texts were not measured; `loss_…` are losses where texts were measured too. Later
    draws may have losses alone. Heads are listed over all directions alone; `filled_up` of them are
    not from the requested pool.
    """

    label: Label = entry(flat="")
    change: Change = field(default_factory=Change)
    free: Against | None = against()
    matched: Against | None = against("_layer_matched")
    loss_free: Against | None = against("_loss")
    loss_matched: Against | None = against("_layer_matched_loss")
    classes: TokenKinds | None = entry(absent=True)
    classes_layer_matched: TokenKinds | None = entry(absent=True)
    heads: tuple[str, ...] | None = entry(absent=True)
    filled_up: int | None = entry(absent=True)

    def than(self, kind: Kind) -> Against | None:
        """The test of chrF++ against one kind of draws."""
        if self.text is None:
            return None
        return self.free if kind == "random" else self.matched

    def loss_than(self, kind: Kind) -> Against | None:
        """The test of the loss against one kind of draws."""
        if self.text is None:
            return self.free if kind == "random" else self.matched
        return self.loss_free if kind == "random" else self.loss_matched

    def kinds_than(self, kind: Kind) -> TokenKinds | None:
        """The tests of the losses of each kind of tokens against one kind of draws."""
        return self.classes if kind == "random" else self.classes_layer_matched

    def with_loss(self, other: Condition) -> Condition:
        """These texts, and the losses that another has of the same condition."""
        return replace(
            self,
            loss=other.loss,
            change=replace(self.change, nll=other.change.nll),
            loss_free=other.free,
            loss_matched=other.matched,
            classes=other.classes,
            classes_layer_matched=other.classes_layer_matched,
        )


def main_p(conditions: Sequence[Condition]) -> float | None:
    """p over sentences of the first chosen heads of the largest number, against free draws."""
    tops = (condition for condition in conditions if condition.label.kind == "top")
    main = max(tops, key=lambda top: top.label.k, default=None)
    return None if main is None or main.free is None else main.free.p_examples


def shared_heads(draws: Sequence[Condition]) -> int:
    """How many heads all of these draws have in common."""
    return len(frozenset.intersection(*(frozenset(draw.heads or ()) for draw in draws)))


@dataclass(frozen=True)
class Case:
    """Chosen heads at one size, strength and kind of ablation, and their random draws."""

    top: Condition
    drawn: tuple[Condition, ...]

    def draws(self, kind: Kind) -> tuple[Condition, ...]:
        """The draws of one kind that have texts, where the chosen heads have some; else all."""
        texts = self.top.text is not None
        drawn = (draw for draw in self.drawn if draw.label.kind == kind)
        return tuple(draw for draw in drawn if draw.text is not None or not texts)

    def chrf(self, kind: Kind) -> tuple[float, ...]:
        """chrF++ of the draws of one kind, as far as it was computed."""
        return tuple(draw.chrf for draw in self.draws(kind) if draw.chrf is not None)

    def nll(self, kind: Kind) -> tuple[float, ...]:
        """The NLL of all draws of one kind."""
        drawn = (draw for draw in self.drawn if draw.label.kind == kind)
        return tuple(draw.nll for draw in drawn if draw.nll is not None)

    def counted(self, kind: Kind) -> int:
        """The draws that the p-value over draws counts: of layer-matched ones each set once."""
        than, draws = self.top.than(kind), len(self.draws(kind))
        return draws if than is None or kind == "random" else than.distinct


@dataclass(frozen=True, kw_only=True)
class Dose:
    """chrF++ of chosen heads, and of their random draws, at one size and strength."""

    k: int
    gate: float
    ablate: Ablate = "zero"
    top: float | None
    random: Draws = entry(
        flat="", names={each: f"random_{each}" for each in ("mean", "low", "high")}
    )
    random_layer_matched: Draws = entry(
        flat="", names={each: f"random_layer_matched_{each}" for each in ("mean", "low", "high")}
    )


@dataclass(frozen=True, kw_only=True)
class Part(Record):
    """One direction, or the mean over all: the model as it is, and every condition.

    `p_value` is that over sentences at the largest k, its first gate and kind of ablation.
    """

    sentences: int | None = None
    reference_tokens: Tokens | None = entry(absent=True)
    baseline: Baseline
    conditions: tuple[Condition, ...]
    curves: tuple[Dose, ...] | None = entry(absent=True)
    p_value: float | None = None
    p_value_loss: float | None = entry(absent=True)
    source_language: str | None = entry(absent=True)
    target_language: str | None = entry(absent=True)

    @property
    def chrf(self) -> float | None:
        """chrF++ of the model as it is; None where it was not computed."""
        return self.baseline.chrf

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of chrF++ of the model as it is."""
        text = self.baseline.text
        if text is None or text.low is None or text.high is None:
            return None
        return text.low, text.high

    def interval_of(self, condition: Condition) -> tuple[float, float] | None:
        """The interval of a condition's change of chrF++, around the level it leads to."""
        change = condition.change.chrf
        if self.chrf is None or change is None or not change.bounded:
            return None
        return self.chrf + change.low, self.chrf + change.high

    @property
    def cases(self) -> Iterator[Case]:
        """The chosen heads of every size, strength and kind of ablation, with their draws."""
        for top in self.conditions:
            if top.label.kind == "top":
                same = (other for other in self.conditions if other.label.matches(top.label))
                yield Case(top, tuple(other for other in same if other is not top))

    def case(self, k: int, gate: float, ablate: str) -> Case | None:
        """One of the `cases`; None if the chosen heads are not among the conditions."""
        wanted = (k, gate, ablate)
        labels = ((case, case.top.label) for case in self.cases)
        return next((case for case, of in labels if (of.k, of.gate, of.ablate) == wanted), None)

    def with_ablation(self, ablate: Ablate) -> Self:
        """This part with one kind of ablation in the labels of all conditions."""
        conditions = tuple(
            replace(condition, label=replace(condition.label, ablate=ablate))
            for condition in self.conditions
        )
        return replace(self, conditions=conditions)

    def with_losses(self, other: Part) -> Self:
        """These texts, and the losses that another part has of these conditions and of others."""
        texts = {condition.label: condition for condition in self.conditions}
        return replace(
            self,
            reference_tokens=other.reference_tokens,
            baseline=replace(self.baseline, loss=other.baseline.loss),
            conditions=tuple(
                texts[loss.label].with_loss(loss) if loss.label in texts else loss
                for loss in other.conditions
            ),
            p_value_loss=other.p_value,
        )


@dataclass(frozen=True)
class Measuring:
    """What identified languages, why measures are null, and what BLEU was cut by in each direction.

    Older runs lack the last.
    """

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


@dataclass(frozen=True, kw_only=True)
class Shown(Part):
    """What a removal shows over all directions and in each; over several, plain means."""

    measuring: Measuring | None = entry(flat="")
    directions: Mapping[str, Part]
    reference_links: Mapping[str, ReferenceLinks] | None = entry(absent=True)
    links: OutputLinks | None = entry(absent=True)

    @property
    def linked_by(self) -> str | None:
        """How words of outputs were linked."""
        return None if self.links is None else self.links.method


@dataclass(frozen=True, kw_only=True)
class Controls(Record):
    """Where random heads were drawn from, and whether the chosen ones were found on other data."""

    pool: str | None = None
    pool_note: str | None = None
    leakage: Leakage | None = None


@dataclass(frozen=True, kw_only=True)
class RemovalResult(ModelResult, Ranking, Checked, Ablation, Controls, Shown):
    """The result of `verify removal`; `heads` are those of the largest k, `ablate` the first kind.

    Older runs name no rank: they cut by score.
    """

    k: tuple[int, ...]
    rank: str | None = "score"
    gates: tuple[float, ...]
    measures: tuple[str, ...] = ("text",)
    ablate: Ablate = "zero"
    draws: int = 0
    draws_loss: int | None = entry(absent=True)
    threshold: float | None = None
    seed: int = 0
    heads: tuple[str, ...]

    @property
    def main(self) -> tuple[int, float, str]:
        """The condition of the page: the largest k at its first gate and kind of ablation."""
        return max(self.k), self.gates[0], self.ablate

    @property
    def main_case(self) -> Case:
        """The conditions of the page; KeyError where the result lacks them."""
        case = self.case(*self.main)
        if case is None:
            raise KeyError("top")
        return case

    @property
    def ablations(self) -> tuple[str, ...]:
        """The kinds of ablation, that of the page first."""
        return tuple(dict.fromkeys([self.ablate, *(row.label.ablate for row in self.conditions)]))

    def named(self) -> RemovalResult:
        """This result, with the kind of ablation in conditions of older runs, which name none."""
        if any(row.label.ablate == self.ablate for row in self.conditions):
            return self
        parts = self.directions.items()
        directions = {name: part.with_ablation(self.ablate) for name, part in parts}
        return replace(self.with_ablation(self.ablate), directions=directions)


def removal_of(path: Path) -> RemovalResult:
    """The result of a finished run; InputError if it is missing, damaged, or of another kind."""
    return result_of(path, RemovalResult, "a removal").named()
