"""Each language's text without its own and without other languages' heads, in a run folder."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from safetensors.numpy import load_file

from headscope import options
from headscope.errors import InputError
from headscope.heads import Amount, Rank, about_rank, count_of
from headscope.measure.intervals import bootstrap_difference
from headscope.measure.statistics import counted_mean
from headscope.results.common import Leakage
from headscope.results.language_texts import LanguageSet, TextWithoutHeads
from headscope.runs import Run, encode
from headscope.settings import UNSIGNED, Option, Part, Settings
from headscope.studies.documents import DocumentsChoice, read_languages
from headscope.studies.inputs import ModelChoice, Progress, run_with_model
from headscope.studies.study import Study
from headscope.studies.verify.language_texts import (
    about_documents,
    documents_leakage,
    named_heads,
    read_rows,
    set_apart,
)
from headscope.studies.verify.perplexity_show import show
from headscope.studies.verify.removal import alignment_heads
from headscope.verify.languages.conditions import (
    Condition,
    Documents,
    LanguageRemoval,
    Text,
    plan,
    read_texts,
)
from headscope.verify.languages.evidence import describe_languages, text_trials
from headscope.verify.languages.matrix import matrices
from headscope.verify.languages.sets import LanguageHeads, language_heads
from headscope.verify.removal import Removal

if TYPE_CHECKING:
    from headscope.lm import LanguageModel

COMMAND = "verify perplexity"


@dataclass(frozen=True)
class VerifyPerplexity(Settings):
    """Measure how each language's text suffers when a language's heads are removed.

    Its specific heads, as many by importance alone, and random ones of the same number; the text of
    every language without the heads of every other is the cross-language matrix.
    """

    # The heads themselves, not their place, count in the run's signature.
    heads: Annotated[
        tuple[str, ...],
        Option(
            "A run folder of find lahis; or a saved set, a CSV or JSON of layer and head, or a "
            "list: 5.3,7.11; for several languages LANG=HEADS, repeatable.",
            metavar="HEADS|LANG=HEADS",
        ),
    ] = field(metadata=UNSIGNED)
    k: Annotated[
        tuple[Amount, ...],
        Option(
            "Number of heads of each language, or a share such as 0.02 or 2%; repeatable. Without "
            "it 2%, or at most 5% in a model of fewer than 256; a set is used whole.",
            metavar="K",
            typed=str,
        ),
    ] = field(default=(), metadata=UNSIGNED)
    model: ModelChoice = field(default_factory=ModelChoice)
    documents: DocumentsChoice = field(default_factory=DocumentsChoice)
    removal: Annotated[LanguageRemoval, Part(without=("layer_matched",))] = field(
        default_factory=LanguageRemoval
    )
    allow_overlap: options.AllowOverlap = field(default=False, metadata=UNSIGNED)
    rank: options.Rank = field(default="above-chance", metadata=UNSIGNED)


def verify_perplexity(
    config: VerifyPerplexity, out: Path | None = None, progress: Progress | None = None
) -> TextWithoutHeads:
    """Read every language's documents without each language's heads; the command's result.

    A run that was stopped goes on where it was: each language's documents under each removal are
    kept as soon as they are read. Raises `InputError` if the heads were found on documents of the
    test data, unless `allow_overlap`.
    """
    began = time.monotonic()
    removal = config.removal
    specs = named_heads(config.heads)
    files = read_languages(config.documents, config.model.model, "test", removal.seed)
    leakage = documents_leakage([spec for _, spec in specs], files, config.allow_overlap)
    files, reference = set_apart(
        config.documents, config.model.model, removal.seed, files, removal.ablate
    )
    lm = config.model.load_for(out)
    sized = _sized(specs, config.k, list(files), lm, config.rank)
    ranking = about_rank(*(heads for one in sized for heads in (one.chosen, one.full)))
    pools = [alignment_heads(spec, Removal(pool=removal.pool, threshold=removal.threshold), lm)
             for _, spec in specs]  # fmt: skip
    avoid, pool_note = pools[0] if len(pools) == 1 else (None, _several(removal.pool))
    documents, left_out = read_rows(lm, files)
    planned = plan(sized, list(documents), removal, avoid)
    sets = tuple(map(_set, sized))
    settings = {
        "settings": config,
        "sets": [encode(one) for one in sets],
        "rank": ranking["rank"],
        "token alignment heads": None if avoid is None else sorted(map(str, avoid)),
        "reference text": None if reference is None else reference.digest,
        "leakage": leakage,
    }
    data = {name: one.digest for name, one in files.items()}

    def compute(run: Run) -> TextWithoutHeads:
        texts = read_texts(
            lm,
            documents,
            planned,
            removal,
            run,
            None if reference is None else lambda: reference.means(lm, removal.batch_tokens),
            progress,
        )
        store_texts(run, documents, planned, texts)
        if progress:
            progress("comparing", 0, 1)
        trials = text_trials(planned, texts, removal.seed)
        result = TextWithoutHeads(
            **ranking,
            k=tuple(sorted({one.wanted for one in sized})),
            draws=removal.draws,
            layer_matched=removal.layer_matched,
            pool="outside" if avoid is None else "non-alignment",
            pool_note=pool_note,
            ablate=removal.ablate,
            reference_text=None if reference is None else reference.facts,
            seed=removal.seed,
            leakage=Leakage(**leakage),
            sets=sets,
            empty=tuple(sorted({one.language for one in sets if not one.chosen})),
            languages=describe_languages(planned, trials),
            matrices=tuple(matrices(planned, trials)),
            data=about_documents(files, left_out),
        )
        if progress:
            progress("comparing", 1, 1)
        return result

    return run_with_model(
        lm,
        COMMAND,
        out,
        settings,
        data,
        compute,
        began,
        kind=TextWithoutHeads,
        seed=removal.seed,
    )


def store_texts(
    run: Run,
    documents: Mapping[str, Documents],
    planned: Sequence[Condition],
    texts: Mapping[str, Text],
) -> None:
    """Write every document's losses, from which all figures follow without the model.

    `losses.safetensors`: by language `LANG.nll` (conditions, documents; NaN where not read) and
    `LANG.tokens`; `conditions.jsonl`: the conditions in that order; `documents.jsonl`: ids.
    """
    arrays: dict[str, Any] = {}
    for name, text in texts.items():
        arrays |= {f"{name}.nll": text.nll, f"{name}.tokens": text.tokens}
    run.write_tensors("losses.safetensors", arrays)
    run.write_jsonl("conditions.jsonl", [{**one.as_dict(), "texts": one.texts} for one in planned])
    run.write_jsonl(
        "documents.jsonl",
        [
            {"language": name, "id": identifier, "tokens": int(tokens)}
            for name, one in documents.items()
            for identifier, tokens in zip(one.ids, one.tokens, strict=True)
        ],
    )


def paired_loss(
    one: Path, other: Path, language: str, seed: int = 0
) -> dict[str, float | None] | None:
    """What the heads removed in `one` cost their language's text more than those in `other`.

    Both are folders of finished runs on the same documents. Nats a token, with the interval of the
    paired bootstrap over documents; None where a run has removed no heads of the language.
    InputError if the documents differ.
    """
    if (one / "documents.jsonl").read_bytes() != (other / "documents.jsonl").read_bytes():
        raise InputError(f"{one} and {other} read other documents; give both the same")
    read = []
    for folder in (one, other):
        rows = [json.loads(row) for row in (folder / "conditions.jsonl").open(encoding="utf-8")]
        names = [(row["of"], row["role"], row["kind"]) for row in rows]
        if (language, "chosen", "removed") not in names:
            return None
        losses = load_file(folder / "losses.safetensors")
        nll = losses[f"{language}.nll"][names.index((language, "chosen", "removed"))]
        read.append(np.stack([nll, losses[f"{language}.tokens"]], axis=-1))
    return bootstrap_difference(read[0], read[1], counted_mean, seed=seed).record()


def _sized(
    specs: Sequence[tuple[str | None, str]],
    k: Sequence[Amount],
    languages: Sequence[str],
    lm: LanguageModel,
    rank: Rank,
) -> list[LanguageHeads]:
    """The heads of each language for each k, from few to many, each number once."""
    total = lm.geometry.total
    wanted: list[Amount | None] = [*sorted({count_of(one, total) for one in k})] or [None]
    sized = [
        found
        for language, spec in specs
        for one in wanted
        for found in language_heads(spec, one, languages, language, lm.geometry, rank)
    ]
    if not any(len(one.chosen) or one.full for one in sized):
        raise InputError("none of the languages has heads of its own, so there is nothing to do")
    return sized


def _several(pool: str) -> str | None:
    if pool == "outside":
        return None
    return (
        "several sets of heads are named, so random heads are drawn from all heads outside each "
        "set, token alignment heads among them"
    )


def _set(one: LanguageHeads) -> LanguageSet:
    return LanguageSet(
        language=one.language,
        k=one.wanted,
        available=one.available,
        chosen=tuple(map(str, one.chosen)),
        full=None if one.full is None else tuple(map(str, one.full)),
    )


command = Study(VerifyPerplexity, verify_perplexity, result=TextWithoutHeads, show=show)
