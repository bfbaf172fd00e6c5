"""`headscope costs`: what experiments of the papers' size cost, before anything is loaded."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

from headscope.errors import InputError
from headscope.runs import Result, Signature, entry
from headscope.settings import Option, Settings
from headscope.shown.blocks import Cell, Row, Section, Shown, Table
from headscope.shown.words import sentence_of
from headscope.studies.costs.estimate import (
    ATTAINED,
    H200,
    Machine,
    Work,
    estimate_seconds,
    h200,
    operations,
    peak_memory,
)
from headscope.studies.costs.shapes import PUBLISHED, Shape, read_shape
from headscope.studies.study import Study

#: Padded tokens of a batch, as the commands have it by default.
_BATCH = 8192
#: A batch writes until its longest output ends: its steps, per mean output.
_LONGEST_PER_MEAN = 1.5


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


def _passes(tokens: float, length: float) -> Work:
    rows = max(1.0, _BATCH // length)
    return Work(forward=tokens, length=length, rows=rows, calls=math.ceil(tokens / rows / length))


def _gradients(tokens: float, length: float, rows: float) -> Work:
    return Work(backward=tokens, length=length, rows=rows, calls=math.ceil(tokens / rows / length))


def _written(outputs: float, prompt: float, mean: float) -> tuple[Work, Work]:
    """Prompts that are read, and outputs that are written, in batches of the default size.

    Every row of a batch goes on until the longest ends, so that more tokens are computed than kept.
    """
    longest = mean * _LONGEST_PER_MEAN
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
        Costed(
            experiment.name,
            experiment.command,
            experiment.size,
            cost_of(experiment, shape, machine),
        )
        for experiment in EXPERIMENTS
    )


@dataclass(frozen=True)
class Costs(Settings):
    """Estimate tokens, operations, memory and hours of the papers' experiments at full size."""

    models: Annotated[
        tuple[str, ...],
        Option(
            "Known shapes (Llama-3.1-8B, Qwen3-30B-A3B, Llama-3.1-70B, Llama-3.1-405B; without any "
            "all four), pocket, folders, GGUF files, or Hub ids; only their configuration is read.",
            metavar="MODEL...",
            argument=True,
        ),
    ] = ()
    machine: Annotated[
        Literal["h200", "here", "model"],
        Option(
            "h200: assumed rates; here: measured with the bundled model and the threads that "
            "torch takes (OMP_NUM_THREADS); model: likewise with the first MODEL itself, which is "
            "loaded."
        ),
    ] = "h200"


@dataclass(frozen=True, kw_only=True)
class ShapeFacts:
    """A model: its shape, its parameters, and how many of them a token goes through."""

    shape: Shape = entry(flat="")
    parameters: int
    active: int


@dataclass(frozen=True)
class ModelCosts:
    """What each experiment costs for a model."""

    shape: ShapeFacts
    experiments: tuple[Costed, ...]


@dataclass(frozen=True, kw_only=True)
class CostsResult(Result):
    """The costs for each model on a machine."""

    machine: Machine
    models: tuple[ModelCosts, ...]


def costs(config: Costs) -> CostsResult:
    """The costs of every experiment for each model; the command's result."""
    shapes = [read_shape(name) for name in config.models or PUBLISHED]
    if config.machine == "model" and not config.models:
        raise InputError("--machine model needs a MODEL to load and to measure with; name one")
    if config.machine == "h200":
        where = h200()
    else:
        from headscope.lm import load
        from headscope.studies.costs.measuring import measure_machine

        where = measure_machine(load(config.models[0] if config.machine == "model" else "pocket"))
    made = []
    for shape in shapes:
        facts = ShapeFacts(shape=shape, parameters=shape.parameters, active=shape.active)
        made.append(ModelCosts(facts, costs_of(shape, where)))
    signed = {"models": [asdict(each) for each in shapes], "on": config.machine}
    return CostsResult(
        signature=str(Signature.of("costs", signed, {})),
        machine=where,
        models=tuple(made),
    )


def _show(result: CostsResult, run: Path) -> Shown:
    machine = result.machine
    assumed = machine.measured is None
    finding = [_together(model, assumed) for model in result.models]
    tables = [_table(model, machine) for model in result.models]
    return Shown(
        "What experiments cost",
        "How many tokens, operations, bytes and hours do experiments of the papers' size take?",
        finding,
        _about(machine),
        "--machine here" if assumed else "",
        [sentence_of(machine.busy)] if machine.busy else [],
        sections=[Section("Experiments", tables, brief=True)],
    )


def _about(machine: Machine) -> str:
    if machine.measured is not None:
        return (
            f"Rates measured here with {machine.measured}: passes at "
            f"{machine.forward.operations / 1e9:.0f} GFLOP/s, with gradients at "
            f"{machine.backward.operations / 1e9:.0f}; for other models a first guess."
        )
    low, middle, high = ATTAINED
    return (
        f"Rates of one H200 ({H200['operations'] / 1e12:.0f} TFLOP/s dense bfloat16, "
        f"{H200['bandwidth'] / 1e12:.1f} TB/s, {H200['memory'] / 1e9:.0f} GB) are assumed, not "
        f"measured: passes attain {middle:.0%} of its peak ({high:.0%} to {low:.0%} in brackets)."
    )


def _together(model: ModelCosts, assumed: bool) -> str:
    """Translation scores and LAHIS in machine-hours, one after the other."""
    some = [each.cost for each in model.experiments if each.name in ("translation scores", "LAHIS")]
    middle, fastest, slowest = (
        f"{sum(getattr(cost, name) * cost.devices for cost in some) / 3600:.2f}"
        for name in ("seconds", "fastest", "slowest")
    )
    ends = f" ({fastest} to {slowest})" if assumed else ""
    return (
        f"{model.shape.shape.name}: translation scores and LAHIS together take {middle} "
        f"machine-hours{ends}."
    )


def _fit(model: ModelCosts, machine: Machine) -> str:
    """How many machines hold the model."""
    many, eight = max(e.cost.devices for e in model.experiments), model.shape.shape.quantised(8)
    fewer = eight.devices(machine.memory, eight.all_weights)
    words = (
        f"{many} of these machines hold it, one working at a time; with weights in 8 bits "
        f"({eight.all_weights / 1e9:.0f} GB) {fewer}"
    )
    return words if many > 1 else ""


def _table(model: ModelCosts, machine: Machine) -> Table:
    shape, assumed = model.shape.shape, machine.measured is None
    rows = [
        (costed.name, _short(costed.cost.tokens), f"{costed.cost.operations / 1e15:,.4g}",
         f"{costed.cost.memory / 1e9:.3g}", str(costed.cost.devices), _hours(costed.cost, assumed))
        for costed in model.experiments
    ]  # fmt: skip
    return Table(
        f"{shape.name}: {shape.parameters:,} parameters ({shape.active:,} a token), "
        f"{shape.all_weights / 1e9:.3g} GB of weights",
        ("tokens", "PFLOP", "GB", "fit on", "hours"),
        tuple(Row(name, tuple(map(Cell, cells))) for name, *cells in rows),
        note=_fit(model, machine),
    )


def _hours(cost: Cost, assumed: bool) -> str:
    middle = f"{cost.seconds / 3600:.3g}"
    if not assumed:
        return middle
    return f"{middle} ({cost.fastest / 3600:.3g} to {cost.slowest / 3600:.3g})"


def _short(number: float) -> str:
    for size, sign in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g}{sign}"
    return f"{number:.0f}"


command = Study(
    Costs, costs, show=_show, out=None, loads=lambda settings: settings.machine != "h200"
)
