"""What the paper's experiments ask of a model: directions, word tasks, and their size in tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from itertools import permutations
from pathlib import Path
from typing import Any

from headscope.data.languages import Direction
from headscope.data.pairs import directions_in
from headscope.errors import InputError
from headscope.papers.paper import Missing, Needed, Setting, Step
from headscope.papers.published import paper_tasks
from headscope.studies.tasks import TaskChoice

NAME = "heads-up"
#: The languages of the paper's translations, all its directions, and those of its Table 1.
LANGUAGES = ("en", "zh", "fr", "es", "de", "ru", "ar")
DIRECTIONS = tuple(f"{source}-{target}" for source, target in permutations(LANGUAGES, 2))
TABLE_1 = DIRECTIONS[:6]
#: Those from English and from Chinese, of which its ROUGE-L is (Tables 22 to 31, and 44).
EN_ZH = tuple(name for name in DIRECTIONS if name.startswith(("en-", "zh-")))
#: The tasks of its Table 2.
TABLE_2 = (
    "sentiment",
    "antonym",
    "capitalize_first_letter",
    "product-company",
    "conll2003_location",
    "fruit_v_animal_3",
)
#: Its instruction of a direction (section 3.4), before the sentence, and as its code sets it.
INSTRUCTION = "Translate into {target}:\n\n{input}\n\n"
PUBLISHED_INSTRUCTION = "{input}\n\nTranslate into {target}:"

#: The bundled model's directions whose masks are trained by default. Two have the source and two
#: the target in common with another one, one is another's reverse, and one is without English, so
#: that heads of all directions and those of one language are not the same family.
POCKET_DIRECTIONS = ("en-de", "en-es", "de-en", "de-es")
#: Its word tasks with the number of held-out words. By default those are trained that the paper
#: has, too (singular-plural and english-german), and that have the most words among those.
POCKET_WORDS = ("plural-en", "translate-en-de")
POCKET_TESTED = {"plural-en": 34, "translate-en-de": 55, "past-en": 12, "plural-de": 31}
POCKET_TESTED |= {"first_letter-en": 41, "capital": 7}
#: The instructed prompt of the bundled model's word tasks without its instruction.
POCKET_WORD_PROMPT = "Word: {input}\nAnswer:"

NO_PAIRS = Missing(
    "XNLI's parallel sentences in English, Chinese, French, Spanish, German, Russian and Arabic",
    "--pairs en-zh=FILE for each direction, FILE holding sources and targets (TSV, JSON Lines or "
    "Parquet), or --pairs FOLDER of FLORES",
)
NO_TASKS = Missing(
    "the word tasks of Todd et al. (2024), 35 JSON files of inputs and outputs",
    "--tasks FOLDER with their files, or --tasks FILE for each",
)
#: What experiments need that take a direction or a word task alike.
NO_MASKS = Missing(f"{NO_PAIRS.why}, or {NO_TASKS.why}", f"{NO_PAIRS.give}; {NO_TASKS.give}")


@dataclass(frozen=True)
class Size:
    """Mean tokens of a prompt without and with the instruction, and of the right output.

    `tested` is how many examples are held out.
    """

    bare: float
    instructed: float
    answer: float
    tested: int = 100


#: Of the bundled model counted, of other models taken: sentences of 25 tokens and words of 3.
_POCKET_SENTENCES = Size(18, 27.5, 13.7)
_SENTENCES = Size(30, 42, 28)
_WORDS = Size(8, 26, 4)


@dataclass(frozen=True)
class Task:
    """A direction or a word task.

    Attributes:
        name: such as `en-de` or `antonym`.
        choice: what the studies are given.
        translation: whether it is a direction.
        default: whether its mask is trained without `--full`.
        size: what an example takes in tokens.
    """

    name: str
    choice: TaskChoice
    translation: bool
    default: bool
    size: Size


def directions(setting: Setting) -> tuple[Task, ...]:
    """The directions that there are sentences for, English to Chinese and the defaults first.

    Of a folder those of the paper's 42 that it has, its Table 1 by default; of files those
    that are named, all by default, but a direction of a folder is the folder's, and its file is to
    measure on (`check_file`); of the bundled model its 20.
    """
    places = setting.data.pairs
    if not places:
        return _steered(setting, _pocket_directions() if setting.pocket else ())
    own: dict[str, Task] = {}
    theirs = PUBLISHED_INSTRUCTION if setting.as_published else INSTRUCTION
    instruction = None if setting.pocket else theirs
    for folder in (place for place in places if _direction(place) is None):
        every = [Direction(*name.split("-")) for name in DIRECTIONS]
        if Path(folder).is_dir():
            every = directions_in(Path(folder), every, "dev")
        for name in sorted(map(str, every), key=lambda name: name not in TABLE_1):
            own.setdefault(name, _pair(name, (folder,), name in TABLE_1, _SENTENCES, instruction))
    for place in places:
        if (named := _direction(place)) is not None:
            own.setdefault(named, _pair(named, (place,), True, _SENTENCES, instruction))
    return _steered(setting, sorted(own.values(), key=lambda task: task.name != "en-zh"))


def word_tasks(setting: Setting) -> tuple[Task, ...]:
    """The word tasks that there are, those of the defaults first.

    Files that are named are trained on by default, of folders those of the paper's Table 2 (where
    a folder has none of them, all its files).
    """
    places = setting.data.tasks
    if not places:
        return _steered(setting, _pocket_words() if setting.pocket else ())
    own: dict[str, Task] = {}
    for place in places:
        path = Path(place)
        if not path.is_dir():
            own.setdefault(_stem(path), _file(path, True))
            continue
        files = {_stem(file): file for file in sorted(path.iterdir()) if file.is_file()}
        if not files:
            raise InputError(f"{place}: holds no task files; give the folder of JSON files")
        known = [name for name in TABLE_2 if name in files]
        for name in [*known, *(name for name in files if name not in known)]:
            own.setdefault(name, _file(files[name], name in known or not known))
    return _steered(setting, own.values())


def _steered(setting: Setting, tasks: Iterable[Task]) -> tuple[Task, ...]:
    """The tasks, as the user decided."""
    own = setting.steering.given
    changes: dict[str, Any] = {
        name: own[name] for name in ("limit", "chat", "instruction") if name in own
    }
    if "limit" in own and (setting.data.pairs or setting.data.tasks):
        # Of few examples half are left to train on; the pocket model's sides are apart anyway.
        changes["held_out"] = max(1, min(TaskChoice().held_out, own["limit"] // 2))
    if setting.as_published:
        changes |= {"answer_end": True, "hold_out_last": True}
    every = [replace(task, choice=replace(task.choice, **changes)) for task in tasks]
    shots = setting.steering.shots
    return tuple(with_shots(task, shots) if shots else task for task in every)


def defaults(tasks: Sequence[Task]) -> tuple[Task, ...]:
    """Those whose masks are trained by default."""
    return tuple(task for task in tasks if task.default)


def default_tasks(setting: Setting) -> tuple[Task, ...]:
    """The directions and word tasks whose masks are trained by default."""
    return (*defaults(directions(setting)), *defaults(word_tasks(setting)))


def first_task(setting: Setting) -> Task | None:
    """The task whose single mask is looked at closely: the paper's, or the first one."""
    return next(iter(default_tasks(setting)), None)


def of_printed(task: Task) -> Task:
    """A direction from English on the two sentences that the paper prints for its single prompts.

    The first is of Figures 2, 5, 8 and 9, the second of Table 4. The translations are ours.
    """
    file = resources.files("headscope.papers") / "data" / "heads-up-prompts.tsv"
    source, _, target = task.name.partition("-")
    usual = TaskChoice()
    choice = replace(
        task.choice,
        data=(f"{task.name}={file}",),
        source_column=source,
        target_column=target,
        limit=usual.limit,
        held_out=usual.held_out,
        shots=usual.shots,  # there is nothing to draw them from
    )
    return replace(task, choice=choice)


def too_few(setting: Setting, wanted: Iterable[str] = (), *, words: bool = False) -> Missing | None:
    """What a table of these directions or word tasks needs where some of them are not given.

    By default it is of all the paper's. The bundled model's own stand for any.
    """
    own, given = (
        (word_tasks(setting), setting.data.tasks)
        if words
        else (directions(setting), setting.data.pairs)
    )
    names = set(wanted or (paper_tasks() if words else DIRECTIONS))
    absent = sorted(names - {task.name for task in own})
    if not absent or (setting.pocket and not given):
        return None
    why = (
        f"it is of {len(names)} {'word tasks' if words else 'directions'}, of which "
        f"{len(names) - len(absent)} are given"
    )
    if len(absent) <= len(TABLE_1):
        why += f" (not {', '.join(absent)})"
    return Missing(why, NO_TASKS.give if words else NO_PAIRS.give)


def needing(*wanted: str, words: bool = False) -> Callable[[Setting, str, Sequence[Step]], Needed]:
    """What a table or figure of these directions or word tasks needs; by default it is of all."""
    return lambda setting, element, steps: too_few(setting, wanted, words=words)


def check_file(setting: Setting, direction: str) -> str | None:
    """The first file of a direction that it is not trained on: IWSLT2017's sentences."""
    files = [place for place in setting.data.pairs if _direction(place) == direction]
    trained = {place for task in directions(setting) for place in task.choice.data}
    return next((file.partition("=")[2] for file in files if file not in trained), None)


def with_shots(task: Task, shots: int = 5) -> Task:
    """The task behind examples, so many before each input."""
    size = task.size
    more = shots * (size.bare + size.answer)
    longer = replace(size, bare=size.bare + more, instructed=size.instructed + more)
    return replace(task, choice=replace(task.choice, shots=shots), size=longer)


def hybrid_of(tasks: Sequence[Task]) -> Task | None:
    """All tasks but those that shall stay unseen, as one with five shots; None for fewer than two.

    The paper mixes 32 of its 35 tasks (Table 10). Of the three that it leaves out its Table 3 names
    one, which is left out here, as is every file that is none of the 35. Where there is none of
    them, the last of the default tasks stays unseen.
    """
    seen = [task for task in tasks if task.name in set(paper_tasks()) - {"product-company"}]
    if not seen:
        unseen = [task.name for task in defaults(tasks)[-1:]]
        seen = [task for task in tasks if task.name not in unseen]
    if len(seen) < 2:
        return None
    every = tuple(name for task in seen for name in task.choice.task)
    first = replace(seen[0], name="hybrid", choice=replace(seen[0].choice, task=every))
    return with_shots(first)


def _direction(place: str) -> str | None:
    name, equals, _ = place.partition("=")
    return name if equals and "/" not in name and not Path(place).exists() else None


def _pair(
    name: str, data: tuple[str, ...], default: bool, size: Size, instruction: str | None = None
) -> Task:
    choice = TaskChoice(pair=(name,), data=data, instruction=instruction)
    return Task(name, choice, True, default, size)


def _pocket_directions() -> list[Task]:
    from headscope.pocket.world.languages import DIRECTIONS as POCKET

    names = dict.fromkeys((*POCKET_DIRECTIONS, *POCKET))
    return [_pair(name, (), name in POCKET_DIRECTIONS, _POCKET_SENTENCES) for name in names]


def _pocket_words() -> list[Task]:
    return [
        Task(
            name,
            TaskChoice(task=(name,), bare=POCKET_WORD_PROMPT),
            False,
            name in POCKET_WORDS,
            Size(8.3, 16, 2.8, tested),
        )
        for name, tested in POCKET_TESTED.items()
    ]


def _file(path: Path, default: bool) -> Task:
    known = paper_tasks().get(_stem(path))
    choice = TaskChoice(task=(str(path),), instruction=None if known is None else known.prompt)
    return Task(_stem(path), choice, False, default, _WORDS)


def _stem(path: Path) -> str:
    return path.name.partition(".")[0]
