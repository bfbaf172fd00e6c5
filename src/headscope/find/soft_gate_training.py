"""Soft gates: the gates of a few heads, trained on pairs of questions and answers.

After LAHIS (Liu et al. 2025, arXiv 2511.07498, the experiment on a multilingual question-answering
set): of a small set of heads the gates alone are trained, by AdamW with a learning rate of 1e-2 in
two epochs over 200 pairs, on the loss of the answer; a question counts as answered if an answer
occurs in the first ten tokens generated. What the source leaves open is chosen so: one pair a step,
AdamW's usual weight decay of 0.01 (towards 0, as in the published code of LAHIS), and of all gates
on the way the one with the lowest loss on pairs held out for stopping is kept.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray

from headscope import options
from headscope.data.questions import Question, QuestionTemplate
from headscope.errors import InputError, naming
from headscope.find.gate_descent import (
    Descent,
    Optimizer,
    descend,
    gate_maker,
    mean_losses,
)
from headscope.heads import Gate, HeadSet, check_geometry
from headscope.measure.metrics import holds_answer, holds_normalized
from headscope.settings import Option, Settings

if TYPE_CHECKING:
    from headscope.lm import LanguageModel
    from headscope.lm.prompting import Answered
    from headscope.runs import Run


@dataclass(frozen=True)
class AskedQuestion:
    """A question with its prompt and the row of prompt and first answer; `cut`: see `ask`."""

    question: Question
    prompt: str
    sample: Answered
    cut: bool


def ask(
    lm: LanguageModel,
    questions: Sequence[Question],
    template: QuestionTemplate,
    path: str,
    new_tokens: int,
    chat: bool | None = None,
) -> list[AskedQuestion]:
    """The prompts and rows of questions, in order; `path` is the file's, for messages.

    A context too long for the model, with the answer or `new_tokens` generated ones after it, is
    cut to a window around the first place of an answer. Where in the window the answer lies is
    drawn from the question's id, so that its place tells nothing. Without an answer in it a
    context is cut at its end.

    Raises `InputError` if a question does not even fit with the answer as its whole context.
    """
    from headscope.lm.prompting import encode_answers

    reader = _Reader(lm, template, new_tokens, chat)
    prepared = []
    for question in questions:
        name = f"{path}, {question.place}"
        context, cut = reader.context(question, name)
        prompt = template.render(question, context)
        with naming(name):
            (row,) = encode_answers(lm, [prompt], [question.answers[0]], chat)
        prepared.append(AskedQuestion(question, prompt, replace(row, name=name), cut))
    return prepared


@dataclass(frozen=True)
class _Reader:
    lm: LanguageModel
    template: QuestionTemplate
    new_tokens: int
    chat: bool | None

    def context(self, question: Question, name: str) -> tuple[str, bool]:
        """As much of the context as fits, and whether that is less than all."""
        if self._fits(question, question.context):
            return question.context, False
        context = question.context
        placed = next(
            ((context.index(text), text) for text in question.answers if text in context), (0, "")
        )
        shortest, longest = len(placed[1]), len(context)
        if not self._fits(question, _window(question, *placed, shortest)):
            raise InputError(
                f"{name}: question and answer alone have more tokens than the model's context of "
                f"{self.lm.context_length} holds; leave it out or take a model with a longer one"
            )
        while longest - shortest > 1:  # `shortest` fits and `longest` does not
            middle = (shortest + longest) // 2
            if self._fits(question, _window(question, *placed, middle)):
                shortest = middle
            else:
                longest = middle
        return _window(question, *placed, shortest), True

    def _fits(self, question: Question, context: str) -> bool:
        from headscope.lm.prompting import uses_chat, wrap_prompts

        prompt = self.template.render(question, context)
        (wrapped,) = wrap_prompts(self.lm, [prompt], self.chat)
        special = not uses_chat(self.lm, self.chat)
        # The space is what joins them at most; an answer is never less than one new token.
        answered = len(self.lm.encode(f"{wrapped} {question.answers[0]}", special))
        generated = len(self.lm.encode(wrapped, special)) + self.new_tokens
        return max(answered, generated) <= self.lm.context_length


def _window(question: Question, start: int, answer: str, size: int) -> str:
    """`size` characters of the context around the answer, without words that are cut in two."""
    context = question.context
    digest = hashlib.sha256(f"{question.id} {question.question}".encode()).digest()
    share = int.from_bytes(digest[:8], "big") / 2**64
    before = int(share * (size - len(answer) + 1)) if answer else 0
    first = max(0, min(start - before, len(context) - size))
    last = first + size
    if 0 < first < start and not context[first - 1].isspace():
        first = next((at for at in range(first, start) if context[at].isspace()), first)
    ending = start + len(answer)
    if ending < last < len(context) and not context[last].isspace():
        last = next((at for at in range(last, ending, -1) if context[at - 1].isspace()), last)
    return context[first:last].strip()


@dataclass(frozen=True)
class SoftGate(Settings):
    """How gates are trained and questions answered.

    Attributes:
        learning_rate, weight_decay: AdamW's; decay pulls gates towards 0.
        epochs: how often every training pair is learned from.
        batch_size: pairs a step.
        check_every: steps between two looks at the pairs held out for stopping.
        patience: looks without a lower loss after which training stops.
        max_new_tokens: generated tokens in which an answer has to occur.
        chat: whether prompts go through the chat template; None: where the tokenizer has one.
    """

    learning_rate: Annotated[float, Option("How far a step goes.", panel="Expert")] = 1e-2
    weight_decay: float = 0.01
    epochs: Annotated[int, Option("How often each pair is learned from.", min=1)] = 2
    batch_size: Annotated[int, Option("Samples of a step.", flag="--batch", min=1)] = 1
    check_every: int = 25
    patience: int = 8
    max_new_tokens: Annotated[int, Option("Longest generated answer.", min=1, panel="Expert")] = 10
    chat: options.Chat = None
    checkpointing: options.Checkpointing = False
    batch_tokens: options.BatchTokens = 8192

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("check_every", "patience"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}; it must be at least 1")
        Optimizer(self.learning_rate, self.weight_decay)


@dataclass(frozen=True, eq=False)
class TrainedGates:
    """A gate and how it came about.

    Attributes:
        gate: 1 outside the trained heads; of all looks the one with the lowest loss.
        step: after how many steps it was found; 0: nothing was better than the untouched model.
        losses: mean loss of the pairs of each step done, before the step, in nats.
        checks: (step, mean loss on the pairs held out for stopping), the first at step 0.
        stopped: whether training ended before its last step.
    """

    gate: Gate
    step: int
    losses: NDArray[np.float64]
    checks: tuple[tuple[int, float], ...]
    stopped: bool


@dataclass(frozen=True, eq=False)
class Answers:
    """What the model says to questions under a gate.

    Attributes:
        texts: the first generated tokens of each as text.
        right: bool (questions,), an answer occurs in the text, letter for letter.
        normalized: bool (questions,), likewise with both as SQuAD compares them.
        losses: float64 (questions,), mean loss of the first answer's tokens, in nats.
    """

    texts: tuple[str, ...]
    right: NDArray[np.bool_]
    normalized: NDArray[np.bool_]
    losses: NDArray[np.float64]


def train_soft_gate(
    lm: LanguageModel,
    heads: HeadSet,
    learn: Sequence[Answered],
    stop: Sequence[Answered],
    config: SoftGate,
    seed: int,
    run: Run | None = None,
    name: str = "gate",
    progress: Callable[[int, int], None] | None = None,
) -> TrainedGates:
    """Train the gates of `heads`, everything else frozen; `seed` decides the order of the pairs.

    With a run every look is kept in it under `name`, and a training that was stopped goes on at the
    last one, with the same result as in one go. Raises `InputError` if heads or pairs are empty,
    or naming the pair whose loss is no finite number.
    """
    import torch

    check_geometry(heads, lm.geometry, "the heads")
    if not len(heads) or not learn or not stop:
        raise InputError(
            f"{len(heads)} heads, {len(learn)} pairs to learn from and {len(stop)} to stop on; "
            "give at least one of each"
        )
    steps = _batches(len(learn), config, seed)
    width = lm.geometry.width
    make = gate_maker(lm.geometry, [head.layer * width + head.head for head in heads])
    state = _State.read(run, name)
    optimizer = Optimizer(config.learning_rate, config.weight_decay)

    def look(values: NDArray[np.float32]) -> float:
        gate = Gate(lm.geometry, make(torch.from_numpy(values)).numpy())
        return float(mean_losses(lm, stop, gate, config.batch_tokens).mean())

    if state is None:
        begin = np.ones(len(heads), dtype=np.float32)
        state = _State(Descent.begin(begin), begin, ((0, look(begin)),))
    while state.descent.steps < len(steps) and not state.waited(config.patience):
        at = state.descent.steps
        some = steps[at : at + config.check_every]
        descent = descend(
            lm, learn, some, make, optimizer, state.descent, checkpointing=config.checkpointing
        )
        loss = look(descent.values)
        best = descent.values if loss < state.lowest else state.best
        state = _State(descent, best, (*state.checks, (descent.steps, loss)))
        state.write(run, name)
        if progress:
            progress(state.descent.steps, len(steps))
    return TrainedGates(
        Gate(lm.geometry, make(torch.from_numpy(state.best)).numpy()),
        min(state.checks, key=lambda check: (check[1], check[0]))[0],
        state.descent.losses,
        state.checks,
        state.descent.steps < len(steps),
    )


def answer(
    lm: LanguageModel, questions: Sequence[AskedQuestion], gate: Gate, config: SoftGate
) -> Answers:
    """Let the model answer questions under a gate, greedily, and score what it says."""
    from headscope.lm.generation import GenerateConfig
    from headscope.lm.prompting import uses_chat, wrap_prompts

    prompts = wrap_prompts(lm, [question.prompt for question in questions], config.chat)
    settings = GenerateConfig(config.max_new_tokens, config.batch_tokens, stop_at_newline=False)
    with lm.gated(gate):
        outputs = lm.generate(prompts, settings, special=not uses_chat(lm, config.chat))
    texts = tuple(output.text for output in outputs)
    losses = mean_losses(lm, [question.sample for question in questions], gate, config.batch_tokens)
    return scored(texts, losses, questions)


def scored(
    texts: Sequence[str], losses: NDArray[np.float64], questions: Sequence[AskedQuestion]
) -> Answers:
    """Answers from the texts generated and the losses."""
    answers = [question.question.answers for question in questions]
    right, normalized = (
        np.array(list(map(holds, texts, answers)), dtype=bool)
        for holds in (holds_answer, holds_normalized)
    )
    return Answers(tuple(texts), right, normalized, losses)


@dataclass(frozen=True, eq=False)
class _State:
    """A training between two steps: where it stands, its best gates and all looks so far."""

    descent: Descent
    best: NDArray[np.float32]
    checks: tuple[tuple[int, float], ...]

    @property
    def lowest(self) -> float:
        return min(loss for _, loss in self.checks)

    def waited(self, patience: int) -> bool:
        """Whether the last `patience` looks were all no better than one before."""
        losses = [loss for _, loss in self.checks]
        return len(losses) > patience and min(losses[-patience:]) >= min(losses[:-patience])

    def write(self, run: Run | None, name: str) -> None:
        if run is not None:
            steps, losses = zip(*self.checks, strict=True)
            arrays = {"best": self.best, "check_steps": np.array(steps)}
            arrays |= {"check_losses": np.array(losses), **self.descent.arrays()}
            run.write_tensors(_file(name), arrays)

    @classmethod
    def read(cls, run: Run | None, name: str) -> _State | None:
        if run is None or not (run.path / _file(name)).exists():
            return None
        kept: dict[str, NDArray[Any]] = run.read_written(_file(name))
        checks = zip(kept["check_steps"].tolist(), kept["check_losses"].tolist(), strict=True)
        return cls(Descent.of(kept), kept["best"], tuple(checks))


def _file(name: str) -> str:
    return f"parts/training/{name}.safetensors"


def _batches(count: int, config: SoftGate, seed: int) -> list[list[int]]:
    """Which pairs each step learns from: every epoch all of them in an order of its own."""
    rng = random.Random(f"soft gate {seed}")
    steps = []
    for _ in range(config.epochs):
        order = list(range(count))
        rng.shuffle(order)
        steps += [order[at : at + config.batch_size] for at in range(0, count, config.batch_size)]
    return steps
