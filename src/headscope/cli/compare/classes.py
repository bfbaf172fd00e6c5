"""`headscope compare classes`: models of any geometry in one table of class shares."""

from __future__ import annotations

from headscope.cli.output import cell
from headscope.results.classes import ClassesResult
from headscope.studies.compare.overlap import CompareClasses, compare_classes
from headscope.studies.study import Study


def _table(result: ClassesResult) -> str:
    """One line a model; shares in per cent, above chance in brackets."""
    models = result.models
    width = max(5, *(len(one.name) for one in models))
    lines = [
        f"{'':<{width}}         token alignment    low activity        inactive",
        f"{'name':<{width}}  heads  share (>chance)  share (>chance)  share (>chance)   top score",
    ]
    for one in models:
        above = one.shares_above_chance
        shares = "".join(
            f"{share:>8.1%} {'(' + cell(beyond, '.1%') + ')':>8}"
            for share, beyond in zip(
                one.shares.each, above.each if above else (None,) * 3, strict=True
            )
        )
        best = f"{cell(one.highest.score, '.3f')} ({one.highest.place})"
        lines.append(f"{one.name:<{width}}  {one.total:>5}{shares}  {best:>14}")
    lines += [
        f"{one.name}: mean of {one.counted_over} directions"
        for one in models
        if one.counted_over > 1
    ]
    return "\n".join([*lines, f"run: {result.run}"])


command = Study(CompareClasses, compare_classes, _table)
