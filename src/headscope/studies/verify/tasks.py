"""What the removal of heads does to tasks, in a run folder."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from headscope import options
from headscope.data.pairs import PairFile, SentencePair
from headscope.errors import InputError
from headscope.evidence.rows import Basis, Condition
from headscope.evidence.runner import ZERO, pass_of
from headscope.heads import about_rank
from headscope.measure.baseline import Rules, choices_above_chance, some_examples
from headscope.progress import Progress
from headscope.results.common import Leakage
from headscope.results.tasks import Task, TasksDetails, TasksResult
from headscope.runs import Run, Signature
from headscope.settings import UNSIGNED, Nested, Option, Settings
from headscope.studies.baseline import Works, about_baseline
from headscope.studies.leakage import check_leakage
from headscope.studies.models import ModelChoice, run_with_model
from headscope.studies.study import Study
from headscope.studies.verify.reference import Reference, documents, reference_number
from headscope.studies.verify.removal import alignment_heads, head_sets
from headscope.studies.verify.tasks_show import concluded, show
from headscope.verify.other_tasks.evaluate import Outcome, main_metric, run_task, tasks_evidence
from headscope.verify.other_tasks.library import GROUPS, HarnessExample, LoadedTask, load_tasks
from headscope.verify.translation import Removal, conditions

if TYPE_CHECKING:
    from headscope.lm import LanguageModel

COMMAND = "verify tasks"


@dataclass(frozen=True)
class VerifyTasks(Settings):
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
            default=None,
        ),
    ] = field(metadata=UNSIGNED)
    heads: Annotated[str, replace(options.HEADS, default=None)] = field(metadata=UNSIGNED)
    k: options.Amounts = field(default=(), metadata=UNSIGNED)
    model: ModelChoice = field(default_factory=ModelChoice)
    shots: Annotated[
        int | None, Option("Worked examples before each prompt; none: as the task says.", min=0)
    ] = None
    limit: options.Limit = None
    removal: Annotated[
        Removal,
        Nested(
            without=("template", "measure", "chat", "answer_only", "max_new_tokens"),
            changed={"ablate": replace(options.ABLATE, single=True)},
        ),
    ] = field(default_factory=Removal)
    allow_code: Annotated[
        bool,
        Option("Run the Python code that task files name (!function).", flag="--allow-task-code"),
    ] = False
    allow_overlap: options.AllowOverlap = field(default=False, metadata=UNSIGNED)
    rank: options.Rank = field(default="above-chance", metadata=UNSIGNED)
    baseline: Annotated[Rules, Nested(without=("examples", "off_target", "unfinished"))] = field(
        default_factory=Rules
    )
    reference: options.ReferenceTexts = field(default=None, metadata=UNSIGNED)
    # Of the command alone.
    listing: Annotated[bool, Option("Only name the known groups of tasks.", flag="--list")] = field(
        default=False, metadata=UNSIGNED
    )

    def __post_init__(self) -> None:
        if not self.task or not all(name.strip() for name in self.task):
            raise InputError("no task is named; add --task NAME or --task FILE, or see --list")
        if not self.heads:
            raise InputError(
                "no heads are given; add --heads with a run folder or a list: 5.3,7.11"
            )
        super().__post_init__()


def verify_tasks(
    config: VerifyTasks, out: Path | None = None, progress: Progress | None = None
) -> TasksResult:
    """Run every task under every condition and return the command's result.

    A run that was stopped goes on where it was: each task under each condition is kept as soon as
    it is done.
    """
    began = time.monotonic()
    removal = config.removal
    loaded = load_tasks(config.task, config.shots, config.limit, removal.seed, config.allow_code)
    leakage = _leakage(config, loaded)
    reference = Reference()
    if reference_number(*removal.ablate):
        reference = documents(
            config.reference, config.model.model, config.heads, config.allow_overlap, removal.seed
        )
    lm = config.model.load_for()
    sets = head_sets(config.heads, config.k, lm, config.rank)
    avoid, outside_note = alignment_heads(config.heads, removal, lm)
    texts = ([example.prompt for example in task.examples] for task in loaded)
    planned = conditions(sets, removal, Basis.on(lm, texts, avoid=avoid))
    data = {f"task {task.name}": task.digest for task in loaded}
    settings = {
        "settings": config,
        "tasks": {task.name: [*task.groups] for task in loaded},
        "sets": [[str(head) for head in heads] for heads in sets],
        "rank": about_rank(*sets)["rank"],
        "token alignment heads": None if avoid is None else sorted(map(str, avoid)),
        "harness": harness_version(),
        **reference.given,
    }

    def compute(run: Run) -> TasksResult:
        untouched = _measure(lm, config, loaded, planned[:1], run, reference, progress)
        works = _check(loaded, untouched, config.baseline)
        outcomes = _measure(lm, config, loaded, planned, run, reference, progress)
        run.write_jsonl("examples.jsonl", _examples(loaded))
        run.write_jsonl("samples.jsonl", _samples(loaded, planned, outcomes))
        tasks = {task.name: _about(task, outcomes[task.name]) for task in loaded}
        groups = _groups(tasks)
        details = TasksDetails(
            **about_rank(*sets),
            k=tuple(map(len, sets)),
            gates=removal.gates,
            draws=removal.draws,
            outside_note=outside_note,
            ablate=removal.ablate[0],
            reference_text=reference.facts,
            seed=removal.seed,
            heads=tuple(map(str, sets[-1])),
            leakage=leakage,
            harness=harness_version(),
            baseline_check=works["baseline_check"],
            tasks=tasks,
            groups=groups,
        )
        return concluded(
            TasksResult(
                baseline_works=works["baseline_works"],
                evidence=tasks_evidence(planned, outcomes, groups, removal.seed),
                details=details,
            )
        )

    return run_with_model(
        lm,
        COMMAND,
        out,
        settings,
        data,
        compute,
        began,
        seed=removal.seed,
        lm_eval=harness_version(),
        kind=TasksResult,
    )


def harness_version() -> str:
    """The version of the installed harness, which decides what a task's name stands for."""
    from importlib.metadata import version

    return version("lm_eval")


def _measure(
    lm: LanguageModel,
    config: VerifyTasks,
    loaded: Sequence[LoadedTask],
    planned: Sequence[Condition],
    run: Run,
    reference: Reference,
    progress: Progress | None,
) -> dict[str, list[Outcome]]:
    """Every task under every condition, from the run where it is done already."""
    kept = run.read_part("tasks")
    replacements = ZERO
    outcomes: dict[str, list[Outcome]] = {}
    for task in loaded:
        requests = sum(max(1, len(example.choices)) for example in task.examples)
        outcomes[task.name] = []
        for number, condition in enumerate(planned):
            key = f"{task.name} {condition.key}"
            if key not in kept:
                report = _reporter(progress, task.name, number * requests, len(planned) * requests)
                if condition.replacement not in replacements:
                    replacements = reference.replacements(lm, config.removal)
                with pass_of(condition, lm.geometry, (), replacements).applied(lm):
                    outcome = run_task(
                        lm,
                        task,
                        config.removal.batch_tokens,
                        config.removal.seed,
                        config.limit,
                        config.allow_code,
                        report,
                    )
                kept[key] = asdict(outcome)
                run.append_part("tasks", key, kept[key])
            outcomes[task.name].append(Outcome(**kept[key]))
        if progress:
            progress(task.name, len(planned) * requests, len(planned) * requests)
    return outcomes


def _check(
    loaded: Sequence[LoadedTask], untouched: Mapping[str, Sequence[Outcome]], rules: Rules
) -> Works:
    """Whether the untouched model does better than guess, task by task with choices."""
    judged = {}
    for task in loaded:
        outcome = untouched[task.name][0]
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
            judged[task.name] = choices_above_chance(value, task.chance, len(rows), rules, shown)
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


def _leakage(config: VerifyTasks, loaded: Sequence[LoadedTask]) -> Leakage:
    """How many fields of the examples are sentences that heads were found on."""
    texts = {
        task.name: PairFile(
            tuple(
                SentencePair(str(example.id), text, text)
                for example in task.examples
                for text in example.fields
            ),
            "",
            "",
            task.name,
            task.digest,
        )
        for task in loaded
    }
    return check_leakage(config.heads, texts, config.allow_overlap)


def _examples(loaded: Sequence[LoadedTask]) -> Iterator[dict[str, Any]]:
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
    loaded: Sequence[LoadedTask],
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


def _reporter(
    progress: Progress | None, title: str, before: int, total: int
) -> Callable[[int], None] | None:
    if progress is None:
        return None
    done = before

    def report(more: int) -> None:
        nonlocal done
        done += more
        progress(title, min(done, total), total)

    return report


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


command = Study(VerifyTasks, verify_tasks, result=TasksResult, show=show, instead=_groups_alone)
