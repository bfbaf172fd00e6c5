"""`headscope pocket train`: the bundled model, trained again from scratch."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

from typer import Option

from headscope.cli import old_options as options
from headscope.cli.output import emit


def train(
    out: Annotated[Path, Option("--out", metavar="DIR", help="Where weights and state go.")],
    steps: Annotated[
        int | None,
        Option("--steps", min=1, help="Steps before those with head dropout; none: as shipped."),
    ] = None,
    seed: options.Seed = 0,
    device: Annotated[str, Option("--device", help="Such as cpu or cuda.")] = "cpu",
    stop_after: Annotated[
        int | None,
        Option("--stop-after", min=1, help="Stop after so many steps; run again to go on."),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Train the bundled model from scratch; an interrupted run goes on where it stopped."""
    started = time.monotonic()
    from dataclasses import replace

    from headscope.pocket.train import PocketTraining, train_pocket
    from headscope.runs import Signature

    config = replace(PocketTraining(), seed=seed)
    if steps is not None:
        config = replace(config, steps=steps)
    folder = train_pocket(out, config, device, stop_after=stop_after)
    finished = folder.name == "final"
    result = {
        "signature": str(Signature.of("pocket train", config, {})),
        "run": out,
        "seconds": time.monotonic() - started,
        "weights": folder if finished else None,
        "finished": finished,
    }
    emit(
        result,
        as_json,
        f"weights: {folder}" if finished else f"stopped; run again to go on: {folder}",
    )


command = train
