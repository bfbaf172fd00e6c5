"""The best heads of a ranking kept alone, in a run folder."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from headscope import options
from headscope.errors import InputError
from headscope.evidence.blocks import draws_remedy, draws_words, tables, verdict
from headscope.evidence.controls import CONTROLS
from headscope.evidence.rows import SELECTED, Condition, Evidence
from headscope.heads import Head, named_scores, resolve_heads
from headscope.progress import Progress
from headscope.results.common import Ablation, BaselineCheck, ComparedResult, Leakage, Ranking
from headscope.runs import Run, encode
from headscope.settings import Nested
from headscope.shown.blocks import HeadSets, Lines, Section, Series, Shown, method_section
from headscope.shown.words import count, fixed, sentence_of
from headscope.studies.baseline import check_translations
from headscope.studies.leakage import check_leakage
from headscope.studies.models import resolved_chat, run_with_model
from headscope.studies.pairs import pair_inputs
from headscope.studies.shows import ablation_facts, leakage_caution, model_facts, named_places
from headscope.studies.study import Study
from headscope.studies.verify.reference import Reference, reference_number, translations
from headscope.studies.verify.removal import (
    VerifyRemoval,
    measured_alone,
    read_test_directions,
)
from headscope.verify.faithfulness import (
    CMD,
    CPR,
    CURVE,
    FAITHFULNESS,
    WAYS,
    Size,
    circuit_evidence,
    planned,
    sizes_of,
)
from headscope.verify.translation import Removal

if TYPE_CHECKING:
    from headscope.lm import LanguageModel

COMMAND = "verify circuit"
#: Heads that a page lists.
LISTED = 20


def _removal(**values: Any) -> Removal:
    """By loss if nothing is said; `--draws` is the number of random rankings of each kind."""
    given: dict[str, Any] = {"measure": ("loss",), "draws": 20, "controls": WAYS, **values}
    return Removal(**given, loss_draws=given["draws"])


@dataclass(frozen=True)
class VerifyCircuit(VerifyRemoval):
    """Keep the best heads of a ranking and replace all others: how much of translation is left?

    At 0.1 to 100 % of the heads, beside random rankings, free and of the same layers.
    """

    removal: Annotated[
        Removal,
        Nested(
            without=("gates", "threshold"),
            changed={
                "measure": options.ONE_MEASURE,
                "draws": options.DRAWS_OF_MEASURE,
                "controls": replace(
                    options.CONTROL,
                    help="How random rankings are drawn: random (any order of all heads), same "
                    "layers (place by place of the same layer); repeatable; without it both.",
                ),
            },
            make=_removal,
        ),
    ] = field(default_factory=_removal)

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.removal.all_draws) != 1 or self.removal.own_measures:
            raise InputError("a circuit has one measure; give --measure loss or --measure text")
        if len(self.removal.ablate) != 1:
            raise InputError("--ablate is given twice; one thing stands in the place of heads")
        if foreign := [name for name in self.removal.controls if name not in WAYS]:
            raise InputError(
                f"the control {foreign[0]!r} draws no rankings; use {' or '.join(WAYS)}"
            )


@dataclass(frozen=True, kw_only=True)
class CircuitDetails(Ranking, Ablation):
    """What was kept: the first of `heads`, best first, `k` of them at each of `shares`.

    `measure` is what faithfulness is of; `draws` are random rankings of each kind.
    """

    heads: tuple[str, ...] = ()
    shares: tuple[float, ...] = ()
    k: tuple[int, ...] = ()
    measure: str = ""
    draws: int = 0
    leakage: Leakage | None = None
    baseline_check: BaselineCheck = field(default_factory=BaselineCheck)


@dataclass(frozen=True, kw_only=True)
class CircuitResult(ComparedResult):
    """The result of `verify circuit`; `selected` heads are kept, and the curve is all sizes."""

    details: CircuitDetails = field(default_factory=CircuitDetails)


def verify_circuit(
    config: VerifyCircuit, out: Path | None = None, progress: Progress | None = None
) -> CircuitResult:
    """Keep the best heads alone, and as many of random rankings; a run that was stopped goes on.

    Raises `InputError` where the model is no better than without any head, and as `verify removal`.
    """
    began = time.monotonic()
    ablate, seed = config.removal.ablate[0], config.removal.seed
    apart = reference_number(ablate)
    directions = read_test_directions(config.pairs, config.model.model, seed, apart)
    leakage = check_leakage(config.heads, directions, config.allow_overlap)
    lm = config.model.load_for(config.execution)
    removal = resolved_chat(lm, config.removal)
    ranking, about = _ranking(lm, config)
    sizes = tuple(
        size
        for size in sizes_of(config.k, lm.geometry)
        if size.k <= len(ranking) or size.k == lm.geometry.total
    )
    conditions = planned(ranking, sizes, lm.geometry, removal.draws, removal.controls, seed, ablate)
    reference = translations(lm, directions, removal) if apart else Reference()
    settings = {
        "settings": replace(config, removal=removal),
        "ranking": list(map(str, ranking)),
        "sizes": sizes,
        "leakage": encode(leakage),
        "reference text": reference.digest,
    }

    def compute(run: Run) -> CircuitResult:
        works = check_translations(lm, directions, removal, run, config.baseline, progress)
        replacements = reference.replacements(lm, removal)
        measured = [each for each in conditions if each.of != CURVE]
        name, statistic, arrays = measured_alone(
            lm, directions, measured, removal, run, replacements, progress
        )
        parts = {
            part: [*own, *(None for _ in range(len(conditions) - len(measured)))]
            for part, own in arrays.items()
        }
        evidence = circuit_evidence(conditions, sizes, parts, (name, statistic), seed)
        result = CircuitResult(
            baseline_works=works["baseline_works"],
            evidence=evidence,
            details=CircuitDetails(
                **about,
                heads=tuple(map(str, ranking)),
                shares=tuple(size.share for size in sizes),
                k=tuple(size.k for size in sizes),
                measure=name,
                draws=removal.draws,
                ablate=ablate,
                reference_text=reference.facts,
                leakage=leakage,
                baseline_check=works["baseline_check"],
            ),
        )
        return replace(result, verdict=verdict(evidence, CPR, curve_of(evidence)))

    return run_with_model(
        lm, COMMAND, out, settings, pair_inputs(directions), compute, began, seed=seed,
        kind=CircuitResult, config=config,
    )  # fmt: skip


def _ranking(lm: LanguageModel, config: VerifyCircuit) -> tuple[tuple[Head, ...], dict[str, Any]]:
    """All heads as scores rank them, or those of a set in its order; by what."""
    heads = resolve_heads(config.heads, None, lm.geometry).heads
    scores = named_scores(config.heads, lm.geometry)
    if scores is None:
        return heads, {}
    heads = tuple(head for head, _ in scores.ranked(config.rank))
    return heads, dict(scores.ranking(config.rank))


def curve_of(evidence: Evidence) -> Condition:
    """The selected ranking at all sizes."""
    return next(each for each in evidence.selected if each.of == CURVE)


def _show(result: CircuitResult, run: Path) -> Shown:
    evidence, details = result.evidence, result.details
    curve = curve_of(evidence)
    measure = evidence.statistics[details.measure]
    base, cpr, cmd = (evidence.level(name, each) for name, each in
                      ((details.measure, None), (CPR, curve), (CMD, curve)))  # fmt: skip
    examples = count(base.examples if base else 0, "sentence")
    random = evidence.draws(CPR, curve, next(iter(evidence.controls)))
    said = []
    if cpr is not None and cmd is not None:
        beside = f", {fixed(random.mean, 3)} for random rankings" if random.each else ""
        said = [f"CPR {fixed(cpr.value, 3)}{beside}; CMD {fixed(cmd.value, 3)}."]
    draws = len(random.each)
    return Shown(
        "The best heads alone",
        "How much of translation is left when only the best heads of a ranking are kept?",
        [sentence_of(result.verdict), *said],
        f"Intervals are over {examples}; {draws_words(draws)}." if draws else "",
        draws_remedy(draws) if draws else "",
        [*result.cautions, *leakage_caution(details.leakage)],
        [
            *model_facts(result.model_name, len(details.heads)),
            ("sentences", str(base.examples if base else "")),
            *ablation_facts(details),
        ],
        [
            Section("Heads", [HeadSets(
                f"The first {min(LISTED, len(details.heads))} heads of the ranking",
                {SELECTED: named_places(details.heads[:LISTED])},
            )]),
            tables(evidence, [CPR, CMD, FAITHFULNESS, details.measure], curve, "sentences"),
            method_section(
                "Faithfulness is (m(C) \u2212 m(0)) / (m(M) \u2212 m(0)): m, the "
                f"{measure.words}, with the heads C kept, none, and all. CPR is its area over the "
                "share of heads kept, CMD the area between it and 1, by trapezoids as MIB (Mueller "
                "et al. 2025) defines them for attention heads and other parts together; feed-"
                "forward layers stay here. Random rankings: any order of all heads, or place by "
                "place a head of the same layer; each is one draw at all sizes."
            ),
        ],
        _figure(evidence, details),
    )  # fmt: skip


def _figure(evidence: Evidence, details: CircuitDetails) -> Lines | None:
    """Faithfulness over the share of heads kept, of the ranking and of random ones."""
    total = evidence.conditions[1].k
    inner = [
        Size(share, k) for share, k in zip(details.shares, details.k, strict=True) if 0 < k < total
    ]
    series: list[Series] = []
    for kind in (SELECTED, *evidence.controls):
        points: list[tuple[float, Any]] = []
        for size in inner:
            condition = next(each for each in evidence.selected if each.k == size.k)
            point: Any = (
                evidence.level(FAITHFULNESS, condition)
                if kind == SELECTED
                else evidence.draws(FAITHFULNESS, condition, kind)
            )
            if point is not None:
                points.append((100 * size.share, point))
        if points:
            series.append(Series.of(kind, points))
    if not series:
        return None
    controls = " and ".join(CONTROLS[name].words for name in evidence.controls)
    return Lines(
        "Faithfulness of the first heads of the ranking",
        tuple(series),
        "% of heads kept",
        evidence.statistics[FAITHFULNESS].axis,
        logarithmic=True,
        note="Larger sets hold the smaller ones, so points are no independent tests",
        band=f"95\u00a0% intervals (selected) and ranges of draws ({controls})",
        references=(("all heads", 1.0), ("no head", 0.0)),
    )


command = Study(VerifyCircuit, verify_circuit, result=CircuitResult, show=_show)
