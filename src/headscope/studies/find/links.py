"""Translation scores of the same sentences by several word links, in one run folder.

The model reads each reference once; what differs is which source word counts as the right one.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from headscope.data.align import LlmAligner
from headscope.data.split import text_digests
from headscope.errors import InputError, naming
from headscope.find.translation import check_aligner, translation_score
from headscope.find.translation_config import TranslationScore
from headscope.heads import HeadScores, save_scores
from headscope.measure.baseline import Rules
from headscope.runs import Run
from headscope.studies.baseline import check_translations
from headscope.studies.inputs import (
    ModelChoice,
    PairsChoice,
    Progress,
    pair_inputs,
    read_directions,
    resolved_chat,
    run_with_model,
)

COMMAND = "find translation-score by several links"


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
        found = {"own": self.score}
        found |= {
            f"eflomal-{number}": replace(self.score, aligner="eflomal")
            for number in range(1, self.fits + 1)
        }
        if self.llm is not None:
            found["llm"] = replace(self.score, aligner="llm", llm=self.llm)
        return found


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
    directions = read_directions(config.pairs, config.model.model, "dev", seed=config.score.seed)
    for pairs in directions.values():
        for way in config.ways.values():
            with naming(pairs.path):
                check_aligner(pairs, way)
    lm = config.model.load_for(out)
    config = replace(config, score=resolved_chat(lm, config.score))

    def compute(run: Run) -> dict[str, Any]:
        works = check_translations(lm, directions, config.score, run, config.baseline, progress)
        digests = {pair: text_digests(one.all_pairs) for pair, one in directions.items()}
        run.write_json("found_on.json", digests)
        told = {}
        for number, (name, way) in enumerate(config.ways.items()):
            if progress:
                progress("links", number, len(config.ways))
            found = {
                pair: translation_score(lm, pairs, way, run, links=f"links {name}")
                for pair, pairs in directions.items()
            }
            scores: HeadScores | dict[str, HeadScores]
            scores = found if len(found) > 1 else next(iter(found.values()))
            save_scores(run.path if name == "own" else run.path / "links" / name, scores)
            told[name] = {
                "aligner": next(iter(found.values())).config["aligner"],
                "tokens": sum(one.config["tokens"] for one in found.values()),
                "examples": sum(one.config["examples"] for one in found.values()),
                "digests": {pair: one.config["links_digest"] for pair, one in found.items()},
            }
        return {"links": told, **works}

    data, seed = pair_inputs(directions), config.score.seed
    return run_with_model(lm, COMMAND, out, {"settings": config}, data, compute, began, seed=seed)
