"""`headscope cache`: the weights of GGUF files as they were dequantised, kept for later starts."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import Annotated

from headscope.errors import InputError
from headscope.runs import Result, Signature
from headscope.settings import Option, Settings
from headscope.studies.models import DTYPE, DtypeName
from headscope.studies.study import Study


@dataclass(frozen=True)
class Cache(Settings):
    """List the converted weights of GGUF files that are kept, with their sizes.

    With a file its weights are dequantised and kept, so that later commands with this file and
    dtype read them as they are; numbers stay the same.
    """

    gguf: Annotated[
        str | None, Option("The file to convert and keep.", argument=True, metavar="MODEL.gguf")
    ] = None
    dtype: Annotated[DtypeName, DTYPE] = "auto"
    clear: Annotated[bool, Option("Delete all that is kept, before a model is converted.")] = False


@dataclass(frozen=True, kw_only=True)
class Kept(Result):
    """Bytes of all that is kept by name (file, dtype and a digest), and the folder that it is in.

    What no longer fits its file, or was made by another version, is listed, too; nothing uses it.
    """

    folder: str
    kept: dict[str, int]


def _cache(config: Cache) -> Kept:
    from headscope.lm.loading import keep_converted
    from headscope.lm.proofs import CONVERTED, kept_in

    folder = kept_in(CONVERTED)
    if folder is None:
        raise InputError("the cache cannot be written to; set HF_ASSETS_CACHE to another folder")
    if config.clear:
        shutil.rmtree(folder)
    if config.gguf is not None:
        keep_converted(config.gguf, config.dtype)
    sizes = {
        place.name: sum(file.stat().st_size for file in place.rglob("*") if file.is_file())
        for place in sorted(folder.glob("[!.]*"))
    }
    return Kept(
        signature=str(Signature.of("cache", {"kept": sizes}, {})), folder=str(folder), kept=sizes
    )


def _text(result: Kept) -> str:
    lines = [f"{size / 1e9:8.2f} GB  {name}" for name, size in result.kept.items()]
    total = f"{sum(result.kept.values()) / 1e9:8.2f} GB  in {result.folder}"
    return "\n".join([*lines, total])


command = Study(Cache, _cache, _text, out=None, loads=lambda config: config.gguf is not None)
