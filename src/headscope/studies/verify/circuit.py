"""The best heads of a ranking kept alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headscope import options
from headscope.data.pairs import PairFile
from headscope.data.prompts import DEFAULT_TEMPLATE, TEMPLATE_OPTION, Template, TemplateField
from headscope.data.tasks import Example, TaskSides
from headscope.errors import InputError, naming
from headscope.evidence.controls import CONTROLS, one_ablation
from headscope.evidence.headline import Case, examples_words
from headscope.evidence.rows import (
    CURVE,
    KEPT,
    SELECTED,
    SHARE,
    Basis,
    Condition,
    Evidence,
    Statistic,
)
from headscope.evidence.runner import Replacements, kept_texts, pass_of
from headscope.evidence.texts import TEXT_MEASURES
from headscope.find.attribution_scores import contrasts, corrupted
from headscope.heads import Amount, HeadSet, count_of, named_scores, resolve_heads
from headscope.heads.geometry import keys_of, spelled
from headscope.measure.baseline import Rules
from headscope.measure.statistics import counted
from headscope.progress import Progress
from headscope.results.common import ComparedDetails, ComparedResult, Leakage
from headscope.runs import Run
from headscope.settings import GIVEN, UNSIGNED, Nested, Option
from headscope.shown.blocks import (
    Cell,
    Lines,
    Section,
    Series,
    table_of,
)
from headscope.shown.words import count, tasks_of
from headscope.studies.comparison import (
    ALL_PARTS,
    Bench,
    Chosen,
    Comparison,
    Examples,
    InWorkers,
    Measured,
    Removing,
    Selecting,
)
from headscope.studies.comparison_page import Extras, Words
from headscope.studies.examples import parts_of
from headscope.studies.leakage import check_leakage, check_task_leakage
from headscope.studies.models import resolved_chat
from headscope.studies.pairs import PairsChoice, pair_examples, read_test_directions
from headscope.studies.shows import (
    few_caution,
)
from headscope.studies.tasks import (
    TaskChoice,
    counterfactuals,
    instructed_answers,
    read_tasks,
    resolved_tasks,
    task_examples,
)
from headscope.studies.verify.reference import drawn_apart, reference_number
from headscope.studies.verify.removal import measured_alone
from headscope.verify.circuit_faithfulness import (
    CMD,
    CPR,
    DROP,
    DROPPED,
    FAITHFULNESS,
    INCOMPLETE,
    PART,
    REST,
    WAYS,
    Size,
    circuit_evidence,
    planned,
    random_rankings,
    sizes_of,
)
from headscope.verify.masked_tasks.asking import NEW_TOKENS, asked
from headscope.verify.masked_tasks.evidence import right
from headscope.verify.removal_translations import Removal
from headscope.verify.removal_translations.conditions import kept_losses
from headscope.verify.removal_translations.evidence import LOSSES

if TYPE_CHECKING:
    from headscope.lm import LanguageModel

#: Heads that a page lists.
LISTED = 20


#: What faithfulness is of, by `--measure`: its name in results, and how it is scored.
MEASURED = {
    "loss": ("nll", LOSSES["nll"]),
    "text": ("chrf", TEXT_MEASURES["chrf"].statistic),
    "accuracy": ("accuracy", Statistic("share of right answers", unit=SHARE, digits=1)),
    "difference": ("difference", Statistic("logit difference of right and wrong answer")),
}
Measure = Literal["loss", "text", "accuracy", "difference"]


@dataclass(frozen=True, kw_only=True)
class VerifyCircuit(Removing, Selecting, InWorkers):
    """Keep the best heads of a ranking and replace all others: how much of the task is left?

    At 0.1 to 100 % of the heads, beside random rankings, free and of the same layers. The task is
    translation, or that of --task.
    """

    # The heads themselves, not their place, count in the run's signature.
    heads: options.Heads = field(metadata=UNSIGNED)
    k: Annotated[
        tuple[Amount, ...],
        Option(
            "Heads kept: a number, or a share such as 15%; repeatable. By default nine shares, 0.1 "
            "to 50%.",
            metavar="K",
            typed=str,
        ),
    ] = field(default=(), metadata=UNSIGNED)
    pairs: PairsChoice = field(default_factory=PairsChoice)
    template: Annotated[TemplateField[Template], TEMPLATE_OPTION] = TemplateField(
        DEFAULT_TEMPLATE, Template
    )
    chat: options.Chat = None
    answer_only: options.AnswerOnly = field(default=None, metadata=GIVEN)
    max_new_tokens: options.MaxNewTokens = None
    draws: Annotated[int, Option("Random rankings of each kind.", min=1, panel="Test")] = 20
    controls: Annotated[
        tuple[str, ...],
        replace(
            options.CONTROL,
            help="How random rankings are drawn: random (any order), same layers (place by "
            "place); repeatable; without it both.",
        ),
    ] = WAYS
    ablate: options.OneAblation = ("zero",)
    tasks: Annotated[
        TaskChoice,
        Nested(
            ("pair", "data", "chat", "answer_only", "shots", "limit", "language", "split",
             "source_column", "target_column"),
        ),
    ] = field(default_factory=TaskChoice)  # fmt: skip
    measure: Annotated[
        Measure | None,
        Option(
            "What is kept: loss, chrF++ (text), of tasks accuracy, or difference: the answer's "
            "logit minus a wrong one's. By default difference where data name both, else loss.",
            held="measure",
        ),
    ] = None
    baseline: Annotated[Rules, Nested(without=("errors",))] = field(default_factory=Rules)
    inside: Annotated[
        Amount | None,
        Option(
            "Look into the circuit of so many heads: which are idle, and what is left without "
            "parts of it.",
            metavar="K",
            typed=str,
            panel="Expert",
        ),
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        one_ablation(self.ablate)
        if foreign := [name for name in self.controls if name not in WAYS]:
            raise InputError(
                f"the control {foreign[0]!r} draws no rankings; use {' or '.join(WAYS)}"
            )
        named = bool(self.tasks.task)
        if named and (self.pairs.pair or self.pairs.data):
            raise InputError("both --task and sentence pairs are given; use one of them")
        known = ("loss", "accuracy", "difference") if named else ("loss", "text")
        if self.measure not in (None, *known):
            what = "a task" if named else "translation"
            raise InputError(f"{what} has no measure {self.measure!r}; use {' or '.join(known)}")


@dataclass(frozen=True, kw_only=True)
class CircuitDetails(ComparedDetails):
    """What was kept: the first of `heads`, best first, `k` of them at each of `shares`.

    `measure` is what faithfulness is of; `draws` are random rankings of each kind. `inside` is the
    size of the circuit that was looked into, `idle` its heads without which, each alone,
    faithfulness is not shown to fall (of a single example: does not fall). `left_out` counts
    examples without a wrong answer, or of which one answer begins the other.
    """

    heads: tuple[str, ...] = ()
    shares: tuple[float, ...] = ()
    k: tuple[int, ...] = ()
    measure: str = ""
    inside: int = 0
    idle: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    left_out: int = 0


@dataclass(frozen=True, kw_only=True)
class CircuitResult(ComparedResult):
    """The result of `verify circuit`; `selected` heads are kept, and the curve is all sizes."""

    details: CircuitDetails = field(default_factory=CircuitDetails)


#: A direction, or a task.
Tested = PairFile | TaskSides


def _choice(config: VerifyCircuit) -> TaskChoice:
    return replace(
        config.tasks, chat=config.chat, shots=config.pairs.shots, limit=config.pairs.limit
    )


def read_examples(config: VerifyCircuit, *ablate: str) -> Examples[Tested]:
    """The examples to test on, with those set aside for these kinds of ablation."""
    seed, model, apart = config.seed, config.model.model, reference_number(*ablate)
    if not config.tasks.task:
        directions = read_test_directions(config.pairs, model, seed, apart)
        return pair_examples(directions, config)
    tasks = read_tasks(_choice(config), model, seed)
    for name, sides in tasks.items() if apart else ():
        kept, drawn = drawn_apart(sides.test.examples, seed, sides.test.path)
        test, reference = (replace(sides.test, examples=part) for part in (kept, drawn))
        tasks[name] = replace(sides, test=test, reference=reference)
    leakage = leakage_of(tasks, config.heads, config.allow_overlap)
    return task_examples(tasks, leakage, config.pairs.shots)


def leakage_of(parts: Mapping[str, Tested], heads: str, allow_overlap: bool = False) -> Leakage:
    """How many of the examples heads were found on; `InputError` for any, unless allowed."""
    if directions := parts_of(PairFile, parts):
        return check_leakage(heads, directions, allow_overlap)
    tasks = parts_of(TaskSides, parts).values()
    apart = [sides.reference for sides in tasks if sides.reference is not None]
    check_task_leakage(heads, apart, allow_overlap)
    return check_task_leakage(heads, [sides.test for sides in tasks], allow_overlap)


def with_chat(
    lm: LanguageModel, config: VerifyCircuit, examples: Examples[Tested]
) -> tuple[VerifyCircuit, Examples[Tested]]:
    """The settings with what `chat` comes to for this model."""
    if not config.tasks.task:
        return resolved_chat(lm, config), examples
    chat = resolved_tasks(lm, _choice(config), config.model.model).chat
    return replace(config, chat=chat), examples


def measured_by(config: VerifyCircuit, parts: Mapping[str, Tested]) -> Measure:
    """What faithfulness is of."""
    tasks = parts_of(TaskSides, parts)
    wrong = tasks and all(sides.test.names_wrong for sides in tasks.values())
    return config.measure or ("difference" if wrong else "loss")


def measured_examples(
    lm: LanguageModel,
    config: VerifyCircuit,
    parts: Mapping[str, Tested],
    conditions: Sequence[Condition],
    run: Run,
    replacements: Replacements,
    progress: Progress | None,
) -> tuple[dict[str, list[NDArray[Any]]], int]:
    """By part and condition numbers of every example; and how many examples are left out."""
    which = measured_by(config, parts)
    if tasks := parts_of(TaskSides, parts):
        return _answered(lm, tasks, config, which, conditions, run, replacements, progress)
    how = Removal(
        template=config.template,
        measure=(which,),
        chat=config.chat,
        answer_only=config.answer_only,
        max_new_tokens=config.max_new_tokens,
        seed=config.seed,
        batch_tokens=config.batch_tokens,
    )
    directions = parts_of(PairFile, parts)
    *_, arrays = measured_alone(lm, directions, conditions, how, run, replacements, progress)
    return arrays, 0


class Ranking(NamedTuple):
    """Heads, best first, the sizes at which they are kept, and that of the circuit to look into
    (0: none)."""

    heads: HeadSet
    sizes: tuple[Size, ...]
    inside: int


def _heads(lm: LanguageModel, config: VerifyCircuit, examples: Examples[Tested]) -> Chosen:
    total = lm.geometry.total
    scored = named_scores(config.heads, lm.geometry) is not None
    whole = total if scored else None
    ranking = resolve_heads(config.heads, whole, lm.geometry, by=config.rank, model=lm.name)
    if total < 2:
        raise InputError("the model has one head, so none can be kept alone; use a larger model")
    every = sizes_of(config.k, lm.geometry)
    sizes = tuple(size for size in every if size.k <= len(ranking) or size.k == total)
    if config.k and len(sizes) < len(every):
        larger = next(size.k for size in every if size not in sizes)
        raise InputError(
            f"--k asks for {larger} heads, but {len(ranking)} of {total} are ranked; "
            "name a smaller one, or more heads"
        )
    if not any(0 < size.k < total for size in sizes):
        raise InputError(
            f"no size lies from 1 to {count(min(len(ranking), total - 1), 'head')} "
            f"({len(ranking)} of {total} are ranked); name one with --k, or more heads"
        )
    with naming("--inside"):
        inside = 0 if config.inside is None else count_of(config.inside, total)
    if inside > min(len(ranking), total - 1):
        raise InputError(
            f"--inside is {inside}, but {len(ranking)} of {total} heads are ranked; a "
            "circuit has fewer heads than the model"
        )
    # Lists of heads that nobody scored are ranked by nothing.
    chosen = ranking if scored else HeadSet(ranking.geometry, ranking.heads)
    kept = Ranking(chosen, sizes, inside)
    return Chosen({ALL_PARTS: [kept]}, signed={"sizes": sizes}, known=kept)


def _plan(rankings: Sequence[Ranking], config: VerifyCircuit, basis: Basis) -> list[Condition]:
    """The ranking's first heads kept, and those of random rankings."""
    ((ranking, sizes, inside),) = rankings
    geometry, ablate = ranking.geometry, one_ablation(config.ablate)
    others = {
        way: random_rankings(ranking.heads, geometry, config.draws, config.seed, way)
        for way in config.controls
    }
    return planned(ranking.heads, others, sizes, geometry, ablate, inside, config.seed)


def _measure(bench: Bench[VerifyCircuit, Tested]) -> Measured:
    config, parts, conditions = bench.config, bench.parts, bench.conditions[ALL_PARTS]
    ranking, sizes, inside = bench.chosen.known
    single = [condition for condition in conditions if condition.of != CURVE]
    arrays, left_out = measured_examples(
        bench.lm, config, parts, single, bench.run, bench.replacements, bench.progress
    )
    measure = MEASURED[measured_by(config, parts)]
    found = circuit_evidence(conditions, sizes, arrays, measure, config.seed)
    about = {
        "heads": keys_of(ranking),
        "shares": tuple(size.share for size in sizes),
        "k": tuple(size.k for size in sizes),
        "measure": measure[0],
        "inside": inside,
        "idle": tuple(
            without.of
            for without in dropped(found)
            if (fall := found.level(DROP, without))
            and (fall.low if fall.bounded else fall.value) <= 0
        ),
        "tasks": tuple(parts_of(TaskSides, parts)),
        "left_out": left_out,
    }
    return Measured(found, about)


def _cautions(found: Evidence, details: CircuitDetails) -> Iterator[str]:
    base = found.level(details.measure)
    unit = "example" if details.tasks else "sentence"
    yield from few_caution(base.examples if base else None, unit)
    yield from left_out_caution(details.left_out)


def _answered(
    lm: LanguageModel,
    tasks: Mapping[str, TaskSides],
    config: VerifyCircuit,
    measure: str,
    measured: Sequence[Condition],
    run: Run,
    replacements: Replacements,
    progress: Progress | None,
) -> tuple[dict[str, list[NDArray[Any]]], int]:
    """Numbers of every example under every condition, by task, and how many are left out."""
    from headscope.lm.shared_losses import AnswerRow

    if measure == "accuracy":
        return {
            name: _right(lm, own, measured, config, run, replacements, progress)
            for name, own in tasks.items()
        }, 0
    texts, left_out, shots, seed = {}, 0, config.pairs.shots, config.seed
    others: Mapping[str, Sequence[Example]] = {}
    if measure == "difference":
        others = counterfactuals(_choice(config), tasks, config.model.model, seed, tested=True)
    for name, sides in tasks.items():
        if measure == "difference":
            task = corrupted(lm, sides.test, sides.pool, shots, seed, others[name])
            found, missing = contrasts(lm, task[0], "difference", task[1], alone=True)
            left_out += sum(missing.values())
            # Of each example the wrong answer's token and the right one's.
            rows = [
                AnswerRow((*own.clean.ids, token), np.array([len(own.clean.ids)]))
                for own in found
                for token in own.tokens or ()
            ]
        else:
            rows = [
                AnswerRow(row.ids, np.arange(row.start, len(row.ids)))
                for row in instructed_answers(lm, sides.test, sides.pool, shots, seed)
            ]
        texts[name] = rows, [np.zeros(len(row.places), np.intp) for row in rows]
    losses = kept_losses(lm, texts, measured, config.batch_tokens, run, replacements, progress)
    nll = {name: own.sums.sum(axis=2) / own.tokens.sum(axis=1) for name, own in losses.items()}
    if measure == "difference":
        nll = {name: own[:, ::2] - own[:, 1::2] for name, own in nll.items()}
    return {name: [*counted(own)] for name, own in nll.items()}, left_out


def _right(
    lm: LanguageModel,
    sides: TaskSides,
    measured: Sequence[Condition],
    config: VerifyCircuit,
    run: Run,
    replacements: Replacements,
    progress: Progress | None,
) -> list[NDArray[Any]]:
    """Which outputs are right under every condition, (examples, 2) with a weight of 1."""
    from headscope.lm.generation import GenerateConfig
    from headscope.lm.prompting import uses_chat, wrap_prompts

    task, every = sides.test, range(len(sides.test.examples))
    question = asked(task, sides.pool, config.pairs.shots, config.seed)
    prompts = wrap_prompts(lm, question.prompts(question.instructed is not None), task.chat)
    keys = [f"{task.name} {each.key}" for each in measured]  # tasks share a run
    gates = [pass_of(each, lm.geometry, every, replacements) for each in measured]
    most = [config.max_new_tokens or NEW_TOKENS for _ in every]
    how = GenerateConfig(batch_tokens=config.batch_tokens, stop_at_newline=False)
    passes, plain = dict(zip(keys, gates, strict=True)), not uses_chat(lm, task.chat)
    made = kept_texts(lm, prompts, most, passes, how, run, task.name, progress, plain)
    answers = [(example.output, task.at_start) for example in task.examples]
    return [
        np.array([(right(made[key][at], *answer), 1.0) for at, answer in enumerate(answers)])
        for key in keys
    ]


def dropped(evidence: Evidence) -> list[Condition]:
    """The circuit that was looked into, without each of its heads."""
    return [each for each in evidence.conditions if each.kind == DROPPED]


def _extras(result: CircuitResult, run: Path) -> Extras:
    """Faithfulness by the share of heads kept, and what a circuit does without parts of it."""
    found, details = result.evidence, result.details
    curve, known = found.curve, found.statistics
    sentences = [f"CMD: {known[CMD].number(found.level(CMD, curve))}."]
    if details.inside:
        sentences.append(f"Idle, each alone: {len(details.idle)} of {details.inside} heads.")
    return Extras(
        statistics=[CPR],
        conditions=[curve],
        sentences=sentences,
        rests_on=examples_words(found, details.measure, "example" if details.tasks else "sentence"),
        heads={f"the first {min(LISTED, len(details.heads))}": details.heads[:LISTED]},
        facts=[
            ("done", tasks_of(details.tasks) or "translation"),
            *([("idle", spelled(details.idle))] if details.idle else []),
        ],
        sections=[_inside(found, details)] if details.inside else [],
        figure=_figure(found, details),
    )


def left_out_caution(examples: int) -> list[str]:
    """That so many examples have no difference of two answers, where there are such."""
    why = "without a wrong answer, or of which one answer begins the other"
    return [f"Left out: {count(examples, 'example')} {why}."] if examples else []


def _inside(evidence: Evidence, details: CircuitDetails) -> Section:
    """What circuit and model do without parts of it."""

    def cell(name: str, condition: Condition) -> Cell:
        return evidence.statistics[name].cell(evidence.level(name, condition))

    rest = {each.draw: each for each in evidence.conditions if each.kind == REST}
    table = table_of(
        "Without a part of its heads",
        [(spelled(rest[each.draw].heads), each)
         for each in evidence.conditions if each.kind == PART],
        {
            "circuit": lambda each: cell(FAITHFULNESS, each),
            "model": lambda each: cell(FAITHFULNESS, rest[each.draw]),
            "model minus circuit": lambda each: cell(INCOMPLETE, each),
        },
        "Faithfulness; complete if circuit and model do the same without any part. Random parts "
        "hold each head with probability 1/2",
    )  # fmt: skip
    return Section(f"The circuit of {details.inside} heads", [table])


def _figure(evidence: Evidence, details: CircuitDetails) -> Lines:
    """Faithfulness over the share of heads kept, of the ranking and of random ones."""
    at = {each.k: each for each in evidence.selected if each.of == KEPT}
    inner = [(100 * share, at[k]) for share, k in zip(details.shares, details.k, strict=True)
             if 0 < k < evidence.conditions[1].k]  # fmt: skip
    levels = ((share, evidence.level(FAITHFULNESS, each)) for share, each in inner)
    points: dict[str, list[tuple[float, Any]]] = {
        SELECTED: [(share, level) for share, level in levels if level is not None]
    }
    for kind in evidence.controls:
        points[kind] = [(share, evidence.draws(FAITHFULNESS, each, kind)) for share, each in inner]
    controls = " and ".join(CONTROLS[name].words for name in evidence.controls)
    return Lines(
        "Faithfulness of the first heads of the ranking",
        tuple(Series.of(kind, own) for kind, own in points.items()),
        "% of heads kept",
        evidence.statistics[FAITHFULNESS].axis,
        logarithmic=True,
        note="Larger sets hold the smaller ones, so points are no independent tests",
        band=f"95\u00a0% intervals (selected) and ranges of draws ({controls})",
        references=(("all heads", 1.0), ("no head", 0.0)),
    )


WORDS = Words(
    "The best heads alone",
    "How much is left when only the best heads of a ranking are kept?",
    "example",
    "Faithfulness is (m(C) \u2212 m(0)) / (m(M) \u2212 m(0)): m, what is measured, with the heads "
    "C kept, none, and all. CPR is its area over the share of heads kept, CMD the area between it "
    "and 1, by trapezoids from the smallest share to 100 % as MIB (Mueller et al. 2025) defines "
    "them for attention heads and other parts together; feed-forward layers stay here. Random "
    "rankings: any order of all heads, or place by place a head of the same layer; each is one "
    "draw at all sizes. Idle: the interval of the fall without the head does not lie above 0; not "
    "corrected for their number.",
)

comparison = Comparison(
    command="verify circuit",
    settings=VerifyCircuit,
    result=CircuitResult,
    details=CircuitDetails,
    read=lambda config: read_examples(config, *config.ablate),
    ready=with_chat,
    heads=_heads,
    plan=_plan,
    measure=_measure,
    cases=lambda found, details: [Case(CPR, found.curve, lead="With the best heads alone")],
    cautions=_cautions,
    words=WORDS,
    extras=_extras,
    examples="examples",
    usage="--heads runs/found --pair en-de --limit 20",
)
command = comparison.study
