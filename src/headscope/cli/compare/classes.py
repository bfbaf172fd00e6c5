"""`headscope compare classes`: models of any geometry in one table of class shares."""

from __future__ import annotations

from typing import Any

from headscope.cli.commands import Study
from headscope.cli.output import cell
from headscope.recipes.compare.overlap import CompareClasses, compare_classes


def _table(result: dict[str, Any]) -> str:
    """One line a model; shares in per cent, above chance in brackets."""
    models = result["models"]
    width = max(5, *(len(one["name"]) for one in models))
    lines = [
        f"{'':<{width}}         token alignment    low activity        inactive",
        f"{'name':<{width}}  heads  share (>chance)  share (>chance)  share (>chance)   top score",
    ]
    for one in models:
        above = one["shares_above_chance"] or {}
        shares = "".join(
            f"{cell(one['shares'][name], '.1%'):>8} {'(' + cell(above.get(name), '.1%') + ')':>8}"
            for name in ("token_alignment", "low_activity", "inactive")
        )
        top = one["highest"]
        best = f"{top['score']:.3f} ({top['layer']}.{top['head']})"
        lines.append(f"{one['name']:<{width}}  {one['total']:>5}{shares}  {best:>14}")
    lines += [
        f"{one['name']}: mean of {one['counted_over']} directions"
        for one in models
        if one["counted_over"] > 1
    ]
    return "\n".join([*lines, f"run: {result['run']}"])


command = Study(CompareClasses, compare_classes, _table)
