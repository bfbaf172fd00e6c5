"""`headscope verify families`: the heads that the masks of several tasks share, removed."""

from __future__ import annotations

from headscope.cli.output import cell
from headscope.results.mask_tests import FamilyTests, mean_of
from headscope.studies.study import Study
from headscope.studies.verify.families import VerifyFamilies, verify_families


def _table(result: FamilyTests) -> str:
    widths = {name: max(8, len(name)) + 2 for name in result.tasks}
    head = "".join(f"{name:>{width}}" for name, width in widths.items())
    lines = [f"{'NLL, instructed':<34}{'removed':>8}{head}"]

    def line(words: str, removed: int | str, kind: str, name: str | None = None) -> str:
        losses = (mean_of(task.of_kind(kind, name), "nll") for task in result.tasks.values())
        cells = zip(losses, widths.values(), strict=True)
        return f"{words:<34}{removed:>8}" + "".join(
            f"{cell(loss, '.3f'):>{width}}" for loss, width in cells
        )

    lines.append(line("model as it is", 0, "instructed"))
    for family in result.families:
        name = family.name
        where = "no mask" if name == "unused" else f"all masks: {name}"
        lines.append(line(f"without heads of {where}", family.removed, "removed", name))
        lines.append(line("  random heads", "", "random", name))
        lines.append(line("  random heads, same layers", "", "random-layer-matched", name))
    return "\n".join([*lines, f"run: {result.run}"])


command = Study(VerifyFamilies, verify_families, _table)
