"""Masks as they are read from runs, and a model that is asked about a task under them.

Asked for are the losses of the right outputs, and what the model writes.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headscope import options
from headscope.data.tasks import Example, Task, few_shot, prompt
from headscope.errors import InputError
from headscope.evidence.rows import Condition
from headscope.evidence.runner import (
    OF_BATCH,
    OF_TEXTS,
    SIGNS,
    Within,
    alone,
    kept_units,
    rows_at_once,
)
from headscope.heads import Geometry
from headscope.heads.adaptation import Adaptation, read_adaptation, read_object
from headscope.heads.resolve import place_of
from headscope.progress import Progress
from headscope.results.masked_tasks import MaskFacts
from headscope.runs import Run
from headscope.settings import UNSIGNED, Settings

if TYPE_CHECKING:
    from headscope.lm import LanguageModel
    from headscope.lm.prompting import Answered


#: Tokens an answer may have where it is not a sentence (Heads Up!, appendix B).
NEW_TOKENS = 10


@dataclass(frozen=True, kw_only=True)
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
class Way:
    """How a model is asked under a condition.

    Attributes:
        mask: what is put on it, or None.
        instructed: whether the prompt says what to do.
    """

    mask: Mask | None = None
    instructed: bool = False

    @property
    def key(self) -> str:
        """Equal where the same is asked under the same numbers."""
        return f"{self.instructed} {self.mask and self.mask.as_dict()}"

    def applied(self, lm: LanguageModel) -> AbstractContextManager[None]:
        """The model under the mask."""
        return nullcontext() if self.mask is None else lm.adapted(self.mask)


#: Conditions, the one that all are compared with first, and how a model is asked under each.
Planned = Mapping[Condition, Way]


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

    def some(self, start: int, end: int) -> Asked:
        """The same of some examples."""
        task = dataclasses.replace(self.task, examples=self.task.examples[start:end])
        instructed = self.instructed and self.instructed[start:end]
        return Asked(task, self.bare[start:end], instructed)

    def decides(self, instructed: bool) -> list[Any]:
        """All that a model is asked, and how, as JSON."""
        task = self.task
        outputs = [example.output for example in task.examples]
        how = [task.chat, task.answer_end, task.is_translation, task.answer_only]
        return [self.prompts(instructed), outputs, how]


@dataclass(frozen=True)
class MaskRecord:
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
    planned: Planned,
    config: Asking,
    run: Run,
    progress: Progress | None = None,
    write: bool = True,
    prefix: str = "",
) -> dict[Condition, MaskRecord]:
    """What a model does with a task under every condition; those that are the same are asked once.

    Losses of the right outputs and, if `write`, what the model writes are kept in the run as they
    come. `prefix` stands before the names that they are kept under.

    Raises `InputError` if an example does not fit into the context.
    """
    task, first = question.task, dict[str, tuple[str, Way]]()
    for condition, way in planned.items():
        first.setdefault(way.key, (f"{task.name}/{prefix}{condition.id}", way))

    def made(
        part: str, compute: Callable[..., Any], tokens: float, operations: float
    ) -> dict[str, list[Any]]:
        most = rows_at_once(lm, tokens, len(task.examples), operations)
        blocks = [(at, question.some(at, at + most)) for at in range(0, len(task.examples), most)]
        # Names say which examples, also where others fit a device.
        units = {
            f"{name} {len(block.task.examples)} from {at}": (way, block)
            for name, way in first.values()
            for at, block in blocks
        }

        def ways(mine: Sequence[str], within: Within) -> Iterator[tuple[str, Any]]:
            for unit in mine:
                way, block = units[unit]
                yield unit, compute(lm, block, way, config)

        def decides(unit: str) -> Any:
            way, block = units[unit]
            how = [config.max_new_tokens, config.paragraphs, config.batch_tokens]
            return [block.decides(way.instructed), way.mask and way.mask.as_dict(), how]

        sizes = {unit: len(block.task.examples) for unit, (_, block) in units.items()}
        title = f"{task.name}: {part}"
        kept = kept_units(run, part, title, sizes, ways, progress, alone(lm, decides))
        columns: dict[str, list[Any]] = {name: [[], []] for name, _ in first.values()}
        for unit, (way, _) in units.items():
            for column, values in zip(columns[first[way.key][0]], kept[unit], strict=True):
                column += values
        return columns

    length = sum(map(len, question.bare)) / (SIGNS * max(1, len(question.bare)))
    losses = made("nll", losses_of, length, OF_BATCH)
    written = length + (config.max_new_tokens or NEW_TOKENS)
    texts = made("texts", outputs_of, written, OF_TEXTS) if write else None
    records = {}
    for condition, way in planned.items():
        name, _ = first[way.key]
        both = (*losses[name], *(texts[name] if texts else ((), ())))
        records[condition] = MaskRecord(*map(tuple, both))
    return records


def write_samples(run: Run, part: str, task: Task, records: Mapping[Condition, MaskRecord]) -> None:
    """One row an example and condition as `PART/TASK.jsonl`."""
    rows = [
        {
            "task": task.name,
            "condition": condition.id,
            "kind": condition.kind,
            "of": condition.of,
            "id": example.id,
            "line": example.line,
            "nll": record.nll[at],
            "tokens": record.tokens[at],
            "input": example.input,
            "reference": example.output,
            "output": record.texts[at] if record.texts else None,
        }
        for condition, record in records.items()
        for at, example in enumerate(task.examples)
    ]
    run.write_jsonl(f"{part}/{task.name}.jsonl", rows)


def rows_of(lm: LanguageModel, question: Asked, instructed: bool = False) -> list[Answered]:
    """Prompts and right outputs as tokens; errors name the example."""
    from headscope.lm.prompting import encode_answers

    task = question.task
    rows = []
    for example, text in zip(task.examples, question.prompts(instructed), strict=True):
        try:
            rows += encode_answers(lm, [text], [example.output], task.chat, task.answer_end)
        except InputError as error:
            raise InputError(
                f"{task.path}, example {example.id} (line {example.line}): {error}"
            ) from error
    return rows


def losses_of(lm: LanguageModel, question: Asked, way: Way, config: Asking) -> list[list[float]]:
    """Of each right output the summed negative log-likelihood in nats, and the tokens.

    Raises `InputError` if an example does not fit into the context, or has no finite loss.
    """
    from headscope.lm.losses import token_losses

    rows = rows_of(lm, question, way.instructed)
    with way.applied(lm):
        losses = token_losses(
            lm, [row.ids for row in rows], [row.start for row in rows], config.batch_tokens
        )
    sums = [float(loss.sum(dtype="float64")) for loss in losses]
    for example, value in zip(question.task.examples, sums, strict=True):
        if not math.isfinite(value):
            raise InputError(
                f"{question.task.path}, example {example.id} (line {example.line}): its loss "
                f"{'under a mask ' if way.mask else ''}is no finite number; the model may have "
                "overflowed, try --dtype float32, or leave the example out"
            )
    return [sums, [len(loss) for loss in losses]]


def outputs_of(
    lm: LanguageModel, question: Asked, way: Way, config: Asking
) -> tuple[list[str], list[bool]]:
    """What the model writes for each example, and whether it was cut at the limit of tokens."""
    from headscope.lm.generation import GenerateConfig, newline_stop
    from headscope.lm.prompting import uses_chat, wrap_prompts

    task = question.task
    templated = uses_chat(lm, task.chat)
    prompts = wrap_prompts(lm, question.prompts(way.instructed), task.chat)
    sentences = task.is_translation
    generate = GenerateConfig(
        max_new_tokens=config.max_new_tokens or (None if sentences else NEW_TOKENS),
        batch_tokens=config.batch_tokens,
        stop_at_newline=newline_stop(sentences and not config.paragraphs, task.answer_only),
    )
    with way.applied(lm):
        made = lm.generate(prompts, generate, special=not templated)
    return [output.text for output in made], [output.stop == "length" for output in made]


@dataclasses.dataclass(frozen=True, eq=False)
class Mask(Adaptation):
    """A mask over a model's heads: 1 for those that are kept, 0 for those that are removed.

    Attributes:
        tasks: names of the tasks it was trained on, as far as its run tells.
        model: name of the model it was trained on, as far as its run tells.
    """

    tasks: tuple[str, ...] = ()
    model: str | None = None

    def unseen(self, task: str) -> bool | None:
        """Whether the task is none of those that the mask was trained on; None if not known."""
        return task not in self.tasks if self.tasks else None

    def about(self) -> MaskFacts:
        """What a result says about the mask."""
        parts = self.feed_forward
        return MaskFacts(
            name=self.name,
            tasks=self.tasks,
            model=self.model,
            kept=len(self.kept),
            removed=len(self.removed),
            kept_share=len(self.kept) / self.gate.geometry.total,
            on=self.place,
            feed_forward_removed=0 if parts is None else int((parts != 1).sum()),
        )


def read_mask(folder: str | Path, geometry: Geometry) -> Mask:
    """The mask of a finished run of `headscope find mask`, or a saved gate, for a model.

    Raises `InputError` if there is none, the run is not finished, it holds other numbers than 0
    and 1, or it was made for another geometry.
    """
    read = read_adaptation(folder, geometry)
    if not read.is_mask:
        raise InputError(
            f"{folder}: holds other numbers than 0 and 1, so it is no mask; name a run of "
            "headscope find mask"
        )
    place = place_of(folder) or Path(folder)
    model = read_object(place / "result.json").get("model")
    return Mask(
        read.gate,
        read.feed_forward,
        read.place,
        read.name,
        tasks=tuple(read_object(place / "found_on.json")),
        model=str(model["name"]) if isinstance(model, dict) and "name" in model else None,
    )
