"""Records of a dataset on the Hub or in a folder, through the ``datasets`` library."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from headscope.data.columns import Record, from_objects, missing_column
from headscope.data.extras import need
from headscope.data.files import is_data_file_name, is_file_name
from headscope.data.tables import Table
from headscope.errors import InputError
from headscope.hub import transport

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?(:[\w.+-]+)?")


def is_hub_name(name: str) -> bool:
    """Whether a name that is no path on this machine can be one of a Hub dataset."""
    return bool(_HUB_NAME.fullmatch(name)) and not is_file_name(Path(name))


def is_dataset_folder(folder: Path) -> bool:
    """Whether a folder holds what ``datasets`` wrote, or data files that it can read."""
    if (folder / "dataset_dict.json").exists() or (folder / "dataset_info.json").exists():
        return True
    return any(is_data_file_name(path) for path in folder.rglob("*"))


def read_hub(
    name: str,
    split: str | None,
    required: Sequence[str],
    optional: Sequence[str] = (),
    limit: int | None = None,
) -> Table:
    """The wanted columns of a dataset: ``name``, ``name:config`` or a folder.

    Code from the Hub is never run. Without ``split`` the dataset must have a single one. The
    digest is that of the cells read. Raises ``InputError`` naming what is missing.
    """
    data = load_table(name, split)
    columns = sorted({_top(column, data.column_names) for column in (*required, *optional)} - {""})
    for column in required:
        if not _top(column, data.column_names):
            raise missing_column(name, column, _names(data.features))
    data = data.select_columns(columns)
    if limit is not None:
        data = data.select(range(min(limit, len(data))))

    def rows() -> Iterator[tuple[int, object]]:
        yield from enumerate(data, 1)

    present = [column for column in optional if _top(column, columns)]
    records = tuple(from_objects(rows(), name, required, present, "row"))
    if not records:
        raise InputError(f"{name} holds no records; give a dataset or split with at least one")
    hasher = hashlib.sha256()
    for record in records:
        hasher.update(json.dumps(record.cells, ensure_ascii=False, sort_keys=True).encode())
        hasher.update(b"\n")
    return Table(records, hasher.hexdigest(), "row")


def hub_records(
    name: str, split: str | None, required: Sequence[str], optional: Sequence[str] = ()
) -> Iterator[Record]:
    """The wanted columns of a dataset row by row, from 1; what is not asked for is not fetched.

    Datasets are streamed, those of the Hub unless it is switched off: then they are read from the
    cache.  Errors are those of `read_hub`; those of a connection that breaks come with the row.
    """
    datasets = need("datasets", f"reading the dataset {name}", "data")
    streaming = Path(name).is_dir() or not datasets.config.HF_HUB_OFFLINE
    data = load_table(name, split, streaming)
    names = data.column_names
    if names is not None:
        wanted = {_top(column, names) for column in (*required, *optional)} - {""}
        if all(_top(column, names) for column in required):
            data = data.select_columns(sorted(wanted))
    rows: Iterator[tuple[int, object]] = enumerate(data, 1)
    records = from_objects(rows, name, required, optional, "row")
    try:
        yield from records
    except _failures(datasets) as error:
        if isinstance(error, InputError):
            raise
        reason = " ".join(str(error).split())
        raise InputError(
            f"{name} cannot be read further ({reason}); try again, or download it and give a file"
        ) from None


def _failures(datasets: Any) -> tuple[type[Exception], ...]:
    """What goes wrong where a dataset is loaded or fetched."""
    return (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError, transport())


def load_table(name: str, split: str | None, streaming: bool = False) -> Any:
    """A dataset's one table, of the library's own types: from its folder, the cache or the Hub.

    Code from the Hub is never run. InputError if it cannot be loaded, or has several splits and
    none is named, or not the one that is.
    """
    datasets = need("datasets", f"reading the dataset {name}", "data")
    folder = Path(name)
    try:
        if (folder / "dataset_dict.json").exists() or (folder / "state.json").exists():
            data = datasets.load_from_disk(name)
        else:
            identifier, _, config = (name, "", "") if folder.is_dir() else name.partition(":")
            data = datasets.load_dataset(identifier, config or None, streaming=streaming)
    except _failures(datasets) as error:
        reason = " ".join(str(error.__cause__ or error).split())
        if folder.is_dir():
            raise InputError(
                f"the folder {name} cannot be loaded as a dataset ({reason}); give one file in it"
            ) from None
        raise InputError(
            f"{name} is no file or folder here, and no dataset of that name can be loaded "
            f"({reason}); check the path, or the dataset's name, a configuration after a colon "
            "(name:config) and the connection"
        ) from None
    if not isinstance(data, dict):
        if split is not None and str(data.split) != split:
            raise InputError(f"{name} is one table and has no split {split!r}; leave --split out")
        return data
    if split is None and len(data) == 1:
        return next(iter(data.values()))
    if split not in data:
        wrong = "has several splits" if split is None else f"has no split {split!r}"
        raise InputError(f"the dataset {name} {wrong}; name one of {', '.join(data)} with --split")
    return data[split]


def _top(column: str, names: Sequence[str]) -> str:
    """The top-level column that holds a dotted one, or the empty text."""
    pieces = column.split(".")
    heads = (".".join(pieces[:cut]) for cut in range(len(pieces), 0, -1))
    return next((head for head in heads if head in names), "")


def _names(features: Any, prefix: str = "") -> list[str]:
    """Dotted names of all columns of a dataset."""
    found = []
    for key, feature in features.items():
        if isinstance(feature, dict):
            found += _names(feature, f"{prefix}{key}.")
        elif hasattr(feature, "languages") and feature.languages:  # a Translation feature
            found += [f"{prefix}{key}.{language}" for language in feature.languages]
        else:
            found.append(f"{prefix}{key}")
    return found
