"""Word links for a file of sentence pairs, in a file that is never overwritten unawares.

Beside `links.tsv` lies `links.tsv.json`, which says what the file was computed from, so that the
same command does not compute it twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from headscope import options
from headscope.data.align import (
    EFLOMAL,
    AlignWords,
    LlmAligner,
    align_file,
    choose_aligner,
    linked_pairs,
)
from headscope.data.chat import ALIGNING, chat_part
from headscope.data.files import write_text_atomically
from headscope.data.pairs import (
    ALIGN_FORMAT,
    PairFile,
    PairSource,
    align_note,
    read_pairs,
    write_pairs,
)
from headscope.data.split import draw_shots
from headscope.errors import InputError, OptionalPart, naming
from headscope.find.translation_score_config import (
    NOT_LINKING,
    TranslationScore,
    by_heads,
    check_aligner,
    llm_aligner,
)
from headscope.runs import Result, Signature, configuration, decode, dump_json, file_digest
from headscope.settings import MadeBy, Nested, Option, Settings
from headscope.shown.words import count
from headscope.studies.models import (
    TEMPLATED,
    ModelChoice,
    model_inputs,
    resolved_chat,
    template_inputs,
)
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
    """Link the words of sentence pairs and write them as a TSV with source, target and links.

    The text stays as it is. In scripts without spaces a column units holds the characters of what
    is linked; a column aligner names what made the links. eflomal is fitted on all of the file
    (its first 100,000 pairs), also with --limit. --aligner heads reads the attention of heads of
    --model while it translates.
    """

    source: PairSource
    aligner: options.Aligner = None
    extra: Annotated[
        tuple[str, ...],
        Option(
            "More sentence pairs, without links, that help eflomal; repeatable.",
            metavar="DATA",
            panel="Data",
        ),
    ] = ()
    llm: Annotated[LlmAligner | None, MadeBy(_annotator)] = None
    score: Annotated[
        TranslationScore, Nested(without=(*NOT_LINKING, "aligner", "llm", "seed"), make=by_heads)
    ] = field(default_factory=by_heads)
    model: Annotated[ModelChoice, TEMPLATED] = field(default_factory=ModelChoice)
    shots: options.Shots = 0
    overwrite: Annotated[
        bool, Option("Replace what the file given by --out holds.", panel="Running")
    ] = False

    def parts(self) -> Iterator[OptionalPart]:
        """What the aligner needs; a model is read for heads alone."""
        if self.aligner == "heads":
            yield from super().parts()
        if self.aligner == "eflomal":
            yield EFLOMAL
        if self.llm is not None:
            yield chat_part(ALIGNING)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.aligner != "heads" and self.score.head_links is not None:
            raise InputError("--align-heads and its kin are for --aligner heads; add it")


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
    inputs |= {f"extra {number}": helper.digest for number, helper in enumerate(helpers, 1)}
    how, signed = _by_heads(config, pairs, how) if chosen == "heads" else (how, {})
    key = Signature.of("align", {**_config(source, how), **signed}, inputs)
    file = out or Path("runs") / f"align-{key.hash}.tsv"
    result = _stored(file, key, config.overwrite)
    if result is None:
        more = [pair for helper in helpers for pair in helper.pairs]
        alignment = align_file(pairs, how, extra_pairs=more)
        with naming(source.data):
            linked = linked_pairs(pairs.pairs, alignment)
            write_pairs(file, linked)
        # Those in the file: several links of units may be one of the pieces that hold them.
        written = {"links": sum(len(pair.links or ()) for pair in linked)}
        result = {
            "aligner": alignment.aligner,
            "units": alignment.units,
            **alignment.stats,
            **written,
        }
        note = {"signature": str(key), "sha256": file_digest(file), "format": ALIGN_FORMAT}
        text = dump_json({**note, "result": result}, indent=2)
        write_text_atomically(align_note(file), text + "\n")
    made: AlignResult = decode(AlignResult, result)
    return replace(made, signature=str(key), run=str(file), cautions=pairs.cautions)


def _by_heads(config: Align, pairs: PairFile, how: AlignWords) -> tuple[AlignWords, dict[str, Any]]:
    """How heads link the pairs, and what decides it; no weight is read before a word is linked.

    Shots are drawn from the pairs, and are linked too.
    """
    from headscope.find.translation_scores import linker, with_heads

    check_aligner(pairs, config.score)
    lm = config.model.load_for()
    score = with_heads(lm, (), resolved_chat(lm, config.score))
    shots = draw_shots(pairs.pairs, config.shots, 0, pairs.path) if config.shots else ()
    file = replace(pairs, shots=shots)
    signed = {"score": configuration(score), "shots": file.shots_digest, **model_inputs(lm)}
    signed |= template_inputs(lm) if score.chat else {}
    return replace(how, linker=linker(lm, file, score)), signed


def _line(result: AlignResult) -> str:
    return (
        f"{result.run}: {count(result.links, 'link')} in {count(result.pairs, 'sentence pair')} "
        f"by {result.aligner}, {result.skipped} skipped"
    )


def _config(source: PairSource, how: AlignWords) -> dict[str, Any]:
    """What decides the links, from all fields but those that do not matter."""
    read = configuration(source)
    del read["data"]  # the content counts, not its place
    aligned = configuration(how)
    if how.aligner != "eflomal":
        del aligned["eflomal"]
    return {**read, **aligned, "format": ALIGN_FORMAT}


def _stored(path: Path, key: Signature, overwrite: bool) -> dict[str, Any] | None:
    """The result if the file holds it already.

    InputError if there is a file of that name that holds something else and may not be
    overwritten, or if its place is a folder.
    """
    if path.is_dir():
        raise InputError(f"{path} is a folder; name a file with --out")
    if path.parent.exists() and not path.parent.is_dir():
        raise InputError(f"{path.parent} is a file, so nothing can be written in it; name another")
    if overwrite or not path.exists():
        return None
    try:
        note = json.loads(align_note(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        note = None
    known = note if isinstance(note, dict) else {}
    same = known.get("signature") == str(key) and known.get("sha256") == file_digest(path)
    if same and isinstance(known.get("result"), dict):
        return dict(known["result"])
    raise InputError(
        f"{path} exists and was not made by this command with these options and data; name another "
        "file with --out, or add --overwrite"
    )


command = Study(
    Align, align, _line, out=OUT_FILE, usage="--data en-de.tsv --pair en-de --out linked.tsv"
)
