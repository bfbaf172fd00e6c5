"""`headscope verify mask`: what a masked model does with held-out examples, beside its controls."""

from __future__ import annotations

from collections.abc import Sequence

from headscope.cli.output import cell
from headscope.results.mask_tests import MaskedTask, MaskTests, Outcome, mean_of
from headscope.studies.study import Study
from headscope.studies.verify.mask import VerifyMask, verify_mask


def _table(result: MaskTests) -> str:
    lines = []
    for name, task in result.tasks.items():
        seen = ", a task its mask was not trained on" if task.unseen else ""
        shots = f", {result.shots} shots" if result.shots else ""
        lines.append(
            f"{name}{seen}: {task.examples} held-out examples{shots}; {task.mask.kept} heads kept, "
            f"{task.mask.removed} removed"
        )
        lines += _condition_rows(task)
        if not task.leakage.known:
            lines.append("whether the mask was trained on these examples is not known")
        elif task.leakage.overlap:
            lines.append(f"{task.leakage.overlap} of them are among what it was trained on")
    return "\n".join([*lines, f"run: {result.run}"])


def _condition_rows(task: MaskedTask) -> list[str]:
    """A table of conditions; random draws as their mean with the lowest and highest loss."""
    sentences = task.base.chrf is not None
    words = "chrF++" if sentences else "right"
    lines = [f"{'':<24}{'NLL':>8}{'95 % interval':>18}{'ppl':>10}{'ROUGE-L':>9}{words:>9}"]

    def line(words: str, rows: Sequence[Outcome], low: float, high: float) -> str:
        right = cell(mean_of(rows, "accuracy"), ".1%").replace("%", " %")
        score = cell(mean_of(rows, "chrf"), ".1f") if sentences else right
        return (
            f"{words:<24}{cell(mean_of(rows, 'nll'), '.3f'):>8}{f'{low:.3f} to {high:.3f}':>18}"
            f"{cell(mean_of(rows, 'perplexity'), '.2f'):>10}"
            f"{cell(mean_of(rows, 'rouge_l'), '.1f'):>9}{score:>9}"
        )

    for outcome in task.undrawn:
        loss = outcome.level("nll")
        lines.append(line(outcome.name, [outcome], loss.low, loss.high))
    for kind, draws in task.drawn.items():
        losses = [draw.nll for draw in draws]
        lines.append(line(f"{kind} ({len(draws)})", draws, min(losses), max(losses)))
    return lines


command = Study(VerifyMask, verify_mask, _table)
