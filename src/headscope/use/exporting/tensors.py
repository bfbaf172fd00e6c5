"""The tensors of a checkpoint's safetensors files: where they lie, and files made of them.

A file begins with the length of its header (8 bytes, little-endian), then comes the header, a JSON
object of names with dtype, shape and place, then the tensors' bytes side by side
(https://github.com/huggingface/safetensors). Reading and writing it tensor by tensor keeps no more
than one of them in memory, and one that does not change is copied byte by byte, whatever its dtype.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from headscope.errors import InputError
from headscope.heads.store import writing

SINGLE = "model.safetensors"
INDEX = f"{SINGLE}.index.json"
_BLOCK = 16 << 20
_AGAIN = "copy or download it again"

Content = Callable[["Stored"], Iterable[bytes | memoryview]]


@dataclass(frozen=True)
class Stored:
    """One tensor of a file: its bytes are `size` ones from `begin`, counted from the file's start.

    `dtype` is the name that the format uses, such as BF16.
    """

    name: str
    file: Path
    dtype: str
    shape: tuple[int, ...]
    begin: int
    size: int

    def read(self) -> bytearray:
        """All of its bytes."""
        data = bytearray(self.size)
        with self.file.open("rb") as file:
            file.seek(self.begin)
            if file.readinto(data) != self.size:
                raise InputError(f"{self.file}: ends too early; {_AGAIN}")
        return data

    def blocks(self) -> Iterable[bytes]:
        """Its bytes, some at a time."""
        with self.file.open("rb") as file:
            file.seek(self.begin)
            left = self.size
            while left:
                block = file.read(min(_BLOCK, left))
                if not block:
                    raise InputError(f"{self.file}: ends too early; {_AGAIN}")
                left -= len(block)
                yield block


def checkpoint_files(folder: Path) -> list[Path]:
    """The weight files of a checkpoint that `transformers` would load, in the order of names; of a
    GGUF file that file.

    InputError if there are none, only pickled ones, or others than the index names.
    """
    if folder.is_file():
        return [folder]
    if (folder / SINGLE).is_file():
        return [folder / SINGLE]
    index = folder / INDEX
    if index.is_file():
        files = [folder / name for name in sorted(set(_weight_map(index).values()))]
        for file in files:
            if not file.is_file():
                raise InputError(f"{file}: is missing, but {INDEX} names it; {_AGAIN}")
        return files
    shards = sorted(folder.glob("*.safetensors"))
    if shards:
        raise InputError(
            f"{folder}: holds {shards[0].name} but neither {SINGLE} nor {INDEX}, so it is not "
            "known which files make the model; save it with save_pretrained"
        )
    pickled = sorted([*folder.glob("*.bin"), *folder.glob("*.pt*")])
    if pickled:
        raise InputError(
            f"{pickled[0]}: is pickled, which can run code and is never read; convert it once with "
            "AutoModelForCausalLM.from_pretrained(FOLDER).save_pretrained(NEW_FOLDER) and export "
            "that"
        )
    raise InputError(f"{folder}: holds no weights ({SINGLE} or its shards); name a model's folder")


def stored_tensors(folder: Path) -> list[Stored]:
    """All tensors of a checkpoint, file by file in the order in which they lie there.

    InputError if a file is damaged, a tensor lies in two files, or index and files disagree.
    """
    files = checkpoint_files(folder)
    found: dict[str, Stored] = {}
    for file in files:
        for tensor in _header(file):
            if tensor.name in found:
                raise InputError(
                    f"{file}: holds the tensor {tensor.name}, which lies in "
                    f"{found[tensor.name].file.name} too; save the checkpoint again"
                )
            found[tensor.name] = tensor
    if files[0].name != SINGLE:
        for name, told in _weight_map(folder / INDEX).items():
            if name not in found or found[name].file.name != told:
                raise InputError(
                    f"{folder / INDEX}: says that {told} holds the tensor {name}, but it does not; "
                    f"{_AGAIN}"
                )
    return list(found.values())


def write_tensors(
    path: Path,
    tensors: Sequence[Stored],
    content: Content = Stored.blocks,
    progress: Callable[[int], None] | None = None,
) -> None:
    """Write a safetensors file of these tensors; it appears under its name when it is whole.

    Dtypes and shapes are those of `tensors`, and `content` gives the bytes of each, in parts.
    `progress` is called with the number of bytes of every part.
    """
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    place = 0
    for one in tensors:
        header[one.name] = {
            "dtype": one.dtype,
            "shape": list(one.shape),
            "data_offsets": [place, place + one.size],
        }
        place += one.size
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with writing(path) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for one in tensors:
            _write_one(file, one, content(one), progress)


def _write_one(
    file: BinaryIO,
    tensor: Stored,
    parts: Iterable[bytes | memoryview],
    progress: Callable[[int], None] | None,
) -> None:
    written = 0
    for part in parts:
        file.write(part)
        written += len(part)
        if progress is not None:
            progress(len(part))
    if written != tensor.size:
        raise RuntimeError(f"{tensor.name}: {written} bytes were made instead of {tensor.size}")


def _header(file: Path) -> list[Stored]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="numpy"):  # its own checks: places, sizes, the file's length
            pass
        with file.open("rb") as opened:
            length = int.from_bytes(opened.read(8), "little")
            header: Mapping[str, Any] = json.loads(opened.read(length))
    except (SafetensorError, ValueError) as error:
        raise InputError(f"{file}: is damaged ({error}); {_AGAIN}") from error
    except OSError as error:
        raise InputError(f"{file}: cannot be read ({error.strerror or error}); {_AGAIN}") from error
    tensors = []
    for name, told in header.items():
        if name != "__metadata__":
            begin, end = told["data_offsets"]
            shape = tuple(told["shape"])
            tensors.append(
                Stored(name, file, str(told["dtype"]), shape, 8 + length + begin, end - begin)
            )
    return sorted(tensors, key=lambda one: one.begin)


def _weight_map(index: Path) -> dict[str, str]:
    try:
        value = json.loads(index.read_bytes())
    except OSError as error:
        raise InputError(f"{index}: cannot be read ({error.strerror}); {_AGAIN}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{index}: is not valid JSON; {_AGAIN}") from error
    names = value.get("weight_map") if isinstance(value, dict) else None
    if not isinstance(names, dict) or not names:
        raise InputError(f"{index}: has no weight_map, which says where tensors lie; {_AGAIN}")
    for name in names.values():
        if not isinstance(name, str) or Path(name).name != name:
            raise InputError(f"{index}: names the file {name!r} outside its folder; {_AGAIN}")
    return names
