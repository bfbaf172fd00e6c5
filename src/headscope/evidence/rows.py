"""The table of evidence: conditions, what was measured under each, and tests against controls.

Every command that compares a model with and without heads returns these rows; they know no model
and no numbers of single examples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import zip_longest
from math import inf, isnan
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from headscope.ablations import gives
from headscope.display import brief
from headscope.errors import InputError
from headscope.estimates import UNWRITTEN, Draws, Estimate
from headscope.heads import Geometry, Head, HeadSet
from headscope.heads.geometry import keys_of
from headscope.shown.blocks import Cell
from headscope.shown.words import fixed

if TYPE_CHECKING:
    from headscope.lm import LanguageModel

ORIGINAL, SELECTED = "original", "selected"
#: What p over draws may be at most, if nobody says otherwise.
LEVEL = 0.05
#: Whose heads those are that are removed so that the others alone are kept.
KEPT = "kept"
#: Heads at all points of a curve together.
CURVE = "curve"
#: The key of conditions that leave the model as it is.
AS_IS = "as is"
#: The part that is the plain mean over several.
WHOLE = ""
#: The unit of numbers between 0 and 1 that are shown in per cent.
SHARE = "share"
Better = Literal["higher", "lower"]
Measured = TypeVar("Measured")
#: A score with or without its interval.
Scored = Estimate | float | None


@dataclass(frozen=True)
class Condition:
    """Heads and what is done to them: the model as it is, selected heads, or a control.

    Attributes:
        id: names it in the rows of a table.
        kind: `original`, `selected`, or the name of a control.
        of: whose heads they are (a language, a task, a layer), or "".
        k: how many heads were asked for; `heads` may hold fewer. 0 where parts differ in it.
        gate: what the heads' outputs are multiplied by; 0 removes them; None: each has its own.
        replacement: what stands in the place of what the gate removes.
        draw: number of a random draw, from 0.
        heads: such as `5.3`; of selected ones the best first.
        round: where draws come one after another, that in which it is measured, from 1; 0: their
            number is fixed.
    """

    id: str = field(init=False)
    kind: str = ORIGINAL
    of: str = ""
    k: int = 0
    gate: float | None = 1.0
    replacement: str = "zero"
    draw: int | None = None
    heads: tuple[str, ...] = ()
    round: int = field(default=0, compare=False, metadata=UNWRITTEN)

    def __post_init__(self) -> None:
        gate = "gated" if self.gate is None else f"\u00d7{self.gate:.12g}" if self.gate else ""
        gate = "" if self.gate == 1 and not self.k else gate
        other = "" if self.replacement == "zero" else self.replacement
        parts = [self.of, str(self.k or ""), gate, other] if self.kind != ORIGINAL else [self.of]
        draw = "" if self.draw is None else f"#{self.draw}"
        object.__setattr__(self, "id", " ".join(filter(None, [self.kind, *parts, draw])))

    @property
    def case(self) -> tuple[Any, ...]:
        """What a control shares with the heads that it is drawn for, besides whose they are."""
        return self.k, self.gate, self.replacement

    def controls(self, selected: Condition) -> bool:
        """Whether this was drawn for these heads; a control of nobody is for all of the size, one
        that is not drawn, such as the instructed model, for all sizes."""
        return self.of in ("", selected.of) and (self.draw is None or self.case == selected.case)

    @property
    def key(self) -> str:
        """What decides what the model does, and with what else it is measured: conditions with one
        key are the same."""
        if self.gate is None:
            return self.id
        if self.gate == 1 or not self.heads:
            return AS_IS
        other = "" if self.replacement == "zero" else f"{self.replacement} "
        heads = ",".join(keys_of(sorted(map(Head.parse, self.heads))))
        place = f" @{self.kind} {self.round}" if self.round else ""
        return f"{other}{self.gate + 0.0!r} {heads}{place}"

    @property
    def together(self) -> str:
        """What is computed together has this in common: where draws come one after another those of
        a control and a round, which do not depend on the selected heads; else all conditions."""
        if not self.round:
            return ""
        return f"{self.kind} {self.k} {self.gate} {self.replacement} {self.round}"

    def in_model(self, geometry: Geometry) -> HeadSet:
        """The heads as a set of a model."""
        return HeadSet(geometry, tuple(map(Head.parse, self.heads)))

    @property
    def done(self) -> str:
        """What is done to the heads, such as `removed`."""
        if self.gate is None:
            return "gated"
        if self.gate == 1:
            return "as they are"
        other = gives(self.replacement)
        if self.of == KEPT:
            return f"kept, the others {f'replaced by {other}' if other else 'removed'}"
        if self.gate == 0:
            return f"replaced by {other}" if other else "removed"
        return f"at {self.gate:.12g} \u00d7 strength" + (f", the rest {other}" if other else "")

    def named(self, kind: str = SELECTED) -> str:
        """`12 selected, removed`."""
        of = "" if self.of == KEPT else self.of
        return ", ".join(filter(None, [of, f"{self.k or ''} {kind}".strip(), self.done]))


@dataclass(frozen=True)
class Statistic:
    """What is measured, and how it is written.

    Attributes:
        words: its name in titles and sentences.
        better: whether more is better.
        unit: of its numbers; `share` are those between 0 and 1, shown in per cent.
        digits: decimals that are shown.
        bounds: the lowest and the highest that it can be, where there are such.
        score: from sums over examples (..., features) to scores (...); None: sums of a value and
            of its weight, whose quotient is the mean.
    """

    words: str
    better: Better = "higher"
    unit: str = ""
    digits: int = 3
    bounds: tuple[float, float] | None = None
    score: Callable[[Any], Any] | None = field(default=None, metadata=UNWRITTEN)

    @property
    def sign(self) -> int:
        """What a change is multiplied by, so that harm is above zero."""
        return -1 if self.better == "higher" else 1

    @property
    def limits(self) -> tuple[float, float]:
        """The lowest and the highest that it can be."""
        return (0.0, 1.0) if self.unit == SHARE else self.bounds or (-inf, inf)

    @property
    def factor(self) -> float:
        """What a number is multiplied by where it is shown."""
        return 100.0 if self.unit == SHARE else 1.0

    @property
    def title(self) -> str:
        """The words with the unit; shares have it at every number."""
        return self.words if self.unit in ("", SHARE) else f"{self.words}, {self.unit}"

    @property
    def axis(self) -> str:
        """The words with the unit, for an axis, whose numbers have none."""
        return f"{self.words}, %" if self.unit == SHARE else self.title

    @property
    def points(self) -> str:
        """The unit at a difference."""
        return "pp" if self.unit == SHARE else ""

    def shown(self, score: Scored) -> Estimate:
        """A score as it is shown; without an interval where it has none."""
        if not isinstance(score, Estimate):
            score = Estimate(float("nan") if score is None else score)
        return Estimate(*(self.factor * end for end in (score.value, score.low, score.high)))

    def number(self, score: Scored) -> str:
        """A score in words."""
        number = fixed(self.shown(score).value, self.digits)
        return f"{number}\u00a0%" if self.unit == SHARE else number

    def cell(self, score: Scored) -> Cell:
        """A score in a table."""
        return Cell.of(self.shown(score), self.digits, "%" if self.unit == SHARE else "")

    def gap(self, difference: Estimate | None) -> Cell:
        """A difference in a table."""
        return Cell.of(difference, self.digits, self.points, self.factor)


def statistic(
    words: str, better: Better = "higher", **written: Any
) -> Callable[[Callable[[Any], Any]], Statistic]:
    """Makes a function from sums over examples to scores a `Statistic`."""
    return lambda score: Statistic(words, better, score=score, **written)


@dataclass(frozen=True)
class Basis:
    """What a control may draw by, besides the selected heads.

    Attributes:
        avoid: heads that `outside` leaves out, such as token alignment heads.
        lm: the model, and `texts` of the data, for controls that look at what heads do.
        watch: called before every try; it may raise to end the drawing.
        gone: heads that another gate has removed already, so that no control may draw them.
    """

    avoid: HeadSet | None = None
    lm: LanguageModel | None = None
    texts: tuple[str, ...] = ()
    watch: Callable[[], object] = bool
    gone: HeadSet | None = None
    _measured: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def on(cls, lm: LanguageModel, parts: Iterable[Sequence[str]], **more: Any) -> Basis:
        """A model on the texts of several parts, such as languages, of each in turn."""
        texts = (text for row in zip_longest(*parts) for text in row if text is not None)
        return cls(lm=lm, texts=tuple(texts), **more)

    def left(self, geometry: Geometry) -> list[Head]:
        """The heads of the model that a control may draw from, by layer, then head."""
        return [head for head in geometry.heads() if head not in (self.gone or ())]

    def measured(self, measure: Callable[[LanguageModel, tuple[str, ...]], Measured]) -> Measured:
        """What a function finds out about the model on the texts, once for all draws.

        Raises `InputError` where there is no model or no text.
        """
        if self.lm is None or not self.texts:
            raise InputError("this control needs a model and texts; use another control")
        key = measure, self.lm, self.texts
        if key not in self._measured:
            self._measured[key] = measure(self.lm, self.texts)
        made: Measured = self._measured[key]
        return made


NOTHING = Basis()


@dataclass(frozen=True)
class Control:
    """A named way to draw sets of the size of the selected one.

    Attributes:
        words: what the sets are called, such as `random heads of the same layers`.
        null: what is true of the selected heads if they are not special; "" where the draws give
            the size of an effect but no p-value, since the selected heads cannot be one of them.
        draw: from selected heads, a number of draws, a seed and a basis to different sets of as
            many heads; draw i does not depend on the number of draws. None: a command makes the
            control itself.
    """

    words: str
    null: str = ""
    draw: Callable[[HeadSet, int, int, Basis], Sequence[HeadSet]] | None = field(
        default=None, metadata=UNWRITTEN
    )


@dataclass(frozen=True, kw_only=True)
class Level(Estimate):
    """A statistic under a condition, over the examples of a part, with its 95 % interval.

    `change` is from the original model, with its interval over the same examples; None of the
    original itself.
    """

    part: str
    condition: str
    statistic: str
    examples: int
    change: Estimate | None = None


@dataclass(frozen=True, kw_only=True)
class Tested:
    """Selected heads beside the draws of a control.

    Attributes:
        difference: the statistic minus the mean of the draws', with its interval over examples.
        p_examples: by swapping examples with those of draws; None where the score does not follow
            from examples.
        p_draws: by the rank of the selected heads among the draws; None where the control has no
            null.
        draws: how many different sets were drawn.
        at_least_as_harmful: how many of them lie at least as far on the side that is claimed.
        ended: of draws one after another, "shown", "given up", "limit" (as many as there may be
            did not decide it) or "open" (more could); None where their number was fixed.
        at_most: of draws one after another, how many there may be.
        as_far: of each set, in the order of the draws, whether it does at least as much.
        least_p: the lowest that `p_draws` can be with them.
        shared: the mean share of the selected heads that a draw holds, which dilutes the
            difference.
        side: where the statistic lies if the heads do what is claimed: one-sided p-values.
    """

    part: str
    condition: str
    statistic: str
    control: str
    difference: Estimate
    p_examples: float | None = None
    p_draws: float | None = None
    draws: int = 0
    at_least_as_harmful: int | None = None
    ended: str | None = None
    at_most: int | None = None
    as_far: tuple[bool, ...] = field(default=(), compare=False, repr=False, metadata=UNWRITTEN)
    least_p: float | None = None
    shared: float | None = None
    side: str = "lower"
    __test__: ClassVar[bool] = False  # by its name pytest would take it for tests

    @property
    def share_as_far(self) -> str:
        """How many draws do at least as much, such as `1 of 30`; empty where that is unknown."""
        known = self.at_least_as_harmful is not None
        return f"{self.at_least_as_harmful} of {self.draws}" if known else ""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Conditions, what was measured under each, and the selected ones beside their controls.

    `levels` and `tests` name conditions by `id`, and parts: a direction, a language, a task, or ""
    for the plain mean over several. `alpha` is what p over draws may be at most in a verdict,
    `asked` how many draws were asked for, of which there may be fewer.
    """

    statistics: Mapping[str, Statistic] = field(default_factory=dict)
    controls: Mapping[str, Control] = field(default_factory=dict)
    conditions: tuple[Condition, ...] = ()
    levels: tuple[Level, ...] = ()
    tests: tuple[Tested, ...] = ()
    alpha: float = LEVEL
    asked: int = field(default=0, compare=False, metadata=UNWRITTEN)

    def __repr__(self) -> str:
        return brief(self)

    @cached_property
    def _levels(self) -> dict[tuple[str, str, str], Level]:
        return {(row.part, row.condition, row.statistic): row for row in self.levels}

    @cached_property
    def _tests(self) -> dict[tuple[str, str, str], dict[str, Tested]]:
        rows: dict[tuple[str, str, str], dict[str, Tested]] = {}
        for row in self.tests:
            rows.setdefault((row.part, row.condition, row.statistic), {})[row.control] = row
        return rows

    @cached_property
    def parts(self) -> tuple[str, ...]:
        """The parts, the mean over several first."""
        return tuple(dict.fromkeys(row.part for row in self.levels))

    @cached_property
    def _wholes(self) -> dict[str, str]:
        """By statistic its mean over all parts, or the only part where it was measured."""
        of: dict[str, set[str]] = {}
        for row in self.levels:
            of.setdefault(row.statistic, set()).add(row.part)
        return {name: next(iter(parts)) for name, parts in of.items() if len(parts) == 1}

    def _place(self, part: str | None, condition: str, statistic: str) -> tuple[str, str, str]:
        whole = self._wholes.get(statistic, WHOLE)
        return whole if part is None else part, condition, statistic

    @property
    def single(self) -> tuple[str, ...]:
        """The parts without the mean over them."""
        return tuple(part for part in self.parts if part != WHOLE)

    def level(
        self, statistic: str, condition: Condition | None = None, part: str | None = None
    ) -> Level | None:
        """A statistic under a condition (None: the original model) in a part (None: in all)."""
        own = self.original if condition is None else condition
        return self._levels.get(self._place(part, own.id, statistic))

    def against(
        self, statistic: str, condition: Condition, part: str | None = None
    ) -> Mapping[str, Tested]:
        """The tests of selected heads by control."""
        return self._tests.get(self._place(part, condition.id, statistic), {})

    @property
    def original(self) -> Condition:
        """The model as it is."""
        return self.conditions[0]

    @cached_property
    def selected(self) -> tuple[Condition, ...]:
        """The conditions of selected heads."""
        return tuple(condition for condition in self.conditions if condition.kind == SELECTED)

    @property
    def curve(self) -> Condition:
        """The selected heads at all points of a curve."""
        return next(condition for condition in self.selected if condition.of == CURVE)

    @cached_property
    def references(self) -> tuple[Condition, ...]:
        """The conditions that selected heads are compared with and that are not drawn."""
        return tuple(
            condition
            for condition in self.conditions[1:]
            if condition.kind != SELECTED and condition.draw is None
        )

    @property
    def main(self) -> Condition:
        """The selected heads of which a page speaks: the most, at the first gate and kind; the
        model as it is where none are changed."""
        return max(self.selected, key=lambda condition: condition.k, default=self.original)

    def of_control(self, condition: Condition, control: str) -> list[Condition]:
        """The draws of a control for selected heads."""
        return [
            drawn
            for drawn in self.conditions
            if drawn.kind == control and drawn.controls(condition)
        ]

    def draws(
        self, statistic: str, condition: Condition, control: str, part: str | None = None
    ) -> Draws:
        """A statistic under the draws of a control."""
        rows = (self.level(statistic, drawn, part) for drawn in self.of_control(condition, control))
        return Draws.of([row.value for row in rows if row is not None and not isnan(row.value)])

    def reference(self, condition: Condition, control: str) -> Condition | None:
        """What a control is that nothing is drawn of, such as the instructed model; else None."""
        own = self.of_control(condition, control)
        return own[0] if len(own) == 1 and own[0].draw is None else None
