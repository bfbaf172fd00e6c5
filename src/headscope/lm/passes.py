"""One forward pass under observation: its rows, its place in the sequence, and what was found."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from headscope.errors import InputError
from headscope.lm.argmax import Rows, largest
from headscope.lm.geometry import AttentionSite
from headscope.lm.interpose import Call
from headscope.lm.masks import decode
from headscope.lm.plans import KeyChoice, Plans, columns

__all__ = ["Pass"]


class Pass:
    """What is known while one forward pass runs.

    Args:
        past: number of tokens in the cache before the pass.
        padding: the attention mask that the decoder was called with.
        choose: gives the rows to look at, from batch size and number of queries.
        keys: the keys that count.

    Attributes:
        found: for each layer seen so far, int64 (B, H, R), places of keys in the padded sequence.
    """

    def __init__(
        self,
        past: int,
        padding: Any,
        choose: Callable[[int, int], Rows],
        keys: KeyChoice,
    ) -> None:
        self.past = past
        self.found: dict[int, torch.Tensor] = {}
        self._padding = padding
        self._choose = choose
        self._keys = keys
        self._plans: Plans | None = None
        self._index: dict[torch.device, torch.Tensor] = {}

    @classmethod
    def begin(
        cls,
        module: nn.Module,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        choose: Callable[[int, int], Rows],
        keys: KeyChoice,
    ) -> Pass:
        """Read what a decoder is about to be called with."""
        given = dict(kwargs)
        if args:
            given.update(inspect.signature(module.forward).bind_partial(*args).arguments)
        cache = given.get("past_key_values")
        # A static cache counts on its device: this is the one synchronisation of a pass.
        past = 0 if cache is None else int(cache.get_seq_length())
        return cls(past, given.get("attention_mask"), choose, keys)

    def take_call(self, site: AttentionSite, call: Call) -> None:
        """Take the peaks of one layer from a call of its attention kernel."""
        query, key = call.query.detach(), call.key.detach()
        batch, heads, queries, _ = query.shape
        plans = self._ready(batch, queries)
        if not plans.rows.height:
            self.found[site.layer] = torch.zeros((batch, heads, 0), dtype=torch.long)
            return
        index = self._on(plans, query.device)
        plan = plans.of(call, index)
        with torch.no_grad():
            places = largest(
                plans.rows.take(query, index),
                key,
                plan.blocks,
                scale=plan.scale,
                softcap=plan.softcap,
            )
            if plan.offset:
                places = torch.where(places >= 0, places + plan.offset, places)
        self.found[site.layer] = places

    def take_weights(self, site: AttentionSite, weights: torch.Tensor) -> None:
        """Take the peaks of one layer from its attention weights (B, H, T, S).

        The architectures that need this are plainly causal and have no sliding windows, so the keys
        a query sees follow from its place and the padding.
        """
        weights = weights.detach()
        batch, _, queries, keys = weights.shape
        plans = self._ready(batch, queries)
        device = weights.device
        index = self._on(plans, device)
        mask = self._padding
        if isinstance(mask, torch.Tensor) and mask.dim() == 4:
            # generate() with a static cache prepares the whole mask beforehand.
            decoded = decode(
                mask.to(device), index, (0, keys), kernel="eager", queries=queries, keys=keys
            )
            allowed = decoded.allowed[:, 0]
        else:
            allowed = torch.arange(keys, device=device) <= (index + self.past)[..., None]
            if mask is not None:
                allowed = allowed & columns(mask.to(device), keys)[:, None]
        limit = self._keys.allowed(0, keys, device)
        if limit is not None:
            allowed = allowed & limit[:, None]
        chosen = plans.rows.take(weights, index).float()
        chosen = chosen.masked_fill(~allowed[:, None], -1.0)
        values, where = chosen.max(dim=-1)
        self.found[site.layer] = where.masked_fill_(values < 0, -1)

    def collect(self, layers: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
        """All rows of the pass: int64 (R, 2) batch row and place, and int32 (R, L, W) peaks."""
        assert self._plans is not None  # a layer was seen, hence rows were chosen
        rows = self._plans.rows
        batch, height = rows.index.shape
        where = torch.stack(
            [torch.arange(batch)[:, None].expand(batch, height), rows.index + self.past], dim=-1
        )
        order = sorted(self.found)
        device = self.found[order[0]].device
        if len(order) == layers and all(own.shape[1] == width for own in self.found.values()):
            stacked = torch.stack([self.found[layer].to(device) for layer in order], dim=1)
            peaks = stacked.permute(0, 3, 1, 2).to(torch.int32)
        else:
            shape = (batch, height, layers, width)
            peaks = torch.full(shape, -1, dtype=torch.int32, device=device)
            for layer in order:
                own = self.found[layer].transpose(1, 2).to(device, torch.int32)
                peaks[:, :, layer, : own.shape[-1]] = own
        flat = peaks.reshape(batch * height, layers, width)
        where = where.reshape(batch * height, 2)
        if not bool(rows.valid.all()):
            kept = rows.valid.reshape(-1).nonzero()[:, 0]
            where, flat = where[kept], flat[kept.to(device)]
        return where, flat

    def _ready(self, batch: int, queries: int) -> Plans:
        if self._plans is None:
            keys = self._keys.keys
            if keys is not None and keys.shape[0] != batch:
                raise InputError(
                    f"keys of a peak request has {keys.shape[0]} rows but the forward pass has "
                    f"{batch}; give one a row (beam search expands the batch)."
                )
            self._plans = Plans(self._choose(batch, queries), self._keys, self.past)
        return self._plans

    def _on(self, plans: Plans, device: torch.device) -> torch.Tensor:
        if device not in self._index:
            self._index[device] = plans.rows.index.to(device, non_blocking=True)
        return self._index[device]
