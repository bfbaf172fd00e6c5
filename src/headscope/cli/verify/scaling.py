"""`headscope verify scaling`: heads outside a mask at part of their strength."""

from __future__ import annotations

from headscope.cli.output import cell
from headscope.results.mask_tests import ScaledTask, ScalingTests
from headscope.studies.study import Study
from headscope.studies.verify.scaling import VerifyScaling, verify_scaling

WORDS = {"bleu": "BLEU", "chrf": "chrF++", "bleu_published": "published", "accuracy": "right"}


def _table(result: ScalingTests) -> str:
    lines = []
    for name, task in result.tasks.items():
        lines.append(
            f"{name}: instructed, {task.mask.removed} heads scaled; chosen on {task.chosen_on} "
            f"examples, measured on {task.examples} others"
        )
        lines.append(f"{'α':<6}{'NLL':>8}{'95 % interval':>18}{'shuffled':>10}{'chosen':>9}")
        for outcome, share in task.shares:
            loss = outcome.level("nll")
            star = " best" if outcome.alpha == task.best else ""
            lines.append(
                f"{outcome.alpha:<6g}{loss.value:>8.3f}{f'{loss.low:.3f} to {loss.high:.3f}':>18}"
                f"{cell(outcome.shuffled_mean, '.3f'):>10}{share:>9.0%}{star}"
            )
        lines += _measured(task)
    return "\n".join([*lines, f"run: {result.run}"])


def _measured(task: ScaledTask) -> list[str]:
    names = task.output_measures
    lines = [f"{'':<24}{'NLL':>8}" + "".join(f"{WORDS[name]:>11}" for name in names)]
    for outcome in task.conditions:
        cells = "".join(f"{cell(outcome.value(name), '.3f'):>11}" for name in names)
        lines.append(f"{outcome.name:<24}{outcome.nll:>8.3f}{cells}")
    return lines


command = Study(VerifyScaling, verify_scaling, _table)
