"""Soft gates in a run folder: trained on chosen and on random heads, and what that does."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np

from headscope import options
from headscope.data.prompts import TemplateField
from headscope.data.question_prompts import QuestionTemplate
from headscope.data.split import sentence_digest
from headscope.errors import InputError
from headscope.find.question_rows import Asked, ask
from headscope.find.soft_gate import Answers, SoftGate, Trained, answer, scored, train_soft_gate
from headscope.heads import Amount, Gate, Geometry, HeadSet, about_rank, resolve_heads
from headscope.heads.draws import Draw, draw_heads
from headscope.pocket.facts import TEMPLATE
from headscope.results.common import Leakage
from headscope.results.soft_gate import Difference, PairCounts, SoftGateResult
from headscope.runs import Run, encode
from headscope.settings import UNSIGNED, Option, Settings
from headscope.shown.blocks import Bars, Cell, Lines, Row, Section, Series, Shown, Table
from headscope.shown.words import between, count, percent, signed
from headscope.studies.find.soft_gate_result import describe, write_gates
from headscope.studies.inputs import POCKET, ModelChoice, Progress, run_with_model, steps_of
from headscope.studies.leakage import FOUND_ON, known_examples
from headscope.studies.questions import QuestionsChoice, QuestionSides, read_sides
from headscope.studies.shows import leakage_caution, model_facts
from headscope.studies.study import Study

if TYPE_CHECKING:
    from headscope.lm import LanguageModel

COMMAND = "find soft-gate"
#: Kinds of heads whose gates are trained, and of those that are set to 0.
TRAINED = ("trained", "random", "random-layer-matched")
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


@dataclass(frozen=True)
class FindSoftGate(Settings):
    """Train the gates of a few heads on questions and answers, beside as many random heads.

    The share of held-out questions that are answered, within 10 new tokens unless told otherwise,
    is given for the untouched model, for these heads with their trained gates, for random heads
    trained alike, and for these heads removed.
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
    model: ModelChoice = field(default_factory=ModelChoice)
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
    leakage = _leakage(config, sides)
    lm = config.model.load_for(out)
    usual = default_heads(lm.geometry)
    heads = resolve_heads(config.heads, config.k, lm.geometry, default=usual, by=config.rank)
    template, training = _of_model(config)
    sets = _sets(heads, config)
    tested = ask(lm, sides.test, template, sides.test_path, training.max_new_tokens, training.chat)
    settings = {
        "settings": config,
        "chosen": [str(head) for head in heads],
        "rank": about_rank(heads)["rank"],
        "leakage": encode(leakage),
    }

    seeds = range(config.seed, config.seed + config.seeds)

    def compute(run: Run) -> SoftGateResult:
        made: dict[str, Trained] = {}
        learned: list[tuple[Asked, ...]] = []
        stopped: list[tuple[Asked, ...]] = []
        for number, seed in enumerate(seeds):
            pairs = [
                tuple(ask(lm, part, template, sides.path, training.max_new_tokens, training.chat))
                for part in sides.draw(config.questions, seed)
            ]
            learned.append(pairs[0])
            stopped.append(pairs[1])
            samples = [[one.sample for one in part] for part in pairs]
            for kind, drawn in sets.items():
                name = f"{kind}-{number}"
                made[name] = train_soft_gate(
                    lm,
                    drawn[number].heads,
                    samples[0],
                    samples[1],
                    training,
                    seed,
                    run,
                    name,
                    steps_of(progress, f"{kind}, seed {seed}"),
                )
        gates = _conditions(lm.geometry, heads, sets, made)
        answers = _answers(lm, run, gates, tested, training, progress)
        run.write_json(FOUND_ON, {"questions": _digests([*learned, *stopped])})
        fields = describe(lm.geometry, heads, sets, made, answers, tested, config.seed)
        fields |= about_rank(heads)
        taught = {id(one.question): one for part in learned for one in part}
        return SoftGateResult(
            **fields,
            gate_seed=write_gates(run, heads, made, tested, answers, seeds, training),
            examples=len(taught),
            tokens=sum(len(one.sample.ids) - one.sample.start for one in taught.values()),
            pairs=PairCounts(
                len(learned[0]),
                len(stopped[0]),
                len(tested),
                sides.unanswerable,
                sides.shared,
                sum(one.cut for one in (*taught.values(), *tested)),
            ),
            data={
                "questions": {"path": sides.path, "digest": sides.digests["questions"]},
                "test questions": {
                    "path": sides.test_path,
                    "digest": sides.digests.get("test questions", sides.digests["questions"]),
                },
            },
            template=template.text,
            leakage=leakage,
        )

    return run_with_model(
        lm,
        COMMAND,
        out,
        settings,
        sides.digests,
        compute,
        began,
        kind=SoftGateResult,
        seed=config.seed,
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
    sets = {"trained": [Draw(heads, 0)]}
    sets["random"] = draw_heads(heads, config.seeds, config.seed)
    if config.layer_matched:
        sets["random-layer-matched"] = draw_heads(
            heads, config.seeds, config.seed, layer_matched=True
        )
    return {kind: list(islice(cycle(drawn), config.seeds)) for kind, drawn in sets.items()}


def _conditions(
    geometry: Geometry,
    heads: HeadSet,
    sets: Mapping[str, Sequence[Draw]],
    made: Mapping[str, Trained],
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
    tested: Sequence[Asked],
    training: SoftGate,
    progress: Progress | None,
) -> dict[str, Answers]:
    """The answers under every gate; a condition that was answered before is read again."""
    kept = run.read_part(OUTPUTS)
    found: dict[str, Answers] = {}
    for done, (name, gate) in enumerate(gates.items()):
        if progress:
            progress("answers", done, len(gates))
        if name in kept:
            losses = np.array(kept[name]["losses"], dtype=np.float64)
            found[name] = scored(kept[name]["texts"], losses, tested)
            continue
        found[name] = answer(lm, tested, gate, training)
        record = {"texts": found[name].texts, "losses": found[name].losses}
        run.append_part(OUTPUTS, name, record)
    if progress:
        progress("answers", len(gates), len(gates))
    return found


def _leakage(config: FindSoftGate, sides: QuestionSides) -> Leakage:
    """Test questions on contexts that the heads were found on."""
    known = known_examples(config.heads)
    if known is None:
        return Leakage(known=False, overlap=None, of=len(sides.test))
    file, digests = known
    overlap = sum(
        bool(one.context) and sentence_digest(one.context) in digests for one in sides.test
    )
    if overlap and not config.allow_overlap:
        raise InputError(
            f"{overlap} of {len(sides.test)} test questions are on a context that these heads were "
            f"found on ({file}), so they prove nothing new; test on others, or add --allow-overlap"
        )
    return Leakage(known=True, overlap=overlap, of=len(sides.test))


def _digests(parts: Sequence[Sequence[Asked]]) -> list[str]:
    contexts = {one.question.context for part in parts for one in part}
    return sorted(sentence_digest(context) for context in contexts if context)


def _show(result: SoftGateResult, run: Path) -> Shown:
    """Questions answered under every condition, their differences, the gates, and training."""
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
            Section("Gates", [_gates(result)]),
            Section("Training", [_losses(result), _trainings(result)]),
        ],
    )


def _finding(result: SoftGateResult) -> list[str]:
    right = {name: percent(each.accuracy.mean, 1) for name, each in result.accuracy.items()}
    said = [
        f"With the trained gates the model answers {right['trained']} of the held-out questions; "
        f"original {right['untouched']}, random heads trained alike: {right['random']} (means over "
        f"{count(len(result.seeds), 'seed')}).",
    ]
    changes = {(each.condition, each.minus): each for each in result.differences}
    found = changes.get(("trained", "random"))
    if found is not None:
        change, loss = found.accuracy, found.nll
        verdict = (
            "more than random heads"
            if change.low > 0
            else "less than random heads"
            if change.high < 0
            else "not clearly different from random heads"
        )
        said.append(
            f"Selected minus random: {signed(100 * change.value)}\u00a0pp (95\u00a0% CI "
            f"{between(100 * change.low, 100 * change.high, 1)}), above zero in "
            f"{sum(value > 0 for value in change.by_seed)} of "
            f"{count(len(change.by_seed), 'seed')}: {verdict}. Loss of the answers: "
            f"{signed(loss.value, 3)} nats a token ({between(loss.low, loss.high, 3)})."
        )
    return said


def _answered(result: SoftGateResult) -> Table:
    rows = tuple(
        Row(
            words,
            (
                Cell.of(measures.accuracy, 1, "%", 100),
                Cell(None if (sd := measures.accuracy.sd) is None else 100 * sd, digits=1),
                Cell.of(measures.normalized, 1, "%", 100),
                Cell.of(measures.nll),
            ),
        )
        for name, words in WORDS.items()
        if (measures := result.accuracy.get(name)) is not None
    )
    columns = ("answered", "SD over seeds", "answered, SQuAD match", "loss, nats a token")
    return Table(
        "Questions answered, means over seeds", columns, rows, note=_left_out(result.pairs)
    )


def _left_out(pairs: PairCounts) -> str:
    """What was not asked, or not with its whole context."""
    said = []
    if pairs.unanswerable:
        said.append(f"{count(pairs.unanswerable, 'question')} without an answer left out")
    if pairs.shared_contexts:
        said.append(
            f"{count(pairs.shared_contexts, 'pair')} not learned from: their context is tested on"
        )
    if pairs.cut:
        said.append(f"{count(pairs.cut, 'context')} too long for the model, cut around the answer")
    return "; ".join(said)


def _differences(differences: tuple[Difference, ...]) -> Table:
    rows = tuple(
        Row(
            f"{WORDS[each.condition]} \u2212 {WORDS[each.minus]}",
            (
                Cell.of(each.accuracy, 1, "pp", 100),
                Cell(
                    f"{sum(value > 0 for value in each.accuracy.by_seed)} of "
                    f"{len(each.accuracy.by_seed)}"
                ),
                Cell.of(each.nll, 4),
            ),
        )
        for each in differences
        if each.condition in WORDS and each.minus in WORDS
    )
    columns = ("answered", "seeds above 0", "loss, nats a token")
    note = "Paired by question; questions on one context are drawn together"
    return Table("Differences, means over seeds", columns, rows, note=note)


def _answer_bars(result: SoftGateResult) -> Bars:
    shown = {
        words: result.accuracy[name].accuracy
        for name, words in WORDS.items()
        if name in result.accuracy
    }
    return Bars(
        "Questions answered",
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
    rows = []
    for seed in result.seeds:
        for words, each in (
            ("selected", seed.trained),
            ("random", seed.random),
            ("random, same layers", seed.random_layer_matched),
        ):
            if each is not None:
                cells = (
                    Cell(each.steps),
                    Cell(each.best_step),
                    Cell("yes" if each.stopped_early else "no"),
                    Cell(each.filled_up),
                    Cell(" ".join(f"{head.name}\u00a0({head.gate:.2f})" for head in each.heads)),
                )
                rows.append(Row(f"seed {seed.seed}, {words}", cells))
    columns = ("steps", "gates of step", "stopped early", "from elsewhere", "heads (gates)")
    return Table("Trainings", columns, tuple(rows))


command = Study(FindSoftGate, find_soft_gate, result=SoftGateResult, show=_show)
