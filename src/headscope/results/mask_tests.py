"""Results of `verify mask`, `verify scaling` and `verify families`: tasks under masks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import nan
from typing import Literal

from headscope.estimates import Estimate
from headscope.heads import Head
from headscope.results.common import Bounds, Checked, Leakage, ModelResult
from headscope.runs import Record, entry

Measure = Literal[
    "nll",
    "nll_tokens",
    "perplexity",
    "rouge_l",
    "chrf",
    "bleu",
    "bleu_published",
    "accuracy",
    "accuracy_words",
]
ByMeasure = Mapping[str, Estimate]


@dataclass(frozen=True)
class MaskFacts(Record):
    """A mask: heads it keeps and removes, the tasks and model it was trained on.

    `on` says what is gated, the outputs of heads or their queries.
    """

    name: str
    tasks: tuple[str, ...]
    model: str | None
    kept: int
    removed: int
    kept_share: float
    on: str
    feed_forward_removed: int


@dataclass(frozen=True)
class AgainstDraws:
    """A condition against random masks of one kind, by measure.

    Attributes:
        against: its difference to the mean of the draws.
        p_draws, p_examples, least_p: see `headscope.estimates.Against`.
        distinct_draws: how many of the draws differ.
    """

    against: ByMeasure
    p_draws: Mapping[str, float | None]
    p_examples: Mapping[str, float | None] = field(default_factory=dict)
    distinct_draws: int | None = None
    least_p: float | None = None


@dataclass(frozen=True)
class OtherMask:
    """A mask that was found for other tasks, and how many of the examples it was trained on.

    `unseen`: whether the task is none of those it was trained on, None where they are not known.
    """

    mask: MaskFacts
    unseen: bool | None
    leakage: Leakage


@dataclass(frozen=True, kw_only=True)
class Outcome(Record):
    """What came of a task under one condition, or of several tasks on average.

    Attributes:
        draw: the number of a random mask, which is drawn for the condition called `of`.
        kept: how many heads the mask keeps, None without a mask.
        nll: the mean over examples of the mean over the output's tokens, in nats.
        nll_tokens: the mean over all tokens; `perplexity` is its exponential.
        rouge_l, chrf, bleu, bleu_published: 0 to 100.
        accuracy, accuracy_words: shares. Measures are None where they were not taken, or are not
            finite.
        intervals: by measure; None in a mean over tasks.
        change: by measure the difference to the first condition, paired.
    """

    kind: str
    name: str
    draw: int | None
    of: str | None
    instructed: bool
    kept: int | None
    nll: float
    nll_tokens: float
    perplexity: float | None
    rouge_l: float | None
    chrf: float | None
    bleu: float | None
    bleu_published: float | None
    accuracy: float | None
    accuracy_words: float | None
    intervals: Mapping[str, Bounds] | None = entry(absent=True)
    change: ByMeasure | None = entry(absent=True)
    against_instructed: ByMeasure | None = entry(absent=True)
    against_alpha_0: ByMeasure | None = entry(name="against_α_0", absent=True)
    against_masked_and_instructed: ByMeasure | None = entry(absent=True)
    shuffled_draws: AgainstDraws | None = entry(flat="_shuffled")
    shuffled_layer_matched_draws: AgainstDraws | None = entry(flat="_shuffled_layer_matched")
    random_draws: AgainstDraws | None = entry(flat="_random")
    random_layer_matched_draws: AgainstDraws | None = entry(flat="_random_layer_matched")
    other: OtherMask | None = entry(flat="")

    def value(self, measure: Measure) -> float | None:
        """The value of a measure."""
        value: float | None = getattr(self, measure)
        return value

    def level(self, measure: Measure) -> Estimate:
        """The value of a measure with its interval; NaN for what is not known."""
        value = self.value(measure)
        interval = (self.intervals or {}).get(measure, Bounds())
        return Estimate(nan if value is None else value, interval.low, interval.high)

    def changed(self, measure: Measure) -> Estimate:
        """The difference to the first condition; NaN where it is not known."""
        return (self.change or {}).get(measure, Estimate())


def mean_of(outcomes: Sequence[Outcome], measure: Measure) -> float | None:
    """The mean of a measure over conditions; None where there are none, or one lacks it."""
    values = [value for each in outcomes if (value := each.value(measure)) is not None]
    return sum(values) / len(values) if values and len(values) == len(outcomes) else None


@dataclass(frozen=True, kw_only=True)
class TaskOutcomes(Record):
    """A task with its conditions; the first is the one that all are compared with.

    `instruction` is the prompt that says what to do.
    """

    examples: int
    language: str | None
    translation: bool
    instruction: str | None
    conditions: tuple[Outcome, ...]

    @property
    def base(self) -> Outcome:
        """What all conditions are compared with."""
        return self.conditions[0]

    @property
    def undrawn(self) -> tuple[Outcome, ...]:
        """The conditions that are no random draws."""
        return tuple(each for each in self.conditions if each.draw is None)

    @property
    def drawn(self) -> Mapping[str, tuple[Outcome, ...]]:
        """The random draws by kind."""
        kinds = dict.fromkeys(each.kind for each in self.conditions if each.draw is not None)
        return {kind: self.of_kind(kind) for kind in kinds}

    def of_kind(self, kind: str, name: str | None = None) -> tuple[Outcome, ...]:
        """The conditions of a kind; with a name the one called so, or the draws for it."""
        return tuple(
            each
            for each in self.conditions
            if each.kind == kind and name in (None, each.name, each.of)
        )

    def first_taken(self, *measures: Measure) -> Measure | None:
        """The first of these measures that was taken."""
        return next((each for each in measures if self.base.value(each) is not None), None)


@dataclass(frozen=True, kw_only=True)
class MaskedTask(TaskOutcomes):
    """A task without its instruction, with and without a mask.

    Attributes:
        tokens: of all right outputs.
        at_start: whether an output is right only where it begins with the answer.
        too_long: answers with more tokens than the model was allowed to write.
        bare: the prompt without an instruction.
        unseen: whether the task is none of those that the mask was trained on, None where they
            are not known.
    """

    tokens: int
    at_start: bool = False
    too_long: int = 0
    bare: str
    mask: MaskFacts
    unseen: bool | None
    leakage: Leakage

    @property
    def main_measure(self) -> Measure | None:
        """The measure of outputs that stands for the task, if one was taken."""
        return self.first_taken(*(("chrf", "rouge_l") if self.translation else ("accuracy",)))


@dataclass(frozen=True, kw_only=True)
class MaskTests(Checked, ModelResult):
    """The result of `verify mask`.

    `conditions` are those of a single task, of several their means; `draws` random masks of each
    kind were requested, `distinct_draws` by task and kind is how many there are.
    """

    tasks: Mapping[str, MaskedTask]
    conditions: tuple[Outcome, ...]
    shots: int
    draws: int
    distinct_draws: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class AlphaOutcome(Outcome):
    """The instructed task with the heads outside the mask at α; `shuffled` are losses of draws."""

    alpha: float
    shuffled: tuple[float, ...]

    @property
    def shuffled_mean(self) -> float | None:
        """The mean loss with shuffled masks."""
        return sum(self.shuffled) / len(self.shuffled) if self.shuffled else None


@dataclass(frozen=True)
class AlphaShare:
    """The share of resamples of the examples that have their lowest loss at this α."""

    alpha: float
    share: float


@dataclass(frozen=True, kw_only=True)
class ScaledTask(TaskOutcomes):
    """The instructed task with the heads outside a mask scaled by α.

    Attributes:
        chosen_on: how many examples α was chosen on; `conditions` are of others.
        alphas: the losses by ascending α.
        best: the α with the lowest loss.
        uninstructed: the examples that α was chosen on without the instruction.
        left_out: examples to measure on that the mask, or the choice of α, had seen.
    """

    chosen_on: int
    mask: MaskFacts
    alphas: tuple[AlphaOutcome, ...]
    best: float
    chosen_again: tuple[AlphaShare, ...]
    uninstructed: tuple[Outcome, ...]
    leakage: Leakage
    left_out: int | None = entry(absent=True)

    @property
    def output_measures(self) -> tuple[Measure, ...]:
        """The measures of outputs; the first that was taken stands for the task."""
        return ("bleu", "chrf", "bleu_published") if self.translation else ("accuracy",)

    @property
    def shares(self) -> tuple[tuple[AlphaOutcome, float], ...]:
        """Every α with the share of resamples that would choose it."""
        share = {each.alpha: each.share for each in self.chosen_again}
        return tuple((each, share[each.alpha]) for each in self.alphas)


@dataclass(frozen=True, kw_only=True)
class ScalingTests(Checked, ModelResult):
    """The result of `verify scaling`; `grid` are the values of α, the rest as in `MaskTests`."""

    tasks: Mapping[str, ScaledTask]
    conditions: tuple[Outcome, ...]
    grid: tuple[float, ...]
    draws: int


@dataclass(frozen=True, kw_only=True)
class FamilyHeads(Record):
    """The heads that the masks of some tasks share.

    Attributes:
        name: `all`, a language, one that was given, or `unused` for the heads in no mask.
        removed, kept: how many heads they are, and how many others there are.
        pool: what as many random heads are drawn from, `outside` the set or `all` heads.
        tested: whether it is neither no head nor every head.
    """

    name: str
    tasks: tuple[str, ...]
    removed: int
    kept: int
    heads: tuple[Head, ...]
    pool: Literal["outside", "all"]
    tested: bool


@dataclass(frozen=True, kw_only=True)
class FamilyTests(Checked, ModelResult):
    """The result of `verify families`.

    `leakage` counts an example once a mask that was trained on it; the rest as in `MaskTests`.
    """

    families: tuple[FamilyHeads, ...]
    masks: Mapping[str, MaskFacts]
    tasks: Mapping[str, TaskOutcomes]
    conditions: tuple[Outcome, ...]
    draws: int
    leakage: Leakage
