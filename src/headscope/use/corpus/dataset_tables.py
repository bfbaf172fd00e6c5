"""Datasets of the Hub, or in a folder, as tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headscope.data.extras import need
from headscope.errors import InputError
from headscope.use.corpus.files import CorpusFile

__all__ = ["load_table"]


def load_table(file: CorpusFile) -> Any:
    """The dataset's table: from its folder, from the cache, or downloaded into it.

    Code from the Hub is never run. InputError if it cannot be loaded, or has several splits and
    none is named.
    """
    datasets = need("datasets", f"reading the dataset {file.path}", "data")
    name, _, config = file.path.partition(":")
    try:
        if Path(file.path).is_dir():
            data = datasets.load_from_disk(file.path)
        else:
            data = datasets.load_dataset(name, config or None)
    except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
        said = " ".join(str(error.__cause__ or error).split())
        raise InputError(
            f"{file.path} is no file or folder here, and no dataset of that name can be loaded "
            f"({said}); check the path, or the dataset's name, a configuration after a colon "
            "(name:config) and the connection"
        ) from None
    if not isinstance(data, dict):
        return data
    if file.split is None and len(data) == 1:
        return next(iter(data.values()))
    if file.split not in data:
        wrong = "has several splits" if file.split is None else f"has no split {file.split!r}"
        raise InputError(
            f"the dataset {file.path} {wrong}; name one of {', '.join(data)} with --split"
        )
    return data[file.split]
