"""`headscope use rate`: what heads are worth on each document of a corpus."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Option

from headscope.cli import old_options as options
from headscope.cli.groups import model_choice, taking
from headscope.cli.output import cell, emit, one_line, progress

if TYPE_CHECKING:
    from headscope.recipes.inputs import ModelChoice

__all__ = ["rate"]

DataOfCorpus = Annotated[
    list[str],
    Option(
        "--data",
        metavar="[LANG=]DATA",
        help="JSON Lines (plain, gzip, zstd) or Parquet: a file, a folder, a pattern, an address "
        "such as s3://…, hf://… or https://…, or the name of a Hub dataset; repeatable. LANG is "
        "the language of records that do not say theirs.",
    ),
]
IdColumn = Annotated[
    str, Option("--id-column", metavar="COLUMN", help="What names a record; without it id.")
]
CorpusLimit = Annotated[
    int | None,
    Option("--limit", min=1, help="Rate the first so many records of each file; without it all."),
]
CorpusSplit = Annotated[str | None, Option("--split", help="Split of a dataset.")]
NumberOfHeads = Annotated[
    str | None,
    Option(
        "--k",
        metavar="K",
        help="Number of heads removed, or a share such as 0.15 or 15%. Without it a set is used "
        "whole, and of scores 20 heads, or 15% in a model of fewer than 256.",
    ),
]
MaxTokens = Annotated[
    int | None,
    Option(
        "--max-tokens", min=2, help="Longest row; without it 2048, or the model's context if less."
    ),
]
Windows = Annotated[
    bool, Option("--windows", help="Take longer documents whole, in windows; else they are cut.")
]
FormatName = Literal["jsonl", "parquet"]
Format = Annotated[FormatName, Option("--format", help="What rated documents are written as.")]
CompressionName = Literal["none", "gzip", "zstd"]
Compression = Annotated[CompressionName, Option("--compression", help="Of the files written.")]
ChunkSize = Annotated[
    int, Option("--chunk", min=1, help="Records of an input file that make one output file.")
]
ExecutorName = Literal["local", "slurm", "ray"]
Executor = Annotated[ExecutorName, Option("--executor", help="Where workers run.")]
ExecutorOptions = Annotated[
    Path | None,
    Option(
        "--executor-options",
        metavar="FILE",
        help="TOML file: what a worker gets on a cluster, such as partition, time, cpus, gpus.",
    ),
]
Workers = Annotated[
    int, Option("--workers", min=1, help="Processes that rate; each loads the model once.")
]
Threads = Annotated[
    int | None,
    Option(
        "--threads",
        min=1,
        help="Threads of each worker; without it the cores are shared evenly.",
    ),
]


@taking(model=model_choice)
def rate(
    model: ModelChoice,
    data: DataOfCorpus,
    heads: options.Heads,
    k: NumberOfHeads = None,
    rank: options.Rank = "above-chance",
    text_column: options.TextColumn = "text",
    language_column: options.LanguageColumn = None,
    id_column: IdColumn = "id",
    split: CorpusSplit = None,
    limit: CorpusLimit = None,
    ablate: options.Ablate = "zero",
    reference: options.ReferenceTexts = None,
    max_tokens: MaxTokens = None,
    windows: Windows = False,
    batch_tokens: options.BatchTokens = 8192,
    format: Format = "jsonl",
    compression: Compression = "none",
    chunk: ChunkSize = 1000,
    executor: Executor = "local",
    executor_options: ExecutorOptions = None,
    workers: Workers = 1,
    threads: Threads = None,
    out: options.OutFolder = None,
    as_json: options.AsJson = False,
) -> None:
    """Rate every document of a corpus by how much worse the model predicts it without some heads.

    Without heads that translate, documents that hold their own translation lose most. Records keep
    all their fields and get nll_full, nll_removed, score and tokens; what cannot be rated goes to
    rejects.jsonl with the reason. The same command goes on where it was stopped.
    """
    from headscope.cli.models import hide_loading_bars
    from headscope.recipes.use.rate import UseRate, use_rate
    from headscope.use.corpus.cluster import ClusterOptions, read_cluster_options
    from headscope.use.corpus.executors import Execution
    from headscope.use.corpus.records import Columns
    from headscope.use.corpus.writing import Written
    from headscope.use.rating import Rating

    hide_loading_bars()
    cluster = (
        ClusterOptions() if executor_options is None else read_cluster_options(executor_options)
    )
    config = UseRate(
        tuple(data),
        heads,
        k,
        model,
        Columns(text_column, language_column or "language", id_column),
        split,
        limit,
        Rating(batch_tokens=batch_tokens, max_tokens=max_tokens, windows=windows),
        Written(format, compression, chunk),
        Execution(executor, workers, cluster),
        threads,
        rank,
        ablate,
        reference,
    )
    with progress() as update:
        result = use_rate(config, out, update)
    emit(result, as_json, _table(result))


def _table(result: Mapping[str, Any]) -> str:
    """Each language's documents and mean score, then what was left out and how fast it went."""
    if "job" in result:
        state = "was submitted" if result["submitted"] else "is still at it"
        return (
            f"job {result['job']} {state}: {result['chunks_done']} of {result['chunks']} chunks "
            f"done; its logs are in {result['logs']}\n"
            f"run the same command again when it has ended\nrun: {result['run']}"
        )
    lines = [f"{'language':<12}{'documents':>12}{'tokens':>15}{'mean score':>12}  95 % interval"]
    lines += [
        f"{one_line(code) or '-':<12}{one['documents']:>12}{one['tokens']:>15}{one['mean']:>12.4f}"
        f"  {one['low']:.4f} to {one['high']:.4f}"
        for code, one in result["languages"].items()
    ]
    speed = cell(result["tokens_per_second"], ",.0f")
    lines.append(f"{result['tokens']} tokens, {speed} a second of scoring")
    if result["rejected"]:
        lines.append(f"{result['rejected']} records not rated, see rejects.jsonl:")
        reasons = result["reasons"].items()
        lines += [f"  {count} because {one_line(reason)}" for reason, count in reasons]
    return "\n".join([*lines, f"run: {result['run']}"])


command = rate
