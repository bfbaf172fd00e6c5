"""`headscope use adapt`: write with a mask, soft gates or scaled heads, and steer a language."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from headscope.cli.output import one_line
from headscope.cli.verify.writing import effects_table, not_measured_lines
from headscope.errors import InputError
from headscope.results.adapt import AdaptedModel
from headscope.results.writing import Steering
from headscope.settings import Part
from headscope.studies.inputs import Progress
from headscope.studies.study import Study
from headscope.studies.use.adapt import UseAdapt, use_adapt
from headscope.studies.use.steering import Steer, steer

__all__ = ["adapt_text", "command", "steering_text"]

#: Outputs that the terminal shows.
SHOWN = 3

WORDS = {
    "off_target": ("other language", 1, 100.0),
    "empty": ("empty", 1, 100.0),
    "chrf": ("chrF++", 1, 1.0),
}


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


def text_of(result: AdaptedModel | Steering) -> str:
    """What the terminal shows of either."""
    return steering_text(result) if isinstance(result, Steering) else adapt_text(result)


def adapt_text(result: AdaptedModel) -> str:
    """What was applied, how many outputs it changes, and the first ones."""
    gate = result.gate
    parts = f", {gate.feed_forward} feed-forward parts" if gate.feed_forward else ""
    lines = [f"{gate.name}: {gate.heads} of {gate.of} heads changed{parts}"]
    if result.changed is not None:
        lines.append(f"{result.changed} of {result.prompts} outputs differ from the model's")
    for row in result.outputs[:SHOWN]:
        given = row.prompt if isinstance(row.prompt, str) else row.prompt[-1]["content"]
        lines += ["", f"prompt  {_line(given)}"]
        if row.text_as_is is not None:
            lines.append(f"as is   {_line(row.text_as_is)}")
        lines.append(f"adapted {_line(row.text)}")
    return "\n".join([*lines, "", f"run: {result.run}"])


def steering_text(result: Steering) -> str:
    """By language: answers in another one under every factor, with the tests; in per cent."""
    lines = ["answers in another language than asked for, and their worth"]
    lines += [*effects_table(result, WORDS), *not_measured_lines(result.not_measured)]
    return "\n".join([*lines, f"run: {result.run}"])


def _line(text: str, width: int = 88) -> str:
    flat = one_line(text)
    return flat if len(flat) <= width else f"{flat[: width - 1]}…"


command = Study(asked, carry_out, text_of)
