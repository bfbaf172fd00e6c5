"""The records of each kind of file, those of finished chunks passed over as fast as can be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from headscope.data.extras import need
from headscope.data.hub import load_table
from headscope.errors import InputError
from headscope.use.corpus.files import CorpusFile
from headscope.use.corpus.opening import numbered_lines, open_parquet, open_plain
from headscope.use.corpus.records import Record, parse_line

#: Whether a record is wanted, by how many stand before it in its file.
Wanted = Callable[[int], bool]
#: Rows of a table looked at together.
_ROWS = 1000


def read_records(file: CorpusFile, wanted: Wanted) -> Iterator[Record]:
    """The wanted ones of a surveyed file's records, in order.

    InputError if the file does not hold what it held when it was surveyed, or is damaged.
    """
    kinds = {"jsonl": _lines, "parquet": _parquet, "dataset": _dataset}
    return kinds[file.kind](file, wanted)


def _lines(file: CorpusFile, wanted: Wanted) -> Iterator[Record]:
    place = -1
    with open_plain(file.path) as handle:
        for place, (number, line) in enumerate(numbered_lines(handle)):
            if place == file.records:
                return
            if wanted(place):
                yield parse_line(file, number, place, line)
    _check(file, place + 1)


def _parquet(file: CorpusFile, wanted: Wanted) -> Iterator[Record]:
    pa = need("pyarrow", f"reading {file.path}", "corpus")
    with open_parquet(file.path) as table:
        _check(file, table.metadata.num_rows, at_least=True)
        begin = 0
        for group in range(table.metadata.num_row_groups):
            end = begin + table.metadata.row_group(group).num_rows
            if any(map(wanted, range(begin, min(end, file.records)))):
                for batch in table.iter_batches(batch_size=_ROWS, row_groups=[group]):
                    yield from _rows(file, pa.Table.from_batches([batch]), begin, wanted)
                    begin += batch.num_rows
            begin = end


def _dataset(file: CorpusFile, wanted: Wanted) -> Iterator[Record]:
    table = load_table(file.path, file.split)
    _check(file, len(table), at_least=True)
    arrow = table.with_format("arrow")
    for begin in range(0, file.records, _ROWS):
        end = min(begin + _ROWS, file.records)
        if any(map(wanted, range(begin, end))):
            yield from _rows(file, arrow[begin:end], begin, wanted)


def _rows(file: CorpusFile, table: Any, begin: int, wanted: Wanted) -> Iterator[Record]:
    """The wanted rows of a piece of a table that begins with row ``begin`` of its file."""
    places = [at for at in range(table.num_rows) if begin + at < file.records]
    some = [at for at in places if wanted(begin + at)]
    for at, value in zip(some, table.take(some).to_pylist(), strict=True):
        place = begin + at
        yield Record(file, place + 1, place, value, row=table.slice(at, 1))


def _check(file: CorpusFile, found: int, at_least: bool = False) -> None:
    if found < file.records or (found > file.records and not at_least):
        raise InputError(
            f"{file.path} changed while it was rated: it held {file.records} records and now holds "
            f"{found}; give another --out and start again"
        )
