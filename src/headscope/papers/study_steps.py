"""Steps that run studies, and what their studies show of the runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from headscope.papers.paper import Setting, Step
from headscope.runs import encode
from headscope.shown.blocks import Block, Figure, Findings, HeadMaps, Heatmap, NotMeasured, Table
from headscope.studies.costs.work import Work
from headscope.studies.inputs import Progress


def study_step(
    study: Callable[..., Any],
    settings: Callable[[Setting], Any],
    name: str,
    title: str,
    work: Work,
    after: tuple[str, ...] = (),
) -> Step:
    """A step that runs a study with the settings that follow from those of the paper's run."""

    def run(setting: Setting, folder: Path, progress: Progress | None) -> Mapping[str, Any]:
        return dict(encode(study(settings(setting), folder, progress)))

    return Step(name, title, run, work, after)


def shown_by(setting: Setting, step: str, *sections: str) -> Findings:
    """What the study of a finished step says of its run: its finding, and blocks of these sections.

    Maps of heads become heatmaps. Empty where the run was not made.
    """
    shown = setting.shown(step)
    if shown is None:
        return Findings()
    blocks = [block for one in shown.sections if one.title in sections for block in one.blocks]
    missing = (block for block in blocks if isinstance(block, NotMeasured))
    unknown = [f"Not measured: {block.title} ({block.why})." for block in missing]
    return Findings(
        tuple(block for block in blocks if isinstance(block, Table)),
        tuple(figure for block in blocks for figure in _figures(block)),
        " ".join(shown.finding),
        " ".join(filter(None, [shown.uncertainty, *unknown])),
    )


def _figures(block: Block) -> tuple[Figure, ...]:
    if isinstance(block, Figure):
        return (block,)
    if not isinstance(block, HeadMaps):
        return ()
    return tuple(
        Heatmap(
            f"{block.title}, {heads.name}",
            tuple(map(str, range(len(heads.values)))),
            tuple(map(str, range(max(map(len, heads.values))))),
            heads.values,
            block.scale,
            "layer",
            "head",
            block.low,
            block.high,
            block.diverging,
            block.digits,
        )
        for heads in block.maps
    )
