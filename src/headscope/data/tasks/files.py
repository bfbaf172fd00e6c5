"""Tasks from files: JSON lists of input and output, JSON Lines, TSV and Parquet."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from headscope.data.files import check_limit, open_bytes
from headscope.data.languages import language_name
from headscope.data.rows import Field, Row, check_unicode, kind_of, read_rows
from headscope.data.tasks.instructions import instruction_for, known_task
from headscope.data.tasks.task import DEFAULT_BARE, Example, Task
from headscope.errors import InputError

_COMPRESSED = {".gz", ".bz2", ".xz"}


def read_task(
    path: str | Path,
    *,
    name: str | None = None,
    instruction: str | None = None,
    bare: str = DEFAULT_BARE,
    language: str | None = None,
    at_start: bool | None = None,
    input_column: str = "input",
    output_column: str = "output",
    limit: int | None = None,
) -> Task:
    """Read the examples of a task.

    A JSON list (as in the function-vector datasets) holds one object an example; an output that
    is a list of one is that one. JSON Lines, TSV and Parquet files have a column for each side.

    Args:
        path: the file.
        name: what to call the task; by default the file's name without its ending.
        instruction: template of the instructed prompt; by default that of the task of this name,
            if one is known (`instructions.INSTRUCTIONS`).
        bare: template of the prompt without instruction.
        language: code of the language of the outputs; by default known tasks' own.
        at_start: whether answers count at the start of an output alone; by default so for known
            letter, item-order and extraction tasks.
        input_column: key or column of the inputs.
        output_column: key or column of the outputs.
        limit: the first so many examples.

    Raises:
        InputError: naming file, item and fix, if the file is missing, damaged, empty, of another
            format, or if an example lacks a side or leaves it empty.
    """
    path = Path(path)
    check_limit(limit)
    if language is not None:
        language_name(language)  # says what is wrong with a code
    name = name or _stem(path)
    known = known_task(name)
    keys = (input_column, output_column)
    rows, digest = (
        _from_list(path, keys, limit) if _is_list(path) else _from_table(path, keys, limit)
    )
    source, target = (Field(key, _text) for key in keys)
    examples = []
    for number, row in enumerate(rows, 1):
        given, wanted = row[source].rstrip("\r\n"), row[target].strip()
        chosen = row[CANDIDATES]
        if not chosen and known is not None and known.chosen:
            chosen = tuple(piece.strip() for piece in given.split(","))
        if chosen and wanted not in chosen:
            raise InputError(
                f"{row.place}: the output {wanted!r} is none of the candidates "
                f"({', '.join(chosen)}); correct one of them"
            )
        examples.append(Example(str(number), given, wanted, row.line, chosen))
    return Task(
        name=name,
        examples=tuple(examples),
        instruction=instruction if instruction is not None else instruction_for(name),
        bare=bare,
        language=language or (known.language if known else None),
        at_start=at_start if at_start is not None else bool(known and known.at_start),
        path=str(path),
        digest=digest,
    )


def _stem(path: Path) -> str:
    while path.suffix.lower() in _COMPRESSED:
        path = path.with_suffix("")
    return path.stem


def _is_list(path: Path) -> bool:
    """Whether a file is a JSON list: by its first sign, unless its name says one record a line."""
    if path.suffix.lower() in {".jsonl", ".ndjson", ".tsv", ".tab", ".parquet", ".pq"}:
        return False
    with open_bytes(path) as handle:
        start = handle.read(4096)
    return start.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"[")


def _from_list(path: Path, keys: tuple[str, str], limit: int | None) -> tuple[list[Row], str]:
    with open_bytes(path) as handle:
        raw = handle.read()
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise InputError(f"{path}, line {line}: not valid UTF-8; save the file as UTF-8") from None
    rows: list[Row] = []
    for number, (line, item) in enumerate(_items(path, text), 1):
        place = f"{path}, item {number} (line {line})"
        if not isinstance(item, dict):
            raise InputError(
                f'{place} is no JSON object; write each item as {{"{keys[0]}": …, "{keys[1]}": …}}'
            )
        for key in keys:
            if key not in item:
                found = ", ".join(repr(one) for one in item) or "none"
                raise InputError(
                    f"{place} has no key {key!r} (found: {found}); give every item "
                    f"{keys[0]!r} and {keys[1]!r}"
                )
        if limit is None or number <= limit:
            rows.append(Row(line, place, item))
    if not rows:
        raise InputError(f"{path} is an empty list; give at least one item")
    return rows, hashlib.sha256(raw).hexdigest()


def _items(path: Path, text: str) -> Iterator[tuple[int, Any]]:
    """The items of a JSON list with the line each begins on."""
    decoder = json.JSONDecoder()
    at, line, counted = text.index("[") + 1, 1, 0

    def skip(position: int) -> int:
        while position < len(text) and text[position] in " \t\r\n":
            position += 1
        return position

    at = skip(at)
    first = True
    while at < len(text) and text[at] != "]":
        if not first:
            if text[at] != ",":
                break
            at = skip(at + 1)
        line += text.count("\n", counted, at)
        counted = at
        try:
            item, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            if isinstance(error, json.JSONDecodeError):
                line += text.count("\n", counted, error.pos)
            raise InputError(
                f"{path}, line {line} is not valid JSON ({getattr(error, 'msg', error)}); "
                "correct it there"
            ) from None
        yield line, item
        first = False
        at = skip(at)
    if at >= len(text) or text[at] != "]" or text[at + 1 :].strip():
        line = text.count("\n", 0, min(at, len(text))) + 1
        raise InputError(
            f"{path}, line {line}: the JSON list is not closed properly; separate items by "
            "commas and end the file with one ]"
        )


def _from_table(path: Path, keys: tuple[str, str], limit: int | None) -> tuple[list[Row], str]:
    fields = [Field(key, _text) for key in keys]
    by_number = any(key.isdigit() for key in keys)
    try:
        rows, digest = read_rows(path, fields if by_number else [*fields, CANDIDATES], limit)
    except InputError as error:
        # The reader's advice names the flags of sentence pairs.
        plain = str(error).partition("; name the right one with")[0]
        if plain == str(error):
            raise
        raise InputError(
            f"{plain}; name the right ones with --input-column and --output-column"
        ) from None
    return [
        replace(row, place=f"{path}, item {number} (line {row.line})")
        for number, row in enumerate(rows, 1)
    ], digest


def _text(value: Any, place: str, key: str) -> str:
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        kind = "a list of several" if isinstance(value, list) else kind_of(value)
        raise InputError(f"{place}: {key!r} holds {kind}, not one text; give one text")
    if not value.strip():
        raise InputError(f"{place}: {key!r} is empty; give a text or remove the item")
    check_unicode(value, f"{place}: {key!r}", "correct it")
    return value


def _candidates(value: Any, place: str, key: str) -> tuple[str, ...]:
    if value is None or value == "":
        return ()
    if isinstance(value, str):
        return tuple(piece.strip() for piece in value.split(","))
    if isinstance(value, list) and all(isinstance(piece, str) for piece in value):
        return tuple(piece.strip() for piece in value)
    raise InputError(f"{place}: the candidates are no list of texts; give a list, or none")


CANDIDATES: Field[tuple[str, ...]] = Field("candidates", _candidates, ())
