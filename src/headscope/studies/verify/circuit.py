"""The best heads of a ranking kept alone, in a run folder."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headscope import options
from headscope.data.pairs import PairFile
from headscope.data.tasks import Example, Task
from headscope.errors import InputError, naming
from headscope.evidence.blocks import levels_table, table_of_tests, uncertainty, verdict
from headscope.evidence.controls import CONTROLS
from headscope.evidence.rows import CURVE, KEPT, SELECTED, SHARE, Condition, Evidence, Statistic
from headscope.evidence.runner import Replacements, kept_texts, pass_of
from headscope.evidence.texts import TEXT_MEASURES
from headscope.executors import Execution
from headscope.find.counterfactuals import contrasts, corrupted
from headscope.heads import Amount, count_of, named_scores, resolve_heads
from headscope.heads.resolve import about_rank
from headscope.measure.baseline import Rules
from headscope.measure.statistics import counted
from headscope.progress import Progress
from headscope.results.common import Ablation, BaselineCheck, ComparedResult, Leakage, Ranking
from headscope.runs import Run, encode
from headscope.settings import UNSIGNED, Nested, Option, Settings
from headscope.shown.blocks import (
    Cell,
    HeadSets,
    Lines,
    Section,
    Series,
    Shown,
    Table,
    method_section,
    p_cell,
    table_of,
)
from headscope.shown.words import count, fixed, sentence_of, tasks_of
from headscope.studies.baseline import Works, check_tasks, check_translations
from headscope.studies.leakage import check_leakage, check_task_leakage
from headscope.studies.models import PROMPTED, ModelChoice, resolved_chat, run_with_model
from headscope.studies.pairs import PairsChoice, pair_cautions, pair_inputs
from headscope.studies.shows import (
    ablation_facts,
    few_caution,
    leakage_caution,
    model_facts,
    named_places,
)
from headscope.studies.study import Study
from headscope.studies.tasks import (
    TaskChoice,
    TaskSides,
    counterfactuals,
    read_tasks,
    resolved_tasks,
    task_inputs,
)
from headscope.studies.verify.reference import (
    Reference,
    drawn_apart,
    from_tasks,
    reference_number,
    translations,
)
from headscope.studies.verify.removal import measured_alone, read_test_directions
from headscope.verify.faithfulness import (
    CMD,
    CPR,
    DROP,
    DROPPED,
    FAITHFULNESS,
    INCOMPLETE,
    PART,
    REST,
    WAYS,
    circuit_evidence,
    planned,
    random_rankings,
    sizes_of,
)
from headscope.verify.masks.asking import NEW_TOKENS, asked, rows_of
from headscope.verify.masks.evidence import right
from headscope.verify.translation import Removal
from headscope.verify.translation.conditions import kept_losses
from headscope.verify.translation.evidence import LOSSES

if TYPE_CHECKING:
    from headscope.lm import LanguageModel
    from headscope.lm.prompting import Answered

COMMAND = "verify circuit"
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


def _removal(**values: Any) -> Removal:
    """`--draws` is the number of random rankings of each kind."""
    given: dict[str, Any] = {"draws": 20, "controls": WAYS, **values}
    return Removal(**given)


@dataclass(frozen=True)
class VerifyCircuit(Settings):
    """Keep the best heads of a ranking and replace all others: how much of the task is left?

    At 0.1 to 100 % of the heads, beside random rankings, free and of the same layers. The task is
    translation, or that of --task.
    """

    # The heads themselves, not their place, count in the run's signature.
    heads: options.Heads = field(metadata=UNSIGNED)
    k: Annotated[
        tuple[Amount, ...],
        Option(
            "Heads that are kept: a number, or a share such as 0.15 or 15%; repeatable. Without it "
            "0.1, 0.2, 0.5, 1, 2, 5, 10, 20 and 50% of them.",
            metavar="K",
            typed=str,
        ),
    ] = field(default=(), metadata=UNSIGNED)
    model: Annotated[ModelChoice, PROMPTED] = field(default_factory=ModelChoice)
    pairs: PairsChoice = field(default_factory=PairsChoice)
    removal: Annotated[
        Removal,
        Nested(
            without=("gates", "threshold", "measure", "loss_draws"),
            changed={
                "ablate": replace(options.ABLATE, single=True),
                "draws": Option("Random rankings of each kind.", min=1, default=20),
                "controls": replace(
                    options.CONTROL,
                    help="How random rankings are drawn: random (any order of all heads), same "
                    "layers (place by place of the same layer); repeatable; without it both.",
                ),
            },
            make=_removal,
        ),
    ] = field(default_factory=_removal)
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
            "What is kept: the loss of the reference or answer (loss, the default); chrF++ of "
            "translations (text); of tasks accuracy, or the logit of the answer minus that of a "
            "wrong one (difference, the default where the data name it)."
        ),
    ] = None
    allow_overlap: options.AllowOverlap = field(default=False, metadata=UNSIGNED)
    rank: options.Rank = field(default="above-chance", metadata=UNSIGNED)
    baseline: Annotated[Rules, Nested(without=("errors",))] = field(default_factory=Rules)
    execution: Execution = field(default_factory=Execution, metadata=UNSIGNED)
    inside: Annotated[
        Amount | None,
        Option(
            "Look into the circuit of so many heads: which are idle, and what is left without "
            "parts of it.",
            metavar="K",
            typed=str,
        ),
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.removal.ablate) != 1:
            raise InputError("--ablate is given twice; one thing stands in the place of heads")
        if foreign := [name for name in self.removal.controls if name not in WAYS]:
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
class CircuitDetails(Ranking, Ablation):
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
    draws: int = 0
    inside: int = 0
    idle: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    left_out: int = 0
    leakage: Leakage | None = None
    baseline_check: BaselineCheck = field(default_factory=BaselineCheck)


@dataclass(frozen=True, kw_only=True)
class CircuitResult(ComparedResult):
    """The result of `verify circuit`; `selected` heads are kept, and the curve is all sizes."""

    details: CircuitDetails = field(default_factory=CircuitDetails)


class Examples(NamedTuple):
    """What circuits are tested on, as the settings ask: directions, or tasks and what of them is
    set aside."""

    config: VerifyCircuit
    directions: dict[str, PairFile]
    tasks: dict[str, TaskSides]
    set_aside: dict[str, Task]

    def leakage(self, heads: str, allow_overlap: bool = False) -> Leakage:
        """How many of them heads were found on; `InputError` for any, unless allowed."""
        if not self.tasks:
            return check_leakage(heads, self.directions, allow_overlap)
        check_task_leakage(heads, self.set_aside.values(), allow_overlap)
        tested = [sides.test for sides in self.tasks.values()]
        return check_task_leakage(heads, tested, allow_overlap)

    def prepared(self, lm: LanguageModel) -> tuple[Removal, Reference]:
        """The settings with what `chat` comes to, and what is set aside for what replaces heads."""
        config, removal = self.config, self.config.removal
        if self.tasks:
            chat = resolved_tasks(lm, _choice(config), config.model.model).chat
            pools = ((own, self.tasks[name].pool) for name, own in self.set_aside.items())
            rows = [row for own in pools for row in _rows(lm, *own, config)]
            return replace(removal, chat=chat), from_tasks(rows) if rows else Reference()
        removal = resolved_chat(lm, removal)
        apart = any(pairs.reference for pairs in self.directions.values())
        return removal, translations(lm, self.directions, removal) if apart else Reference()

    def measured(
        self,
        lm: LanguageModel,
        removal: Removal,
        reference: Reference,
        conditions: Sequence[Condition],
        run: Run,
        progress: Progress | None,
    ) -> tuple[Works, tuple[str, Statistic], dict[str, list[NDArray[Any]]], int]:
        """If the original model does the task; the measure, of `MEASURED`; by part and condition
        numbers of every example; and how many examples are left out."""
        config, tasks, left_out = self.config, self.tasks, 0
        wrong = tasks and all(sides.test.names_wrong for sides in tasks.values())
        which, rules = config.measure or ("difference" if wrong else "loss"), config.baseline
        check, rest = (run, rules, progress), (run, reference.replacements(lm, removal), progress)
        if tasks:
            works = check_tasks(lm, tasks, config.pairs.shots, removal.seed, *check)
            arrays, left_out = _answered(lm, tasks, config, which, conditions, *rest)
        else:
            asked_of = replace(removal, measure=(which,))
            works = check_translations(lm, self.directions, removal, *check)
            *_, arrays = measured_alone(lm, self.directions, conditions, asked_of, *rest)
        return works, MEASURED[which], arrays, left_out

    @property
    def digests(self) -> dict[str, str]:
        """Content hashes, for a run's signature."""
        return task_inputs(self.tasks) if self.tasks else pair_inputs(self.directions)


def _choice(config: VerifyCircuit) -> TaskChoice:
    return replace(
        config.tasks, chat=config.removal.chat, shots=config.pairs.shots, limit=config.pairs.limit
    )


def read_examples(config: VerifyCircuit, *ablate: str) -> Examples:
    """The examples to test on, and those set aside for these kinds of ablation."""
    seed, model, apart = config.removal.seed, config.model.model, reference_number(*ablate)
    if not config.tasks.task:
        directions = read_test_directions(config.pairs, model, seed, apart)
        return Examples(config, directions, {}, {})
    tasks, set_aside = read_tasks(_choice(config), model, seed), dict[str, Task]()
    for name, sides in tasks.items() if apart else ():
        kept, drawn = drawn_apart(sides.test.examples, seed, sides.test.path)
        set_aside[name] = replace(sides.test, examples=drawn)
        tasks[name] = replace(sides, test=replace(sides.test, examples=kept))
    return Examples(config, {}, tasks, set_aside)


def verify_circuit(
    config: VerifyCircuit, out: Path | None = None, progress: Progress | None = None
) -> CircuitResult:
    """Keep the best heads alone, and as many of random rankings; a run that was stopped goes on.

    Raises `InputError` where the model is no better than without any head, and as `verify removal`.
    """
    began = time.monotonic()
    ablate, seed = config.removal.ablate[0], config.removal.seed
    examples = read_examples(config, ablate)
    leakage = examples.leakage(config.heads, config.allow_overlap)
    lm = config.model.load_for(config.execution)
    removal, reference = examples.prepared(lm)
    scored = named_scores(config.heads, lm.geometry) is not None
    whole = lm.geometry.total if scored else None
    chosen = resolve_heads(config.heads, whole, lm.geometry, by=config.rank)
    ranking, about = chosen.heads, about_rank(chosen if scored else None)
    if lm.geometry.total < 2:
        raise InputError("the model has one head, so none can be kept alone; use a larger model")
    every = sizes_of(config.k, lm.geometry)
    sizes = tuple(size for size in every if size.k <= len(ranking) or size.k == lm.geometry.total)
    if config.k and len(sizes) < len(every):
        larger = next(size.k for size in every if size not in sizes)
        raise InputError(
            f"--k asks for {larger} heads, but {len(ranking)} of {lm.geometry.total} are ranked; "
            "name a smaller one, or more heads"
        )
    if not any(0 < size.k < lm.geometry.total for size in sizes):
        raise InputError(
            f"no size lies from 1 to {count(min(len(ranking), lm.geometry.total - 1), 'head')} "
            f"({len(ranking)} of {lm.geometry.total} are ranked); name one with --k, or more heads"
        )
    with naming("--inside"):
        inside = 0 if config.inside is None else count_of(config.inside, lm.geometry.total)
    if inside > min(len(ranking), lm.geometry.total - 1):
        raise InputError(
            f"--inside is {inside}, but {len(ranking)} of {lm.geometry.total} heads are ranked; a "
            "circuit has fewer heads than the model"
        )
    others = {
        way: random_rankings(ranking, lm.geometry, removal.draws, seed, way)
        for way in removal.controls
    }
    conditions = planned(ranking, others, sizes, lm.geometry, ablate, inside, seed)
    settings = {
        "settings": replace(config, removal=removal),
        "ranking": list(map(str, ranking)),
        "sizes": sizes,
        "leakage": encode(leakage),
        "reference text": reference.digest,
    }

    def compute(run: Run) -> CircuitResult:
        measured = [each for each in conditions if each.of != CURVE]
        of = removal, reference, measured, run, progress
        works, measure, arrays, left_out = examples.measured(lm, *of)
        evidence = circuit_evidence(conditions, sizes, arrays, measure, seed)
        result = CircuitResult(
            baseline_works=works["baseline_works"],
            evidence=evidence,
            details=CircuitDetails(
                **about,
                heads=tuple(map(str, ranking)),
                shares=tuple(size.share for size in sizes),
                k=tuple(size.k for size in sizes),
                measure=measure[0],
                draws=removal.draws,
                inside=inside,
                idle=tuple(
                    each.of for each in dropped(evidence)
                    if (fall := evidence.level(DROP, each))
                    and (fall.low if fall.bounded else fall.value) <= 0
                ),
                tasks=tuple(examples.tasks),
                left_out=left_out,
                ablate=ablate,
                reference_text=reference.facts,
                leakage=leakage,
                baseline_check=works["baseline_check"],
            ),
        )  # fmt: skip
        return replace(result, verdict=verdict(evidence, CPR, evidence.curve))

    return run_with_model(
        lm, COMMAND, out, settings, examples.digests, compute, began, seed=seed,
        kind=CircuitResult, config=config, cautions=pair_cautions(examples.directions),
    )  # fmt: skip


def _rows(
    lm: LanguageModel, task: Task, pool: Sequence[Example], config: VerifyCircuit
) -> list[Answered]:
    """Examples with their answers as tokens, instructed where they can be."""
    question = asked(task, pool, config.pairs.shots, config.removal.seed)
    return rows_of(lm, question, question.instructed is not None)


def _answered(
    lm: LanguageModel,
    tasks: Mapping[str, TaskSides],
    config: VerifyCircuit,
    measure: str,
    measured: Sequence[Condition],
    run: Run,
    *more: Any,
) -> tuple[dict[str, list[NDArray[Any]]], int]:
    """Numbers of every example under every condition, by task, and how many are left out."""
    from headscope.lm.shared_losses import AnswerRow

    if measure == "accuracy":
        return {
            name: _right(lm, own, measured, config, run, *more) for name, own in tasks.items()
        }, 0
    texts, left_out, seed = {}, 0, config.removal.seed
    others: Mapping[str, Sequence[Example]] = {}
    if measure == "difference":
        others = counterfactuals(_choice(config), tasks, config.model.model, seed, tested=True)
    for name, sides in tasks.items():
        if measure == "difference":
            shots = config.pairs.shots
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
                for row in _rows(lm, sides.test, sides.pool, config)
            ]
        texts[name] = rows, [np.zeros(len(row.places), np.intp) for row in rows]
    losses = kept_losses(lm, texts, measured, config.removal.batch_tokens, run, *more)
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
    question = asked(task, sides.pool, config.pairs.shots, config.removal.seed)
    prompts = wrap_prompts(lm, question.prompts(question.instructed is not None), task.chat)
    keys = [f"{task.name} {each.key}" for each in measured]  # tasks share a run
    gates = [pass_of(each, lm.geometry, every, replacements) for each in measured]
    most = [config.removal.max_new_tokens or NEW_TOKENS for _ in every]
    how = GenerateConfig(batch_tokens=config.removal.batch_tokens, stop_at_newline=False)
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


def _show(result: CircuitResult, run: Path) -> Shown:
    evidence, details = result.evidence, result.details
    curve, known = evidence.curve, evidence.statistics
    base = evidence.level(details.measure)
    cpr, cmd = (known[name].number(evidence.level(name, curve)) for name in (CPR, CMD))
    unit, examples_of = ("example", "examples") if details.tasks else ("sentence", "sentence pairs")
    what = tasks_of(details.tasks) or "translation"
    examples = count(base.examples if base else 0, unit)
    random = evidence.draws(CPR, curve, next(iter(evidence.controls)))
    said = [f"CPR {cpr}, {fixed(random.mean, 3)} for random rankings; CMD {cmd}."]
    if details.inside:
        said.append(f"Idle, each alone: {len(details.idle)} of {details.inside} heads.")
    few = few_caution(base.examples if base else None, unit)
    return Shown(
        "The best heads alone",
        f"How much of {what} is left when only the best heads of a ranking are kept?",
        [sentence_of(result.verdict), *said],
        *uncertainty(evidence, CPR, curve, examples),
        [*result.cautions, *few, *leakage_caution(details.leakage, examples_of),
         *left_out_caution(details.left_out)],
        [
            *model_facts(result.model_name, len(details.heads)),
            (f"{unit}s", str(base.examples if base else "")),
            *ablation_facts(details),
        ],
        [
            Section("Heads", [HeadSets(
                f"The first {min(LISTED, len(details.heads))} heads of the ranking",
                {SELECTED: named_places(details.heads[:LISTED])},
            )]),
            Section("Values and tests", [
                _areas(evidence, curve),
                levels_table(evidence, [details.measure], "Under every condition"),
                table_of_tests(evidence, [FAITHFULNESS], f"{unit}s"),
            ]),
            *([_inside(evidence, details)] if details.inside else []),
            method_section(
                "Faithfulness is (m(C) \u2212 m(0)) / (m(M) \u2212 m(0)): m, the "
                f"{known[details.measure].words}, with the heads C kept, none, and all. CPR is its "
                "area over the share of heads kept, CMD the area between it and 1, by trapezoids "
                f"from {fixed(100 * details.shares[0], 1)} to 100 % as MIB (Mueller "
                "et al. 2025) defines them for attention heads and other parts together; feed-"
                "forward layers stay here. Random rankings: any order of all heads, or place by "
                "place a head of the same layer; each is one draw at all sizes."
            ),
        ],
        _figure(evidence, details),
    )  # fmt: skip


def left_out_caution(examples: int) -> list[str]:
    """That so many examples have no difference of two answers, where there are such."""
    why = "without a wrong answer, or of which one answer begins the other"
    return [f"Left out: {count(examples, 'example')} {why}."] if examples else []


def _areas(evidence: Evidence, curve: Condition) -> Table:
    """Both areas of the ranking, beside each kind of random rankings."""
    tests = {name: evidence.against(name, curve) for name in (CPR, CMD)}
    return table_of(
        "Areas of the ranking beside random ones",
        [
            (f"{name.upper()} \u2212 {kind}", (name, kind, test))
            for name, own in tests.items()
            for kind, test in own.items()
        ],
        {
            "ranking": lambda row: evidence.statistics[row[0]].cell(evidence.level(row[0], curve)),
            "random": lambda row: Cell.of(evidence.draws(row[0], curve, row[1])),
            "difference": lambda row: evidence.statistics[row[0]].gap(row[2].difference),
            "p over draws": lambda row: p_cell(row[2].p_draws),
            "draws": lambda row: row[2].draws,
        },
    )


def _inside(evidence: Evidence, details: CircuitDetails) -> Section:
    """What each head of a circuit adds, and what circuit and model do without parts of it."""

    def cell(name: str, condition: Condition) -> Cell:
        return evidence.statistics[name].cell(evidence.level(name, condition))

    parts = [each for each in evidence.conditions if each.kind == PART]
    rest = {each.draw: each for each in evidence.conditions if each.kind == REST}
    return Section(
        f"The circuit of {details.inside} heads",
        [
            table_of(
                "Without one of its heads",
                [(each.of, each) for each in dropped(evidence)],
                {
                    "fall of faithfulness": lambda each: cell(DROP, each),
                    "": lambda each: "idle" if each.of in details.idle else "",
                },
                "Idle: the interval of the fall does not lie above 0; not corrected for their "
                "number",
            ),
            table_of(
                "Without a part of its heads",
                [(", ".join(rest[each.draw].heads), each) for each in parts],
                {
                    "circuit": lambda each: cell(FAITHFULNESS, each),
                    "model": lambda each: cell(FAITHFULNESS, rest[each.draw]),
                    "model minus circuit": lambda each: cell(INCOMPLETE, each),
                },
                "Faithfulness; complete if circuit and model do the same without any part. "
                "Random parts hold each head with probability 1/2",
            ),
        ],
    )


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


command = Study(VerifyCircuit, verify_circuit, result=CircuitResult, show=_show)
