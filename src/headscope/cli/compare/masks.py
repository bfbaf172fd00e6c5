"""`headscope compare masks`: learned masks beside each other, and beside random ones."""

from __future__ import annotations

from headscope.cli.output import cell
from headscope.results.masks import MasksResult
from headscope.studies.compare.masks import CompareMasks, compare_masks
from headscope.studies.study import Study


def _table(result: MasksResult, rows: int = 30) -> str:
    width = max(len(mask.name) for mask in result.masks)
    lines = [f"{'mask':<{width}}   kept  share  groups dropped (expected)"]
    for mask in result.masks:
        groups = mask.groups
        dropped = "-" if groups is None else f"{groups.dropped} ({groups.expected:.2f})"
        lines.append(
            f"{mask.name:<{width}}  {mask.selected:>5}  {mask.kept_share:>5.3f}  {dropped}"
        )
    pairs = [*(result.base.pairs if result.base else ()), *result.pairs]
    lines += [
        "",
        f"{'A':<{width}}  {'B':<{width}}  jaccard  expected  (exact)        p   recall",
    ]
    lines += [
        f"{pair.a:<{width}}  {pair.b:<{width}}  {pair.jaccard:>7.3f}  {pair.expected:>8.3f}  "
        f"{pair.expected_exact:>7.3f}  {pair.p_value:>7.2g}  {cell(pair.recall, '.3f'):>7}"
        for pair in pairs[:rows]
    ]
    if len(pairs) > rows:
        lines.append(f"… and {len(pairs) - rows} more pairs, in {result.run}/result.json")
    if result.key_value_heads is None:
        lines.append("groups that share keys are not known from these runs; add --model")
    return "\n".join([*lines, f"run: {result.run}"])


command = Study(CompareMasks, compare_masks, _table)
