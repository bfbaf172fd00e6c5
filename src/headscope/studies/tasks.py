"""From what people name (tasks, files, directions) to tasks with sides to train and to test on.

The sides never share an example: of a file some inputs are held out by a hash, of a translation's
neither side is trained on, and the pocket model's own tasks come from different splits of its
world. Nor is a word task trained on what another one that is named beside it holds out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from headscope import options
from headscope.data.prompts import unescaped as task_template
from headscope.data.split import sentence_digest
from headscope.data.tasks import (
    DEFAULT_BARE,
    IOI,
    PLACEHOLDER,
    Example,
    Task,
    TaskSides,
    few_shot,
    hybrid,
    in_language,
    ioi_task,
    read_task,
    split_task,
    translation_task,
)
from headscope.errors import InputError, nearest
from headscope.results.common import Leakage
from headscope.settings import GIVEN, UNSIGNED, Option, Settings
from headscope.studies.baseline import check_tasks
from headscope.studies.examples import Examples
from headscope.studies.leakage import apart, task_digests
from headscope.studies.models import POCKET
from headscope.studies.pairs import PairsChoice, read_directions
from headscope.studies.verify.reference import Reference, from_tasks
from headscope.verify.masked_tasks.asking import asked, rows_of

if TYPE_CHECKING:
    from headscope.lm import LanguageModel
    from headscope.lm.prompting import Answered

#: Sentences of the pocket model's own that a direction is trained on, and of `ioi` in all.
POCKET_SENTENCES, IOI_SENTENCES = 1000, 500

AnySides = TypeVar("AnySides", bound=TaskSides)


Instruction = Annotated[
    str | None,
    Option(
        "Instructed prompt, with {input}; without it the task's.",
        metavar="TEXT",
        read=task_template,
        panel="Prompt",
    ),
]
Bare = Annotated[
    str | None,
    Option(
        "Prompt without an instruction, with {input}.",
        metavar="TEXT",
        read=task_template,
        panel="Expert",
    ),
]


@dataclass(frozen=True)
class TaskChoice(Settings):
    """Which tasks, and how they are asked for.

    `task` names files, files in the folder `data`, or the pocket model's word tasks; `pair` names
    directions, whose sentences `data` holds (pocket's own without). `instruction` and `bare` stand
    instead of a task's own prompts; of directions `{target}` in them is the target language. Of
    each task the first `limit` examples count, before `held_out` of them are kept for tests; of
    pocket's own, whose sides come from different splits, the first of either side.
    """

    task: options.Tasks = field(default=(), metadata=UNSIGNED)
    pair: options.Pairs = ()
    data: options.DataOfTasks = field(default=(), metadata=UNSIGNED)
    instruction: Instruction = None
    bare: Bare = None
    chat: options.Chat = None
    answer_only: options.AnswerOnly = field(default=None, metadata=GIVEN)
    shots: options.Shots = 0
    held_out: options.HeldOut = 100
    hold_out_last: Annotated[
        bool | None,
        Option(
            "Hold out the last examples, not those that a hash of the input draws.", panel="Expert"
        ),
    ] = field(default=None, metadata=GIVEN)
    answer_end: Annotated[
        bool | None,
        Option(
            "Count the token that ends an answer as part of it, in training and in losses.",
            panel="Expert",
        ),
    ] = field(default=None, metadata=GIVEN)
    limit: options.Limit = None
    language: options.OutputLanguage = None
    input_column: options.InputColumn = "input"
    output_column: options.OutputColumn = "output"
    source_column: options.SourceColumn = "source"
    target_column: options.TargetColumn = "target"
    split: options.Split = None


def read_tasks(choice: TaskChoice, model: str, seed: int = 0) -> dict[str, TaskSides]:
    """The tasks chosen, by name, in the order named: tasks first, then directions.

    Raises `InputError` if none is named, two have one name, one cannot be read, or has too few
    examples for the shots.
    """
    read: list[TaskSides] = [_task(choice, name, model, seed) for name in choice.task]
    read += _directions(choice, model, seed)
    if not read:
        raise InputError(
            "no task given; add --task FILE, or --pair en-de with --data, or for pocket --task "
            "plural-de or --pair en-de"
        )
    words = [sides.test for sides in read if not sides.test.is_translation]
    named: dict[str, TaskSides] = {}
    for sides in read:
        if sides.name in named:
            raise InputError(
                f"two tasks are called {sides.name!r} ({named[sides.name].test.path} and "
                f"{sides.test.path}); rename one file"
            )
        named[sides.name] = sides if sides.test.is_translation else _apart(sides, words)
    for sides in named.values():
        few_shot(sides.test, sides.pool, choice.shots, seed)  # too few are told here
    return named


def resolved_tasks(lm: LanguageModel, choice: TaskChoice, model: str) -> TaskChoice:
    """The choice with what `chat` comes to for this model, as its signature has to say.

    Raises `InputError` if a chat template is wanted of a tokenizer without one.
    """
    from headscope.lm.prompting import uses_chat

    return dataclasses.replace(choice, chat=uses_chat(lm, _chat(choice, model)))


def training_task(choice: TaskChoice, tasks: Mapping[str, TaskSides], seed: int = 0) -> Task:
    """What a mask is trained on: the task with its shots, or a hybrid where several are named.

    Raises `InputError` if a task has nothing to train on.
    """
    for name, sides in tasks.items():
        if sides.train is None:
            raise InputError(
                f"the task {name!r} has {len(sides.test.examples)} different inputs, so holding "
                f"{choice.held_out} out leaves none to train on; hold fewer out with --held-out"
            )
    trained = [sides.train for sides in tasks.values() if sides.train is not None]
    if len(trained) > 1:
        return hybrid(trained, choice.shots, seed)
    return few_shot(trained[0], None, choice.shots, seed) if choice.shots else trained[0]


def counterfactuals(
    choice: TaskChoice, tasks: Mapping[str, TaskSides], model: str, seed: int, tested: bool = False
) -> dict[str, tuple[Example, ...]]:
    """By task the examples that one without a corrupted input may get another's from.

    They are those of the whole file, whatever the limit, but to find heads (not `tested`) none
    that are held out: of the whole file, or of these `tasks`. A dataset of the Hub is not read
    beyond its limit.
    """
    asked = [task.test if tested else task.train or task.test for task in tasks.values()]
    complete = all(each.corrupted for task in asked for each in task.examples)
    here = all(Path(name.rpartition("=")[2]).exists() for name in choice.data)
    whole = tasks
    if choice.limit is not None and here and not complete:
        whole = read_tasks(dataclasses.replace(choice, limit=None), model, seed)
    found = {}
    for name, sides in tasks.items():
        # Of pocket's own sentences, which have no end, the limit may be what makes them more.
        both = max((whole[name], sides), key=lambda each: len(each.pool) + len(each.test.examples))
        rows = both.pool
        if tested and both.train is not None:
            rows = (*rows, *both.test.examples)
        held_out = () if tested or sides.train is None else sides.test.examples
        apart_from = {sentence_digest(each.input) for each in held_out}
        found[name] = tuple(each for each in rows if sentence_digest(each.input) not in apart_from)
    return found


def answers(lm: LanguageModel, task: Task, instructed: bool = False) -> list[Answered]:
    """Every example's prompt and output as tokens; errors name the example's file and line."""
    return rows_of(lm, asked(task), instructed)


def instructed_answers(
    lm: LanguageModel, task: Task, pool: Sequence[Example], shots: int, seed: int
) -> list[Answered]:
    """The same behind shots of `pool`, and instructed where that can be."""
    question = asked(task, pool, shots, seed)
    return rows_of(lm, question, question.instructed is not None)


def task_examples(
    tasks: Mapping[str, AnySides], leakage: Leakage, shots: int = 0, **more: Any
) -> Examples[AnySides]:
    """Tasks, asked with so many shots, as what is measured; `more` goes to `Examples`."""

    def reference(lm: LanguageModel, config: Any) -> Reference:
        return from_tasks(
            [
                row
                for sides in tasks.values()
                if sides.reference is not None
                for row in instructed_answers(lm, sides.reference, sides.pool, shots, config.seed)
            ]
        )

    return Examples(
        tasks,
        {name: [example.input for example in sides.test.examples] for name, sides in tasks.items()},
        task_inputs(tasks),
        leakage,
        reference,
        lambda lm, config, run, progress: check_tasks(
            lm, tasks, shots, config.seed, run, config.baseline, progress
        ),
        sent=lambda lm, config: first_prompts(lm, tasks, shots, config.seed),
        **more,
    )


def first_prompts(
    lm: LanguageModel, tasks: Mapping[str, TaskSides], shots: int, seed: int
) -> dict[str, str]:
    """The prompt of the first example of each task, with its shots and, where it has one, its
    instruction, as this model reads it."""
    from headscope.lm.prompting import wrap_prompts

    prompts = {}
    for name, sides in tasks.items():
        test = dataclasses.replace(sides.test, examples=sides.test.examples[:1])
        question = asked(test, sides.pool, shots, seed)
        wordings = question.prompts(question.instructed is not None)
        (prompts[name],) = wrap_prompts(lm, wordings, test.chat)
    return prompts


def task_inputs(tasks: Mapping[str, TaskSides]) -> dict[str, str]:
    """Content hashes of the tasks, for a run's signature."""
    return {f"task {name}": sides.test.digest for name, sides in tasks.items()}


def found_on(tasks: Mapping[str, TaskSides]) -> dict[str, Any]:
    """Digests of what is trained on by task, to be stored as `found_on.json`."""
    return {
        name: task_digests(sides.train.examples, sides.train.is_translation)
        for name, sides in tasks.items()
        if sides.train is not None
    }


def _task(choice: TaskChoice, name: str, model: str, seed: int) -> TaskSides:
    if name == IOI and not Path(name).exists():
        return _sides(_asked(choice, ioi_task(choice.limit or IOI_SENTENCES, seed)), choice, seed)
    path = _place(choice, name, model)
    if path is None:
        return _pocket_task(choice, name)
    task = read_task(
        path,
        instruction=choice.instruction,
        bare=_bare(choice, model),
        language=choice.language,
        input_column=choice.input_column,
        output_column=choice.output_column,
        limit=choice.limit,
    )
    chat = _chat(choice, model)
    if any(example.corrupted for example in task.examples):  # such texts are whole prompts
        task = dataclasses.replace(task, bare=choice.bare or PLACEHOLDER)
        chat = bool(chat)
    return _sides(dataclasses.replace(task, chat=chat), choice, seed)


def _place(choice: TaskChoice, name: str, model: str) -> Path | None:
    """The file of a task, or None for a word task of the pocket model."""
    from headscope.pocket.sample import task_names

    if Path(name).is_file():
        return Path(name)
    folders = [Path(named) for named in choice.data if Path(named).is_dir()]
    files = [file for folder in folders for file in sorted(folder.iterdir()) if file.is_file()]
    for file in files:
        if name in (file.name, file.name.partition(".")[0]):
            return file
    if model == POCKET and name in task_names():
        return None
    known = [file.name.partition(".")[0] for file in files]
    known += list(task_names()) if model == POCKET else []
    if not files and model == POCKET and "/" not in name and "." not in name:
        from headscope.pocket.sample import word_task

        word_task(name, "test")  # says what names there are
    advice = nearest(name, known).rstrip() or "give its path, or its name and the folder as --data"
    raise InputError(f"there is no task file {name}; {advice}")


def _pocket_task(choice: TaskChoice, name: str) -> TaskSides:
    from headscope.pocket.sample import word_task

    # Neither dev nor test was seen in the model's training, and both are small.
    train, test = word_task(name, "train"), word_task(name, "test", "dev")
    # A name that two languages write alike may belong to training in one of them.
    trained = {example.input for example in train.examples}
    new = [example for example in test.examples if example.input not in trained]
    if not new:
        raise InputError(
            f"the task {name!r} has no input that training has not; name it with its language"
        )
    train = dataclasses.replace(train, examples=train.examples[: choice.limit])
    test = dataclasses.replace(test, examples=tuple(new[: choice.held_out][: choice.limit]))
    return TaskSides(_asked(choice, train), _asked(choice, test))


def _asked(choice: TaskChoice, task: Task) -> Task:
    """A task with the prompts of the choice in place of its own."""
    changes: dict[str, Any] = {}
    if choice.instruction is not None:
        changes["instruction"] = (
            in_language(choice.instruction, task.language)
            if task.is_translation and task.language
            else choice.instruction
        )
    if choice.bare is not None:
        changes["bare"] = choice.bare
    if choice.chat is not None:
        changes["chat"] = choice.chat
    if choice.answer_only:
        changes["answer_only"] = True
    if choice.answer_end:
        changes["answer_end"] = True
    return dataclasses.replace(task, **changes)


def _directions(choice: TaskChoice, model: str, seed: int) -> list[TaskSides]:
    data = tuple(source for source in choice.data if not _task_folder(choice, source))
    if not choice.pair and not data:
        return []
    pairs = PairsChoice(
        choice.pair,
        data,
        source_column=choice.source_column,
        target_column=choice.target_column,
        split=choice.split,
        limit=choice.limit,
    )
    if data:
        return [
            _sides(
                translation_task(
                    direction, choice.instruction, _bare(choice, model), chat=_chat(choice, model)
                ),
                choice,
                seed,
            )
            for direction in read_directions(pairs, model, "dev", seed=seed).values()
        ]
    # Which directions there are, and whether the model is the one that needs no data.
    named = read_directions(dataclasses.replace(pairs, limit=1), model, "test", seed=seed)
    from headscope.pocket.sample import sentence_task

    number = choice.limit or POCKET_SENTENCES
    return [
        TaskSides(
            _asked(choice, sentence_task(name, "dev", number, seed)),
            _asked(choice, sentence_task(name, "test", min(choice.held_out, number), seed)),
        )
        for name in named
    ]


def _task_folder(choice: TaskChoice, data: str) -> bool:
    """Whether `--data` names the folder of task files rather than sentence pairs."""
    return bool(choice.task) and not choice.pair and Path(data).is_dir()


def _sides(task: Task, choice: TaskChoice, seed: int) -> TaskSides:
    task = dataclasses.replace(
        task, answer_end=bool(choice.answer_end), answer_only=bool(choice.answer_only)
    )
    inputs = {sentence_digest(example.input) for example in task.examples}
    if len(inputs) <= choice.held_out:
        return TaskSides(None, task)
    parts = split_task(task, choice.held_out, seed, last=bool(choice.hold_out_last))
    train, test = (dataclasses.replace(task, examples=part) for part in parts)
    return _apart(TaskSides(train, test), [test])


def _apart(sides: TaskSides, held_out: Iterable[Task]) -> TaskSides:
    """The task without those of its training examples that these hold out."""
    if sides.train is None:
        return sides
    kept = apart(sides.train, held_out)
    return TaskSides(dataclasses.replace(sides.train, examples=kept) if kept else None, sides.test)


def _bare(choice: TaskChoice, model: str) -> str:
    if choice.bare is not None:
        return choice.bare
    if model == POCKET:
        from headscope.pocket.mixture import BARE

        return BARE
    return DEFAULT_BARE


def _chat(choice: TaskChoice, model: str) -> bool | None:
    return False if choice.chat is None and model == POCKET else choice.chat
