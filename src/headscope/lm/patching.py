"""Activation patching: one head's output at a last token, put in its place in another text.

A head's output is its A·V at the input of the output projection W_O, where gates act too: whatever
kernel or norm came before, these channels times the head's slice of W_O are all that the head adds.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from headscope.errors import InputError
from headscope.lm.batching import Batch, in_halves
from headscope.lm.generation.pool import Requests, SharedPrefix, can_pool
from headscope.lm.geometry import AttentionSite
from headscope.lm.hooks import hooked
from headscope.lm.inputs import evaluating
from headscope.lm.model import LanguageModel
from headscope.lm.owners import inner_model


@dataclasses.dataclass(eq=False)
class HeadOutputs:
    """What a context of `head_outputs` saw; `values` is filled by a forward pass.

    Attributes:
        values: (B, L, W, D) in the model's dtype and on its device, D the largest width of a head;
            0 where there is no head or no channel. Empty before the first pass; of several passes
            the last counts.
    """

    values: torch.Tensor


@dataclasses.dataclass(frozen=True, eq=False)
class Patch:
    """One head's output at the last token of each row of a batch.

    Attributes:
        layers, heads: int64 (B,), the head that is replaced in each row; a layer of -1 leaves the
            row as it is.
        values: (B, D), its new output; heads narrower than D read the first channels.
    """

    layers: torch.Tensor
    heads: torch.Tensor
    values: torch.Tensor


@contextlib.contextmanager
def head_outputs(lm: LanguageModel) -> Iterator[HeadOutputs]:
    """Keep every head's output at the last token of each row, while forward passes run inside.

    Gates and patches that were entered before act first.
    """
    widest = max(site.head_width for site in lm.sites)
    outputs = HeadOutputs(torch.zeros((0, *lm.geometry.shape, widest)))

    def keep(site: AttentionSite, every: torch.Tensor) -> None:
        seen = every[:, -1].detach()
        if outputs.values.shape[0] != seen.shape[0] or outputs.values.dtype != seen.dtype:
            shape = (len(seen), *lm.geometry.shape, widest)
            outputs.values = torch.zeros(shape, dtype=seen.dtype, device=lm.device)
        # Layers may lie on several devices; what is kept lies on one.
        outputs.values[:, site.layer, : site.heads, : site.head_width] = seen.to(lm.device)

    with _each_site(lm, keep):
        yield outputs


@contextlib.contextmanager
def patched(lm: LanguageModel, patch: Patch) -> Iterator[None]:
    """Replace one head's output at the last token of each row, in every pass inside the context.

    A head that gets its own output changes no bit. The hooks are gone at the end, also after an
    exception, and nothing else of the model is touched. Gates that were entered before act on what
    is replaced, and so do not count; gates entered later act on the replacement. Raises
    `InputError` if a head does not exist or the shapes do not belong together; in the forward pass,
    if the batch has another number of rows.
    """
    rows = len(patch.layers)
    if len(patch.heads) != rows or patch.values.dim() != 2 or len(patch.values) != rows:
        raise InputError(
            f"a patch of {rows} layers has {len(patch.heads)} heads and values of shape "
            f"{tuple(patch.values.shape)}; give one of each for every row of the batch"
        )
    places = {site.layer: (patch.layers == site.layer).nonzero()[:, 0] for site in lm.sites}
    widths = {site.layer: (site.heads, site.head_width) for site in lm.sites}
    for layer, head in zip(patch.layers.tolist(), patch.heads.tolist(), strict=True):
        heads, width = widths.get(layer, (0, 0))
        if layer != -1 and not (0 <= head < heads and width <= patch.values.shape[1]):
            raise InputError(
                f"there is no head L{layer}.H{head} whose output has at most "
                f"{patch.values.shape[1]} channels in a model of {lm.geometry}"
            )

    def put(site: AttentionSite, outputs: torch.Tensor) -> torch.Tensor | None:
        own = places[site.layer]
        if not len(own):
            return None
        if outputs.dim() != 4 or len(outputs) != rows:
            raise InputError(
                f"a patch of {rows} rows met a batch of shape {tuple(outputs.flatten(-2).shape)} "
                f"in layer {site.layer}; give one head a row, and generate without beam search"
            )
        changed, on = outputs.clone(), outputs.device
        values = patch.values[own, : site.head_width].to(on, outputs.dtype)
        changed[own.to(on), -1, patch.heads[own].to(on)] = values
        return changed

    with _each_site(lm, put):
        yield


def patched_one_by_one(
    lm: LanguageModel,
    ids: Sequence[int],
    values: torch.Tensor,
    tokens: Sequence[int],
    batch_tokens: int = 8192,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Log-probabilities of some tokens after a prompt, as it is and with one head patched.

    All tokens but the last, which no patch reaches, are read once for all heads.

    Args:
        ids: the prompt.
        values: (L, W, D), what each head's output at the last token is replaced by.
        tokens: ids of the K tokens.
        batch_tokens: upper bound of rows × tokens of a batch.

    Returns:
        Both (L, W, K), the first of an untouched row in the same batch, so that their difference
        is the patch's alone; NaN where there is no head.
    """
    heads = list(lm.geometry.heads())
    layers = torch.tensor([-1, *(head.layer for head in heads)])
    numbers = torch.tensor([0, *(head.head for head in heads)])
    size = max(1, batch_tokens // len(ids) - 1)
    batches = [
        list(range(1 + start, 1 + min(start + size, len(heads))))
        for start in range(0, len(heads), size)
    ]
    shared: SharedPrefix | None = None
    if can_pool(lm):
        rows = 1 + max(map(len, batches))
        one_gate = np.zeros(rows, dtype=np.intp)
        shared = SharedPrefix(lm, Requests([ids] * rows, [1] * rows, None, one_gate, None, False))

    def read(some: list[int]) -> NDArray[np.float64]:
        rows = [0, *some]
        batch: Batch = shared.batch(range(len(rows))) if shared else lm.collate([ids] * len(rows))
        own = values[layers[rows], numbers[rows]]  # the untouched row's are not read
        with patched(lm, Patch(layers[rows], numbers[rows], own)):
            logits = lm.forward(batch, logits=False).logits[:, -1]
        chances: torch.Tensor = logits.float().log_softmax(dim=-1)[:, list(tokens)]
        read_off: NDArray[np.float64] = chances.double().cpu().numpy()
        return read_off

    plain, changed = np.full((2, *lm.geometry.shape, len(tokens)), np.nan)
    with evaluating(lm.model), torch.no_grad():
        for some, chances in in_halves(batches, read):
            plain[layers[some], numbers[some]] = chances[0]
            changed[layers[some], numbers[some]] = chances[1:]
    return plain, changed


def _each_site(
    lm: LanguageModel, change: Callable[[AttentionSite, torch.Tensor], torch.Tensor | None]
) -> contextlib.AbstractContextManager[None]:
    """Let a function look at the outputs of each layer's heads, (B, T, H, D), or change them."""

    def hook(site: AttentionSite) -> Any:
        def call(_: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
            x = args[0]
            made = change(site, x.view(*x.shape[:-1], site.heads, site.head_width))
            return None if made is None else (made.reshape(x.shape), *args[1:])

        return call

    hooks = (site.projection.register_forward_pre_hook(hook(site)) for site in lm.sites)
    return hooked(lm.model, hooks)


@contextlib.contextmanager
def all_outputs(lm: LanguageModel) -> Iterator[dict[int, torch.Tensor]]:
    """Every head's output at every token, (B, T, H, D) by layer, of the last pass inside."""
    seen: dict[int, torch.Tensor] = {}
    with _each_site(lm, lambda site, outputs: seen.update({site.layer: outputs.detach()})):
        yield seen


def moved_outputs(
    lm: LanguageModel, moved: torch.Tensor, directions: Mapping[int, torch.Tensor]
) -> contextlib.AbstractContextManager[None]:
    """Add to every head's output a multiple of a direction: `moved` (B, L, W), which may require
    gradients, times `directions` (B or 1, T, H, D) by layer."""

    def move(site: AttentionSite, outputs: torch.Tensor) -> torch.Tensor:
        by = moved[:, site.layer, None, : site.heads, None].to(outputs.device)
        changed: torch.Tensor = outputs + (by * directions[site.layer]).to(outputs.dtype)
        return changed

    return _each_site(lm, move)


def between_inputs(
    lm: LanguageModel, other: torch.Tensor, share: float
) -> contextlib.AbstractContextManager[None]:
    """Move the input embeddings of passes inside by a share towards those of other tokens (B, T);
    what a model looks up elsewhere by its tokens stays."""
    inside = False

    def mix(embedding: nn.Module, args: tuple[Any, ...], output: torch.Tensor) -> Any:
        nonlocal inside
        if inside:  # the call below
            return None
        inside = True
        try:
            return torch.lerp(output, embedding(other.to(output.device)), share)
        finally:
            inside = False

    embeddings: nn.Module = inner_model(lm.model).get_input_embeddings()
    return hooked(lm.model, map(embeddings.register_forward_hook, [mix]))
