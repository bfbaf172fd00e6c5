"""The attention that chosen heads pay to chosen keys, for chosen query rows.

As for peaks (`headscope.lm.attention.peaks`), no attention matrix is formed: while a context of
:func:`attention_weights` is open, the model's attention kernel does its work unchanged, and then
the softmax weights of the chosen keys are computed for the chosen rows and heads alone, under the
very mask, scale, soft cap and sink the kernel was given.  The denominator is summed over all keys
chunk by chunk.  Architectures that hide their attention (Bloom, Falcon, MPT, XGLM, whose position
biases change the softmax) return their weights, of which the chosen ones are taken.

Nothing is guessed: every forward pass proves its numbers.  The weights that were computed, times
the values of *all* keys, must give what the kernel gave for the same rows and heads; returned
weights must sum to one over the keys a query sees.  A score that was changed in some unknown way
raises.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from headscope.errors import InputError
from headscope.heads import Head
from headscope.lm.attention.interpose import Call
from headscope.lm.attention.passes import Choose, Pass
from headscope.lm.attention.plans import KeyChoice
from headscope.lm.attention.recording import Recorder, RowChoice, check_rows, recording
from headscope.lm.attention.softmax import Chosen, softmax_of_chosen
from headscope.lm.geometry import AttentionSite

if TYPE_CHECKING:
    from headscope.lm.model import LanguageModel

#: How far weights times values may be from the kernel's output, as a share of its size.  Halves
#: round scores before the softmax, and some kernels the weights too.
_TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-3}
_TOLERANCE_OF_HALVES = 1e-1


@dataclasses.dataclass(frozen=True, eq=False)
class WeightRequest:
    """Whose attention to what is recorded.

    Attributes:
        keys: int64 (B, K), places of keys in the padded sequence; -1 fills shorter rows.
        heads: the heads, in the order of the results; ``None``: all, by layer, then head.
        rows: bool (B, T), the queries of each forward pass, true where wanted; or ``"all"``; or
            ``"last"``, the last query of each call, which during ``generate()`` is the one that
            predicts the next token, in the prefill and in every step after it.
    """

    keys: torch.Tensor
    heads: tuple[Head, ...] | None = None
    rows: RowChoice = "all"

    def __post_init__(self) -> None:
        check_rows("weight", self.rows)
        keys = self.keys
        if keys.dim() != 2 or keys.dtype != torch.int64:
            raise InputError(
                f"keys of a weight request is a {keys.dtype} tensor of shape "
                f"{tuple(keys.shape)}; it must be int64 of shape (batch, keys)."
            )
        if self.heads is not None and not self.heads:
            raise InputError("a weight request names no heads; name one, or None for all.")


@dataclasses.dataclass(frozen=True, eq=False)
class WeightStep:
    """The weights of one forward pass, for N heads and K keys.

    Attributes:
        rows: int64 (R, 2) on the CPU: batch row, and place in the padded sequence, of each query.
        weights: float32 (R, N, K) on the model's device: the softmax weights; 0 where the query
            does not see the key.
        uniform: float32 (R, N, K): what each key would get if the head spread its attention evenly
            over all the keys that the query sees there; 0 where the query does not see the key.
    """

    rows: torch.Tensor
    weights: torch.Tensor
    uniform: torch.Tensor


class Weights:
    """What a context recorded: one :class:`WeightStep` for each forward pass, in order.

    ``heads`` are the N heads; ``rows``, ``weights`` and ``uniform`` those of all steps together.
    """

    def __init__(self, heads: tuple[Head, ...]) -> None:
        self.heads = heads
        self.steps: list[WeightStep] = []

    @property
    def rows(self) -> torch.Tensor:
        """int64 (R, 2), the rows of all steps one after another."""
        return torch.cat([step.rows for step in self.steps])

    @property
    def weights(self) -> torch.Tensor:
        """float32 (R, N, K), the weights of all steps one after another."""
        return torch.cat([step.weights for step in self.steps])

    @property
    def uniform(self) -> torch.Tensor:
        """float32 (R, N, K), the even shares of all steps one after another."""
        return torch.cat([step.uniform for step in self.steps])


@contextlib.contextmanager
def attention_weights(lm: LanguageModel, request: WeightRequest) -> Iterator[Weights]:
    """Record the attention paid to chosen keys in every forward pass of a model in the context.

    Memory grows with rows × heads × chosen keys, never with rows × all keys.  Contexts nest, with
    each other, with peaks and with gates; what was there before is restored at the end, also after
    an exception.  A forward pass that raises leaves no step.

    Args:
        lm: the model.
        request: whose attention to what, for every forward pass inside the context.

    Yields:
        What was recorded; it fills as forward passes end.

    Raises:
        InputError: if a head is not the model's; if the model hides its attention; if the request
            does not fit a forward pass; or if the weights do not explain what the kernel gave.
    """
    heads = tuple(lm.geometry.heads()) if request.heads is None else request.heads
    for head in heads:
        lm.geometry.check(head)
    layers: dict[int, list[int]] = {}
    for head in heads:
        layers.setdefault(head.layer, []).append(head.head)
    found = Weights(heads)
    kind = type(lm.model).__name__

    def begin(past: int, padding: Any, choose: Choose) -> _WeightPass:
        return _WeightPass(past, padding, choose, request.keys, layers, kind)

    def end(done: _WeightPass) -> None:
        done.prove()
        found.steps.append(done.collect(heads))

    sites = [site for site in lm.sites if site.layer in layers]
    with recording(lm, Recorder("weight", sites, request.rows, begin, end)):
        yield found


class _WeightPass(Pass):
    """Weights of one forward pass; ``wanted`` are the heads of each layer."""

    def __init__(
        self,
        past: int,
        padding: Any,
        choose: Choose,
        keys: torch.Tensor,
        wanted: dict[int, list[int]],
        kind: str,
    ) -> None:
        super().__init__(past, padding, choose, KeyChoice(None), exact=True)
        self._places, self._wanted, self._kind = keys, wanted, kind
        #: For each layer float32 (B, n, R, K) twice: weights and even shares.
        self._found: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        #: For each layer how far off the proof is (a scalar on its device), and what is allowed.
        self._errors: dict[int, tuple[torch.Tensor, float]] = {}

    @property
    def layers(self) -> Iterable[int]:
        """The layers seen so far."""
        return self._found

    def take_call(self, site: AttentionSite, call: Call) -> None:
        """Compute the weights of one layer from a call of its attention kernel."""
        query, key, value = call.query.detach(), call.key.detach(), call.value.detach()
        batch, heads, queries, width = query.shape
        plans = self._ready(batch, queries)
        wanted = self._wanted[site.layer]
        if not plans.rows.height:
            self._nothing(site.layer, batch, query.device)
            return
        index = self._on(plans, query.device)
        plan = plans.of(call, index)
        chosen = torch.tensor(wanted, device=query.device)
        sink = call.options.get("s_aux")
        with torch.no_grad():
            rows = plans.rows.take(query, index)[:, chosen]
            result = softmax_of_chosen(
                rows,
                key,
                value,
                self._places.to(query.device) - plan.offset,
                wanted,
                heads,
                plan.blocks,
                scale=width**-0.5 if plan.scale is None else plan.scale,
                softcap=plan.softcap,
                sink=None if sink is None else sink.detach().reshape(-1)[chosen],
            )
            self._errors[site.layer] = self._compare(result, call, index, chosen)
        self._found[site.layer] = (result.weights, result.uniform)

    def take_weights(self, site: AttentionSite, weights: torch.Tensor) -> None:
        """Take the weights of one layer from all of its attention weights (B, H, T, S)."""
        weights = weights.detach()
        batch, _, queries, keys = weights.shape
        plans = self._ready(batch, queries)
        if not plans.rows.height:
            self._nothing(site.layer, batch, weights.device)
            return
        index = self._on(plans, weights.device)
        wanted = self._wanted[site.layer]
        chosen = torch.tensor(wanted, device=weights.device)
        visible = self.visible(site, weights, index)
        lines = plans.rows.take(weights[:, chosen], index).float()
        lines = lines * visible[:, None]
        seen = visible.sum(dim=-1)
        off = (lines.sum(dim=-1) - 1.0).abs() * (seen > 0)[:, None]
        tolerance = 1e-4 if weights.dtype == torch.float32 else 2e-2
        self._errors[site.layer] = (off.max(), tolerance)
        places = self._places.to(weights.device)
        inside = ((places >= 0) & (places < keys))[:, None, None]
        where = places.clamp(0, keys - 1)[:, None, None]
        shape = (*lines.shape[:3], -1)
        taken = lines.gather(-1, where.expand(shape)) * inside
        even = visible.float() / seen.clamp(min=1)[..., None]
        even = even[:, None].expand_as(lines).gather(-1, where.expand(shape)) * inside
        self._found[site.layer] = (taken, even)

    def prove(self) -> None:
        """InputError where the weights do not explain what the model computed."""
        for layer, (error, tolerance) in self._errors.items():
            off = float(error)
            if not off <= tolerance:  # also not-a-number
                raise InputError(
                    f"{self._kind} does something to the attention scores of layer {layer} that "
                    f"headscope does not know: weights computed from queries and keys are off by "
                    f"{off:.2g} (allowed {tolerance:.2g}) from what its attention gave; load it "
                    'with attn_implementation="sdpa" or "eager" in float32, or use another model.'
                )

    def collect(self, heads: Sequence[Head]) -> WeightStep:
        """All rows of the pass, heads in the order asked for."""
        device = self._found[heads[0].layer][0].device
        places = {
            Head(layer, head): (layer, at)
            for layer, own in self._wanted.items()
            for at, head in enumerate(own)
        }
        # One tensor (B, R, n, K) a layer, on one device, then one head after the other.
        parts = []
        for kind in (0, 1):
            layers = {layer: both[kind].to(device) for layer, both in self._found.items()}
            own = [layers[layer][:, at] for layer, at in (places[head] for head in heads)]
            parts.append(torch.stack(own, dim=2))
        return WeightStep(*self.valid(self.places(), *parts))

    def _compare(
        self, result: Chosen, call: Call, index: torch.Tensor, chosen: torch.Tensor
    ) -> tuple[torch.Tensor, float]:
        """Size of weights × values less the kernel's output, as a share of the output's size."""
        given = call.output.detach()
        batch, heads, queries, _ = call.query.shape
        shape = (batch, queries, heads, result.output.shape[-1])
        if tuple(given.shape) != shape:
            raise InputError(
                f"{self._kind}: its attention gives a tensor of shape {tuple(given.shape)} where "
                f"{shape} was expected, so attention weights cannot be checked; load it with "
                'attn_implementation="sdpa" or "eager".'
            )
        own = self._ready(batch, queries).rows.take(given.transpose(1, 2), index)[:, chosen].float()
        # Rows that see nothing are padding, for which kernels give whatever they like.
        seeing = (result.output != 0).any(dim=-1, keepdim=True)
        off = ((result.output - own) * seeing).square().sum()
        size = (own * seeing).square().sum().clamp_min(torch.finfo(torch.float32).tiny)
        tolerance = _TOLERANCE.get(call.query.dtype, _TOLERANCE_OF_HALVES)
        return (off / size).sqrt(), tolerance

    def _nothing(self, layer: int, batch: int, device: torch.device) -> None:
        empty = torch.zeros(
            (batch, len(self._wanted[layer]), 0, self._places.shape[1]), device=device
        )
        self._found[layer] = (empty, empty)

    def _check(self, batch: int) -> None:
        if self._places.shape[0] != batch:
            raise InputError(
                f"keys of a weight request has {self._places.shape[0]} rows but the forward pass "
                f"has {batch}; give one a row (beam search expands the batch)."
            )
