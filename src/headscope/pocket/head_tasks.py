"""The pocket model's word tasks and translation directions as tasks to train and test masks on.

Prompts are those the model was trained with: instructed ones as `mixture.WORD` and the first of
`mixture.TEMPLATES`, bare ones as `mixture.BARE`. They are complete, so none goes through the chat
template, which would add the end of the bare prompt once more.
"""

from __future__ import annotations

import difflib
import hashlib
from functools import cache

from headscope.data.tasks import Example, Task, translation_task
from headscope.errors import InputError
from headscope.pocket.mixture import BARE, TEMPLATES, WORD, instruction, translation_prompt
from headscope.pocket.sample import TASKS, sample_pairs, task_items
from headscope.pocket.world.languages import CODES


@cache
def task_names() -> tuple[str, ...]:
    """Names of all word tasks.

    `plural-de`, `translate-en-de` where two languages take part, and `plural` for all languages.
    """
    alone = [task for task in TASKS if task != "translate"]
    named = [*alone, *(f"{task}-{code}" for task in alone for code in CODES)]
    named += [f"translate-{a}-{b}" for a in CODES for b in CODES if a != b]
    return tuple(named)


def word_task(name: str, *splits: str) -> Task:
    """A word task of one split or several, in the fixed order of the world.

    Raises `InputError`, with the nearest name, for a task or split that the world lacks.
    """
    if name not in task_names():
        close = difflib.get_close_matches(name, task_names(), n=1, cutoff=0.6)
        hint = f"did you mean {close[0]}? " if close else ""
        raise InputError(
            f"the model pocket has no word task {name!r}; {hint}a name is one of "
            f"{', '.join(TASKS)} and a language ({', '.join(CODES)}), such as plural-de or "
            "translate-en-de"
        )
    kind, *codes = name.split("-")
    several = [
        task_items(kind, code, split, *codes[1:]) for code in codes[:1] or CODES for split in splits
    ]
    items = [item for some in several for item in some]
    examples = tuple(
        Example(str(number), item.input, item.output, number)
        for number, item in enumerate(items, 1)
    )
    text = "".join(f"{one.input}\t{one.output}\n" for one in examples)
    return Task(
        name=name,
        examples=examples,
        instruction=WORD.replace("{instruction}", instruction(items[0])),
        bare=BARE,
        language=codes[-1] if codes else None,
        at_start=kind == "first_letter",
        path=f"pocket:{'+'.join(splits)}",
        digest=hashlib.sha256(text.encode("utf-8")).hexdigest(),
        chat=False,
    )


def sentence_task(direction: str, split: str, n: int, seed: int) -> Task:
    """Translating the first `n` sentences of a split drawn with `seed`; see `sample_pairs`."""
    pairs = sample_pairs(direction, split, n, seed)
    asked = translation_prompt(
        TEMPLATES[0], "{input}", pairs.source_language, pairs.target_language
    )
    return translation_task(pairs, asked, BARE, direction, chat=False)
