"""Soft gates in a run folder: trained on chosen and on random heads, and what that does."""

from __future__ import annotations

import time
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray

from headscope import options
from headscope.data.prompts import TemplateField
from headscope.data.questions import Question, QuestionTemplate
from headscope.data.split import sentence_digest
from headscope.find.trained_gates import (
    Answers,
    AskedQuestion,
    SoftGate,
    TrainedGates,
    answer,
    ask,
    scored,
    train_soft_gate,
)
from headscope.heads import (
    Amount,
    Gate,
    Geometry,
    HeadScores,
    HeadSet,
    about_rank,
    resolve_heads,
    save_scores,
)
from headscope.heads.draws import Draw, draw_heads
from headscope.heads.store import Origin
from headscope.measure.intervals import bootstrap_score
from headscope.measure.statistics import counted_mean
from headscope.measure.trial import Group, Trial
from headscope.pocket.facts import TEMPLATE
from headscope.progress import Progress
from headscope.results.common import ScoredHead
from headscope.results.soft_gate import (
    Changed,
    Difference,
    GatedHead,
    Look,
    Measured,
    Measures,
    PairCounts,
    Seed,
    SoftGateResult,
    Training,
)
from headscope.runs import Run, configuration, encode
from headscope.settings import UNSIGNED, Option, Settings
from headscope.shown.blocks import (
    Bars,
    Cell,
    HeadSets,
    Lines,
    Section,
    Series,
    Shown,
    Table,
    table_of,
)
from headscope.shown.words import confidence, count, percent, signed
from headscope.studies.leakage import FOUND_ON, count_leakage
from headscope.studies.models import POCKET, PROMPTED, ModelChoice, run_with_model, steps_of
from headscope.studies.questions import QuestionsChoice, read_sides
from headscope.studies.shows import leakage_caution, model_facts, named_places
from headscope.studies.study import Study
from headscope.studies.survey_plans import SurveyPlan

if TYPE_CHECKING:
    from headscope.lm import LanguageModel

COMMAND = "find soft-gate"
OUTPUTS = "outputs"
#: Conditions in words.
WORDS = {
    "untouched": "original",
    "trained": "selected heads trained",
    "random": "random heads trained",
    "random-layer-matched": "random heads trained, same layers",
    "removed": "selected heads removed",
    "random-removed": "random heads removed",
}
#: What is measured on every question: answered, answered as SQuAD compares, loss of the answer.
MEASURES = ("accuracy", "normalized", "nll")
#: Differences that are told, the second subtracted from the first.
COMPARED = (
    ("trained", "untouched"),
    ("random", "untouched"),
    ("random-layer-matched", "untouched"),
    ("removed", "untouched"),
    ("random-removed", "untouched"),
    ("trained", "random"),
    ("trained", "random-layer-matched"),
    ("removed", "random-removed"),
)
MeasuredValues = Mapping[str, Mapping[str, NDArray[np.float64]]]
#: Every measure of every question, by condition.
STATISTICS = "statistics.safetensors"


@dataclass(frozen=True)
class FindSoftGate(Settings):
    """Train the gates of a few heads on questions and answers, compared with random heads.

    Reports the share of held-out questions that are answered (within 10 new tokens by default) by
    the original model, with the trained gates, with random heads trained alike, and with these
    heads removed.
    """

    heads: options.Heads = field(metadata=UNSIGNED)
    k: Annotated[
        Amount | None,
        Option(
            "Number of heads, or a share such as 0.02 or 2%; without it a set is used whole, and "
            "of scores 2%, or 10% in a model of fewer than 256 heads.",
            metavar="K",
            typed=str,
        ),
    ] = field(default=None, metadata=UNSIGNED)
    model: Annotated[ModelChoice, PROMPTED] = field(default_factory=ModelChoice)
    questions: QuestionsChoice = field(default_factory=QuestionsChoice)
    template: Annotated[
        TemplateField[QuestionTemplate],
        Option(
            "The prompt up to where the answer begins, with {context} and {question}.",
            typed=str,
            read=QuestionTemplate.from_option,
        ),
    ] = TemplateField(QuestionTemplate(), QuestionTemplate)
    training: SoftGate = field(default_factory=SoftGate)
    # Trainings with the seeds `seed`, `seed` + 1, …, which decide random heads, pairs and order.
    seeds: Annotated[int, Option("How often to train, each time with another seed.", min=1)] = 5
    seed: options.Seed = 0
    layer_matched: Annotated[
        bool,
        Option(
            "Also draw as many random heads of the same layers.",
            flag="--layer-matched/--no-layer-matched",
        ),
    ] = True
    allow_overlap: options.AllowOverlap = field(default=False, metadata=UNSIGNED)
    rank: options.Rank = field(default="above-chance", metadata=UNSIGNED)


def default_heads(geometry: Geometry) -> Amount:
    """How many heads of a ranking have their gates trained (METHODS: LAHIS, soft gates)."""
    return "2%" if geometry.total >= 256 else "10%"


def find_soft_gate(
    config: FindSoftGate, out: Path | None = None, progress: Progress | None = None
) -> SoftGateResult:
    """Train, answer, write the run and return the command's result; what is done is kept."""
    began = time.monotonic()
    sides = read_sides(config.questions, config.model.model, config.seed)
    leakage = count_leakage(
        config.heads,
        sides.test,
        lambda question, known: (
            bool(question.context) and sentence_digest(question.context) in known
        ),
        config.allow_overlap,
        "test questions are on a context that these heads were found on",
    )
    lm = config.model.load_for()
    usual = default_heads(lm.geometry)
    heads = resolve_heads(config.heads, config.k, lm.geometry, default=usual, by=config.rank)
    template, training = _of_model(config)
    sets = _sets(heads, config)
    seeds = range(config.seed, config.seed + config.seeds)

    def asked(questions: Sequence[Question], path: str) -> list[AskedQuestion]:
        return ask(lm, questions, template, path, training.max_new_tokens, training.chat)

    tested = asked(sides.test, sides.test_path)
    settings = {
        "settings": config,
        "chosen": [str(head) for head in heads],
        "rank": about_rank(heads)["rank"],
        "leakage": encode(leakage),
    }

    def compute(run: Run) -> SoftGateResult:
        made: dict[str, TrainedGates] = {}
        pairs = [
            [asked(part, sides.path) for part in sides.draw(config.questions, seed)]
            for seed in seeds
        ]
        for number, (seed, drawn) in enumerate(zip(seeds, pairs, strict=True)):
            learned, stopped = ([pair.sample for pair in part] for part in drawn)
            for kind, draws in sets.items():
                name, steps = f"{kind}-{number}", steps_of(progress, f"{kind}, seed {seed}")
                made[name] = train_soft_gate(
                    lm, draws[number].heads, learned, stopped, training, seed, run, name, steps
                )
        gates = _conditions(lm.geometry, heads, sets, made)
        answers = _answers(lm, run, gates, tested, training, progress)
        values = _values(answers)
        accuracy, differences = effects(
            values, [question.question.group for question in tested], config.seed
        )
        gate_seed, scores = _write_gates(run, heads, made, seeds, training)
        _write_answers(run, answers, values, tested)
        contexts = {pair.question.context for parts in pairs for part in parts for pair in part}
        digests = sorted(sentence_digest(context) for context in contexts if context)
        run.write_json(FOUND_ON, {"questions": digests})
        taught = {id(pair.question): pair for parts in pairs for pair in parts[0]}
        digest = sides.digests["questions"]
        test_digest = sides.digests.get("test questions", digest)
        return SoftGateResult(
            heads=ScoredHead.all_of(scores),
            selected=len(heads),
            **about_rank(heads),
            seeds=tuple(_seed(made, sets, number, seed) for number, seed in enumerate(seeds)),
            accuracy=accuracy,
            differences=differences,
            gate_seed=gate_seed,
            examples=len(taught),
            tokens=sum(len(pair.sample.ids) - pair.sample.start for pair in taught.values()),
            pairs=PairCounts(
                len(pairs[0][0]),
                len(pairs[0][1]),
                len(tested),
                sides.unanswerable,
                sides.shared,
                sum(pair.cut for pair in (*taught.values(), *tested)),
            ),
            data={
                "questions": {"path": sides.path, "digest": digest},
                "test questions": {"path": sides.test_path, "digest": test_digest},
            },
            template=template.text,
            leakage=leakage,
        )

    data, seed = sides.digests, config.seed
    return run_with_model(
        lm, COMMAND, out, settings, data, compute, began, kind=SoftGateResult, seed=seed
    )


def _of_model(config: FindSoftGate) -> tuple[QuestionTemplate, SoftGate]:
    """The template and settings, for pocket those it was trained with where none are given."""
    if config.model.model != POCKET:
        return config.template, config.training
    template = config.template if config.template.text else QuestionTemplate(TEMPLATE)
    # Its prompts are complete as they are.
    return template, replace(config.training, chat=config.training.chat or False)


def _sets(heads: HeadSet, config: FindSoftGate) -> dict[str, list[Draw]]:
    """For each kind of trained heads those of every seed.

    Where fewer random sets exist than seeds, they are trained again under the other seeds.
    """
    n, seed = config.seeds, config.seed
    sets = {"trained": [Draw(heads, 0)], "random": draw_heads(heads, n, seed)}
    if config.layer_matched:
        sets["random-layer-matched"] = draw_heads(heads, n, seed, layer_matched=True)
    return {kind: list(islice(cycle(drawn), n)) for kind, drawn in sets.items()}


def _conditions(
    geometry: Geometry,
    heads: HeadSet,
    sets: Mapping[str, Sequence[Draw]],
    made: Mapping[str, TrainedGates],
) -> dict[str, Gate]:
    """The gate of every condition by name; names end in the number of a seed, if there are some."""
    gates = {"untouched-0": Gate.identity(geometry), "removed-0": heads.removed()}
    for number, draw in enumerate(sets["random"]):
        gates[f"random-removed-{number}"] = draw.heads.removed()
    return gates | {name: trained.gate for name, trained in made.items()}


def _answers(
    lm: LanguageModel,
    run: Run,
    gates: Mapping[str, Gate],
    tested: Sequence[AskedQuestion],
    training: SoftGate,
    progress: Progress | None,
) -> dict[str, Answers]:
    """The answers under every gate; a condition that was answered before is read again."""
    kept = run.read_part(OUTPUTS)
    made: dict[str, Answers] = {}
    for done, (name, gate) in enumerate(gates.items()):
        if progress:
            progress("answers", done, len(gates))
        if name in kept:
            losses = np.array(kept[name]["losses"], dtype=np.float64)
            made[name] = scored(kept[name]["texts"], losses, tested)
        else:
            made[name] = answer(lm, tested, gate, training)
            record = {"texts": made[name].texts, "losses": made[name].losses}
            run.append_part(OUTPUTS, name, record)
    if progress:
        progress("answers", len(gates), len(gates))
    return made


def _seed(
    made: Mapping[str, TrainedGates], sets: Mapping[str, Sequence[Draw]], number: int, seed: int
) -> Seed:
    """What became of one seed's heads, by kind."""
    trainings: dict[str, Any] = {
        kind.replace("-", "_"): _training(made[f"{kind}-{number}"], drawn[number])
        for kind, drawn in sets.items()
    }
    return Seed(seed=seed, **trainings)


def _write_gates(
    run: Run,
    heads: HeadSet,
    made: Mapping[str, TrainedGates],
    seeds: Sequence[int],
    training: SoftGate,
) -> tuple[int, HeadScores]:
    """Write scores, heads and gates into the run; the seed whose gate is `gate/`, and the scores.

    That is the seed whose training lowered the loss on its pairs held out for stopping the most:
    test questions take no part in the choice. A head's score is how far its gate is from 1: mean,
    lowest and highest over seeds.
    """
    settings = {name: getattr(training, name) for name in ("learning_rate", "epochs")}
    origin = Origin("soft-gate", run.signature, configuration(settings), run.provenance)
    trained = {seed: made[f"trained-{number}"] for number, seed in enumerate(seeds)}
    best = max(trained, key=lambda seed: (_gain(trained[seed]), -seed))
    places = {seed: run.path / "seeds" / str(seed) / "gate" for seed in seeds}
    for seed, place in ((best, run.path / "gate"), *places.items()):
        Gate(heads.geometry, trained[seed].gate.values, origin).save_pretrained(place)
    HeadSet(heads.geometry, heads.heads, origin).save_pretrained(run.path / "heads")
    gates = np.stack([each.gate.values for each in trained.values()]).astype(np.float64)
    away = np.abs(gates - 1)
    scores = HeadScores(
        heads.geometry,
        away.mean(axis=0),
        origin.method,
        away.min(axis=0),
        away.max(axis=0),
        extra={"gate": gates.mean(axis=0), "selected": heads.mask().astype(np.float64)},
        statistics={"gates": gates},
        config=origin.config,
        provenance=origin.provenance,
        signature=origin.signature,
    )
    save_scores(run.path, scores)
    return best, scores


def _write_answers(
    run: Run,
    answers: Mapping[str, Answers],
    values: MeasuredValues,
    tested: Sequence[AskedQuestion],
) -> None:
    """Write what was said to every question under every gate, and its measures."""
    for name, answered in answers.items():
        rows = (
            {
                "id": question.question.id,
                "answers": question.question.answers,
                "text": answered.texts[at],
                "right": answered.right[at],
                "normalized": answered.normalized[at],
                "nll": answered.losses[at],
            }
            for at, question in enumerate(tested)
        )
        run.write_jsonl(f"outputs/{name}.jsonl", rows)
    numbers = {
        f"{measure}.{condition}": values[condition][measure]
        for condition in values
        for measure in MEASURES
    }
    run.write_tensors(STATISTICS, numbers)


def _values(answers: Mapping[str, Answers]) -> MeasuredValues:
    """The measures of each condition, float64 (seeds, questions); names of answers end in a seed's
    number."""
    kinds: dict[str, list[Answers]] = {}
    for name, answered in answers.items():
        kinds.setdefault(name.rpartition("-")[0], []).append(answered)
    fields = dict(zip(MEASURES, ("right", "normalized", "losses"), strict=True))
    return {
        kind: {
            measure: np.array([getattr(answered, name) for answered in made], dtype=np.float64)
            for measure, name in fields.items()
        }
        for kind, made in kinds.items()
    }


def effects(
    values: MeasuredValues, groups: Sequence[str], seed: int
) -> tuple[dict[str, Measures], tuple[Difference, ...]]:
    """The measures of each condition, and the differences of `COMPARED`.

    Means over seeds with their intervals over questions, and what each seed gave. Differences are
    the first condition minus the second, question by question, seed by seed.
    """
    places = {name: at for at, name in enumerate(values)}
    pairs = [pair for pair in COMPARED if set(pair) <= set(values)]
    conditions: dict[str, dict[str, Any]] = {name: {} for name in values}
    differences: dict[tuple[str, str], dict[str, Any]] = {pair: {} for pair in pairs}
    for measure in MEASURES:
        measured = [of[measure] for of in values.values()]
        sums = [group_sums(each.mean(axis=0), groups) for each in measured]
        trial = Trial([Group(sums, seed=seed)])
        for name, each, own in zip(values, measured, sums, strict=True):
            low, high = bootstrap_score(own, counted_mean, seed=seed)
            by_seed = each.mean(axis=1)
            conditions[name][measure] = Measured(
                mean=float(by_seed.mean()), low=float(low), high=float(high), **_by_seed(by_seed)
            )
        for a, b in pairs:
            difference = trial.difference(places[a], [places[b]])
            by_seed = values[a][measure].mean(axis=1) - values[b][measure].mean(axis=1)
            differences[a, b][measure] = Changed(**vars(difference), **_by_seed(by_seed))
    return (
        {name: Measures(**each) for name, each in conditions.items()},
        tuple(Difference(condition=a, minus=b, **differences[a, b]) for a, b in pairs),
    )


def _by_seed(values: NDArray[np.float64]) -> dict[str, Any]:
    """What every seed gave, as fields."""
    return {
        "sd": float(values.std(ddof=1)) if len(values) > 1 else None,
        "by_seed": tuple(values.tolist()),
    }


def group_sums(values: NDArray[np.float64], groups: Sequence[Hashable]) -> NDArray[np.float64]:
    """For each group the sum of its questions' values and how many there are, (groups, 2)."""
    places = {group: at for at, group in enumerate(dict.fromkeys(groups))}
    sums = np.zeros((len(places), 2))
    for group, value in zip(groups, values, strict=True):
        sums[places[group]] += (value, 1.0)
    return sums


def _training(trained: TrainedGates, draw: Draw) -> Training:
    return Training(
        heads=tuple(GatedHead(head.layer, head.head, trained.gate[head]) for head in draw.heads),
        filled_up=draw.filled_up,
        steps=len(trained.losses),
        best_step=trained.step,
        stopped_early=trained.stopped,
        checks=tuple(Look(*check) for check in trained.checks),
        loss=tuple(trained.losses.tolist()),
    )


def _gain(trained: TrainedGates) -> float:
    losses = [loss for _, loss in trained.checks]
    return losses[0] - min(losses)


def _show(result: SoftGateResult, run: Path) -> Shown:
    pairs, seeds = result.pairs, len(result.seeds)
    filled = max(
        each.random_layer_matched.filled_up if each.random_layer_matched else 0
        for each in result.seeds
    )
    cautions = leakage_caution(result.leakage, "questions")
    if filled:
        cautions.append(
            f"Up to {filled} of the random heads of the same layers had to come from other layers."
        )
    gated = HeadSets("Gated heads", {"gated": named_places(result.gates)})
    return Shown(
        "Soft gates",
        f"Does {result.model_name} answer more questions with the trained gates of "
        f"{count(len(result.gates), 'head')}, and more than with those of random heads?",
        _finding(result),
        f"Intervals are over {count(pairs.test, 'question')}, not over seeds; there "
        f"{'is' if seeds == 1 else 'are'} {count(seeds, 'seed')}.",
        "--seeds 5" if seeds < 5 else "",
        cautions,
        [
            *model_facts(result.model_name, len(result.heads)),
            ("pairs learned from", str(pairs.train)),
            ("stopped on", str(pairs.stop)),
            ("tested on", str(pairs.test)),
            ("seeds", str(seeds)),
        ],
        [
            Section(
                "Questions answered",
                [_answered(result)],
                "A question is answered if one of its answers is, letter for letter, in the first "
                "tokens that the model writes.",
                brief=True,
            ),
            Section("Differences", [_differences(result.differences)], brief=True),
            Section("Answers by condition", [_answer_bars(result)]),
            Section("Gates", [_gates(result), gated]),
            Section("Training", [_losses(result), _trainings(result)]),
        ],
    )


def _finding(result: SoftGateResult) -> list[str]:
    right = {name: percent(each.accuracy.mean, 1) for name, each in result.accuracy.items()}
    sentences = [
        f"With the trained gates the model answers {right['trained']} of the held-out questions; "
        f"original: {right['untouched']}; random heads trained alike: {right['random']} (means "
        f"over {count(len(result.seeds), 'seed')}).",
    ]
    changes = {(each.condition, each.minus): each for each in result.differences}
    if (against := changes.get(("trained", "random"))) is not None:
        change, loss = against.accuracy, against.nll
        verdict = (
            "more than random heads"
            if change.low > 0
            else "less than random heads"
            if change.high < 0
            else "not significantly different from random heads"
        )
        sentences.append(
            f"Selected minus random: {signed(100 * change.value)}\u00a0pp ("
            f"{confidence(100 * change.low, 100 * change.high, 1)}), above zero in "
            f"{sum(value > 0 for value in change.by_seed)} of "
            f"{count(len(change.by_seed), 'seed')}: {verdict}. Loss of the answers: "
            f"{signed(loss.value, 3)} nats a token ({confidence(loss.low, loss.high, 3)})."
        )
    return sentences


def _answered(result: SoftGateResult) -> Table:
    return table_of(
        "Questions answered, means over seeds",
        _in_words(result.accuracy),
        {
            "answered": lambda row: Cell.of(row.accuracy, 1, "%", 100),
            "SD over seeds": lambda row: replace(Cell.share(row.accuracy.sd), unit=""),
            "answered, SQuAD match": lambda row: Cell.of(row.normalized, 1, "%", 100),
            "loss, nats a token": lambda row: Cell.of(row.nll),
        },
        _left_out(result.pairs),
    )


def _in_words(measures: Mapping[str, Measures]) -> list[tuple[str, Measures]]:
    """The conditions there are, in words."""
    return [(words, measures[name]) for name, words in WORDS.items() if name in measures]


def _left_out(pairs: PairCounts) -> str:
    """What was not asked, or not with its whole context."""
    parts = []
    if pairs.unanswerable:
        parts.append(f"{count(pairs.unanswerable, 'question')} without an answer left out")
    if pairs.shared_contexts:
        parts.append(
            f"{count(pairs.shared_contexts, 'pair')} not learned from: their context is tested on"
        )
    if pairs.cut:
        parts.append(f"{count(pairs.cut, 'context')} too long for the model, cut around the answer")
    return "; ".join(parts)


def _differences(differences: tuple[Difference, ...]) -> Table:
    return table_of(
        "Differences, means over seeds",
        (
            (f"{WORDS[each.condition]} \u2212 {WORDS[each.minus]}", each)
            for each in differences
            if each.condition in WORDS and each.minus in WORDS
        ),
        {
            "answered": lambda row: Cell.of(row.accuracy, 1, "pp", 100),
            "seeds above 0": lambda row: (
                f"{sum(value > 0 for value in row.accuracy.by_seed)} of {len(row.accuracy.by_seed)}"
            ),
            "loss, nats a token": lambda row: Cell.of(row.nll, 4),
        },
        "Paired by question; questions on one context are drawn together",
    )


def _answer_bars(result: SoftGateResult) -> Bars:
    shown = {words: measures.accuracy for words, measures in _in_words(result.accuracy)}
    return Bars(
        "Share of questions answered",
        ("held-out questions",),
        tuple(shown),
        (tuple(100 * each.mean for each in shown.values()),),
        "%",
        (tuple(100 * each.low for each in shown.values()),),
        (tuple(100 * each.high for each in shown.values()),),
        note="Single draws are seeds: other pairs, order and random heads",
        draws=(
            tuple(
                tuple(100 * value for value in each.by_seed) if len(each.by_seed) > 1 else ()
                for each in shown.values()
            ),
        ),
        start=0.0,
        end=100.0,
    )


def _gates(result: SoftGateResult) -> Bars:
    means = {name: sum(gates) / len(gates) for name, gates in result.gates.items()}
    ranked = sorted(means, key=lambda name: -means[name])
    drawn = [result.gates[name] if len(result.seeds) > 1 else () for name in ranked]
    return Bars(
        "Trained gates, largest first",
        tuple(ranked),
        ("gate",),
        tuple((means[name],) for name in ranked),
        "gate",
        digits=2,
        note="1: the head as in the original model; 0: removed. Single draws are seeds. The run's "
        f"gate/ is that of seed {result.gate_seed}, whose loss on its stopping pairs fell most",
        draws=tuple((each,) for each in drawn),
        end=max([1.0, *means.values(), *(value for each in drawn for value in each)]),
    )


def _losses(result: SoftGateResult) -> Lines:
    series = tuple(
        Series(
            f"seed {seed.seed}",
            tuple((float(look.step), look.nll) for look in seed.trained.checks),
        )
        for seed in result.seeds
    )
    note = "Every seed holds out other pairs. The gates with the lowest loss are kept"
    return Lines("Loss on the stopping pairs", series, "step", "nats a token", note=note)


def _trainings(result: SoftGateResult) -> Table:
    trainings = (
        (f"seed {seed.seed}, {words}", training)
        for seed in result.seeds
        for words, training in (
            ("selected", seed.trained),
            ("random", seed.random),
            ("random, same layers", seed.random_layer_matched),
        )
        if training is not None
    )
    return table_of(
        "Trainings",
        trainings,
        {
            "steps": lambda row: row.steps,
            "gates of step": lambda row: row.best_step,
            "stopped early": lambda row: "yes" if row.stopped_early else "no",
            "from elsewhere": lambda row: row.filled_up,
            "heads (gates)": lambda row: " ".join(
                f"{head.name}\u00a0({head.gate:.2f})" for head in row.heads
            ),
        },
    )


def _survey(plan: SurveyPlan) -> FindSoftGate | str:
    if plan.quick:
        return "several trainings take their time: without --quick they are made"
    heads = plan.runs / "translation-score"
    if not (heads / "DONE.json").exists():
        return "it needs heads that another method found, those of translation-score"
    questions = QuestionsChoice(data=plan.data.questions)
    config = FindSoftGate(
        str(heads), model=plan.model, questions=questions, seed=plan.data.seed, rank=plan.data.rank
    )
    return plan.missing(plan.data.questions, "--questions FILE") or config


command = Study(FindSoftGate, find_soft_gate, result=SoftGateResult, show=_show, survey=_survey)
