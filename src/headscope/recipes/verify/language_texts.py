"""Documents of languages for removals: what the model reads of them, leakage, mean outputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headscope.data.documents import LONGEST, Document, DocumentFile
from headscope.data.languages import is_known
from headscope.data.split import sentence_digest
from headscope.errors import InputError
from headscope.recipes.documents import DocumentsChoice, read_languages
from headscope.recipes.inputs import POCKET
from headscope.recipes.leakage import Leakage, check_document_leakage, known_examples
from headscope.recipes.verify.reference import Reference
from headscope.verify.languages.conditions import Documents

if TYPE_CHECKING:
    from headscope.lm import LanguageModel

__all__ = [
    "about_documents",
    "documents_leakage",
    "named_heads",
    "read_rows",
    "reference_text",
]

#: Documents of each language that mean outputs are taken over, and characters of each.
REFERENCE_DOCUMENTS, REFERENCE_CHARACTERS = 50, 8 * LONGEST


def named_heads(heads: Sequence[str]) -> list[tuple[str | None, str]]:
    """What `--heads` says: each head set with its language, if it is written `de=HEADS`.

    InputError unless there is one set, or each has a language of its own.
    """
    found: list[tuple[str | None, str]] = []
    for one in heads:
        language, equals, spec = one.partition("=")
        if equals and is_known(language) and not Path(one).exists():
            found.append((language, spec))
        else:
            found.append((None, one))
    if not found:
        raise InputError("no heads are named; name a run, a file, or a list such as 5.3,7.11")
    plain = next((spec for language, spec in found if language is None), None)
    if len(found) > 1 and plain is not None:
        raise InputError(
            f"--heads {plain} says no language while there are several; write all as LANG=HEADS"
        )
    names = [language for language, _ in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"--heads names {twice} twice; give one set a language")
    return found


def documents_leakage(
    heads: Iterable[str], files: Mapping[str, DocumentFile], allow_overlap: bool
) -> Leakage:
    """How many of the documents any of the head sets was found on; refused unless allowed."""
    documents: list[Document] = [one for file in files.values() for one in file.documents]
    specs = list(heads)
    for spec in specs:
        check_document_leakage(spec, documents, allow_overlap)
    known = [found[1] for spec in specs if (found := known_examples(spec)) is not None]
    digests: frozenset[str] = frozenset().union(*known)
    overlap = sum(sentence_digest(one.text) in digests for one in documents)
    return Leakage(
        known=len(known) == len(specs), overlap=overlap if known else None, of=len(documents)
    )


def read_rows(
    lm: LanguageModel, files: Mapping[str, DocumentFile]
) -> tuple[dict[str, Documents], dict[str, int]]:
    """The tokens of each language's documents, and how many documents were left out.

    Those of a single token are, since nothing predicts it. InputError if none is left.
    """
    longest = min(LONGEST, lm.context_length)
    read: dict[str, Documents] = {}
    left_out: dict[str, int] = {}
    for name, file in files.items():
        kept = [(one, tuple(lm.encode(one.text)[:longest])) for one in file.documents]
        kept = [(document, row) for document, row in kept if len(row) > 1]
        if not kept:
            raise InputError(
                f"{file.path}: no document of {name} has two tokens, so nothing can be predicted; "
                "give longer documents"
            )
        read[name] = Documents(
            tuple(document.id for document, _ in kept),
            tuple(row for _, row in kept),
            tuple(f"{file.path}, line {document.line}" for document, _ in kept),
        )
        left_out[name] = len(file.documents) - len(kept)
    return read, left_out


def about_documents(
    files: Mapping[str, DocumentFile], left_out: Mapping[str, int]
) -> dict[str, Any]:
    """What a result tells about its documents, by language."""
    return {
        name: {
            "path": file.path,
            "digest": file.digest,
            "examples": len(file.documents) - left_out[name],
            "left_out": left_out[name],
        }
        for name, file in files.items()
    }


def reference_text(
    choice: DocumentsChoice, model: str, seed: int, files: Mapping[str, DocumentFile]
) -> Reference:
    """Documents whose mean outputs take the place of removed heads, of all languages alike.

    The first of every language: of pocket's dev split, else of the test data itself.

    The documents that heads were found on are not stored with them, only their digests.
    """
    if choice.data or model != POCKET:
        source = "beginnings of the test documents"
    else:
        source = "documents of the pocket model's dev split"
        limited = dataclasses.replace(choice, limit=REFERENCE_DOCUMENTS)
        files = read_languages(limited, model, "dev", seed)
    texts = [
        one.text[:REFERENCE_CHARACTERS]
        for file in files.values()
        for one in file.documents[:REFERENCE_DOCUMENTS]
    ]
    return Reference(source, tuple(texts))
