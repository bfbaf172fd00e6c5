"""Attention mass on the aligned source word, of one or several directions, in a run folder."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from headscope.data.split import text_digests
from headscope.errors import naming
from headscope.find.attention_mass import attention_mass
from headscope.find.translation import check_aligner
from headscope.find.translation_config import TranslationScore
from headscope.results.head_scores import ScoresResult
from headscope.runs import Run
from headscope.studies.find.head_scores import Scored, scores_run
from headscope.studies.inputs import (
    ModelChoice,
    PairsChoice,
    Progress,
    Steps,
    read_directions,
    resolved_chat,
)

COMMAND = "find attention-mass"


@dataclass(frozen=True)
class FindAttentionMass:
    """A whole run; `score` says how translations are prompted and linked."""

    model: ModelChoice = field(default_factory=ModelChoice)
    pairs: PairsChoice = field(default_factory=PairsChoice)
    score: TranslationScore = field(default_factory=TranslationScore)


def find_attention_mass(
    config: FindAttentionMass, out: Path | None = None, progress: Progress | None = None
) -> ScoresResult:
    """Score every direction and return the command's result."""
    directions = read_directions(config.pairs, config.model.model, "dev", seed=config.score.seed)
    for pairs in directions.values():
        with naming(pairs.path):
            check_aligner(pairs, config.score)
    lm = config.model.load_for(out)
    config = replace(config, score=resolved_chat(lm, config.score))

    def score(run: Run, steps: Steps | None) -> Scored:
        run.write_json(
            "found_on.json", {name: text_digests(one.all_pairs) for name, one in directions.items()}
        )
        found = {
            name: attention_mass(lm, pairs, config.score, run, steps)
            for name, pairs in directions.items()
        }
        return found if len(found) > 1 else next(iter(found.values()))

    return scores_run(
        COMMAND,
        {"settings": config, "shots": {n: one.shots_digest for n, one in directions.items()}},
        lm,
        {
            name: {"digest": one.digest, "path": one.path, "examples": len(one.pairs)}
            for name, one in directions.items()
        },
        out,
        score,
        progress,
        ScoresResult,
        seed=config.score.seed,
    )
