"""Cells of a dataset on the Hub or in a folder, through the ``datasets`` library."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headscope.data.columns import Numbered, from_objects, missing_column, top_column
from headscope.data.files import is_data_file_name, is_file_name
from headscope.errors import InputError, need
from headscope.hub import transport

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?(:[\w.+-]+)?")


def is_hub_name(name: str) -> bool:
    """Whether a name that is no path on this machine can be one of a Hub dataset."""
    return bool(_HUB_NAME.fullmatch(name)) and not is_file_name(Path(name))


def is_dataset(data: str, split: str | None, otherwise: str) -> bool:
    """Whether data are a dataset, of the Hub or in a folder, and no file.

    InputError for a folder without one, which goes on with ``otherwise``, and for a split of a
    file.
    """
    path = Path(data)
    if path.is_dir():
        written = ("dataset_dict.json", "dataset_info.json")
        if not any((path / name).exists() for name in written) and not any(
            map(is_data_file_name, path.rglob("*"))
        ):
            raise InputError(f"{path} holds no {otherwise}")
        return True
    if not path.exists() and is_hub_name(data):
        return True
    if split is not None:
        raise InputError(f"{path} is a file, which has no split {split!r}; leave --split out")
    return False


def dataset_cells(
    name: str,
    split: str | None,
    required: Sequence[str],
    optional: Sequence[str],
    whole: bool = False,
) -> Numbered:
    """The wanted columns of a dataset (``name``, ``name:config`` or a folder), by row from 1.

    Code from the Hub is never run. Without ``split`` the dataset must have a single one. Datasets
    are streamed, so that only what is asked for is fetched; not so where the ``whole`` is wanted,
    or the Hub is switched off: then it is read from the cache. Raises ``InputError`` naming what is
    missing; that of a connection that breaks comes with the row.
    """
    datasets = need("datasets", f"reading the dataset {name}", "data")
    streaming = not whole and (Path(name).is_dir() or not datasets.config.HF_HUB_OFFLINE)
    data = load_table(name, split, streaming)
    names = data.column_names
    if names is not None:
        missing = [column for column in required if top_column(column, names) is None]
        if missing and whole:
            raise missing_column(name, missing[0], _names(data.features))
        if not missing:
            tops = (top_column(column, names) for column in (*required, *optional))
            data = data.select_columns(sorted({top for top in tops if top is not None}))
    try:
        yield from from_objects(enumerate(data, 1), name, required, optional, "row")
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
