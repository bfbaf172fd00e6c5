"""Documents of languages for removals: what the model reads of them, leakage, losses, tables."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from headscope.data.documents import LONGEST, DocumentFile
from headscope.data.languages import is_known
from headscope.errors import InputError
from headscope.evidence.rows import Evidence
from headscope.results.language_texts import TextWithoutHeads, TextWithoutLayers
from headscope.runs import encode
from headscope.studies.comparison import ALL_PARTS, Bench, Examples, Removing
from headscope.studies.documents import DocumentsChoice, read_languages
from headscope.studies.leakage import check_text_leakage
from headscope.studies.models import POCKET
from headscope.studies.shows import few_parts
from headscope.studies.verify.reference import (
    REFERENCES,
    Reference,
    drawn_apart,
    reference_number,
)
from headscope.verify.language_texts.conditions import Documents, Text, read_texts
from headscope.verify.language_texts.evidence import text_evidence

if TYPE_CHECKING:
    from headscope.lm import LanguageModel

AnyComparing = TypeVar("AnyComparing", bound=Removing)


def named_heads(heads: Sequence[str]) -> list[tuple[str | None, str]]:
    """What `--heads` says: each head set with its language, if it is written `de=HEADS`.

    InputError unless there is one set, or each has a language of its own.
    """
    named: dict[str | None, str] = {}
    for text in heads:
        language, equals, spec = text.partition("=")
        own = bool(equals) and is_known(language) and not Path(text).exists()
        if own and language in named:
            raise InputError(f"--heads names {language} twice; give one set a language")
        if not own and len(heads) > 1:
            raise InputError(
                f"--heads {text} says no language while there are several; write all as LANG=HEADS"
            )
        named[language if own else None] = spec if own else text
    if not named:
        raise InputError("no heads are named; name a run, a file, or a list such as 5.3,7.11")
    return list(named.items())


def language_examples(
    documents: DocumentsChoice, config: Removing, specs: Sequence[str] | None, overlap: bool
) -> Examples[DocumentFile]:
    """The documents of each language, without those that replacements are made from.

    `specs` are head sets that must not have been found on them, unless `overlap` is allowed; None:
    no data chose the heads.
    """
    model, seed = config.model.model, config.seed
    files = read_languages(documents, model, "test", seed)
    leakage = None
    if specs is not None:
        texts = [each.text for file in files.values() for each in file.documents]
        leakage = check_text_leakage(specs, texts, overlap)
    files, reference = set_apart(documents, model, seed, files, reference_number(*config.ablate))
    return Examples(
        files,
        {language: [each.text for each in file.documents] for language, file in files.items()},
        {language: file.digest for language, file in files.items()},
        leakage,
        lambda lm, config: reference,
    )


def read_documents(
    lm: LanguageModel, config: AnyComparing, examples: Examples[DocumentFile]
) -> tuple[AnyComparing, Examples[DocumentFile]]:
    """The same with the documents as tokens; InputError if a language has none of two."""
    prompted: dict[str, Documents] = {}
    for language, file in examples.parts.items():
        rows = [
            (each, tuple(lm.encode(each.text, most=LONGEST, closed=True)))
            for each in file.documents
        ]
        kept = [(document, row) for document, row in rows if len(row) > 1]
        if not kept:
            raise InputError(
                f"{file.path}: no document of {language} has two tokens, so nothing can be "
                "predicted; give longer documents"
            )
        prompted[language] = Documents(
            tuple(document.id for document, _ in kept),
            tuple(row for _, row in kept),
            tuple(f"{file.path}, line {document.line}" for document, _ in kept),
        )
    return config, dataclasses.replace(examples, prompted=prompted)


def about_documents(bench: Bench[Any, DocumentFile]) -> dict[str, dict[str, Any]]:
    """What a result tells about its documents, by language; `tokens` are those predicted, and
    documents of a single one, which nothing predicts, are left out."""
    read: Mapping[str, Documents] = bench.prompted
    return {
        language: {
            "path": file.path,
            "digest": file.digest,
            "examples": len(read[language].ids),
            "left_out": len(file.documents) - len(read[language].ids),
            "tokens": int(read[language].tokens.sum()),
        }
        for language, file in bench.parts.items()
    }


def set_apart(
    choice: DocumentsChoice, model: str, seed: int, files: Mapping[str, DocumentFile], number: int
) -> tuple[dict[str, DocumentFile], Reference]:
    """The documents to read, and those that what replaces heads is made from.

    They are set aside of every language (see `drawn_apart`); for the pocket model without data
    they are of its train split.
    """
    if not number:
        return dict(files), Reference()
    if not choice.data and model == POCKET:
        limited = dataclasses.replace(choice, limit=REFERENCES)
        train = read_languages(limited, model, "train", seed)
        texts = [document.text for file in train.values() for document in file.documents]
        return dict(files), Reference("documents of the pocket model's train split", tuple(texts))
    texts, kept = [], {}
    for name, file in files.items():
        rest, apart = drawn_apart(file.documents, seed, f"{file.path} ({name})")
        kept[name] = dataclasses.replace(file, documents=rest)
        texts += sorted(each.text for each in apart)
    return kept, Reference("documents set aside from the data", tuple(texts))


def measured(bench: Bench[Any, DocumentFile]) -> tuple[dict[str, Text], Evidence]:
    """Every language's text under every condition.

    The run keeps each document's losses, from which all figures follow without the model:
    `losses.safetensors` has by language `LANG.nll` (conditions, documents; NaN where not read) and
    `LANG.tokens`; `conditions.jsonl` the conditions in that order; `documents.jsonl` ids.
    """
    conditions = bench.conditions[ALL_PARTS]
    documents: Mapping[str, Documents] = bench.prompted
    texts = read_texts(
        bench.lm,
        documents,
        conditions,
        bench.config,
        bench.run,
        lambda: bench.replacements,
        bench.progress,
    )
    arrays: dict[str, Any] = {}
    for name, (nll, tokens) in texts.items():
        arrays |= {f"{name}.nll": nll, f"{name}.tokens": tokens}
    bench.run.write_tensors("losses.safetensors", arrays)
    bench.run.write_jsonl("conditions.jsonl", map(encode, conditions))
    bench.run.write_jsonl(
        "documents.jsonl",
        [
            {"language": name, "id": identifier, "tokens": int(tokens)}
            for name, own in documents.items()
            for identifier, tokens in zip(own.ids, own.tokens, strict=True)
        ],
    )
    return texts, text_evidence(conditions, texts, bench.config.seed, bench.progress)


def few_documents(data: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The languages with few documents, in a sentence."""
    return few_parts({name: int(own["examples"]) for name, own in data.items()}, "documents")


#: What the measures of a text are.
PERPLEXITIES = (
    "Perplexity is exp of the NLL, in which every token counts the same; published is the mean "
    "over documents of exp of each one's mean NLL, which a few short documents can dominate. "
    "Intervals resample documents."
)


def text_facts(result: TextWithoutHeads | TextWithoutLayers) -> list[tuple[str, str]]:
    """The languages, and how much text of them was read."""
    data = result.details.data
    return [
        ("languages", ", ".join(data)),
        *((name, str(sum(own[key] for own in data.values())))
          for name, key in (("documents", "examples"), ("tokens", "tokens"))),
    ]  # fmt: skip
