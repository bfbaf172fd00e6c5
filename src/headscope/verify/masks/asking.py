"""Masks as they are read from runs and shuffled, and a model that is asked about a task under them.

Asked for are the losses of the right outputs, and what the model writes.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from headscope import options
from headscope.data.tasks import Example, Task, few_shot, prompt
from headscope.errors import InputError
from headscope.heads import Geometry, Head, HeadSet
from headscope.heads.adaptation import Adaptation, read_adaptation, read_object
from headscope.heads.draws import Choices, distinct_sets
from headscope.heads.resolve import place_of
from headscope.progress import Progress
from headscope.results.mask_tests import MaskFacts
from headscope.runs import Kept, Run
from headscope.settings import UNSIGNED, Settings

if TYPE_CHECKING:
    from headscope.lm import LanguageModel
    from headscope.lm.prompting import Answered


MaskKind = Literal[
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
class Masking:
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

    kind: MaskKind
    name: str
    mask: Mask | None = None
    instructed: bool = False
    draw: int | None = None
    of: str | None = None
    harmful: bool = False

    @property
    def key(self) -> str:
        """Equal for conditions that ask the same under the same numbers."""
        return f"{self.instructed} {self.mask and self.mask.as_dict()}"

    def applied(self, lm: LanguageModel) -> AbstractContextManager[None]:
        """The model under the mask."""
        return nullcontext() if self.mask is None else lm.adapted(self.mask)


def random_conditions(
    kind: MaskKind, masks: Iterable[Mask], of: str, instructed: bool = True, ending: str = ""
) -> list[Masking]:
    """Random masks of a kind beside the condition called `of`, numbered from 0."""
    return [
        Masking(kind, f"{kind} {number}{ending}", mask, instructed, number, of)
        for number, mask in enumerate(masks)
    ]


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
    condition: Masking,
    config: Asking,
    run: Run | None = None,
    write: bool = True,
    progress: Progress | None = None,
) -> MaskRecord:
    """Losses of the right outputs, and the model's own, under a condition.

    Both are kept in the run as they come, under the names of task and condition. Without `write`
    the model writes nothing.

    Raises `InputError` if an example does not fit into the context.
    """
    key = f"{question.task.name}/{condition.name}"
    parts = {"nll": _losses, **({"texts": _texts} if write else {})}
    made: dict[str, Any] = {"texts": ((), ())}
    for part, compute in parts.items():
        kept = Kept(run, part)
        if key not in kept:
            title = f"{question.task.name}, {condition.name}: {part}"
            if progress:
                progress(title, 0, 1)
            kept.add(key, compute(lm, question, condition, config))
            if progress:
                progress(title, 1, 1)
        made[part] = kept[key]
    return MaskRecord(*(tuple(values) for values in (*made["nll"], *made["texts"])))


def ask_all(
    lm: LanguageModel,
    question: Asked,
    conditions: Sequence[Masking],
    config: Asking,
    run: Run,
    progress: Progress | None = None,
    write: bool = True,
    part: str = "samples",
    prefix: str = "",
) -> list[MaskRecord]:
    """What the model does under every condition; those that are the same are asked once.

    The run keeps one row an example and condition as `PART/TASK.jsonl`. `prefix` stands before the
    names that what is computed is kept under.
    """
    made: dict[str, MaskRecord] = {}
    for each in conditions:
        if each.key not in made:
            named = replace(each, name=f"{prefix}{each.name}")
            made[each.key] = ask(lm, question, named, config, run, write, progress)
    records = [made[each.key] for each in conditions]
    task = question.task
    rows = [
        {
            "task": task.name,
            "condition": condition.name,
            "id": example.id,
            "line": example.line,
            "nll": record.nll[at],
            "tokens": record.tokens[at],
            "input": example.input,
            "reference": example.output,
            "output": record.texts[at] if record.texts else None,
        }
        for condition, record in zip(conditions, records, strict=True)
        for at, example in enumerate(task.examples)
    ]
    run.write_jsonl(f"{part}/{task.name}.jsonl", rows)
    return records


def rows_of(lm: LanguageModel, question: Asked, instructed: bool = False) -> list[Answered]:
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
    lm: LanguageModel, question: Asked, condition: Masking, config: Asking
) -> list[list[float]]:
    from headscope.lm.losses import token_losses

    rows = rows_of(lm, question, condition.instructed)
    with condition.applied(lm):
        losses = token_losses(
            lm, [row.ids for row in rows], [row.start for row in rows], config.batch_tokens
        )
    sums = [float(loss.sum(dtype="float64")) for loss in losses]
    for example, value in zip(question.task.examples, sums, strict=True):
        if not math.isfinite(value):
            raise InputError(
                f"{question.task.path}, example {example.id} (line {example.line}): its loss under "
                f"{condition.name!r} is no finite number; the model may have overflowed, try "
                "--dtype float32, or leave the example out"
            )
    return [sums, [len(loss) for loss in losses]]


def _texts(
    lm: LanguageModel, question: Asked, condition: Masking, config: Asking
) -> tuple[list[str], list[bool]]:
    from headscope.lm.generation import GenerateConfig, newline_stop
    from headscope.lm.prompting import uses_chat, wrap_prompts

    task = question.task
    templated = uses_chat(lm, task.chat)
    prompts = wrap_prompts(lm, question.prompts(condition.instructed), task.chat)
    sentences = task.is_translation
    generate = GenerateConfig(
        max_new_tokens=config.max_new_tokens or (None if sentences else NEW_TOKENS),
        batch_tokens=config.batch_tokens,
        stop_at_newline=newline_stop(sentences and not config.paragraphs, task.answer_only),
    )
    with condition.applied(lm):
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


def shuffled(mask: Mask, draws: int, seed: int = 0, layer_matched: bool = False) -> list[Mask]:
    """Different masks that keep as many heads as this one, drawn from all of the model's heads.

    Heads Up!, section 3.4: the task's mask, shuffled, and never the mask itself. `layer_matched`
    shuffles within each layer. Draw i is the same however many there are; where fewer such masks
    exist than asked for (within layers perhaps none), each is drawn once. Feed-forward gates stay
    as they are. Raises
    `InputError` if the mask keeps or removes every head, since then there is nothing to shuffle.
    """
    geometry = mask.gate.geometry
    if draws and not 0 < len(mask.removed) < geometry.total:
        what = "keeps" if len(mask.kept) else "removes"
        raise InputError(
            f"the mask {mask.name} {what} all {geometry.total} heads, so there is no other of its "
            "size to compare it with; train it otherwise"
        )
    name = "layer-matched" if layer_matched else "free"
    heads = list(geometry.heads())
    groups = (
        [[head for head in heads if head.layer == layer] for layer in range(geometry.layers)]
        if layer_matched
        else [heads]
    )
    lost = [sum(mask.gate[head] != 1 for head in group) for group in groups]

    def draw(stream: random.Random) -> Iterator[Head]:
        for group, count in zip(groups, lost, strict=True):
            yield from stream.sample(group, count)

    sets = distinct_sets(
        Choices(groups, [tuple(lost)]),
        draw,
        draws,
        f"{name} masks {seed}",
        without=[frozenset(mask.removed)],
    )
    return [
        dataclasses.replace(mask, name=f"{name} {number}", gate=HeadSet(geometry, chosen).removed())
        for number, chosen in enumerate(sets)
    ]
