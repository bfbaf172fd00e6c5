"""`headscope align`: word links for a file of sentence pairs."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from headscope import options
from headscope.cli.files import result_file
from headscope.data.align import (
    AlignWords,
    LlmAligner,
    align_words,
    choose_aligner,
    linked_pairs,
)
from headscope.data.pairs import PairSource, read_pairs, write_pairs
from headscope.errors import naming
from headscope.find.translation_config import llm_aligner
from headscope.runs import Result, decode
from headscope.settings import MadeBy, Option, Settings
from headscope.studies.study import OUT_FILE, Study


def _annotator(
    aligner: options.Aligner = None,
    llm_model: options.LlmModel = None,
    base_url: options.BaseUrl = None,
    confidence: options.Confidence = 0.9,
    cache: options.Cache = None,
) -> LlmAligner | None:
    return llm_aligner(aligner, llm_model, base_url, confidence, cache)


@dataclass(frozen=True)
class Align(Settings):
    """Link the words of sentence pairs and write them as a TSV with source, target and links."""

    source: PairSource
    aligner: options.Aligner = None
    extra: Annotated[
        tuple[str, ...],
        Option(
            "More sentence pairs, without links, that help eflomal; repeatable.", metavar="DATA"
        ),
    ] = ()
    llm: Annotated[LlmAligner | None, MadeBy(_annotator)] = None
    overwrite: Annotated[bool, Option("Replace what the file given by --out holds.")] = False


@dataclass(frozen=True, kw_only=True)
class AlignResult(Result):
    """What was linked; what an aligner counts besides stands in `unknown`."""

    aligner: str
    units: str
    pairs: int
    links: int
    skipped: int


def align(config: Align, out: Path | None = None) -> AlignResult:
    """Link the words and write the file, if it does not hold them already."""
    source = config.source
    pairs = read_pairs(source)
    with naming(source.data):
        chosen = choose_aligner(pairs.pairs, config.aligner)
    helpers = [
        read_pairs(replace(source, data=name, links_column=None, split=None, limit=None))
        for name in config.extra
    ]
    how = AlignWords(aligner=chosen, llm=config.llm)
    inputs = {"data": pairs.digest}
    inputs |= {f"extra {number}": one.digest for number, one in enumerate(helpers, 1)}
    file = result_file(out, ".tsv", "align", _config(source, how), inputs, config.overwrite)
    result = file.stored
    if result is None:
        more = [one for helper in helpers for one in helper.pairs]
        languages = pairs.source_language, pairs.target_language
        # What an endpoint refuses is no fault of the file.
        with nullcontext() if chosen == "llm" else naming(source.data):
            alignment = align_words(pairs.pairs, how, *languages, more)
        with naming(source.data):
            write_pairs(file.path, linked_pairs(pairs.pairs, alignment))
        result = {"aligner": chosen, "units": alignment.units, **alignment.stats}
        file.finish(result)
    made: AlignResult = decode(AlignResult, result)
    return replace(made, signature=file.signature, run=str(file.path))


def _line(result: AlignResult) -> str:
    return (
        f"{result.run}: {result.links} links in {result.pairs} sentence pairs "
        f"by {result.aligner}, {result.skipped} skipped"
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


command = Study(Align, align, _line, out=OUT_FILE)
