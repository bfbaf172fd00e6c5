"""The atlas of a model: which heads translate, in several directions, and does it need them?

Heads are found on one set of sentences and checked on another: the pocket model's dev and test
sentences, or two halves of the data given, split by a hash of the source sentence.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from headscope import options
from headscope.compare.overlap_sets import overlaps
from headscope.data.pairs import PairFile
from headscope.errors import OptionalPart
from headscope.evidence.controls import DEFAULT, Controlled, Draws, SelectedHeads, planned
from headscope.evidence.headline import few_sets, resolution
from headscope.evidence.pace import Pacing
from headscope.evidence.rows import LEVEL, Basis, Condition, Evidence
from headscope.evidence.sequence import decided, in_its_round
from headscope.find.translation_score_config import TranslationScore
from headscope.heads import (
    Amount,
    HeadScores,
    HeadSet,
    Rank,
    about_rank,
    check_thresholds,
    count_of,
    default_amount,
    save_scores,
)
from headscope.measure.baseline import Rules
from headscope.progress import Progress
from headscope.results.atlas import AtlasData, AtlasOverlap, AtlasResult
from headscope.results.removal import RemovalDetails, Removed
from headscope.runs import Run, decode, plain
from headscope.settings import UNSIGNED, Nested, Option
from headscope.shown.words import count
from headscope.studies.atlas_show import removal_case, show_atlas
from headscope.studies.baseline import check_translations
from headscope.studies.find.head_scores import parts_of
from headscope.studies.find.translation_score import describe, describe_all, write_found_on
from headscope.studies.going_on import Spent, going_on
from headscope.studies.models import PROMPTED_ARGUMENT, ModelChoice, resolved_chat, run_with_model
from headscope.studies.pairs import (
    PairsChoice,
    aligner_parts,
    find_and_check,
    first_prompts,
    pair_cautions,
    pair_inputs,
)
from headscope.studies.report import write_report
from headscope.studies.study import Study
from headscope.studies.verify.reference import Reference, reference_number, translations
from headscope.studies.verify.removal import about_removal, removal_run
from headscope.studies.verify.removal_show import cautions, leads
from headscope.verify.removal_translations import Removal

if TYPE_CHECKING:
    from headscope.lm import LanguageModel

COMMAND = "atlas"


@dataclass(frozen=True)
class Atlas(Controlled):
    """Make the atlas of a model: score its heads, remove the best ones, compare directions.

    Writes report.html into the run folder. The removal is checked on 60 sentences in all, 3 to 20
    of each direction, unless --verify-limit says how many. Without --data the bundled model reads
    its own sentences.
    """

    model: Annotated[ModelChoice, PROMPTED_ARGUMENT] = field(default_factory=ModelChoice)
    pairs: PairsChoice = field(default_factory=PairsChoice)
    score: TranslationScore = field(default_factory=TranslationScore)
    threshold: options.Threshold = 0.1
    inactive: options.Inactive = 0.0
    # Also compared between directions; None: 20, or 15 % below 256 heads.
    k: Annotated[
        Amount | None,
        Option(
            "Heads removed in the check: a number or a share such as 15%.", metavar="K", typed=str
        ),
    ] = None
    rank: options.Rank = "above-chance"
    draws: options.DrawsOrAuto = "auto"
    controls: options.Controls = DEFAULT
    ablate: options.Ablate = "zero"
    check: Annotated[int | None, options.VERIFY_LIMIT] = None
    kept: options.KeptIn = field(default=None, metadata=UNSIGNED)
    baseline: Annotated[Rules, Nested(without=("errors",))] = field(default_factory=Rules)

    def __post_init__(self) -> None:
        check_thresholds(self.threshold, self.inactive)
        super().__post_init__()

    def parts(self) -> Iterator[OptionalPart]:
        """What links words, too."""
        from headscope.find.translation_score_config import check_aligner

        yield from super().parts()
        yield from aligner_parts(
            self.pairs, self.model.model, lambda pairs: check_aligner(pairs, self.score)
        )


def atlas(
    config: Atlas,
    out: Path | None = None,
    progress: Progress | None = None,
    tell: Callable[[str], object] = lambda words: None,
) -> AtlasResult:
    """Make the atlas and its report; a run that was stopped goes on where it was.

    `tell` is given a sentence about the time that the check takes.
    """
    from headscope.find.capture import check_peaks
    from headscope.find.translation_score_config import check_aligner

    began = time.monotonic()
    apart = reference_number(config.ablate)
    found_on, checked_on = find_and_check(
        config.pairs, config.model.model, config.check, config.score.seed, apart
    )
    for pairs in found_on.values():
        check_aligner(pairs, config.score)
    lm = config.model.load_for()
    count_of(_amount(config, lm), lm.geometry.total)  # a wrong k is told before all the work
    config = replace(config, score=resolved_chat(lm, config.score))
    reference = translations(lm, checked_on, config.score)
    settings = {
        "settings": config,
        "reference text": reference.digest,
    }

    def compute(run: Run) -> AtlasResult:
        return _make(lm, config, found_on, checked_on, reference, run, began, progress, tell)

    data, seed = pair_inputs(found_on, checked_on), config.score.seed
    result = run_with_model(
        lm, COMMAND, out, settings, data, compute, began, seed=seed, kind=AtlasResult,
        kept=config.kept,
        cautions=pair_cautions(found_on, checked_on),
    )  # fmt: skip
    check_peaks(str(result.run), config.score.keep_peaks)
    return replace(result, report=str(write_report(str(result.run)).resolve()))


def _make(
    lm: LanguageModel,
    config: Atlas,
    found_on: Mapping[str, PairFile],
    checked_on: Mapping[str, PairFile],
    reference: Reference,
    run: Run,
    began: float,
    progress: Progress | None,
    tell: Callable[[str], object],
) -> AtlasResult:
    from headscope.find.translation_scores import translation_score

    # Of the sentences that heads are found on there are more.
    works = check_translations(lm, found_on, config.score, run, config.baseline, progress)
    scores: dict[str, HeadScores] = {}
    for number, (pair, pairs) in enumerate(found_on.items()):
        scores[pair] = translation_score(lm, pairs, config.score, run)
        if progress:
            progress("scoring directions", number + 1, len(found_on))
    write_found_on(run, found_on)
    mean = HeadScores.mean(scores)
    save_scores(run.path, parts_of(scores))
    k = _amount(config, lm)
    rank = mean.rank_used(config.rank)  # one for all directions, so that their sets compare
    how = config.threshold, config.rank, config.inactive
    heads = mean.top(k, rank)
    texts = ([pair.source for pair in file.pairs] for file in checked_on.values())
    basis = Basis.on(lm, texts, avoid=mean.select(config.threshold))
    ready = time.monotonic()
    evidence, details = _check(lm, config, heads, basis, checked_on, reference, run, progress, tell)
    asked, spent = replace(evidence, asked=details.draws), Spent.by(run, evidence, began, ready)
    cases = [removal_case(evidence)]
    return AtlasResult(
        **vars(describe_all(scores, *how)),
        **works,
        first_prompts=first_prompts(lm, found_on, config.score),
        next=going_on(COMMAND, run, Atlas, asked, cases, spent),
        cautions=(
            *cautions(evidence, details),
            *few_sets(evidence, details.draws),
            *resolution(evidence, cases, "sentence"),
        ),
        config=dict(plain(asdict(config))),
        data={
            pair: decode(AtlasData, _about_data(found_on[pair], checked_on[pair], scores[pair]))
            for pair in scores
        },
        directions={pair: describe(part, *how) for pair, part in scores.items()},
        overlap=_overlaps(scores, len(heads), rank),
        evidence=evidence,
        details=details,
        report=str((run.path / "report.html").resolve()),
    )


def _amount(config: Atlas, lm: LanguageModel) -> Amount:
    return config.k if config.k is not None else default_amount(lm.geometry)


def _about_data(find: PairFile, check: PairFile, scores: HeadScores) -> dict[str, Any]:
    return {
        "path": str(find.path),
        "verified_path": str(check.path),
        "digest": find.digest,
        "found_on": len(find.pairs),
        "verified_on": len(check.pairs),
        **{name: scores.config[name] for name in ("units", "aligner", "links_digest")},
    }


def _overlaps(scores: Mapping[str, HeadScores], k: int, rank: Rank) -> AtlasOverlap:
    """Overlap of the top sets of every two directions, beside what chance gives."""
    tops = {pair: part.top(k, rank) for pair, part in scores.items()}
    return AtlasOverlap(k, tuple(overlaps(tops, scores)))


def _check(
    lm: LanguageModel,
    config: Atlas,
    heads: HeadSet,
    basis: Basis,
    checked_on: Mapping[str, PairFile],
    reference: Reference,
    run: Run,
    progress: Progress | None,
    tell: Callable[[str], object],
) -> tuple[Evidence, RemovalDetails]:
    """What the model does as it is, without the top heads, and under their controls."""
    removal = Removal(
        draws=config.draws,
        controls=config.controls,
        threshold=config.threshold,
        ablate=(config.ablate,),
        seed=config.score.seed,
        template=config.score.template,
        chat=config.score.chat,
        answer_only=config.score.answer_only,
        max_new_tokens=config.score.max_new_tokens,
        batch_tokens=config.score.batch_tokens,
    )
    replacements = reference.replacements(lm, removal)
    how = Draws(removal.most_draws, removal.controls, removal.seed)
    under = planned([SelectedHeads(heads)], how, basis, removal.ablate)
    if removal.in_sequence:
        under = tuple(map(in_its_round, under))
    sentences = sum(len(pairs.pairs) for pairs in checked_on.values())
    level = LEVEL if removal.in_sequence == "bet" else None
    run.pace = pacing = Pacing(under, level, count(sentences, "sentence"), tell)

    def measure(wanted: Callable[[Condition], bool]) -> tuple[Evidence, Removed]:
        asked = [*filter(wanted, under)]
        pacing.measuring(asked)
        return removal_run(lm, checked_on, asked, removal, run, replacements, progress)

    evidence, removed = decided({"": under}, measure, leads, LEVEL, removal.in_sequence)
    details = RemovalDetails(
        **about_rank(heads),
        **about_removal([heads], removal, removed),
        draws=removal.most_draws,
        seed=removal.seed,
        ablate=config.ablate,
        reference_text=reference.facts,
    )
    return evidence, details


command = Study(Atlas, atlas, result=AtlasResult, show=show_atlas, usage="pocket --pair en-de")
