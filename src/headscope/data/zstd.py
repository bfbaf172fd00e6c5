"""Reading zstd files whole: every frame of them, and never half of one unnoticed."""

from __future__ import annotations

import io
from typing import Any, BinaryIO

from headscope.errors import need

#: How such a file begins.
MAGIC = b"\x28\xb5\x2f\xfd"
_BLOCK = 1 << 17


class ZstdReader(io.RawIOBase):
    """Reads all frames of a zstd file, and raises EOFError if the last one is cut off.

    The package's own reader takes a file that was cut off for a whole one, and stops at the end of
    the first frame. OSError where a frame is damaged; `path` is for messages.
    """

    def __init__(self, raw: BinaryIO, path: object) -> None:
        self._zstd = need("zstandard", f"reading {path}", "corpus")
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
