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
import numpy.typing as npt
import torch

from headscope.errors import InputError
from headscope.heads import Gate, Geometry, check_geometry
from headscope.lm.ablation import CLASSES, Positions
from headscope.lm.hooks import hooked
from headscope.lm.weights import is_plain

if TYPE_CHECKING:
    from headscope.lm.geometry import AttentionSite
    from headscope.lm.model import LanguageModel

_Hook = Callable[[torch.nn.Module, tuple[Any, ...]], tuple[Any, ...] | None]


@contextlib.contextmanager
def gated(
    lm: LanguageModel,
    gate: Gate | torch.Tensor,
    ablate: str | None = None,
    means: npt.NDArray[np.floating[Any]] | None = None,
    skip_identity: bool = True,
) -> Iterator[None]:
    """Apply ``gate`` to a model for the length of the context.

    Contexts nest: gates multiply. The hooks are removed at the end, also after an exception. A
    backward pass that needs the gate's gradient has to run inside the context if gradient
    checkpointing is on (use the non-reentrant kind).

    Args:
        gate: a `Gate`; or a tensor (L, W), which may require grad; or (B, L, W), one gate a row of
            the batch. Entries of heads that do not exist are ignored.
        ablate: ``"zero"``, or ``"mean"``, which adds (1 - g) × the head's mean output ``A V``, so
            that removal puts the mean in its place; None: ``"mean"`` where means are given.
        means: shape (C, L, W, D), from `headscope.lm.ablation.head_means`; each token gets the mean
            of its class. With C = 3 passes have to say where answers begin; with C = 2, the means
            of documents, an answer is part of the rest.
        skip_identity: leave out layers whose gate is all ones and needs no gradient; they are bit
            for bit the same either way.

    Raises `InputError` if gate or means are of another geometry, not finite, or, in the forward
    pass, if a per-row gate meets a batch of another size (beam search and ``num_return_sequences``
    expand the batch), the gate's gradient is lost in a quantised projection, or the classes of
    tokens are not known.
    """
    values = gate_tensor(lm.geometry, gate)
    skips = skip_identity and not values.requires_grad
    ones = (values == 1).cpu() if skips else None
    # All at once: layer by layer a GPU would be waited for, and of slices taken one by one autograd
    # would add up gradients of the whole gate.
    of_layer = values.to(lm.device, non_blocking=True).unbind(-2)
    mean = _mean_tensor(lm, ablate, means)
    mean = None if mean is None else mean.to(lm.device, non_blocking=True)
    positions = None if mean is None else Positions(lm)

    def hooks() -> Iterator[Any]:
        for site in lm.sites:
            own = of_layer[site.layer][..., : site.heads]
            if ones is not None and bool(ones[..., site.layer, : site.heads].all()):
                continue
            replacing = None
            if mean is not None and positions is not None:
                replacing = mean[:, site.layer, : site.heads, : site.head_width], positions
            yield site.projection.register_forward_pre_hook(_hook(site, own, replacing))
            if own.requires_grad and not is_plain(site.projection):
                yield site.projection.register_forward_hook(_keeps_gradient(site))

    with hooked(hooks()), contextlib.nullcontext() if positions is None else positions.watched():
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


def _mean_tensor(
    lm: LanguageModel, ablate: str | None, means: npt.NDArray[np.floating[Any]] | None
) -> torch.Tensor | None:
    ablate = ablate or ("zero" if means is None else "mean")
    if ablate not in ("zero", "mean"):
        raise InputError(f"ablate is {ablate!r}; it must be 'zero' or 'mean'.")
    if ablate == "zero":
        if means is not None:
            raise InputError("means were given with ablate='zero'; pass ablate='mean' to use them.")
        return None
    if means is None:
        raise InputError(
            "ablate='mean' needs means=…, the heads' mean outputs over reference texts; compute "
            "them with headscope.lm.ablation.head_means(lm, rows, starts)."
        )
    shape = (*lm.geometry.shape, max(site.head_width for site in lm.sites))
    given = tuple(np.shape(means))
    if given[1:] != shape or given[0] not in (len(CLASSES) - 1, len(CLASSES)):
        raise InputError(
            f"The means have shape {given}, but this model needs {(len(CLASSES), *shape)} "
            f"(classes of position, layers, heads, channels), or {len(CLASSES) - 1} classes of "
            "documents; compute them with this model."
        )
    # Kept in 64 bits until it is cast beside the activations it is added to.
    return torch.from_numpy(np.array(means, dtype=np.float64))


def _hook(
    site: AttentionSite,
    gate: torch.Tensor,
    replacing: tuple[torch.Tensor, Positions] | None,
) -> _Hook:
    """A forward pre-hook for one projection; ``gate`` is (H,) or (B, H), means are (C, H, D)."""
    ready: dict[tuple[torch.device, torch.dtype], tuple[torch.Tensor, torch.Tensor | None]] = {}

    def factors(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The gate, (H, 1) or (B, 1, H, 1), and what is added to each class, (…, C, H, D)."""
        key = (x.device, x.dtype)
        if key in ready:
            return ready[key]
        # With one gate a row, a dimension for the tokens stands between rows and heads.
        factor = gate.to(x.device, x.dtype).view(*gate.shape[:-1], *[1] * (gate.dim() - 1), -1, 1)
        offset = None
        if replacing is not None:
            kept = gate.to(x.device, torch.float64)[..., None, :, None]
            offset = ((1 - kept) * replacing[0].to(x.device)).to(x.dtype)
        if not gate.requires_grad:
            ready[key] = (factor, offset)
        return factor, offset

    def hook(_: torch.nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        x = args[0]
        factor, offset = factors(x)
        if gate.dim() == 2 and (x.dim() != 3 or x.shape[0] != gate.shape[0]):
            raise InputError(
                f"A gate for {gate.shape[0]} rows met a batch of shape {tuple(x.shape)} in "
                f"layer {site.layer}; give one gate a row, and generate without beam search "
                "and num_return_sequences, which expand the batch."
            )
        heads = x.view(*x.shape[:-1], site.heads, site.head_width) * factor
        if offset is not None and replacing is not None:
            classes = replacing[1].classes(x, len(replacing[0]))
            if gate.dim() == 2:
                heads = heads + offset[torch.arange(len(x), device=x.device)[:, None], classes]
            else:
                heads = heads + offset[classes]
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
