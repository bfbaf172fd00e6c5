"""Figure 3: how the weights of heads move while a mask is trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headscope.errors import InputError
from headscope.papers.heads_up.asked import NO_MASKS, first_task
from headscope.papers.heads_up.steps import mask_name, mask_step
from headscope.papers.paper import Experiment, Missing, Setting, Step
from headscope.shown.blocks import Cell, Findings, Lines, Row, Series, Table

#: Lines that the figure has room for, of each kind.
SHOWN = 6
#: The fates of heads that moved both ways, as `find mask` tells them.
KINDS = {"regained": "in the mask after having left it", "tried": "out of the mask after a return"}


def _history_steps(setting: Setting) -> tuple[Step, ...] | Missing:
    task = first_task(setting)
    if task is None:
        return NO_MASKS
    return (mask_step(setting, task),)


def _history_tell(setting: Setting) -> Findings:
    task = first_task(setting)
    result = None if task is None else setting.result(mask_name(task))
    if task is None or result is None:
        return Findings()
    heads = result["heads"]
    back = [one for one in heads if one["fate"] == "regained"]
    gone = [one for one in heads if one["fate"] == "tried"]
    table = Table(
        f"What became of the heads in training ({task.name})",
        ("heads", "share"),
        tuple(
            Row(fate, (Cell(count, digits=0), Cell(count / len(heads))))
            for fate, count in sorted(result["fates"].items(), key=lambda one: -one[1])
        ),
        note="A head is selected while its weight is zero or more; a stretch between two changes "
        "that is shorter than a hundredth of the training does not count.",
    )
    found = (
        f"Of {len(heads)} heads {len(back)} are dropped and taken back before the end, and "
        f"{len(gone)} are dropped, taken back and dropped again."
    )
    return Findings(
        (table,),
        _history_lines(setting, mask_name(task), back, gone),
        found,
        "One training with one seed. Weights are noisy, so a crossing by itself does not show "
        "that heads depend on each other.",
    )


def _history_lines(
    setting: Setting,
    step: str,
    back: Sequence[Mapping[str, Any]],
    gone: Sequence[Mapping[str, Any]],
) -> tuple[Lines, ...]:
    """The course of some heads; none where the run's own files are not at hand."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    file = setting.at(step) / "history.safetensors"
    if not file.is_file():
        return ()
    try:
        history = load(file.read_bytes())
    except (SafetensorError, ValueError) as error:
        raise InputError(
            f"{file}: is damaged; delete {file.parent} and run the same command again"
        ) from error
    at, weights = history["steps"], np.asarray(history["weights"], dtype=np.float64)
    kinds = zip(KINDS.values(), (back, gone), strict=True)
    series = [
        Series(
            f"{one['layer']}.{one['head']}, {kind}",
            tuple(
                (float(step), float(1 / (1 + np.exp(-weight))))
                for step, weight in zip(at, weights[:, one["layer"], one["head"]], strict=True)
            ),
        )
        for kind, heads in kinds
        for one in sorted(heads, key=lambda one: -len(one["changes"]))[:SHOWN]
    ]
    if not series:
        return ()
    return (
        Lines(
            "Weights of heads that were dropped and taken back",
            tuple(series),
            "step",
            "σ(weight)",
            note=f"Up to {SHOWN} heads of each kind, those that change most often.",
        ),
    )


FIGURE_3 = Experiment(
    "figure-3",
    ("Figure 3",),
    "How the weights of heads move during training",
    _history_steps,
    _history_tell,
)
