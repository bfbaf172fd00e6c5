"""The tensors of a checkpoint's safetensors files: where they lie, and files made of them.

A file begins with the length of its header (8 bytes, little-endian), then comes the header, a JSON
object of names with dtype, shape and place, then the tensors' bytes side by side
(https://github.com/huggingface/safetensors). Reading and writing it tensor by tensor keeps no more
than one of them in memory, and one that does not change is copied byte by byte, whatever its dtype.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from headscope.errors import InputError
from headscope.heads.store import writing
from headscope.lm.checkpoints import opened_first, weight_files, weight_map
from headscope.lm.weights import dequantised_weight

if TYPE_CHECKING:
    from headscope.lm.model import LanguageModel

_BLOCK = 16 << 20
_AGAIN = "copy or download it again"
#: Dtypes by the names that the format uses; those of floating point can be multiplied by a gate.
DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_NAMES = {dtype: name for name, dtype in DTYPES.items()}

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
        data = bytearray()
        for block in self.blocks():
            data += block
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


def stored_tensors(folder: Path) -> list[Stored]:
    """All tensors of a checkpoint, file by file in the order in which they lie there.

    InputError if a file is damaged, a tensor lies in two files, or index and files disagree.
    """
    files = weight_files(folder)
    stored: dict[str, Stored] = {}
    for file in files:
        for tensor in _header(file):
            if tensor.name in stored:
                raise InputError(
                    f"{file}: holds the tensor {tensor.name}, which lies in "
                    f"{stored[tensor.name].file.name} too; save the checkpoint again"
                )
            stored[tensor.name] = tensor
    index = opened_first(folder)
    if index is not None and index.suffix == ".json":
        for name, place in weight_map(index).items():
            if name not in stored or stored[name].file.name != place:
                raise InputError(
                    f"{index}: says that {place} holds the tensor {name}, but it does not; {_AGAIN}"
                )
    return list(stored.values())


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
    for tensor in tensors:
        header[tensor.name] = {
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "data_offsets": [place, place + tensor.size],
        }
        place += tensor.size
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with writing(path) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors:
            written = 0
            for part in content(tensor):
                file.write(part)
                written += len(part)
                if progress is not None:
                    progress(len(part))
            if written != tensor.size:
                raise RuntimeError(
                    f"{tensor.name}: {written} bytes were made instead of {tensor.size}"
                )


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
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            shape = tuple(entry["shape"])
            tensors.append(
                Stored(name, file, str(entry["dtype"]), shape, 8 + length + begin, end - begin)
            )
    return sorted(tensors, key=lambda tensor: tensor.begin)


def reads_rows(projection: torch.nn.Module) -> bool:
    """Whether a weight's rows, not its columns, are the input's channels (GPT-2's Conv1D)."""
    from transformers.pytorch_utils import Conv1D

    return isinstance(projection, Conv1D)


@dataclass(frozen=True)
class Computed(Stored):
    """A tensor that lies in no file; `value` computes it."""

    value: Callable[[], torch.Tensor] = field(kw_only=True)

    def read(self) -> bytearray:
        """All of its bytes."""
        flat = self.value().detach().cpu().contiguous().reshape(-1)
        return bytearray(flat.view(torch.uint8).numpy().tobytes())

    def blocks(self) -> Iterable[bytes]:
        """Its bytes at once."""
        yield bytes(self.read())


@dataclass(frozen=True)
class Sliced(Stored):
    """Some rows (`axis` 0) or columns (1) of another tensor: `kept`, in that order."""

    whole: Stored = field(kw_only=True)
    axis: int = field(kw_only=True)
    kept: tuple[int, ...] = field(kw_only=True)

    @classmethod
    def of(cls, whole: Stored, axis: int, kept: tuple[int, ...]) -> Sliced:
        """A slice under the tensor's own name."""
        shape = list(whole.shape)
        shape[axis] = len(kept)
        size = whole.size // whole.shape[axis] * len(kept)
        fields = {**vars(whole), "shape": tuple(shape), "size": size}
        return cls(**fields, whole=whole, axis=axis, kept=kept)

    def blocks(self) -> Iterable[bytes]:
        """Its bytes at once."""
        data = np.frombuffer(self.whole.read(), np.uint8).reshape(*self.whole.shape, -1)
        yield data.take(self.kept, axis=self.axis).tobytes()


def dequantised_tensors(lm: LanguageModel, hollow: LanguageModel) -> list[Stored]:
    """The tensors of the ordinary model that a quantised one stands for, each read when needed.

    `hollow` is the same model by its configuration without quantisation; its names, shapes and
    dtypes are those that are written. InputError for a part that is neither ordinary nor a
    quantised linear map.
    """
    modules = dict(lm.model.named_modules())
    state = lm.model.state_dict()
    kept = hollow.model.state_dict().keys()
    buffers = ((name, buffer) for name, buffer in hollow.model.named_buffers() if name in kept)
    wanted = itertools.chain(hollow.model.named_parameters(), buffers)
    return [_dequantised(name, like, modules, state, hollow) for name, like in wanted]


def _dequantised(
    name: str,
    like: torch.Tensor,
    modules: dict[str, Any],
    state: dict[str, Any],
    hollow: LanguageModel,
) -> Computed:
    owner, _, leaf = name.rpartition(".")
    shape = tuple(like.shape)
    stored = state.get(name)
    plain = (
        type(stored) is torch.Tensor
        and tuple(stored.shape) == shape
        and (stored.is_floating_point() or not like.is_floating_point())
        and stored.device.type != "meta"
        and stored.element_size() > 1
    )

    def read() -> torch.Tensor:
        if plain:
            value: torch.Tensor = state[name]
        else:
            value = dequantised_weight(modules[owner])
            if reads_rows(hollow.model.get_submodule(owner)):
                value = value.T
        if tuple(value.shape) != shape:
            raise _unreadable(name)
        return value.to(like.dtype)

    if like.dtype not in _NAMES or not (plain or (leaf == "weight" and owner in modules)):
        raise _unreadable(name)
    size = like.numel() * like.element_size()
    place = Path(f"{hollow.name} ({name})")
    return Computed(name, place, _NAMES[like.dtype], shape, 0, size, value=read)


def _unreadable(name: str) -> InputError:
    return InputError(
        f"{name}: cannot be read back from its quantised form as an ordinary tensor; export an "
        "ordinary checkpoint of the model, or leave the weights alone with --as ia3"
    )
