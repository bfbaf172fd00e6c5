"""Lets a model write under several conditions: as it is, with selected heads changed, with random
ones.

A group is a language, or a pair of them: its prompts are counted together, and its conditions have
the ids of other groups' with heads of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from headscope.evidence.rows import Condition
from headscope.evidence.runner import ZERO, Pass, Replacements, kept_texts, pass_of
from headscope.progress import Progress

if TYPE_CHECKING:
    from headscope.heads import Geometry
    from headscope.lm import LanguageModel
    from headscope.lm.generation import GenerateConfig
    from headscope.runs import Run

#: Of every prompt, by group, condition and prompt.
Texts = Sequence[Sequence[Sequence[str]]]


@dataclass(frozen=True)
class Prompt:
    """A text to be continued: what the model is given, what was hoped for, and the most tokens."""

    id: str
    text: str
    reference: str
    limit: int


@dataclass(frozen=True)
class Group:
    """Prompts that are counted together, such as those of one language, and the conditions."""

    name: str
    prompts: tuple[Prompt, ...]
    conditions: tuple[Condition, ...]


def places(groups: Sequence[Group]) -> list[range]:
    """Where the prompts of each group stand among those of all."""
    ends = accumulate(len(group.prompts) for group in groups)
    return [range(end - len(group.prompts), end) for end, group in zip(ends, groups, strict=True)]


def passes(
    groups: Sequence[Group], geometry: Geometry, replacements: Replacements = ZERO
) -> dict[str, Pass]:
    """The different gates of all groups by key, each with its prompts, counted over all groups.

    `replacements` stand in the place of what gates remove, by the kind of ablation.
    """
    rows: dict[str, tuple[Condition, set[int]]] = {}
    for group, prompt_places in zip(groups, places(groups), strict=True):
        for condition in group.conditions:
            rows.setdefault(condition.key, (condition, set()))[1].update(prompt_places)
    return {
        key: pass_of(condition, geometry, sorted(prompts), replacements)
        for key, (condition, prompts) in rows.items()
    }


def write(
    lm: LanguageModel,
    groups: Sequence[Group],
    settings: GenerateConfig,
    run: Run,
    title: str,
    progress: Progress | None = None,
    special: bool = True,
    replacements: Replacements = ZERO,
) -> list[list[list[str]]]:
    """Greedy outputs by group, condition and prompt; a run that was stopped goes on where it was.

    Conditions with the same gate write once, together for all groups. `special`: whether the
    tokenizer adds its special tokens to prompts. `replacements` as for `passes`.
    """
    prompts = [prompt for group in groups for prompt in group.prompts]
    made = kept_texts(
        lm,
        [prompt.text for prompt in prompts],
        [prompt.limit for prompt in prompts],
        passes(groups, lm.geometry, replacements),
        settings,
        run,
        title,
        progress,
        special,
    )
    return [
        [[made[condition.key][at] for at in prompt_places] for condition in group.conditions]
        for group, prompt_places in zip(groups, places(groups), strict=True)
    ]


def output_rows(groups: Sequence[Group], texts: Texts, **columns: Any) -> Iterator[dict[str, Any]]:
    """One row a group, condition (by its id) and prompt; `columns` are more entries, alike."""
    for group, by_condition, *by_group in zip(groups, texts, *columns.values(), strict=True):
        for condition, made, *condition_columns in zip(
            group.conditions, by_condition, *by_group, strict=True
        ):
            for prompt, output, *values in zip(
                group.prompts, made, *condition_columns, strict=True
            ):
                yield {
                    "language": group.name,
                    "id": prompt.id,
                    "condition": condition.id,
                    "draw": condition.draw,
                    "reference": prompt.reference,
                    "output": output,
                    **dict(zip(columns, values, strict=True)),
                }
