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
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch

from headscope.errors import InputError
from headscope.heads import Head
from headscope.lm.attention.plans import Plans
from headscope.lm.attention.recording import Began, Pass, RowChoice, check_request, recording
from headscope.lm.attention.scores import Chosen, softmax_of_chosen
from headscope.lm.batching import Batch
from headscope.lm.geometry import AttentionSite
from headscope.lm.inputs import evaluating
from headscope.lm.interpose import Call

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
        check_request("weight", self.rows, self.keys, torch.int64)
        if self.heads is not None and not self.heads:
            raise InputError("a weight request names no heads; name one, or None for all.")


@dataclasses.dataclass(frozen=True, eq=False)
class WeightStep:
    """The weights of one forward pass, for N heads and K keys.

    Attributes:
        rows: int64 (R, 2) on the CPU: batch row, and place in the padded sequence, of each query.
        weights: float32 (R, N, K) on the model's device: the softmax weights; 0 where the query
            does not see the key.
            Those of prefix tuning (PEFT) are no keys of the text; they take their share, so that a
            query's weights sum to less than 1.
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
def attention_weights(
    lm: LanguageModel, request: WeightRequest, stop: bool = False
) -> Iterator[Weights]:
    """Record the attention paid to chosen keys in every forward pass of a model in the context.

    Memory grows with rows × heads × chosen keys, never with rows × all keys. Contexts nest, with
    each other, with peaks and with gates; what was there before is restored at the end, also after
    an exception. A forward pass that raises leaves no step. With `stop` the first pass ends when
    all is recorded, and with it the block. Raises `InputError` if a head is not the model's; if the
    model hides its attention; if the request does not fit a forward pass; or if the weights do not
    explain what the kernel gave.
    """
    heads = tuple(lm.geometry.heads()) if request.heads is None else request.heads
    for head in heads:
        lm.geometry.check(head)
    layers: dict[int, list[int]] = {}
    for head in heads:
        layers.setdefault(head.layer, []).append(head.head)
    found = Weights(heads)

    def begin(began: Began) -> _WeightPass:
        return _WeightPass(began, request, layers, type(lm.model).__name__)

    def end(done: _WeightPass) -> None:
        done.prove()
        found.steps.append(done.step(heads))

    with recording(lm, set(layers), begin, end, stop):
        yield found


def weights_in(lm: LanguageModel, batch: Batch, request: WeightRequest) -> Weights:
    """What `attention_weights` records in one pass over a batch, in evaluation mode."""
    with evaluating(lm.model), torch.no_grad(), attention_weights(lm, request, stop=True) as found:
        lm.forward(batch, logits=False)
    return found


class _WeightPass(Pass):
    """Weights of one forward pass; ``wanted`` are the heads of each layer.

    Of each layer float32 (B, n, R, K) twice: weights and even shares.
    """

    what, exact = "weight", True

    def __init__(
        self,
        began: Began,
        request: WeightRequest,
        wanted: dict[int, list[int]],
        kind: str,
    ) -> None:
        super().__init__(began, request.rows, request.keys)
        self._places = torch.where(request.keys < 0, request.keys, request.keys + self.virtual)
        self._wanted, self._kind = wanted, kind
        #: For each layer how far off the proof is (a scalar on its device), and what is allowed.
        self._errors: dict[int, tuple[torch.Tensor, float]] = {}

    def of_call(self, site: AttentionSite, call: Call, plans: Plans) -> tuple[torch.Tensor, ...]:
        query, plan = call.query, plans.of(call)
        wanted = self._wanted[site.layer]
        chosen = torch.tensor(wanted, device=query.device)
        sink = call.options.get("s_aux")
        index = plans.index(query.device)
        result = softmax_of_chosen(
            plans.rows.take(query, index)[:, chosen],
            call.key,
            call.value,
            self._places.to(query.device) - plan.offset,
            wanted,
            query.shape[1],
            plan.blocks,
            scale=query.shape[3] ** -0.5 if plan.scale is None else plan.scale,
            softcap=plan.softcap,
            sink=None if sink is None else sink.reshape(-1)[chosen],
        )
        batch, heads, queries, _ = query.shape
        shape = (batch, queries, heads, result.output.shape[-1])
        if tuple(call.output.shape) != shape:
            raise InputError(
                f"{self._kind}: its attention gives a tensor of shape {tuple(call.output.shape)} "
                f"where {shape} was expected, so attention weights cannot be checked; load it with "
                'attn_implementation="sdpa" or "eager".'
            )
        given = plans.rows.take(call.output.transpose(1, 2), index)[:, chosen].float()
        tolerance = _TOLERANCE.get(query.dtype, _TOLERANCE_OF_HALVES)
        self._errors[site.layer] = _difference(result, given), tolerance
        return result.weights, result.uniform

    def of_weights(
        self, site: AttentionSite, lines: torch.Tensor, visible: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        half = lines.dtype != torch.float32
        lines = lines[:, self._wanted[site.layer]].float() * visible[:, None]
        seen = visible.sum(dim=-1)
        off = (lines.sum(dim=-1) - 1.0).abs() * (seen > 0)[:, None]
        self._errors[site.layer] = (off.max(), 2e-2 if half else 1e-4)
        places, keys = self._places.to(lines.device), lines.shape[-1]
        inside = ((places >= 0) & (places < keys))[:, None, None]
        where = places.clamp(0, keys - 1)[:, None, None].expand(*lines.shape[:3], -1)
        even = (visible.float() / seen.clamp(min=1)[..., None])[:, None].expand_as(lines)
        return lines.gather(-1, where) * inside, even.gather(-1, where) * inside

    def of_no_rows(self, site: AttentionSite, like: torch.Tensor) -> tuple[torch.Tensor, ...]:
        shape = (len(like), len(self._wanted[site.layer]), 0, self._places.shape[1])
        empty = torch.zeros(shape, device=like.device)
        return empty, empty

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

    def step(self, heads: Sequence[Head]) -> WeightStep:
        """All rows of the pass, heads in the order asked for."""
        device = self.found[heads[0].layer][0].device
        parts = []
        for kind in (0, 1):
            layers = {layer: both[kind].to(device) for layer, both in self.found.items()}
            own = [
                layers[head.layer][:, self._wanted[head.layer].index(head.head)] for head in heads
            ]
            parts.append(torch.stack(own, dim=2))
        return WeightStep(*self.collect(*parts))


def _difference(result: Chosen, given: torch.Tensor) -> torch.Tensor:
    """Size of weights × values less the kernel's output, as a share of the output's size."""
    # Rows that see nothing are padding, for which kernels give whatever they like.
    seeing = (result.output != 0).any(dim=-1, keepdim=True)
    off = ((result.output - given) * seeing).square().sum()
    size = (given * seeing).square().sum().clamp_min(torch.finfo(torch.float32).tiny)
    return (off / size).sqrt()
