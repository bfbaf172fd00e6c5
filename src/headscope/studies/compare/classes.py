"""Shares of the classes of heads in models of any geometry: no model is loaded."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from headscope import options
from headscope.compare.artifacts import read_artifacts
from headscope.compare.classes_shares import class_shares
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
            "Runs that scored heads (RUN:en-de is one direction), or saved translation scores.",
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
    models, counted = result.models, _counted(result)
    without = [model.name for model in counted if model.shares_above_chance is None]
    cautions = []
    if len(counted) > 1:
        cautions.append(
            "Scores found on different sentences, or with different prompts, are compared with "
            "caution."
        )
    if without:
        cautions.append(
            f"Not corrected for chance, which is not known for every head: {enumeration(without)}. "
            "Where sentences are short, heads score by position alone."
        )
    if counted:
        cautions += [
            f"Without classes, which are of translation scores: {model.name} ({model.method})."
            for model in models
            if not model.classified
        ]
    totals = sorted({model.total for model in models})
    return Shown(
        "Classes of heads",
        "What share of its attention heads looks at the source word being translated?",
        _finding(result),
        "Without interval: heads near a threshold can change class with other sentences."
        if counted
        else "",
        "",
        cautions,
        [
            ("models", str(len(models))),
            ("heads", " to ".join(map(str, dict.fromkeys((totals[0], totals[-1]))))),
        ],
        [
            *([Section("Heads in each class", [_numbers(counted)], brief=True)] if counted else []),
            Section("Models", [_about(models)], brief=not counted),
        ],
        _bars(result) if counted else None,
    )


def _counted(result: ClassesResult) -> list[ClassShares]:
    """The models that have classes: those of translation scores."""
    return [model for model in result.models if model.classified]


def _finding(result: ClassesResult) -> list[str]:
    models = _counted(result)
    if not models:
        scores = enumeration(list(dict.fromkeys(model.method for model in result.models)))
        return [
            "There are no classes of heads: these are of translation scores, not of other scores.",
            f"Scores: {scores}.",
        ]
    above = f"{_score(models)} above {fixed(result.threshold, 2)}"
    ordered = sorted(models, key=lambda model: _shares(model).token_alignment)
    least, most = ordered[0], ordered[-1]
    share = percent(_shares(most).token_alignment, 1)
    if len(models) == 1:
        over = f", mean of {most.counted_over} directions" if most.counted_over > 1 else ""
        return [f"{share} of the {most.total} heads align tokens ({above}{over})."]
    low = percent(_shares(least).token_alignment, 1)
    if share == low:
        return [f"In each of {len(models)} models {share} of heads align tokens ({above})."]
    return [f"{low} ({least.name}) to {share} ({most.name}) of heads align tokens ({above})."]


def _shares(model: ClassShares) -> Classes:
    """Corrected for chance where that is known."""
    return model.shares_above_chance or model.shares


def _score(models: Sequence[ClassShares]) -> str:
    corrected = all(model.shares_above_chance for model in models)
    return "score \u2212 chance" if corrected else "score"


def _bars(result: ClassesResult) -> Bars:
    models = _counted(result)
    threshold, inactive = fixed(result.threshold, 2), fixed(result.inactive, 2)
    return Bars(
        "Heads in each class",
        tuple(model.name for model in models),
        CLASSES,
        tuple(tuple(100 * share for share in _shares(m).each) for m in models),
        "% of heads",
        start=0.0,
        end=100.0,
        note=f"Token alignment: {_score(models)} above {threshold}; inactive: at most "
        f"{inactive}; low activity: between",
    )


def _numbers(models: Sequence[ClassShares]) -> Table:
    rows = [
        Row(
            f"{model.name}, {words}",
            (
                *(Cell(number, digits=1) for number in counts.each),
                *map(Cell.share, shares.each),
            ),
        )
        for model in models
        for words, counts, shares in (
            ("score \u2212 chance", model.counts_above_chance, model.shares_above_chance),
            ("score alone (as the paper counts)", model.counts, model.shares),
        )
        if counts is not None and shares is not None
    ]
    columns = (*CLASSES, *(f"{name}, of heads" for name in CLASSES))
    note = "Numbers of heads are means over directions where there are several"
    return Table("Heads in each class", columns, tuple(rows), note=note)


def _mean_of(row: ClassShares) -> str | None:
    return f"mean of {row.counted_over}" if row.counted_over > 1 else None


def _about(models: Sequence[ClassShares]) -> Table:
    return table_of(
        "Models",
        ((model.name, model) for model in models),
        {
            "model": lambda model: model.model,
            "method": lambda model: model.method,
            "direction": lambda model: Cell(model.direction, why=_mean_of(model)),
            "layers": lambda model: model.layers,
            "heads": lambda model: model.total,
            "mean score": lambda model: model.mean_score,
            "highest head": lambda model: str(model.highest.place),
            "its score": lambda model: Cell(
                model.highest.score, model.highest.low, model.highest.high
            ),
        },
        "Intervals are over sentences; the highest of many scores is biased upwards",
    )


command = Study(
    CompareClasses,
    compare_classes,
    result=ClassesResult,
    show=_show,
    usage="runs/found",
)
