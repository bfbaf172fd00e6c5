"""Asking a model about a task: the losses of the right outputs, and what the model writes."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from headscope import options
from headscope.data.tasks import Example, Task, few_shot, prompt
from headscope.errors import InputError
from headscope.settings import UNSIGNED, Settings
from headscope.verify.masks.mask import Mask

if TYPE_CHECKING:
    from headscope.lm import LanguageModel
    from headscope.lm.prompting import Answered
    from headscope.runs import Run

Progress = Callable[[str, int, int], None]
Kind = Literal[
    "as-is",
    "instructed",
    "masked",
    "shuffled",
    "shuffled-layer-matched",
    "foreign",
    "hybrid",
    "scaled",
    "removed",
    "random",
    "random-layer-matched",
]
#: Tokens an answer may have where it is not a sentence (Heads Up!, appendix B).
NEW_TOKENS = 10


@dataclass(frozen=True)
class Asking(Settings):
    """How models are asked.

    Attributes:
        max_new_tokens: tokens of an output; None: 10, and for translations twice the prompt's and
            32, up to the first line break after text.
        paragraphs: let translations go on after a line break.
        batch_tokens: padded tokens of a batch.
    """

    max_new_tokens: options.MaxNewTokens = None
    paragraphs: bool = False
    batch_tokens: options.BatchTokens = field(default=8192, metadata=UNSIGNED)


@dataclass(frozen=True)
class Condition:
    """A model as it is asked once.

    Attributes:
        kind: what is compared.
        name: unique within a run; what is computed under it is kept under this name.
        mask: the mask put on, or None.
        instructed: whether the prompt says what to do.
        draw: number of a random mask.
        of: name of the condition that a random mask is drawn for; None: for all.
        harmful: whether the claim is that it does worse than random masks, not better.
    """

    kind: Kind
    name: str
    mask: Mask | None = None
    instructed: bool = False
    draw: int | None = None
    of: str | None = None
    harmful: bool = False


@dataclass(frozen=True)
class Asked:
    """A task with the prompts of its examples; `instructed` is None if it has no instruction."""

    task: Task
    bare: tuple[str, ...]
    instructed: tuple[str, ...] | None

    def prompts(self, instructed: bool) -> tuple[str, ...]:
        """The prompts with or without the instruction."""
        if not instructed:
            return self.bare
        if self.instructed is None:
            raise InputError(f"the task {self.task.name!r} has no instruction; give one")
        return self.instructed


@dataclass(frozen=True)
class Record:
    """What a model did with a task under one condition, by example.

    Attributes:
        nll: summed negative log-likelihood of each right output, in nats.
        tokens: tokens of each right output.
        texts: what the model wrote, or empty where it was not asked to write.
        cut: which of these ended at the limit of tokens.
    """

    nll: tuple[float, ...]
    tokens: tuple[int, ...]
    texts: tuple[str, ...]
    cut: tuple[bool, ...] = ()


def asked(task: Task, pool: Sequence[Example] = (), shots: int = 0, seed: int = 0) -> Asked:
    """The prompts of a task's examples, behind `shots` examples of `pool` each."""

    def prompts(instructed: bool) -> tuple[str, ...]:
        if shots:
            made = few_shot(task, pool, shots, seed, instructed)
            return tuple(example.input for example in made.examples)
        return tuple(prompt(task, example, instructed) for example in task.examples)

    return Asked(task, prompts(False), prompts(True) if task.instruction is not None else None)


def ask(
    lm: LanguageModel,
    question: Asked,
    condition: Condition,
    config: Asking,
    run: Run | None = None,
    write: bool = True,
    progress: Progress | None = None,
) -> Record:
    """Losses of the right outputs, and the model's own, under a condition.

    Both are kept in the run as they come, under the names of task and condition. Without `write`
    the model writes nothing.

    Raises `InputError` if an example does not fit into the context.
    """
    key = f"{question.task.name}/{condition.name}"
    title = f"{question.task.name}, {condition.name}"
    nll, tokens = _kept(
        run, "nll", key, lambda: _losses(lm, question, condition, config), title, progress
    )
    texts: Sequence[str] = ()
    cut: Sequence[bool] = ()
    if write:
        texts, cut = _kept(
            run, "texts", key, lambda: _texts(lm, question, condition, config), title, progress
        )
    return Record(tuple(nll), tuple(tokens), tuple(texts), tuple(cut))


def _kept(
    run: Run | None,
    part: str,
    key: str,
    compute: Callable[[], Any],
    title: str,
    progress: Progress | None,
) -> Any:
    if run is not None:
        stored = run.read_part(part)
        if key in stored:
            return stored[key]
    if progress:
        progress(f"{title}: {part}", 0, 1)
    value = compute()
    if run is not None:
        run.append_part(part, key, value)
    if progress:
        progress(f"{title}: {part}", 1, 1)
    return value


def _on(lm: LanguageModel, condition: Condition) -> Any:
    return contextlib.nullcontext() if condition.mask is None else lm.adapted(condition.mask)


def rows_of(lm: LanguageModel, question: Asked, instructed: bool) -> list[Answered]:
    """Prompts and right outputs as tokens; errors name the example."""
    from headscope.lm.prompting import encode_answers

    task = question.task
    rows = []
    for example, text in zip(task.examples, question.prompts(instructed), strict=True):
        try:
            rows += encode_answers(lm, [text], [example.output], task.chat)
        except InputError as error:
            raise InputError(
                f"{task.path}, example {example.id} (line {example.line}): {error}"
            ) from error
    return rows


def _losses(
    lm: LanguageModel, question: Asked, condition: Condition, config: Asking
) -> list[list[float]]:
    from headscope.lm.losses import token_losses

    rows = rows_of(lm, question, condition.instructed)
    with _on(lm, condition):
        losses = token_losses(
            lm, [row.ids for row in rows], [row.start for row in rows], config.batch_tokens
        )
    sums = [float(one.sum(dtype="float64")) for one in losses]
    for example, value in zip(question.task.examples, sums, strict=True):
        if not math.isfinite(value):
            raise InputError(
                f"{question.task.path}, example {example.id} (line {example.line}): its loss under "
                f"{condition.name!r} is no finite number; the model may have overflowed, try "
                "--dtype float32, or leave the example out"
            )
    return [sums, [len(one) for one in losses]]


def _texts(
    lm: LanguageModel, question: Asked, condition: Condition, config: Asking
) -> tuple[list[str], list[bool]]:
    from headscope.lm.generation import GenerateConfig
    from headscope.lm.prompting import uses_chat, wrap_prompts

    task = question.task
    templated = uses_chat(lm, task.chat)
    prompts = wrap_prompts(lm, question.prompts(condition.instructed), task.chat)
    sentences = task.is_translation
    generate = GenerateConfig(
        max_new_tokens=config.max_new_tokens or (None if sentences else NEW_TOKENS),
        batch_tokens=config.batch_tokens,
        stop_at_newline=sentences and not config.paragraphs,
    )
    with _on(lm, condition):
        made = lm.generate(prompts, generate, special=not templated)
    return [one.text for one in made], [one.stop == "length" for one in made]
