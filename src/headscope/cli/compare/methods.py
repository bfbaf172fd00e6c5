"""`headscope compare methods`: what several methods say of the heads of one model."""

from __future__ import annotations

from typing import Annotated, Any

from typer import Argument, Option

from headscope.cli import old_options as options
from headscope.cli.output import emit

__all__ = ["TopHeads", "agreement_table", "methods"]

TopHeads = Annotated[
    str | None,
    Option(
        "--k",
        metavar="K",
        help="Top heads of each method's scores: a number or a share such as 15%; sets that a "
        "method chose itself keep their size.",
    ),
]


def methods(
    found: Annotated[
        list[str], Argument(metavar="RUN...", help="Finished runs of any methods on one model.")
    ],
    k: TopHeads = None,
    rank: options.Rank = "above-chance",
    every_part: Annotated[
        bool, Option("--parts", help="Of runs with several directions also each of them.")
    ] = False,
    out: options.OutFolder = None,
    as_json: options.AsJson = False,
) -> None:
    """Show, for every head, which methods select it, and how far the methods agree.

    Beside every overlap stands what random sets of the same sizes would share.
    """
    from headscope.recipes.compare.methods import CompareMethods, compare_methods

    result = compare_methods(CompareMethods(tuple(found), k, every_part, rank), out)
    emit(result, as_json, agreement_table(result))


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


command = methods
