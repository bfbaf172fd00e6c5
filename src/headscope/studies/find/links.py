"""Translation scores of the same sentences by several word links, in one run folder.

The model reads each reference once; what differs is which source word counts as the right one.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from headscope.data.align import LlmAligner
from headscope.errors import InputError
from headscope.find.translation import attention_mass, translation_score
from headscope.find.translation_config import TranslationScore
from headscope.heads import save_scores
from headscope.measure.baseline import Rules
from headscope.progress import Progress, Steps
from headscope.results.head_scores import ScoresResult
from headscope.runs import Run
from headscope.studies.baseline import check_translations
from headscope.studies.find.head_scores import Scored, parts_of, scores_run
from headscope.studies.find.translation import checked_directions, write_found_on
from headscope.studies.models import ModelChoice, resolved_chat, run_with_model
from headscope.studies.pairs import PairsChoice, pair_inputs

BY_LINKS, MASS = "find translation-score by several links", "find attention-mass"


@dataclass(frozen=True)
class FindByLinks:
    """A whole run.

    `fits`: so many fits of eflomal, which has no seed. `llm`: the annotator, if one is asked too.
    `score`: how references are read; the links it names are those of the run's own scores.
    """

    model: ModelChoice = field(default_factory=ModelChoice)
    pairs: PairsChoice = field(default_factory=PairsChoice)
    score: TranslationScore = field(default_factory=TranslationScore)
    fits: int = 5
    llm: LlmAligner | None = None
    baseline: Rules = field(default_factory=Rules)

    @property
    def ways(self) -> dict[str, TranslationScore]:
        """How to score by each of the links; `own` are those of `score`."""
        by_links = {"own": self.score}
        by_links |= {
            f"eflomal-{number}": replace(self.score, aligner="eflomal")
            for number in range(1, self.fits + 1)
        }
        if self.llm is not None:
            by_links["llm"] = replace(self.score, aligner="llm", llm=self.llm)
        return by_links


def find_by_links(
    config: FindByLinks, out: Path | None = None, progress: Progress | None = None
) -> dict[str, Any]:
    """Score every direction by each of the links, and return the result.

    The run folder holds the scores by `own` links as one of `find translation-score` does, and
    those by the others below `links/NAME`. `links` of the result tells of each its aligner, the
    digest of its links in every direction, and the target tokens that were linked.

    Raises:
        InputError: for scores of a model's own translations, or as `find_translation` does.
    """
    began = time.monotonic()
    if config.score.decode != "reference":
        raise InputError("several links are compared on reference translations alone")
    ways = config.ways
    directions = checked_directions(config.pairs, config.model.model, config.score, *ways.values())
    lm = config.model.load_for()
    config = replace(config, score=resolved_chat(lm, config.score))

    def compute(run: Run) -> dict[str, Any]:
        works = check_translations(lm, directions, config.score, run, config.baseline, progress)
        write_found_on(run, directions)
        links = {}
        for number, (name, way) in enumerate(config.ways.items()):
            if progress:
                progress("links", number, len(config.ways))
            scores = {
                pair: translation_score(lm, pairs, way, run, links=f"links {name}")
                for pair, pairs in directions.items()
            }
            place = run.path if name == "own" else run.path / "links" / name
            save_scores(place, parts_of(scores))
            links[name] = {
                "aligner": next(iter(scores.values())).config["aligner"],
                "tokens": sum(part.config["tokens"] for part in scores.values()),
                "examples": sum(part.config["examples"] for part in scores.values()),
                "digests": {pair: part.config["links_digest"] for pair, part in scores.items()},
            }
        return {"links": links, **works}

    data, seed = pair_inputs(directions), config.score.seed
    return run_with_model(
        lm, BY_LINKS, out, {"settings": config}, data, compute, began, kind=dict, seed=seed
    )


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
    directions = checked_directions(config.pairs, config.model.model, config.score)
    lm = config.model.load_for()
    config = replace(config, score=resolved_chat(lm, config.score))

    def score(run: Run, steps: Steps | None) -> Scored:
        write_found_on(run, directions)
        scores = {
            name: attention_mass(lm, pairs, config.score, run, steps)
            for name, pairs in directions.items()
        }
        return parts_of(scores)

    return scores_run(
        MASS,
        {"settings": config, "shots": {n: file.shots_digest for n, file in directions.items()}},
        lm,
        {
            name: {"digest": file.digest, "path": file.path, "examples": len(file.pairs)}
            for name, file in directions.items()
        },
        out,
        score,
        progress,
        ScoresResult,
        seed=config.score.seed,
    )
