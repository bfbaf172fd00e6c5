"""Lets a model write under several gates: as it is, with chosen heads changed, with random ones.

An arm is one way to run the model on the prompts of one group (a language, or a pair of them).
Groups have the same arms by name, with heads of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from headscope.heads import HeadSet
from headscope.heads.draws import draw_heads
from headscope.progress import Progress
from headscope.verify.translation.conditions import Pass, gate_key, kept_texts

if TYPE_CHECKING:
    from headscope.lm import LanguageModel
    from headscope.lm.generation import GenerateConfig
    from headscope.lm.replacement import Replacement
    from headscope.runs import Run

#: Of every prompt, by group, arm and prompt.
Texts = Sequence[Sequence[Sequence[str]]]
BASELINE, RANDOM, MATCHED = "baseline", "random", "random-layer-matched"


@dataclass(frozen=True)
class Name:
    """What an arm is called in every group: its kind and, of a random one, the draw from 0."""

    kind: str
    draw: int | None = None


@dataclass(frozen=True)
class Arm:
    """The output of `heads` times `gate`; `filled_up` of random heads come from elsewhere than
    asked for (see `headscope.heads.draws.Draw`)."""

    name: Name
    heads: HeadSet
    gate: float
    filled_up: int = 0

    @property
    def key(self) -> str:
        """What decides the outputs: arms with one key are the same gate."""
        return gate_key(self.heads, self.gate)


def as_is(heads: HeadSet) -> Arm:
    """The untouched model, of the geometry of `heads`."""
    return Arm(Name(BASELINE), HeadSet(heads.geometry, ()), 1.0)


def beside(
    heads: HeadSet,
    gate: float,
    draws: int,
    seed: int,
    avoid: HeadSet | None = None,
    prefix: str = "",
) -> list[Arm]:
    """Random sets of as many heads under the same gate: free draws, then layer-matched ones.

    They hold none of `heads` and, as far as possible, none of `avoid`. The kinds are `random` and
    `random-layer-matched` behind `prefix`. Raises `InputError` as `draw_heads` does.
    """
    return [
        Arm(Name(prefix + kind, number), draw.heads, gate, draw.filled_up)
        for kind in (RANDOM, MATCHED)
        for number, draw in enumerate(draw_heads(heads, draws, seed, avoid, kind == MATCHED))
    ]


@dataclass(frozen=True)
class Prompt:
    """A text to be continued: what the model is given, what was hoped for, and the most tokens."""

    id: str
    text: str
    reference: str
    limit: int


@dataclass(frozen=True)
class Group:
    """Prompts that are counted together, such as those of one language, and the arms over them."""

    name: str
    prompts: tuple[Prompt, ...]
    arms: tuple[Arm, ...]


def places(groups: Sequence[Group]) -> list[range]:
    """Where the prompts of each group stand among those of all."""
    ends = accumulate(len(group.prompts) for group in groups)
    return [range(end - len(group.prompts), end) for end, group in zip(ends, groups, strict=True)]


def passes(groups: Sequence[Group], replacement: Replacement | None = None) -> dict[str, Pass]:
    """The different gates of all groups by key, each with its prompts, counted over all groups.

    `replacement` stands in the place of what gates remove; None: zero.
    """
    rows: dict[str, tuple[Arm, set[int]]] = {}
    for group, own in zip(groups, places(groups), strict=True):
        for arm in group.arms:
            rows.setdefault(arm.key, (arm, set()))[1].update(own)
    return {
        key: Pass(arm.heads.scaled(arm.gate), sorted(prompts), replacement)
        for key, (arm, prompts) in rows.items()
    }


def write(
    lm: LanguageModel,
    groups: Sequence[Group],
    settings: GenerateConfig,
    run: Run,
    title: str,
    progress: Progress | None = None,
    special: bool = True,
    replacement: Replacement | None = None,
) -> list[list[list[str]]]:
    """Greedy outputs by group, arm and prompt; a run that was stopped goes on where it was.

    Arms with the same gate write once, together for all groups. `special`: whether the tokenizer
    adds its special tokens to prompts. `replacement` is as for `passes`.
    """
    prompts = [prompt for group in groups for prompt in group.prompts]
    made = kept_texts(
        lm,
        [prompt.text for prompt in prompts],
        [prompt.limit for prompt in prompts],
        passes(groups, replacement),
        settings,
        run,
        title,
        progress,
        special,
    )
    return [
        [[made[arm.key][at] for at in own] for arm in group.arms]
        for group, own in zip(groups, places(groups), strict=True)
    ]


def output_rows(groups: Sequence[Group], texts: Texts, **columns: Any) -> Iterator[dict[str, Any]]:
    """One row a group, arm and prompt; `columns` are more entries, by group, arm and prompt."""
    for group, by_arm, *by_group in zip(groups, texts, *columns.values(), strict=True):
        for arm, made, *own in zip(group.arms, by_arm, *by_group, strict=True):
            for prompt, output, *values in zip(group.prompts, made, *own, strict=True):
                yield {
                    "language": group.name,
                    "id": prompt.id,
                    "condition": arm.name.kind,
                    "draw": arm.name.draw,
                    "reference": prompt.reference,
                    "output": output,
                    **dict(zip(columns, values, strict=True)),
                }
