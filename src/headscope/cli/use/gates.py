"""What is put on a model, as options: a gate by name, or heads and what they are multiplied by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from typer import Option

from headscope.cli import old_options as options

if TYPE_CHECKING:
    from headscope.recipes.use.gates import GateChoice

__all__ = ["gate_choice"]


def gate_choice(
    gate: Annotated[
        str | None,
        Option(
            "--gate",
            metavar="RUN",
            help="A run that found a mask or soft gates, or a saved gate.",
        ),
    ] = None,
    heads: Annotated[
        str | None,
        Option(
            "--heads",
            help="Instead of --gate, heads to multiply by --scale: a run folder, a saved set, a "
            "CSV or JSON of layer and head, or a list: 5.3,7.11.",
        ),
    ] = None,
    k: Annotated[
        str | None,
        Option(
            "--k",
            metavar="K",
            help="Number of --heads, or a share such as 0.02 or 2%. Without it a set is used "
            "whole, and of scores 20 heads, or 15% in a model of fewer than 256.",
        ),
    ] = None,
    rank: options.Rank = "above-chance",
    scale: Annotated[
        float | None,
        Option("--scale", metavar="X", help="Multiply --heads by this; without it 0, removal."),
    ] = None,
    outside: Annotated[
        float | None,
        Option(
            "--outside",
            metavar="ALPHA",
            help="Put this in place of a mask's 0; with --heads, multiply all others by it.",
        ),
    ] = None,
) -> GateChoice:
    """A gate, or heads with a number."""
    from headscope.recipes.use.gates import GateChoice

    return GateChoice(gate, heads, k, scale, outside, rank)
