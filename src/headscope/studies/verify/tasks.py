"""What the removal of heads does to tasks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from headscope import options
from headscope.errors import InputError, OptionalPart
from headscope.evidence.headline import Case
from headscope.evidence.rows import Condition, Evidence, Tested
from headscope.evidence.runner import (
    ZERO,
    Pass,
    Replacements,
    Within,
    alone,
    kept_units,
    pass_of,
)
from headscope.measure.baseline import Rules, choices_above_chance, some_examples
from headscope.progress import Progress
from headscope.results.tasks import Task, TasksDetails, TasksResult
from headscope.runs import Run, Signature
from headscope.settings import UNSIGNED, Nested, Option
from headscope.shown.blocks import Content, Section, table_of
from headscope.shown.words import enumeration, fixed
from headscope.studies.baseline import Works, about_baseline
from headscope.studies.comparison import (
    ALL_PARTS,
    Bench,
    Comparison,
    Examples,
    Measured,
    Removing,
    Selecting,
)
from headscope.studies.comparison_page import Extras, Words
from headscope.studies.leakage import count_leakage
from headscope.studies.models import ModelChoice
from headscope.studies.shows import few_parts
from headscope.studies.verify.reference import documents_for
from headscope.studies.verify.removal import about_sets, removed_heads
from headscope.verify.removal_translations.conditions import check_gates
from headscope.verify.tasks_evaluation.evaluate import (
    Outcome,
    main_metric,
    run_task,
    tasks_evidence,
)
from headscope.verify.tasks_evaluation.library import GROUPS, HarnessExample, LoadedTask, load_tasks

if TYPE_CHECKING:
    from headscope.lm import LanguageModel

COMMAND = "verify tasks"


@dataclass(frozen=True, kw_only=True)
class VerifyTasks(Removing, Selecting):
    """Run multiple-choice and generation tasks without selected heads and without random ones.

    Tasks are those of lm-evaluation-harness, or files in its format; `headscope pocket tasks`
    writes some for the bundled model.
    """

    # What the tasks ask counts in the run's signature, as do the heads and the texts of
    # `reference`; not their places.
    task: Annotated[
        tuple[str, ...],
        Option(
            "Task, group or pattern of lm-evaluation-harness, or task files; repeatable.",
            metavar="NAME|FILE|DIR",
            held="examples",
            default=None,
            panel="Data",
        ),
    ] = field(metadata=UNSIGNED)
    heads: Annotated[str, replace(options.HEADS, default=None)] = field(metadata=UNSIGNED)
    k: options.Amounts = field(default=(), metadata=UNSIGNED)
    gates: options.Gates = (0.0,)
    threshold: options.Threshold = 0.1
    model: ModelChoice = field(default_factory=ModelChoice)
    shots: Annotated[
        int | None,
        Option(
            "Worked examples before each prompt; none: as the task says.", min=0, panel="Prompt"
        ),
    ] = None
    limit: options.Limit = None
    allow_code: Annotated[
        bool,
        Option(
            "Run the Python code that task files name (!function).",
            flag="--allow-task-code",
            panel="Expert",
        ),
    ] = False
    baseline: Annotated[Rules, Nested(without=("examples", "off_target", "unfinished"))] = field(
        default_factory=Rules
    )
    reference: options.ReferenceTexts = field(default=None, metadata=UNSIGNED)
    # Of the command alone.
    listing: Annotated[bool, Option("Only name the known groups of tasks.", flag="--list")] = field(
        default=False, metadata=UNSIGNED
    )

    def parts(self) -> Iterator[OptionalPart]:
        """The harness, too."""
        yield from super().parts()
        yield OptionalPart("verify tasks", "tasks", ("lm_eval",))

    def __post_init__(self) -> None:
        if not self.task or not all(name.strip() for name in self.task):
            raise InputError("no task is named; add --task NAME or --task FILE, or see --list")
        if not self.heads:
            raise InputError(
                "no heads are given; add --heads with a run folder or a list: 5.3,7.11"
            )
        check_gates(self.gates)
        super().__post_init__()


def _read(config: VerifyTasks) -> Examples[LoadedTask]:
    loaded = load_tasks(config.task, config.shots, config.limit, config.seed, config.allow_code)
    fields = [(text,) for task in loaded for example in task.examples for text in example.fields]
    words = "sentences of the tasks are among those that these heads were found on"
    leakage = count_leakage(config.heads, fields, config.allow_overlap, words)
    reference, harness = documents_for(config, config.reference), harness_version()
    return Examples(
        {task.name: task for task in loaded},
        {task.name: [example.prompt for example in task.examples] for task in loaded},
        {f"task {task.name}": task.digest for task in loaded},
        leakage,
        lambda lm, config: reference,
        works=partial(_works, loaded),
        signed={"tasks": {task.name: [*task.groups] for task in loaded}, "harness": harness},
        provenance={"lm_eval": harness},
        sent=lambda lm, config: {task.name: task.examples[0].prompt for task in loaded},
    )


def _measure(bench: Bench[VerifyTasks, LoadedTask]) -> Measured:
    conditions, run = bench.conditions[ALL_PARTS], bench.run
    outcomes = _outcomes(
        bench.lm,
        bench.config,
        [*bench.parts.values()],
        conditions,
        run,
        lambda: bench.replacements,
        bench.progress,
    )
    run.write_jsonl("examples.jsonl", _examples(bench.parts.values()))
    run.write_jsonl("samples.jsonl", _samples(bench.parts.values(), conditions, outcomes))
    tasks = {name: _about(task, outcomes[name]) for name, task in bench.parts.items()}
    groups = _groups(tasks)
    about = {
        **about_sets([*bench.chosen.every()], bench.config.gates),
        "harness": harness_version(),
        "tasks": tasks,
        "groups": groups,
    }
    return Measured(tasks_evidence(conditions, outcomes, groups, bench.config.seed), about)


def harness_version() -> str:
    """The version of the installed harness, which decides what a task's name stands for."""
    from importlib.metadata import version

    return version("lm_eval")


def _outcomes(
    lm: LanguageModel,
    config: VerifyTasks,
    tasks: Sequence[LoadedTask],
    conditions: Sequence[Condition],
    run: Run,
    replacements: Callable[[], Replacements],
    progress: Progress | None,
) -> dict[str, list[Outcome]]:
    """Every task under every condition, by task."""
    by_key: dict[str, Condition] = {}
    for condition in conditions:
        by_key.setdefault(condition.key, condition)

    def pass_under(key: str) -> Pass:
        replaced = ZERO if by_key[key].replacement == "zero" else replacements()
        return pass_of(by_key[key], lm.geometry, (), replaced)

    def of_task(task: LoadedTask) -> Mapping[str, Any]:
        units = {f"{task.name} {key}": key for key in by_key}
        how = config.batch_tokens, config.seed, config.limit, config.allow_code

        def compute(mine: Sequence[str], within: Within) -> Iterator[tuple[str, Any]]:
            for unit in mine:
                with pass_under(units[unit]).applied(lm):
                    yield unit, asdict(run_task(lm, task, *how, _adding_up(within.reached)))

        def decides(unit: str) -> Any:
            about = [task.digest, task.shots, harness_version(), *how]
            return [about, pass_under(units[unit]).decides]

        requests = sum(max(1, len(example.choices)) for example in task.examples)
        sizes = dict.fromkeys(units, requests)
        # What code of a task's own reads, no digest says.
        known = None if config.allow_code else alone(lm, decides)
        return kept_units(run, "tasks", task.name, sizes, compute, progress, known)

    outcomes: dict[str, list[Outcome]] = {}
    for task in tasks:
        kept = of_task(task)
        by_condition = (kept[f"{task.name} {condition.key}"] for condition in conditions)
        outcomes[task.name] = [Outcome(**numbers) for numbers in by_condition]
    return outcomes


def _adding_up(reached: Callable[[float], None]) -> Callable[[int], None]:
    """Tells how much there is so far, where it is told how much more."""
    done = 0

    def more(some: int) -> None:
        nonlocal done
        done += some
        reached(done)

    return more


def _works(
    tasks: Sequence[LoadedTask],
    lm: LanguageModel,
    config: VerifyTasks,
    run: Run,
    progress: Progress | None,
) -> Works:
    """Whether the untouched model does better than guess, task by task with choices."""
    judged = {}
    untouched = _outcomes(lm, config, tasks, [Condition()], run, lambda: ZERO, progress)
    for task in tasks:
        (outcome,) = untouched[task.name]
        metric = main_metric(task, outcome)
        if task.chance is not None and metric.partition(",")[0].startswith("acc"):
            value, rows = outcome.metrics[metric], outcome.rows
            by_id = {example.id: example for example in task.examples}
            examples = [by_id[row["id"]] for row in rows]
            likeliest = [
                max(zip(row["responses"], example.choices, strict=False))[1]
                for example, row in zip(examples, rows, strict=True)
            ]
            shown = some_examples(
                [example.prompt for example in examples],
                [_answer(example) for example in examples],
                likeliest,
                [row["metrics"][metric] for row in rows],
            )
            judged[task.name] = choices_above_chance(
                value, task.chance, len(rows), config.baseline, shown
            )
    return about_baseline(judged, "--shots N, a larger model or an easier task")


def _answer(example: HarnessExample) -> str:
    """The right choice; tasks give it as a text or by its number."""
    at = int(example.target) if example.target.isdecimal() else len(example.choices)
    return example.choices[at] if at < len(example.choices) else example.target


def _about(task: LoadedTask, made: Sequence[Outcome]) -> Task:
    metric = main_metric(task, made[0])
    return Task(
        metric=metric,
        chance=task.chance if metric.partition(",")[0] == "acc" else None,
        examples=len(made[0].rows),
        groups=tuple(task.groups),
        shots=task.shots,
        truncated=max(outcome.truncated for outcome in made),
    )


def _groups(tasks: Mapping[str, Task]) -> dict[str, tuple[str, ...]]:
    """The tasks of each group that share one metric, where there are several."""
    members: dict[tuple[str, str], list[str]] = {}
    for name, task in tasks.items():
        for group in task.groups:
            members.setdefault((group, task.metric), []).append(name)
    several = {group for group, _ in members if sum(g == group for g, _ in members) > 1}
    return {
        f"{group} ({metric})" if group in several else group: tuple(names)
        for (group, metric), names in members.items()
        if len(names) > 1
    }


def _examples(loaded: Iterable[LoadedTask]) -> Iterator[dict[str, Any]]:
    for task in loaded:
        for example in task.examples:
            yield {
                "task": task.name,
                "id": example.id,
                "prompt": example.prompt,
                "choices": list(example.choices),
                "target": example.target,
            }


def _samples(
    loaded: Iterable[LoadedTask],
    planned: Sequence[Condition],
    outcomes: Mapping[str, Sequence[Outcome]],
) -> Iterator[dict[str, Any]]:
    for task in loaded:
        for condition, outcome in zip(planned, outcomes[task.name], strict=True):
            for row in outcome.rows:
                yield {
                    "task": task.name,
                    "id": row["id"],
                    "condition": condition.id,
                    **row["metrics"],
                    "responses": row["responses"],
                }


def _groups_alone(given: Mapping[str, Any]) -> tuple[dict[str, Any], str] | None:
    """With `--list` the known groups, as a result and as text."""
    if not given["list"]:
        return None
    began = time.monotonic()
    key = Signature.of(f"{COMMAND} --list", GROUPS, {})
    width = max(map(len, GROUPS))
    lines = [f"{name:<{width}}  {words}" for name, words in GROUPS.items()]
    more = "and every other task of lm-evaluation-harness, and task files in its format"
    seconds = time.monotonic() - began
    result = {"signature": str(key), "run": None, "groups": GROUPS, "seconds": seconds}
    return result, "\n".join([*lines, more])


def _cases(found: Evidence, details: TasksDetails) -> list[Case]:
    """What the tasks lose, all together where they have one metric, else task by task."""
    tasks = details.tasks
    names = {task.metric for task in tasks.values()}
    if len(tasks) == 1 or (len(names) == 1 and found.level(next(iter(names)))):
        return [Case(next(iter(names)), found.main)]
    return [Case(tasks[name].metric, found.main, name, name) for name in _tested(found, details)]


def _tested(found: Evidence, details: TasksDetails) -> dict[str, Tested]:
    """The tests of tasks against random heads, by their metric."""
    tests = {name: found.against(task.metric, found.main, name).get("random")
             for name, task in details.tasks.items()}  # fmt: skip
    return {name: test for name, test in tests.items() if test is not None}


def _extras(result: TasksResult, run: Path) -> Extras:
    """In how many tasks more is lost than with random heads, and what the tasks are."""
    found, tasks = result.evidence, result.details.tasks
    sentences = []
    if len(tasks) > FEW_TASKS:
        expected = fixed(found.alpha * len(_tested(found, result.details)), 1)
        sentences = [f"By chance {expected} would be shown."]
    columns: dict[str, Callable[[Task], Content]] = {
        "metric": lambda task: found.statistics[task.metric].words,
        "chance": lambda task: found.statistics[task.metric].cell(task.chance),
        "examples": lambda task: task.examples,
        "shots": lambda task: task.shots,
    }
    return Extras(
        statistics=_in_one_unit(found, tasks.values()),
        sentences=sentences,
        facts=[("tasks", str(len(tasks))), ("lm-evaluation-harness", result.details.harness)],
        sections=[Section("Tasks", [table_of("Tasks", tasks.items(), columns)])],
    )


def _in_one_unit(found: Evidence, tasks: Iterable[Task]) -> list[str]:
    """The metrics of tasks that have the unit of the first."""
    metrics = dict.fromkeys(task.metric for task in tasks)
    unit = found.statistics[next(iter(metrics))].unit
    return [name for name in metrics if found.statistics[name].unit == unit]


def _cautions(found: Evidence, details: TasksDetails) -> Iterator[str]:
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


#: Of so many tasks it is not said how many would be shown by chance.
FEW_TASKS = 2

WORDS = Words(
    "Tasks without heads",
    "What can the model still do when attention heads are removed?",
    "example",
    "Intervals of levels are Wilson's where each example is right or wrong, else the bootstrap's; "
    "those of differences resample examples. Means over tasks count each task alike. A metric "
    "that is no mean over examples has no test. Chance: what guessing among the choices gives.",
    case="task",
)

comparison = Comparison(
    command=COMMAND,
    settings=VerifyTasks,
    result=TasksResult,
    details=TasksDetails,
    read=_read,
    heads=removed_heads,
    measure=_measure,
    leads=lambda found: [*found.statistics],
    cases=_cases,
    cautions=_cautions,
    words=WORDS,
    extras=_extras,
    examples="examples",
    usage="--task runs/tasks --heads 5.3,5.1,4.3 --limit 20",
)
command = replace(comparison.study, instead=_groups_alone)
