"""How token alignment heads form during training, beside how well the model translates.

Token Alignment Heads (ICLR 2026), section on formation: over the checkpoints of one training, the
shares of the head classes, how far the set of each checkpoint is already the last one's, and the
quality of its translations.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import numpy as np

from headscope import options
from headscope.compare.artifacts import Artifact, check_one_geometry, read_artifacts
from headscope.compare.classes_shares import class_shares
from headscope.compare.overlap_sets import overlaps
from headscope.data.pairs import PairFile
from headscope.errors import InputError, MissingExtra, OptionalPart
from headscope.estimates import Estimate
from headscope.find.scoring import RunPart
from headscope.find.translation_score_config import TranslationScore
from headscope.heads import (
    Amount,
    Geometry,
    HeadScores,
    HeadSet,
    Rank,
    about_rank,
    check_thresholds,
    count_of,
    default_amount,
    read_scores,
    save_scores,
)
from headscope.heads.geometry import keys_of
from headscope.measure import bootstrap_difference, chrf, chrf_from_statistics
from headscope.measure.baseline import Rules
from headscope.progress import Progress
from headscope.results.classes import Classes
from headscope.results.common import Checked, Ranking
from headscope.results.formation import (
    CheckpointRow,
    FormationResult,
    Quality,
    SeriesData,
    Skipped,
)
from headscope.runs import Run, carry_out, decode, encode
from headscope.runs.folder import read_records
from headscope.settings import MadeBy, Nested, Option, Settings
from headscope.studies.baseline import Works, check_translations
from headscope.studies.compare.checkpoints import Checkpoint, named_checkpoints
from headscope.studies.compare.formation_show import show_formation
from headscope.studies.find.head_scores import parts_of
from headscope.studies.find.translation_score import describe_all, write_found_on
from headscope.studies.models import (
    POCKET,
    ModelChoice,
    cautions_of,
    dtype_name,
    model_inputs,
    model_provenance,
    resolved_chat,
    template_inputs,
)
from headscope.studies.pairs import (
    PairsChoice,
    aligner_parts,
    find_and_check,
    pair_cautions,
    pair_inputs,
)
from headscope.studies.study import Study
from headscope.verify.removal_translations import translate

if TYPE_CHECKING:
    from headscope.lm import LanguageModel

COMMAND = "compare formation"
CHECKPOINT = "formation checkpoint"


@dataclass(frozen=True)
class Formation(Settings):
    """Show how heads form: shares of the classes, overlap with the last set, and chrF++.

    Without --data the pocket model's own sentences are used: dev to find heads, test to translate.
    Data given is split in two by a hash of the source sentence.
    """

    # In training order.
    checkpoints: Annotated[tuple[Checkpoint, ...], MadeBy(named_checkpoints)]
    pairs: PairsChoice = field(default_factory=PairsChoice)
    score: TranslationScore = field(default_factory=TranslationScore)
    threshold: options.Threshold = 0.1
    inactive: options.Inactive = 0.0
    # None: 20 heads, or 15 % below 256.
    k: Annotated[
        Amount | None,
        Option("Top heads compared with the last checkpoint's, besides.", metavar="K", typed=str),
    ] = None
    rank: options.Rank = "above-chance"
    check: options.VerifyLimit = 20
    skip_unreadable: Annotated[bool, Option("Go on without checkpoints that cannot be read.")] = (
        False
    )
    baseline: Annotated[Rules, Nested(without=("errors",))] = field(default_factory=Rules)

    def __post_init__(self) -> None:
        check_thresholds(self.threshold, self.inactive)
        super().__post_init__()

    def parts(self) -> Iterator[OptionalPart]:
        """What the checkpoints need, and what links words."""
        from headscope.find.translation_score_config import check_aligner

        yield from super().parts()
        if not self.of_scores:
            for checkpoint in self.checkpoints:
                yield from checkpoint.model.parts()
            yield from aligner_parts(
                self.pairs, POCKET, lambda pairs: check_aligner(pairs, self.score)
            )

    @property
    def of_scores(self) -> bool:
        """Whether the checkpoints are scores alone, so that no model is loaded."""
        return all(checkpoint.scores for checkpoint in self.checkpoints)


@dataclass(frozen=True)
class Opened:
    """What a checkpoint told when it was opened: everything but the model itself."""

    checkpoint: Checkpoint
    geometry: Geometry
    inputs: Mapping[str, str]
    dtype: str
    cautions: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class MeasuredCheckpoint:
    """A checkpoint with the result of its run, its scores and its translations by direction."""

    opened: Opened
    result: Mapping[str, Any]
    scores: Mapping[str, HeadScores]
    outputs: Sequence[Sequence[str]]

    @property
    def mean(self) -> HeadScores:
        """The mean over directions, or the scores of the only one."""
        return self.scores["mean"]


def formation(
    config: Formation, out: Path | None = None, progress: Progress | None = None
) -> FormationResult:
    """Score and check every checkpoint, one model in memory at a time.

    All checkpoints are opened before any work begins, so that one that cannot be read, or is of
    another geometry, is told at once. What was done is kept by batch and by checkpoint: a run
    that was stopped goes on where it was. Each checkpoint is a run of its own under
    `checkpoints/`, which `compare overlap` and `--heads` take.

    Raises:
        InputError: for a checkpoint that cannot be read (unless `skip_unreadable`), fewer than
            two readable ones, differing geometries, or data that cannot be used.
    """
    from headscope.find.translation_score_config import check_aligner

    began = time.monotonic()
    if config.of_scores:
        return _from_scores(config, out, began)
    # The sentences of the pocket model's world are for a series of its checkpoints alone.
    foreign = next(
        (checkpoint.model.model for checkpoint in config.checkpoints if not checkpoint.bundled),
        POCKET,
    )
    found_on, checked_on = find_and_check(config.pairs, foreign, config.check, config.score.seed)
    for pairs in found_on.values():
        check_aligner(pairs, config.score)
    # Only reading weights tells which checkpoints have to be skipped; else they can wait.
    first = ModelChoice.load if config.skip_unreadable else ModelChoice.load_for
    opened, skipped = _open_all(config, first, progress)
    geometry = check_one_geometry(
        (
            (f"checkpoint {checkpoint.checkpoint.name}", checkpoint.geometry)
            for checkpoint in opened
        ),
        "a series is of one model, so name checkpoints of one training (models of any geometry: "
        "headscope compare classes)",
    )
    k = config.k if config.k is not None else default_amount(geometry)
    count_of(k, geometry.total)
    settings = {
        "pairs": config.pairs,
        "score": config.score,
        "threshold": config.threshold,
        "k": config.k,
        "rank": config.rank,
        "inactive": config.inactive,
        "check": config.check,
        "baseline": config.baseline,
        "checkpoints": [checkpoint.checkpoint.name for checkpoint in opened],
        "skipped": [checkpoint.name for checkpoint in skipped],
        "computed_in": [checkpoint.dtype for checkpoint in opened],
    }
    inputs = {
        f"{checkpoint.checkpoint.name} {what}": digest
        for checkpoint in opened
        for what, digest in checkpoint.inputs.items()
    } | pair_inputs(found_on, checked_on)

    def about() -> dict[str, Any]:
        if not config.skip_unreadable:
            _open_all(config, ModelChoice.load, progress)
        labels = [checkpoint.checkpoint.label for checkpoint in opened]
        return {"models": labels, "seed": config.score.seed}

    def compute(run: Run) -> FormationResult:
        measured: list[MeasuredCheckpoint] = []
        for number, each in enumerate(opened):
            # Early checkpoints are not expected to translate; the last one is.
            rules = config.baseline if each is opened[-1] else None
            measured.append(_measure(each, config, found_on, checked_on, run, progress, rules))
            if progress:
                progress("checkpoints", number + 1, len(opened))
        write_found_on(run, found_on)
        run.write_jsonl("outputs.jsonl", translations(checked_on, measured))
        tokenizers = {each.inputs["tokenizer"] for each in opened}
        last = decode(Checked, measured[-1].result)
        ranking, rows = series(measured, checked_on, k, config)
        return FormationResult(
            baseline_works=last.baseline_works,
            baseline_check=last.baseline_check,
            rank=ranking.rank,
            rank_note=ranking.rank_note,
            geometry=geometry.as_dict(),
            threshold=config.threshold,
            inactive=config.inactive,
            k=count_of(k, geometry.total),
            last=opened[-1].checkpoint.name,
            checkpoints=rows,
            skipped=tuple(skipped),
            same_tokenizer=len(tokenizers) == 1,
            data={
                pair: SeriesData(
                    path=pairs.path,
                    digest=pairs.digest,
                    found_on=len(pairs.pairs),
                    verified_on=len(checked_on[pair].pairs),
                    verified_path=checked_on[pair].path,
                )
                for pair, pairs in found_on.items()
            },
            cautions=tuple(dict.fromkeys(said for each in opened for said in each.cautions)),
        )

    return carry_out(
        COMMAND, out, settings, inputs, compute, began, about, kind=FormationResult,
        cautions=pair_cautions(found_on, checked_on),
    )  # fmt: skip


def _from_scores(config: Formation, out: Path | None, began: float) -> FormationResult:
    """The series of scores that files hold: no classes, no translations."""
    if config.pairs.data:
        raise InputError(
            "--scores reads scores, so there is nothing to do with --data; leave it out"
        )
    checkpoints = config.checkpoints
    artifacts = read_artifacts([each.scores for each in checkpoints], mean_only=True)
    geometry = check_one_geometry((each.place, each.geometry) for each in artifacts)
    means = [each.scores for each in artifacts if each.scores is not None]
    if len(means) < len(artifacts):
        place = next(each.place for each in artifacts if each.scores is None)
        raise InputError(
            f"{place}: has no score for every head, which a series needs; leave it out"
        )
    if len(methods := sorted({scores.method for scores in means})) > 1:
        raise InputError(
            f"the files hold scores of several methods ({', '.join(methods)}), and a series is of "
            "one; name one list of each, as in FILE#LIST"
        )
    k = config.k if config.k is not None else default_amount(geometry)
    size = count_of(k, geometry.total)
    settings = {
        **{name: getattr(config, name) for name in ("threshold", "k", "rank")},
        "checkpoints": [each.name for each in checkpoints],
    }
    inputs = {each.name: own.digest for each, own in zip(checkpoints, artifacts, strict=True)}
    about = {"models": [each.label for each in checkpoints]}

    def compute(run: Run) -> FormationResult:
        measured = [
            MeasuredCheckpoint(
                Opened(each, geometry, {"model": digest}, ""), {}, {"mean": mean}, ()
            )
            for each, digest, mean in zip(checkpoints, inputs.values(), means, strict=True)
        ]
        ranking, rows = series(measured, {}, k, config)
        return FormationResult(
            rank=ranking.rank,
            rank_note=ranking.rank_note,
            geometry=geometry.as_dict(),
            threshold=config.threshold,
            inactive=config.inactive,
            method=methods[0],
            k=size,
            last=checkpoints[-1].name,
            checkpoints=rows,
            skipped=(),
            same_tokenizer=True,
            data={},
        )

    return carry_out(COMMAND, out, settings, inputs, compute, began, about, kind=FormationResult)


def _open_all(
    config: Formation, load: Callable[[ModelChoice], LanguageModel], progress: Progress | None
) -> tuple[list[Opened], list[Skipped]]:
    """Every checkpoint that can be read, by `load`, and the others with the reason why not."""
    opened: list[Opened] = []
    skipped: list[Skipped] = []
    for number, checkpoint in enumerate(config.checkpoints):
        try:
            lm = load(checkpoint.model)
        except MissingExtra:
            raise  # a package is missing here, and the checkpoint is not to blame
        except InputError as error:
            skipped.append(Skipped(checkpoint.name, str(error)))
        else:
            chat = resolved_chat(lm, config.score).chat
            inputs = model_inputs(lm) | {"chat": str(chat)}
            inputs |= template_inputs(lm) if chat else {}
            said = cautions_of(lm, bool(chat))
            opened.append(Opened(checkpoint, lm.geometry, inputs, dtype_name(lm), said))
            del lm
            gc.collect()
        if progress:
            progress("opening checkpoints", number + 1, len(config.checkpoints))
    if skipped and not config.skip_unreadable:
        more = f" (and {len(skipped) - 1} more)" if len(skipped) > 1 else ""
        raise InputError(
            f"checkpoint {skipped[0].name}{more} cannot be read: "
            f"{skipped[0].reason.rstrip('.')}; repair it, or go on without it by "
            "--skip-unreadable"
        )
    if len(opened) < 2:
        raise InputError(
            f"only {len(opened)} of {len(config.checkpoints)} checkpoints can be read, and a "
            f"series needs two; {skipped[0].name}: {skipped[0].reason}"
        )
    return opened, skipped


def _measure(
    opened: Opened,
    config: Formation,
    found_on: Mapping[str, PairFile],
    checked_on: Mapping[str, PairFile],
    run: Run,
    progress: Progress | None,
    rules: Rules | None,
) -> MeasuredCheckpoint:
    """Scores and translations of one checkpoint, in a run of its own that is finished once."""
    settings = {
        "score": config.score,
        "check": config.check,
        "threshold": config.threshold,
        "rank": config.rank,
        "inactive": config.inactive,
        "baseline": rules,
        "computed_in": opened.dtype,
    }
    inputs = {**opened.inputs, **pair_inputs(found_on, checked_on)}
    place = run.path / "checkpoints" / quote(opened.checkpoint.name, safe="@ ")

    def compute(own: Run) -> dict[str, Any]:
        from headscope.find.translation_scores import translation_score

        lm = opened.checkpoint.model.load()
        named = {"model": opened.checkpoint.label, "seed": config.score.seed}
        own.provenance |= model_provenance(lm) | named
        shared = config.score.decode == "reference" and config.score.aligner != "llm"
        scores: dict[str, HeadScores] = {}
        for number, (pair, pairs) in enumerate(found_on.items()):
            if shared:
                _copy_links(RunPart(run, pair), RunPart(own, pair))
            scores[pair] = translation_score(lm, pairs, config.score, own)
            if shared:
                _copy_links(RunPart(own, pair), RunPart(run, pair))
            if progress:
                progress(f"{opened.checkpoint.name}: scoring", number + 1, len(found_on))
        save_scores(own.path, parts_of(scores))
        write_found_on(own, found_on)
        if "all" not in own.read_part("outputs"):
            outputs = translate(
                lm,
                list(checked_on.values()),
                HeadSet(lm.geometry, ()),
                config.score.template,
                config.score.chat,
                config.score.max_new_tokens,
                config.score.batch_tokens,
                config.score.answer_only,
            )
            own.append_part("outputs", "all", outputs)
        works: Works | dict[str, Any] = {}
        if rules is not None:
            works = check_translations(lm, checked_on, config.score, own, rules)
        del lm
        gc.collect()
        described = describe_all(scores, config.threshold, config.rank, config.inactive)
        return {**encode(described), **encode(works)}

    result = carry_out(CHECKPOINT, place, settings, inputs, compute)
    outputs: list[list[str]] = read_records(place / "parts" / "outputs.jsonl")["all"]
    return MeasuredCheckpoint(opened, result, read_scores(place), outputs)


def series(
    measured: Sequence[MeasuredCheckpoint],
    checked_on: Mapping[str, PairFile],
    k: Amount,
    config: Formation,
) -> tuple[Ranking, tuple[CheckpointRow, ...]]:
    """What the top sets are ranked by, and the checkpoints, each beside the last one.

    Scores alone have no classes and no chrF++.
    """
    threshold, score = config.threshold, config.score
    # All by the same: a set by score says little beside one by score minus chance.
    ranking = about_rank(*(checkpoint.mean.top(k, config.rank) for checkpoint in measured))
    rank: Rank = "score" if ranking["rank_note"] else config.rank
    tops = [checkpoint.mean.top(k, rank) for checkpoint in measured]
    last = measured[-1]
    final, final_top = last.mean.select(threshold), tops[-1]
    rows = []
    for row, top in zip(measured, tops, strict=True):
        name, alone = row.opened.checkpoint.name, bool(row.opened.checkpoint.scores)
        shares = class_shares(
            Artifact(name, name, row.mean.geometry, row.mean), threshold, config.inactive
        )
        aligned = row.mean.select(threshold)
        (near,) = overlaps({"a": aligned, "b": final}, {"a": row.mean, "b": last.mean})
        (near_top,) = overlaps({"a": top, "b": final_top})
        directions = {
            pair: Quality(chrf=quality([pairs], [made], score))
            for (pair, pairs), made in zip(checked_on.items(), row.outputs, strict=True)
        }
        rows.append(
            CheckpointRow(
                name=name,
                model=row.opened.checkpoint.label,
                revision=row.opened.checkpoint.model.revision,
                step=row.opened.checkpoint.step,
                stage=row.opened.checkpoint.stage,
                digest=row.opened.inputs["model"],
                shares=Classes() if alone else shares.shares,
                counted_over=shares.counted_over,
                counts=Classes() if alone else shares.counts,
                above_chance=None if alone else shares.shares_above_chance,
                counts_above_chance=None if alone else shares.counts_above_chance,
                above_threshold=len(aligned) / shares.total if alone else None,
                mean_score=shares.mean_score,
                highest=shares.highest,
                overlap_with_last=near.recall,
                overlap_with_last_expected=len(aligned) / shares.total,
                top_overlap_with_last=near_top.recall,
                top_overlap_with_last_expected=len(top) / shares.total,
                p_value=near.p_value,
                rank_correlation_with_last=near.rank_correlation,
                heads=keys_of(aligned),
                chrf=Estimate()
                if alone
                else quality(list(checked_on.values()), row.outputs, score),
                directions=directions,
            )
        )
    return Ranking(rank, ranking["rank_note"]), tuple(rows)


def quality(
    directions: Sequence[PairFile], outputs: Sequence[Sequence[str]], score: TranslationScore
) -> Estimate:
    """chrF++ of the outputs, the plain mean over directions, with its bootstrap interval.

    Sentences are resampled within directions, those of equal length alike, as in removals (see
    `bootstrap_difference`): the interval is that of the difference to nothing, which has 0.
    """
    counted = [
        chrf(made, [pair.target for pair in pairs.pairs])
        for pairs, made in zip(directions, outputs, strict=True)
    ]
    parts = [measured_chrf.statistics for measured_chrf in counted]
    interval = bootstrap_difference(
        parts,
        [np.zeros_like(part) for part in parts],
        chrf_from_statistics,
        score.bootstrap_draws,
        score.seed,
        score.level,
    )
    return replace(interval, value=fmean(measured_chrf.value for measured_chrf in counted))


def translations(
    checked_on: Mapping[str, PairFile], measured: Sequence[MeasuredCheckpoint]
) -> Iterator[dict[str, str]]:
    """Every translation of every checkpoint."""
    for checkpoint in measured:
        for (pair, pairs), texts in zip(checked_on.items(), checkpoint.outputs, strict=True):
            for sentence, text in zip(pairs.pairs, texts, strict=True):
                yield {
                    "direction": pair,
                    "checkpoint": checkpoint.opened.checkpoint.name,
                    "id": sentence.id,
                    "source": sentence.source,
                    "reference": sentence.target,
                    "output": text,
                }


def _copy_links(source: RunPart, target: RunPart) -> None:
    """Let all checkpoints share the word links, where these do not depend on the model.

    A statistical aligner has no seed: fitted anew for every checkpoint its links would differ, and
    with them the scores. An annotator links a model's own tokens, and greedy outputs are each
    model's own, so those are not shared.
    """
    links = source.record("alignment")
    if links is not None and target.record("alignment") is None:
        target.keep_record("alignment", links)


command = Study(
    Formation,
    formation,
    result=FormationResult,
    show=show_formation,
    loads=lambda config: not config.of_scores,
    usage="pocket --pair en-de --limit 50",
)
