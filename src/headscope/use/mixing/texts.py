"""Records with the same text, found without holding all texts in memory.

The keys of the texts are dealt out into files by their first bits, so that copies of a text lie in
the same file and each file fits in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headscope.use.mixing.index import Index
from headscope.use.mixing.keys import mixed

IN_BASELINE, SELECTED, FRESH = (np.uint8(1 << bit) for bit in range(3))
"""Marks of a record: in the baseline; selected; of the reserve with a text not met so far."""

PART = 1 << 19
"""So many records lie in one file, about; each takes 24 bytes."""
_ROW = np.dtype([("text", np.uint64), ("order", np.uint64), ("row", np.int64)])


@dataclass(frozen=True)
class SameTexts:
    """The records of an index, dealt out by text into files of a folder."""

    parts: tuple[Path, ...]

    def groups(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Part by part: rows with copies of a text side by side, and the number of the text.

        Copies of one text are in the order of the draw they were dealt out with.
        """
        for path in self.parts:
            rows = np.fromfile(path, _ROW)
            rows.sort(order=("text", "order", "row"))
            if len(rows):
                new = np.append(False, rows["text"][1:] != rows["text"][:-1])
                yield rows["row"], np.cumsum(new)

    def close_over(self, marks: NDArray[np.uint8]) -> None:
        """Settle the marks of copies, in place.

        All copies that the baseline has of a selected text are selected.  Of a text of the reserve
        that neither the baseline nor a selected record has, one record becomes `FRESH`.
        """
        for rows, text in self.groups():
            seen = marks[rows]
            based = seen & IN_BASELINE > 0
            selected = seen & SELECTED > 0
            texts = int(text[-1]) + 1
            closed = np.bincount(text, based & selected, texts)[text] > 0
            marks[rows[based & closed]] |= SELECTED
            taken = np.bincount(text, based | selected, texts)[text] > 0
            first = np.append(True, text[1:] != text[:-1])
            marks[rows[first & ~taken]] |= FRESH

    def duplicates(self, copies: NDArray[np.uint8]) -> int:
        """How many of the records, taken so many times each, have a text that came before."""
        total = distinct = 0
        for rows, text in self.groups():
            counts = np.bincount(text, copies[rows])
            total += int(counts.sum())
            distinct += int(np.count_nonzero(counts))
        return total - distinct


def deal_texts(index: Index, folder: Path, seed: int) -> SameTexts:
    """Deal out the records of an index; `seed` draws the order of copies of one text."""
    count = -(-len(index) // PART)
    folder.mkdir(parents=True, exist_ok=True)
    parts = tuple(folder / str(number) for number in range(count))
    for path in parts:
        path.write_bytes(b"")
    for block in index.blocks():
        rows = np.empty(len(block.text), _ROW)
        rows["text"] = block.text
        rows["order"] = mixed(block.record, seed, "reserve")
        rows["row"] = np.arange(block.rows.start, block.rows.stop)
        part = ((block.text >> np.uint64(32)) * np.uint64(count)) >> np.uint64(32)
        order = np.argsort(part, kind="stable")
        rows, bounds = rows[order], np.searchsorted(part[order], np.arange(count + 1))
        for path, start, end in zip(parts, bounds, bounds[1:], strict=False):
            if start < end:
                with path.open("ab") as handle:
                    rows[start:end].tofile(handle)
    return SameTexts(parts)
