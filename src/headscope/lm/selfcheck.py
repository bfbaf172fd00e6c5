"""A model proves at load that its heads can be reached one by one, up to the noise of its passes.

A wrong guess about where heads are would not crash: it would give numbers that look like results.
So a few tokens go through the model before anything else does, and six laws must hold.

On a CPU repeated passes over the same tokens give equal bits. On a GPU sums by atomics, and routers
of experts after them, may not; a second way to the same logits then cannot be asked for equal bits
either, and is held to what plain passes do.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from transformers.utils import logging

from headscope.errors import InputError, out_of_memory
from headscope.lm.batching import Batch
from headscope.lm.gates import gated
from headscope.lm.geometry import AttentionSite
from headscope.lm.hooks import hooked
from headscope.lm.inputs import evaluating, generated, probe_batch
from headscope.lm.weights import is_plain

if TYPE_CHECKING:
    from headscope.lm.model import LanguageModel

#: What the bar of the longest part is called.
CHECKING = "Checking heads"
#: Plain passes by which noise is measured where two passes differ, and more before a refusal.
_PASSES, _MORE_PASSES = 3, 8
#: Layers whose heads are removed in one pass, in a row each: all that a model has, since the
#: weights of one that waits in memory or on disk are read anew for every pass.
_ROWS = 128
#: Noise, as `Noise.typical`, beyond which nothing can be measured; padding may do as much in bf16.
MOST_NOISE = 0.25

_ADVICE = (
    "headscope cannot be trusted with this model as it is loaded; try attn_implementation="
    '"sdpa" or "eager", float32, no quantisation and merged adapters, or use another model'
)


#: How many times the noise of plain passes a pass may lie apart from one of them.
_SLACK = 4


@dataclasses.dataclass(frozen=True)
class Noise:
    """The noise of plain passes, in standard deviations of the logits.

    Attributes:
        typical: the largest `typical_change` between two passes.
        largest: the largest change of any logit between two passes; 0 if all bits are equal.
    """

    typical: float = 0.0
    largest: float = 0.0

    @classmethod
    def of(cls, passes: Sequence[torch.Tensor]) -> Noise:
        """The noise between passes over the same tokens: logits (tokens, vocabulary) of each."""
        changes = [_changes(a, b) for a, b in itertools.combinations(passes, 2)]
        return cls(
            max(float(change.median()) for change in changes),
            max(float(change.max()) for change in changes),
        )

    def allowed(self, tolerance: float = 0.0) -> float:
        """The `typical_change` that noise explains, or ``tolerance`` if that is more."""
        return max(tolerance, _SLACK * self.typical)

    def explains(self, plain: torch.Tensor, other: torch.Tensor) -> bool:
        """Whether a pass gives the logits of a plain one: equal bits where there is no noise."""
        if torch.equal(plain, other):
            return True
        return self.largest > 0 and typical_change(plain, other) <= self.allowed()


def typical_change(a: torch.Tensor, b: torch.Tensor) -> float:
    """Typical change between two sets of logits (tokens, vocabulary), in standard deviations.

    The median over tokens: in low precision a router of experts may send a single token elsewhere.
    """
    return float(_changes(a, b).median())


def _changes(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    spread = a.float().std().clamp_min(torch.finfo(torch.float32).tiny)
    return (a.float() - b.float()).abs().amax(dim=-1) / spread


def _half(x: torch.Tensor) -> bool:
    return x.dtype in (torch.float16, torch.bfloat16)


def selfcheck(lm: LanguageModel) -> Noise:
    """How far plain passes lie apart, after the laws have held on short rows, padded on the left.

    1. Every output projection runs exactly once in a forward pass. 2. A gate of ones, really
    multiplied in, changes no bit of the logits. 3. The contributions of single heads, and the bias,
    sum to the projection's output. 4. Removing a layer's first head changes the logits (all heads,
    where the first writes nothing). 5. Later tokens do not change earlier logits, and padding on
    the left changes nothing. 6. Text generated with the model's own cache has the logits of one
    pass over it. Where plain passes do not repeat their bits, as on a GPU, "changes" means more
    than those do.

    Raises `InputError` naming the law that failed, where, and what to do.
    """
    with evaluating(lm.model), torch.no_grad():
        return _Check(lm).run()


class Proof(NamedTuple):
    """That the laws held: the noise of plain passes, and when it was measured (UTC)."""

    noise: Noise
    proved: str


def checked(lm: LanguageModel) -> Proof:
    """The proof of a model that passes the self-check now."""
    return Proof(selfcheck(lm), datetime.now(UTC).isoformat(timespec="seconds"))


class _Check:
    """The batch of one check, and what a plain pass makes of it."""

    def __init__(self, lm: LanguageModel) -> None:
        self.lm, self.noise = lm, Noise()
        self.batch = probe_batch(lm.model, lm.tokenizer_or_none)
        # Below it the first row once more with another last token: an ordinary one.
        rows, mask = self.batch.input_ids, self.batch.attention_mask
        changed = torch.cat([rows[:1, :-1], rows[1:, -1:]], dim=1)
        self.three = Batch.of(torch.cat([rows, changed]), torch.cat([mask, mask[:1]]))
        self.calls: dict[int, list[tuple[torch.Tensor, torch.Tensor]]] = {}
        with hooked(lm.model, (self._record(site) for site in lm.sites)):
            self.plain = self.logits(self.three)
        self.real = self.three.attention_mask.bool().to(self.plain.device)

    def _record(self, site: AttentionSite) -> Any:
        """Keep what enters and leaves an output projection, call by call."""
        calls = self.calls.setdefault(site.layer, [])
        return site.projection.register_forward_hook(
            lambda _, args, output: calls.append((args[0], output))
        )

    def failed(self, what: str) -> InputError:
        """The error that says what failed, and what to do."""
        return InputError(f"{type(self.lm.model).__name__}{what}; {_ADVICE}.")

    def logits(self, batch: Batch) -> torch.Tensor:
        """Logits (B, T, V); 0 on padding, where kernels may leave anything, not-a-number too."""
        logits: torch.Tensor = self.lm.forward(batch).logits
        padding = batch.attention_mask.to(logits.device) == 0
        return logits.masked_fill(padding.unsqueeze(-1), 0)

    def run(self) -> Noise:
        """The noise of the model, after all laws have held."""
        if not bool(torch.isfinite(self.plain).all()):
            raise InputError(
                f"{type(self.lm.model).__name__} computes logits that are not finite in "
                f"{self.lm.dtype}; check its weights, or load it in bfloat16 or float32."
            )
        for site in self.lm.sites:
            calls = len(self.calls[site.layer])
            if calls != 1:
                raise self.failed(
                    f": {site.projection_name!r} ran {calls} times in one forward pass instead of "
                    "once"
                )
        self.identity()
        # Half precision, or rounded inputs: LLM.int8() even chooses the channels that it does not
        # round by looking at the whole batch, so tokens do move each other.
        rough = _half(self.plain)
        writing: list[AttentionSite] = []
        for site in self.lm.sites:
            writes, rounds = self.sum(site)
            rough = rough or rounds
            writing += [site] if writes else []
        parts = [writing[at : at + _ROWS] for at in range(0, len(writing), _ROWS)]
        for part in logging.tqdm(parts or [[]], desc=CHECKING, leave=False):
            left = self.unmoved(part, 1, 0.0, rough)
            # In a noisy model the part of a layer may be less than the noise: then ten times that.
            for value in (0.0, -9.0):
                left = self.unmoved(left, None, value, rough) if left else left
            for site in left:
                self.removal(site)
        self.causal(0.1 if rough else 1e-3)
        self.cache(0.25 if rough else 1e-2)
        return self.noise

    def measure(self, count: int) -> None:
        """Measure the noise of so many passes."""
        more = (self.logits(self.three)[self.real] for _ in range(count - 1))
        self.noise = Noise.of([self.plain[self.real], *more])
        if self.noise.typical > MOST_NOISE:
            raise self.failed(
                " is not deterministic: passes over the same tokens differ by "
                f"{self.noise.typical:.3g} standard deviations of the logits"
            )

    def beyond(self, moved: float, tolerance: float) -> bool:
        """Whether a change is more than is allowed, and than noise that was not seen before."""
        if moved > self.noise.allowed(tolerance):
            self.measure(_MORE_PASSES)
        return moved > self.noise.allowed(tolerance)

    def identity(self) -> None:
        """Law 2. Where a gate of ones gives the very bits, passes do not differ either."""
        plain, ones = self.plain[self.real], torch.ones(self.lm.geometry.shape)
        with gated(self.lm, ones, skip_identity=False):
            same = self.logits(self.three)[self.real]
        for passes in (_PASSES, _PASSES + _MORE_PASSES):
            if self.noise.explains(plain, same):
                return
            self.measure(passes)
        if not self.noise.explains(plain, same):
            raise self.failed(
                ": a gate of ones changes the logits by up to "
                f"{float((plain - same).abs().max()):.3g}, more than repeated passes do, so "
                "its heads are not where they seem"
            )

    def sum(self, site: AttentionSite) -> tuple[bool, bool]:
        """Law 3 on the last tokens: whether any head writes anything, and whether the projection
        rounds what it reads."""
        x, output = (value[:, -1] for value in self.calls[site.layer][0])
        masks = torch.eye(site.heads, dtype=x.dtype, device=x.device)
        masks = masks.repeat_interleave(site.head_width, dim=1)
        alone = x.unsqueeze(0) * masks.unsqueeze(1)
        # In one call, for which weights that wait elsewhere are read: nothing, and each head alone.
        together = torch.cat([torch.zeros_like(x), alone.flatten(0, 1)]).unsqueeze(1)
        bias, *parts_and_bias = site.projection(together).float().squeeze(1).split(len(x))
        parts = torch.stack(parts_and_bias) - bias
        error = (parts.sum(dim=0) + bias - output.float()).abs()
        scale = float(parts.abs().sum(dim=0).max()) + float(bias.abs().max())
        writes = bool((parts != 0).any())
        tolerance = (2e-2 if _half(x) else 1e-4) * scale
        if float(error.max()) <= tolerance:
            return writes, False
        if not is_plain(site.projection) and bool(
            (error <= tolerance + _rounding(site, x, bias)).all()
        ):
            return writes, True
        raise self.failed(
            f": the heads of layer {site.layer} do not sum to the output of "
            f"{site.projection_name!r} (off by {float(error.max()):.3g} of {scale:.3g})"
        )

    def unmoved(
        self, sites: Sequence[AttentionSite], heads: int | None, value: float, rough: bool
    ) -> list[AttentionSite]:
        """Law 4 in one pass, a row a layer: the layers that moved their row by too little when the
        first heads (None: all) had a gate of this value.

        That is far more than rows of one batch differ by, or than rows without a gate. Those are
        the padded row without its padding: law 5, second half.
        """
        rows, padding = len(sites) + 2, self.batch.padding[1]  # the first and last have no gate
        gate = torch.ones(rows, *self.lm.geometry.shape)
        for row, site in enumerate(sites, 1):
            gate[row, site.layer, :heads] = value
        tokens = self.batch.input_ids[1:, padding:].repeat(rows, 1)
        with gated(self.lm, gate):
            plain, *removed, again = self.logits(Batch.of(tokens, torch.ones_like(tokens)))
        moved = typical_change(plain, self.plain[1, padding:])
        if self.beyond(moved, 0.25 if rough else 1e-2):
            raise self.failed(
                f": padding on the left changes the logits of a row (by {moved:.3g} standard "
                "deviations), so batches would be wrong"
            )
        least = self.noise.allowed(5e-2 if rough else 1e-4)
        least = max(least, _SLACK * typical_change(plain, again))
        changes = (typical_change(plain, row) for row in removed)
        return [site for site, change in zip(sites, changes, strict=True) if not change > least]

    def removal(self, site: AttentionSite) -> None:
        """Law 4 for a layer by itself, in whole passes."""
        for heads, value in ((1, 0.0), (site.heads, 0.0), (site.heads, -9.0)):
            gate = torch.ones(self.lm.geometry.shape)
            gate[site.layer, :heads] = value
            with gated(self.lm, gate):
                gone = self.logits(self.three)[self.real]
            if not self.noise.explains(self.plain[self.real], gone):
                return
        raise self.failed(
            f": removing all heads of layer {site.layer} changes no logit, although they write "
            f"something, so {site.projection_name!r} is not their way out"
        )

    def causal(self, tolerance: float) -> None:
        """Law 5, first half."""
        moved = typical_change(self.plain[0, :-1], self.plain[2, :-1])
        if self.beyond(moved, tolerance):
            raise InputError(
                f"{type(self.lm.model).__name__}: changing the last token changes earlier logits "
                f"(by {moved:.3g} standard deviations), so this is not a causal decoder; headscope "
                "needs a decoder language model, not an encoder or a prefix model."
            )

    def cache(self, tolerance: float) -> None:
        """Law 6 on the padded row; models that cannot generate say so when they are asked to."""
        try:
            made = generated(
                self.lm,
                self.batch,
                max_new_tokens=2,  # the second one by way of the cache
                do_sample=False,
                pad_token_id=0,
                output_logits=True,
                return_dict_in_generate=True,
            )
        except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
            if out_of_memory(error):  # a RuntimeError too, but it says nothing about the cache
                raise
            return
        new = made.sequences[:, self.batch.input_ids.shape[1] :]
        mask = torch.cat([self.batch.attention_mask.to(new), torch.ones_like(new)], dim=1)
        step = made.logits[-1][1:]
        there_again = self.logits(Batch.of(made.sequences, mask))[1, -2:-1].to(step.device)
        moved = typical_change(there_again, step)
        if self.beyond(moved, tolerance):
            raise self.failed(
                f": its own cache changes the logits of a padded row (by {moved:.3g} standard "
                "deviations from one pass over the whole text), so what it generates in batches "
                "would be wrong"
            )


def _rounding(site: AttentionSite, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """How far the parts of x (B, channels) may miss the whole if inputs are rounded to 8 bits.

    A quantised projection may round its input to 255 steps of m / 127, m the largest entry of the
    token.  The errors of channels are independent and at most half a step; so by Hoeffding's
    inequality their sum, weighted by row w of W_O, exceeds step * |w| * sqrt(ln(2 / p) / 2) with
    probability p, below 1e-12 for the factor 4.  The whole is rounded once and each part once, with
    no larger step: the error of their difference has twice the variance, hence sqrt(2).  |w| is
    taken from what the projection makes of 64 random signs, which need no rounding (within a
    quarter, so one more quarter is granted).
    """
    generator = torch.Generator().manual_seed(0)
    signs = torch.randint(0, 2, (64, 1, x.shape[-1]), generator=generator) * 2 - 1
    made = site.projection(signs.to(x.device, x.dtype)).float().squeeze(1) - bias[:1]
    norms = made.square().mean(dim=0).sqrt() * 1.25
    steps = x.float().abs().amax(dim=-1, keepdim=True) / 127
    allowed: torch.Tensor = 4 * math.sqrt(2) * steps * norms
    return allowed
