"""Writing the records of a mixture in a drawn order, however many there are.

Every copy of a record has a place below 2⁶⁴, drawn from seed and content.  The files share the
places out: while the corpus is read once, each record goes to the draft of the file it belongs
to; then each draft is sorted in memory and written.  Read by name one after the other, the files
hold the whole mixture in the drawn order.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscope.heads.store import write_bytes
from headscope.progress import Progress
from headscope.results.mix import WrittenFile
from headscope.use.corpus.records import JSONL_ENDINGS, compressed
from headscope.use.mixing.index import Index, mixed
from headscope.use.mixing.plan import MixPlan
from headscope.use.mixing.reading import DOCUMENTS, RatedFile, check_unchanged, read_lines

_STATE = "drafts.json"
_HEAD = struct.Struct("<QI")
_SHOWN = -1
KEPT = 1 << 25
"""So many bytes of records are kept before they are put into drafts."""
SAVED = 1 << 28
"""After so many bytes of records it is noted which files are done."""


def write_mixture(
    out: Path,
    work: Path,
    files: Sequence[RatedFile],
    index: Index,
    copies: NDArray[np.uint8],
    plan: MixPlan,
    shown: Collection[int] = (),
    progress: Progress | None = None,
) -> tuple[list[WrittenFile], dict[int, bytes]]:
    """Write `copies` of the records below `out`, and return the lines of the records `shown` too.

    `work` keeps drafts as large as the mixture, which a later call goes on with. InputError if a
    file is not what it was when it was indexed.
    """
    size = sum(
        int((copies[block.rows].astype(np.int64) * (block.bytes + 1)).sum())
        for block in index.blocks()
    )
    count = max(1, -(-size // plan.file_bytes))
    drafts = _Drafts(work, count)
    drafts.fill(files, index, copies, plan, frozenset(shown), progress)
    (out / DOCUMENTS).mkdir(parents=True, exist_ok=True)
    digits = max(5, len(str(count - 1)))
    written = []
    for number in range(count):
        if progress:
            progress("writing", number, count)
        name = f"{DOCUMENTS}/{number:0{digits}d}{JSONL_ENDINGS[plan.compression]}"
        documents, content = drafts.sorted_lines(number)
        data = compressed(content, plan.compression)
        write_bytes(out / name, data)
        digest = hashlib.sha256(data).hexdigest()
        written.append(WrittenFile(name, documents, len(data), digest))
    if progress:
        progress("writing", count, count)
    return written, drafts.shown()


class _Drafts:
    """One draft a file: records with their places, in the order in which they were read.

    A further draft holds the records that are shown, with their rows as places.
    """

    def __init__(self, folder: Path, count: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._count = folder, count
        self._kept: dict[int, list[bytes]] = {}
        self._sizes: dict[int, int] = {}
        self._size = 0

    def fill(
        self,
        files: Sequence[RatedFile],
        index: Index,
        copies: NDArray[np.uint8],
        plan: MixPlan,
        shown: frozenset[int],
        progress: Progress | None,
    ) -> None:
        """Read the files that were not read by an earlier call, and deal out their records."""
        done = self._restore()
        row = sum(index.rows[:done])
        orders = _orders(index, copies, plan, row)
        unsaved = 0
        for at, (file, rows) in enumerate(zip(files[done:], index.rows[done:], strict=True), done):
            if progress:
                progress("dealing out", at, len(files))
            end = row + rows
            for _, line in read_lines(file.path):
                if row == end:
                    break
                for order in next(orders):
                    self._put((order * self._count) >> 64, order, line)
                if row in shown:
                    self._put(_SHOWN, row, line)
                row += 1
                unsaved += len(line)
            check_unchanged(file)
            if unsaved >= SAVED or at + 1 == len(files):
                self._flush()
                state = {"done": at + 1, "sizes": list(self._sizes.items())}
                write_bytes(self._folder / _STATE, json.dumps(state).encode())
                unsaved = 0
        if progress:
            progress("dealing out", len(files), len(files))

    def sorted_lines(self, number: int) -> tuple[int, bytes]:
        """How many records one draft has, and their lines in the order of their places."""
        data = self._read(number)
        places, starts, ends = _layout(data)
        content = bytearray()
        for row in np.argsort(places, kind="stable"):
            content += data[starts[row] : ends[row]]
            content += b"\n"
        return len(places), bytes(content)

    def shown(self) -> dict[int, bytes]:
        """The lines of the records that are shown, by their rows."""
        data = self._read(_SHOWN)
        return {
            int(place): data[start:end] for place, start, end in zip(*_layout(data), strict=True)
        }

    def _read(self, number: int) -> bytes:
        path = self._path(number)
        return path.read_bytes() if path.exists() else b""

    def _put(self, number: int, place: int, line: bytes) -> None:
        self._kept.setdefault(number, []).append(_HEAD.pack(place, len(line)) + line)
        self._size += len(line) + _HEAD.size
        if self._size >= KEPT:
            self._flush()

    def _flush(self) -> None:
        for number, records in self._kept.items():
            data = b"".join(records)
            with self._path(number).open("ab") as handle:
                handle.write(data)
            self._sizes[number] = self._sizes.get(number, 0) + len(data)
        self._kept.clear()
        self._size = 0

    def _path(self, number: int) -> Path:
        return self._folder / f"{number}.draft"

    def _restore(self) -> int:
        """How many files were dealt out; what stands behind the last of them is cut off."""
        done, sizes = 0, {}
        if (self._folder / _STATE).exists():
            state: dict[str, Any] = json.loads((self._folder / _STATE).read_bytes())
            done, sizes = int(state["done"]), dict(state["sizes"])
        paths = {int(path.stem): path for path in self._folder.glob("*.draft")}
        if any(
            number not in paths or paths[number].stat().st_size < size
            for number, size in sizes.items()
        ):
            done, sizes = 0, {}  # the machine stopped before all was on disk
        for number, path in paths.items():
            with path.open("r+b") as handle:
                handle.truncate(sizes.get(number, 0))
        self._sizes = sizes
        return done


def _layout(data: bytes) -> tuple[NDArray[np.uint64], NDArray[np.int64], NDArray[np.int64]]:
    """Of each record of a draft its place, and where its line begins and ends."""
    places, starts, ends, at = [], [], [], 0
    while at < len(data):
        place, length = _HEAD.unpack_from(data, at)
        places.append(place)
        starts.append(at + _HEAD.size)
        at += _HEAD.size + length
        ends.append(at)
    return np.array(places, np.uint64), np.array(starts, np.int64), np.array(ends, np.int64)


def _orders(
    index: Index, copies: NDArray[np.uint8], plan: MixPlan, first: int
) -> Iterator[list[int]]:
    """The places of each record's copies, record by record from the row `first` on."""
    for block in index.blocks():
        skipped = max(0, first - block.start)
        if skipped >= len(block.record):
            continue
        here = copies[block.rows]
        most = int(here.max(initial=0))
        places = [mixed(block.record, plan.seed, f"order {nth}").tolist() for nth in range(most)]
        for row, times in enumerate(here[skipped:].tolist(), skipped):
            yield [places[nth][row] for nth in range(times)]
