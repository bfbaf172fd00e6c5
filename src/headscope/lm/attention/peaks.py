"""Peaks: the key on which each head's attention is largest, for chosen query rows.

Attention matrices are never formed for this.  While a context of :func:`attention_peaks` is open,
the model's attention kernel is called through a thin wrapper that lets it do its work unchanged and
then takes the arg max of the query-key products for the chosen rows alone, under the very mask the
kernel was given.  What is kept is one int32 for each chosen row, layer and head.

Architectures that compute attention outside the shared table of kernels (Bloom, Falcon, MPT, XGLM)
are noticed by a probe; their modules return the attention weights, whose arg max is taken instead.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

from headscope.heads import Geometry
from headscope.lm.attention.plans import Plans, columns_of
from headscope.lm.attention.recording import Began, Pass, RowChoice, check_request, recording
from headscope.lm.attention.scores import largest
from headscope.lm.geometry import AttentionSite
from headscope.lm.interpose import Call

if TYPE_CHECKING:
    from headscope.lm.model import LanguageModel


@dataclasses.dataclass(frozen=True, eq=False)
class PeakRequest:
    """Which query rows to record, and over which keys the largest is sought.

    Attributes:
        rows: bool (B, T), the queries of each forward pass, true where wanted; or ``"all"``; or
            ``"last"``, the last query of each call, which during ``generate()`` is the one that
            predicts the next token, in the prefill and in every step after it.
        keys: bool (B, S), which keys count, by their place in the padded sequence; places beyond S
            do not.  ``None``: every key the query sees.
    """

    rows: RowChoice = "all"
    keys: torch.Tensor | None = None

    def __post_init__(self) -> None:
        check_request("peak", self.rows, self.keys, torch.bool)


@dataclasses.dataclass(frozen=True, eq=False)
class PeakStep:
    """The peaks of one forward pass.

    Attributes:
        rows: int64 (R, 2) on the CPU: batch row, and place in the padded sequence, of each query.
        keys: int32 (R, L, W) on the model's device: place in the padded sequence of the key with
            the largest weight, for each layer and head; -1 where no allowed key is seen, no such
            head exists, or the key is one of prefix tuning (PEFT), which no text has.
    """

    rows: torch.Tensor
    keys: torch.Tensor


class Peaks:
    """What a context recorded: one :class:`PeakStep` for each forward pass, in order."""

    def __init__(self, geometry: Geometry) -> None:
        self.geometry = geometry
        self.steps: list[PeakStep] = []

    @property
    def rows(self) -> torch.Tensor:
        """int64 (R, 2), the rows of all steps one after another."""
        none = torch.zeros((0, 2), dtype=torch.long)
        return torch.cat([step.rows for step in self.steps] or [none])

    @property
    def keys(self) -> torch.Tensor:
        """int32 (R, L, W), the keys of all steps one after another."""
        if len(self.steps) == 1:
            return self.steps[0].keys
        none = torch.zeros((0, *self.geometry.shape), dtype=torch.int32)
        return torch.cat([step.keys for step in self.steps] or [none])


@contextlib.contextmanager
def attention_peaks(
    lm: LanguageModel, request: PeakRequest | None = None, stop: bool = False
) -> Iterator[Peaks]:
    """Record peaks of every forward pass of a model inside the context; by default of all rows.

    Contexts nest, with each other and with gates; what was there before is restored at the end,
    also after an exception. Other models, and this one's outputs, are left alone. A forward pass
    that raises leaves no step, and attention that gradient checkpointing computes once more in a
    backward pass is not recorded. With `stop` the first pass ends when all is recorded, and with it
    the block. Raises `InputError` if the model hides its attention, or the request does not fit a
    forward pass.
    """
    wanted = request or PeakRequest()
    peaks = Peaks(lm.geometry)
    with recording(
        lm,
        {site.layer for site in lm.sites},
        lambda began: _PeakPass(began, wanted.rows, wanted.keys),
        lambda done: peaks.steps.append(done.step(lm.geometry)),
        stop,
    ):
        yield peaks


class _PeakPass(Pass):
    """Peaks of one forward pass; of each layer int64 (B, H, R), places in the padded sequence."""

    what, exact = "peak", False

    def __init__(self, began: Began, rows: RowChoice, keys: torch.Tensor | None) -> None:
        super().__init__(began, rows, keys)
        if keys is not None and self.virtual:
            none = keys.new_zeros((len(keys), self.virtual))
            self.keys = torch.cat([none, keys], dim=1)

    def of_call(self, site: AttentionSite, call: Call, plans: Plans) -> tuple[torch.Tensor, ...]:
        query, plan = call.query, plans.of(call)
        rows = plans.rows.take(query, plans.index(query.device))
        places = largest(rows, call.key, plan.blocks, scale=plan.scale, softcap=plan.softcap)
        return (torch.where(places >= 0, places + plan.offset, places),)

    def of_weights(
        self, site: AttentionSite, lines: torch.Tensor, visible: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        if self.keys is not None:
            counting = columns_of(self.keys.to(visible.device), 0, visible.shape[-1])
            visible = visible & counting[:, None]
        values, places = lines.float().masked_fill(~visible[:, None], -1.0).max(dim=-1)
        return (places.masked_fill_(values < 0, -1),)

    def of_no_rows(self, site: AttentionSite, like: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (like.new_zeros((len(like), site.heads, 0), dtype=torch.long),)

    def step(self, geometry: Geometry) -> PeakStep:
        """All rows of the pass."""
        first = next(iter(self.found.values()))[0]
        shape = (first.shape[0], first.shape[2], *geometry.shape)
        peaks = torch.full(shape, -1, dtype=torch.int32, device=first.device)
        for layer, (places,) in self.found.items():
            places = (places - self.virtual).clamp(min=-1)
            peaks[:, :, layer, : places.shape[1]] = places.transpose(1, 2).to(
                peaks.device, torch.int32
            )
        return PeakStep(*self.collect(peaks))
