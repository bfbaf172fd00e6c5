"""A task: inputs, each with the one output that is wanted, and how a model is asked for it."""

from __future__ import annotations

import dataclasses
import hashlib
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscope.data.files import (
    check_limit,
    packaged_rows,
    plain_name,
)
from headscope.data.languages import language_name
from headscope.data.pairs import PairFile
from headscope.data.prompts import DEFAULT_TEMPLATE
from headscope.data.rows import Field, Row, clean_text, read_fields, text_cell
from headscope.data.split import places_by_text, sentence_digest, text_keys
from headscope.errors import InputError

__all__ = [
    "DEFAULT_BARE",
    "INSTRUCTIONS",
    "Example",
    "Task",
    "TaskSides",
    "few_shot",
    "filled",
    "hybrid",
    "in_language",
    "instruction_for",
    "ioi_task",
    "prompt",
    "read_task",
    "split_task",
    "translation_task",
]

#: Where the input of an example goes in a template.
PLACEHOLDER = "{input}"
#: The prompt without an instruction: the input, and the output after a blank line, as Heads Up!'s
#: published code has it for models without a chat template.
DEFAULT_BARE = "{input}\n\n"


@dataclass(frozen=True)
class Example:
    """An input and its output, without white space around it; `id` is unique within its task.

    `line` is where the example stands in its file, from 1. Where the output is one of several words
    of the input, these are the `candidates`. Where they are known, `corrupted` is an input like
    this one that asks for another output, and `wrong` that output.
    """

    id: str
    input: str
    output: str
    line: int
    candidates: tuple[str, ...] = ()
    corrupted: str = ""
    wrong: str = ""

    @property
    def text(self) -> str:
        """What examples are told apart by."""
        return self.input


@dataclass(frozen=True)
class Task:
    """Examples of one task, and how to ask for it with and without an instruction.

    `instruction` and `bare` are templates with `{input}` once: the text up to where the output
    begins. A prompt that ends in white space is followed by the output directly, any other by one
    space. Braces other than `{input}` mean nothing.

    Attributes:
        name: what results call it.
        examples: in the order of the file.
        instruction: the prompt that says what to do, or None where there is none.
        bare: the prompt that does not.
        language: code of the language of the outputs, or None if unknown.
        at_start: whether an answer counts only at the start of what a model says (letters, items
            of a sequence, extracted words), since the input may hold it too.
        path: where the examples come from.
        digest: SHA-256 of that content.
        source_language: code of the language of the inputs, of translation tasks alone.
        chat: whether prompts go through the tokenizer's chat template; None: where it has one.
        answer_only: of a translation the answer in an output is measured, not its first line.
            Prompts that are complete already say False.
        answer_end: the token that ends an answer is part of it, in training and in losses.
    """

    name: str
    examples: tuple[Example, ...]
    instruction: str | None
    bare: str
    language: str | None = None
    at_start: bool = False
    path: str = field(default="", metadata={"signature": False})
    digest: str = ""
    source_language: str | None = None
    chat: bool | None = None
    answer_only: bool = False
    answer_end: bool = field(default=False, metadata={"signature": False})

    def __post_init__(self) -> None:
        for what, template in (("instruction", self.instruction), ("bare prompt", self.bare)):
            count = 1 if template is None else template.count(PLACEHOLDER)
            if count != 1:
                raise InputError(
                    f"the {what} {template!r} has {PLACEHOLDER} {count} times; put it once where "
                    "the input belongs"
                )
        if not self.examples:
            raise InputError(f"the task {self.name!r} has no examples; give at least one")

    @property
    def is_translation(self) -> bool:
        """Whether outputs translate the inputs, so that chrF++ and BLEU have a meaning."""
        return self.source_language is not None

    @property
    def names_wrong(self) -> bool:
        """Whether every example has a wrong answer."""
        return all(example.wrong for example in self.examples)


@dataclass(frozen=True)
class TaskSides:
    """One task twice: with the examples to train on, and with those to test on.

    `train` is None where a file holds no more inputs than are tested on. `reference` has
    examples set aside for what replaces removed heads.
    """

    train: Task | None
    test: Task
    reference: Task | None = None

    @property
    def name(self) -> str:
        """What results call the task."""
        return self.test.name

    @property
    def pool(self) -> tuple[Example, ...]:
        """Where shots come from: never what is tested on, unless there is nothing else."""
        return self.train.examples if self.train is not None else self.test.examples


def filled(template: str, text: str) -> str:
    """A template with the input in its place; braces in the input have no meaning."""
    before, _, after = template.partition(PLACEHOLDER)
    return f"{before}{text}{after}"


@dataclass(frozen=True)
class Known:
    """What is known of a task by its name: what to do, as a sentence, and the outputs' language.

    `at_start`: whether an answer counts at the start of an output alone. `chosen`: whether the
    output is one of the comma-separated words of the input.
    """

    says: str
    at_start: bool = False
    chosen: bool = False
    language: str = "en"


def _known() -> Iterator[tuple[str, Known]]:
    for name, says, *cells in packaged_rows("headscope.data", "instructions.tsv"):
        rule, language = cells if len(cells) == 2 else ("".join(cells), "en")
        yield name, Known(says, rule in ("start", "chosen"), rule == "chosen", language)


#: What to do, in words, by task name, for the word tasks that the function-vector datasets made
#: customary. The names are those of the files of Todd et al., "Function Vectors in Large Language
#: Models" (ICLR 2024); the Heads Up! paper trains masks for 35 of them (its Table 10). The wording
#: is this project's own.
INSTRUCTIONS = dict(_known())

# Lists of five words exist beside those of three, under the same names.
_COUNT = re.compile(r"_\d+$")


def known_task(name: str) -> Known | None:
    """What is known of a task of this name; lists of other lengths count as those of three."""
    return INSTRUCTIONS.get(name) or INSTRUCTIONS.get(_COUNT.sub("_3", name))


def instruction_for(name: str) -> str | None:
    """The instruction of a task by its name, as a template, or None for unknown names."""
    known = known_task(name)
    return None if known is None else f"{known.says}\nInput: {{input}}\nAnswer:"


#: What stands between the examples of a few-shot prompt.
SHOT_BREAK = "\n\n"


def joined(before: str, output: str) -> str:
    """A prompt and its output: one space between them unless the prompt ends in white space."""
    return before + output if not before or before[-1].isspace() else f"{before} {output}"


def prompt(
    task: Task, example: Example, instructed: bool = False, shots: Sequence[Example] = ()
) -> str:
    """The prompt of an example, up to where its output begins.

    With `shots`, these come first, each in the same form with its output, a blank line after
    each. With `instructed`, each carries the instruction, so that every template can be used.

    Raises `InputError` if an instruction is wanted and the task has none.
    """
    template = task.bare
    if instructed:
        if task.instruction is None:
            raise InputError(
                f"the task {task.name!r} has no instruction; give one with --instruction, such as "
                '"Say what to do.\\nInput: {input}\\nAnswer:"'
            )
        template = task.instruction
    done = [joined(filled(template, shot.input), shot.output) for shot in shots]
    return SHOT_BREAK.join([*done, filled(template, example.input)])


def split_task(
    task: Task, held_out: int = 100, seed: int = 0, last: bool = False
) -> tuple[tuple[Example, ...], tuple[Example, ...]]:
    """Examples to train on, and `held_out` of them to evaluate on.

    Who is held out depends on a hash of the input and the seed, not on the order of the file,
    unless it is to be the `last` inputs there. No input is on both sides: of examples with one
    input the first is held out and the others are left out altogether. Both keep the order of the
    file.

    Raises `InputError` if that leaves nothing to train on.
    """
    if held_out < 1:
        raise InputError(f"held_out is {held_out}; hold at least 1 example out")
    keys = [sentence_digest(example.input) for example in task.examples]
    ranked = sorted(
        set(keys), key=lambda key: hashlib.sha256(f"{seed} {key}".encode("ascii")).digest()
    )
    if last:
        ranked = list(dict.fromkeys(reversed(keys)))
    if len(ranked) <= held_out:
        raise InputError(
            f"the task {task.name!r} has {len(ranked)} different inputs, so holding {held_out} out "
            f"leaves none to train on; hold fewer out (--held-out {max(1, len(ranked) // 4)})"
        )
    chosen = set(ranked[:held_out])
    train: list[Example] = []
    test: list[Example] = []
    seen: set[str] = set()
    for key, example in zip(keys, task.examples, strict=True):
        if key not in chosen:
            train.append(example)
        elif key not in seen:
            test.append(example)
            seen.add(key)
    return tuple(train), tuple(test)


def example_keys(examples: Iterable[Example]) -> NDArray[np.uint64]:
    """Numbers to draw examples by, wherever they stand (see `places_by_text`)."""
    return text_keys(f"{example.input}\0{example.output}" for example in examples)


def few_shot(
    task: Task,
    pool: Sequence[Example] | None = None,
    shots: int = 5,
    seed: int = 0,
    instructed: bool = False,
) -> Task:
    """The same examples behind `shots` others: every input is the whole prompt.

    Shots are drawn for each example on its own, from `pool` (by default the task's examples),
    never one with the same input or the corrupted one. They depend on the seed and the texts
    alone, not on their order.

    Raises `InputError` if the pool is too small.
    """
    pool = task.examples if pool is None else tuple(pool)
    keys = example_keys(pool)

    def behind(example: Example) -> Example:
        drawn = _draw(task, example, pool, keys, shots, seed)
        other = dataclasses.replace(example, input=example.corrupted)
        return dataclasses.replace(
            example,
            input=prompt(task, example, instructed, drawn),
            corrupted=example.corrupted and prompt(task, other, instructed, drawn),
        )

    examples = map(behind, task.examples)
    return dataclasses.replace(task, examples=tuple(examples), instruction=None, bare="{input}")


def _draw(
    task: Task,
    example: Example,
    pool: Sequence[Example],
    keys: NDArray[np.uint64],
    shots: int,
    seed: int,
) -> list[Example]:
    if not shots:
        return []
    own = sentence_digest(example.input)
    order = np.argsort(places_by_text(f"shots {seed} {task.name} {own}", keys), kind="stable")
    drawn: list[Example] = []
    seen = {own, sentence_digest(example.corrupted)}
    for index in order:
        key = sentence_digest(pool[index].input)
        if key not in seen:
            seen.add(key)
            drawn.append(pool[index])
        if len(drawn) == shots:
            return drawn
    raise InputError(
        f"the task {task.name!r} has {len(drawn)} other inputs to draw {shots} shots from; give "
        "more examples or fewer --shots"
    )


def hybrid(tasks: Sequence[Task], shots: int = 5, seed: int = 0, name: str = "hybrid") -> Task:
    """Few-shot examples of several tasks as one task, shuffled (Heads Up!, section 3.4).

    Every task gives as many examples as the smallest has, so that none outweighs the others.
    Ids are `task/id`. With `shots` 0 the bare prompts are mixed as they are.

    Raises `InputError` if tasks share a name or want different use of a chat template.
    """
    names = [task.name for task in tasks]
    if len(set(names)) != len(names):
        raise InputError(f"the tasks of a hybrid need names of their own; given: {names}")
    if len(tasks) < 2:
        raise InputError(f"a hybrid needs at least 2 tasks; {len(tasks)} given")
    if len({task.chat for task in tasks}) != 1:
        raise InputError(
            "the tasks of a hybrid differ in whether they go through the chat template"
        )
    smallest = min(len(task.examples) for task in tasks)
    mixed: list[Example] = []
    for task in tasks:
        rng = random.Random(f"hybrid {seed} {task.name}")
        chosen = rng.sample(range(len(task.examples)), smallest)
        kept = dataclasses.replace(task, examples=tuple(task.examples[i] for i in sorted(chosen)))
        for example in few_shot(kept, task.examples, shots, seed).examples:
            mixed.append(dataclasses.replace(example, id=f"{task.name}/{example.id}"))
    random.Random(f"hybrid {seed}").shuffle(mixed)
    digest = hashlib.sha256("".join(sorted(t.digest for t in tasks)).encode("ascii")).hexdigest()
    languages = {task.language for task in tasks}
    return Task(
        name=name,
        examples=tuple(mixed),
        instruction=None,
        bare="{input}",
        language=languages.pop() if len(languages) == 1 else None,
        path=", ".join(task.path for task in tasks),
        digest=digest,
        chat=tasks[0].chat,
        answer_end=tasks[0].answer_end,
    )


def in_language(template: str, code: str) -> str:
    """An instruction with the English name of the language of this code for `{target}`."""
    return template.replace("{target}", language_name(code))


def translation_task(
    pairs: PairFile,
    instruction: str | None = None,
    bare: str = DEFAULT_BARE,
    name: str | None = None,
    chat: bool | None = None,
) -> Task:
    """Sentence pairs as a task: the source is the input, the target the output.

    The instruction is by default the prompt of `headscope find translation-score`; `{target}` in
    one stands for the target language's English name.
    """
    direction = pairs.direction
    if instruction is None:
        names = language_name(direction.source), language_name(direction.target)
        instruction = DEFAULT_TEMPLATE.render(PLACEHOLDER, *names).text
    instruction = in_language(instruction, direction.target)
    examples = tuple(
        Example(pair.id, pair.source, pair.target.strip(), pair.line or number)
        for number, pair in enumerate(pairs.pairs, 1)
    )
    return Task(
        name=name or str(direction),
        examples=examples,
        instruction=instruction,
        bare=bare,
        language=direction.target,
        path=pairs.path,
        digest=pairs.digest,
        source_language=direction.source,
        chat=chat,
    )


def read_task(
    path: str | Path,
    *,
    name: str | None = None,
    instruction: str | None = None,
    bare: str = DEFAULT_BARE,
    language: str | None = None,
    at_start: bool | None = None,
    input_column: str = "input",
    output_column: str = "output",
    limit: int | None = None,
) -> Task:
    """Read the examples of a task.

    Records have a column for each side, also those of a JSON list (as in the function-vector
    datasets); an output that is a list of one is that one.

    Args:
        path: the file.
        name: what to call the task; by default the file's name without its ending.
        instruction: template of the instructed prompt; by default that of the task of this name,
            if one is known (`instructions.INSTRUCTIONS`).
        bare: template of the prompt without instruction.
        language: code of the language of the outputs; by default known tasks' own.
        at_start: whether answers count at the start of an output alone; by default so for known
            letter, item-order and extraction tasks.
        input_column: key or column of the inputs.
        output_column: key or column of the outputs.
        limit: the first so many examples.

    Raises:
        InputError: naming file, item and fix, if the file is missing, damaged, empty, of another
            format, or if an example lacks a side or leaves it empty.
    """
    path = Path(path)
    check_limit(limit)
    if language is not None:
        language_name(language)  # says what is wrong with a code
    name = name or plain_name(path).stem
    known = known_task(name)
    keys = (input_column, output_column)
    if keys == ("input", "output") and _columns(path, "input", "clean") == {"clean"}:
        keys = CLEAN_COLUMNS
    rows, digest = _rows(path, keys, limit)
    source, target = (Field(key, _text) for key in keys)
    examples = []
    for number, row in enumerate(rows, 1):
        given, wanted = row[source].rstrip("\r\n"), row[target].strip()
        chosen = row[CANDIDATES]
        if not chosen and known is not None and known.chosen:
            chosen = tuple(piece.strip() for piece in given.split(","))
        if chosen and wanted not in chosen:
            raise InputError(
                f"{row.place}: the output {wanted!r} is none of the candidates "
                f"({', '.join(chosen)}); correct one of them"
            )
        corrupted, wrong = row[CORRUPTED].rstrip("\r\n"), row[WRONG].strip()
        if wrong == wanted or corrupted == given:
            same = "wrong answer is the right" if wrong == wanted else "corrupted text is the clean"
            raise InputError(f"{row.place}: the {same} one too; give another")
        examples.append(Example(str(number), given, wanted, row.line, chosen, corrupted, wrong))
    return Task(
        name=name,
        examples=tuple(examples),
        instruction=instruction if instruction is not None else instruction_for(name),
        bare=bare,
        language=language or (known.language if known else None),
        at_start=at_start if at_start is not None else bool(known and known.at_start),
        path=str(path),
        digest=digest,
    )


def _rows(path: Path, keys: tuple[str, str], limit: int | None) -> tuple[list[Row], str]:
    fields = [Field(key, _text) for key in keys]
    by_number = any(key.isdigit() for key in keys)
    more: list[Field[Any]] = [] if by_number else [CANDIDATES, CORRUPTED, WRONG]
    rows, digest = read_fields(path, [*fields, *more], limit)
    return [
        replace(row, place=f"{path}, item {number} (line {row.line})")
        for number, row in enumerate(rows, 1)
    ], digest


def _text(value: Any, place: str, key: str) -> str:
    if isinstance(value, list):
        if len(value) != 1:
            raise InputError(f"{place}: {key!r} holds a list of several, not one text; give one")
        (value,) = value
    return text_cell("give one text", "", lines=True)(value, place, key)


def _candidates(value: Any, place: str, key: str) -> tuple[str, ...]:
    if value is None or value == "":
        return ()
    pieces = value.split(",") if isinstance(value, str) else value
    if isinstance(pieces, list) and all(isinstance(piece, str) for piece in pieces):
        what = f"{place}: {key!r}"
        return tuple(clean_text(piece, what, lines=True).strip() for piece in pieces)
    raise InputError(f"{place}: the candidates are no list of texts; give a list, or none")


CANDIDATES: Field[tuple[str, ...]] = Field("candidates", _candidates, ())
CORRUPTED, WRONG = Field("corrupted", _text, ""), Field("wrong", _text, "")
#: The columns of inputs and outputs in files of clean and corrupted texts.
CLEAN_COLUMNS = ("clean", "answer")


def _columns(path: Path, *names: str) -> set[str]:
    """Which of these columns the first row has."""
    (row,), _ = read_fields(path, [Field(name, str, "") for name in names], 1)
    return {*row.cells}


#: Of `ioi` sentences: who (names as long as each other, so that most tokenizers change no length
#: with them), where, what, and how it is said.
NAMES = (
    "Adam", "Anna", "Carl", "Emma", "Eric", "Ivan", "Jack", "John", "Kate", "Lisa", "Luke", "Mark",
    "Mary", "Nina", "Paul", "Rosa", "Ruth", "Sara", "Tony", "Vera",
)  # fmt: skip
PLACES = ("bakery", "beach", "church", "library", "museum", "river", "station", "theatre")
THINGS = ("apple", "book", "coin", "key", "letter", "map", "pen", "ticket")
SENTENCES = (
    "Yesterday {first} and {second} met at the {place}, and {giver} handed the {thing} to",
    "While {first} and {second} were waiting at the {place}, {giver} showed the {thing} to",
    "Since {first} and {second} work at the {place}, {giver} often lends the {thing} to",
    "Before {first} and {second} left the {place}, {giver} gave back the {thing} to",
)


def ioi_task(count: int = 500, seed: int = 0) -> Task:
    """Sentences that go on with the one of two people who is not named again (indirect object
    identification, Wang et al. 2022): who is named again is the wrong answer, and names the other
    one in the corrupted sentence.

    Each is drawn on its own, no sentence twice; the two orders of the people take turns.
    """
    rng, drawn = random.Random(f"ioi {seed}"), dict[str, Example]()
    while len(drawn) < min(count, MOST_IOI):
        answer, giver = rng.sample(NAMES, 2)
        first, second = (answer, giver) if len(drawn) % 2 else (giver, answer)
        said = {"first": first, "second": second}
        said |= {"place": rng.choice(PLACES), "thing": rng.choice(THINGS)}
        form, number = rng.choice(SENTENCES), len(drawn) + 1
        clean, corrupted = (form.format(giver=name, **said) for name in (giver, answer))
        drawn.setdefault(clean, Example(str(number), clean, answer, number, (), corrupted, giver))
    digest = hashlib.sha256("\n".join(drawn).encode()).hexdigest()
    return Task(
        IOI, (*drawn.values(),), None, PLACEHOLDER, "en", True, IOI, digest, chat=False
    )  # fmt: skip


#: The task that is made, not read, and how many of its sentences can be asked for.
IOI, MOST_IOI = "ioi", 10_000
