"""Fold a gate into a checkpoint and write an ordinary one, tensor by tensor."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headscope.errors import InputError
from headscope.heads import Gate
from headscope.heads.store import write_bytes
from headscope.use.exporting.folder import (
    begin_folder,
    check_free,
    check_plain,
    check_room,
    companions,
    finish_folder,
    plan_digest,
    unquantised,
)
from headscope.use.exporting.scaling import scaled_blocks, scalings
from headscope.use.exporting.tensors import (
    INDEX,
    SINGLE,
    Stored,
    stored_tensors,
    write_tensors,
)

if TYPE_CHECKING:
    from headscope.lm.model import LanguageModel

_UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


@dataclass(frozen=True)
class Folded:
    """What was written: names of changed tensors, weight files, and bytes of all weights."""

    changed: tuple[str, ...]
    files: tuple[str, ...]
    size: int
    tensors: int


def bytes_of(size: str | int) -> int:
    """`5GB` as a number of bytes: a whole number, or one with KB, MB, GB or TB (powers of 1000)."""
    text = str(size).strip().upper()
    unit = next((one for one in _UNITS if text.endswith(one)), "")
    number = text.removesuffix(unit).strip()
    try:
        value = int(float(number) * _UNITS.get(unit, 1))
    except (ValueError, OverflowError):
        value = 0
    if value < 1:
        raise InputError(f"{size!r} is not a size of a file; write 5GB or 500MB")
    return value


def fold_checkpoint(
    lm: LanguageModel,
    gate: Gate,
    out: Path,
    *,
    source: Path | None = None,
    feed_forward: NDArray[np.float32] | None = None,
    max_shard_size: str | int = "5GB",
    card: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Folded:
    """Write the model of `lm` with the gate folded into its weights, as an ordinary checkpoint.

    No more than one tensor is in memory at a time, so `lm` may be hollow (see
    `headscope.lm.hollow.hollow_model`) and the checkpoint of any size. Tensors that the gate
    leaves alone are copied byte by byte; the others keep their dtype. Tokenizer, configuration,
    generation settings, chat template and licence files are copied.

    Until all is written, the folder `OUT.unfinished` holds what is done; the same call goes on
    there after a kill, and renames it at the end.

    Args:
        lm: the model, hollow or loaded.
        gate: one number a head.
        out: the folder to make.
        source: the folder of the checkpoint; by default that of `lm`.
        feed_forward: one number for each layer's feed-forward part, shape (L,).
        max_shard_size: bytes of a weight file, such as `5GB`; a larger tensor has its own.
        card: text of the README.md; without it none is written.
        progress: called with (bytes written, bytes in all).

    Raises:
        InputError: if the gate does not fit, the checkpoint cannot be folded (pickled, quantised,
            damaged), or `out` exists.
    """
    staged = out.with_name(f"{out.name}.unfinished")
    folded = stage_checkpoint(
        lm,
        gate,
        staged,
        out,
        source=source,
        feed_forward=feed_forward,
        max_shard_size=max_shard_size,
        card=card,
        progress=progress,
    )
    finish_folder(staged, out)
    return folded


def stage_checkpoint(
    lm: LanguageModel,
    gate: Gate,
    staged: Path,
    out: Path,
    *,
    source: Path | None = None,
    feed_forward: NDArray[np.float32] | None = None,
    max_shard_size: str | int = "5GB",
    card: str | None = None,
    progress: Callable[[int, int], None] | None = None,
    weights: Sequence[Stored] | None = None,
) -> Folded:
    """Do all of `fold_checkpoint` in the folder `staged`, short of giving it the name `out`.

    With `weights`, these tensors are written in place of the folder's own, which are quantised.
    """
    folder = source or lm.folder
    if folder is None:
        raise InputError(f"the model {lm.name} was not loaded from a folder; name its checkpoint")
    limit = bytes_of(max_shard_size)
    check_free(out)
    if weights is None:
        check_plain(folder)
    tensors = stored_tensors(folder) if weights is None else list(weights)
    factors = scalings(lm, tensors, gate, feed_forward)
    shards = _shards(tensors, limit)
    total = sum(one.size for one in tensors)
    begin_folder(staged, plan_digest(folder, gate, feed_forward, limit, weights is not None), out)
    check_room(staged, total - sum(file.stat().st_size for file in staged.glob("*.safetensors")))
    done = 0

    def step(size: int) -> None:
        nonlocal done
        done += size
        if progress is not None:
            progress(done, total)

    for name, members in shards.items():
        if (staged / name).exists():  # by an earlier start; a file has its name once it is whole
            step(sum(one.size for one in members))
            continue
        write_tensors(staged / name, members, lambda one: scaled_blocks(one, factors), step)
    if len(shards) > 1:
        write_bytes(staged / INDEX, _index(lm, shards, total).encode())
    for file in companions(folder):
        target = staged / file.relative_to(folder)
        target.parent.mkdir(exist_ok=True)
        data = file.read_bytes()
        if weights is not None and file.name == "config.json":
            data = unquantised(data)
        write_bytes(target, data)
    if card is not None:
        write_bytes(staged / "README.md", card.encode())
    return Folded(tuple(sorted(factors)), tuple(shards), total, len(tensors))


def _shards(tensors: Sequence[Stored], limit: int) -> dict[str, list[Stored]]:
    """Weight files by name, filled in the order in which the tensors lie in the source."""
    groups: list[list[Stored]] = [[]]
    room = limit
    for one in tensors:
        if groups[-1] and one.size > room:
            groups.append([])
            room = limit
        groups[-1].append(one)
        room -= one.size
    if len(groups) == 1:
        return {SINGLE: _aligned(groups[0])}
    return {
        f"model-{at:05d}-of-{len(groups):05d}.safetensors": _aligned(group)
        for at, group in enumerate(groups, 1)
    }


def _aligned(tensors: list[Stored]) -> list[Stored]:
    """The wide dtypes first, so that every tensor begins at a multiple of its element's width."""

    def width(one: Stored) -> int:
        return one.size // max(1, int(np.prod(one.shape, dtype=np.int64)))

    return sorted(tensors, key=width, reverse=True)


def _index(lm: LanguageModel, shards: Mapping[str, Sequence[Stored]], total: int) -> str:
    places = {one.name: file for file, members in shards.items() for one in members}
    numbers: dict[str, Any] = {
        "total_parameters": sum(parameter.numel() for parameter in lm.model.parameters()),
        "total_size": total,
    }
    return (
        json.dumps({"metadata": numbers, "weight_map": dict(sorted(places.items()))}, indent=2)
        + "\n"
    )
