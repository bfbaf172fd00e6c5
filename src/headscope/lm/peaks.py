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
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakKeyDictionary

import torch
from torch import nn

from headscope.errors import InputError
from headscope.heads import Geometry
from headscope.lm.argmax import Rows
from headscope.lm.geometry import AttentionSite
from headscope.lm.inputs import evaluating, forward_inputs, probe_batch
from headscope.lm.interpose import Call, observing
from headscope.lm.passes import Pass
from headscope.lm.plans import KeyChoice

if TYPE_CHECKING:
    from headscope.lm.model import LanguageModel

__all__ = ["PeakRequest", "PeakStep", "Peaks", "attention_peaks", "capture_way"]


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
        if isinstance(self.rows, str):
            if self.rows not in ("last", "all"):
                raise InputError(
                    f'rows of a peak request is {self.rows!r}; use "last", "all" or a bool tensor.'
                )
        elif self.rows.dtype != torch.bool or self.rows.dim() != 2:
            raise InputError(
                f"rows of a peak request is a {self.rows.dtype} tensor of shape "
                f"{tuple(self.rows.shape)}; it must be bool of shape (batch, queries)."
            )
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


#: How peaks are taken from a model: from its attention function, or from the weights it returns.
Way = Literal["function", "weights"]
_WAYS: WeakKeyDictionary[nn.Module, dict[str, Way]] = WeakKeyDictionary()


def _implementation(model: Any) -> str:
    return str(getattr(model.config.get_text_config(decoder=True), "_attn_implementation", None))


def capture_way(lm: LanguageModel) -> Way:
    """Find out, with one small forward pass, how peaks can be taken from a model.

    Returns ``"function"`` if every layer's attention goes through the shared table of kernels and
    ``"weights"`` if every attention module returns its weights.  The answer is remembered.

    Raises:
        InputError: if neither holds for every layer.
    """
    model, sites = lm.model, lm.sites
    known = _WAYS.setdefault(model, {})
    implementation = _implementation(model)
    if implementation in known:
        return known[implementation]
    called: set[int] = set()
    returned: set[int] = set()

    def count(site: AttentionSite) -> None:
        called.add(site.layer)

    def look(site: AttentionSite, output: Any) -> None:
        if _weights_of(output, site) is not None:
            returned.add(site.layer)

    with contextlib.ExitStack() as stack:
        by_module = {site.attention: site for site in sites}
        stack.enter_context(
            observing(list(by_module), lambda module, call: count(by_module[module]))
        )
        for site in sites:
            handle = site.attention.register_forward_hook(
                lambda module, args, output: look(by_module[module], output)
            )
            stack.callback(handle.remove)
        stack.enter_context(evaluating(model))
        stack.enter_context(torch.no_grad())
        model(**forward_inputs(model, probe_batch(model, lm.tokenizer_or_none)))
    layers = {site.layer for site in sites}
    if called == layers:
        known[implementation] = "function"
    elif returned == layers:
        known[implementation] = "weights"
    else:
        missing = ", ".join(str(layer) for layer in sorted(layers - called))
        advice = (
            "use another architecture for attention peaks"
            if implementation == "eager"
            else 'load it with transformers and attn_implementation="eager", then wrap it with '
            "LanguageModel.wrap"
        )
        raise InputError(
            f"{type(model).__name__} computes the attention of layers {missing} where it cannot be "
            f"observed and returns no weights under attn_implementation={implementation!r}; "
            f"{advice}."
        )
    return known[implementation]


def _weights_of(output: Any, site: AttentionSite) -> torch.Tensor | None:
    """The attention weights (B, H, T, S) among what an attention module returned."""
    if not isinstance(output, tuple):
        return None
    for part in output[1:]:
        if isinstance(part, torch.Tensor) and part.dim() == 4 and part.shape[1] == site.heads:
            return part
    return None


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
    way = capture_way(lm)
    recorder = _Recorder(Peaks(lm.geometry), request or PeakRequest(), lm.sites)
    with contextlib.ExitStack() as stack:
        if way == "function":
            stack.enter_context(observing(list(recorder.sites), recorder.on_call))
        else:
            for site in lm.sites:
                handle = site.attention.register_forward_hook(recorder.on_weights)
                stack.callback(handle.remove)
        decoder = _decoder(lm)
        before = decoder.register_forward_pre_hook(recorder.begin, with_kwargs=True)
        stack.callback(before.remove)
        after = decoder.register_forward_hook(recorder.end, always_call=True)
        stack.callback(after.remove)
        yield recorder.peaks


def _decoder(lm: LanguageModel) -> nn.Module:
    """The module that holds the list of decoder layers: every forward pass enters it, with the
    cache, also one that goes round the language model head."""
    parts = lm.sites[0].attention_name.split(".")
    place = next(at for at, part in enumerate(parts) if part.isdigit())
    decoder: nn.Module = lm.model.get_submodule(".".join(parts[: place - 1]))
    return decoder


class _Recorder:
    """Turns what happens during forward passes into steps."""

    def __init__(self, peaks: Peaks, request: PeakRequest, sites: Sequence[AttentionSite]) -> None:
        self.peaks = peaks
        self.request = request
        self.sites = {site.attention: site for site in sites}
        self._pass: Pass | None = None

    def begin(self, module: nn.Module, args: Any, kwargs: Mapping[str, Any]) -> None:
        self._pass = Pass.begin(module, args, kwargs, self._rows, KeyChoice(self.request.keys))

    def on_call(self, module: nn.Module, call: Call) -> None:
        # No pass is under way when checkpointing recomputes a layer for the backward pass.
        if self._pass is not None:
            self._pass.take_call(self.sites[module], call)

    def on_weights(self, module: nn.Module, args: Any, output: Any) -> None:
        site = self.sites[module]
        weights = _weights_of(output, site)
        if self._pass is not None and weights is not None:
            self._pass.take_weights(site, weights)

    def end(self, module: nn.Module, args: Any, output: Any) -> None:
        done, self._pass = self._pass, None
        # Called after an exception too, then without an output.
        if done is None or output is None:
            return
        missing = [site.layer for site in self.sites.values() if site.layer not in done.found]
        if missing:
            raise InputError(
                f"attention peaks saw no attention in layers {missing} of a forward pass; a "
                "compiled model hides it: use the model uncompiled (generate: disable_compile)."
            )
        geometry = self.peaks.geometry
        rows, keys = done.collect(geometry.layers, geometry.width)
        self.peaks.steps.append(PeakStep(rows, keys))

    def _rows(self, batch: int, queries: int) -> Rows:
        rows = self.request.rows
        if isinstance(rows, str):
            mask = torch.zeros((batch, queries), dtype=torch.bool)
            mask[:, -1 if rows == "last" else slice(None)] = True
            return Rows.of_mask(mask)
        if tuple(rows.shape) != (batch, queries):
            raise InputError(
                f"rows of a peak request has shape {tuple(rows.shape)} but the forward pass has "
                f'{batch} rows of {queries} queries; for generation use rows="last".'
            )
        return Rows.of_mask(rows.cpu())
