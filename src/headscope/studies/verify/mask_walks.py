"""Heads removed by the weights of a learned mask: what to ask, in which order, and what it shows.

Heads Up! (ICML 2025), section 4 and appendix C.3.1: the prompt is a task's bare input, the target
its answer, the reference the instructed prompt; all heads go, the lowest weight first (figures 2,
5 and 9), or the first 320 of them by what each does to the target's rank (figure 8).
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from statistics import fmean, median
from typing import TYPE_CHECKING

from headscope.data.tasks import Example, prompt
from headscope.errors import InputError
from headscope.heads import Geometry, Head, HeadSet, resolve_heads
from headscope.results.one_by_one import Cut, FirstSteps, RandomOrder
from headscope.studies.inputs import ModelChoice
from headscope.studies.masked_tasks import MaskedTask, mask_result, read_masked_task
from headscope.studies.tasks import TaskChoice, answers
from headscope.verify.one_by_one.walk import Step, Subject

if TYPE_CHECKING:
    from headscope.lm import LanguageModel
    from headscope.lm.prompting import Answered

#: New tokens of an answer that is no translation, as in the paper's simple tasks.
ANSWER_TOKENS = 10


def read_walked_task(
    heads: str,
    tasks: TaskChoice,
    model: ModelChoice,
    examples: int,
    example: str | None,
    seed: int,
    allow_overlap: bool,
) -> MaskedTask:
    """The task to walk with, cut to the examples that are walked over.

    Raises:
        InputError: as `read_masked_task`; or if there is no example of that id.
    """
    chosen = read_masked_task(heads, tasks, model, seed, allow_overlap)
    every = chosen.task.examples
    if example is None:
        kept = every[:examples]
    else:
        kept = tuple(one for one in every if one.id == example)
        if not kept:
            raise InputError(
                f"--example {example} is none of the {len(every)} held-out examples of "
                f"{chosen.task.name!r}; there are {', '.join(one.id for one in every[:8])} …"
            )
    return dataclasses.replace(chosen, task=dataclasses.replace(chosen.task, examples=kept))


def task_subjects(
    lm: LanguageModel, chosen: MaskedTask, max_new_tokens: int | None
) -> dict[str, list[Subject]]:
    """The bare prompt of every example, its answer, and the instructed prompt as the reference."""
    from headscope.lm.prompting import uses_chat, wrap_prompts

    task = chosen.task
    special = not uses_chat(lm, task.chat)

    def subject(example: Example, answered: Answered) -> Subject:
        bare, told = wrap_prompts(
            lm, [prompt(task, example), prompt(task, example, instructed=True)], task.chat
        )
        limit = max_new_tokens or ANSWER_TOKENS
        if max_new_tokens is None and task.is_translation:
            limit = 2 * len(lm.tokenizer(example.input, add_special_tokens=False)["input_ids"]) + 32
        # A template may put no space before an answer.
        before = list(answered.ids[: answered.start])
        first = answered.ids[answered.start] if before == lm.encode(bare, special) else None
        name = f"{task.name} {example.id}"
        return Subject(name, bare, example.output, told, limit, special, first)

    rows = zip(task.examples, answers(lm, task), strict=True)
    return {task.name: [subject(example, row) for example, row in rows]}


def mask_cut(heads: str, geometry: Geometry) -> HeadSet | None:
    """The heads that the mask run `heads` keeps; None if it is no mask run."""
    return None if mask_result(heads) is None else resolve_heads(heads, None, geometry)


def about_cut(kept: HeadSet, order: Sequence[Head]) -> Cut:
    """What a result says about the mask: the step at which exactly its heads are left, if any."""
    removed = len(kept.complement())
    outside = all(head not in kept for head in order[:removed])
    return Cut(len(kept), removed, removed if outside and len(order) >= removed else None)


def first_steps(walks: Sequence[Sequence[Step]]) -> FirstSteps:
    """When the target comes first."""
    every = [[step.target_rank for step in steps] for steps in walks]
    found = [next((at for at, rank in enumerate(ranks) if rank == 1), None) for ranks in every]
    middle = median(float("inf") if one is None else one for one in found)
    return FirstSteps(
        tuple(found),
        None if middle == float("inf") else middle,
        sum(one is None for one in found),
        tuple(fmean(rank == 1 for rank in ranks) for ranks in zip(*every, strict=True)),
    )


def random_orders(geometry: Geometry, draws: int, seed: int) -> list[tuple[Head, ...]]:
    """All heads of the model in random orders; order i does not depend on how many are drawn."""
    orders = []
    for number in range(draws):
        heads = list(geometry.heads())
        random.Random(f"random order {seed} {number}").shuffle(heads)
        orders.append(tuple(heads))
    return orders


def about_random(order: Sequence[Head], walks: Sequence[Sequence[Step]]) -> RandomOrder:
    """What a result says about the walks of all prompts in one random order."""
    by_step = list(zip(*walks, strict=True))
    return RandomOrder(
        tuple(map(str, order)),
        tuple(fmean(one.target_rank for one in steps) for steps in by_step),
        tuple(median(one.target_rank for one in steps) for steps in by_step),
        tuple(fmean(one.target_rank == 1 for one in steps) for steps in by_step),
        tuple(fmean(one.similarity[-1] for one in steps) for steps in by_step),
    )
