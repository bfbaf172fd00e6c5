"""A head mask trained on a task, in a run folder."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from math import exp, nextafter
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray

from headscope import options
from headscope.errors import InputError, caution
from headscope.executors import Execution
from headscope.find.mask_config import PRESETS, History, MaskTraining, PresetName, preset
from headscope.heads import Gate, Head, HeadScores, HeadSet, Origin, save_scores
from headscope.measure.baseline import Rules
from headscope.progress import Progress
from headscope.results.mask import (
    Fate,
    FeedForwardGate,
    FoundMask,
    MaskHead,
    MaskModel,
    TaskData,
    TaskSizes,
)
from headscope.runs import Run, configuration, decode
from headscope.runs.reading import mixed_up, read_arrays
from headscope.settings import GIVEN, UNSIGNED, Nested, Option, Settings
from headscope.shown.blocks import (
    Cell,
    Column,
    HeadSets,
    HeadTable,
    Lines,
    Section,
    Series,
    Shown,
    Table,
    method_section,
    one_column,
    table_of,
)
from headscope.shown.words import enumeration, fixed, sentence_of, tasks_of
from headscope.studies.baseline import check_tasks
from headscope.studies.models import PROMPTED, ModelChoice, run_with_model
from headscope.studies.shows import model_facts, places
from headscope.studies.study import Study
from headscope.studies.survey_plans import SurveyPlan
from headscope.studies.tasks import (
    TaskChoice,
    answers,
    first_prompts,
    found_on,
    read_tasks,
    resolved_tasks,
    task_inputs,
    training_task,
)

if TYPE_CHECKING:
    from headscope.find.mask_training import TrainedMask
    from headscope.lm import LanguageModel
    from headscope.lm.prompting import Answered

COMMAND = "find mask"
METHOD = "mask"
#: The part of a run that keeps how many steps were chosen when it began.
SCHEDULE = "schedule"


@dataclass(frozen=True)
class FindMask(Settings):
    """Train a mask: the heads that a model keeps to do a task without its instruction.

    The model is frozen; every head has a weight, trained on inputs and outputs of the task without
    its instruction. Several tasks with --shots make one mask for all of them. Steps and the highest
    learning rate are those of the preset by default. The time they will take is printed first.
    """

    model: Annotated[ModelChoice, PROMPTED] = field(default_factory=ModelChoice)
    task: TaskChoice = field(default_factory=TaskChoice)
    # What preset and changes come to counts in the signature.
    preset: Annotated[
        PresetName | None,
        Option(
            "paper: 6,200 steps; small: 600 steps at higher rates; without it small for models of "
            "fewer than 256 heads."
        ),
    ] = field(default=None, metadata=UNSIGNED)
    changes: Annotated[Mapping[str, Any], Nested(of=MaskTraining, make=dict)] = field(
        default_factory=dict, metadata=UNSIGNED
    )
    seed: options.Seed = 0
    # The run keeps the number of steps that it began with.
    minutes: Annotated[
        float | None,
        Option(
            "Take as many of the preset's steps as fit into so many minutes, by what a step takes "
            "here.",
            panel="Running",
        ),
    ] = field(default=None, metadata=GIVEN)
    baseline: Annotated[Rules, Nested(without=("errors",))] = field(default_factory=Rules)
    execution: Execution = field(default_factory=Execution, metadata=UNSIGNED)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.minutes is None:
            return
        if not 0 < self.minutes < math.inf:
            raise InputError(f"minutes is {self.minutes}; it must be a number above 0")
        if self.changes.get("steps") is not None:
            raise InputError("steps and minutes both say how long to train; give one of them")


def find_mask(
    config: FindMask,
    out: Path | None = None,
    progress: Progress | None = None,
    tell: Callable[[str], None] | None = None,
) -> FoundMask:
    """Train, write the run and return the command's result; an interrupted run goes on.

    The run holds the weights as scores (`selected` beside them), the selected heads by falling
    weight, the gate that keeps them alone, and `history.safetensors`: `steps` (S,), `weights`
    (S, L, W) and `losses`. `tell` is given a sentence on steps and time before training begins.
    With feed-forward gates also `feed_forward.safetensors` (`weights` and
    `mask`, (L,)) and in the history `feed_forward` (S, L).
    """
    from headscope.find.mask_training import PART, train_mask
    from headscope.lm.geometry import key_value_heads

    began = time.monotonic()
    if config.execution.workers > 1:
        message = "a mask is one training, whose steps follow one another: one worker makes it"
        caution(message)
        config = replace(config, execution=replace(config.execution, workers=1))
    again = config
    _check_changes(config)
    tasks = read_tasks(config.task, config.model.model, config.seed)
    task = training_task(config.task, tasks, config.seed)
    lm = config.model.load_for(config.execution)
    config = replace(config, task=resolved_tasks(lm, config.task, config.model.model))
    training = preset(config.preset, lm.geometry.total, seed=config.seed, **config.changes)
    rows = answers(lm, task)
    settings = {
        "settings": config,
        # How many steps fit is known once the run has begun.
        "training": training
        if config.minutes is None
        else {**configuration(training), "steps": None},
    }

    def compute(run: Run) -> FoundMask:
        names = [
            f"{task.path}, example {example.id} (line {example.line})" for example in task.examples
        ]
        shots = config.task.shots
        works = check_tasks(lm, tasks, shots, config.seed, run, config.baseline, progress)

        def train() -> tuple[MaskTraining, float | None, TrainedMask]:
            fitting, seconds = _fitting(lm, rows, training, names, config.minutes, run, began, tell)
            return fitting, seconds, train_mask(lm, rows, fitting, run, progress, names)

        # The training is a single unit; the step's time counts where it is made.
        with run.units(PART, partial(_untrained, run), lambda: None) as mine:
            made = train() if mine else None
        fitting, seconds, trained = made or train()
        run.write_json("found_on.json", found_on(tasks))
        heads = _heads(_write(run, trained, fitting), trained)
        selected = sum(head.selected for head in heads)
        gates = trained.feed_forward
        short = fitting.travel < fitting.enough
        parts = {name: sides.train for name, sides in tasks.items() if sides.train is not None}
        return FoundMask(
            **works,
            first_prompts=first_prompts(lm, tasks, shots, config.seed),
            scored=heads,
            selected=selected,
            kept_share=selected / lm.geometry.total,
            fates=Counter(head.fate for head in heads),
            feed_forward=None
            if gates is None
            else tuple(
                FeedForwardGate(layer, weight, weight >= 0)
                for layer, weight in enumerate(gates.tolist())
            ),
            loss=tuple(trained.losses.tolist()),
            start=fitting.start,
            on=fitting.on,
            steps=fitting.steps,
            travel=fitting.travel,
            training=asdict(fitting),
            notes=(_short_of(fitting).replace("have time", "have had time"),) if short else (),
            task=task.name,
            tasks=tuple(
                TaskSizes(name, len(part.examples), len(tasks[name].test.examples))
                for name, part in parts.items()
            ),
            shots=shots,
            prompt=task.bare,
            examples=len(rows),
            minutes=config.minutes,
            seconds_a_step=seconds,
            tokens=sum(len(row.ids) - row.start for row in rows),
            model=MaskModel(
                name=lm.name,
                revision=lm.revision,
                heads=lm.geometry.total,
                layers=lm.geometry.layers,
                key_value_heads=tuple(key_value_heads(lm)),
            ),
            data=tuple(
                TaskData(name, part.path, len(part.examples)) for name, part in parts.items()
            ),
        )

    data, seed = task_inputs(tasks), config.seed
    return run_with_model(
        lm, COMMAND, out, settings, data, compute, began, kind=FoundMask, config=again, seed=seed
    )


def _untrained(run: Run) -> list[str]:
    """The training by its name, unless its last step is kept."""
    from headscope.find.mask_training import PART

    kept = run.read_part(SCHEDULE)
    last = f"{PART}/{kept[SCHEDULE]['steps']:08d}.safetensors" if kept else PART
    return [] if kept and run.part(last).exists() else [PART]


def _fitting(
    lm: LanguageModel,
    rows: Sequence[Answered],
    training: MaskTraining,
    names: Sequence[str],
    minutes: float | None,
    run: Run,
    began: float,
    tell: Callable[[str], None] | None,
) -> tuple[MaskTraining, float | None]:
    """The training with the steps that fit into the minutes, and what a step took when it began.

    Decided once a run: one that goes on has the schedule it began with.
    """
    from headscope.find.mask_training import seconds_a_step

    kept = run.read_part(SCHEDULE)
    if not kept and run.read_tensors("training"):  # begun by a version that did not time it
        return training, None
    if not kept:
        seconds = seconds_a_step(lm, rows, training, names)
        steps = training.steps
        if minutes is not None:
            left = 60 * minutes - (time.monotonic() - began)
            steps = max(1, min(steps, int(left / seconds)))
        _announce(training, steps, seconds, minutes, tell)
        kept = {SCHEDULE: {"steps": steps, "seconds_a_step": seconds}}
        run.append_part(SCHEDULE, SCHEDULE, kept[SCHEDULE])
    schedule = kept[SCHEDULE]
    return replace(training, steps=int(schedule["steps"])), float(schedule["seconds_a_step"])


def _announce(
    training: MaskTraining,
    steps: int,
    seconds: float,
    minutes: float | None,
    tell: Callable[[str], None] | None,
) -> None:
    """Say how long it takes, and whether that is long enough; InputError where it cannot be."""
    try:
        short = replace(training, steps=steps)
    except InputError as error:
        needed = seconds * training.steps / 60
        raise InputError(
            f"{steps} steps of {seconds:.3g} s fit into {minutes:g} minutes, too few for a weight "
            f"to change its sign; give --minutes {math.ceil(1.1 * needed)} for all "
            f"{training.steps} steps, or raise --learning-rate"
        ) from error
    if tell is None:
        return
    fit = "" if minutes is None or steps == training.steps else f" fit into {minutes:g} minutes"
    tell(f"{steps} steps × {seconds:.3g} s{fit}: about {steps * seconds / 60:.3g} minutes")
    if short.travel < short.enough:
        tell(f"warning: {_short_of(short)}")


def _short_of(training: MaskTraining) -> str:
    return (
        f"the learning rates add up to {training.travel:.3g}, so weights that begin at "
        f"{training.mean:g} may not have time to cross 0; {training.enough:g} is enough"
    )


def _check_changes(config: FindMask) -> None:
    """Tell of a slip before a model is loaded: none of the presets in question can be made so.

    Where no preset is named, what is told is of the last of them, whose learning rates are highest.
    """
    errors = []
    names = [config.preset] if config.preset else list(PRESETS)
    for name in names:
        try:
            preset(name, 0, seed=config.seed, **config.changes)
        except InputError as error:
            errors.append(error)
    if len(errors) == len(names):
        raise errors[-1]


def _write(run: Run, trained: TrainedMask, training: MaskTraining) -> HeadScores:
    geometry = trained.mask.geometry
    selected = (trained.mask.values == 1) & geometry.mask()
    known = {"on": training.on, "start": training.start, "steps": training.steps}
    origin = Origin(METHOD, run.signature, known, run.provenance)
    scores = HeadScores(
        geometry,
        trained.weights.astype(np.float64),
        METHOD,
        extra={"selected": selected.astype(np.float64)},
        config=known,
        provenance=run.provenance,
        signature=run.signature,
    )
    save_scores(run.path, scores)
    heads = trained.selected.heads
    HeadSet(geometry, heads, origin).save_pretrained(run.path / "heads")
    Gate(geometry, trained.mask.values, origin).save_pretrained(run.path / "gate")
    history: dict[str, NDArray[Any]] = {
        "steps": trained.history.steps,
        "weights": trained.history.weights,
        "losses": trained.losses,
    }
    if trained.feed_forward is not None and trained.history.feed_forward is not None:
        history["feed_forward"] = trained.history.feed_forward
        mask = (trained.feed_forward >= 0).astype(np.float32)
        run.write_tensors(
            "feed_forward.safetensors", {"weights": trained.feed_forward, "mask": mask}
        )
    run.write_tensors("history.safetensors", history)
    return scores


def _heads(scores: HeadScores, trained: TrainedMask) -> tuple[MaskHead, ...]:
    """Every head with its weight, by falling weight, and what became of it."""
    courses = {course.head: course for course in trained.history.courses(scores.geometry)}
    heads = []
    for row in scores.records():
        course = courses[Head(row["layer"], row["head"])]
        way = {"selected": course.selected, "fate": course.fate, "changes": [*course.changes]}
        heads.append(decode(MaskHead, row | way))
    return tuple(heads)


#: Points of a line, and lines of single heads.
POINTS, LINES = 100, 4
#: A head is kept where its weight M is above this: 0 or above.
KEPT = nextafter(0.0, -1)
FATES: dict[Fate, str] = {
    "kept": "kept from beginning to end",
    "dropped": "kept at first, then dropped for good",
    "tried": "dropped, but kept again for a while",
    "regained": "kept, but dropped for a while",
    "added": "dropped at first, then kept for good",
    "never": "dropped from beginning to end",
}


def _history(path: Path, result: FoundMask) -> History:
    """The weights on the way of a finished run; InputError if it is not that of this result."""
    geometry = HeadScores.from_pretrained(path / "scores").geometry
    arrays = read_arrays(path / "history.safetensors", ("steps", "weights", "losses"))
    steps, weights, losses = arrays.values()
    if (
        sorted(head.place for head in result.scored) != list(geometry.heads())
        or weights.shape != (len(steps), *geometry.shape)
        or len(steps) < 2
        or not int(steps[-1]) == len(losses) == len(result.loss)
    ):
        raise mixed_up(path)
    at = np.unique(np.linspace(0, len(steps) - 1, POINTS).round().astype(int))
    return History(steps[at], weights[at])


def _show(result: FoundMask, run: Path) -> Shown:
    history = _history(run, result)
    first, last = result.loss_ends
    dropped = "attends evenly: its queries are 0" if result.on == "query" else "writes nothing"
    cautions = [
        "The loss is of the examples trained on, with gates drawn at random. headscope verify mask "
        "tests the mask on held-out examples, against random masks."
    ]
    if last >= first:
        cautions.append("The loss did not fall: the mask may not do the task.")
    cautions += map(sentence_of, result.notes)
    return Shown(
        "Learned mask",
        f"Which heads does {result.model_name} keep when it learns to do {tasks_of([result.task])} "
        "without an instruction?",
        _finding(result),
        "One training run with one seed: another can keep other heads.",
        f"--seed {int(result.training.get('seed', 0)) + 1}",
        cautions,
        [
            *model_facts(result.model_name, len(result.scored)),
            ("task", result.task),
            ("examples", str(result.examples)),
            *([("shots", str(result.shots))] if result.shots else []),
            ("steps", str(len(result.loss))),
            (
                "start",
                "nearly all heads kept" if result.start == "positive" else "nearly none kept",
            ),
            ("gates on", "queries" if result.on == "query" else "outputs"),
        ],
        [
            Section("Heads", [_kept(result)]),
            Section("Heads kept by layer", [_layers(result)], brief=True),
            Section("Training", [*_training(result, history), *_courses(result, history)]),
            method_section(
                "The model is frozen; one weight M a head is trained, and heads with M \u2265 0 at "
                f"the end are the mask. A dropped head {dropped}."
            ),
        ],
        _every_head(result),
    )


def _finding(result: FoundMask) -> list[str]:
    first, last = result.loss_ends
    gone = result.feed_forward_dropped
    parts = f" It drops the feed-forward part of layer {enumeration([*map(str, gone)])}."
    if result.feed_forward is not None and not gone:
        parts = " It keeps every feed-forward part."
    return [
        f"The mask keeps {result.selected} of {len(result.scored)} heads: candidates, until verify "
        f"mask has tested them.{parts * (result.feed_forward is not None)}",
        f"In training, the loss of the answers {'falls' if last < first else 'rises'} from "
        f"{fixed(first, 3)} to {fixed(last, 3)} nats a token.",
    ]


def _layers(result: FoundMask) -> Table:
    return table_of(
        "Heads kept by layer",
        ((f"layer {layer}", heads) for layer, heads in result.layers.items()),
        {
            "kept": lambda heads: sum(head.selected for head in heads),
            "heads": len,
            "share kept": lambda heads: Cell.share(
                sum(head.selected for head in heads) / len(heads)
            ),
            "heads dropped": lambda heads: (
                " ".join(str(head.head) for head in heads if not head.selected) or "none"
            ),
        },
    )


def _every_head(result: FoundMask) -> HeadTable:
    heads = sorted(result.scored, key=lambda head: head.place)
    columns = (
        Column("open", "\u03c3(M)", "how open the gate is; kept from 0.5 on"),
        Column("weight", "Weight M", "kept from 0 on"),
        Column("changes", "Switches", "how often it switched between kept and dropped", 0),
    )
    values = {
        "open": [1 / (1 + exp(-head.score)) for head in heads],
        "weight": [head.score for head in heads],
        "changes": [float(len(head.changes)) for head in heads],
    }
    return HeadTable(
        "Every head by its weight",
        places(head.place for head in heads),
        columns,
        {result.task: values},
        ranked_by="weight",
        threshold=KEPT,
        classes=(("kept", KEPT), ("dropped", None)),
        high=1.0,
        note="The nearer \u03c3(M) is to 0.5, the less certain is the head's place",
    )


def _kept(result: FoundMask) -> HeadSets:
    kept = [head.place for head in result.scored if head.selected]
    return HeadSets("Heads kept, highest weight first", {result.task: places(kept)})


def _training(result: FoundMask, history: History) -> list[Lines]:
    width = max(1, len(result.loss) // POINTS)
    blocks = {at: result.loss[at : at + width] for at in range(0, len(result.loss), width)}
    loss = tuple((at + len(part) / 2, fmean(part)) for at, part in blocks.items())
    places = [(head.layer, head.head) for head in result.scored]
    kept = np.sum([history.weights[:, layer, head] >= 0 for layer, head in places], axis=0)
    size = tuple(zip(map(float, history.steps), map(float, kept), strict=True))
    return [
        Lines(
            "Loss of the answers",
            (Series("loss", loss),),
            "step",
            "nats a token",
            note=("" if width == 1 else f"Means of {width} steps, ")
            + "with any penalty on heads kept",
        ),
        Lines("Size of the mask", (Series("heads with M \u2265 0", size),), "step", "heads kept"),
    ]


def _line(history: History, name: str, heads: Sequence[MaskHead]) -> Series:
    """The mean weight of these heads over steps, with the lowest and the highest."""
    weights = np.array([history.weights[:, head.layer, head.head] for head in heads])
    points = tuple(zip(history.steps.tolist(), weights.mean(axis=0).tolist(), strict=True))
    if len(heads) == 1:
        return Series(name, points)
    ends = (tuple(weights.min(axis=0).tolist()), tuple(weights.max(axis=0).tolist()))
    return Series(name, points, *ends)


def _courses(result: FoundMask, history: History) -> list[Lines | Table]:
    groups = {
        "selected heads, mean": [head for head in result.scored if head.selected],
        "dropped heads, mean": [head for head in result.scored if not head.selected],
    }
    groups |= {f"head {head.place}": [head] for head in result.scored if head.wavered}
    drawn = list(groups.items())[: 2 + LINES]
    fates = ((words, result.fates[fate]) for fate, words in FATES.items() if result.fates.get(fate))
    wavered = table_of(
        "Heads that switched more than once",
        ((str(head.place), head) for head in result.scored if head.wavered),
        {
            "course": lambda head: FATES[head.fate],
            "switched after steps": lambda head: ", ".join(map(str, head.changes)),
        },
    )
    return [
        Lines(
            "Weights during training",
            tuple(_line(history, name, heads) for name, heads in drawn if heads),
            "step",
            "weight M",
            note="A head is kept while its weight is 0 or above. Single heads: the first that "
            "switched more than once",
            band="the range over heads",
            references=(("kept from here", 0.0),),
        ),
        one_column(
            "Courses of heads",
            "heads",
            fates,
            "Stretches of less than 1\u00a0% of the steps are left out",
        ),
        *([wavered] if wavered.rows else []),
    ]


def _survey(plan: SurveyPlan) -> FindMask | str:
    if plan.quick:
        return "a mask needs its steps: without --quick it is trained"
    config = FindMask(plan.model, plan.task(), seed=plan.data.seed)
    return plan.untasked() or config


command = Study(
    FindMask,
    find_mask,
    result=FoundMask,
    show=_show,
    survey=_survey,
    usage="--task plural-en --out runs/plural",
)
