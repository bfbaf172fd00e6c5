"""The walks of a run, kept batch by batch, and those by the weights of a learned mask.

Heads Up! (ICML 2025), section 4 and appendix C.3.1: the prompt is a task's bare input, the target
its answer, the reference the instructed prompt; all heads go, the lowest weight first (figures 2,
5 and 9), or the first 320 of them by what each does to the target's rank (figure 8).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from headscope.data.tasks import Example as TaskExample
from headscope.data.tasks import Task, prompt
from headscope.evidence.runner import room_for
from headscope.heads import Geometry, Head, HeadSet
from headscope.heads.geometry import keys_of
from headscope.progress import Progress, further
from headscope.results.one_by_one import Cut, Example, ExampleText, FirstSteps, RandomOrder
from headscope.runs import Run
from headscope.studies.tasks import answers
from headscope.verify.one_by_one_steps import (
    Prepared,
    Seen,
    Step,
    Subject,
    Walk,
    batches,
    order_gates,
    walk,
)

if TYPE_CHECKING:
    import torch

    from headscope.lm import LanguageModel
    from headscope.lm.prompting import Answered


#: New tokens of an answer that is no translation, as in the paper's simple tasks.
ANSWER_TOKENS = 10


def task_subjects(lm: LanguageModel, task: Task, max_new_tokens: int | None) -> list[Subject]:
    """The bare prompt of every example, its answer, and the instructed prompt as the reference."""
    from headscope.lm.prompting import uses_chat, wrap_prompts

    special = not uses_chat(lm, task.chat)

    def subject(example: TaskExample, answered: Answered) -> Subject:
        bare, instructed = wrap_prompts(
            lm, [prompt(task, example), prompt(task, example, instructed=True)], task.chat
        )
        limit = max_new_tokens or ANSWER_TOKENS
        if max_new_tokens is None and task.is_translation:
            limit = room_for(lm, example.input)
        # A template may put no space before an answer.
        before = list(answered.ids[: answered.start])
        first = answered.ids[answered.start] if before == lm.encode(bare, special) else None
        name = f"{task.name} {example.id}"
        return Subject(name, bare, example.output, instructed, limit, special, first)

    rows = zip(task.examples, answers(lm, task), strict=True)
    return [subject(example, row) for example, row in rows]


def about_cut(kept: HeadSet, order: Sequence[Head]) -> Cut:
    """What a result says about the mask: the step at which exactly its heads are left, if any."""
    removed = len(kept.complement())
    outside = all(head not in kept for head in order[:removed])
    return Cut(len(kept), removed, removed if outside and len(order) >= removed else None)


def first_steps(walks: Sequence[Sequence[Step]]) -> FirstSteps:
    """When the target comes first."""
    every = [[step.target_rank for step in steps] for steps in walks]
    firsts = [next((at for at, rank in enumerate(ranks) if rank == 1), None) for ranks in every]
    middle = median(float("inf") if step is None else step for step in firsts)
    return FirstSteps(
        tuple(firsts),
        None if middle == float("inf") else middle,
        sum(step is None for step in firsts),
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
        keys_of(order),
        tuple(fmean(step.target_rank for step in steps) for steps in by_step),
        tuple(median(step.target_rank for step in steps) for steps in by_step),
        tuple(fmean(step.target_rank == 1 for step in steps) for steps in by_step),
        tuple(fmean(step.similarity[-1] for step in steps) for steps in by_step),
    )


def first_example(prepared: Prepared, steps: Sequence[Step], order: Sequence[Head]) -> Example:
    """The first prompt by itself: its ranks, and its texts where they change."""
    subject = prepared.subject
    before = [None, *(step.text for step in steps)]
    texts = [
        ExampleText(at, order[at - 1].key if at else None, step.text)
        for at, (step, last) in enumerate(zip(steps, before, strict=False))
        if step.text is not None and step.text != last
    ]
    ranks = tuple(step.target_rank for step in steps)
    return Example(subject.id, subject.prompt, subject.target, ranks, tuple(texts))


def walk_all(
    lm: LanguageModel,
    subjects: Sequence[Prepared],
    order: Sequence[Head],
    gate: float,
    how: Walk,
    run: Run,
    part: str,
    title: str,
    progress: Progress | None,
    alone: bool = False,
) -> list[list[Step]]:
    """The steps of each subject, those kept in the run's part ``part`` from there; each head is
    removed after the others or ``alone``."""
    kept: dict[int, dict[int, Step]] = {number: {} for number in range(len(subjects))}
    many = len(order) + 1

    def reread() -> None:
        for record in run.read_part(part).values():
            known = {int(step): _step(row) for step, row in record["steps"].items()}
            kept[int(record["subject"])].update(known)

    reread()
    units = {
        f"{number} {batch.start}": (number, batch)
        for number, prepared in enumerate(subjects)
        for batch in batches(prepared, many, how)
    }

    def missing(unit: str) -> list[int]:
        number, batch = units[unit]
        return [step for step in batch if step not in kept[number]]

    def gates(steps: range) -> torch.Tensor:
        return order_gates(lm.geometry, order, gate, steps, alone)

    done, total = sum(map(len, kept.values())), len(subjects) * many
    left = partial(filter, missing, units)
    with run.units(part, left, reread, further(progress, title, done, total)) as mine:
        for unit in mine:
            number = units[unit][0]

            def keep(steps: dict[int, Step], number: int = number) -> None:
                nonlocal done
                kept[number].update(steps)
                rows = {str(step): asdict(seen) for step, seen in steps.items()}
                run.append_part(part, f"{number} {min(steps)}", {"subject": number, "steps": rows})
                done += len(steps)
                if progress:
                    progress(title, done, total)

            walk(lm, subjects[number], gates, missing(unit), how, keep)
    return [[kept[number][step] for step in range(many)] for number in range(len(subjects))]


def _step(row: Mapping[str, Any]) -> Step:
    """A step as `asdict` wrote it."""
    ranks, similarity = tuple(row["top5_ranks"]), tuple(row["similarity"])
    return Step(int(row["target_rank"]), ranks, similarity, row["text"])


def step_rows(
    groups: Mapping[str, Sequence[Seen]], order: Sequence[Head]
) -> Iterator[dict[str, Any]]:
    """Every step of every prompt, with its whole text."""
    for name, many in groups.items():
        for trajectory in many:
            for step, seen in enumerate(trajectory.steps):
                yield {
                    "direction": name or None,
                    "id": trajectory.prepared.subject.id,
                    "step": step,
                    "head": str(order[step - 1]) if step else None,
                    **asdict(seen),
                }
