"""Every head removed by itself, beside what other methods say of it, in a run folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from headscope.data.align import check_aligner
from headscope.errors import InputError, OptionalPart
from headscope.executors import Execution
from headscope.heads import HeadScores, check_geometry, read_scores
from headscope.heads.resolve import MEAN
from headscope.heads.scores import TRANSLATION_SCORE
from headscope.heads.store import check_finished
from headscope.measure.baseline import Rules
from headscope.measure.intervals import resamples
from headscope.measure.ranking import rank_correlations
from headscope.progress import Progress, Steps
from headscope.results.common import ScoredHead
from headscope.results.head_scores import Correlation, RemovedHeads
from headscope.results.removal import KnockoutsResult
from headscope.runs import decode
from headscope.settings import UNSIGNED, Nested, Option, Settings
from headscope.shown.blocks import Cell, Column, Section, Shown, method_section, p_cell, table_of
from headscope.shown.words import MEAN as MEAN_PART
from headscope.shown.words import count
from headscope.studies.baseline import check_translations
from headscope.studies.find.head_scores import Scored, parts_of, scores_run
from headscope.studies.find.translation_score import write_found_on
from headscope.studies.models import PROMPTED, ModelChoice, resolved_chat
from headscope.studies.pairs import (
    PairsChoice,
    aligner_parts,
    first_prompts,
    read_test_directions,
)
from headscope.studies.shows import (
    by_luck,
    candidates,
    few_caution,
    head_sets,
    head_table,
    model_facts,
    more_examples,
    significant,
    spread,
    strongest,
)
from headscope.studies.study import Study
from headscope.studies.survey_plans import SurveyPlan
from headscope.studies.verify.reference import Reference, reference_number, translations
from headscope.verify.removal_translations import Removal
from headscope.verify.removal_translations.conditions import reference_alignment
from headscope.verify.removal_translations.single import COMPARED, single_removal

if TYPE_CHECKING:
    from headscope.data.pairs import PairFile
    from headscope.lm import LanguageModel
    from headscope.runs import Run

COMMAND = "verify heads"
#: Extras of other runs that are scores of their own.
BESIDE = ("previous_token", "previous_token_text")
DRAWS = 1000
#: Model, sentences, settings with chat decided, and what replaces removed heads.
PreparedRemoval: TypeAlias = "tuple[LanguageModel, dict[str, PairFile], Removal, Reference]"
AnyRemoved = TypeVar("AnyRemoved", RemovedHeads, KnockoutsResult)


@dataclass(frozen=True)
class VerifyHeads(Settings):
    """Remove every head by itself: the change of the loss of reference translations.

    By zero and by mean ablation, in nats a token. Backup heads may replace a removed one, so the
    change is a lower bound of a head's effect.
    """

    model: Annotated[ModelChoice, PROMPTED] = field(default_factory=ModelChoice)
    pairs: PairsChoice = field(default_factory=PairsChoice)
    # How translations are prompted.
    removal: Annotated[
        Removal,
        Nested(
            without=(
                "gates",
                "measure",
                "answer_only",
                "draws",
                "controls",
                "loss_draws",
                "ablate",
                "threshold",
                "max_new_tokens",
            )
        ),
    ] = field(default_factory=Removal)
    beside: Annotated[
        tuple[str, ...],
        Option(
            "Run with scores of the same model (translation-score, induction, …) to correlate "
            "with; repeatable.",
            metavar="RUN",
        ),
    ] = field(default=(), metadata=UNSIGNED)
    baseline: Annotated[Rules, Nested(without=("errors",))] = field(default_factory=Rules)
    execution: Execution = field(default_factory=Execution, metadata=UNSIGNED)

    def parts(self) -> Iterator[OptionalPart]:
        """What links words, too."""
        yield from super().parts()
        yield from removing_parts(self)


def verify_heads(
    config: VerifyHeads, out: Path | None = None, progress: Progress | None = None
) -> RemovedHeads:
    """Remove every head by itself and return what that costs the reference translations.

    A run that was stopped goes on where it was. Raises `InputError` for runs of `beside` that are
    not finished, hold no scores, or are of another model.
    """
    seed = config.removal.seed
    apart = reference_number("mean")
    on = removing(config, read_test_directions(config.pairs, config.model.model, seed, apart))
    lm, directions, removal, reference = on
    beside = read_beside(config.beside, lm)

    def score(run: Run) -> dict[str, HeadScores]:
        links = {name: reference_alignment(pairs, run) for name, pairs in directions.items()}
        mean = reference.replacement(lm, "mean", removal.batch_tokens)
        found = single_removal(lm, directions, links, removal, run, mean, progress)
        return {
            name: replace(scores, extra={**scores.extra, **{k: v for k, (v, _) in beside.items()}})
            for name, scores in found.items()
        }

    def complete(result: RemovedHeads, scored: Scored) -> RemovedHeads:
        parts = [scored] if isinstance(scored, HeadScores) else list(scored.values())
        mean = HeadScores.mean({str(n): part for n, part in enumerate(parts)})
        return replace(
            result,
            signature=mean.signature,
            beside={name: place for name, (_, place) in beside.items()},
            correlations=correlations(parts, {k: v for k, (v, _) in beside.items()}, seed),
        )

    told = {name: np.nan_to_num(values).tolist() for name, (values, _) in beside.items()}
    return removal_scores(
        COMMAND, config, on, score, RemovedHeads, complete, out, progress, beside=told
    )


def removing_parts(config: Any) -> Iterator[OptionalPart]:
    """What `removing` needs to link words."""
    if config.removal.measure in (None, ("loss",)):
        yield from aligner_parts(config.pairs, config.model.model, check_aligner)


def removing(config: Any, directions: dict[str, PairFile]) -> PreparedRemoval:
    """What scores of removals begin with; what losses of the sentences lack is told before a model
    is loaded."""
    for pairs in directions.values() if config.removal.measure in (None, ("loss",)) else ():
        check_aligner(pairs)
    lm = config.model.load_for(config.execution)
    removal = resolved_chat(lm, config.removal)
    return lm, directions, removal, translations(lm, directions, removal)


def removal_scores(
    command: str,
    config: Any,
    on: PreparedRemoval,
    score: Callable[[Run], Mapping[str, HeadScores]],
    kind: type[AnyRemoved],
    complete: Callable[[AnyRemoved, Scored], AnyRemoved],
    out: Path | None,
    progress: Progress | None,
    **signed: Any,
) -> AnyRemoved:
    """Score heads by what removals do to translations, in a run folder; first the model as it is
    translates. `signed` counts in the run's signature, too; for the rest see `scores_run`."""
    lm, directions, removal, reference = on
    # And as `Checked` has them.
    works: dict[str, Any] = {
        "reference_text": reference.facts,
        "first_prompts": first_prompts(lm, directions, removal),
    }

    def scored(run: Run, _: Steps | None) -> Scored:
        texts = removal.measure not in (None, ("loss",))  # nothing is taken off references
        rules = config.baseline
        works.update(check_translations(lm, directions, removal, run, rules, progress, texts))
        found = score(run)
        write_found_on(run, directions)
        return parts_of(found)

    settings = {
        "settings": replace(config, removal=removal),
        **signed,
        "reference text": reference.digest,
        "shots": {name: pairs.shots_digest for name, pairs in directions.items()},
    }
    data = {
        name: {"digest": pairs.digest, "path": pairs.path, "examples": len(pairs.pairs)}
        for name, pairs in directions.items()
    }
    return scores_run(
        command, settings, lm, data, out, scored, progress, kind,
        lambda result, scores: replace(complete(result, scores), **works), removal.seed, config,
    )  # fmt: skip


def read_beside(
    folders: Sequence[str], lm: LanguageModel
) -> dict[str, tuple[NDArray[np.float64], str]]:
    """What other runs say of every head, (L, W), and where it is from, by name."""
    found: dict[str, tuple[NDArray[np.float64], str]] = {}
    for folder in folders:
        check_finished(Path(folder))
        scores = read_scores(folder).get(MEAN)
        if scores is None:
            raise InputError(f"{folder}: holds no scores of heads; name a run that found heads")
        check_geometry(scores, lm.geometry, folder)
        weights = scores.provenance.get("weights")
        if weights not in (None, lm.digest):
            raise InputError(
                f"{folder} was found in weights {str(weights)[:12]}…, but this model has "
                f"{lm.digest[:12]}…; name runs of the same model"
            )
        name = scores.method.replace("-", "_")
        columns = {name: scores.values}
        if scores.method == TRANSLATION_SCORE and "chance" in scores.extra:
            columns[f"{name}_chance"] = scores.extra["chance"]
            columns[f"{name}_above_chance"] = scores.values - scores.extra["chance"]
        columns |= {extra: scores.extra[extra] for extra in BESIDE if extra in scores.extra}
        for column, values in columns.items():
            place = column if column not in found else f"{column}_{Path(folder).name}"
            found[place] = values, folder
    return found


def correlations(
    parts: Sequence[HeadScores], beside: Mapping[str, NDArray[np.float64]], seed: int
) -> tuple[Correlation, ...]:
    """Spearman's correlation of single removal, zero and mean, with each score beside it.

    Over several directions the mean change counts, and sentences are drawn within directions,
    alike where there are equally many.
    """
    mask = parts[0].geometry.mask()
    layers = np.nonzero(mask)[0]
    rows: list[dict[str, Any]] = []
    for ablate, name in COMPARED.items():
        changes = [part.statistics[name][:, mask] for part in parts]
        value = np.mean([change.mean(axis=0) for change in changes], axis=0)
        drawn = np.zeros((DRAWS, len(layers)))
        for change in changes:
            random = np.random.default_rng([seed, len(change)])
            for at, weights in resamples(len(change), DRAWS, random, len(layers)):
                drawn[at] += weights @ change / len(change) / len(changes)
        rows += [
            {
                "ablate": ablate,
                "with": column,
                **rank_correlations(value, other[mask], layers, drawn, seed=seed),
            }
            for column, other in beside.items()
            if np.isfinite(other[mask]).all()
        ]
    found: tuple[Correlation, ...] = decode(tuple[Correlation, ...], rows)
    return found


def _show(result: RemovedHeads, run: Path) -> Shown:
    """The heads that cost most, what other methods say of them, and every change."""
    parts: dict[str, Sequence[ScoredHead]] = {"removal": result.scored}
    if result.parts:
        parts = {MEAN_PART: result.scored}
        parts |= {name: part.scored for name, part in result.parts.items()}
    read = [data.examples or 0 for data in result.data.values()]
    sentences, fewest = sum(read), min(read, default=0)
    cautions = [
        "Other heads may replace a removed one, so each change is a lower bound of the head's "
        "effect.",
        *few_caution(fewest, "sentence"),
    ]
    if result.correlations:
        cautions.append(
            "Noise lowers every correlation, so a low one does not show that a score is wrong; "
            f"{count(len(result.correlations), 'correlation')}, not corrected for their number."
        )
    columns = (
        Column("mean_ablation", "Mean ablation", "the change under mean ablation"),
        Column("linked", "Linked, first", "zero ablation, first tokens of linked words"),
        Column("linked_later", "Linked, later", "zero ablation, later tokens of linked words"),
        Column("unlinked", "Unlinked", "zero ablation, tokens without a link"),
        *(Column(key, _named(key).capitalize(), "score of another run") for key in result.beside),
    )
    source = result.reference_text.source if result.reference_text else None
    return Shown(
        "Single removal",
        "How much worse is the reference predicted without each single head?",
        _finding(result, fewest),
        spread(result.scored, count(fewest, "sentence") + (" a direction" * (len(parts) > 1))),
        more_examples(fewest, run),
        cautions,
        [
            *model_facts(result.model_name, len(result.scored)),
            ("directions", ", ".join(result.data)),
            ("sentences", f"{sentences:,}"),
        ],
        [
            Section(
                "Heads",
                [
                    head_sets(
                        "Heads whose removal raises the NLL, best first",
                        {name: significant(heads) for name, heads in parts.items()},
                    )
                ],
            ),
            *([_correlations(result)] if result.correlations else []),
            method_section(
                "Score: how much the NLL of the reference translation rises, in nats a token, "
                "when this head alone writes zeros (mean over sentences of the mean over tokens). "
                "Mean ablation: the head writes its mean output instead"
                + (f", over {source}." if source else ".")
            ),
        ],
        head_table(
            "Change of NLL without each head, nats a token",
            parts,
            columns,
            Column("score", "Change of NLL"),
            significant=True,
            signed=True,
        ),
    )


def _finding(result: RemovedHeads, fewest: int) -> list[str]:
    heads = result.scored
    only = "; they are candidates" * candidates(heads, fewest)
    return [
        f"The NLL rises without {len(significant(heads))} of {count(len(heads), 'head')}, one at a "
        f"time ({by_luck(heads)}{only}).",
        strongest(heads, " nats a token"),
    ]


def _correlations(result: RemovedHeads) -> Section:
    table = table_of(
        "Spearman correlation of single removal with other scores",
        [(f"{_named(each.other)}, {each.ablate} ablation", each) for each in result.correlations],
        {
            "all heads": lambda each: Cell.of(each.all, 2),
            "within layers": lambda each: Cell.of(each.within_layers, 2),
            "p within layers": lambda each: p_cell(each.p_within_layers),
            "run": lambda each: result.beside.get(each.other),
        },
        "within layers: ranks centred in each layer, since heads of one depth may be alike in "
        "many ways; intervals over the sentences of this run, p by permuting heads inside layers",
    )
    return Section("Other scores of the same heads", [table], brief=True)


def _named(key: str) -> str:
    return key.replace("_", " ")


def _survey(plan: SurveyPlan) -> VerifyHeads | str:
    if plan.quick:
        return "it reads the sentences twice for every head: without --quick it is run"
    pairs = plan.pairs()
    if not (pairs.data or pairs.pair):  # twenty directions, each sentence read 193 times
        pairs = replace(pairs, limit=10)
    config = VerifyHeads(plan.model, pairs, Removal(seed=plan.data.seed, chat=plan.data.chat))
    return plan.missing(plan.data.pairs, "--pairs en-de=FILE") or config


command = Study(
    VerifyHeads,
    verify_heads,
    result=RemovedHeads,
    show=_show,
    survey=_survey,
    usage="--pair en-de --limit 20",
)
