"""The walks of a run: kept batch by batch, and what is written of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from headscope.heads import Geometry, Head
from headscope.results.one_by_one import Example, ExampleText
from headscope.runs import Run
from headscope.studies.inputs import Progress
from headscope.verify.one_by_one.steps import Seen
from headscope.verify.one_by_one.walk import (
    Prepared,
    Step,
    Walk,
    as_record,
    from_record,
    walk,
)

if TYPE_CHECKING:
    import torch

    from headscope.lm import LanguageModel

GateMaker: TypeAlias = "Callable[[Geometry, Sequence[Head], float, range], torch.Tensor]"
"""Geometry, heads in order, gate and the steps wanted to the gates of these steps."""


def common_reference(everyone: Sequence[Prepared]) -> str | None:
    """Of a task the reference prompt of the first example, which stands for all."""
    return everyone[0].subject.reference_prompt


def first_example(prepared: Prepared, steps: Sequence[Step], order: Sequence[Head]) -> Example:
    """The first prompt by itself: its ranks, and its texts where they change."""
    subject = prepared.subject
    before = [None, *(step.text for step in steps)]
    texts = [
        ExampleText(at, str(order[at - 1]) if at else None, step.text)
        for at, (step, last) in enumerate(zip(steps, before, strict=False))
        if step.text is not None and step.text != last
    ]
    ranks = tuple(step.target_rank for step in steps)
    return Example(subject.id, subject.prompt, subject.target, ranks, tuple(texts))


def walk_all(
    lm: LanguageModel,
    subjects: Sequence[Prepared],
    order: Sequence[Head],
    make: GateMaker,
    gate: float,
    how: Walk,
    run: Run,
    part: str,
    title: str,
    progress: Progress | None,
) -> list[list[Step]]:
    """The steps of each subject, those kept in the run's part ``part`` from there."""
    kept = _kept(run, part)
    total = len(subjects) * (len(order) + 1)
    found: list[list[Step]] = []
    for number, prepared in enumerate(subjects):

        def report(known: int, steps: int, before: int = number) -> None:
            if progress:
                progress(title, before * steps + known, total)

        def keep(steps: dict[int, Step], number: int = number) -> None:
            first = min(steps)
            rows = {str(step): as_record(one) for step, one in steps.items()}
            run.append_part(part, f"{number} {first}", {"subject": number, "steps": rows})

        found.append(
            walk(
                lm,
                prepared,
                partial(make, lm.geometry, order, gate),
                len(order) + 1,
                how,
                kept.get(number),
                keep,
                report,
            )
        )
    return found


def _kept(run: Run, part: str) -> dict[int, dict[int, Step]]:
    """The steps of a run's part, by subject."""
    found: dict[int, dict[int, Step]] = {}
    for record in run.read_part(part).values():
        steps = found.setdefault(int(record["subject"]), {})
        steps.update({int(step): from_record(one) for step, one in record["steps"].items()})
    return found


def step_rows(
    groups: Mapping[str, Sequence[Seen]], order: Sequence[Head]
) -> Iterator[dict[str, Any]]:
    """Every step of every prompt, with its whole text."""
    for name, many in groups.items():
        for one in many:
            for step, seen in enumerate(one.steps):
                yield {
                    "direction": name or None,
                    "id": one.prepared.subject.id,
                    "step": step,
                    "head": str(order[step - 1]) if step else None,
                    **as_record(seen),
                }
