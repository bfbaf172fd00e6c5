"""`headscope compare methods`: what several methods say of the heads of one model."""

from __future__ import annotations

from typing import Any

from headscope.cli.commands import Study
from headscope.recipes.compare.methods import CompareMethods, compare_methods

__all__ = ["agreement_table", "command"]


def agreement_table(result: dict[str, Any], rows: int = 15) -> str:
    """Sizes of the methods, their closest pairs, and the heads that most methods select."""
    width = max(8, *(len(one["name"]) for one in result["columns"]))
    specific = {one["name"]: set(one["specific"]) for one in result["methods"]}
    lines = [f"{'what':<{width}}  heads  by this method alone"]
    for one in result["columns"]:
        alone = len(specific[one["method"]] & set(one["heads"]))
        lines.append(f"{one['name']:<{width}}  {one['size']:>5}  {alone:>20}")
    # Columns of one method are alike by their making.
    method = {one["name"]: one["method"] for one in result["columns"]}
    apart = [pair for pair in result["pairs"] if method[pair["a"]] != method[pair["b"]]]
    pairs = sorted(apart, key=lambda pair: (pair["p_value"], -pair["jaccard"]))
    lines += ["", f"{'most alike':<{2 * width + 2}}  jaccard  expected        p     rank"]
    for pair in pairs[:rows]:
        rank = pair["rank_correlation"]
        lines.append(
            f"{pair['a']:<{width}}  {pair['b']:<{width}}  {pair['jaccard']:>7.3f}  "
            f"{pair['expected_exact']:>8.3f}  {pair['p_value']:>7.2g}  "
            f"{'-' if rank is None else f'{rank:.3f}':>7}"
        )
    lines += ["", "selected by  heads  expected"]
    lines += [
        f"{one['methods']:>11}  {one['heads']:>5}  {one['expected']:>8.1f}"
        for one in result["agreement"]
    ]
    best = [one for one in result["heads"] if len(one["selected_by"]) > 1][:10]
    lines += ["", "heads that most methods select:"]
    lines += [f"{one['layer']}.{one['head']}  {', '.join(one['selected_by'])}" for one in best]
    return "\n".join([*lines, f"run: {result['run']}"])


command = Study(CompareMethods, compare_methods, agreement_table)
