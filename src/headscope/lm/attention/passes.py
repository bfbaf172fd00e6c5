"""One forward pass under observation: its rows, its place in the sequence, and what was found.

:class:`Pass` knows the pass; :class:`PeakPass` takes from it the key with the largest weight.
"""

from __future__ import annotations

import abc
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import nn

from headscope.errors import InputError
from headscope.lm.attention.argmax import Rows, largest
from headscope.lm.attention.interpose import Call
from headscope.lm.attention.masks import decode
from headscope.lm.attention.plans import KeyChoice, Plans, columns
from headscope.lm.geometry import AttentionSite

#: Gives the rows to look at, from batch size and number of queries.
Choose = Callable[[int, int], Rows]


class Pass(abc.ABC):
    """What is known while one forward pass runs.

    Args:
        past: number of tokens in the cache before the pass.
        padding: the attention mask that the decoder was called with.
        choose: gives the rows to look at.
        keys: the keys that count, and whether their exact scores do: see :class:`Plans`.

    Attributes:
        queries: positions of the pass; 0 until they are known.
    """

    def __init__(
        self, past: int, padding: Any, choose: Choose, keys: KeyChoice, exact: bool = False
    ) -> None:
        self.past, self.queries = past, 0
        self._padding = padding
        self._choose = choose
        self._keys = keys
        self._exact = exact
        self._plans: Plans | None = None
        #: Plans of layers that compute only so many last positions.
        self._shorter: dict[int, Plans] = {}
        self._index: dict[tuple[Plans, torch.device], torch.Tensor] = {}

    @staticmethod
    def read(
        module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[int, int, Any]:
        """Tokens in the cache, positions (0: not known) and attention mask that a decoder is about
        to be called with.

        A static cache counts on its device: this is the one synchronisation of a pass.
        """
        given = dict(kwargs)
        if args:
            given.update(inspect.signature(module.forward).bind_partial(*args).arguments)
        cache = given.get("past_key_values")
        past = 0 if cache is None else int(cache.get_seq_length())
        tokens = given.get("input_ids")
        tokens = given.get("inputs_embeds") if tokens is None else tokens
        queries = 0 if tokens is None else int(tokens.shape[1])
        return past, queries, given.get("attention_mask")

    @abc.abstractmethod
    def take_call(self, site: AttentionSite, call: Call) -> None:
        """Take what is wanted of one layer from a call of its attention kernel."""

    @abc.abstractmethod
    def take_weights(self, site: AttentionSite, weights: torch.Tensor) -> None:
        """Take what is wanted of one layer from its attention weights (B, H, T, S)."""

    @property
    @abc.abstractmethod
    def layers(self) -> Iterable[int]:
        """The layers seen so far."""

    def visible(
        self, site: AttentionSite, weights: torch.Tensor, index: torch.Tensor
    ) -> torch.Tensor:
        """bool (B, R, S): the keys that the chosen rows see, where a module returns its weights.

        The architectures that need this are plainly causal, so the keys a query sees follow from
        its place and the padding, and in GPT-Neo's local layers from a window.
        """
        device, (queries, keys) = weights.device, weights.shape[2:]
        mask = self._padding
        if isinstance(mask, torch.Tensor) and mask.dim() == 4:
            # generate() with a static cache prepares the whole mask beforehand.
            decoded = decode(
                mask.to(device), index, (0, keys), kernel="eager", queries=queries, keys=keys
            )
            return decoded.allowed[:, 0]
        place = (index + self.past)[..., None]
        allowed = torch.arange(keys, device=device) <= place
        module: Any = site.attention
        if getattr(module, "attention_type", None) == "local":
            allowed &= torch.arange(keys, device=device) > place - module.config.window_size
        if mask is not None:
            allowed = allowed & columns(mask.to(device), keys)[:, None]
        return allowed

    def places(self) -> torch.Tensor:
        """int64 (B, R, 2) on the CPU: batch row, and place in the padded sequence, of each row."""
        assert self._plans is not None  # a layer was seen, hence rows were chosen
        batch, height = self._plans.rows.index.shape
        numbers = torch.arange(batch)[:, None].expand(batch, height)
        return torch.stack([numbers, self._plans.rows.index + self.past], dim=-1)

    def valid(self, *parts: torch.Tensor) -> list[torch.Tensor]:
        """Tensors (B, R, …) as (rows, …), without the repeats that fill shorter batch rows."""
        assert self._plans is not None
        kept = self._plans.rows.valid.reshape(-1)
        flat = [part.flatten(0, 1) for part in parts]
        if bool(kept.all()):
            return flat
        which = kept.nonzero()[:, 0]
        return [part[which.to(part.device)] for part in flat]

    def _ready(self, batch: int, queries: int) -> Plans:
        if self._plans is None:
            self._check(batch)
            self.queries = self.queries or queries
            rows = self._choose(batch, self.queries)
            self._plans = Plans(rows, self._keys, self.past, self._exact)
        if queries == self.queries:
            return self._plans
        # A model that is asked for few logits may leave the other positions out of upper layers.
        if queries not in self._shorter:
            left_out = self.queries - queries
            rows = self._plans.rows.shifted(left_out)
            self._shorter[queries] = Plans(rows, self._keys, self.past + left_out, self._exact)
        return self._shorter[queries]

    @abc.abstractmethod
    def _check(self, batch: int) -> None:
        """InputError unless what was asked for fits a batch of so many rows."""

    def _on(self, plans: Plans, device: torch.device) -> torch.Tensor:
        if (plans, device) not in self._index:
            self._index[plans, device] = plans.rows.index.to(device, non_blocking=True)
        return self._index[plans, device]


class PeakPass(Pass):
    """Peaks of one forward pass.

    Attributes:
        found: for each layer seen so far, int64 (B, H, R), places of keys in the padded sequence.
    """

    def __init__(self, past: int, padding: Any, choose: Choose, keys: KeyChoice) -> None:
        super().__init__(past, padding, choose, keys)
        self.found: dict[int, torch.Tensor] = {}

    @property
    def layers(self) -> Iterable[int]:
        """The layers seen so far."""
        return self.found

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
        """Take the peaks of one layer from its attention weights (B, H, T, S)."""
        weights = weights.detach()
        batch, _, queries, keys = weights.shape
        plans = self._ready(batch, queries)
        index = self._on(plans, weights.device)
        allowed = self.visible(site, weights, index)
        limit = self._keys.allowed(0, keys, weights.device)
        if limit is not None:
            allowed = allowed & limit[:, None]
        chosen = plans.rows.take(weights, index).float()
        chosen = chosen.masked_fill(~allowed[:, None], -1.0)
        values, where = chosen.max(dim=-1)
        self.found[site.layer] = where.masked_fill_(values < 0, -1)

    def collect(self, layers: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
        """All rows of the pass: int64 (R, 2) batch row and place, and int32 (R, L, W) peaks."""
        where = self.places()
        batch, height, _ = where.shape
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
        where, peaks = self.valid(where, peaks)
        return where, peaks

    def _check(self, batch: int) -> None:
        keys = self._keys.keys
        if keys is not None and keys.shape[0] != batch:
            raise InputError(
                f"keys of a peak request has {keys.shape[0]} rows but the forward pass has "
                f"{batch}; give one a row (beam search expands the batch)."
            )
