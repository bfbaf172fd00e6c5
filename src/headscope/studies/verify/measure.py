"""Measuring the stored outputs of a removal run again, without the model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from headscope.errors import InputError
from headscope.evidence.sequence import with_rule
from headscope.measure.baseline import Rules
from headscope.progress import Progress
from headscope.results.removal import RemovalResult, removal_of
from headscope.runs import Run, carry_out_again
from headscope.settings import Option, Settings
from headscope.studies.baseline import judge_translations
from headscope.studies.study import Study
from headscope.studies.verify.removal import comparison, described, read_losses
from headscope.verify.removal_translations.evidence import STATISTICS, has_texts
from headscope.verify.removal_translations.measures import read_outputs


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
        if run.key.command != comparison.command:
            raise InputError(
                f"{path}: is a run of '{run.key.command}'; name the folder of a "
                f"'{comparison.command}' run"
            )
        old = removal_of(run.path)
        evidence, details = old.evidence, old.details
        texts = [each for each in evidence.conditions if has_texts(each, details.text_draws)]
        made = None
        if "text" in details.measures:
            ids, made = read_outputs(run.path / "outputs.jsonl", details.removed.directions)
            if ids != [each.id for each in texts]:
                raise InputError(
                    f"{run.path / 'outputs.jsonl'}: holds other conditions than result.json; run "
                    "the verification again"
                )
        directions = details.removed.directions
        measured, removed = described(
            run,
            evidence.conditions,
            details.removed,
            details.text_draws,
            made,
            read_losses(run, directions) if "loss" in details.measures else None,
            details.seed,
            progress,
            {name: own for name, own in evidence.statistics.items() if name not in STATISTICS},
        )
        known = {(test.part, test.condition, test.control): test for test in evidence.tests}
        if any(test.at_most is not None for test in known.values()):
            measured = with_rule(
                measured,
                lambda test: known[test.part, test.condition, test.control].at_most or test.draws,
                evidence.alpha,
                "first" if "claims" in run.key.config["settings"] else "bet",
            )
        measured = replace(measured, alpha=evidence.alpha)
        details = replace(details, removed=removed)
        works, check = old.baseline_works, old.baseline_check
        if check is not None and (tries := check.tries) is not None:
            rules = Rules(**run.key.config["settings"]["baseline"])
            judged = judge_translations(run, rules, details.seed, tries)
            if judged["baseline_works"] is not None:
                works, check = judged["baseline_works"], judged["baseline_check"]
        own = comparison.concluded(old).cautions
        of_data = tuple(words for words in old.cautions if words not in own)
        new = comparison.concluded(
            replace(
                old,
                evidence=measured,
                details=details,
                baseline_works=works,
                baseline_check=check,
            )
        )
        return replace(new, cautions=(*of_data, *new.cautions))

    result: RemovalResult = carry_out_again(path, compute)
    return result


command = Study(
    MeasureAgain,
    measure_again,
    result=RemovalResult,
    show=comparison.page,
    out=None,
    loads=False,
    usage="runs/removal",
)
