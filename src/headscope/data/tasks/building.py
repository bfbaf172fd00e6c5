"""Prompts with and without examples, examples that are held out, and tasks made of others."""

from __future__ import annotations

import dataclasses
import hashlib
import random
from collections.abc import Sequence

from headscope.data.languages import language_name
from headscope.data.pairs import PairFile
from headscope.data.split import sentence_digest
from headscope.data.tasks.task import DEFAULT_BARE, Example, Task, filled
from headscope.errors import InputError

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
    task: Task, held_out: int = 100, seed: int = 0
) -> tuple[tuple[Example, ...], tuple[Example, ...]]:
    """Examples to train on, and `held_out` of them to evaluate on.

    Who is held out depends on a hash of the input and the seed, not on the order of the file. No
    input is on both sides: of examples with one input the first is held out and the others are
    left out altogether. Both keep the order of the file.

    Raises `InputError` if that leaves nothing to train on.
    """
    if held_out < 1:
        raise InputError(f"held_out is {held_out}; hold at least 1 example out")
    keys = [sentence_digest(example.input) for example in task.examples]
    ranked = sorted(
        set(keys), key=lambda key: hashlib.sha256(f"{seed} {key}".encode("ascii")).digest()
    )
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


def few_shot(
    task: Task,
    pool: Sequence[Example] | None = None,
    shots: int = 5,
    seed: int = 0,
    instructed: bool = False,
) -> Task:
    """The same examples behind `shots` others: every input is the whole prompt.

    Shots are drawn for each example on its own, from `pool` (by default the task's examples),
    never one with the same input. They depend on the seed and the example alone.

    Raises `InputError` if the pool is too small.
    """
    pool = task.examples if pool is None else tuple(pool)
    examples = [
        dataclasses.replace(
            example,
            input=prompt(task, example, instructed, _draw(task, example, pool, shots, seed)),
        )
        for example in task.examples
    ]
    return dataclasses.replace(task, examples=tuple(examples), instruction=None, bare="{input}")


def _draw(
    task: Task, example: Example, pool: Sequence[Example], shots: int, seed: int
) -> list[Example]:
    if not shots:
        return []
    own = sentence_digest(example.input)
    rng = random.Random(f"shots {seed} {task.name} {own}")
    order = list(range(len(pool)))
    rng.shuffle(order)
    drawn: list[Example] = []
    seen = {own}
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
        source, target = language_name(direction.source), language_name(direction.target)
        instruction = (
            f"Translate this sentence from {source} to {target}\nSentence: {{input}}\nAnswer:"
        )
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
