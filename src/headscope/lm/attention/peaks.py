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
from typing import TYPE_CHECKING, Any, Literal

import torch

from headscope.errors import InputError
from headscope.heads import Geometry
from headscope.lm.attention.passes import Choose, PeakPass
from headscope.lm.attention.plans import KeyChoice
from headscope.lm.attention.recording import Recorder, check_rows, recording

if TYPE_CHECKING:
    from headscope.lm.model import LanguageModel


@dataclasses.dataclass(frozen=True, eq=False)
class PeakRequest:
    """Which query rows to record, and over which keys the largest is sought.

    Attributes:
        rows: bool (B, T), the queries of each forward pass, true where wanted; or ``"all"``; or
            ``"last"``, the last query of each call, which during ``generate()`` is the one that
            predicts the next token, in the prefill and in every step after it.
        keys: which keys count, by their place in the padded sequence: bool (B, S), where places
            beyond S do not count; or an integer tensor (B, 2) of spans, first place and the one
            after the last.  ``None``: every key the query sees.
    """

    rows: torch.Tensor | Literal["last", "all"] = "all"
    keys: torch.Tensor | None = None

    def __post_init__(self) -> None:
        check_rows("peak", self.rows)
        keys = self.keys
        if keys is not None:
            spans = not keys.is_floating_point() and keys.dtype != torch.bool
            if keys.dim() != 2 or keys.is_floating_point() or (spans and keys.shape[1] != 2):
                raise InputError(
                    f"keys of a peak request is a {keys.dtype} tensor of shape "
                    f"{tuple(keys.shape)}; it must be bool (batch, keys) or integer (batch, 2)."
                )


@dataclasses.dataclass(frozen=True, eq=False)
class PeakStep:
    """The peaks of one forward pass.

    Attributes:
        rows: int64 (R, 2) on the CPU: batch row, and place in the padded sequence, of each query.
        keys: int32 (R, L, W) on the model's device: place in the padded sequence of the key with
            the largest weight, for each layer and head; -1 where no allowed key is seen or no such
            head exists.
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
        if not self.steps:
            return torch.zeros((0, 2), dtype=torch.long)
        return torch.cat([step.rows for step in self.steps])

    @property
    def keys(self) -> torch.Tensor:
        """int32 (R, L, W), the keys of all steps one after another."""
        if not self.steps:
            return torch.zeros((0, self.geometry.layers, self.geometry.width), dtype=torch.int32)
        if len(self.steps) == 1:
            return self.steps[0].keys
        return torch.cat([step.keys for step in self.steps])


@contextlib.contextmanager
def attention_peaks(lm: LanguageModel, request: PeakRequest | None = None) -> Iterator[Peaks]:
    """Record peaks of every forward pass of a model inside the context.

    Contexts nest, with each other and with gates; what was there before is restored at the end,
    also after an exception.  Other models, and this one's outputs, are left alone.  A forward pass
    that raises leaves no step, and attention that gradient checkpointing computes once more in a
    backward pass is not recorded.

    Args:
        lm: the model.
        request: rows and keys, for every forward pass inside the context; by default all.

    Yields:
        What was recorded; it fills as forward passes end.

    Raises:
        InputError: if the model hides its attention, or the request does not fit a forward pass.
    """
    request = request or PeakRequest()
    peaks = Peaks(lm.geometry)

    def begin(past: int, padding: Any, choose: Choose) -> PeakPass:
        return PeakPass(past, padding, choose, KeyChoice(request.keys))

    def end(done: PeakPass) -> None:
        peaks.steps.append(PeakStep(*done.collect(lm.geometry.layers, lm.geometry.width)))

    with recording(lm, Recorder("peak", lm.sites, request.rows, begin, end)):
        yield peaks
