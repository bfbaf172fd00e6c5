"""`headscope verify measure`: the evidence of a run again from its outputs, without the model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument

from headscope.cli import old_options as options
from headscope.cli.output import emit, progress
from headscope.cli.verify.removal import removal_table


def measure(
    run: Annotated[Path, Argument(metavar="RUN", help="The folder of a `verify removal` run.")],
    as_json: options.AsJson = False,
) -> None:
    """Measure the stored outputs of a removal run again, on any machine.

    For what was missing where the run was made, such as COMET; replaces the run's result.
    """
    from headscope.recipes.verify.removal import measure_again

    with progress() as update:
        result = measure_again(run, update)
    emit(result, as_json, removal_table(result))


command = measure
