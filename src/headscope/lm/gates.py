"""Gates: multiply what single heads write by a number, inside a context.

A gate acts on the input of each layer's output projection W_O, where the outputs ``A V`` of all
heads lie side by side: head ``h``'s channels times ``g`` is the same as head ``h``'s slice of W_O
times ``g``, whatever attention kernel ran before and whatever norm stands between.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from headscope.errors import InputError
from headscope.heads import Gate, Geometry, check_geometry
from headscope.lm.hooks import hooked
from headscope.lm.positions import Positions
from headscope.lm.weights import is_plain

if TYPE_CHECKING:
    from headscope.lm.geometry import AttentionSite
    from headscope.lm.model import LanguageModel
    from headscope.lm.replacement import Adding, Replacement

_Hook = Callable[[torch.nn.Module, tuple[Any, ...]], tuple[Any, ...] | None]


@contextlib.contextmanager
def gated(
    lm: LanguageModel,
    gate: Gate | torch.Tensor,
    replacement: Replacement | None = None,
    skip_identity: bool = True,
) -> Iterator[None]:
    """Apply ``gate`` to a model for the length of the context.

    Contexts nest: gates multiply. The hooks are removed at the end, also after an exception. A
    backward pass that needs the gate's gradient has to run inside the context if gradient
    checkpointing is on (use the non-reentrant kind).

    Args:
        gate: a `Gate`; or a tensor (L, W), which may require grad; or (B, L, W), one gate a row of
            the batch. Entries of heads that do not exist are ignored.
        replacement: what stands in the place of what the gate removes (see
            `headscope.lm.replacement`); None: zero.
        skip_identity: leave out layers whose gate is all ones and needs no gradient; they are bit
            for bit the same either way.

    Raises `InputError` if gate or replacement are of another geometry, not finite, or, in the
    forward pass, if a per-row gate meets a batch of another size (beam search and
    ``num_return_sequences`` expand the batch), the gate's gradient is lost in a quantised
    projection, or the classes of tokens are not known.
    """
    values = gate_tensor(lm.geometry, gate)
    skips = skip_identity and not values.requires_grad
    ones = (values == 1).cpu() if skips else None
    # All at once: layer by layer a GPU would be waited for, and of slices taken one by one autograd
    # would add up gradients of the whole gate.
    of_layer = values.to(lm.device, non_blocking=True).unbind(-2)
    positions = None
    if replacement is not None:
        replacement.check(lm)
        positions = Positions(lm)

    def hooks() -> Iterator[Any]:
        for site in lm.sites:
            own = of_layer[site.layer][..., : site.heads]
            if ones is not None and bool(ones[..., site.layer, : site.heads].all()):
                continue
            add = None
            if replacement is not None and positions is not None:
                add = replacement.adding(site, own, positions)
            yield site.projection.register_forward_pre_hook(_hook(site, own, add))
            if own.requires_grad and not is_plain(site.projection):
                yield site.projection.register_forward_hook(_keeps_gradient(site))

    watched = contextlib.nullcontext() if positions is None else positions.watched()
    with hooked(lm.model, hooks()), watched:
        yield


def checked_gate(gate: torch.Tensor, shape: tuple[int, ...], what: str) -> torch.Tensor:
    """A gate of this shape, or of one with a first dimension for rows, as finite floats.

    Raises `InputError` otherwise; ``what`` is what the message calls it.
    """
    if gate.dim() - len(shape) not in (0, 1) or tuple(gate.shape[-len(shape) :]) != shape:
        with_rows = ", ".join(str(size) for size in shape)
        raise InputError(
            f"{what} has shape {tuple(gate.shape)}, but this model needs {shape} or (rows, "
            f"{with_rows}), by layer{' and head' if len(shape) > 1 else ''}; make a gate for this "
            "model's geometry."
        )
    values = gate if gate.is_floating_point() else gate.float()
    if not bool(torch.isfinite(values.detach()).all()):
        raise InputError(f"{what} holds values that are not finite; use numbers, 0 to remove.")
    return values


def gate_tensor(geometry: Geometry, gate: Gate | torch.Tensor) -> torch.Tensor:
    """A gate of this geometry as a tensor (L, W), or (B, L, W); `InputError` if it is none."""
    if isinstance(gate, Gate):
        check_geometry(gate, geometry)
        return torch.from_numpy(np.array(gate.values, dtype=np.float32))
    if not isinstance(gate, torch.Tensor):
        raise InputError(
            f"A gate must be a headscope Gate or a torch tensor, not {type(gate).__name__}; "
            "a HeadSet becomes one by .removed() or .scaled(value)."
        )
    return checked_gate(gate, geometry.shape, "The gate")


def _hook(
    site: AttentionSite,
    gate: torch.Tensor,
    add: Adding | None,
) -> _Hook:
    """A forward pre-hook for one projection; ``gate`` is (H,) or (B, H)."""
    ready: dict[tuple[torch.device, torch.dtype], torch.Tensor] = {}

    def factors(x: torch.Tensor) -> torch.Tensor:
        """The gate, (H, 1) or (B, 1, H, 1)."""
        key = (x.device, x.dtype)
        if key in ready:
            return ready[key]
        # With one gate a row, a dimension for the tokens stands between rows and heads.
        factor = gate.to(x.device, x.dtype).view(*gate.shape[:-1], *[1] * (gate.dim() - 1), -1, 1)
        if not gate.requires_grad:
            ready[key] = factor
        return factor

    def hook(_: torch.nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        x = args[0]
        factor = factors(x)
        if gate.dim() == 2 and (x.dim() != 3 or x.shape[0] != gate.shape[0]):
            raise InputError(
                f"A gate for {gate.shape[0]} rows met a batch of shape {tuple(x.shape)} in "
                f"layer {site.layer}; give one gate a row, and generate without beam search "
                "and num_return_sequences, which expand the batch."
            )
        heads = x.view(*x.shape[:-1], site.heads, site.head_width) * factor
        if add is not None:
            heads = heads + add(x)
        return (heads.reshape(x.shape), *args[1:])

    return hook


def _keeps_gradient(site: AttentionSite) -> Callable[..., None]:

    def hook(_: torch.nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if torch.is_grad_enabled() and not output.requires_grad:
            raise InputError(
                f"The gradient of a gate is lost in {site.projection_name!r}, whose weight is "
                "quantised in a way that has none; load the model with other or without "
                "quantisation."
            )

    return hook
