"""`headscope compare overlap`: how far sets of heads agree, beside chance."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from headscope.cli import old_options as options
from headscope.cli.output import cell, emit
from headscope.errors import InputError

if TYPE_CHECKING:
    from headscope.heads import Geometry


def overlap(
    artifacts: Annotated[
        list[str],
        Argument(
            metavar="A B...",
            help="Runs (RUN:en-de is one direction), saved scores, sets or gates, CSV or JSON "
            "files, lists such as 5.3,7.11.",
        ),
    ],
    k: Annotated[
        str | None,
        Option(
            "--k",
            metavar="K",
            help="Top heads compared: a number or a share such as 15%; sets whole without it.",
        ),
    ] = None,
    rank: options.Rank = "above-chance",
    threshold: Annotated[
        float | None,
        Option("--threshold", min=0.0, max=1.0, help="Instead of --k: the heads scoring above it."),
    ] = None,
    mean_only: Annotated[
        bool, Option("--mean", help="Of runs with several directions only their mean.")
    ] = False,
    geometry: Annotated[
        str | None,
        Option(
            "--geometry",
            metavar="LAYERSxHEADS",
            help="The model's, such as 28x16, where only lists of heads are compared.",
        ),
    ] = None,
    out: options.OutFolder = None,
    as_json: options.AsJson = False,
) -> None:
    """Compare sets of heads of one geometry: directions, methods, models, base and instruct."""
    from headscope.recipes.compare.overlap import CompareOverlap, compare_overlap

    told = None if geometry is None else _geometry(geometry)
    config = CompareOverlap(tuple(artifacts), k, threshold, mean_only, told, rank)
    result = compare_overlap(config, out)
    emit(result, as_json, _table(result))


def _geometry(text: str) -> Geometry:
    from headscope.heads import Geometry

    match = re.fullmatch(r"([0-9]{1,6})[x×]([0-9]{1,6})", text.strip())
    if match is None or 0 in (int(match[1]), int(match[2])):
        raise InputError(f"--geometry {text} is not LAYERSxHEADS; write it like 28x16")
    return Geometry.uniform(int(match[1]), int(match[2]))


def _table(result: dict[str, Any], rows: int = 30) -> str:
    """Every pair, or with many the means of their groups first."""
    pairs = result["pairs"]
    width = max(len(name) for pair in pairs for name in (pair["a"], pair["b"]))
    head = (
        f"{'A':<{width}}  {'B':<{width}}  jaccard  expected  (exact)        p  shared   recall"
        "     rank"
    )
    lines = [head]
    for pair in pairs[:rows]:
        shared = f"{pair['intersection']}/{pair['size_b']}"
        lines.append(
            f"{pair['a']:<{width}}  {pair['b']:<{width}}  {pair['jaccard']:>7.3f}  "
            f"{pair['expected']:>8.3f}  {pair['expected_exact']:>7.3f}  {pair['p_value']:>7.2g}  "
            f"{shared:>6}  {cell(pair['recall'], '.3f'):>7}  "
            f"{cell(pair['rank_correlation'], '.3f'):>7}"
        )
    if len(pairs) > rows:
        lines.append(f"… and {len(pairs) - rows} more pairs, in {result['run']}/result.json")
    if result["groups"]:
        lines += ["", "pairs of directions   count  jaccard  expected  (exact)"]
        lines += [
            f"{group['name']:<20}  {group['count']:>5}  {group['jaccard']:>7.3f}  "
            f"{group['expected']:>8.3f}  {group['expected_exact']:>7.3f}"
            for group in result["groups"]
        ]
    return "\n".join([*lines, f"run: {result['run']}"])


command = overlap
