"""Measuring the stored outputs of a removal run again, without the model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from headscope.errors import InputError
from headscope.measure.baseline import Rules
from headscope.progress import Progress
from headscope.results.removal import RemovalResult, removal_of
from headscope.runs import Run, carry_out_again
from headscope.settings import Option, Settings
from headscope.studies.baseline import judge_translations
from headscope.studies.study import Study
from headscope.studies.verify.removal import COMMAND, describe_conditions, read_losses
from headscope.studies.verify.removal_show import show_removal
from headscope.verify.translation.measures import read_outputs


@dataclass(frozen=True)
class MeasureAgain(Settings):
    """Measure the stored outputs of a removal run again, on any machine.

    For measures that were missing where the run was made, such as COMET; replaces its result.
    """

    run: Annotated[
        Path, Option("The folder of a `verify removal` run.", metavar="RUN", argument=True)
    ]


def measure_again(config: MeasureAgain, progress: Progress | None = None) -> RemovalResult:
    """Work out a run's evidence again from its stored outputs, without the model.

    Replaces its statistics and its result. A measure that cannot be computed here either keeps its
    value. Raises `InputError` if it is no finished run of `verify removal` or is damaged.
    """
    path = config.run

    def compute(run: Run) -> RemovalResult:
        if run.key.command != COMMAND:
            raise InputError(
                f"{path}: is a run of '{run.key.command}'; name the folder of a '{COMMAND}' run"
            )
        old = removal_of(run.path)
        languages = {
            name: (part.source_language or "", part.target_language or "")
            for name, part in old.directions.items()
        }
        texts = [condition.label for condition in old.conditions if condition.text is not None]
        made = None
        if texts:
            labels, made = read_outputs(run.path / "outputs.jsonl", languages, old.ablate)
            if labels[1:] != texts:
                raise InputError(
                    f"{run.path / 'outputs.jsonl'}: holds other conditions than result.json; run "
                    "the verification again"
                )
        shown = describe_conditions(
            run,
            old.conditions,
            languages,
            len({label.draw for label in texts} - {None}),
            made,
            read_losses(run, languages) if "loss" in old.measures else None,
            old.seed,
            progress,
            old.measuring,
        )
        kept = ["links", "reference_links", "unknown"]
        measured = replace(old, **vars(shown) | {name: getattr(old, name) for name in kept})
        if old.baseline_check.tries is None:
            return measured
        rules = Rules(**run.key.config["settings"]["baseline"])
        works = judge_translations(run, rules, old.seed, old.baseline_check.tries)
        return measured if works["baseline_works"] is None else replace(measured, **works)

    result: RemovalResult = carry_out_again(path, compute)
    return result


command = Study(
    MeasureAgain,
    measure_again,
    result=RemovalResult,
    show=show_removal,
    out=None,
    loads=False,
)
