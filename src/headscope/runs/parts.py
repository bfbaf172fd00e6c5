"""Partial results of a run, which survive that the process is killed at any moment."""

from __future__ import annotations

import errno
import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import numpy as np
from numpy.typing import NDArray

from headscope.errors import InputError
from headscope.heads.store import write_bytes
from headscope.runs.plain import dump_json

_log = logging.getLogger(__name__)


def read_records(path: Path) -> dict[str, Any]:
    """The records of an append-only file, by key, in the order written.

    A last line that was not written to its end is dropped, with a warning in the log; a damaged
    line before it raises InputError. Of two records with one key the later counts.
    """
    data = path.read_bytes() if path.exists() else b""
    whole = data[: _whole_length(data)]
    if len(whole) < len(data):
        _log.warning(
            "%s, line %d: was not written to its end and is computed again",
            path,
            whole.count(b"\n") + 1,
        )
    records: dict[str, Any] = {}
    for number, line in enumerate(whole.splitlines(), 1):
        try:
            entry = json.loads(line)
            records[entry["key"]] = entry["record"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise InputError(
                f"{path}, line {number}: is damaged; delete this file to compute its part again"
            ) from error
    return records


def append_record(path: Path, key: str, record: Any) -> None:
    """Append one record by one write call; a half-written last line is cut off before."""
    line = (dump_json({"key": key, "record": record}) + "\n").encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab+", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        if size:
            file.seek(size - 1)
            if file.read(1) != b"\n":
                file.seek(0)
                file.truncate(_whole_length(file.read()))
        written = file.write(line)
        if written != len(line):
            told = f"only {written} of {len(line)} bytes could be written"
            raise OSError(errno.ENOSPC, told, str(path))


def write_shard(folder: Path, key: str, tensors: Mapping[str, NDArray[Any]]) -> None:
    """Write the arrays of one batch as a safetensors file of their own, whole or not at all."""
    from safetensors.numpy import save

    folder.mkdir(parents=True, exist_ok=True)
    arrays = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    write_bytes(folder / f"{quote(key, safe='')}.safetensors", save(arrays))


def read_shards(folder: Path) -> dict[str, dict[str, NDArray[Any]]]:
    """The arrays of all finished batches, sorted by key; a damaged file is an InputError."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    shards: dict[str, dict[str, NDArray[Any]]] = {}
    for path in folder.glob("*.safetensors"):
        if path.name.startswith("."):
            continue
        try:
            shards[unquote(path.stem)] = load(path.read_bytes())
        except (SafetensorError, ValueError) as error:
            raise InputError(
                f"{path}: is damaged; delete this file to compute its part again"
            ) from error
    return dict(sorted(shards.items()))


def _whole_length(data: bytes) -> int:
    return data.rfind(b"\n") + 1
