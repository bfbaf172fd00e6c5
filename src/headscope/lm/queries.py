"""Query gates: multiply the queries of single heads, so that a removed head attends evenly.

After Heads Up!, appendix C.3.2: the mask moves inside the softmax, onto query times key.  A gate g
multiplies a head's queries where the attention function receives them, so after any norm of the
queries and after the rotary embedding.  With g = 0 every score is 0 and the softmax spreads the
head's attention evenly over the keys that each token may see; its values still reach W_O.

That holds only where nothing but query times key makes the scores.  Attention sinks take part in
the softmax, and position biases (ALiBi) are added to the scores, so models with either are refused;
so are models that go round the attention function, where queries cannot be reached.  What remains
is proved before first use: with all gates 0, every layer's attention has to be the plain mean of
the values that the mask allows.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import nn

from headscope.errors import InputError
from headscope.lm import shards
from headscope.lm.attention.plans import Mask, is_additive_bias
from headscope.lm.attention.recording import capture_way
from headscope.lm.gates import checked_gate
from headscope.lm.geometry import AttentionSite
from headscope.lm.hooks import once_a_model
from headscope.lm.inputs import probe_pass
from headscope.lm.interpose import Call, changing_queries, observing

if TYPE_CHECKING:
    from headscope.lm.model import LanguageModel


@contextlib.contextmanager
def query_gated(lm: LanguageModel, gate: torch.Tensor) -> Iterator[None]:
    """Multiply each head's queries by its gate, (L, W), or (B, L, W) a row, inside the context.

    Contexts nest, with each other and with gates on what heads write. A gate of 1 is the identity
    bit for bit. Unlike those gates this one changes generation with a cache only in new tokens'
    queries, as it should: keys and values are the same. Raises `InputError` if the model is refused
    (see `check_queries`), the gate is of another geometry or not finite, or, in the forward pass,
    if per-row gates meet a batch of another size.
    """
    values = checked_gate(gate, lm.geometry.shape, "The query gate")
    check_queries(lm)
    with _scaled(lm, values):
        yield


@contextlib.contextmanager
def _scaled(lm: LanguageModel, values: torch.Tensor) -> Iterator[None]:
    sites = {site.attention: site for site in lm.sites}
    there = values.to(lm.device, non_blocking=True)

    def change(module: nn.Module, query: torch.Tensor) -> torch.Tensor:
        site = sites[module]
        own = there[..., site.layer, : site.heads].to(query.device, query.dtype)
        own = own if site.mesh is None else shards.own(own, site.mesh, -1)
        if query.shape[1] != own.shape[-1]:
            raise InputError(
                f"Layer {site.layer} gave its attention function {query.shape[1]} heads where it "
                f"has {site.heads}; query gates cannot be used with this model."
            )
        if own.dim() == 2 and own.shape[0] != query.shape[0]:
            raise InputError(
                f"A query gate for {own.shape[0]} rows met a batch of {query.shape[0]} in layer "
                f"{site.layer}; give one gate a row, and generate without beam search and "
                "num_return_sequences, which expand the batch."
            )
        return query * own[..., None, None]

    changed = [
        site.attention
        for site in lm.sites
        if values.requires_grad or not bool((values[..., site.layer, : site.heads] == 1).all())
    ]
    with changing_queries(lm.model, changed, change):
        yield


@once_a_model
def check_queries(lm: LanguageModel) -> None:
    """Prove that heads whose queries are 0 attend evenly; once for a model and its kernel.

    Raises `InputError` if the model bypasses the attention function, has attention sinks or
    additive position biases, or if a layer's attention is not the mean of the values it may see.
    """
    kind = type(lm.model).__name__
    if not _uses_function(lm):
        raise InputError(
            f"{kind} computes attention in its own code and not in an attention function, so its "
            "queries cannot be reached; gate what heads write instead, or use another model."
        )
    sites = {site.attention: site for site in lm.sites}
    problems: list[str] = []

    def look(module: nn.Module, call: Call) -> None:
        problems.extend(_problem(sites[module], call))

    zeros = torch.zeros(lm.geometry.shape)
    with _scaled(lm, zeros), observing(lm.model, list(sites), look):
        probe_pass(lm)
    if problems:
        raise InputError(
            f"{kind}, {problems[0]}, so a head whose queries are 0 would not attend evenly; gate "
            "what heads write instead, or use another model."
        )


def _uses_function(lm: LanguageModel) -> bool:
    try:
        return capture_way(lm) == "function"
    except InputError:  # neither through the function nor by returned weights
        return False


def _problem(site: AttentionSite, call: Call) -> Iterator[str]:
    """What speaks against even attention in one call in which all queries are 0."""
    if call.options.get("s_aux") is not None:
        yield f"layer {site.layer}: attention sinks take part in the softmax"
        return
    if is_additive_bias(call.mask) or call.options.get("position_bias") is not None:
        yield f"layer {site.layer}: position biases are added to the attention scores"
        return
    rows, heads, queries, _ = call.query.shape
    keys = int(call.key.shape[2])
    places = torch.arange(queries, device=call.query.device).expand(rows, queries)
    allowed = Mask.of(call).decode(places, (0, keys)).allowed.expand(rows, heads, queries, keys)
    value = call.value.float().repeat_interleave(heads // call.value.shape[1], dim=1)
    seen = allowed.sum(dim=-1, keepdim=True)
    even = (allowed.float() @ value) / seen.clamp(min=1)
    given = call.output.float().transpose(1, 2)
    known = (seen > 0).expand_as(even)  # padding sees nothing
    error = float((even - given)[known].abs().max())
    half = call.value.dtype in (torch.float16, torch.bfloat16)
    if not error <= (2e-2 if half else 1e-4) * float(value.abs().max()):
        yield f"layer {site.layer}: attention is not even with queries of 0 (off by {error:.3g})"
