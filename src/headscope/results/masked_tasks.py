"""Results of `verify mask`, `verify scaling` and `verify families`: tasks under masks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from headscope.evidence.rows import Evidence
from headscope.heads import Head
from headscope.results.common import ComparedDetails, ComparedResult, Leakage
from headscope.runs import Record, entry


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
class OtherMask:
    """A mask that was found for other tasks, and how many of the examples it was trained on.

    `unseen`: whether the task is none of those it was trained on, None where they are not known.
    """

    mask: MaskFacts
    unseen: bool | None
    leakage: Leakage


@dataclass(frozen=True, kw_only=True)
class TestedTask(Record):
    """A task; `instruction` is the prompt that says what to do.

    `heads` are those of every condition by id, where tasks have masks of their own.
    """

    examples: int
    language: str | None
    translation: bool
    instruction: str | None
    heads: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    __test__: ClassVar[bool] = False  # by its name pytest would take it for tests


@dataclass(frozen=True, kw_only=True)
class MaskedTask(TestedTask):
    """A task without its instruction, with and without a mask.

    Attributes:
        tokens: of all right outputs.
        at_start: whether an output is right only where it begins with the answer.
        too_long: answers with more tokens than the model was allowed to write.
        bare: the prompt without an instruction.
        unseen: whether the task is none of those that the mask was trained on, None where they
            are not known.
        hybrid, foreign: masks of several tasks, and of others.
    """

    tokens: int
    at_start: bool = False
    too_long: int = 0
    bare: str
    mask: MaskFacts
    unseen: bool | None
    leakage: Leakage
    hybrid: OtherMask | None = None
    foreign: tuple[OtherMask, ...] = ()


@dataclass(frozen=True, kw_only=True)
class MaskDetails(ComparedDetails):
    """The tasks of `verify mask`; `draws` random masks of each kind were requested."""

    tasks: Mapping[str, MaskedTask]
    shots: int


@dataclass(frozen=True, kw_only=True)
class MaskTests(ComparedResult):
    """The result of `verify mask`; parts are tasks."""

    details: MaskDetails


@dataclass(frozen=True, kw_only=True)
class ScaledTask(TestedTask):
    """The instructed task with the heads outside a mask scaled by α.

    Attributes:
        chosen_on: how many examples α was chosen on; it is measured on others.
        best: the α with the lowest loss.
        chosen_again: by α the share of resamples of the examples that have their lowest loss
            there.
        left_out: examples to measure on that the mask, or the choice of α, had seen.
    """

    chosen_on: int
    mask: MaskFacts
    best: float
    chosen_again: Mapping[str, float]
    leakage: Leakage
    left_out: int | None = entry(absent=True)


@dataclass(frozen=True, kw_only=True)
class ScalingDetails(ComparedDetails):
    """The tasks of `verify scaling`, and the examples that α was chosen on under all values of
    it (`tried`)."""

    tasks: Mapping[str, ScaledTask]
    grid: tuple[float, ...]
    tried: Evidence


@dataclass(frozen=True, kw_only=True)
class ScalingTests(ComparedResult):
    """The result of `verify scaling`: the best α of each task on other examples."""

    details: ScalingDetails


@dataclass(frozen=True, kw_only=True)
class FamilyHeads(Record):
    """The heads that the masks of some tasks share.

    Attributes:
        name: `all`, a language, one that was given, or `unused` for the heads in no mask.
        removed, kept: how many heads they are, and how many others there are.
        tested: whether it is neither no head nor every head.
    """

    name: str
    tasks: tuple[str, ...]
    removed: int
    kept: int
    heads: tuple[Head, ...]
    tested: bool


@dataclass(frozen=True, kw_only=True)
class FamilyDetails(ComparedDetails):
    """The masks and tasks of `verify families`, and what the masks of each family share.

    `leakage` counts an example once a mask that was trained on it.
    """

    families: tuple[FamilyHeads, ...]
    masks: Mapping[str, MaskFacts]
    tasks: Mapping[str, TestedTask]


@dataclass(frozen=True, kw_only=True)
class FamilyTests(ComparedResult):
    """The result of `verify families`; conditions are `of` families."""

    details: FamilyDetails
