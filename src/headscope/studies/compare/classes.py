"""Shares of the classes of heads in models of any geometry: no model is loaded."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from headscope import options
from headscope.compare.artifacts import read_artifacts
from headscope.compare.sets import class_shares
from headscope.errors import InputError
from headscope.heads import check_thresholds
from headscope.results.classes import Classes, ClassesResult, ClassShares
from headscope.runs import Run, carry_out
from headscope.settings import Option, Settings
from headscope.shown.blocks import Bars, Cell, Row, Section, Shown, Table, table_of
from headscope.shown.words import enumeration, fixed, percent
from headscope.studies.study import Study

COMMAND = "compare classes"

CLASSES = ("token alignment", "low activity", "inactive")


@dataclass(frozen=True)
class CompareClasses(Settings):
    """Compare the shares of head classes between models of any geometry."""

    artifacts: Annotated[
        tuple[str, ...],
        Option(
            "Runs that scored heads (RUN:en-de is one direction), or saved scores.",
            metavar="RUN...",
            argument=True,
        ),
    ]
    threshold: options.Threshold = 0.1
    inactive: options.Inactive = 0.0

    def __post_init__(self) -> None:
        check_thresholds(self.threshold, self.inactive)
        super().__post_init__()


def compare_classes(config: CompareClasses, out: Path | None = None) -> ClassesResult:
    """Class shares of models of any geometry; of runs with several directions, their mean."""
    began = time.monotonic()
    if not config.artifacts:
        raise InputError("there is nothing to compare; name at least one run that scored heads")
    artifacts = read_artifacts(config.artifacts, mean_only=True)
    rows = [class_shares(artifact, config.threshold, config.inactive) for artifact in artifacts]
    settings = {
        "threshold": config.threshold,
        "inactive": config.inactive,
        "artifacts": [artifact.name for artifact in artifacts],
    }

    inputs = {artifact.name: artifact.digest for artifact in artifacts}

    def compute(run: Run) -> ClassesResult:
        return ClassesResult(
            threshold=config.threshold, inactive=config.inactive, models=tuple(rows)
        )

    return carry_out(COMMAND, out, settings, inputs, compute, began, kind=ClassesResult)


def _show(result: ClassesResult, run: Path) -> Shown:
    models = result.models
    without = [model.name for model in models if model.shares_above_chance is None]
    cautions = []
    if len(models) > 1:
        cautions.append(
            "Scores found on different sentences, or with different prompts, are compared with "
            "caution."
        )
    if without:
        cautions.append(
            f"Chance is not known for every head of {enumeration(without)}: where sentences are "
            "short, heads score by position alone."
        )
    totals = sorted({model.total for model in models})
    threshold, inactive = fixed(result.threshold, 2), fixed(result.inactive, 2)
    return Shown(
        "Classes of heads",
        "What share of its attention heads looks at the source word being translated?",
        _finding(result),
        "Shares have no interval, and the thresholds cut a continuous scale: heads near them can "
        "change class with other sentences.",
        "",
        cautions,
        [
            ("models", str(len(models))),
            ("heads", " to ".join(map(str, dict.fromkeys((totals[0], totals[-1]))))),
            ("token alignment", f"score above {threshold}"),
            ("inactive", f"at most {inactive}"),
        ],
        [
            Section("Shares of heads", [_shares(models)], brief=True),
            Section("Classes", _bars(models)),
            Section("Numbers of heads", [_numbers(models)]),
        ],
    )


def _finding(result: ClassesResult) -> list[str]:
    ordered = sorted(result.models, key=lambda model: model.shares.token_alignment)
    least, most = ordered[0], ordered[-1]
    above = f"score above {fixed(result.threshold, 2)}"
    if len(ordered) == 1:
        return [f"{_share(most)} of the {most.total} heads of {most.name} align tokens ({above})."]
    return [
        f"The share of token alignment heads ({above}) is highest in {most.name}, "
        f"{_share(most)} of {most.total}, and lowest in {least.name}, {_share(least)} of "
        f"{least.total}."
    ]


def _share(row: ClassShares) -> str:
    words = percent(row.shares.token_alignment, 1)
    corrected = row.shares_above_chance
    if corrected is None:
        return words
    return f"{words} (corrected for chance {percent(corrected.token_alignment, 1)})"


def _shares(models: tuple[ClassShares, ...]) -> Table:
    def cells(classes: Classes | None) -> list[Cell]:
        return [Cell.share(share) for share in (classes.each if classes else (None,) * 3)]

    rows = tuple(
        Row(
            model.name,
            (
                Cell(model.total),
                *(
                    cell
                    for pair in zip(
                        cells(model.shares), cells(model.shares_above_chance), strict=True
                    )
                    for cell in pair
                ),
                Cell(str(model.highest.place)),
                Cell(model.highest.score, model.highest.low, model.highest.high),
            ),
        )
        for model in models
    )
    classes = (column for name in CLASSES for column in (name, "corrected"))
    note = (
        "Corrected: by score \u2212 chance. Intervals are over sentences; the highest of many "
        "scores is biased upwards"
    )
    columns = ("heads", *classes, "highest head", "its score")
    return Table("Shares of heads in each class", columns, rows, note=note)


def _bars(models: tuple[ClassShares, ...]) -> list[Bars]:
    def bars(title: str, rows: list[tuple[str, Classes]]) -> Bars:
        values = tuple(tuple(100 * share for share in classes.each) for _, classes in rows)
        names = tuple(name for name, _ in rows)
        return Bars(title, names, CLASSES, values, "% of heads", start=0.0, end=100.0)

    corrected = [(model.name, model.shares_above_chance) for model in models]
    known = [(name, classes) for name, classes in corrected if classes is not None]
    return [
        bars("Classes by score", [(model.name, model.shares) for model in models]),
        *([bars("Classes by score corrected for chance", known)] if known else []),
    ]


def _mean_of(row: ClassShares) -> str | None:
    return f"mean of {row.counted_over}" if row.counted_over > 1 else None


def _numbers(models: tuple[ClassShares, ...]) -> Table:
    return table_of(
        "Numbers of heads in each class",
        ((model.name, model) for model in models),
        {
            "model": lambda model: model.model,
            "method": lambda model: model.method,
            "direction": lambda model: Cell(model.direction, why=_mean_of(model)),
            "layers": lambda model: model.layers,
            "token alignment": lambda model: Cell(model.counts.token_alignment, digits=1),
            "low activity": lambda model: Cell(model.counts.low_activity, digits=1),
            "inactive": lambda model: Cell(model.counts.inactive, digits=1),
            "mean score": lambda model: model.mean_score,
        },
        "Numbers of heads are means over directions where there are several",
    )


command = Study(CompareClasses, compare_classes, result=ClassesResult, show=_show)
