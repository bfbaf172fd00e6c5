"""`headscope costs`: what experiments of the papers' size cost, before anything is loaded."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Literal

from headscope.errors import InputError
from headscope.runs import Result, Signature, entry
from headscope.settings import Option, Settings
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
        from headscope.cli.models import hide_loading_bars
        from headscope.lm import load
        from headscope.studies.costs.measuring import measure_machine

        hide_loading_bars()
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


def _text(result: CostsResult) -> str:
    tables = [_table(one, result.machine.measured is None) for one in result.models]
    return "\n\n".join([_about(result.machine), *tables])


def _about(machine: Machine) -> str:
    if machine.measured is not None:
        return (
            f"here, measured with {machine.measured}: passes at "
            f"{machine.forward.operations / 1e9:.0f} GFLOP/s, with gradients at "
            f"{machine.backward.operations / 1e9:.0f}; for other models a first guess"
            + (f"\nwarning: {machine.busy}" if machine.busy else "")
        )
    low, middle, high = ATTAINED
    return (
        f"one H200 ({H200['operations'] / 1e12:.0f} TFLOP/s dense bfloat16, "
        f"{H200['bandwidth'] / 1e12:.1f} TB/s, {H200['memory'] / 1e9:.0f} GB); assumed, not "
        f"measured: passes attain {middle:.0%} of its peak ({high:.0%} to {low:.0%} in brackets)"
    )


def _table(model: ModelCosts, assumed: bool) -> str:
    shape = model.shape.shape
    width = max(len(one.name) for one in model.experiments)
    lines = [
        f"{shape.name}: {shape.parameters:,} parameters ({shape.active:,} a token), "
        f"{shape.all_weights / 1e9:.3g} GB of weights",
        f"{'':<{width}}  {'tokens':>8}  {'PFLOP':>9}  {'GB':>6}  {'fit on':>6}  hours",
    ]
    lines += [
        f"{one.name:<{width}}  {_short(one.cost.tokens):>8}  "
        f"{one.cost.operations / 1e15:>9,.4g}  {one.cost.memory / 1e9:>6.3g}  "
        f"{one.cost.devices:>6}  {_hours(one.cost, assumed)}"
        for one in model.experiments
    ]
    many = max(one.cost.devices for one in model.experiments)
    if many > 1:
        eight = shape.quantised(8)
        lines.append(
            f"{many} of these machines hold it, one working at a time, or one with weights in 8 "
            f"bits ({eight.all_weights / 1e9:.0f} GB)"
        )
    both = model.translation_scores_and_lahis
    together = f"translation scores and LAHIS together: {both.hours:.2f} machine-hours"
    if assumed:
        share = both.share_needed
        needs = f"within one if passes attain {share:.0%} of the peak"
        together += (
            f" ({both.fastest:.2f} to {both.slowest:.2f}); "
            f"{needs if share < 1 else 'more than one at any share of the peak'}"
        )
    lines.append(together)
    return "\n".join(lines)


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


command = Study(Costs, costs, _text, out=None)
