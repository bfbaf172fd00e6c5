"""What a run of tasks without heads shows: each task, groups of tasks, and every number."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from headscope.evidence.blocks import (
    draws_remedy,
    draws_table,
    draws_words,
    forest,
    holds,
    named_part,
    parts_table,
    table_of_tests,
    verdict,
    verdicts,
)
from headscope.evidence.rows import Condition, Evidence, Tested
from headscope.results.tasks import TasksDetails, TasksResult
from headscope.shown.blocks import Forest, HeadSets, Section, Shown, method_section
from headscope.shown.words import count, enumeration, fixed, sentence_of
from headscope.studies.shows import (
    ablation_facts,
    few_parts,
    model_facts,
    named_places,
)
from headscope.studies.verify.removal_show import said_of
from headscope.verify.tasks_evaluation.evaluate import METRICS


def show(result: TasksResult, run: Path) -> Shown:
    """Each task without the heads minus without random ones, and every number."""
    evidence, details, main = result.evidence, result.details, result.evidence.main
    tasks = details.tasks
    chance = {name: task.chance for name, task in tasks.items()}
    first = list(dict.fromkeys(task.metric for task in tasks.values()))
    heads = HeadSets("Selected heads", {"selected": named_places(details.heads)})
    metrics = list(dict.fromkeys([*first, *evidence.statistics]))
    numbers = [
        parts_table(evidence, name, main, METRICS.get(name, name), "examples", chance=chance)
        for name in metrics
    ]
    tests = [
        table_of_tests(evidence, metrics, "examples", part, f"{named_part(evidence, part)}, tests")
        for part in evidence.parts
        if len(evidence.selected) > 1
    ]
    effects = _effects(result)
    draws = min((test.draws for test in _tested(evidence, details).values()), default=0)
    return Shown(
        "Tasks without heads",
        "What can the model still do when attention heads are removed?",
        [sentence_of(result.verdict), *_finding(result)],
        f"Intervals are over examples; {draws_words(draws)}.",
        draws_remedy(draws, evidence.alpha),
        result.cautions,
        [
            *model_facts(result.model_name),
            ("tasks", str(len(tasks))),
            ("examples", f"{sum(task.examples for task in tasks.values()):,}"),
            *ablation_facts(details),
            ("lm-evaluation-harness", details.harness),
        ],
        [
            Section("Heads", [heads]),
            Section("What is lost", effects[1:], brief=True),
            Section("Tasks", [*numbers, *tests, draws_table(evidence, first, main)]),
            method_section(
                "Intervals of levels are Wilson's where each example is right or wrong, else the "
                "bootstrap's; those of differences resample examples. Means over tasks count each "
                "task alike. A metric that is no mean over examples has no test. Chance: what "
                "guessing among the choices gives."
            ),
        ],
        next(iter(effects), None),
    )


def _effects(result: TasksResult) -> list[Forest]:
    """By unit of their metrics the tasks minus random heads; groups of tasks stand first."""
    evidence, main, tasks = result.evidence, result.evidence.main, result.details.tasks
    units: dict[str, list[tuple[str, str, Condition, str | None]]] = {}
    for part in (*result.details.groups, *tasks):
        metrics = {tasks[name].metric for name in result.details.groups.get(part, (part,))}
        for metric in metrics:
            unit = evidence.statistics[metric].unit
            units.setdefault(unit, []).append((named_part(evidence, part), metric, main, part))
    title = "Tasks: selected minus random heads"
    return [drawn for rows in units.values() if (drawn := forest(evidence, rows, title))]


def answer(found: Evidence, details: TasksDetails) -> str:
    """What the tasks lose, all together where they have one metric, else task by task."""
    tasks = details.tasks
    names = {task.metric for task in tasks.values()}
    if len(tasks) == 1 or (len(names) == 1 and found.level(next(iter(names)))):
        return verdict(found, next(iter(names)))
    tested = _tested(found, details)
    return verdicts({name: verdict(found, tasks[name].metric, part=name) for name in tested})


def _tested(found: Evidence, details: TasksDetails) -> dict[str, Tested]:
    """The tests of tasks against random heads, by their metric."""
    tests = {name: found.against(task.metric, found.main, name).get("random")
             for name, task in details.tasks.items()}  # fmt: skip
    return {name: test for name, test in tests.items() if test is not None}


def _finding(result: TasksResult) -> list[str]:
    tasks, tests = result.details.tasks, _tested(result.evidence, result.details)
    if len(tasks) == 1:
        return said_of(result.evidence, next(iter(tasks.values())).metric)
    more = sum(holds(test, result.evidence.alpha) is True for test in tests.values())
    return [
        f"{more} of {count(len(tests), 'task')} shown to lose more than with random heads "
        f"({fixed(result.evidence.alpha * len(tests), 1)} expected)."
    ]


def cautions(found: Evidence, details: TasksDetails) -> Iterator[str]:
    """Few examples, tasks that are guessed, prompts that were cut, no control of the depth."""
    tasks = details.tasks
    yield from few_parts({name: task.examples for name, task in tasks.items()}, "examples", 50)
    levels = {name: found.level(task.metric, None, name) for name, task in tasks.items()}
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
    if found.controls and "same layers" not in found.controls:
        yield (
            "No random heads of the same layers were drawn, so an effect of the layers is not "
            "excluded."
        )
