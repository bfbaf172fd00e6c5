"""Opening files of a corpus: bytes of any place, decompressed, and damage told from the end."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, cast

from headscope.data.extras import need
from headscope.data.files import CORRUPT
from headscope.data.zstd import MAGIC, ZstdReader
from headscope.errors import InputError
from headscope.use.corpus.files import open_place, reachable

_BLOCK = 1 << 20


@contextmanager
def open_raw(path: str) -> Iterator[BinaryIO]:
    """The bytes of a file as they are; InputError if it cannot be reached or read further."""
    with reachable(path):
        system, inner = open_place(path)
        raw = system.open(inner, "rb")
    with raw:
        try:
            yield raw
        except OSError as error:
            raise _damaged(path, error) from error


@contextmanager
def open_parquet(path: str) -> Iterator[Any]:
    """A Parquet file as pyarrow opens it; InputError if it is none, or damaged."""
    pq = need("pyarrow.parquet", f"reading {path}", "corpus")
    pa = need("pyarrow", f"reading {path}", "corpus")
    with open_raw(path) as raw:
        if not raw.seekable():
            raise InputError(
                f"{path} is on a server that gives whole files only, and Parquet is read in "
                "pieces; download it first"
            )
        try:
            yield pq.ParquetFile(raw)
        except (pa.ArrowException, OSError) as error:
            said = str(error).splitlines()[0]
            raise InputError(
                f"{path} is not a readable Parquet file ({said}); fetch or write it again"
            ) from None


@contextmanager
def open_plain(path: str) -> Iterator[BinaryIO]:
    """The bytes of a file, decompressed where its first bytes say that it is compressed.

    Unlike the openers of fsspec this reads every frame of a zstd file, and knows a file that was
    cut off: InputError, also for other damage.
    """
    with open_raw(path) as raw:
        buffered = io.BufferedReader(cast("Any", raw), _BLOCK)
        try:
            with _decompressing(buffered, path) as opened:
                yield opened
        except CORRUPT as error:
            raise _damaged(path, error) from None


def numbered_lines(handle: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Lines with something on them, by their number from 1, without what ends them.

    Lines end at line feeds alone; a byte order mark at the beginning is no part of the first.
    """
    for number, line in enumerate(handle, 1):
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        line = line.strip(b" \t\r\n")
        if line:
            yield number, line


def _decompressing(raw: io.BufferedReader, path: str) -> BinaryIO:
    start = raw.peek(6)
    if start.startswith(b"\x1f\x8b"):
        return cast("BinaryIO", gzip.GzipFile(fileobj=raw))
    if start.startswith(b"BZh"):
        return cast("BinaryIO", bz2.BZ2File(raw))
    if start.startswith(b"\xfd7zXZ\x00"):
        return cast("BinaryIO", lzma.LZMAFile(raw))
    if start.startswith(MAGIC):
        return io.BufferedReader(ZstdReader(raw, path), _BLOCK)
    return raw


def _damaged(path: str, error: BaseException) -> InputError:
    return InputError(f"{path} cannot be read to its end ({error}); fetch or write it again")
