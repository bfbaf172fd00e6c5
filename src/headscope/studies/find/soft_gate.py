"""Soft gates in a run folder: trained on chosen and on random heads, and what that does."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
from numpy.typing import NDArray

from headscope import options
from headscope.data.prompts import TemplateField
from headscope.data.questions import Question, QuestionTemplate
from headscope.data.split import sentence_digest
from headscope.estimates import Floats
from headscope.evidence.controls import SelectedHeads, drawn
from headscope.evidence.headline import Case, unmoved
from headscope.evidence.rows import SELECTED, SHARE, Basis, Condition, Evidence, Statistic
from headscope.evidence.table import evidence
from headscope.find.soft_gate_training import (
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
    Head,
    HeadScores,
    HeadSet,
    resolve_heads,
    save_scores,
)
from headscope.heads.geometry import keys_of, spelled
from headscope.heads.store import Origin
from headscope.pocket.facts import TEMPLATE
from headscope.progress import steps_of
from headscope.results.common import ScoredHead
from headscope.results.soft_gate import (
    GatedHead,
    Look,
    PairCounts,
    Seed,
    SoftGateDetails,
    SoftGateResult,
    Training,
)
from headscope.runs import Run, configuration
from headscope.settings import UNSIGNED, Option
from headscope.shown.blocks import (
    Bars,
    Lines,
    Section,
    Series,
    Table,
    table_of,
)
from headscope.shown.words import count
from headscope.studies.comparison import (
    ALL_PARTS,
    Bench,
    Chosen,
    Comparison,
    Examples,
    Measured,
    Selecting,
)
from headscope.studies.comparison_page import Extras, Words
from headscope.studies.leakage import FOUND_ON, count_leakage
from headscope.studies.models import POCKET
from headscope.studies.questions import QuestionsChoice, QuestionSides, read_sides
from headscope.studies.survey_plans import SurveyPlan

if TYPE_CHECKING:
    from headscope.lm import LanguageModel

PART, OUTPUTS = "questions", "outputs"
#: What is measured on every question: answered, answered as SQuAD compares, loss of the answer.
MEASURES = {
    "accuracy": Statistic("the share of questions answered", unit=SHARE, digits=1),
    "normalized": Statistic("answered, SQuAD match", unit=SHARE, digits=1),
    "nll": Statistic("the loss of the answer", "lower", "nats a token", 4),
}
TITLES = {"accuracy": "Questions answered", "nll": "Loss of the answer"}
Values = Mapping[Condition, Mapping[str, Floats]]
#: Every measure of every question, by condition.
STATISTICS = "statistics.safetensors"


@dataclass(frozen=True, kw_only=True)
class FindSoftGate(Selecting):
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
    questions: QuestionsChoice = field(default_factory=QuestionsChoice)
    template: Annotated[
        TemplateField[QuestionTemplate],
        Option(
            "The prompt up to where the answer begins, with {context} and {question}.",
            typed=str,
            read=QuestionTemplate.from_option,
            held="template",
            panel="Prompt",
        ),
    ] = TemplateField(QuestionTemplate(), QuestionTemplate)
    training: SoftGate = field(default_factory=SoftGate)
    # Trainings with the seeds `seed`, `seed` + 1, …, which decide random heads, pairs and order.
    seeds: Annotated[int, Option("How often to train, each time with another seed.", min=1)] = 5
    # A training with random heads is one draw.
    draws: int = field(init=False)
    # Those of `training` count.
    batch_tokens: int = field(default=8192, init=False, metadata=UNSIGNED)

    def __post_init__(self) -> None:
        object.__setattr__(self, "draws", self.seeds)
        super().__post_init__()


def default_heads(geometry: Geometry) -> Amount:
    """How many heads of a ranking have their gates trained (METHODS: LAHIS, soft gates)."""
    return "2%" if geometry.total >= 256 else "10%"


def _read(config: FindSoftGate) -> Examples[QuestionSides]:
    sides = read_sides(config.questions, config.model.model, config.seed)
    leakage = count_leakage(
        config.heads,
        [[question.context] if question.context else [] for question in sides.test],
        config.allow_overlap,
        "test questions are on a context that these heads were found on",
    )
    return Examples({PART: sides}, {}, sides.digests, leakage)


def _ready(
    lm: LanguageModel, config: FindSoftGate, examples: Examples[QuestionSides]
) -> tuple[FindSoftGate, Examples[QuestionSides]]:
    if config.model.model == POCKET:  # as it was trained, where nothing is given
        template = config.template if config.template.text else QuestionTemplate(TEMPLATE)
        # Its prompts are complete as they are.
        training = replace(config.training, chat=config.training.chat or False)
        config = replace(config, template=template, training=training)
    sides = examples.parts[PART]
    tested = _asked(lm, config, sides.test, sides.test_path)
    texts = {PART: [question.prompt for question in tested]}
    sent = {PART: tested[0].prompt}
    return config, replace(
        examples, prompted={PART: tested}, texts=texts, sent=lambda lm, config: sent
    )


def _asked(
    lm: LanguageModel, config: FindSoftGate, questions: Sequence[Question], path: str
) -> list[AskedQuestion]:
    training = config.training
    return ask(lm, questions, config.template, path, training.max_new_tokens, training.chat)


def _heads(lm: LanguageModel, config: FindSoftGate, examples: Examples[QuestionSides]) -> Chosen:
    usual = default_heads(lm.geometry)
    heads = resolve_heads(
        config.heads, config.k, lm.geometry, default=usual, by=config.rank, model=lm.name
    )
    # Conditions with gates of their own do not tell of which heads they are.
    signed = {"chosen": [*keys_of(heads)]}
    return Chosen({ALL_PARTS: [SelectedHeads(heads)]}, signed=signed)


def _plan(sets: Sequence[SelectedHeads], config: FindSoftGate, basis: Basis) -> list[Condition]:
    """The model as it is; the heads that are trained, the selected ones with every seed and as many
    random sets; and those that are removed.

    Where fewer random sets exist than seeds, they are trained again under the other seeds.
    """
    (chosen,) = sets
    named = keys_of(chosen.heads)
    selected = Condition(SELECTED, k=len(named), gate=None, heads=named)
    by_kind = {SELECTED: [selected]}
    for condition in drawn(selected, chosen.heads, config, basis):
        by_kind.setdefault(condition.kind, []).append(condition)
    trained = [
        replace(condition, draw=number)
        for different in by_kind.values()
        for number, condition in enumerate(islice(cycle(different), config.seeds))
    ]
    removed = [selected, *(heads for heads in trained if heads.kind == "random")]
    return [Condition(), *trained, *(replace(heads, gate=0.0) for heads in removed)]


def _measure(bench: Bench[FindSoftGate, QuestionSides]) -> Measured:
    lm, config, run, sides = bench.lm, bench.config, bench.run, bench.parts[PART]
    (heads,) = bench.chosen.every()
    tested: list[AskedQuestion] = bench.prompted[PART]
    pairs = {
        seed: [_asked(lm, config, part, sides.path) for part in sides.draw(config.questions, seed)]
        for seed in range(config.seed, config.seed + config.seeds)
    }
    made = _trained(bench, pairs)
    gates = {
        condition: made[condition].gate
        if condition in made
        else condition.in_model(lm.geometry).removed()
        for condition in bench.of(PART)
    }
    answers = _answers(bench, gates, tested)
    values = _values(answers)
    table = effects(values, [question.question.group for question in tested], config.seed)
    selected = {each: trained for each, trained in made.items() if each.kind == SELECTED}
    by_seed = dict(zip(pairs, selected.values(), strict=True))
    gate_seed, scores = _write_gates(run, heads, by_seed, config.training)
    _write_answers(run, answers, values, tested)
    contexts = {
        pair.question.context for parts in pairs.values() for part in parts for pair in part
    }
    digests = sorted(sentence_digest(context) for context in contexts if context)
    run.write_json(FOUND_ON, {"questions": digests})
    taught = {id(pair.question): pair for learned, _ in pairs.values() for pair in learned}
    digest = sides.digests["questions"]
    test_digest = sides.digests.get("test questions", digest)
    about = {
        "seeds": tuple(
            Seed(
                seed=seed,
                trained=_training(trained, condition),
                controls={
                    drawn.kind: _training(other, drawn)
                    for drawn, other in made.items()
                    if drawn.draw == condition.draw and drawn.kind != SELECTED
                },
            )
            for seed, (condition, trained) in zip(pairs, selected.items(), strict=True)
        ),
        "by_seed": {
            name: tuple(float(values[each][name].mean()) for each in selected) for name in MEASURES
        },
        "gate_seed": gate_seed,
        "pairs": PairCounts(
            len(pairs[config.seed][0]),
            len(pairs[config.seed][1]),
            len(tested),
            sides.unanswerable,
            sides.shared,
            sum(pair.cut for pair in (*taught.values(), *tested)),
        ),
        "template": config.template.text,
    }
    beside = {
        "scored": ScoredHead.all_of(scores),
        "examples": len(taught),
        "tokens": sum(len(pair.sample.ids) - pair.sample.start for pair in taught.values()),
        "data": {
            "questions": {"path": sides.path, "digest": digest},
            "test questions": {"path": sides.test_path, "digest": test_digest},
        },
    }
    return Measured(table, about, beside)


def _trained(
    bench: Bench[FindSoftGate, QuestionSides],
    pairs: Mapping[int, Sequence[Sequence[AskedQuestion]]],
) -> dict[Condition, TrainedGates]:
    """The gates of the heads, seed by seed, learned from its pairs and stopped on its others."""
    made: dict[Condition, TrainedGates] = {}
    for number, (seed, parts) in enumerate(pairs.items()):
        learned, stopped = ([pair.sample for pair in part] for part in parts)
        for condition in bench.of(PART):
            if condition.gate is None and condition.draw == number:
                made[condition] = train_soft_gate(
                    bench.lm,
                    condition.in_model(bench.lm.geometry),
                    learned,
                    stopped,
                    bench.config.training,
                    seed,
                    bench.run,
                    _name(condition),
                    steps_of(bench.progress, f"{condition.kind}, seed {seed}"),
                )
    return made


def _name(condition: Condition, number: bool = True) -> str:
    """A condition in names of files, with the number of its seed: `same-layers-0`, `removed`."""
    removed = "removed" if condition.gate == 0 else ""
    parts = [condition.kind, removed, str(condition.draw) if number else ""]
    return "-".join(part for part in parts if part and part != "None").replace(" ", "-")


def _answers(
    bench: Bench[FindSoftGate, QuestionSides],
    gates: Mapping[Condition, Gate],
    tested: Sequence[AskedQuestion],
) -> dict[Condition, Answers]:
    """The answers under every gate; a condition that was answered before is read again."""
    kept, progress = bench.run.read_part(OUTPUTS), bench.progress
    made: dict[Condition, Answers] = {}
    for done, (condition, gate) in enumerate(gates.items()):
        if progress:
            progress("answers", done, len(gates))
        name = _name(condition)
        if name in kept:
            losses = np.array(kept[name]["losses"], dtype=np.float64)
            made[condition] = scored(kept[name]["texts"], losses, tested)
        else:
            made[condition] = answer(bench.lm, tested, gate, bench.config.training)
            record = {"texts": made[condition].texts, "losses": made[condition].losses}
            bench.run.append_part(OUTPUTS, name, record)
    if progress:
        progress("answers", len(gates), len(gates))
    return made


def _write_gates(
    run: Run, heads: HeadSet, trained: Mapping[int, TrainedGates], training: SoftGate
) -> tuple[int, HeadScores]:
    """Write scores, heads and gates into the run; the seed whose gate is `gate/`, and the scores.

    That is the seed whose training lowered the loss on its pairs held out for stopping the most:
    test questions take no part in the choice. A head's score is how far its gate is from 1: mean,
    lowest and highest over seeds.
    """
    settings = {name: getattr(training, name) for name in ("learning_rate", "epochs")}
    origin = Origin("soft-gate", run.signature, configuration(settings), run.provenance)
    best = max(trained, key=lambda seed: (_gain(trained[seed]), -seed))
    places = {seed: run.path / "seeds" / str(seed) / "gate" for seed in trained}
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
    answers: Mapping[Condition, Answers],
    values: Values,
    tested: Sequence[AskedQuestion],
) -> None:
    """Write what was said to every question under every gate, and its measures by seed."""
    for condition, answered in answers.items():
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
        run.write_jsonl(f"outputs/{_name(condition)}.jsonl", rows)
    numbers: dict[str, list[Floats]] = {}
    for condition, measured in values.items():
        for measure, own in measured.items():
            numbers.setdefault(f"{measure}.{_name(condition, False)}", []).append(own)
    run.write_tensors(STATISTICS, {name: np.stack(own) for name, own in numbers.items()})


def _values(answers: Mapping[Condition, Answers]) -> dict[Condition, dict[str, Floats]]:
    """The measures of each condition, float64 (questions,)."""
    fields = dict(zip(MEASURES, ("right", "normalized", "losses"), strict=True))
    return {
        condition: {
            measure: np.array(getattr(answered, name), dtype=np.float64)
            for measure, name in fields.items()
        }
        for condition, answered in answers.items()
    }


def effects(values: Values, groups: Sequence[str], seed: int = 0) -> Evidence:
    """The table of answers: of the selected heads' trainings the mean over seeds.

    Questions of one group, which are on one context, are one example. A training with random heads
    is one draw; trained gates are said to help, removal to harm.
    """
    trained = [each for each in values if each.kind == SELECTED and each.gate is None]
    rows = {each: own for each, own in values.items() if each not in trained}
    means = {name: np.mean([values[each][name] for each in trained], axis=0) for name in MEASURES}
    original, *others = rows
    rows = {original: rows[original], replace(trained[0], draw=None): means} | {
        each: rows[each] for each in others
    }
    counts = {name: [group_sums(own[name], groups) for own in rows.values()] for name in MEASURES}
    return evidence(
        list(rows), {PART: counts}, MEASURES, seed, helps=lambda each: each.gate is None
    )


def group_sums(values: NDArray[np.float64], groups: Sequence[Hashable]) -> NDArray[np.float64]:
    """For each group the sum of its questions' values and how many there are, (groups, 2)."""
    places = {group: at for at, group in enumerate(dict.fromkeys(groups))}
    sums = np.zeros((len(places), 2))
    for group, value in zip(groups, values, strict=True):
        sums[places[group]] += (value, 1.0)
    return sums


def _training(trained: TrainedGates, condition: Condition) -> Training:
    heads = map(Head.parse, condition.heads)
    return Training(
        heads=tuple(GatedHead(head.layer, head.head, trained.gate[head]) for head in heads),
        steps=len(trained.losses),
        best_step=trained.step,
        stopped_early=trained.stopped,
        checks=tuple(Look(*check) for check in trained.checks),
        loss=tuple(trained.losses.tolist()),
    )


def _gain(trained: TrainedGates) -> float:
    losses = [loss for _, loss in trained.checks]
    return losses[0] - min(losses)


def _cases(found: Evidence, details: SoftGateDetails) -> list[Case]:
    lead = f"With the trained gates of {count(found.main.k, 'head')}"
    return [Case("accuracy", found.main, lead=lead)]


def _extras(result: SoftGateResult, run: Path) -> Extras:
    """The trained gates, and their trainings."""
    found, details = result.evidence, result.details
    pairs = details.pairs
    constant = unmoved(found, "accuracy")
    left = _left_out(pairs)
    return Extras(
        statistics=["nll" if constant else "accuracy"],
        conditions=found.selected,
        rests_on=count(pairs.test, "question"),
        heads={"gated": [*details.gates]},
        facts=[
            ("pairs learned from", str(pairs.train)),
            ("stopped on", str(pairs.stop)),
            *([("left out", left)] if left else []),
            ("seeds", str(len(details.seeds))),
        ],
        sections=[
            Section("Gates", [_gates(details)]),
            Section("Training", [_losses(details), _trainings(result)]),
        ],
    )


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


def _gates(details: SoftGateDetails) -> Bars:
    means = {name: sum(gates) / len(gates) for name, gates in details.gates.items()}
    ranked = sorted(means, key=lambda name: -means[name])
    drawn = [details.gates[name] if len(details.seeds) > 1 else () for name in ranked]
    return Bars(
        "Trained gates, largest first",
        tuple(spelled([name]) for name in ranked),
        ("gate",),
        tuple((means[name],) for name in ranked),
        "gate",
        digits=2,
        note="1: the head as in the original model; 0: removed. Single draws are seeds. The run's "
        f"gate/ is that of seed {details.gate_seed}, whose loss on its stopping pairs fell most",
        draws=tuple((each,) for each in drawn),
        end=max([1.0, *means.values(), *(value for each in drawn for value in each)]),
    )


def _losses(details: SoftGateDetails) -> Lines:
    series = tuple(
        Series(
            f"seed {seed.seed}",
            tuple((float(look.step), look.nll) for look in seed.trained.checks),
        )
        for seed in details.seeds
    )
    note = "Every seed holds out other pairs. The gates with the lowest loss are kept"
    return Lines("Loss on the stopping pairs", series, "step", "nats a token", note=note)


def _trainings(result: SoftGateResult) -> Table:
    """What became of every training, and what the model answers with its gates."""
    evidence, details = result.evidence, result.details
    rows = []
    for number, seed in enumerate(details.seeds):
        shares = {SELECTED: details.by_seed["accuracy"][number]}
        for control in seed.controls:
            drawn = evidence.draws("accuracy", evidence.main, control).each
            shares[control] = drawn[number]
        rows += [
            (f"seed {seed.seed}, {kind}", (shares[kind], training))
            for kind, training in {SELECTED: seed.trained, **seed.controls}.items()
        ]
    return table_of(
        "Trainings",
        rows,
        {
            "answered": lambda row: MEASURES["accuracy"].cell(row[0]),
            "steps": lambda row: row[1].steps,
            "gates of step": lambda row: row[1].best_step,
            "stopped early": lambda row: "yes" if row[1].stopped_early else "no",
            "heads (gates)": lambda row: " ".join(
                f"{head.place}\u00a0({head.gate:.2f})" for head in row[1].heads
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
        heads=str(heads),
        model=plan.model,
        questions=questions,
        seed=plan.data.seed,
        rank=plan.data.rank,
    )
    return plan.missing(plan.data.questions, "--questions FILE") or config


WORDS = Words(
    "Soft gates",
    "Does the model answer more questions with the trained gates of a few heads, and more than "
    "with those of random heads?",
    "context",
    "A question is answered if one of its answers is, letter for letter, in the first tokens that "
    "the model writes. Selected: the mean over seeds, over which intervals are not. A training "
    "with random heads is one draw.",
    "--seeds",
)

comparison = Comparison(
    command="find soft-gate",
    settings=FindSoftGate,
    result=SoftGateResult,
    details=SoftGateDetails,
    read=_read,
    ready=_ready,
    heads=_heads,
    plan=_plan,
    measure=_measure,
    cases=_cases,
    words=WORDS,
    extras=_extras,
    examples="questions",
    usage="--heads 5.3,5.1,4.3 --train 50 --seeds 1",
)
command = replace(comparison.study, survey=_survey)
