"""`headscope pocket train`: the bundled model, trained again from scratch."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from headscope.pocket.train import PocketTraining, train_pocket
from headscope.runs import Result, Signature
from headscope.settings import Option, Settings
from headscope.studies.study import Study


@dataclass(frozen=True)
class Train(Settings):
    """Train the bundled model from scratch; the same command resumes a stopped run."""

    training: PocketTraining = field(default_factory=PocketTraining)
    device: Annotated[str, Option("Such as cpu or cuda.", panel="Model loading")] = "cpu"
    stop_after: Annotated[
        int | None, Option("Stop after so many steps; run again to go on.", min=1)
    ] = None


@dataclass(frozen=True, kw_only=True)
class Trained(Result):
    """The folder of the weights; None while the training is stopped."""

    weights: str | None
    finished: bool


def train(settings: Train, out: Path) -> Trained:
    """Train, and say where the weights are."""
    folder = train_pocket(out, settings.training, settings.device, stop_after=settings.stop_after)
    finished = folder.name == "final"
    return Trained(
        signature=str(Signature.of("pocket train", settings.training, {})),
        run=str(out),
        weights=str(folder) if finished else None,
        finished=finished,
    )


def _text(result: Trained) -> str:
    if result.finished:
        return f"weights: {result.weights}"
    return f"stopped; run again to go on: {Path(str(result.run)) / 'state'}"


command = Study(
    Train,
    train,
    _text,
    out=Option("Where weights and state go.", metavar="DIR"),
    usage="--steps 10 --stop-after 10 --out runs/trained",
)
