"""From what people name (files, languages) to the documents of each language."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

from headscope import options
from headscope.data.documents import DocumentFile, DocumentSource, read_documents
from headscope.data.languages import language_name, same_language
from headscope.errors import InputError
from headscope.settings import UNSIGNED, Option, Settings
from headscope.studies.models import POCKET
from headscope.studies.named_data import split_named

#: Documents of a language where no limit is given: as in the LAHIS paper.
DEFAULT_LIMIT = 1000
#: Documents of a language made for the pocket model where no limit is given.
POCKET_LIMIT = 200


@dataclass(frozen=True)
class DocumentsChoice(Settings):
    """Which documents: files or datasets, and languages.

    `data` holds files, folders or Hub datasets, each as `LANG=FILE`, or alone if it says its
    languages itself; without data the pocket model's own documents are taken. `languages` are
    those wanted, all if empty (and the language of a single file that does not say it). `limit`:
    the first so many of each language; a language with fewer is an error, but only if the limit
    was given.
    """

    data: Annotated[
        tuple[str, ...],
        Option(
            "Documents: a file (.txt, one a line; JSON Lines, Parquet, CSV, …) or Hub dataset, "
            "without LANG where a column says it; repeatable. May be left out for pocket.",
            metavar="LANG=DATA",
            held="documents",
            panel="Data",
        ),
    ] = field(default=(), metadata=UNSIGNED)
    text_column: options.TextColumn = "text"
    language_column: options.LanguageColumn = None
    languages: Annotated[
        tuple[str, ...],
        Option(
            "Only these languages; repeatable.", flag="--language", metavar="CODE", panel="Data"
        ),
    ] = ()
    split: Annotated[str | None, Option("Split of a dataset.", panel="Data")] = None
    limit: Annotated[
        int | None,
        Option(
            "Exactly the first so many documents of each language; without it 1000, or for pocket "
            "its own 200.",
            min=1,
            panel="Data",
        ),
    ] = None


def read_languages(
    choice: DocumentsChoice,
    model: str,
    split: Literal["train", "dev", "test"],
    seed: int = 0,
    default_limit: int = DEFAULT_LIMIT,
    pocket_limit: int = POCKET_LIMIT,
) -> dict[str, DocumentFile]:
    """The documents of each language by its code, in the order asked for or found.

    For the pocket model without data: documents of its own `split`. `default_limit` and
    `pocket_limit` hold where the choice has no limit.
    """
    if not choice.data:
        if model != POCKET:
            raise InputError(
                f"no data given for the model {model}; add --data LANG=FILE for each language, "
                "such as --data de=articles.jsonl"
            )
        return _of_pocket(choice, split, choice.limit or pocket_limit, seed)
    files: dict[str, DocumentFile] = {}
    for source in document_sources(choice, choice.limit or default_limit):
        for file in read_documents(source):
            code = file.language
            if code is None and len(choice.languages) == 1:
                code = choice.languages[0]
                spoken = tuple(replace(document, language=code) for document in file.documents)
                file = replace(file, language=code, documents=spoken)
            if code is None:
                raise InputError(
                    f"{file.path} does not say in which language its documents are; write "
                    f"--data LANG={file.path}, such as en={file.path}, or name the column that "
                    "holds it with --language-column"
                )
            for other in files:
                if same_language(other, code):
                    raise InputError(
                        f"{file.path} and {files[other].path} both hold documents in {code}; put "
                        "them into one file"
                    )
            files[code] = file
    for code in choice.languages:
        if not any(same_language(code, other) for other in files):
            there = ", ".join(files) or "none of the languages asked for"
            raise InputError(
                f"--language {code} has no data; add --data {code}=FILE (there are documents in "
                f"{there})"
            )
    if choice.limit is not None:
        for code, file in files.items():
            if len(file.documents) < choice.limit:
                raise InputError(
                    f"{file.path} holds {len(file.documents)} documents in {code}, but --limit "
                    f"asks for {choice.limit}; give more of them or a lower limit"
                )
    return files


def document_sources(choice: DocumentsChoice, limit: int) -> list[DocumentSource]:
    """What to read: one source for each `--data`."""
    files, plain = split_named(choice.data)
    named: dict[str, str] = {}
    for code, name in files:
        language_name(code)
        if any(same_language(code, other) for other in named):
            raise InputError(f"--data names {code} twice; give one file a language")
        named[code] = name
    wanted = choice.languages
    kept = {
        code: name
        for code, name in named.items()
        if not wanted or any(same_language(code, language) for language in wanted)
    }
    sources = [_source(choice, name, limit, code, ()) for code, name in kept.items()]
    others = tuple(
        language for language in wanted if not any(same_language(language, code) for code in named)
    )
    if wanted and not others:
        return sources
    return sources + [_source(choice, name, limit, None, others) for name in plain]


def _source(
    choice: DocumentsChoice, name: str, limit: int, code: str | None, languages: tuple[str, ...]
) -> DocumentSource:
    return DocumentSource(
        name,
        code,
        choice.text_column,
        choice.language_column,
        languages,
        choice.split,
        limit,
    )


def pocket_codes(languages: Sequence[str]) -> tuple[str, ...]:
    """These languages, or all of the pocket model's; InputError for one that it does not speak."""
    from headscope.pocket.world.languages import CODES

    for code in languages:
        if code not in CODES:
            raise InputError(
                f"the pocket model does not speak {language_name(code)} ({code}); it knows "
                f"{', '.join(CODES)}"
            )
    return tuple(dict.fromkeys(languages or CODES))


def _of_pocket(
    choice: DocumentsChoice, split: Literal["train", "dev", "test"], limit: int, seed: int
) -> dict[str, DocumentFile]:
    from headscope.pocket.sample import sample_documents

    codes = pocket_codes(choice.languages)
    return {code: sample_documents(code, split, limit, seed) for code in codes}
