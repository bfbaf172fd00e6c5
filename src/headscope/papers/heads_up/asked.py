"""What the paper's experiments ask of a model: directions, word tasks, and their size in tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from itertools import permutations
from pathlib import Path
from typing import Any

from headscope.data.flores import directions_in
from headscope.data.languages import Direction
from headscope.errors import InputError
from headscope.papers.paper import Missing, Setting
from headscope.papers.published import paper_tasks
from headscope.studies.tasks import TaskChoice

#: The languages of the paper's translations, and the directions of its Table 1.
LANGUAGES = ("en", "zh", "fr", "es", "de", "ru", "ar")
TABLE_1 = tuple(f"en-{code}" for code in LANGUAGES[1:])
#: Those from English and from Chinese, of which its ROUGE-L is (Tables 22 to 31, and 44).
EN_ZH = (*TABLE_1, *(f"zh-{code}" for code in LANGUAGES if code != "zh"))
#: The tasks of its Table 2.
TABLE_2 = (
    "sentiment",
    "antonym",
    "capitalize_first_letter",
    "product-company",
    "conll2003_location",
    "fruit_v_animal_3",
)
#: Directions between two of its languages.
PAPER_DIRECTIONS = 42
#: The tasks of its Table 7, each of which chooses one of several words.
CHOICES = ("adjective_v_verb_3", "object_v_concept_3", "verb_v_adjective_3", "fruit_v_animal_3")
#: Its instruction of a direction (section 3.4); how it is set before the sentence is not printed.
INSTRUCTION = "Translate into {target}:\n\n{input}\n\n"

#: The bundled model's directions whose masks are trained by default. Two have the source and two
#: the target in common with another one, one is another's reverse, and one is without English, so
#: that heads of all directions and those of one language are not the same family.
POCKET_DIRECTIONS = ("en-de", "en-es", "de-en", "de-es")
#: Its word tasks that the paper has, too (singular-plural and english-german), and that have the
#: most held-out words among those.
POCKET_WORDS = ("plural-en", "translate-en-de")
#: Its other word tasks, whose masks are left to `--full`: past tense and capitals are the paper's
#: present-past and country-capital, first letters its lowercase_first_letter.
POCKET_MORE_WORDS = ("past-en", "plural-de", "first_letter-en", "capital")
#: The instructed prompt of the bundled model's word tasks without its instruction.
POCKET_WORD_PROMPT = "Word: {input}\nAnswer:"

NO_PAIRS = (
    "XNLI's parallel sentences in English, Chinese, French, Spanish, German, Russian and Arabic",
    "--pairs en-zh=FILE for each direction, FILE holding sources and targets (TSV, JSON Lines or "
    "Parquet), or --pairs FOLDER of FLORES",
)
NO_TASKS = (
    "the word tasks of Todd et al. (2024), 35 JSON files of inputs and outputs",
    "--tasks FOLDER with their files, or --tasks FILE for each",
)
#: What experiments need that take a direction or a word task alike.
NO_MASKS = Missing(f"{NO_PAIRS[0]}, or {NO_TASKS[0]}", f"{NO_PAIRS[1]}; {NO_TASKS[1]}")


@dataclass(frozen=True)
class Size:
    """Mean tokens of a task's parts, and how many examples it is tested on.

    Attributes:
        bare: of a prompt without instruction.
        told: of a prompt with it.
        answer: of the right output.
        tested: examples that are held out.
    """

    bare: float
    told: float
    answer: float
    tested: int = 100


#: Of the bundled model counted, of other models taken: sentences of 25 tokens and words of 3.
_POCKET_SENTENCES = Size(18, 27.5, 13.7)
_POCKET_WORDS = {"plural-en": 34, "translate-en-de": 55, "past-en": 12, "plural-de": 31}
_POCKET_WORDS |= {"first_letter-en": 41, "capital": 7}
_SENTENCES = Size(30, 42, 28)
_WORDS = Size(8, 26, 4)


@dataclass(frozen=True)
class Asked:
    """A direction or a word task.

    Attributes:
        name: such as `en-de` or `antonym`.
        choice: how the studies are told.
        translation: whether it is a direction.
        default: whether its mask is trained without `--full`.
        size: what an example takes in tokens.
    """

    name: str
    choice: TaskChoice
    translation: bool
    default: bool
    size: Size


def directions(setting: Setting) -> tuple[Asked, ...]:
    """The directions that there are sentences for, English to Chinese and the defaults first.

    Of a folder those of the paper's 42 that it has, its Table 1 by default; of files those
    that are named, all by default, but a direction of a folder is the folder's, and its file is to
    measure on (`check_file`); of the bundled model its 20.
    """
    places = setting.data.pairs
    if not places:
        return _steered(setting, _pocket_directions() if setting.pocket else ())
    found: dict[str, Asked] = {}
    told = None if setting.pocket else INSTRUCTION
    for folder in (one for one in places if _direction(one) is None):
        every = [Direction(a, b) for a, b in permutations(LANGUAGES, 2)]
        if Path(folder).is_dir():
            every = directions_in(Path(folder), every, "dev")
        for name in sorted(map(str, every), key=lambda name: name not in TABLE_1):
            found.setdefault(name, _pair(name, (folder,), name in TABLE_1, _SENTENCES, told))
    for one in places:
        if (named := _direction(one)) is not None:
            found.setdefault(named, _pair(named, (one,), True, _SENTENCES, told))
    return _steered(setting, sorted(found.values(), key=lambda one: one.name != "en-zh"))


def word_tasks(setting: Setting) -> tuple[Asked, ...]:
    """The word tasks that there are, those of the defaults first.

    Files that are named are trained on by default, of folders those of the paper's Table 2 (where
    a folder has none of them, all its files).
    """
    places = setting.data.tasks
    if not places:
        return _steered(setting, _pocket_words() if setting.pocket else ())
    found: dict[str, Asked] = {}
    for place in places:
        path = Path(place)
        if not path.is_dir():
            found.setdefault(_stem(path), _file(path, True))
            continue
        files = {_stem(one): one for one in sorted(path.iterdir()) if one.is_file()}
        if not files:
            raise InputError(f"{place}: holds no task files; give the folder of JSON files")
        known = [name for name in TABLE_2 if name in files]
        for name in [*known, *(name for name in files if name not in known)]:
            found.setdefault(name, _file(files[name], name in known or not known))
    return _steered(setting, found.values())


def _steered(setting: Setting, tasks: Iterable[Asked]) -> tuple[Asked, ...]:
    """The tasks, asked for as the user decided."""
    own = setting.steering.given
    changes: dict[str, Any] = {
        name: own[name] for name in ("limit", "chat", "instruction") if name in own
    }
    if "limit" in own and (setting.data.pairs or setting.data.tasks):
        # Of few examples half are left to train on; the pocket model's sides are apart anyway.
        changes["held_out"] = max(1, min(TaskChoice().held_out, own["limit"] // 2))
    every = [replace(one, choice=replace(one.choice, **changes)) for one in tasks]
    shots = setting.steering.shots
    return tuple(with_shots(one, shots) if shots else one for one in every)


def chosen(tasks: Sequence[Asked]) -> tuple[Asked, ...]:
    """Those whose masks are trained by default."""
    return tuple(one for one in tasks if one.default)


def first_task(setting: Setting) -> Asked | None:
    """The task whose single mask is looked at closely: the paper's, or the first one."""
    return next(iter((*chosen(directions(setting)), *chosen(word_tasks(setting)))), None)


def of_printed(task: Asked) -> Asked:
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
    every = paper_tasks() if words else (f"{a}-{b}" for a, b in permutations(LANGUAGES, 2))
    names = set(wanted or every)
    absent = sorted(names - {one.name for one in own})
    if not absent or (setting.pocket and not given):
        return None
    why = (
        f"it is of {len(names)} {'word tasks' if words else 'directions'}, of which "
        f"{len(names) - len(absent)} are given"
    )
    if len(absent) <= len(TABLE_1):
        why += f" (not {', '.join(absent)})"
    return Missing(why, NO_TASKS[1] if words else NO_PAIRS[1])


def check_file(setting: Setting, direction: str) -> str | None:
    """The first file named for a direction beside what it is trained on: IWSLT2017's sentences."""
    files = [one for one in setting.data.pairs if _direction(one) == direction]
    trained = {place for one in directions(setting) for place in one.choice.data}
    return next((one.partition("=")[2] for one in files if one not in trained), None)


def with_shots(task: Asked, shots: int = 5) -> Asked:
    """The task behind examples, so many before each input."""
    size = task.size
    more = shots * (size.bare + size.answer)
    longer = replace(size, bare=size.bare + more, told=size.told + more)
    return replace(task, choice=replace(task.choice, shots=shots), size=longer)


def as_hybrid(tasks: Sequence[Asked]) -> Asked | None:
    """All tasks but those that shall stay unseen, as one with five shots; None for fewer than two.

    The paper mixes 32 of its 35 tasks (Table 10). Of the three that it leaves out its Table 3 names
    one, which is left out here, as is every file that is none of the 35. Where there is none of
    them, the last of the default tasks stays unseen.
    """
    seen = [one for one in tasks if one.name in set(paper_tasks()) - {"product-company"}]
    if not seen:
        unseen = [one.name for one in chosen(tasks)[-1:]]
        seen = [one for one in tasks if one.name not in unseen]
    if len(seen) < 2:
        return None
    every = tuple(name for one in seen for name in one.choice.task)
    first = replace(seen[0], name="hybrid", choice=replace(seen[0].choice, task=every))
    return with_shots(first)


def _direction(place: str) -> str | None:
    name, equals, _ = place.partition("=")
    return name if equals and "/" not in name and not Path(place).exists() else None


def _pair(
    name: str, data: tuple[str, ...], default: bool, size: Size, told: str | None = None
) -> Asked:
    choice = TaskChoice(pair=(name,), data=data, instruction=told)
    return Asked(name, choice, True, default, size)


def _pocket_directions() -> tuple[Asked, ...]:
    from headscope.pocket.world.languages import DIRECTIONS

    first = [_pair(name, (), True, _POCKET_SENTENCES) for name in POCKET_DIRECTIONS]
    rest = [name for name in DIRECTIONS if name not in POCKET_DIRECTIONS]
    return (*first, *(_pair(name, (), False, _POCKET_SENTENCES) for name in rest))


def _pocket_words() -> tuple[Asked, ...]:
    return tuple(
        Asked(
            name,
            TaskChoice(task=(name,), bare=POCKET_WORD_PROMPT),
            False,
            name in POCKET_WORDS,
            Size(8.3, 16, 2.8, _POCKET_WORDS[name]),
        )
        for name in (*POCKET_WORDS, *POCKET_MORE_WORDS)
    )


def _file(path: Path, default: bool) -> Asked:
    known = paper_tasks().get(_stem(path))
    choice = TaskChoice(task=(str(path),), instruction=None if known is None else known.prompt)
    return Asked(_stem(path), choice, False, default, _WORDS)


def _stem(path: Path) -> str:
    return path.name.partition(".")[0]
