"""What folding a gate does to single tensors of a checkpoint.

Head h's slice of W_O times g is the same as head h's output times g (see `headscope.lm.gates`), so
a gate becomes factors of W_O's input channels. Its bias is added to all heads' sum and stays. A
feed-forward gate multiplies all that the part adds, so weight and bias of its last projection.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from headscope.errors import InputError
from headscope.heads import Gate, check_geometry
from headscope.use.exporting.feed_forward import output_projections
from headscope.use.exporting.places import loaded_as
from headscope.use.exporting.tensors import Stored

if TYPE_CHECKING:
    from headscope.lm.geometry import AttentionSite
    from headscope.lm.model import LanguageModel

_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
}
_ROWS = 1024


@dataclass(frozen=True)
class _Factors:
    """Factors of a tensor: (1, columns), (rows, 1) or, for all of it, ()."""

    values: torch.Tensor

    def of_rows(self, rows: slice) -> torch.Tensor:
        by_row = self.values.dim() == 2 and self.values.shape[0] > 1
        return self.values[rows] if by_row else self.values


def scalings(
    lm: LanguageModel,
    tensors: list[Stored],
    gate: Gate,
    feed_forward: NDArray[np.float32] | None = None,
) -> dict[str, _Factors]:
    """The factors by which tensors of a checkpoint are multiplied, by the tensor's name.

    Every layer's W_O is looked up, also where the gate is 1, and must be there exactly once.

    Args:
        lm: the model, which may be hollow.
        tensors: the checkpoint's tensors.
        gate: one number a head.
        feed_forward: one number a layer, shape (L,); None for all ones.

    Raises:
        InputError: if the gate is of another geometry, a tensor is not found exactly once, is
            stored in a form that cannot be multiplied, or a feed-forward part cannot be folded.
    """
    check_geometry(gate, lm.geometry, "the gate")
    loaded = loaded_as(lm.model, tensors)
    state = lm.model.state_dict()
    found: dict[str, _Factors] = {}

    def add(name: str, factors: torch.Tensor, what: str) -> None:
        tensor = loaded.one(name, tuple(state[name].shape), what)
        if tensor.dtype not in _DTYPES:
            raise InputError(
                f"{tensor.file}: {tensor.name} is stored as {tensor.dtype}, which cannot be "
                "multiplied by a gate; export a checkpoint in F32, BF16 or F16"
            )
        if tensor.name in found:
            raise InputError(
                f"{tensor.file}: {tensor.name} is read by several layers, so it cannot be folded "
                "for one of them; use a model whose layers have weights of their own"
            )
        found[tensor.name] = _Factors(factors)

    for site in lm.sites:
        factors = channel_factors(site, gate)
        shaped = factors[:, None] if reads_rows(site.projection) else factors[None, :]
        add(f"{site.projection_name}.weight", shaped, f"layer {site.layer}, W_O")
    if feed_forward is not None:
        gated = [layer for layer, value in enumerate(feed_forward) if value != 1]
        for layer, name in output_projections(lm, gated).items():
            factor = torch.tensor(float(feed_forward[layer]))
            for part in ("weight", "bias"):
                if f"{name}.{part}" in state:
                    add(f"{name}.{part}", factor, f"layer {layer}, feed-forward part")
    return {name: one for name, one in found.items() if bool((one.values != 1).any())}


def stored_dtype(lm: LanguageModel, tensors: list[Stored]) -> torch.dtype:
    """The least exact dtype in which a checkpoint holds a W_O: what folded weights round to.

    InputError as `scalings` raises it.
    """
    identity = Gate.identity(lm.geometry)
    scalings(lm, tensors, identity)
    loaded = loaded_as(lm.model, tensors)
    names = {
        one.dtype for site in lm.sites for one in loaded.tensors[f"{site.projection_name}.weight"]
    }
    return max((_DTYPES[name] for name in names), key=lambda one: torch.finfo(one).eps)


def channel_factors(site: AttentionSite, gate: Gate) -> torch.Tensor:
    """A layer's gate as one factor for each input channel of W_O: float32, (H · head width,)."""
    values = np.array(gate.values[site.layer, : site.heads], dtype=np.float32)
    return torch.from_numpy(values).repeat_interleave(site.head_width)


def reads_rows(projection: torch.nn.Module) -> bool:
    """Whether a weight's rows, not its columns, are the input's channels (GPT-2's Conv1D)."""
    from transformers.pytorch_utils import Conv1D

    return isinstance(projection, Conv1D)


def scaled_blocks(tensor: Stored, factors: Mapping[str, _Factors]) -> Iterable[bytes | memoryview]:
    """A tensor's bytes as they are written: times its factors, or as they are.

    Products are computed in 32 bits (64 for F64) and rounded to the dtype that the checkpoint has;
    by 1 a number stays, by 0 it becomes 0. InputError if one becomes infinite or is not finite.
    """
    if tensor.name not in factors:
        yield from tensor.blocks()
        return
    dtype = _DTYPES[tensor.dtype]
    compute = torch.float64 if dtype == torch.float64 else torch.float32
    data = tensor.read()
    weight = torch.frombuffer(data, dtype=dtype).reshape(tensor.shape)
    for first in range(0, tensor.shape[0], _ROWS):
        rows = slice(first, first + _ROWS)
        product = weight[rows].to(compute) * factors[tensor.name].of_rows(rows).to(compute)
        weight[rows] = product.to(dtype)
        if not bool(torch.isfinite(weight[rows]).all()):
            raise InputError(
                f"{tensor.file}: {tensor.name} times the gate is not finite in {tensor.dtype}; "
                "use a smaller gate, or a checkpoint with finite weights"
            )
    yield memoryview(data)
