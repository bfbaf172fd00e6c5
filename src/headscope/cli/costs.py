"""`headscope costs`: what experiments of the papers' size cost, before anything is loaded."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Argument, Option

from headscope.cli import old_options as options
from headscope.cli.output import emit
from headscope.errors import InputError

if TYPE_CHECKING:
    from headscope.recipes.costs.experiments import Cost, Costed
    from headscope.recipes.costs.machines import Machine
    from headscope.recipes.costs.shapes import Shape

_Models = Annotated[
    list[str] | None,
    Argument(
        metavar="MODEL...",
        help="Known shapes (Llama-3.1-8B, Qwen3-30B-A3B, Llama-3.1-70B; without any all three), "
        "pocket, folders, GGUF files, or Hub ids; only their configuration is read.",
    ),
]
_Machine = Annotated[
    Literal["h200", "here", "model"],
    Option(
        "--machine",
        help="h200: assumed rates; here: measured with the bundled model and the threads that "
        "torch takes (OMP_NUM_THREADS); model: likewise with the first MODEL itself, which is "
        "loaded.",
    ),
]


def costs(
    models: _Models = None,
    machine: _Machine = "h200",
    as_json: options.AsJson = False,
) -> None:
    """Tell tokens, operations, memory and hours of experiments of the papers' size."""
    began = time.monotonic()
    from dataclasses import asdict

    from headscope.recipes.costs.experiments import both_in_an_hour, costs_of
    from headscope.recipes.costs.machines import ATTAINED, h200
    from headscope.recipes.costs.reading import read_shape
    from headscope.recipes.costs.shapes import PUBLISHED
    from headscope.runs import Signature

    shapes = [read_shape(name) for name in models or PUBLISHED]
    if machine == "model" and not models:
        raise InputError("--machine model needs a MODEL to load and to measure with; name one")
    measured_with = models[0] if models and machine == "model" else "pocket"
    where = h200() if machine == "h200" else _here(measured_with)
    found: list[dict[str, Any]] = []
    texts = [_about(where)]
    for shape in shapes:
        told = costs_of(shape, where)
        both = both_in_an_hour(told, shape, where)
        texts.append(_table(shape, where, told, both))
        found.append(
            {
                "shape": asdict(shape) | {"parameters": shape.parameters, "active": shape.active},
                "experiments": [
                    {
                        "name": one.experiment.name,
                        "command": one.experiment.command,
                        "size": one.experiment.size,
                    }
                    | asdict(one.cost)
                    for one in told
                ],
                "translation_scores_and_lahis": both,
            }
        )
    key = Signature.of("costs", {"models": [asdict(one) for one in shapes], "on": machine}, {})
    result = {
        "signature": str(key),
        "run": None,
        "seconds": time.monotonic() - began,
        "machine": asdict(where) | {"attained": list(ATTAINED) if where.measured is None else None},
        "models": found,
    }
    emit(result, as_json, "\n\n".join(texts))


def _here(model: str) -> Machine:
    from headscope.cli.models import hide_loading_bars
    from headscope.lm import load
    from headscope.recipes.costs.measuring import measure_machine

    hide_loading_bars()
    return measure_machine(load(model))


def _about(machine: Machine) -> str:
    from headscope.recipes.costs.machines import ATTAINED, H200

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


def _table(shape: Shape, machine: Machine, told: tuple[Costed, ...], both: dict[str, Any]) -> str:
    width = max(len(one.experiment.name) for one in told)
    lines = [
        f"{shape.name}: {shape.parameters:,} parameters ({shape.active:,} a token), "
        f"{shape.all_weights / 1e9:.3g} GB of weights",
        f"{'':<{width}}  {'tokens':>8}  {'PFLOP':>9}  {'GB':>6}  {'fit on':>6}  hours",
    ]
    for one in told:
        cost = one.cost
        lines.append(
            f"{one.experiment.name:<{width}}  {_short(cost.tokens):>8}  "
            f"{cost.operations / 1e15:>9,.4g}  {cost.memory / 1e9:>6.3g}  {cost.devices:>6}  "
            f"{_hours(cost, machine)}"
        )
    many = max(one.cost.devices for one in told)
    if many > 1:
        eight = shape.quantised(8)
        lines.append(
            f"{many} of these machines hold it, one working at a time, or one with weights in 8 "
            f"bits ({eight.all_weights / 1e9:.0f} GB)"
        )
    together = f"translation scores and LAHIS together: {both['hours']:.2f} machine-hours"
    if machine.measured is None:
        share = both["share_needed"]
        needs = f"within one if passes attain {share:.0%} of the peak"
        together += (
            f" ({both['fastest']:.2f} to {both['slowest']:.2f}); "
            f"{needs if share < 1 else 'more than one at any share of the peak'}"
        )
    lines.append(together)
    return "\n".join(lines)


def _hours(cost: Cost, machine: Machine) -> str:
    middle = f"{cost.seconds / 3600:.3g}"
    if machine.measured is not None:
        return middle
    return f"{middle} ({cost.fastest / 3600:.3g} to {cost.slowest / 3600:.3g})"


def _short(number: float) -> str:
    for size, sign in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g}{sign}"
    return f"{number:.0f}"


command = costs
