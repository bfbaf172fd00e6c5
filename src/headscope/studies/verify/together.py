"""Every two of the best heads removed together, beside random pairs, in a run folder."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from headscope.heads import Amount, Rank, about_rank
from headscope.measure.baseline import Rules
from headscope.runs import Run, encode
from headscope.studies.baseline import check_translations
from headscope.studies.inputs import ModelChoice, PairsChoice, Progress, pair_inputs, run_with_model
from headscope.studies.verify.removal import VerifyRemoval, opened
from headscope.studies.verify.removal_run import STATISTICS
from headscope.verify.removal import Removal
from headscope.verify.removal.losses import reference_alignment, reference_losses
from headscope.verify.removal.single import interactions, pairs_of, planned_pairs

COMMAND = "verify pairs of heads"


@dataclass(frozen=True)
class VerifyTogether:
    """A whole run.

    `heads` is what `resolve_heads` reads, `k` how many of them make pairs, `rank` what scores are
    ranked by. Of `removal` the loss draws are the random pairs; heads are set to zero.
    """

    heads: str = field(metadata={"signature": False})
    k: Amount = 6
    model: ModelChoice = field(default_factory=ModelChoice)
    pairs: PairsChoice = field(default_factory=PairsChoice)
    removal: Removal = field(default_factory=lambda: Removal(measure=("loss",)))
    rank: Rank = field(default="above-chance", metadata={"signature": False})
    baseline: Rules = field(default_factory=Rules)


def verify_together(
    config: VerifyTogether, out: Path | None = None, progress: Progress | None = None
) -> dict[str, Any]:
    """Remove heads alone and in pairs and return their interactions (see `interactions`).

    The run keeps every sentence's losses in `statistics.safetensors`, conditions in the order of
    `sets` of the result. A run that was stopped goes on where it was. Raises `InputError` if the
    heads were found on sentences of the test data.
    """
    began = time.monotonic()
    removed = VerifyRemoval(**{**vars(config), "k": (config.k,)})
    opening = opened(removed, out, linked=True)
    lm, removal, directions = opening.lm, opening.removal, opening.directions
    (heads,) = opening.sets
    chosen, random = pairs_of(heads, removal.all_draws["loss"], removal.seed, opening.avoid)
    planned = planned_pairs(heads, [*chosen, *random])
    settings = {
        "settings": replace(config, removal=removal),
        "heads": [str(head) for head in heads],
        **opening.signed,
    }

    def compute(run: Run) -> dict[str, Any]:
        works = check_translations(lm, directions, removal, run, config.baseline, progress)
        links = {name: reference_alignment(pairs, run) for name, pairs in directions.items()}
        losses = reference_losses(lm, directions, links, planned, removal, run, None, progress)
        run.write_tensors(
            STATISTICS,
            {f"{pair}.{name}": array for pair, one in losses.items()
             for name, array in one.tensors().items()},
        )  # fmt: skip
        sets = [[str(head) for head in one.heads] for one in planned]
        best, other = ([list(map(str, pair)) for pair in pairs] for pairs in (chosen, random))
        return {
            "heads": [str(head) for head in heads],
            **about_rank(heads),
            "sets": sets,
            "sentences": sum(len(one.tokens) for one in losses.values()),
            "directions": list(directions),
            **interactions(losses, sets, best, other, removal.seed),
            **encode(opening.controls),
            **works,
        }

    return run_with_model(
        lm, COMMAND, out, settings, pair_inputs(directions), compute, began, seed=removal.seed
    )
