"""Rankings of several methods judged by the same conditions, each of which is measured once."""

from __future__ import annotations

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
from headscope.evidence.controls import Changing
from headscope.evidence.headline import least_draws
from headscope.evidence.rows import CURVE, LEVEL, Condition, Evidence, Statistic
from headscope.find.knockouts_regression import random_gates
from headscope.heads import Geometry, Head, check_geometry, count_of, named_scores
from headscope.heads.geometry import keys_of
from headscope.measure.ranking import centred, correlation, mid_ranks, rank_correlations
from headscope.measure.statistics import counted_mean, p_draws
from headscope.measure.trial import Group, Trial
from headscope.progress import Progress
from headscope.results.methods import Judgement, JudgesResult
from headscope.runs import Run
from headscope.shown.blocks import Cell, Forest, Gap, Section, Shown, Table, grid
from headscope.shown.words import confidence, count, enumeration, fixed
from headscope.studies.models import run_with_model
from headscope.studies.pairs import PairsChoice
from headscope.studies.shows import few_caution
from headscope.studies.survey_plans import SurveyPlan
from headscope.studies.tasks import TaskChoice
from headscope.studies.verify.circuit import (
    MEASURED,
    VerifyCircuit,
    leakage_of,
    left_out_caution,
    measured_by,
    measured_examples,
    read_examples,
    with_chat,
)
from headscope.verify.circuit_faithfulness import (
    CMD,
    CPR,
    circuit_evidence,
    planned,
    random_rankings,
    sizes_of,
)

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
#: Draws that allow a p of 0.01.
WANTED = 99


def circuit_settings(plan: SurveyPlan, draws: int = DRAWS) -> VerifyCircuit:
    """How one ranking would be judged by itself, by mean ablation; `InputError` without data."""
    if why := plan.untasked(pairs=True):
        raise InputError(f"methods are judged by a task or by translation: {why}")
    chat, seed = plan.data.chat, plan.data.seed
    pairs, tasks = PairsChoice(shots=plan.data.shots), plan.task()
    if plan.by_pairs:
        pairs, tasks = replace(plan.pairs("verify"), limit=plan.judged), TaskChoice()
    return VerifyCircuit(
        heads="",
        model=plan.model,
        pairs=pairs,
        tasks=tasks,
        ablate=("mean",),
        draws=draws,
        controls=(RANDOM,),
        chat=chat,
        seed=seed,
    )


def set_size(geometry: Geometry) -> int:
    """How many heads a random set holds; `InputError` for a model of too few heads."""
    if geometry.total < 2 * LEAST:
        raise InputError(f"a model of {count(geometry.total, 'head')} has no rankings to judge")
    return max(LEAST, count_of(SHARE, geometry.total))


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
    config = circuit_settings(plan, draws)
    examples = read_examples(config, *KINDS)
    lm = plan.model.load_for()
    geometry = lm.geometry
    size, sizes = set_size(geometry), sizes_of((), geometry)
    config, examples = with_chat(lm, config, examples)
    reference = examples.reference(lm, config)
    every_kind = Changing(ablate=get_args(AblateName), seed=seed)
    scored: dict[str, dict[Head, float]] = {}
    unjudged: dict[str, str] = {}
    for name, place in found.items():
        try:
            leakage_of(examples.parts, place)
            scores = named_scores(place, geometry)
            if scores is None:
                raise InputError("it chooses a set and ranks no heads")
            check_geometry(scores, geometry, place)
            scored[name] = dict(scores.ranked(plan.data.rank))
        except InputError as error:
            unjudged[name] = str(error)
    if not scored:
        why = "; ".join(f"{name}: {why}" for name, why in unjudged.items())
        raise InputError(f"no method has a ranking that can be judged ({why})")
    every_head = [*geometry.heads()]
    drawn = [*dict.fromkeys(random_rankings(every_head, geometry, draws, seed, RANDOM))]
    removed = random_gates(geometry, sets, size, seed)
    settings = {
        "settings": config,
        "ablate": every_kind.ablate,
        "scores": {name: [*own.items()] for name, own in scored.items()},
        "sets": sets,
        "reference text": reference.digest,
    }

    def kept(name: str, kind: str, beside: Sequence[Sequence[Head]] = drawn) -> list[Condition]:
        """The conditions of a ranking beside random ones, or beside another."""
        return planned([*scored[name]], {RANDOM: beside}, sizes, geometry, kind)

    def compute(run: Run) -> JudgesResult:
        curves = {(name, kind): kept(name, kind) for name in scored for kind in KINDS}
        gone = [
            Condition(RANDOM, k=size, gate=0.0, draw=at, heads=keys_of(own))
            for at, own in enumerate(removed)
        ]
        measured = (each for each in chain(*curves.values(), gone) if each.of != CURVE)
        every = {each.key: each for each in measured}
        if tell is not None:
            tell(f"{count(len(scored), 'ranking')} to judge: {len(every)} passes of the examples")
        works = examples.works(lm, config, run, progress)
        measure = MEASURED[measured_by(config, examples.parts)]
        replacements = reference.replacements(lm, every_kind)
        arrays, left_out = measured_examples(
            lm, config, examples.parts, [*every.values()], run, replacements, progress
        )
        numbers = {part: dict(zip(every, own, strict=True)) for part, own in arrays.items()}

        def table(conditions: Sequence[Condition]) -> Evidence:
            keys = [each.key for each in conditions if each.of != CURVE]
            parts = {part: [own[key] for key in keys] for part, own in numbers.items()}
            return circuit_evidence(conditions, sizes, parts, measure, seed)

        found, random, failed = list[Judgement](), dict[str, Draws](), dict[str, str]()
        least = len(drawn)
        for (name, kind), conditions in curves.items():
            try:
                evidence = table(conditions)
            except InputError as error:
                failed[kind] = str(error)  # of every ranking
                continue
            for area in (CPR, CMD):
                judge, curve = f"{area.upper()} {kind}", evidence.curve
                test = evidence.against(area, curve)[RANDOM]
                own = evidence.level(area, curve) or Estimate()
                given = name, judge, test.difference, test.p_draws
                counts = test.draws, test.at_least_as_harmful
                found.append(Judgement(own.value, own.low, own.high, *given, *counts))
                random[judge] = evidence.draws(area, curve, RANDOM)
                least = min(least, test.draws)
        if not found:
            raise InputError(failed["zero"])
        harms = [[own[each.key] for each in gone] for own in numbers.values()]
        predicted, random[PREDICTION] = _predictions(
            scored, drawn, removed, harms, measure[1], seed
        )
        result = JudgesResult(
            **works,
            tasks=tuple(numbers),
            measure=measure[0],
            examples=sum(len(own[0]) for own in harms),
            draws=least,
            left_out=left_out,
            sets=len(removed),
            size=size,
            judgements=(*found, *predicted),
            random=random,
            unjudged=unjudged | {f"by {kind} ablation": why for kind, why in failed.items()},
        )
        if len(best := [*result.of(FIRST)]) < 2:
            return result
        both = table(kept(best[0], "zero", [[*scored[best[1]]]]))
        return replace(result, ahead=both.against(CPR, both.curve)[RANDOM].difference)

    return run_with_model(
        lm, COMMAND, out, settings, examples.digests, compute, began, kind=JudgesResult, seed=seed
    )


def _predictions(
    scored: Mapping[str, Mapping[Head, float]],
    drawn: Sequence[Sequence[Head]],
    removed: Sequence[Sequence[Head]],
    harms: Sequence[Sequence[NDArray[Any]]],
    statistic: Statistic,
    seed: int,
) -> tuple[list[Judgement], Draws]:
    """Spearman's correlation of the harm of removed sets, by part the numbers of their examples,
    with the sum of their scores; of random rankings with that of their places."""
    score = statistic.score or counted_mean
    trial = Trial([Group(own, score, seed=seed) for own in harms])
    harm, resampled = (statistic.sign * own for own in (trial.scores, trial.estimates))

    def sums(scores: Mapping[Head, float]) -> Floats:
        return np.array([sum(scores[head] for head in own) for own in removed])

    places = [{head: -float(at) for at, head in enumerate(order)} for order in drawn]
    ranks = [centred(mid_ranks(each)) for each in (harm, *map(sums, places))]
    random = Draws.of([float(correlation(ranks[0], own)) for own in ranks[1:]])
    found, layers = [], np.zeros(len(removed))
    for name, scores in scored.items():
        known = rank_correlations(harm, sums(scores), layers, resampled, 1, seed)["all"]
        value, low, high = (np.nan if each is None else each for each in known.values())
        each = np.array(random.each)
        p = None if np.isnan(value) else p_draws(-value, -each)
        counts = len(each), None if p is None else int((each >= value).sum())
        found.append(Judgement(value, low, high, name, PREDICTION, None, p, *counts))
    return found, random


@contextmanager
def tokens_of(lm: LanguageModel) -> Iterator[dict[str, float]]:
    """Counts the tokens that go through all layers, padding included: `forward_tokens` without
    gradients, `gradient_tokens` with; those of some layers alone count by their share. What is
    tried once of a model, about 100 tokens, counts for what comes first."""
    import torch

    from headscope.lm.hooks import hooked
    from headscope.lm.owners import leaves_numbers

    layers, counted = lm.decoder_layers, {"forward_tokens": 0.0, "gradient_tokens": 0.0}

    @leaves_numbers
    def counts(module: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> None:
        states = args[0] if args else named["hidden_states"]
        kind = "gradient_tokens" if torch.is_grad_enabled() else "forward_tokens"
        counted[kind] += states.shape[:-1].numel() / len(layers)

    hooks = (layer.register_forward_pre_hook(counts, with_kwargs=True) for layer in layers)
    with hooked(lm.model, hooks):
        yield counted


def show_judges(found: JudgesResult, shown: Shown) -> Shown:
    """The page of a survey whose methods are judged: which ranks the right heads."""
    first, *others = (found.of(FIRST) or found.of(found.judgements[0].judge)).values()
    judge, random = first.judge, found.random[first.judge]
    gap, p = first.difference or Estimate(), first.p_draws
    above = gap.low > 0 and p is not None and p <= LEVEL
    best = "best" if above else "highest, not shown above random"
    values = f"{fixed(first.value, 3)}; random rankings {fixed(random.mean, 3)}"
    said = [f"By {judge}, {first.method} is {best} ({values})."]
    if found.ahead is not None and others:
        ends = confidence(found.ahead.low, found.ahead.high, 3)
        away = "" if found.ahead.low > 0 else "not told apart: "
        said.append(
            f"Next is {others[0].method}, {away}{fixed(found.ahead.value, 3)} lower, {ends}."
        )
    unjudged = [f"{name}: {why}" for name, why in found.unjudged.items()]
    return replace(
        shown,
        title="Which method ranks the right heads",
        lead=f"Which ranking is enough for {enumeration(found.tasks)}, and predicts what removing "
        "heads does?",
        finding=said,
        uncertainty=f"Intervals are over {count(found.examples, 'example')}; {first.as_far} random "
        "rankings do as well.",
        remedy=remedy(found, first),
        cautions=[
            *shown.cautions,
            *few_caution(found.examples, "example"),
            *left_out_caution(found.left_out),
            *([f"Not judged: {'; '.join(unjudged)}."] if unjudged else []),
        ],
        figure=_forest(found),
        sections=[
            Section("Judges", [_table(found)]),
            *([Section("Heads that methods select", [shown.figure])] if shown.figure else []),
            *shown.sections,
        ],
    )


def remedy(found: JudgesResult, first: Judgement) -> str:
    """The option for more rankings, where there are more and these are too few to show what their
    interval does."""
    gap, drawn = first.difference or Estimate(), found.random[first.judge].each
    # Rankings that were drawn twice are all that there are.
    more = first.draws == len(drawn) and first.draws < least_draws(LEVEL)
    return f"--draws {WANTED}" if more and gap.low > 0 and not first.at_least_as_harmful else ""


def _table(found: JudgesResult) -> Table:
    """Methods × judges."""
    by, random = {judge: found.of(judge) for judge in found.random}, "random rankings"
    return grid(
        "Methods by judges",
        (*next(iter(by.values())), random),
        by,
        lambda name, judge: Cell.of(found.random[judge] if name == random else by[judge][name]),
        note="CPR: area under faithfulness over the share of heads kept, more is better; CMD: area "
        "between it and 1, less is better; by what replaces the other heads. Prediction: rank "
        f"correlation of the {found.measure} without each of {found.sets} random sets of "
        f"{found.size} heads with the sum of the scores of these. Intervals over examples; of "
        "random rankings mean and range",
    )


def _forest(found: JudgesResult) -> Forest:
    """CPR of each ranking minus that of random ones."""

    def gap(kind: str, own: Judgement) -> Gap:
        away = own.difference or Estimate()
        low, high = (away.low, away.high) if away.bounded else (None, None)
        levels = None, own.value, found.random[own.judge].mean
        return Gap(kind, away.value, low, high, as_far=own.as_far, levels=levels)

    by = {kind: own for kind in KINDS if (own := found.of(f"CPR {kind}"))}
    rows = [
        (name, tuple(gap(kind, own[name]) for kind, own in by.items()))
        for name in next(iter(by.values()))
    ]
    return Forest(
        "CPR minus that of random rankings, by what replaces heads",
        tuple(rows),
        "Difference in CPR",
        ("worse than random", "better than random"),
        digits=3,
        over="examples, not over random rankings",
    )
