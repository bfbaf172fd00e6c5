"""A head mask trained on a task, in a run folder."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscope.data.tasks import Task
from headscope.errors import InputError
from headscope.find.mask import PRESETS, MaskTraining, TrainedMask, preset, train_mask
from headscope.find.mask.config import PresetName
from headscope.heads import Gate, HeadScores, HeadSet, Origin, save_scores
from headscope.lm.groups import key_value_heads
from headscope.recipes.inputs import ModelChoice, Progress, model_inputs, model_provenance
from headscope.recipes.tasks import (
    TaskChoice,
    TaskSides,
    answers,
    found_on,
    read_tasks,
    task_inputs,
    training_task,
)
from headscope.runs import Run, open_run

__all__ = ["COMMAND", "FindMask", "find_mask"]

COMMAND = "find mask"
METHOD = "mask"


@dataclass(frozen=True)
class FindMask:
    """A whole run of the command.

    `preset` (None: by the number of heads of the model) and `changes`, values by the names of
    `MaskTraining`, make the training; what counts for the signature is what they come to.
    """

    model: ModelChoice = field(default_factory=ModelChoice)
    task: TaskChoice = field(default_factory=TaskChoice)
    preset: PresetName | None = field(default=None, metadata={"signature": False})
    changes: Mapping[str, Any] = field(default_factory=dict, metadata={"signature": False})
    seed: int = 0


def find_mask(
    config: FindMask, out: Path | None = None, progress: Progress | None = None
) -> dict[str, Any]:
    """Train, write the run and return the command's result; an interrupted run goes on.

    The run holds the weights as scores (`selected` beside them), the selected heads by falling
    weight, the gate that keeps them alone, and `history.safetensors`: `steps` (S,), `weights`
    (S, L, W) and `losses`. With feed-forward gates also `feed_forward.safetensors` (`weights` and
    `mask`, (L,)) and in the history `feed_forward` (S, L).
    """
    began = time.monotonic()
    _check_changes(config)
    tasks = read_tasks(config.task, config.model.model, config.seed)
    task = training_task(config.task, tasks, config.seed)
    lm = config.model.load_for(out)
    training = preset(config.preset, lm.geometry.total, seed=config.seed, **config.changes)
    rows = answers(lm, task)
    settings = {
        "settings": config,
        "training": training,
        "computed_in": str(lm.dtype).removeprefix("torch."),
    }
    inputs = model_inputs(lm, {}) | task_inputs(tasks)
    provenance = {**model_provenance(lm), "seed": config.seed}
    with open_run(out, COMMAND, settings, inputs, provenance=provenance) as run:
        if run.finished:
            return {**run.result(), "run": str(run.path)}  # the folder may have been moved
        names = [f"{task.path}, example {one.id} (line {one.line})" for one in task.examples]
        trained = train_mask(lm, rows, training, run, progress, names)
        run.write_json("found_on.json", found_on(tasks))
        scores = _write(run, trained, training)
        result = {
            "signature": run.signature,
            **_describe(scores, trained, training),
            "task": task.name,
            "tasks": [_about(sides) for sides in tasks.values()],
            "shots": config.task.shots,
            "prompt": task.bare,
            "examples": len(rows),
            "tokens": sum(len(row.ids) - row.start for row in rows),
            "model": {
                "name": lm.name,
                "revision": lm.revision,
                "heads": lm.geometry.total,
                "layers": lm.geometry.layers,
                "key_value_heads": list(key_value_heads(lm)),
            },
            "data": [_data(sides) for sides in tasks.values()],
            "run": str(run.path),
            "seconds": time.monotonic() - began,
        }
        run.finish(result)
        return result


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


def _describe(scores: HeadScores, trained: TrainedMask, training: MaskTraining) -> dict[str, Any]:
    """The JSON of a mask: its heads, what became of each, and how the training went."""
    geometry = scores.geometry
    courses = {course.head: course for course in trained.history.courses(geometry)}
    heads = []
    for (head, _), record in zip(scores.ranked(), scores.records(), strict=True):
        course = courses[head]
        heads.append(
            {
                **record,
                "selected": course.selected,
                "fate": course.fate,
                "changes": list(course.changes),
            }
        )
    selected = sum(one["selected"] for one in heads)
    feed_forward = None
    if trained.feed_forward is not None:
        feed_forward = [
            {"layer": layer, "weight": weight, "selected": weight >= 0}
            for layer, weight in enumerate(trained.feed_forward.tolist())
        ]
    notes = []
    if training.travel < training.enough:
        notes.append(
            f"the learning rates add up to {training.travel:.3g}, so weights that begin at "
            f"{training.mean:g} may not have had time to cross 0; {training.enough:g} is enough"
        )
    return {
        "heads": heads,
        "selected": selected,
        "kept_share": selected / geometry.total,
        "fates": dict(Counter(course.fate for course in courses.values())),
        "feed_forward": feed_forward,
        "loss": trained.losses.tolist(),
        "start": training.start,
        "on": training.on,
        "steps": training.steps,
        "travel": training.travel,
        "training": asdict(training),
        "notes": notes,
    }


def _about(sides: TaskSides) -> dict[str, Any]:
    train = _trained_on(sides)
    return {"name": sides.name, "train": len(train.examples), "held_out": len(sides.test.examples)}


def _data(sides: TaskSides) -> dict[str, Any]:
    train = _trained_on(sides)
    return {"name": sides.name, "path": train.path, "rows": len(train.examples)}


def _trained_on(sides: TaskSides) -> Task:
    assert sides.train is not None  # else there would have been nothing to train on
    return sides.train
