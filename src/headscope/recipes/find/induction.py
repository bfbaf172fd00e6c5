"""Induction scores from random repeated tokens, in a run folder."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headscope.find.repeated import Induction, induction
from headscope.recipes.find.head_scores import scores_run
from headscope.recipes.inputs import ModelChoice, Progress

__all__ = ["COMMAND", "FindInduction", "find_induction"]

COMMAND = "find induction"


@dataclass(frozen=True)
class FindInduction:
    """A whole run of the command."""

    model: ModelChoice = field(default_factory=ModelChoice)
    measure: Induction = field(default_factory=Induction)


def find_induction(
    config: FindInduction, out: Path | None = None, progress: Progress | None = None
) -> dict[str, Any]:
    """Score every head and return the command's result; what is done already is kept."""
    lm = config.model.load_for(out)
    return scores_run(
        COMMAND,
        config,
        lm,
        {},
        out,
        lambda run, steps: induction(lm, config.measure, run, steps),
        progress,
        seed=config.measure.seed,
    )
