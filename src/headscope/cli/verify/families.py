"""`headscope verify families`: the heads that the masks of several tasks share, removed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headscope.cli.commands import Study
from headscope.recipes.verify.families import VerifyFamilies, verify_families


def _table(result: Mapping[str, Any]) -> str:
    names = list(result["tasks"])
    widths = [max(8, len(name)) + 2 for name in names]
    head = "".join(f"{name:>{width}}" for name, width in zip(names, widths, strict=True))
    lines = [f"{'NLL, instructed':<34}{'removed':>8}{head}"]

    def line(words: str, removed: int | str, kinds: tuple[str, str]) -> str:
        cells = ""
        for name, width in zip(names, widths, strict=True):
            kind, of = kinds
            rows = [
                row["nll"]
                for row in result["tasks"][name]["conditions"]
                if row["kind"] == kind and of in (row["name"], row["of"])
            ]
            cells += f"{sum(rows) / len(rows):>{width}.3f}" if rows else f"{'-':>{width}}"
        return f"{words:<34}{removed:>8}{cells}"

    lines.append(line("model as it is", 0, ("instructed", "instructed")))
    for one in result["families"]:
        where = "no mask" if one["name"] == "unused" else f"all masks: {one['name']}"
        lines.append(line(f"without heads of {where}", one["removed"], ("removed", one["name"])))
        lines.append(line("  random heads", "", ("random", one["name"])))
        lines.append(line("  random heads, same layers", "", ("random-layer-matched", one["name"])))
    return "\n".join([*lines, f"run: {result['run']}"])


command = Study(VerifyFamilies, verify_families, _table)
