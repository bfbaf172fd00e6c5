"""Rated records as they lie in files."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headscope.data.files import (
    LONGEST_LINE,
    Unread,
    files_below,
    load_json,
    open_bytes,
    parse_object,
    plain_name,
    raw_lines,
)
from headscope.data.formats import JSON_LINES, format_of, formats_read, named_formats
from headscope.data.tables import ABSENT, cell_of, open_table
from headscope.errors import InputError
from headscope.heads.store import check_format
from headscope.runs import file_digest
from headscope.use.corpus.records import ADDED
from headscope.use.mixing.plan import MixPlan

_LARGEST = sys.float_info.max
LANGUAGE = "language"
DOCUMENTS = "documents"


@dataclass(frozen=True)
class RatedFile:
    """A file of rated records; `digest` is the SHA-256 of the file, `size` its length in bytes."""

    path: Path
    digest: str
    size: int


@dataclass(frozen=True)
class RatedRecord:
    """What mixing needs of a record; `tokens` is None where records do not tell them."""

    text: str
    language: str
    score: float
    tokens: int | None
    id: object


def rated_files(sources: Sequence[str | Path]) -> list[RatedFile]:
    """The files of some sources, as `rated_paths`, with their digests."""
    paths = rated_paths(sources)
    return [RatedFile(path, file_digest(path), path.stat().st_size) for path in paths]


def check_unchanged(file: RatedFile) -> None:
    """Raises `InputError` if a file holds something else than when it was first read."""
    if file_digest(file.path) != file.digest:
        raise InputError(
            f"{file.path} was changed while it was read; leave it as it is and run the same "
            "command again"
        )


def rated_paths(sources: Sequence[str | Path]) -> list[Path]:
    """The files of some sources: files, folders of files, and runs of `headscope use rate`.

    InputError if a source does not exist, holds no such file, is a run that is not finished, or two
    sources hold the same file.
    """
    if not sources:
        raise InputError("no rated documents are given; name a run of headscope use rate or files")
    seen: dict[Path, str | Path] = {}
    paths: list[Path] = []
    for source in sources:
        for path in _files(Path(source)):
            place = path.resolve()
            if place in seen:
                raise InputError(f"{path} is given twice ({seen[place]}, {source}); name it once")
            seen[place] = source
            paths.append(path)
    return paths


def check_whole(
    sources: Sequence[str | Path], files: Sequence[RatedFile], rows: Sequence[int]
) -> None:
    """Raises `InputError` if a run of `headscope use rate` has other documents than it says."""
    for source in map(Path, sources):
        result = source / "result.json"
        if not (source / "run.json").is_file() or not result.is_file():
            continue
        try:
            documents = json.loads(result.read_bytes())["details"]["documents"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise InputError(f"{result} is damaged; rate the corpus again") from None
        inside = source / DOCUMENTS
        there = sum(
            count
            for file, count in zip(files, rows, strict=True)
            if file.path.is_relative_to(inside)
        )
        if there != documents:
            raise InputError(
                f"{inside} holds {there} documents, of {documents} that were rated, so files there "
                "were changed; rate the corpus again"
            )


def _files(source: Path) -> list[Path]:
    if not source.exists():
        raise InputError(f"{source} does not exist; name a run of headscope use rate, or files")
    if not source.is_dir():
        if not source.is_file():
            raise InputError(
                f"{source} is no ordinary file, and rated documents are read more than once; write "
                "them into a file"
            )
        return [source]
    if (source / "run.json").exists():
        try:
            command = json.loads((source / "run.json").read_bytes())["command"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            raise InputError(f"{source / 'run.json'} is damaged; rate the corpus again") from None
        if command == "use rate" and not (source / "DONE.json").exists():
            raise InputError(
                f"{source} is a rating that is not finished, so documents are missing; run the "
                "same command again to finish it"
            )
        if command == "use rate":
            check_format(source)
        source = source / DOCUMENTS
    files = [
        path
        for path in files_below(source)
        if not any(part.startswith(".") for part in path.relative_to(source).parts)
        and named_formats(path)
        and plain_name(path).suffix.lower() != ".json"  # of a run, not of records
    ]
    if not files:
        raise InputError(
            f"{source} holds no {formats_read()} files; name the folder of rated documents"
        )
    return files


def read_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The records of a file as lines of JSON in UTF-8, without line ends, numbered from 1.

    A line of JSON is as it stands in the file; other records are written as JSON.  Blank lines and
    a byte order mark are left out.
    """
    form = format_of(path) if path.stat().st_size else None
    if form is not None and form is not JSON_LINES:
        yield from _other_lines(path, numbers=form.cells is not None)
        return
    with open_bytes(path) as handle:
        # What rating adds to a line makes it longer than one that it reads.
        for number, line in enumerate(raw_lines(handle, 2 * LONGEST_LINE), 1):
            if isinstance(line, Unread):
                raise InputError(f"{path}, line {number} {line.why}; leave it out")
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            line = line.rstrip(b"\r\n")
            if line.strip():
                yield number, line


def _other_lines(path: Path, numbers: bool) -> Iterator[tuple[int, bytes]]:
    """Records that are no lines of JSON; with `numbers` cells are text, also of scores."""
    with open_table(path, None) as (records, unit):
        for number, record in records:
            if numbers:
                rated = {name: _number(record[name]) for name in ADDED if name in record}
                record = {**record, **rated}
            try:
                line = json.dumps(record, ensure_ascii=False)
            except TypeError as error:
                raise InputError(
                    f"{path}, {unit} {number} holds a value that JSON has none of ({error}); leave "
                    "the column out, or write it as text"
                ) from None
            yield number, line.encode("utf-8", "surrogatepass")


def _number(cell: str) -> Any:
    """What a cell says as a number of JSON; the cell itself where it says none."""
    try:
        return load_json(cell)
    except (ValueError, RecursionError):
        return cell


def read_records(path: Path, plan: MixPlan) -> Iterator[tuple[int, bytes, RatedRecord]]:
    """The records of a file with their line number and their line.

    InputError naming file and line of a record without a score, text or language, with a score that
    is no finite number, or with tokens where others have none.
    """
    for number, line in read_lines(path):
        place = f"{path}, line {number}"
        yield number, line, _record(parse_object(line, place), place, plan)


def _record(value: dict[str, Any], place: str, plan: MixPlan) -> RatedRecord:
    text = _text(value, plan.text_column, place, "text")
    language = ""
    if plan.language_column is not None:
        language = _text(value, plan.language_column, place, "language")
        if not language.strip() or not language.isprintable():
            raise InputError(
                f"{place}: the language in {plan.language_column!r} is empty or no name; name one "
                "in every record"
            )
    elif LANGUAGE in value:
        raise InputError(
            f"{place} has a field {LANGUAGE!r}, which the first record lacks; give it in "
            "every record or in none"
        )
    score = value.get("score")
    if isinstance(score, bool) or not isinstance(score, int | float):
        raise InputError(
            f"{place} has no number as its 'score'; rate the documents first with headscope use "
            "rate, and leave out those that could not be rated"
        )
    if not -_LARGEST <= score <= _LARGEST:  # also whole numbers that no float can hold, and NaN
        raise InputError(
            f"{place}: the score is {str(score)[:20]}, no finite number; leave out documents that "
            "could not be rated"
        )
    tokens = value.get("tokens")
    if tokens is None and plan.by == "tokens":
        raise InputError(
            f"{place} has no 'tokens', which are counted here; rate the documents with headscope "
            "use rate, or count documents instead"
        )
    if tokens is not None and (isinstance(tokens, bool) or not isinstance(tokens, int)):
        raise InputError(f"{place}: 'tokens' is no whole number; rate the documents again")
    if tokens is not None and not 0 <= tokens < 1 << 48:
        raise InputError(f"{place}: there cannot be {tokens} tokens; rate the documents again")
    return RatedRecord(text, language, float(score), tokens, value.get("id"))


def _text(value: dict[str, Any], field: str, place: str, what: str) -> str:
    cell = cell_of(value, field)
    if cell is ABSENT:
        names = ", ".join(map(str, value)) or "none"
        raise InputError(
            f"{place} has no field {field!r} for the {what}; found: {names}; give it in every "
            f"record, or name the right one with --{what}-column"
        )
    if not isinstance(cell, str):
        raise InputError(f"{place}: the {what} in {field!r} is no text; give it in every record")
    return cell
