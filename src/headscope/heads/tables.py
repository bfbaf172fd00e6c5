"""Reading lists of heads from tables and JSON files that people write."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator
from os import PathLike
from pathlib import Path
from typing import Any

from headscope.errors import InputError
from headscope.heads.geometry import Geometry, Head

_SPACE = re.compile(r"[ \t\n\r]*")


def read_csv(path: str | PathLike[str], geometry: Geometry) -> tuple[Head, ...]:
    """Read a table whose first line names the columns `layer` and `head`; others are ignored.

    Commas separate cells, or tabs in a file whose name ends in `.tsv`. The order is the file's.
    """
    file = Path(path)
    delimiter = "\t" if file.suffix == ".tsv" else ","
    reader = csv.reader(io.StringIO(_read_text(file), newline=""), delimiter=delimiter)
    header = [name.strip() for name in next(reader, [])]
    for name in ("layer", "head"):
        if name not in header:
            raise InputError(
                f"{file}, line 1: there is no column '{name}'; "
                "let the first line name the columns layer and head"
            )
    layer, head = header.index("layer"), header.index("head")

    def entries() -> Iterator[tuple[int, Any, Any]]:
        for row in reader:
            if not row:
                continue
            if len(row) <= max(layer, head):
                raise InputError(
                    f"{file}, line {reader.line_num}: has {len(row)} cells, but the header "
                    f"names {len(header)}; give every line a layer and a head"
                )
            yield reader.line_num, row[layer], row[head]

    return _collect(file, entries(), geometry)


def read_json(path: str | PathLike[str], geometry: Geometry) -> tuple[Head, ...]:
    """Read a list of heads, each `{"layer": 5, "head": 3}`, `[5, 3]` or `"5.3"`.

    The list may also be the value of `heads` in an object, as the command line prints it; then
    entries with `"selected": false` are left out. The order is the file's.
    """
    file = Path(path)
    text = _read_text(file)
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(
            f"{file}, line {error.lineno}: is not valid JSON ({error.msg}); "
            'write a list such as [{"layer": 5, "head": 3}]'
        ) from error
    except RecursionError as error:
        raise InputError(f"{file}: is nested too deeply to be a list of heads") from error

    def entries() -> Iterator[tuple[int, Any, Any]]:
        for line, entry in _list_items(file, text):
            match entry:
                case {"selected": False}:
                    continue
                case {"layer": layer, "head": head} | [layer, head]:
                    yield line, layer, head
                case str():
                    layer, _, head = entry.partition(".")
                    yield line, layer, head
                case _:
                    raise InputError(
                        f"{file}, line {line}: {json.dumps(entry, ensure_ascii=False)} is not a "
                        'head; write {"layer": 5, "head": 3}'
                    )

    return _collect(file, entries(), geometry)


def _collect(
    file: Path, entries: Iterable[tuple[int, Any, Any]], geometry: Geometry
) -> tuple[Head, ...]:
    lines: dict[Head, int] = {}
    for line, layer, head in entries:
        where = f"{file}, line {line}"
        try:
            found = geometry.check(Head(_whole(layer), _whole(head)))
        except InputError as error:
            raise InputError(f"{where}: {error}; correct or delete the line") from error
        if found in lines:
            raise InputError(
                f"{where}: head {found} is already on line {lines[found]}; delete one of the two"
            )
        lines[found] = line
    if not lines:
        raise InputError(f"{file}: lists no heads; add at least one")
    return tuple(lines)


def _whole(cell: Any) -> Any:
    if isinstance(cell, str):
        digits = cell.strip()
        return int(digits) if digits.isascii() and digits.isdigit() else cell
    return cell


def _read_text(file: Path) -> str:
    try:
        data = file.read_bytes()
    except OSError as error:
        raise InputError(f"{file}: cannot be read ({error.strerror})") from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{file}, line {line}: is not valid UTF-8; save the file in UTF-8"
        ) from error


def _list_items(file: Path, text: str) -> Iterator[tuple[int, Any]]:
    """The items of the list in a valid JSON text, each with the line where it begins."""
    decode = json.JSONDecoder().raw_decode
    position = _skip(text, 0)
    if text[position] == "{":
        position = _member(text, position, "heads")
    if position < 0 or text[position] != "[":
        raise InputError(
            f"{file}, line 1: holds neither a list of heads nor an object with the list 'heads'"
        )
    position = _skip(text, position + 1)
    while text[position] != "]":
        line = text.count("\n", 0, position) + 1
        item, position = decode(text, position)
        yield line, item
        position = _skip(text, position)
        if text[position] == ",":
            position = _skip(text, position + 1)


def _member(text: str, position: int, name: str) -> int:
    """Where the value of the member `name` of the object at `position` begins, or -1."""
    decode = json.JSONDecoder().raw_decode
    position = _skip(text, position + 1)
    while text[position] != "}":
        key, position = decode(text, position)
        position = _skip(text, _skip(text, position) + 1)  # over the colon
        if key == name:
            return position
        _, position = decode(text, position)
        position = _skip(text, position)
        if text[position] == ",":
            position = _skip(text, position + 1)
    return -1


def _skip(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return position if match is None else match.end()
