"""Hidden states of a masked and an instructed model beside each other, in a run folder."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray

from headscope import options
from headscope.compare.state_evidence import describe
from headscope.compare.states import CONDITIONS, CONTROLS, Sample, observe
from headscope.data.tasks import Task
from headscope.errors import InputError
from headscope.measure.baseline import Rules
from headscope.results.common import Leakage
from headscope.results.states import ComparedStates, KeptHeads, Lens, LensRow
from headscope.runs import Run, decode
from headscope.settings import UNSIGNED, Option, Part, Settings
from headscope.studies.baseline import check_tasks
from headscope.studies.inputs import ModelChoice, Progress, run_with_model
from headscope.studies.masked_tasks import read_masked_task
from headscope.studies.tasks import TaskChoice, TaskSides, answers, resolved_tasks
from headscope.verify.masks.mask import Mask, shuffled

if TYPE_CHECKING:
    from headscope.lm import LanguageModel

__all__ = ["COMMAND", "CompareStates", "compare_states"]

COMMAND = "compare states"

#: Samples that are looked at, and written down, at once.
_AT_ONCE = 16


@dataclass(frozen=True)
class CompareStates(Settings):
    """Compare hidden states as is, instructed, masked (only --heads kept) and both, layer by layer.

    Without --task and --pair a mask run of the bundled model is looked at with its own task.
    """

    heads: options.Heads = field(metadata=UNSIGNED)
    model: ModelChoice = field(default_factory=ModelChoice)
    tasks: TaskChoice = field(default_factory=TaskChoice)
    example: options.Example = None
    # Shuffled masks of the same size, over all heads and layer by layer each.
    draws: options.Draws = 5
    seed: options.Seed = 0
    top: Annotated[int, Option("Tokens that the logit lens shows.", min=1)] = 5
    batch_tokens: options.BatchTokens = field(default=8192, metadata=UNSIGNED)
    allow_overlap: options.AllowOverlap = field(default=False, metadata=UNSIGNED)
    baseline: Annotated[Rules, Part(without=("errors",))] = field(default_factory=Rules)


def compare_states(
    config: CompareStates, out: Path | None = None, progress: Progress | None = None
) -> ComparedStates:
    """Compare states and return the command's result; a run that was stopped goes on.

    The run keeps `states.safetensors`, the cosines, lens tokens and ranks of every sample.
    """
    began = time.monotonic()
    chosen = read_masked_task(
        config.heads, config.tasks, config.model, config.seed, config.allow_overlap
    )
    task = chosen.task
    shown = _shown(task, config.example)
    lm = config.model.load_for(out)
    config = replace(config, tasks=resolved_tasks(lm, config.tasks, config.model.model))
    mask = chosen.mask(lm.geometry)
    samples = _samples(lm, task)
    settings = {"settings": config, **chosen.signature(mask), "computed_in": str(lm.dtype)}

    def compute(run: Run) -> ComparedStates:
        sides = {task.name: TaskSides(None, task)}
        works = check_tasks(lm, sides, 0, config.seed, run, config.baseline, progress)
        tensors = _observed(lm, samples, mask, config, run, progress)
        run.write_tensors("states.safetensors", tensors)
        about = chosen.about(mask)
        return ComparedStates(
            **about
            | {"mask": decode(KeptHeads, about["mask"]), "leakage": Leakage(**chosen.leakage)}
            | works,
            states=describe(tensors),
            lens=_lens(lm, task, shown, tensors),
        )

    return run_with_model(
        lm, COMMAND, out, settings, chosen.inputs, compute, began, kind=ComparedStates
    )


def _shown(task: Task, example: str | None) -> int:
    """Which sample is shown through the lens."""
    ids = [one.id for one in task.examples]
    if example is None:
        return 0
    if example not in ids:
        raise InputError(
            f"--example {example} is none of the {len(ids)} held-out examples of {task.name!r}; "
            f"there are {', '.join(ids[:8])}{' …' if len(ids) > 8 else ''}"
        )
    return ids.index(example)


def _samples(lm: LanguageModel, task: Task) -> list[Sample]:
    rows = zip(task.examples, answers(lm, task), answers(lm, task, instructed=True), strict=True)
    return [
        Sample(
            bare.ids[: bare.start],
            told.ids[: told.start],
            bare.ids[bare.start],
            f"{task.path}, example {example.id} (line {example.line})",
        )
        for example, bare, told in rows
    ]


def _observed(
    lm: LanguageModel,
    samples: Sequence[Sample],
    mask: Mask,
    config: CompareStates,
    run: Run,
    progress: Progress | None,
) -> dict[str, NDArray[Any]]:
    """What `observe` keeps of all samples; those of an earlier try from the run's parts."""
    drawn = (shuffled(mask, config.draws, config.seed, by_layer) for by_layer in (False, True))
    controls = dict(zip(CONTROLS, drawn, strict=True))
    kept = run.read_tensors("states")
    parts: list[Mapping[str, NDArray[Any]]] = []
    for start in range(0, len(samples), _AT_ONCE):
        key = f"{start:08d}"
        if key not in kept:
            some = samples[start : start + _AT_ONCE]
            kept[key] = observe(lm, some, mask, controls, config.top, config.batch_tokens)
            run.append_tensors("states", key, kept[key])
        parts.append(kept[key])
        if progress:
            progress("comparing states", min(start + _AT_ONCE, len(samples)), len(samples))
    return {name: np.concatenate([part[name] for part in parts], axis=1) for name in parts[0]}


def _lens(lm: LanguageModel, task: Task, shown: int, tensors: Mapping[str, NDArray[Any]]) -> Lens:
    """What each layer would say about the sample shown, the embedding first."""
    example = task.examples[shown]
    own = [tensors[name][:, shown].tolist() for name in ("lens_tokens", "lens_logits", "ranks")]
    conditions = {
        name: tuple(
            LensRow(
                layer - 1 if layer else None,
                tuple(lm.tokenizer.decode([token]) for token in tokens),
                tuple(logits),
                rank,
            )
            for layer, (tokens, logits, rank) in enumerate(zip(*rows, strict=True))
        )
        for name, *rows in zip(CONDITIONS, *own, strict=True)
    }
    return Lens(example.id, example.input, example.output, conditions)
