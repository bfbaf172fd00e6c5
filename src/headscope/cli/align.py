"""`headscope align`: word links for a file of sentence pairs."""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from headscope.cli import old_options as options
from headscope.cli.output import emit

if TYPE_CHECKING:
    from headscope.data.align import AlignWords
    from headscope.data.pairs import PairSource


def align(
    data: options.Data,
    pair: options.Pair = None,
    source_language: options.SourceLanguage = None,
    target_language: options.TargetLanguage = None,
    source_column: options.SourceColumn = "source",
    target_column: options.TargetColumn = "target",
    links_column: options.LinksColumn = None,
    split: options.Split = None,
    limit: options.Limit = None,
    aligner: options.Aligner = None,
    extra: Annotated[
        list[str] | None,
        Option(
            "--extra",
            metavar="DATA",
            help="More sentence pairs, without links, that help eflomal; repeatable.",
        ),
    ] = None,
    llm_model: options.LlmModel = None,
    base_url: options.BaseUrl = None,
    confidence: options.Confidence = 0.9,
    cache: options.Cache = None,
    out: options.OutFile = None,
    overwrite: Annotated[
        bool, Option("--overwrite", help="Replace what the file given by --out holds.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Link the words of sentence pairs and write them as a TSV with source, target and links."""
    started = time.monotonic()
    from headscope.cli.files import result_file
    from headscope.cli.models import llm_aligner
    from headscope.data.align import AlignWords, align_words, choose_aligner, linked_pairs
    from headscope.data.pairs import PairSource, read_pairs, write_pairs
    from headscope.errors import naming

    source = PairSource(
        data,
        pair,
        source_language,
        target_language,
        source_column,
        target_column,
        links_column,
        split,
        limit,
    )
    pairs = read_pairs(source)
    with naming(data):
        chosen = choose_aligner(pairs.pairs, aligner)
    helpers = [
        read_pairs(replace(source, data=name, links_column=None, split=None, limit=None))
        for name in extra or ()
    ]
    annotator = llm_aligner(chosen, llm_model, base_url, confidence, cache)
    how = AlignWords(aligner=chosen, llm=annotator)
    inputs = {"data": pairs.digest}
    inputs |= {f"extra {number}": one.digest for number, one in enumerate(helpers, 1)}
    file = result_file(out, ".tsv", "align", _config(source, how), inputs, overwrite)
    result = file.stored
    if result is None:
        more = [one for helper in helpers for one in helper.pairs]
        languages = pairs.source_language, pairs.target_language
        # What an endpoint refuses is no fault of the file.
        with nullcontext() if chosen == "llm" else naming(data):
            alignment = align_words(pairs.pairs, how, *languages, more)
        with naming(data):
            write_pairs(file.path, linked_pairs(pairs.pairs, alignment))
        result = {"aligner": chosen, "units": alignment.units, **alignment.stats}
        file.finish(result)
    seconds = time.monotonic() - started
    found = {"signature": file.signature, "run": file.path, "seconds": seconds, **result}
    emit(
        found,
        as_json,
        f"{file.path}: {result['links']} links in {result['pairs']} sentence pairs "
        f"by {result['aligner']}, {result['skipped']} skipped",
    )


def _config(source: PairSource, how: AlignWords) -> dict[str, Any]:
    """What decides the links, from all fields but those that do not matter."""
    from headscope.runs import configuration

    read = configuration(source)
    del read["data"]  # the content counts, not its place
    aligned = configuration(how)
    if how.aligner != "eflomal":
        del aligned["eflomal"]
    return {**read, **aligned}


command = align
