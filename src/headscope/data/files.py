"""Opening data files: compression, lines of UTF-8 text, JSON and digests."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import json
import lzma
import os
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import resources
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

from headscope.errors import InputError, first_line, need, placed, refuse_pipes

T = TypeVar("T")

#: Endings of compressed files, which are known by their first bytes.
COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zstd")
_BLOCK = 1 << 17
#: Bytes of a line that are read at most, and of a file that is one JSON text.
LONGEST_LINE = 1 << 26
LARGEST_TEXT = 1 << 30
_CORRUPT = (EOFError, zlib.error, lzma.LZMAError)
# What decompresses a file, by its first bytes.
_OPENERS: dict[bytes, Callable[[Any], Any]] = {
    b"\x1f\x8b": lambda raw: gzip.GzipFile(fileobj=raw),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\x00": lzma.LZMAFile,
    b"\x28\xb5\x2f\xfd": lambda raw: io.BufferedReader(ZstdReader(raw), _BLOCK),
}


def check_limit(limit: int | None) -> None:
    """Raises ``InputError`` for a limit below 1."""
    if limit is not None and limit < 1:
        raise InputError(f"the limit is {limit}; give at least 1, or none for everything")


def plain_name(path: Path) -> Path:
    """A path without the endings of compression."""
    while path.suffix.lower() in COMPRESSED:
        path = path.with_suffix("")
    return path


def decompressed(raw: io.BufferedReader) -> AbstractContextManager[io.BufferedReader]:
    """A buffered file, decompressed where its first bytes say that it is compressed."""
    start = raw.peek(6)
    for magic, opened in _OPENERS.items():
        if start.startswith(magic):
            return cast("io.BufferedReader", opened(raw))
    return nullcontext(raw)


@contextmanager
def readable(path: str | Path) -> Iterator[None]:
    """Raises ``InputError`` for a file that cannot be opened, or not be read to its end."""
    refuse_pipes(path)
    try:
        yield
    except FileNotFoundError:
        raise InputError(f"{path} does not exist; check the path") from None
    except IsADirectoryError:
        raise InputError(f"{path} is a folder; give one of the files in it") from None
    except PermissionError:
        raise InputError(f"{path} may not be read; check its permissions") from None
    except (*_CORRUPT, OSError) as error:
        raise InputError(
            f"{path} cannot be read to its end ({first_line(error)}); fetch or write it again"
        ) from None
    except MemoryError:
        raise InputError(
            f"{path} needs more memory than there is; give a part of it, or shorter records"
        ) from None


@contextmanager
def open_bytes(path: Path) -> Iterator[io.BufferedReader]:
    """The bytes of a file, decompressed where its first bytes say that it is compressed.

    ``InputError`` as of `readable`.
    """
    with readable(path), path.open("rb") as raw, decompressed(raw) as handle:
        yield handle


def files_below(folder: Path) -> list[Path]:
    """All files in a folder and in those below, sorted by path; links to folders are not followed.

    Folders may be nested as deeply as the system lets one name them; ``InputError`` beyond that.
    """
    files, folders = [], [folder]
    while folders:
        place = folders.pop()
        try:
            with os.scandir(place) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(Path(entry.path))
                    elif Path(entry.path).is_file():
                        files.append(Path(entry.path))
        except OSError as error:
            shown = str(place) if len(str(place)) < 200 else f"{str(place)[:199]}…"
            raise InputError(
                f"{shown} cannot be looked through ({error.strerror}); name the files, or a folder "
                "that holds them alone"
            ) from None
    return sorted(files)


class Unread(bytes):
    """Stands for a line that is not read: what is shown of it, and `why`."""

    why: str

    def __new__(cls, shown: bytes, why: str) -> Unread:
        line = super().__new__(cls, shown)
        line.why = why
        return line


def raw_lines(handle: BinaryIO, longest: int = LONGEST_LINE) -> Iterator[bytes]:
    """The lines of a file with their ends, as the file itself gives them.

    One of more than `longest` bytes is passed over while it is read, never held, and comes as
    `Unread` with its beginning, length and SHA-256.
    """
    while line := handle.readline(longest + 1):
        if len(line) <= longest or line.endswith(b"\n"):
            yield line
            continue
        start, size, hasher = line[:200], 0, hashlib.sha256()
        while line:
            size += len(line)
            hasher.update(line)
            line = b"" if line.endswith(b"\n") else handle.readline(_BLOCK)
        shown = b"%b... (%d bytes, SHA-256 %b)" % (start, size, hasher.hexdigest().encode())
        yield Unread(shown, f"is longer than {longest >> 20} MiB")


def whole_text(handle: BinaryIO, path: Path) -> bytes:
    """The content of a file that is one JSON text; ``InputError`` if it is too large for one."""
    data = handle.read(LARGEST_TEXT + 1)
    if len(data) > LARGEST_TEXT:
        raise InputError(f"{path} is larger than 1 GiB; give a part of it")
    return data


def decoded_lines(
    handle: BinaryIO,
    path: str | Path,
    hasher: hashlib._Hash | None = None,
    errors: str = "strict",
) -> Iterator[tuple[int, str]]:
    """Numbered lines of UTF-8 text, split at line feeds alone, with their ends.

    Of the file the byte order mark is left out; `errors` as of `bytes.decode`.
    """
    for number, raw in enumerate(raw_lines(handle), 1):
        if isinstance(raw, Unread):
            raise InputError(f"{path}, line {number} {raw.why}; give one record a line")
        if hasher is not None:
            hasher.update(raw)
        try:
            line = raw.decode("utf-8", errors)
        except UnicodeDecodeError as error:
            raise InputError(
                f"{path}, line {number}: byte {error.start + 1} of the line is not valid UTF-8; "
                "save the file as UTF-8"
            ) from None
        if number == 1:
            line = line.removeprefix("\ufeff")
            if not line.endswith("\n") and "\r" in line.rstrip("\r"):
                raise InputError(
                    f"{path}: its lines end with a carriage return alone; save the file with line "
                    "feeds"
                )
        yield number, line


def without_end(line: str) -> str:
    """A line without its end, LF or CRLF."""
    return line.removesuffix("\n").removesuffix("\r")


def filled(numbered: Iterable[tuple[int, T]], path: str | Path) -> Iterator[tuple[int, T]]:
    """Lines or records with something in them, those at the end of a file aside that are blank.

    ``InputError`` for a blank one between others, and for a file without any other.
    """
    blank = 0  # the first of the blank ones seen since the last one with something in it
    number = 0
    for number, value in numbered:
        if not value:
            blank = blank or number
            continue
        if blank:
            raise InputError(f"{path}, line {blank} is blank; remove it, or give a sentence on it")
        yield number, value
    if number == 0 or blank == 1:
        raise InputError(f"{path} is empty; give a file with at least one record")


def filled_lines(lines: Iterable[tuple[int, str]], path: str | Path) -> Iterator[tuple[int, str]]:
    """Lines without their ends; none is blank (see `filled`)."""
    texts = ((number, without_end(line)) for number, line in lines)
    return filled(((number, text if text.strip(" \r") else "") for number, text in texts), path)


def text_lines(
    handle: BinaryIO, path: Path, hasher: hashlib._Hash | None = None
) -> Iterator[tuple[int, str]]:
    """Numbered lines of UTF-8 text as `decoded_lines`, without their ends; none is blank."""
    return filled_lines(decoded_lines(handle, path, hasher), path)


def decoded(data: bytes, path: Path) -> str:
    """The text of a whole file; `InputError` with the line that is not UTF-8."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{path}, line {line}: is not valid UTF-8; save the file as UTF-8"
        ) from None


def packaged_rows(package: str, name: str) -> list[list[str]]:
    """The cells of a table that lies in a package, line by line, comments aside."""
    text = resources.files(package).joinpath(name).read_text(encoding="utf-8")
    return [line.split("\t") for line in text.splitlines() if line and not line.startswith("#")]


def json_digest(value: object, sort_keys: bool = False) -> str:
    """SHA-256 of a value as JSON."""
    text = json.dumps(value, ensure_ascii=False, sort_keys=sort_keys)
    return hashlib.sha256(text.encode()).hexdigest()


def drain(handle: BinaryIO, hasher: hashlib._Hash) -> None:
    """Feeds what is left of a file into its digest."""
    while chunk := handle.read(1 << 20):
        hasher.update(chunk)


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these keys and values, as JSON is read; ValueError for a key that is twice."""
    value = dict(pairs)
    if len(value) < len(pairs):
        keys = [key for key, _ in pairs]
        double = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {double[:30]!r} is there twice")
    return value


def load_json(text: str | bytes) -> Any:
    """The value that JSON holds; ValueError or RecursionError where there is none."""
    return json.loads(text, object_pairs_hook=unique_keys)


def parse_json(
    text: str | bytes,
    place: str,
    fix: str = "write one JSON object a line",
    position: bool = False,
) -> Any:
    """The value that JSON holds; ``InputError`` with its place (and position there) and a fix."""
    try:
        return load_json(text)
    except (ValueError, RecursionError) as error:
        raise not_json(place, error, fix, position) from None


def parse_object(text: str | bytes, place: str) -> dict[str, Any]:
    """The JSON object on a line; ``InputError`` if there is none."""
    value = parse_json(text, place)
    if not isinstance(value, dict):
        raise InputError(f"{place} is no JSON object; write one JSON object a line")
    return value


def not_json(place: str, error: BaseException, fix: str, position: bool = False) -> InputError:
    """What is wrong where JSON could not be read."""
    # Beside ill-formed JSON: nested too deeply, or a number of too many digits.
    reason = getattr(error, "msg", str(error).partition(";")[0])
    if position and isinstance(error, json.JSONDecodeError):
        reason += f" at character {error.pos + 1}"
    return InputError(f"{place} is not valid JSON ({reason}); {fix}")


def write_text_atomically(path: Path, text: str) -> None:
    """Writes UTF-8 text beside its place and moves it there, so that no half file is ever seen."""
    if path.is_dir():
        raise InputError(f"{path} is a folder; name a file")
    if path.parent.exists() and not path.parent.is_dir():
        raise InputError(f"{path.parent} is a file, so nothing can be written in it; name another")
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and not path.is_file():
        raise InputError(f"{path} is no ordinary file, so it is not replaced; name another file")
    with placed(path):
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".tmp-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(text.encode("utf-8"))
            mask = os.umask(0)
            os.umask(mask)
            os.chmod(name, 0o666 & ~mask)
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise


class ZstdReader(io.RawIOBase):
    """Reads all frames of a zstd file, and raises EOFError if the last one is cut off.

    The package's own reader takes a file that was cut off for a whole one, and stops at the end of
    the first frame. OSError where a frame is damaged.
    """

    def __init__(self, raw: BinaryIO) -> None:
        self._zstd = need("zstandard", "reading zstd", "corpus")
        self._raw = raw
        self._frame: Any = None
        self._ahead = b""  # compressed bytes behind the end of a frame
        self._ready = b""  # decompressed bytes not yet given out

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready and self._decompress():
            pass
        size = min(len(buffer), len(self._ready))
        buffer[:size] = self._ready[:size]
        self._ready = self._ready[size:]
        return size

    def _decompress(self) -> bool:
        """Take one more piece of the file; False at its end."""
        piece, self._ahead = self._ahead or self._raw.read(_BLOCK), b""
        if not piece:
            if self._frame is not None:
                raise EOFError("Compressed file ended before the end of a frame was reached")
            return False
        if self._frame is None:
            self._frame = self._zstd.ZstdDecompressor().decompressobj()
        try:
            self._ready = self._frame.decompress(piece)
        except self._zstd.ZstdError as error:
            raise OSError(f"not a valid zstd frame ({error})") from None
        if self._frame.eof:
            self._ahead = self._frame.unused_data
            self._frame = None
        return True
