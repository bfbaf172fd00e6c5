"""Translation scores of one or several directions, in a run folder."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

from headscope import options
from headscope.data.split import text_digests
from headscope.errors import naming
from headscope.find.translation import TranslationScore, check_aligner, translation_score
from headscope.heads import HeadScores, Rank, check_thresholds, read_scores, save_scores
from headscope.measure.baseline import Rules
from headscope.results.classes import Classes
from headscope.results.common import ScoredHead
from headscope.results.head_scores import LayerScores
from headscope.results.translation import TranslationResult, TranslationScores
from headscope.runs import Run, carry_out
from headscope.settings import Part, Settings
from headscope.studies.baseline import check_translations
from headscope.studies.inputs import (
    ModelChoice,
    PairsChoice,
    Progress,
    dtype_name,
    model_inputs,
    model_provenance,
    read_directions,
    resolved_chat,
    steps_of,
)

COMMAND = "find translation-score"


@dataclass(frozen=True)
class FindTranslation(Settings):
    """Score every head by how often its peak falls on the aligned source word.

    Without --data the bundled model is scored on its own development sentences.
    """

    model: ModelChoice = field(default_factory=ModelChoice)
    pairs: PairsChoice = field(default_factory=PairsChoice)
    score: TranslationScore = field(default_factory=TranslationScore)
    threshold: options.Threshold = 0.1
    rank: options.Rank = "above-chance"
    inactive: options.Inactive = 0.0
    baseline: Annotated[Rules, Part(without=("errors",))] = field(default_factory=Rules)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_thresholds(self.threshold, self.inactive)


def find_translation(
    config: FindTranslation, out: Path | None = None, progress: Progress | None = None
) -> TranslationResult:
    """Score every direction and return the command's result; what is done already is kept."""
    from headscope.find.capture import check_peaks

    began = time.monotonic()
    directions = read_directions(config.pairs, config.model.model, "dev", seed=config.score.seed)
    for pairs in directions.values():
        with naming(pairs.path):
            check_aligner(pairs, config.score)
    lm = config.model.load_for(out)
    config = replace(config, score=resolved_chat(lm, config.score))
    settings = {"settings": config, "computed_in": dtype_name(lm)}
    about = {**model_provenance(lm), "seed": config.score.seed}

    def compute(run: Run) -> TranslationResult:
        works = check_translations(lm, directions, config.score, run, config.baseline, progress)
        scores: dict[str, HeadScores] = {}
        for pair, pairs in directions.items():
            report = steps_of(progress, pair)
            scores[pair] = translation_score(lm, pairs, config.score, run, report)
        run.write_json(
            "found_on.json",
            {pair: text_digests(pairs.all_pairs) for pair, pairs in directions.items()},
        )
        save_scores(run.path, scores if len(scores) > 1 else next(iter(scores.values())))
        how = config.threshold, config.rank, config.inactive
        parts = {pair: describe(part, *how) for pair, part in scores.items()}
        together = vars(describe_all(scores, *how))
        return TranslationResult(**together, **works, directions=parts if len(parts) > 1 else None)

    inputs = model_inputs(lm, directions)
    result = carry_out(
        COMMAND, out, settings, inputs, compute, began, about, kind=TranslationResult
    )
    check_peaks(str(result.run), config.score.keep_peaks)
    return result


def describe_all(
    scores: Mapping[str, HeadScores], threshold: float, rank: Rank, inactive: float
) -> TranslationScores:
    """What a run finds: of its direction, or the mean over several with what they counted."""
    if len(scores) == 1:
        return describe(next(iter(scores.values())), threshold, rank, inactive)
    sums = {
        name: sum(part.config[name] for part in scores.values())
        for name in ("examples", "left_out", "tokens")
    }
    return replace(describe(HeadScores.mean(scores), threshold, rank, inactive), **sums)


def describe(
    scores: HeadScores, threshold: float, rank: Rank, inactive: float
) -> TranslationScores:
    """One set of scores: heads, classes, layers, and what was counted."""
    ranking, above = scores.ranking(rank), scores.classes_above_chance(threshold, inactive)
    kept = ("examples", "left_out", "tokens", "units", "aligner", "links_digest")
    return TranslationScores(
        signature=scores.signature,
        threshold=threshold,
        inactive=inactive,
        rank=ranking["rank"],
        rank_note=ranking["rank_note"],
        heads=ScoredHead.all_of(scores, rank),
        counted_over=scores.counted_over,
        counts=Classes(**scores.classes(threshold, inactive)),
        counts_above_chance=Classes(**above) if above else None,
        layer_profile=tuple(
            LayerScores(**vars(layer)) for layer in scores.layer_profile(threshold)
        ),
        **{name: scores.config[name] for name in kept if name in scores.config},
    )


def stored_scores(run: Path) -> dict[str, HeadScores]:
    """The scores of a finished run by direction and their `mean`; of one direction `mean` alone."""
    return read_scores(run)
