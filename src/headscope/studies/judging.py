"""Rankings of several methods judged by the same conditions, each of which is measured once."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from numpy.typing import NDArray

from headscope.ablations import KINDS, AblateName
from headscope.errors import InputError
from headscope.estimates import Draws, Estimate, Floats
from headscope.evidence.blocks import LEVEL, draws_remedy, draws_words
from headscope.evidence.rows import SELECTED, Condition, Evidence
from headscope.find.regression import random_gates
from headscope.heads import Head, count_of, named_scores
from headscope.measure.intervals import resampled_scores
from headscope.measure.ranking import centred, correlation, mid_ranks, rank_correlations
from headscope.measure.statistics import counted_mean, p_draws
from headscope.progress import Progress
from headscope.results.methods import Judgement, JudgesResult
from headscope.runs import Run
from headscope.shown.blocks import Cell, Forest, Gap, Section, Shown, Table, grid, p_cell
from headscope.shown.words import confidence, count, enumeration, fixed, p_value
from headscope.studies.models import run_with_model
from headscope.studies.pairs import PairsChoice
from headscope.studies.survey_plans import SurveyPlan
from headscope.studies.tasks import TaskChoice
from headscope.studies.verify.circuit import MEASURED, VerifyCircuit, curve_of, read_examples
from headscope.verify.faithfulness import (
    CMD,
    CPR,
    CURVE,
    circuit_evidence,
    circuits,
    random_rankings,
    sizes_of,
)
from headscope.verify.translation import Removal

if TYPE_CHECKING:
    from headscope.lm import LanguageModel

COMMAND = "survey --judge"
#: Examples that are judged by, random rankings, and random sets of heads, if nothing is said.
EXAMPLES, DRAWS, SETS = 100, 20, 200
#: The share of the heads that a set holds; at least two, since single heads are found by.
SHARE, LEAST = 0.05, 2
RANDOM = "random"
PREDICTION = "prediction"
#: The judge that methods are sorted by.
FIRST = "CPR zero"


def circuit_settings(plan: SurveyPlan, draws: int = DRAWS) -> VerifyCircuit:
    """How one ranking would be judged by itself, with `--ablate mean`."""
    data = plan.data
    removal = Removal(
        ablate=("mean",),
        draws=draws,
        controls=(RANDOM,),
        chat=data.chat if plan.by_pairs else None,  # tasks say it themselves
        seed=data.seed,
    )
    pairs = PairsChoice(shots=data.shots)
    if plan.by_pairs:
        pairs = replace(plan.pairs("verify"), limit=plan.judged)
    tasks = TaskChoice() if plan.by_pairs else plan.task()
    return VerifyCircuit("", model=plan.model, pairs=pairs, removal=removal, tasks=tasks)


def judges(
    plan: SurveyPlan,
    found: Mapping[str, str],
    draws: int,
    sets: int,
    out: Path,
    progress: Progress | None = None,
    tell: Callable[[str], None] | None = None,
) -> JudgesResult:
    """Judge the runs of methods, by name, in a run folder of their own.

    The best heads of every ranking, and of random ones, are kept as `verify circuit` does, with
    each kind of ablation; and random sets of heads are removed, whose harm the sum of the scores of
    their heads is to predict. What is the same for several rankings is measured once.

    Raises `InputError` if no method ranks heads, or nothing can be judged on these data.
    """
    began, seed = time.monotonic(), plan.data.seed
    examples = read_examples(circuit_settings(plan, draws), *KINDS)
    lm = plan.model.load_for()
    geometry = lm.geometry
    size, sizes = max(LEAST, count_of(SHARE, geometry.total)), sizes_of((), geometry)
    if geometry.total < 2 * LEAST:
        raise InputError(f"a model of {count(geometry.total, 'head')} has no rankings to judge")
    removal = replace(examples.resolved(lm), ablate=get_args(AblateName))
    scored: dict[str, dict[Head, float]] = {}
    unjudged: dict[str, str] = {}
    for name, place in found.items():
        try:
            scores = named_scores(place, geometry)
            examples.leakage(place)
        except InputError as error:
            unjudged[name] = str(error)
            continue
        if scores is None:
            unjudged[name] = "it chooses a set and ranks no heads"
        else:
            scored[name] = dict(scores.ranked(plan.data.rank))
    if not scored:
        why = "; ".join(f"{name}: {why}" for name, why in unjudged.items())
        raise InputError(f"no method has a ranking that can be judged ({why})")
    rankings = {name: tuple(own) for name, own in scored.items()}
    reference = examples.reference(lm, removal)
    drawn = random_rankings(tuple(geometry.heads()), geometry, draws, seed, RANDOM)
    removed = random_gates(geometry, sets, size, seed)
    settings = {
        "settings": examples.config,
        "removal": removal,
        "rankings": {name: _digest(own) for name, own in scored.items()},
        "sets": sets,
        "reference text": reference.digest,
    }

    def compute(run: Run) -> JudgesResult:
        works = examples.check(lm, removal, run, progress)
        others = {(RANDOM, at): order for at, order in enumerate(drawn)}

        def kept(kind: str, first: Any, rest: Mapping[Any, Any]) -> list[tuple[str, Condition]]:
            orders = {(SELECTED, None): first, **rest}
            planned = circuits(orders, sizes, geometry, seed, kind)
            return [("" if each.of == CURVE else each.key, each) for each in planned]

        curves = {
            (name, kind): kept(kind, ranking, others)
            for name, ranking in rankings.items()
            for kind in KINDS
        }
        gone = [
            Condition(RANDOM, k=size, gate=0.0, draw=at, heads=tuple(map(str, own)))
            for at, own in enumerate(removed)
        ]
        every = {key: each for key, each in chain(*curves.values()) if key}
        every |= {each.key: each for each in gone}
        if tell is not None:
            tell(f"{count(len(rankings), 'ranking')} to judge: {len(every)} passes of the examples")
        more = run, reference.replacements(lm, removal), progress
        which, arrays, _ = examples.measured(lm, removal, [*every.values()], *more)
        numbers = {part: dict(zip(every, own, strict=True)) for part, own in arrays.items()}
        measure = MEASURED[which]

        def table(planned: Sequence[tuple[str, Condition]]) -> Evidence:
            parts = {part: [own.get(key) for key, _ in planned] for part, own in numbers.items()}
            return circuit_evidence([each for _, each in planned], sizes, parts, measure, seed)

        found, random, failed = list[Judgement](), dict[str, Draws](), dict[str, str]()
        for at, ((name, kind), planned) in enumerate(curves.items()):
            if progress:
                progress("judging", at, len(curves))
            try:
                evidence = table(planned)
            except InputError as error:
                failed[kind] = str(error)  # of every ranking
                continue
            curve = curve_of(evidence)
            for area in (CPR, CMD):
                judge, level = f"{area.upper()} {kind}", evidence.level(area, curve)
                test = evidence.against(area, curve)[RANDOM]
                random[judge] = evidence.draws(area, curve, RANDOM)
                if level is not None:
                    found.append(
                        Judgement(
                            level.value, level.low, level.high, method=name, judge=judge,
                            difference=test.difference, p_draws=test.p_draws,
                        )
                    )  # fmt: skip
        if not found:
            raise InputError(next(iter(failed.values())))
        harms = [[own[each.key] for each in gone] for own in numbers.values()]
        predicted, random[PREDICTION] = _predictions(scored, drawn, removed, harms, measure, seed)
        result = JudgesResult(
            **works,
            tasks=tuple(numbers),
            measure=measure[0],
            examples=sum(len(own[0]) for own in harms),
            draws=draws,
            sets=len(removed),
            size=size,
            judgements=(*found, *predicted),
            random=random,
            unjudged={**unjudged, **failed},
            reference_text=reference.facts,
        )
        first, second, *_ = [*result.of(FIRST), None, None]
        if first is None or second is None:
            return result
        both = table(kept("zero", rankings[first], {(RANDOM, 0): rankings[second]}))
        return replace(result, ahead=both.against(CPR, curve_of(both))[RANDOM].difference)

    return run_with_model(
        lm, COMMAND, out, settings, examples.digests, compute, began, kind=JudgesResult, seed=seed
    )


def _digest(scores: Mapping[Head, float]) -> str:
    written = repr([(str(head), score) for head, score in scores.items()])
    return hashlib.sha256(written.encode()).hexdigest()


def _predictions(
    scored: Mapping[str, Mapping[Head, float]],
    drawn: Sequence[Sequence[Head]],
    removed: Sequence[Sequence[Head]],
    harms: Sequence[Sequence[NDArray[Any]]],
    measure: tuple[str, Any],
    seed: int,
) -> tuple[list[Judgement], Draws]:
    """Spearman's correlation of the harm of removed sets, by part the numbers of their examples,
    with the sum of their scores; of random rankings with that of their places."""
    statistic = measure[1]
    score = statistic.score or counted_mean
    values = [np.array([float(score(each.sum(axis=0))) for each in own]) for own in harms]
    again = [resampled_scores(own, score, seed=[seed, len(own[0])]) for own in harms]
    harm, resampled = (statistic.sign * np.mean(each, axis=0) for each in (values, again))

    def sums(scores: Mapping[Head, float]) -> Floats:
        return np.array([sum(scores[head] for head in own) for own in removed])

    places = [{head: -float(at) for at, head in enumerate(order)} for order in drawn]
    random = Draws.of([float(_rank_correlation(harm, sums(own))) for own in places])
    found, layers = [], np.zeros(len(removed))
    for name, scores in scored.items():
        known = rank_correlations(harm, sums(scores), layers, resampled, 1, seed)["all"]
        ends = [np.nan if each is None else each for each in known.values()]
        p = None if np.isnan(ends[0]) else p_draws(-ends[0], -np.array(random.each))
        found.append(Judgement(*ends, method=name, judge=PREDICTION, p_draws=p))
    return found, random


def _rank_correlation(one: Floats, other: Floats) -> Floats:
    return correlation(centred(mid_ranks(one)), centred(mid_ranks(other)))


@contextmanager
def tokens_of(lm: LanguageModel) -> Iterator[dict[str, float]]:
    """Counts the tokens that go through all layers, padding included: `tokens` without gradients,
    `gradient_tokens` with; those of some layers alone count by their share."""
    import torch

    layers, counted = lm.decoder_layers, {"tokens": 0.0, "gradient_tokens": 0.0}

    def counts(module: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> None:
        states = args[0] if args else named["hidden_states"]
        kind = "gradient_tokens" if torch.is_grad_enabled() else "tokens"
        counted[kind] += states.shape[:-1].numel() / len(layers)

    hooks = [layer.register_forward_pre_hook(counts, with_kwargs=True) for layer in layers]
    try:
        yield counted
    finally:
        for hook in hooks:
            hook.remove()


def show_judges(found: JudgesResult, shown: Shown) -> Shown:
    """The page of a survey whose methods are judged: which ranks the right heads."""
    first, *others = (found.of(FIRST) or found.of(found.judgements[0].judge)).values()
    judge, random = first.judge, found.random[first.judge]
    gap, p = first.difference or Estimate(), 1.0 if first.p_draws is None else first.p_draws
    best = "best" if gap.low > 0 and p <= LEVEL else "highest, not shown to be better than random"
    beside = f"random rankings {fixed(random.mean, 3)}, p {p_value(p)}"
    said = [f"By {judge}, {first.method} is {best}: {fixed(first.value, 3)} ({beside})."]
    if found.ahead is not None and others:
        ahead = f"{fixed(found.ahead.value, 3)} {confidence(found.ahead.low, found.ahead.high, 3)}"
        word = "The next is" if found.ahead.low > 0 else "Not told apart from the next,"
        said.append(f"{word} {others[0].method}: {ahead} lower.")
    unjudged = [f"{name}: {why}" for name, why in found.unjudged.items()]
    return replace(
        shown,
        title="Which method ranks the right heads",
        lead=f"Which ranking is enough for {enumeration(found.tasks)}, and predicts what removing "
        "heads does?",
        finding=said,
        uncertainty=f"Intervals are over {count(found.examples, 'example')}; "
        f"{draws_words(found.draws)}.",
        remedy=draws_remedy(found.draws),
        cautions=[*shown.cautions, *([f"Not judged: {'; '.join(unjudged)}."] if unjudged else [])],
        figure=_forest(found),
        sections=[
            Section("Judges", _tables(found)),
            *([Section("Agreement of the methods", [shown.figure])] if shown.figure else []),
            *shown.sections,
        ],
    )


def _tables(found: JudgesResult) -> list[Table]:
    """Methods × judges: what they say, and how often random rankings do as well."""
    by = {judge: found.of(judge) for judge in found.random}
    names, random = tuple(next(iter(by.values()))), "random rankings"
    return [
        grid(
            "Methods by judges",
            (*names, random),
            by,
            lambda name, judge: Cell.of(
                found.random[judge] if name == random else by[judge].get(name)
            ),
            note="CPR: area under faithfulness over the share of heads kept, more is better; CMD: "
            "area between it and 1, less is better; by what replaces the other heads. Prediction: "
            f"rank correlation of the {found.measure} without each of {found.sets} random sets of "
            f"{found.size} heads with the sum of the scores of these. Intervals over examples; of "
            "random rankings mean and range",
        ),
        grid(
            "p over random rankings",
            names,
            by,
            lambda name, judge: p_cell(by[judge][name].p_draws if name in by[judge] else None),
            note="One-sided, of each method and judge by itself",
        ),
    ]


def _forest(found: JudgesResult) -> Forest:
    """CPR of each ranking minus that of random ones."""
    rows = []
    by = {kind: found.of(f"CPR {kind}") for kind in KINDS}
    for name in next(own for own in by.values() if own):
        gaps = []
        for kind, own in by.items():
            if name in own and (gap := own[name].difference) is not None:
                ends = (gap.low, gap.high) if gap.bounded else (None, None)
                gaps.append(Gap(kind, gap.value, *ends, p=own[name].p_draws))
        rows.append((name, tuple(gaps)))
    return Forest(
        "CPR minus that of random rankings, by what replaces heads",
        tuple(rows),
        "Difference in CPR",
        ("worse than random", "better than random"),
        digits=3,
    )
