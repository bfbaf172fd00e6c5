"""Experiments of the papers' size as work, and what they cost for a model on a machine."""

from __future__ import annotations

import math
from dataclasses import dataclass

from headscope.runs import entry
from headscope.studies.costs.estimate import estimate_seconds, operations, peak_memory
from headscope.studies.costs.machines import ATTAINED, H200, Machine, h200
from headscope.studies.costs.shapes import Shape
from headscope.studies.costs.work import Work

#: Padded tokens of a batch, as the commands have it by default.
_BATCH = 8192
#: A batch writes until its longest output ends: its steps, per mean output.
_LONGEST = 1.5


@dataclass(frozen=True)
class RealSize:
    """An experiment of a paper's size.

    Attributes:
        name: short, as the table and JSON have it.
        command: the command that does it.
        size: how large it is, in words.
        work: what it asks of a model, in parts that follow one another.
        logits: for each part the share of tokens whose logits are made.
    """

    name: str
    command: str
    size: str
    work: tuple[Work, ...]
    logits: tuple[float, ...]


@dataclass(frozen=True)
class Cost:
    """What it costs.

    Attributes:
        tokens: that go through the model.
        operations: multiplications and additions of matrix products.
        memory: bytes at the fullest moment.
        devices: machines of this memory that hold it.
        seconds: that they take, one after the other.
        fastest, slowest: the same with the highest and the lowest attained share, where that is
            assumed and not measured; else as `seconds`.
    """

    tokens: float
    operations: float
    memory: float
    devices: int
    seconds: float
    fastest: float
    slowest: float


@dataclass(frozen=True)
class Costed:
    """An experiment (see `RealSize`) with its cost."""

    name: str
    command: str
    size: str
    cost: Cost = entry(flat="")


@dataclass(frozen=True)
class Both:
    """Translation scores and LAHIS together, in machine-hours, against the aim of one hour.

    `share_needed` is the share of an H200's peak that passes of a plain model must attain for one
    of them to take an hour for both, launches apart; a mixture of experts attains less of it.
    """

    hours: float
    fastest: float
    slowest: float
    within_an_hour: bool
    share_needed: float


def _passes(tokens: float, length: float, batch: float = _BATCH) -> Work:
    rows = max(1.0, batch // length)
    return Work(forward=tokens, length=length, rows=rows, calls=math.ceil(tokens / rows / length))


def _gradients(tokens: float, length: float, rows: float) -> Work:
    return Work(backward=tokens, length=length, rows=rows, calls=math.ceil(tokens / rows / length))


def _written(outputs: float, prompt: float, mean: float) -> tuple[Work, Work]:
    """Prompts that are read, and outputs that are written, in batches of the default size.

    Every row of a batch goes on until the longest ends, so that more tokens are computed than kept.
    """
    longest = mean * _LONGEST
    rows = max(1.0, _BATCH // (prompt + 2 * mean + 32))
    batches = math.ceil(outputs / rows)
    read = Work(forward=outputs * prompt, length=prompt, rows=rows, calls=batches)
    write = Work(
        generated=outputs * longest,
        length=prompt + longest / 2,
        rows=rows,
        calls=batches * longest,
    )
    return read, write


#: What each verb takes at the papers' size.
EXPERIMENTS = (
    RealSize(
        "translation scores",
        "find translation-score",
        "10 directions, 900 pairs each, 120 tokens a pair with its prompt",
        (_passes(10 * 900 * 120, 120),),
        (0.0,),
    ),
    RealSize(
        "LAHIS",
        "find lahis",
        "10 languages, 1,000 documents each, 2,048 tokens a document",
        (_gradients(10 * 1000 * 2048, 2048, 1),),
        (1.0,),
    ),
    RealSize(
        "removal with controls",
        "verify removal",
        "1 direction, 900 sentences, 22 conditions, prompts of 70 tokens, outputs of 40",
        _written(900 * 22, 70, 40),
        (1 / 70, 1.0),
    ),
    RealSize(
        "removal by loss",
        "verify removal",
        "1 direction, 100 sentences, 199 conditions by --measure loss, 80 tokens of question and "
        "reference, a quarter of the layers shared",
        (_passes(199 * 100 * 80 * 0.75, 80),),
        # Of the 80 tokens the 40 of the reference, of three quarters of the layers.
        (2 / 3,),
    ),
    RealSize(
        "a learned mask",
        "find mask",
        "6,190 steps of 16 samples of 80 tokens, half of them answers",
        (_gradients(6190 * 16 * 80, 80, 16),),
        (0.5,),
    ),
    RealSize(
        "a soft gate",
        "find soft-gate",
        "1,000 pairs of 300 tokens twice, one a step, 100 pairs held out at 80 looks",
        (_gradients(2 * 1000 * 300, 300, 1), _passes(80 * 100 * 300, 300)),
        (0.05, 0.05),
    ),
    RealSize(
        "rating a million documents",
        "use rate",
        "1,000,000 documents of 500 tokens, half of the layers run twice",
        # The layers below the first removed head run once for both passes.
        (_passes(1.5e6 * 500, 500),),
        (4 / 3,),
    ),
)


def cost_of(experiment: RealSize, shape: Shape, machine: Machine) -> Cost:
    """What an experiment costs for a model on a machine."""
    pairs = list(zip(experiment.work, experiment.logits, strict=True))

    def seconds(on: Machine) -> float:
        return sum(estimate_seconds(work, shape, on, logits) for work, logits in pairs)

    range_of = [seconds(h200(share)) for share in ATTAINED] if machine.measured is None else []
    own = seconds(machine)
    memory = max(peak_memory(work, shape).total for work in experiment.work)
    return Cost(
        tokens=sum(work.tokens for work in experiment.work),
        operations=sum(operations(work, shape, logits) for work, logits in pairs),
        memory=memory,
        devices=shape.devices(machine.memory, memory),
        seconds=own,
        fastest=min([own, *range_of]),
        slowest=max([own, *range_of]),
    )


def costs_of(shape: Shape, machine: Machine) -> tuple[Costed, ...]:
    """All experiments with their costs."""
    return tuple(
        Costed(one.name, one.command, one.size, cost_of(one, shape, machine)) for one in EXPERIMENTS
    )


def both_in_an_hour(costs: tuple[Costed, ...], shape: Shape, machine: Machine) -> Both:
    """Translation scores and LAHIS of these costs together."""
    some = [one.cost for one in costs if one.name in ("translation scores", "LAHIS")]

    hours, fastest, slowest = (
        sum(getattr(one, name) * one.devices for one in some) / 3600
        for name in ("seconds", "fastest", "slowest")
    )
    needed = sum(one.operations * one.devices for one in some) / 3600 / H200["operations"]
    if shape.experts:
        needed /= machine.mixtures
    return Both(hours, fastest, slowest, slowest <= 1, needed)
