"""Heads removed one after another: ranks of followed tokens, texts and hidden states by step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headscope.heads import Head
from headscope.results.common import ComparedDetails, ComparedResult
from headscope.runs import Record, entry


@dataclass(frozen=True, kw_only=True)
class State(Record):
    """What is seen at one step: of one prompt its own, else means over prompts and directions.

    Attributes:
        target_rank: of the target's first token among all, 1 for the likeliest.
        target_rank_median: over all prompts.
        top5_ranks: of the five tokens that were the likeliest of the untouched model.
        text: of one prompt, where it differs from that of the step before.
        texts_changed: how many prompts have another text than at the step before; None without.
        chrf: chrF++ (0 to 100) of the texts against the targets; None without.
        similarity: of each layer, the cosine of its output with that of the reference pass.
    """

    target_rank: float
    target_rank_median: float | None = None
    top5_ranks: tuple[float, ...]
    text: str | None
    texts_changed: int | None
    chrf: float | None
    similarity: tuple[float, ...]

    @property
    def at(self) -> int:
        """How many heads have been removed."""
        return 0

    @property
    def last(self) -> str:
        """The head that was removed last; empty for none."""
        return ""


@dataclass(frozen=True, kw_only=True)
class Untouched(State):
    """The model as it is; of one prompt the tokens that are followed, as the tokenizer says."""

    target_token: str | None = entry(absent=True)
    top5_tokens: tuple[str, ...] | None = entry(absent=True)


@dataclass(frozen=True, kw_only=True)
class Removed(State):
    """The model after a step, which removed a head."""

    step: int
    layer: int
    head: int

    @property
    def at(self) -> int:
        """How many heads have been removed."""
        return self.step

    @property
    def last(self) -> str:
        """The head that was removed last."""
        return str(Head(self.layer, self.head))


@dataclass(frozen=True, kw_only=True)
class Trajectory(Record):
    """All steps."""

    baseline: Untouched
    steps: tuple[Removed, ...]

    @property
    def states(self) -> tuple[State, ...]:
        """The untouched model, and the model after every step."""
        return (self.baseline, *self.steps)


@dataclass(frozen=True, kw_only=True)
class MeanTrajectory(Trajectory):
    """Means over directions, and where there are several, each of them."""

    directions: Mapping[str, Trajectory] | None = entry(absent=True)


@dataclass(frozen=True)
class Change(Record):
    """By how much a head changed the target's rank before the order was made."""

    layer: int
    head: int
    change: float


@dataclass(frozen=True)
class Cut(Record):
    """The learned mask whose weights gave the order.

    `cut_step` is that after which exactly its heads are left, None in another order.
    """

    kept: int
    removed: int
    cut_step: int | None


@dataclass(frozen=True)
class FirstSteps(Record):
    """When the target comes first: each prompt's first such step, and the share by step.

    `median` counts prompts in which it never does as later than all; None if that is the middle.
    """

    first_steps: tuple[int | None, ...]
    median: float | None
    never: int
    share: tuple[float, ...]


@dataclass(frozen=True)
class RandomOrder(Record):
    """All prompts in one random order: means and medians by step."""

    heads: tuple[str, ...]
    target_rank: tuple[float, ...]
    target_rank_median: tuple[float, ...]
    target_first: tuple[float, ...]
    last_similarity: tuple[float, ...]


@dataclass(frozen=True)
class ExampleText(Record):
    """A text that differs from that of the step before, and the head removed there."""

    step: int
    head: str | None
    text: str


@dataclass(frozen=True)
class Example(Record):
    """One prompt by itself: ranks of the target's first token by step, and texts that change."""

    id: str
    prompt: str
    target: str
    target_ranks: tuple[int, ...]
    texts: tuple[ExampleText, ...]


@dataclass(frozen=True, kw_only=True)
class OneByOneDetails(ComparedDetails, MeanTrajectory):
    """Every step of the order, and of random ones; `heads` are in the order of their removal."""

    data: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    order: str
    gate: float
    heads: tuple[str, ...] = ()
    base_order: tuple[str, ...] = ()
    changes: tuple[Change, ...] | None = None
    sentences: int
    reference: str | None = None
    layers_shared: bool = False
    mask: Cut | None = None
    target_first: FirstSteps | None = None
    random_orders: tuple[RandomOrder, ...] = ()
    example: Example | None = None


@dataclass(frozen=True, kw_only=True)
class OneByOneResult(ComparedResult):
    """The result of `verify one-by-one`.

    Its rows compare one step with the same step of random orders, which removes as many heads:
    that after which a mask's heads are left, else the last, or half of all heads where all go.
    """

    details: OneByOneDetails
