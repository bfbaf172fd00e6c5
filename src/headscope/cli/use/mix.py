"""`headscope use mix`: training mixtures of a rated corpus."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from typer import Argument, Option

from headscope.cli import old_options as options
from headscope.cli.output import cell, emit, progress

__all__ = ["mix"]

Rated = Annotated[
    list[str],
    Argument(
        metavar="RATED...",
        help="A run of headscope use rate; or JSON Lines or Parquet files, or a folder of them, "
        "whose records have text, score and tokens.",
    ),
]
KindName = Literal["remove", "enhance", "baseline"]
Kind = Annotated[
    KindName,
    Option(
        "--kind",
        help="Replace the documents with the highest scores, repeat them, or leave all as it is.",
    ),
]
Share = Annotated[
    str,
    Option(
        "--share",
        metavar="AMOUNT",
        help="How much of each language is selected: a share such as 1.3% or 0.013, or a number.",
    ),
]
ByName = Literal["documents", "tokens"]
By = Annotated[ByName, Option("--by", help="What --share, --size and the budgets count.")]
Size = Annotated[
    list[str] | None,
    Option(
        "--size",
        metavar="[CODE=]AMOUNT",
        help="How much of each language the mixture is made of, a number or a share such as 50%; "
        "the rest is the reserve that removed documents are replaced from. Without it all. With "
        "CODE for one language; repeatable.",
    ),
]
Times = Annotated[
    int, Option("--times", min=1, max=255, help="How often enhance has each selected document.")
]
QuantileName = Literal["exact", "streaming"]
Quantile = Annotated[
    QuantileName,
    Option(
        "--quantile",
        help="Cut between two documents, or, reading the scores once, between two narrow classes "
        "of scores.",
    ),
]
SelectName = Literal["top", "random"]
Select = Annotated[
    SelectName,
    Option(
        "--select",
        help="The documents with the highest scores, or as many at random, as a control.",
    ),
]
CompressionName = Literal["none", "gzip", "zstd"]
Compression = Annotated[CompressionName, Option("--compression", help="Of the files written.")]


def mix(
    rated: Rated,
    kind: Kind = "remove",
    share: Share = "1.3%",
    by: By = "documents",
    size: Size = None,
    times: Times = 3,
    quantile: Quantile = "exact",
    select: Select = "top",
    text_column: options.TextColumn = "text",
    language_column: options.LanguageColumn = None,
    compression: Compression = "none",
    seed: options.Seed = 0,
    out: options.OutFolder = None,
    as_json: options.AsJson = False,
) -> None:
    """Make a training mixture of rated documents in which every language keeps its share.

    Selected are the documents of each language with the highest scores. The mixture lies shuffled
    in documents/, manifest.json proves its shares. The same command goes on where it was stopped.
    """
    from headscope.recipes.use.mix import UseMix, use_mix
    from headscope.use.mixing import MixPlan

    plan = MixPlan(
        kind=kind,
        share=share,
        by=by,
        times=times,
        quantile=quantile,
        select=select,
        seed=seed,
        text_column=text_column,
        compression=compression,
    )
    config = UseMix(tuple(rated), plan, tuple(size or ()), language_column)
    with progress() as update:
        result = use_mix(config, out, update)
    emit(result, as_json, _table(result))


def _table(result: Mapping[str, Any]) -> str:
    """Each language's share before and after, and what was selected of it."""
    header = ("language", "before", "after", "documents", "selected", "in mixture", "score from")
    lines = [f"{header[0]:<12}" + "".join(f"{word:>12}" for word in header[1:])]
    lines += [
        f"{code or '-':<12}{one['share_before']:>12.3%}{one['share_after']:>12.3%}"
        f"{one['mixture']['documents']:>12}{one['selected']['documents']:>12}"
        f"{one['copies'] * one['selected']['documents']:>12}{cell(one['threshold'], '.4f'):>12}"
        for code, one in result["languages"].items()
    ]
    if result["factor"] < 1:
        lines.append(f"no reserve to replace all from: every language has {result['factor']:.3%}")
    tokens = "" if result["tokens"] is None else f", {result['tokens']} tokens"
    lines.append(f"{result['documents']} documents{tokens} in {result['run']}/documents")
    return "\n".join([*lines, f"run: {result['run']}"])


command = mix
