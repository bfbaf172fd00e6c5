"""The bytes of a chunk's file: rated records as JSON Lines or as a Parquet table."""

from __future__ import annotations

import gzip
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from headscope.data.extras import need
from headscope.errors import InputError
from headscope.settings import Option, Settings
from headscope.use.corpus.records import ADDED, Columns, Record, figures

if TYPE_CHECKING:
    from headscope.use.rating import Rated

_ENDINGS = {"none": "", "gzip": ".gz", "zstd": ".zst"}


@dataclass(frozen=True)
class Written(Settings):
    """How rated documents are written.

    Attributes:
        format: JSON Lines, which keep every record as it is, or Parquet, whose columns have one
            type each.
        compression: of the file, or of the columns within it.
    """

    format: Annotated[
        Literal["jsonl", "parquet"], Option("What rated documents are written as.")
    ] = "jsonl"
    compression: Annotated[Literal["none", "gzip", "zstd"], Option("Of the files written.")] = (
        "none"
    )
    chunk: Annotated[int, Option("Records of an input file that make one output file.", min=1)] = (
        1000
    )

    @property
    def ending(self) -> str:
        """How the names of the files end."""
        return ".parquet" if self.format == "parquet" else f".jsonl{_ENDINGS[self.compression]}"

    def encode(self, rated: Sequence[tuple[Record, Rated]], record: Record, at: Columns) -> bytes:
        """The file of a chunk; ``record`` is any one of it, since none of it may be rated.

        InputError if the records do not fit into a Parquet table.
        """
        if self.format == "parquet":
            return _parquet(rated, record, at, self.compression)
        data = "".join(f"{one.rated(figures, at)}\n" for one, figures in rated).encode("utf-8")
        if self.compression == "gzip":
            return gzip.compress(data, mtime=0)
        if self.compression == "zstd":
            compressed: bytes = need("zstandard", "writing zstd", "corpus").compress(data)
            return compressed
        return data


def _parquet(
    rated: Sequence[tuple[Record, Rated]], example: Record, columns: Columns, compression: str
) -> bytes:
    pa = need("pyarrow", "writing Parquet", "corpus")
    pq = need("pyarrow.parquet", "writing Parquet", "corpus")
    buffer = io.BytesIO()
    codec = None if compression == "none" else compression
    try:
        pq.write_table(_table(pa, rated, example, columns), buffer, compression=codec)
    except (pa.ArrowException, OverflowError) as error:
        raise InputError(
            f"{example.file.path}: its records do not fit into a Parquet file "
            f"({str(error).splitlines()[0]}); write JSON Lines (--format jsonl)"
        ) from None
    return buffer.getvalue()


def _table(
    pa: Any, rated: Sequence[tuple[Record, Rated]], example: Record, columns: Columns
) -> Any:
    records = [record for record, _ in rated]
    if example.row is not None:
        table = pa.concat_tables([example.row.slice(0, 0), *(one.row for one in records)])
    else:
        rows = [one.value for one in records]
        table = pa.Table.from_pylist(rows, schema=example.file.types)
    beside = [record.missing(columns) for record in records]
    for name in ("id", columns.language):
        if name not in table.column_names and (name == "id" or example.file.language):
            texts = [None if name not in one else str(one[name]) for one in beside]
            table = table.append_column(name, pa.array(texts, pa.string()))
    for name in ADDED:
        kind = pa.int64() if name == "tokens" else pa.float64()
        values = [figures(one)[name] for _, one in rated]
        table = table.append_column(name, pa.array(values, kind))
    return table
