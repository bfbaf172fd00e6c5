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
from headscope.pocket.questions import TEMPLATE
from headscope.results.common import Leakage
from headscope.results.soft_gate import PairCounts, SoftGateResult
from headscope.runs import Run, encode
from headscope.settings import UNSIGNED, Option, Settings
from headscope.studies.find.soft_gate_result import describe, write_gates
from headscope.studies.inputs import POCKET, ModelChoice, Progress, run_with_model, steps_of
from headscope.studies.leakage import FOUND_ON, known_examples
from headscope.studies.questions import QuestionsChoice, QuestionSides, read_sides

if TYPE_CHECKING:
    from headscope.lm import LanguageModel

__all__ = ["COMMAND", "FindSoftGate", "default_heads", "find_soft_gate"]

COMMAND = "find soft-gate"
#: Kinds of heads whose gates are trained, and of those that are set to 0.
TRAINED = ("trained", "random", "random-layer-matched")
OUTPUTS = "outputs"


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
