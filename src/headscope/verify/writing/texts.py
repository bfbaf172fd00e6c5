"""Lets a model write under the arms of every group, and keeps what it wrote."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headscope.verify.removal.conditions import Pass, kept_texts
from headscope.verify.writing.arms import Arm

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from headscope.lm import LanguageModel
    from headscope.lm.generation import GenerateConfig
    from headscope.runs import Run

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Prompt:
    """One text to be continued: what the model is given, what was hoped for, and the most tokens.

    `about` are further entries of its row in the file of outputs.
    """

    id: str
    text: str
    reference: str
    limit: int
    about: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Group:
    """Prompts that are counted together, such as those of one language, and the arms over them."""

    name: str
    prompts: tuple[Prompt, ...]
    arms: tuple[Arm, ...]


def passes(groups: Sequence[Group], means: NDArray[np.float32] | None = None) -> dict[str, Pass]:
    """The different gates of all groups by key, each with its prompts, counted over all groups.

    `means` take the place of what gates remove; None: zero.
    """
    rows: dict[str, tuple[Arm, dict[int, None]]] = {}
    start = 0
    for group in groups:
        places = range(start, start + len(group.prompts))
        for arm in group.arms:
            rows.setdefault(arm.key, (arm, {}))[1].update(dict.fromkeys(places))
        start += len(group.prompts)
    return {
        key: Pass(arm.heads.scaled(arm.gate), sorted(places), means)
        for key, (arm, places) in rows.items()
    }


def write(
    lm: LanguageModel,
    groups: Sequence[Group],
    settings: GenerateConfig,
    run: Run,
    title: str,
    progress: Progress | None = None,
    special: bool = True,
    means: NDArray[np.float32] | None = None,
) -> list[list[list[str]]]:
    """Greedy outputs by group, arm and prompt; a run that was stopped goes on where it was.

    Arms with the same gate write once, together for all groups. `special`: whether the tokenizer
    adds its special tokens to prompts. `means` are those of mean ablation.
    """
    prompts = [prompt for group in groups for prompt in group.prompts]
    made = kept_texts(
        lm,
        [prompt.text for prompt in prompts],
        [prompt.limit for prompt in prompts],
        passes(groups, means),
        settings,
        run,
        title,
        progress,
        special,
    )
    found: list[list[list[str]]] = []
    start = 0
    for group in groups:
        places = range(start, start + len(group.prompts))
        found.append([[made[arm.key][at] for at in places] for arm in group.arms])
        start += len(group.prompts)
    return found


def output_rows(
    groups: Sequence[Group], texts: Sequence[Sequence[Sequence[str]]], name: str = "language"
) -> Iterator[dict[str, Any]]:
    """One row a group, arm and prompt; `name` is what a group is."""
    for group, by_arm in zip(groups, texts, strict=True):
        for arm, made in zip(group.arms, by_arm, strict=True):
            for prompt, output in zip(group.prompts, made, strict=True):
                yield {
                    name: group.name,
                    "id": prompt.id,
                    "condition": arm.name.kind,
                    "draw": arm.name.draw,
                    "reference": prompt.reference,
                    "output": output,
                }
