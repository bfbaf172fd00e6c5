"""`headscope costs`: what experiments of the papers' size cost, before anything is loaded."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

from headscope.errors import InputError
from headscope.runs import Result, Signature, entry
from headscope.settings import Option, Settings
from headscope.shown.blocks import Cell, Row, Section, Shown, Table
from headscope.shown.words import sentence_of
from headscope.studies.costs.experiments import Both, Cost, Costed, both_in_an_hour, costs_of
from headscope.studies.costs.machines import ATTAINED, H200, Machine, h200
from headscope.studies.costs.reading import read_shape
from headscope.studies.costs.shapes import PUBLISHED, Shape
from headscope.studies.study import Study


@dataclass(frozen=True)
class Costs(Settings):
    """Tell tokens, operations, memory and hours of experiments of the papers' size."""

    models: Annotated[
        tuple[str, ...],
        Option(
            "Known shapes (Llama-3.1-8B, Qwen3-30B-A3B, Llama-3.1-70B; without any all three), "
            "pocket, folders, GGUF files, or Hub ids; only their configuration is read.",
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
    translation_scores_and_lahis: Both


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
    found = []
    for shape in shapes:
        costed = costs_of(shape, where)
        facts = ShapeFacts(shape=shape, parameters=shape.parameters, active=shape.active)
        found.append(ModelCosts(facts, costed, both_in_an_hour(costed, shape, where)))
    signed = {"models": [asdict(one) for one in shapes], "on": config.machine}
    return CostsResult(
        signature=str(Signature.of("costs", signed, {})),
        machine=where,
        models=tuple(found),
    )


def _show(result: CostsResult, run: Path) -> Shown:
    """The machine, and a table of experiments for each model."""
    machine = result.machine
    assumed = machine.measured is None
    finding = [_together(one, assumed) for one in result.models]
    tables = [_table(one, assumed) for one in result.models]
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
    """Translation scores and LAHIS against the aim of an hour."""
    both = model.translation_scores_and_lahis
    words = (
        f"{model.shape.shape.name}: translation scores and LAHIS together take {both.hours:.2f} "
        "machine-hours"
    )
    if assumed:
        share = both.share_needed
        needs = f"within one if passes attain {share:.0%} of the peak"
        words += (
            f" ({both.fastest:.2f} to {both.slowest:.2f}); "
            f"{needs if share < 1 else 'more than one at any share of the peak'}"
        )
    many = max(one.cost.devices for one in model.experiments)
    if many > 1:
        eight = model.shape.shape.quantised(8)
        words += (
            f". {many} of these machines hold it, one working at a time, or one with weights in 8 "
            f"bits ({eight.all_weights / 1e9:.0f} GB)"
        )
    return f"{words}."


def _table(model: ModelCosts, assumed: bool) -> Table:
    shape = model.shape.shape
    rows = [
        (one.name, _short(one.cost.tokens), f"{one.cost.operations / 1e15:,.4g}",
         f"{one.cost.memory / 1e9:.3g}", str(one.cost.devices), _hours(one.cost, assumed))
        for one in model.experiments
    ]  # fmt: skip
    return Table(
        f"{shape.name}: {shape.parameters:,} parameters ({shape.active:,} a token), "
        f"{shape.all_weights / 1e9:.3g} GB of weights",
        ("tokens", "PFLOP", "GB", "fit on", "hours"),
        tuple(Row(name, tuple(map(Cell, cells))) for name, *cells in rows),
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
