"""What a run of tasks without heads shows: each task, groups of tasks, and every number."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from headscope.evidence.blocks import (
    LEVEL,
    bars,
    draws_table,
    few_sets,
    holds,
    moved,
    named_part,
    parts_table,
    table_of_tests,
    verdict,
    verdicts,
)
from headscope.evidence.rows import Evidence
from headscope.results.tasks import TasksResult
from headscope.shown.blocks import HeadSets, Section, Shown
from headscope.shown.words import count, enumeration, fixed, p_value, sentence_of
from headscope.studies.shows import (
    ablation_facts,
    few_parts,
    leakage_caution,
    model_facts,
    named_places,
)
from headscope.verify.other_tasks.evaluate import METRICS


def show(result: TasksResult, run: Path) -> Shown:
    """Each task with and without the heads, means of groups, and every number."""
    evidence, details, main = result.evidence, result.details, result.evidence.main
    tasks = details.tasks
    chance = {name: task.chance for name, task in tasks.items()}
    metrics = list(dict.fromkeys([*(task.metric for task in tasks.values()), *evidence.statistics]))
    heads = HeadSets("Selected heads", {"selected": named_places(details.heads)})
    first = metrics[: len({task.metric for task in tasks.values()})]
    drawings = [
        bars(evidence, name, main, sentence_of(METRICS.get(name, name)).rstrip("."), "", chance)
        for name in first
    ]
    tables = [
        parts_table(evidence, name, main, f"{name} with {count(main.k, 'head')} {main.done}",
                    "examples", _NOTE, chance)
        for name in metrics
    ]  # fmt: skip
    doses = [
        table_of_tests(evidence, metrics, "examples", part, f"{named_part(evidence, part)}, tests")
        for part in evidence.parts
        if len(evidence.selected) > 1
    ]
    return Shown(
        "Tasks without heads",
        "What can the model still do when attention heads are removed?",
        [sentence_of(result.verdict), *_finding(result)],
        "Intervals and p over examples hold for these heads and this model; with "
        f"{count(details.draws, 'random draw')} p over draws is at least "
        f"{p_value(1 / (1 + details.draws))}.",
        "--draws 99" if details.draws < 19 else "",
        [*leakage_caution(details.leakage, "examples"), *result.cautions],
        [
            *model_facts(result.model_name),
            ("tasks", str(len(tasks))),
            ("examples", f"{sum(task.examples for task in tasks.values()):,}"),
            ("random draws", str(details.draws)),
            *ablation_facts(details),
            ("lm-evaluation-harness", details.harness),
        ],
        [
            Section("What is lost", [*drawings, heads]),
            Section("Tasks", [*tables, *doses], brief=True),
            Section("Random draws", [draws_table(evidence, first, main)]),
        ],
    )


_NOTE = (
    "Intervals of levels are Wilson's where each example is right or wrong, else the bootstrap's; "
    "those of differences resample examples. Means over tasks count each task alike. Empty: the "
    "metric is no mean over examples"
)


def concluded(result: TasksResult) -> TasksResult:
    """The result with its verdict and what weakens it, which follow from its rows."""
    evidence, tasks = result.evidence, result.details.tasks
    names = {task.metric for task in tasks.values()}
    if len(tasks) == 1 or (len(names) == 1 and evidence.level(next(iter(names)))):
        words = verdict(evidence, next(iter(names)))
    else:
        _, tested = _hurt(evidence, result, "random")
        words = verdicts(
            {name: verdict(evidence, tasks[name].metric, part=name) for name in tested}
        )
    return replace(result, verdict=words, cautions=tuple(_cautions(result)))


def _hurt(evidence: Evidence, result: TasksResult, control: str) -> tuple[list[str], list[str]]:
    """The tasks that are hurt more than by a control, and those that were tested."""
    tasks, main = result.details.tasks, evidence.main
    tests = {name: evidence.against(task.metric, main, name) for name, task in tasks.items()}
    tested = {name: own[control] for name, own in tests.items() if control in own}
    return [name for name, test in tested.items() if holds(test)], list(tested)


def _finding(result: TasksResult) -> Iterator[str]:
    evidence, main = result.evidence, result.evidence.main
    heads = f"The {count(main.k, 'selected head')} {main.done}"
    hurt, tested = _hurt(evidence, result, "random")
    if not tested:
        yield f"{heads} were tested on no task."
        return
    yield (
        f"{heads} hurt {len(hurt)} of {count(len(tested), 'task')} more than as many random heads "
        f"(the interval excludes zero and p over draws is at most {LEVEL}, each task by itself; "
        f"{fixed(LEVEL * len(tested), 1)} expected by chance)."
    )
    losses = {}
    for name in tested:
        metric = result.details.tasks[name].metric
        test, own = evidence.against(metric, main, name)["random"], evidence.statistics[metric]
        losses[name] = own.sign * own.factor * test.difference.value
    most = max(losses, key=lambda name: losses[name])
    if losses[most] > 0:
        metric = result.details.tasks[most].metric
        lead = f"Largest difference: {most}"
        yield from moved(evidence, metric, main, lead, most)
    hurt, tested = _hurt(evidence, result, "same layers")
    if tested:
        yield (
            f"Against random heads of the same layers: {len(hurt)} of {count(len(tested), 'task')}."
        )


def _cautions(result: TasksResult) -> Iterator[str]:
    evidence, details, tasks = result.evidence, result.details, result.details.tasks
    if details.outside_note and "outside" in evidence.controls:
        yield sentence_of(details.outside_note)
    yield from few_sets(evidence, details.draws)
    yield from few_parts({name: task.examples for name, task in tasks.items()}, "examples", 50)
    levels = {name: evidence.level(task.metric, None, name) for name, task in tasks.items()}
    guessed = [
        name
        for name, row in levels.items()
        if row is not None and (chance := tasks[name].chance) and (row.low or 0.0) <= chance
    ]
    if guessed:
        yield (
            f"In {enumeration(guessed)} the original model is not clearly better than guessing, so "
            "there is little to lose."
        )
    if cut := [f"{name} ({task.truncated})" for name, task in tasks.items() if task.truncated]:
        yield f"Prompts longer than the model's context lost their beginning: {enumeration(cut)}."
    if evidence.controls and "same layers" not in evidence.controls:
        yield (
            "No random heads of the same layers were drawn, so an effect of the layers is not "
            "excluded."
        )
