"""Documents of languages for removals: what the model reads of them, leakage, mean outputs."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headscope.data.documents import Document, DocumentFile
from headscope.data.languages import is_known
from headscope.errors import InputError
from headscope.recipes.documents import DocumentsChoice, read_languages
from headscope.recipes.inputs import POCKET
from headscope.recipes.leakage import Leakage, check_document_leakage
from headscope.verify.languages.conditions import Documents

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from headscope.lm import LanguageModel

__all__ = [
    "Reference",
    "about_documents",
    "documents_leakage",
    "named_heads",
    "read_rows",
    "reference_text",
]

#: Documents are cut here, as in LAHIS, or at the model's context.
LONGEST = 2048
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
    found = [check_document_leakage(spec, documents, allow_overlap) for spec in heads]
    known = [one["overlap"] for one in found if one["overlap"] is not None]
    return Leakage(
        known=len(known) == len(found), overlap=max(known, default=None), of=len(documents)
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
        kept = [(one.id, lm.encode(one.text)[:longest]) for one in file.documents]
        kept = [(identifier, row) for identifier, row in kept if len(row) > 1]
        if not kept:
            raise InputError(
                f"{file.path}: no document of {name} has two tokens, so nothing can be predicted; "
                "give longer documents"
            )
        read[name] = Documents(
            tuple(identifier for identifier, _ in kept), tuple(tuple(row) for _, row in kept)
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


@dataclass(frozen=True)
class Reference:
    """The text whose mean outputs take the place of removed heads, of all languages alike."""

    source: str
    texts: tuple[str, ...]

    @property
    def digest(self) -> str:
        """SHA-256 of the texts."""
        return hashlib.sha256("\0".join(self.texts).encode()).hexdigest()

    def means(self, lm: LanguageModel, batch_tokens: int) -> NDArray[np.float32]:
        """Mean outputs of all heads (see `headscope.lm.ablation.head_means`)."""
        from headscope.lm.ablation import head_means

        return head_means(lm, self.texts, batch_tokens)

    def as_dict(self) -> dict[str, Any]:
        """What it is, as a JSON object."""
        return {"source": self.source, "texts": len(self.texts), "digest": self.digest}


def reference_text(
    choice: DocumentsChoice, model: str, seed: int, files: Mapping[str, DocumentFile]
) -> Reference:
    """The first documents of every language: of pocket's dev split, else of the test data itself.

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
