"""`headscope cache`: what is kept for later, and what processes that were killed have left behind.

Kept are the weights of GGUF files as they were dequantised, and numbers of examples beside runs.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from headscope import options, scratch
from headscope.errors import InputError
from headscope.runs import Result, Signature, kept
from headscope.settings import Option, Settings
from headscope.studies.functions import INPUTS
from headscope.studies.models import DTYPE, DtypeName
from headscope.studies.study import Study


@dataclass(frozen=True)
class Cache(Settings):
    """List what is kept, with its size: converted weights of GGUF files, and numbers of examples.

    Numbers that one run has measured are kept for others, by model; --prune deletes those that no
    run has used for some days. With a file its weights are dequantised and kept, so that later
    commands with this file and dtype read them as they are; numbers stay the same. What processes
    that were killed have left behind (there, in the system's folder for temporary files, and below
    runs/inputs) is listed too.
    """

    gguf: Annotated[
        str | None, Option("The file to convert and keep.", argument=True, metavar="MODEL.gguf")
    ] = None
    dtype: Annotated[DtypeName, DTYPE] = "auto"
    clear: Annotated[bool, Option("Delete all that is kept, before a model is converted.")] = False
    numbers: options.KeptIn = None
    prune: Annotated[
        float | None,
        Option("Delete numbers that were not used for so many days.", min=0.0, metavar="DAYS"),
    ] = None
    sweep: Annotated[bool, Option("Delete what processes that were killed left behind.")] = False


@dataclass(frozen=True, kw_only=True)
class Kept(Result):
    """Bytes of all that is kept by name (file, dtype and a digest), and the folder that it is in.

    What no longer fits its file, or was made by another version, is listed, too; nothing uses it.
    `numbers`: bytes of numbers of examples by model, after `pruned` bytes were deleted.
    `left`: bytes of what killed processes left behind, by place; `swept`: whether it is gone now.
    """

    folder: str
    kept: dict[str, int]
    numbers: dict[str, int] = field(default_factory=dict)
    pruned: int = 0
    left: dict[str, int] = field(default_factory=dict)
    swept: bool = False


def _cache(config: Cache) -> Kept:
    from headscope.lm.loading import keep_converted
    from headscope.lm.proofs import CHECKED, CONVERTED, kept_in

    folder, checked = kept_in(CONVERTED), kept_in(CHECKED)
    if folder is None or checked is None:
        raise InputError("the cache cannot be written to; set HF_ASSETS_CACHE to another folder")
    left = scratch.left_over([folder, checked, Path(tempfile.gettempdir()), INPUTS])
    if config.sweep:
        scratch.sweep(left)
    place = None if config.numbers == kept.NOWHERE else config.numbers or kept.PLACE
    numbers, pruned = ({}, 0) if place is None else _numbers(Path(place), config.prune)
    if config.clear:
        for place in _kept(folder):  # not what another process is making
            shutil.rmtree(place)
    if config.gguf is not None:
        keep_converted(config.gguf, config.dtype)
    sizes = {place.name: scratch.size_of(place) for place in _kept(folder)}
    return Kept(
        signature=str(Signature.of("cache", {"kept": sizes}, {})),
        folder=str(folder),
        kept=sizes,
        numbers=numbers,
        pruned=pruned,
        left={str(place): size for place, size in left.items()},
        swept=config.sweep,
    )


def _kept(folder: Path) -> list[Path]:
    return sorted(
        place
        for place in folder.glob("[!.]*/")
        if not place.name.startswith(scratch.PREFIX) and place.is_dir()
    )


def _numbers(folder: Path, days: float | None) -> tuple[dict[str, int], int]:
    """Bytes of the numbers in a folder by model, and of those that were deleted: not used for so
    many days, or damaged."""
    sizes: dict[str, int] = {}
    pruned = 0
    for file, model in kept.kept_numbers(folder):
        about = file.stat()
        if days is not None and (not model or time.time() - about.st_mtime > days * 86400):
            file.unlink()
            pruned += about.st_size
            continue
        name = model or "damaged"
        sizes[name] = sizes.get(name, 0) + about.st_size
    return sizes, pruned


def _text(result: Kept) -> str:
    lines = [f"{_size(size)}  {name}" for name, size in result.kept.items()]
    lines.append(f"{_size(sum(result.kept.values()))}  in {result.folder}")
    if result.numbers or result.pruned:
        lines += [
            "",
            *(f"{_size(size)}  numbers of {name}" for name, size in result.numbers.items()),
        ]
        lines.append(f"{_size(result.pruned)}  of them deleted")
    if result.left:
        lines += ["", *(f"{_size(size)}  {place}" for place, size in result.left.items())]
        what = f"left by processes that were killed ({len(result.left)})"
        said = "now deleted" if result.swept else "--sweep deletes it"
        lines.append(f"{_size(sum(result.left.values()))}  {what}; {said}")
    return "\n".join(lines)


def _size(size: int) -> str:
    return f"{size / 1e9:8.2f} GB" if size >= 1e8 else f"{size / 1e6:8.2f} MB"


command = Study(
    Cache, _cache, _text, out=None, loads=lambda config: config.gguf is not None, usage="--prune 30"
)
