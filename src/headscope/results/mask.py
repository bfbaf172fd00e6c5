"""The result of `find mask`: a trained mask, what became of each head, and how training went."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal

from headscope.results.common import ModelFacts, ModelResult, ScoredHead
from headscope.runs import Record, entry

#: `kept` and `never`: selected, or not, from beginning to end.  `dropped` and `added`: changed
#: once.  `tried`: not in the mask, but selected (again) for a while after having been out of it.
#: `regained`: in the mask, but dropped (again) for a while after having been in it.
Fate = Literal["kept", "never", "dropped", "added", "tried", "regained"]


@dataclass(frozen=True, kw_only=True)
class MaskHead(ScoredHead):
    """A head with its final weight as its score; `changes` are steps at which it changed sides."""

    score: float
    selected: bool
    fate: Fate
    changes: tuple[int, ...]

    @property
    def wavered(self) -> bool:
        """Whether it changed sides more than once."""
        return self.fate in ("tried", "regained")


@dataclass(frozen=True)
class FeedForwardGate(Record):
    """The final weight of a layer's feed-forward part, and whether the mask keeps it."""

    layer: int
    weight: float
    selected: bool


@dataclass(frozen=True)
class TaskSizes(Record):
    """How many examples of a task were trained on, and how many held out."""

    name: str
    train: int
    held_out: int


@dataclass(frozen=True)
class TaskData(Record):
    """Where the examples of a task were read, and how many were trained on."""

    name: str
    path: str
    rows: int


@dataclass(frozen=True, kw_only=True)
class MaskModel(ModelFacts):
    """The model that a mask is of; `key_value_heads` by layer."""

    layers: int | None = None
    key_value_heads: tuple[int, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class FoundMask(ModelResult):
    """A trained mask.

    Attributes:
        scored: all heads, by falling weight.
        selected, kept_share: number and share of heads that the mask keeps.
        fates: how many heads went which way.
        feed_forward: by layer, None where these parts had no gates.
        loss: of every step, in nats a token.
        start, on, steps, travel: see `find.mask_config.MaskTraining`, which `training` is.
        task: the name of the task, or of several as one; `tasks` are its parts.
        prompt: the prompt without an instruction.
        examples, tokens: trained on, and of their answers.
        minutes: that the steps were to fit into.
    """

    model: MaskModel | None = None
    scored: tuple[MaskHead, ...] = entry(name="scores")
    selected: int
    kept_share: float
    fates: Mapping[str, int]
    feed_forward: tuple[FeedForwardGate, ...] | None
    loss: tuple[float, ...]
    start: str
    on: str
    steps: int
    travel: float
    training: Mapping[str, Any]
    notes: tuple[str, ...]
    task: str
    tasks: tuple[TaskSizes, ...]
    shots: int
    prompt: str
    examples: int
    minutes: float | None = None
    seconds_a_step: float | None = None
    tokens: int
    data: tuple[TaskData, ...]

    @property
    def layers(self) -> Mapping[int, tuple[MaskHead, ...]]:
        """The heads of every layer that has some, in their order."""
        heads = sorted(self.scored, key=lambda head: head.place)
        layers = dict.fromkeys(head.layer for head in heads)
        return {at: tuple(head for head in heads if head.layer == at) for at in layers}

    @property
    def feed_forward_dropped(self) -> tuple[int, ...]:
        """The layers whose feed-forward parts the mask drops."""
        return tuple(gate.layer for gate in self.feed_forward or () if not gate.selected)

    @property
    def twentieth(self) -> int:
        """The steps in a twentieth of the training, at least one."""
        return max(1, len(self.loss) // 20)

    @property
    def loss_ends(self) -> tuple[float, float]:
        """The mean loss in the first and in the last twentieth of the steps."""
        return fmean(self.loss[: self.twentieth]), fmean(self.loss[-self.twentieth :])
