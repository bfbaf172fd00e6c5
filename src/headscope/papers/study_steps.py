"""Steps that run studies, and what their studies show of the runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import wraps
from typing import Any

from headscope.papers.paper import AnyResult, Setting, Step, StudyRun
from headscope.shown.blocks import (
    Block,
    Figure,
    Findings,
    HeadMap,
    HeadMaps,
    HeadTable,
    Heatmap,
    NotMeasured,
    Table,
)
from headscope.studies.costs.estimate import Work


def study_step(
    study: str | Callable[..., Any],
    settings: Callable[[Setting], Any],
    name: str,
    title: str,
    work: Work,
    after: tuple[str, ...] = (),
    extended: bool = False,
    at_most: bool = False,
) -> Step:
    """A step that runs a study with the settings that follow from those of the paper's run."""
    return Step(name, title, StudyRun(study, settings), work, after, extended, None, at_most)


def of_run(
    step: str | Callable[[Setting], str], kind: type[AnyResult], *sections: str
) -> Callable[[Callable[[Setting, AnyResult, Findings], Findings]], Callable[[Setting], Findings]]:
    """What an experiment shows of one step's result, which is nothing where it was not made.

    It is given the typed result and what the study itself shows in these sections.
    """

    def reading(
        show: Callable[[Setting, AnyResult, Findings], Findings],
    ) -> Callable[[Setting], Findings]:
        @wraps(show)
        def findings(setting: Setting) -> Findings:
            name = step if isinstance(step, str) else step(setting)
            result = setting.read(name, kind)
            if result is None:
                return Findings()
            shown = shown_by(setting, name, *sections) if sections else Findings()
            return show(setting, result, shown)

        return findings

    return reading


def shown_by(setting: Setting, step: str, *titles: str) -> Findings:
    """What the study of a finished step says of its run: its finding, its figure, and the sections
    with these titles, or the blocks where no section has the title.

    Maps and tables of heads become heatmaps. Empty where the run was not made.
    """
    shown = setting.shown(step)
    if shown is None:
        return Findings()
    single = set(titles) - {part.title for part in shown.sections}
    blocks = [
        *([shown.figure] if shown.figure else []),
        *(
            block
            for part in shown.sections
            for block in part.blocks
            if part.title in titles or getattr(block, "title", None) in single
        ),
    ]
    missing = (block for block in blocks if isinstance(block, NotMeasured))
    unknown = [f"Not measured: {block.title} ({block.why})." for block in missing]
    return Findings(
        tuple(block for block in blocks if isinstance(block, Table)),
        tuple(figure for block in blocks for figure in _figures(block)),
        " ".join(shown.finding),
        " ".join(filter(None, [shown.uncertainty, *unknown])),
    )


def titled(shown: Findings, title: str) -> Findings:
    """The same with a title, if any, before those of its blocks, and before what it found."""
    if not title:
        return shown
    return replace(
        shown,
        tables=tuple(replace(table, title=f"{title}: {table.title}") for table in shown.tables),
        figures=tuple(replace(plot, title=f"{title}: {plot.title}") for plot in shown.figures),
        found=f"{title}: {shown.found}" if shown.found else "",
        sure=f"{title}: {shown.sure}" if shown.sure else "",
    )


def joined(parts: Iterable[Findings]) -> Findings:
    """All blocks and sentences of several, in their order; the same uncertainty is said once."""
    every = list(parts)
    return Findings(
        tuple(table for part in every for table in part.tables),
        tuple(figure for part in every for figure in part.figures),
        " ".join(part.found for part in every if part.found),
        " ".join(dict.fromkeys(part.sure for part in every if part.sure)),
    )


def _figures(block: Block) -> tuple[Figure, ...]:
    """What is drawn of a block; a table of heads is drawn as maps of what they are ranked by."""
    if isinstance(block, Figure):
        return (block,)
    if isinstance(block, HeadTable):
        layers, width = (1 + max(place[at] for place in block.heads) for at in (0, 1))
        maps = []
        for name, numbers in block.parts.items():
            known = dict(zip(block.heads, numbers[block.ranked_by], strict=True))
            rows = (
                tuple(known.get((layer, head)) for head in range(width)) for layer in range(layers)
            )
            maps.append(HeadMap(name, tuple(rows)))
        scale = next(column.title for column in block.columns if column.key == block.ranked_by)
        block = HeadMaps(block.title, tuple(maps), scale, digits=2)
    if not isinstance(block, HeadMaps):
        return ()
    return tuple(
        Heatmap(
            ", ".join(filter(None, (block.title, heads.name))),
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
