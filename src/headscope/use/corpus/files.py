"""The files of a corpus: found by path, folder, pattern, address or dataset name, and opened.

Local and remote places go through the file systems of ``fsspec``, as datatrove takes them.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from glob import has_magic
from pathlib import Path
from typing import Any, BinaryIO, cast

from headscope.data.files import (
    COMPRESSED,
    Unread,
    decoded_lines,
    decompressed,
    files_below,
    raw_lines,
    readable,
)
from headscope.data.formats import (
    JSON_LINES,
    Format,
    Table,
    begun,
    formats,
    formats_read,
    named_formats,
    opened_table,
)
from headscope.data.languages import language_name
from headscope.data.tables import is_hub_name, text_rows
from headscope.errors import InputError, need

DATASET = "dataset"
#: What `datasets` leaves beside tables it saved itself.
_SAVED = ("dataset_dict.json", "dataset_info.json", "state.json")
_BLOCK = 1 << 20


@dataclass(frozen=True)
class CorpusFile:
    """One file of a corpus, or one dataset.

    `name` begins the names of its output files; no two files of a corpus share one. `path` is the
    path, address or dataset name, `kind` the usual ending of its format (``jsonl``), or
    ``dataset``, of which it is a `split`. `language` is that of all records that do not say theirs;
    None where nothing was said. `survey` makes the rest: `digest`, the SHA-256 of the content
    (decompressed, for text); `records`, how many there are, or as many as are wanted; `blocks`, the
    digests of what was read, block by block; `types`, the columns of a Parquet file to be written,
    where the input does not say them; `stamp`, size, times and number of a local file, and what was
    wanted; `headless`, whether columns go by number, so that a text table has no header.
    """

    name: str
    path: str
    kind: str
    language: str | None = None
    split: str | None = None
    digest: str = ""
    records: int = 0
    blocks: tuple[str, ...] = ()
    types: Any = None
    stamp: tuple[str, ...] | None = None
    headless: bool = False

    @property
    def format(self) -> Format | None:
        """The format of a file; None for a dataset."""
        return next((form for form in formats() if form.endings[0] == f".{self.kind}"), None)


def find_files(data: Sequence[str], split: str | None = None) -> tuple[CorpusFile, ...]:
    """The files that each of ``data`` names, in the order given, those of a folder by name.

    Each is a file, a folder, a pattern (``*``), an address (``s3://…``, ``hf://…``, ``https://…``)
    of one of these, or a dataset of the Hub (``name`` or ``name:config``), alone or as
    ``LANG=PLACE``. InputError if a place holds nothing, or no kind of file that is read.
    """
    if not data:
        raise InputError("no corpus is given; add --data FILE, repeatable, or --data LANG=FILE")
    files: dict[str, CorpusFile] = {}
    paths: set[str] = set()
    for spec in data:
        language, place = _language(spec)
        for path, kind in _places(place):
            if path in paths:
                raise InputError(f"{path} is named twice by --data; name each file once")
            paths.add(path)
            name = _free_name(path, files)
            own_split = split if kind == DATASET else None
            files[name] = CorpusFile(name, path, kind, language, own_split)
    if split is not None and not any(file.kind == DATASET for file in files.values()):
        raise InputError("--split is for datasets, but --data names files; leave it out")
    return tuple(files.values())


def _language(spec: str) -> tuple[str | None, str]:
    code, equals, place = spec.partition("=")
    if not equals or "/" in code or ":" in code or Path(spec).exists():
        return None, spec
    language_name(code)
    return code, place


def _places(place: str) -> list[tuple[str, str]]:
    """Each file or dataset at a place, with its kind."""
    path = Path(place)
    if path.is_dir() and any((path / name).exists() for name in _SAVED):
        return [(place, DATASET)]
    pattern = has_magic(place) and not path.exists()
    remote = "://" in place
    own_kind = _kind(place)
    if not (pattern or remote or path.exists() or own_kind) and is_hub_name(place):
        return [(place, DATASET)]
    with _reachable(place):
        system, inner = _open_place(place)
        # A web server cannot tell a file from a folder, but the name can.
        if not pattern and system.isfile(inner) and (own_kind or not remote):
            if own_kind is None:
                raise InputError(
                    f"{place} holds no records by its name; a corpus is read from {formats_read()} "
                    "files, compressed or not"
                )
            return [(place, own_kind)]
        if pattern:
            inside = [name for name in system.glob(inner) if not system.isdir(name)]
        elif path.is_dir():
            inside = [str(file) for file in files_below(Path(inner))]
        elif system.isdir(inner):
            inside = system.find(inner)
        elif path.exists():
            raise InputError(
                f"{place} is no ordinary file, and a corpus is read more than once; write it into "
                "a file"
            )
        else:
            raise FileNotFoundError(place)
    known = [
        (str(system.unstrip_protocol(name)) if remote else name, kind)
        for name in sorted(inside)
        if (kind := _kind(name))
    ]
    if not known:
        raise InputError(
            f"{place} holds no files of records; name {formats_read()} files, compressed or not"
        )
    return known


def _kind(path: str) -> str | None:
    """The kind of a file by its name; None for hidden files and others that are not read."""
    forms = _allowed(path)
    return forms[-1].endings[0][1:] if forms else None


def _allowed(path: str) -> list[Format]:
    name = path.rsplit("/", 1)[-1].partition("?")[0]
    return [] if name.startswith(".") else named_formats(name)


def _free_name(path: str, taken: Iterable[str]) -> str:
    """The file's name without its endings, in letters that every file system takes."""
    name = path.rstrip("/").rsplit("/", 1)[-1].partition("?")[0]
    for ending in (*COMPRESSED, *(ending for form in formats() for ending in form.endings)):
        if name.lower().endswith(ending):
            name = name[: -len(ending)]
    name = re.sub(r"[^A-Za-z0-9._+=-]+", "_", name).strip(".")[:100] or "file"
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}.{number}"
    return free


@contextmanager
def _reachable(path: str) -> Iterator[None]:
    """Turn what a file system raises when it is asked for a place into one sentence naming it.

    Each file system has errors of its own, so none is left out here; their text is kept.
    """
    try:
        yield
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError(f"{path} does not exist; check the path") from None
    except PermissionError:
        raise InputError(f"{path} may not be read; check its permissions") from None
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{path} cannot be reached ({reason}); check the place") from error


def _open_place(path: str) -> tuple[Any, str]:
    """The file system of a place, and what the place is called there."""
    core = need("fsspec.core", f"reading {path}", "corpus")
    if Path(path).exists():
        local = need("fsspec.implementations.local", f"reading {path}", "corpus")
        return local.LocalFileSystem(), str(Path(path).resolve())
    try:
        system, inner = core.url_to_fs(path)
    except ValueError as error:
        raise InputError(f"{path} is no address that can be read ({error})") from None
    return system, inner


class BlockReader(io.RawIOBase):
    """Reads a file block by block with a digest of each; refuses a block that is another than in a
    survey.

    `blocks` are the digests of the blocks read so far, in the order of the file: length and BLAKE2b
    of each. Those of an earlier reader are `known`: what was read then must be there now, whatever
    size and times say; what stands behind it is not looked at.
    """

    def __init__(self, raw: BinaryIO, path: str, known: Sequence[str] = ()) -> None:
        self._raw, self._path, self._known = raw, path, known
        self._at = 0
        self._number = -1
        self._block = b""
        self.blocks: list[str] = []

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return bool(self._raw.seekable())

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        begin = {io.SEEK_SET: 0, io.SEEK_CUR: self._at}.get(whence)
        self._at = self._raw.seek(0, whence) + offset if begin is None else begin + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        number, inside = divmod(self._at, _BLOCK)
        if number != self._number:
            self._load(number)
        piece = self._block[inside : inside + len(buffer)]
        buffer[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)

    def _load(self, number: int) -> None:
        if self.seekable():
            self._raw.seek(number * _BLOCK)
        pieces, left = [], _BLOCK
        while left and (piece := self._raw.read(left)):
            pieces.append(piece)
            left -= len(piece)
        self._number, self._block = number, b"".join(pieces)
        if number < len(self._known):
            length = int(self._known[number].partition(":")[0])
            if self._digest(self._block[:length]) != self._known[number]:
                raise InputError(
                    f"{self._path} changed while it was rated; give another --out and start again"
                )
        if number == len(self.blocks) and self._block:
            self.blocks.append(self._digest(self._block))

    @staticmethod
    def _digest(block: bytes) -> str:
        return f"{len(block)}:{hashlib.blake2b(block, digest_size=8).hexdigest()}"


@contextmanager
def open_raw(path: str, known: Sequence[str] = ()) -> Iterator[BlockReader]:
    """The bytes of a file as they are, if they are the `known` ones of a survey.

    InputError if it cannot be reached or read further, or has changed since.
    """
    with _reachable(path):
        system, inner = _open_place(path)
        raw = system.open(inner, "rb")
    with raw, readable(path):
        yield BlockReader(raw, path, known)


@contextmanager
def open_corpus_table(file: CorpusFile, known: Sequence[str] = ()) -> Iterator[Table]:
    """The table in a file; InputError if it holds none, is damaged or not as `known`."""
    assert file.format is not None
    with open_raw(file.path, known) as raw:
        if not raw.seekable():
            raise InputError(
                f"{file.path} is on a server that gives whole files only, and "
                f"{file.format.name} is read in pieces; download it first"
            )
        buffered = io.BufferedReader(raw, _BLOCK)
        with opened_table(file.format, buffered, file.path) as table:
            yield table


@contextmanager
def open_plain(path: str, known: Sequence[str] = ()) -> Iterator[tuple[BinaryIO, BlockReader]]:
    """The bytes of a file, decompressed where its first bytes say that it is compressed, and the
    reader of its blocks.

    Unlike the openers of fsspec this reads every frame of a zstd file, and knows a file that was
    cut off or is not as `known`: InputError, also for other damage.
    """
    with (
        open_raw(path, known) as raw,
        decompressed(io.BufferedReader(cast("Any", raw), _BLOCK)) as opened,
    ):
        yield opened, raw


def settled(file: CorpusFile) -> CorpusFile:
    """A file whose name allows several formats, with the kind that its first bytes say."""
    forms = _allowed(file.path)
    if file.format is None or len(forms) < 2:
        return file
    with open_plain(file.path) as (handle, _):
        form = begun(handle.read(_BLOCK), forms)
    return file if form is None else replace(file, kind=form.endings[0][1:])


def header(file: CorpusFile) -> list[str]:
    """The columns of a text table; none of another file."""
    if file.format is None or file.format.cells is None:
        return []
    with open_plain(file.path) as (handle, _):
        lines = decoded_lines(handle, file.path, errors="surrogateescape")
        first = next((row for _, row in file.format.cells(lines, file.path) if row), [])
    return list(map(str, range(len(first)))) if file.headless else first


def record_lines(file: CorpusFile, handle: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """The records of a file of text as JSON, by the lines that they begin on.

    Rows of a text table are written as JSON; one of another length than the first is `Unread`.
    """
    assert file.format is not None
    if file.format is JSON_LINES:
        yield from numbered_lines(handle)
        return
    # A row with bytes that are not UTF-8 keeps them, and cannot be rated.
    lines = decoded_lines(handle, file.path, errors="surrogateescape")
    if file.format.objects is not None:
        for number, item in file.format.objects(lines, file.path):
            yield number, item.replace("\n", " ").encode("utf-8", "surrogateescape")
        return
    assert file.format.cells is not None
    filled = (record for record in file.format.cells(lines, file.path) if record[1])
    for number, row in text_rows(filled, file.path, None, headless=file.headless):
        if isinstance(row, dict):
            line = json.dumps(row, ensure_ascii=False)
            yield number, line.encode("utf-8", "surrogateescape")
        else:
            yield number, row


def numbered_lines(handle: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Lines with something on them, by their number from 1, without what ends them.

    Lines end at line feeds alone; a byte order mark at the beginning is no part of the first. One
    that is too long to be read is `Unread`.
    """
    for number, line in enumerate(raw_lines(handle), 1):
        if not isinstance(line, Unread):
            line = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
            line = line.strip(b" \t\r\n")
        if line:
            yield number, line
