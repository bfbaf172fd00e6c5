"""`headscope use adapt`: write with a mask, soft gates or scaled heads, and steer a language."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from headscope.errors import InputError
from headscope.results.adapt import AdaptedModel
from headscope.results.writing import Steering
from headscope.settings import Part
from headscope.shown.blocks import Shown
from headscope.studies.inputs import Progress
from headscope.studies.study import Study
from headscope.studies.use.adapt import UseAdapt, show_adapted, use_adapt
from headscope.studies.use.steering import Steer, steer
from headscope.studies.use.steering_show import show_steered


def asked(
    adapt: UseAdapt, steering: Annotated[dict[str, Any], Part(of=Steer, make=dict)]
) -> UseAdapt | Steer:
    """Write with a mask, soft gates or scaled heads on the model, beside the model as it is.

    With --steer: turn the --heads of a language up where the model answers in the wrong one, beside
    as many random heads; a --gate is then on the model in every condition, and --k is 1% of a run
    of find lahis if not given. Without prompts the pocket model is given its own translations.
    """
    gate, data = adapt.gate, steering.get("data", ())
    if not steering["languages"]:
        if {"factors", "away"} & steering.keys() or steering["ranking"] != "specific":
            raise InputError(
                "--factor, --away and --ranking are for --steer; name a language there"
            )
        if len(data) > 1:
            raise InputError("--data names one file of prompts; put them into one")
        return replace(adapt, prompts=replace(adapt.prompts, data=data[0] if data else None))
    if gate.heads is None:
        raise InputError(
            "--steer needs the languages' heads; name a run of find lahis with --heads"
        )
    if gate.scale is not None or not adapt.compare:
        raise InputError("--steer takes --factor instead of --scale, and always compares")
    own = None if gate.gate is None else replace(gate, heads=None, k=None)
    return Steer(**{**steering, "heads": gate.heads, "k": gate.k, "rank": gate.rank, "gate": own})


def carry_out(
    settings: UseAdapt | Steer, out: Path | None, progress: Progress | None
) -> AdaptedModel | Steering:
    """Write, or count answers in another language."""
    if isinstance(settings, Steer):
        return steer(settings, out, progress)
    return use_adapt(settings, out, progress)


def _show(result: AdaptedModel | Steering, run: Path) -> Shown:
    """What either shows."""
    if isinstance(result, Steering):
        return show_steered(result, run)
    return show_adapted(result, run)


command = Study(asked, carry_out, result=AdaptedModel | Steering, show=_show)
