"""Two runs of `find lahis` on the same documents, and what the heads of each cost text."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headscope.compare.importance import importance_agreement
from headscope.heads import read_scores
from headscope.runs import Run, carry_out
from headscope.runs.reading import read_result
from headscope.studies.verify.perplexity import paired_loss

COMMAND = "compare importance"


@dataclass(frozen=True)
class CompareImportance:
    """What is compared; the runs' signatures count, not their places.

    Attributes:
        scored: two finished runs of `find lahis` on the same documents.
        read: two finished runs of `verify perplexity` on the same documents, each without the
            heads of one of them.
        seed: of resamples and permutations.
    """

    scored: tuple[Path, Path] = field(metadata={"signature": False})
    read: tuple[Path, Path] = field(metadata={"signature": False})
    seed: int = 0


def compare_importance(config: CompareImportance, out: Path | None = None) -> dict[str, Any]:
    """By language how far the important heads agree, and what those of the second run cost more.

    `languages` has for each what `importance_agreement` gives, and `costs_more` as `paired_loss`
    gives it. Important are the heads above the first run's quantile.
    """
    began = time.monotonic()
    results = [read_result(one) for one in (*config.scored, *config.read)]
    inputs = {f"run {at}": str(one["signature"]) for at, one in enumerate(results)}

    def compute(run: Run) -> dict[str, Any]:
        first, second = (read_scores(one) for one in config.scored)
        quantile, (one, other) = float(results[0]["quantile"]), config.read
        languages = {
            code: {
                **importance_agreement(
                    first.get(code, first["mean"]),
                    second.get(code, second["mean"]),
                    quantile,
                    config.seed,
                ),
                "costs_more": paired_loss(other, one, code, config.seed),
            }
            for code in results[0]["languages"]
        }
        return {"languages": languages}

    return carry_out(COMMAND, out, {"settings": config}, inputs, compute, began)
