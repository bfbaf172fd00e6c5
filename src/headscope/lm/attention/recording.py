"""Following the attention of a model through forward passes: the context behind peaks and weights.

A :class:`Recorder` turns what happens during forward passes into results; :func:`recording` puts it
in place and takes it away again.  What is kept of each pass is the business of a
:class:`~headscope.lm.attention.passes.Pass`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import nn

from headscope.errors import InputError
from headscope.lm.attention.argmax import Rows
from headscope.lm.attention.interpose import Call, observing
from headscope.lm.attention.passes import Choose, Pass
from headscope.lm.geometry import AttentionSite
from headscope.lm.inputs import evaluating, forward_inputs, probe_batch

if TYPE_CHECKING:
    from headscope.lm.model import LanguageModel

#: Queries of each forward pass: bool (B, T), or the last of each call, or all.
RowChoice = torch.Tensor | Literal["last", "all"]

#: How a model's attention is seen: at its attention function, or in the weights it returns.
Way = Literal["function", "weights"]
_WAYS: WeakKeyDictionary[nn.Module, dict[str, Way]] = WeakKeyDictionary()


def _implementation(model: Any) -> str:
    return str(getattr(model.config.get_text_config(decoder=True), "_attn_implementation", None))


def capture_way(lm: LanguageModel) -> Way:
    """Find out, with one small forward pass, how its attention can be seen from a model.

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
        if weights_of(output, site) is not None:
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


def weights_of(output: Any, site: AttentionSite) -> torch.Tensor | None:
    """The attention weights (B, H, T, S) among what an attention module returned."""
    if not isinstance(output, tuple):
        return None
    for part in output[1:]:
        if isinstance(part, torch.Tensor) and part.dim() == 4 and part.shape[1] == site.heads:
            return part
    return None


def check_rows(what: str, rows: RowChoice) -> None:
    """InputError unless ``rows`` of a request for ``what`` can be a choice of rows."""
    if isinstance(rows, str):
        if rows not in ("last", "all"):
            raise InputError(
                f'rows of a {what} request is {rows!r}; use "last", "all" or a bool tensor.'
            )
    elif rows.dtype != torch.bool or rows.dim() != 2:
        raise InputError(
            f"rows of a {what} request is a {rows.dtype} tensor of shape "
            f"{tuple(rows.shape)}; it must be bool of shape (batch, queries)."
        )


P = TypeVar("P", bound=Pass)


class Recorder(Generic[P]):
    """Turns what happens during forward passes into results.

    Args:
        what: ``"peak"`` or ``"weight"``, for messages.
        sites: the layers to follow.
        rows: the queries to look at.
        begin: makes the pass, from the tokens in the cache, the attention mask and the rows.
        end: keeps what a finished pass found.
    """

    def __init__(
        self,
        what: str,
        sites: Sequence[AttentionSite],
        rows: RowChoice,
        begin: Callable[[int, Any, Choose], P],
        end: Callable[[P], None],
    ) -> None:
        self.sites = {site.attention: site for site in sites}
        self._what, self._rows = what, rows
        self._begin, self._end = begin, end
        self._pass: P | None = None

    def begin(self, module: nn.Module, args: Any, kwargs: Mapping[str, Any]) -> None:
        past, queries, padding = Pass.read(module, args, kwargs)
        self._pass = self._begin(past, padding, self._choose)
        self._pass.queries = queries

    def on_call(self, module: nn.Module, call: Call) -> None:
        # No pass is under way when checkpointing recomputes a layer for the backward pass.
        if self._pass is not None:
            self._pass.take_call(self.sites[module], call)

    def on_weights(self, module: nn.Module, args: Any, output: Any) -> None:
        site = self.sites[module]
        weights = weights_of(output, site)
        if self._pass is not None and weights is not None:
            self._pass.take_weights(site, weights)

    def end(self, module: nn.Module, args: Any, output: Any) -> None:
        done, self._pass = self._pass, None
        # Called after an exception too, then without an output.
        if done is None or output is None:
            return
        missing = [site.layer for site in self.sites.values() if site.layer not in done.layers]
        if missing:
            raise InputError(
                f"attention {self._what}s saw no attention in layers {missing} of a forward pass; "
                "a compiled model hides it: use the model uncompiled (generate: disable_compile)."
            )
        self._end(done)

    def _choose(self, batch: int, queries: int) -> Rows:
        rows = self._rows
        if isinstance(rows, str):
            mask = torch.zeros((batch, queries), dtype=torch.bool)
            mask[:, -1 if rows == "last" else slice(None)] = True
            return Rows.of_mask(mask)
        if tuple(rows.shape) != (batch, queries):
            raise InputError(
                f"rows of a {self._what} request has shape {tuple(rows.shape)} but the forward "
                f'pass has {batch} rows of {queries} queries; for generation use rows="last".'
            )
        return Rows.of_mask(rows.cpu())


@contextlib.contextmanager
def recording(lm: LanguageModel, recorder: Recorder[Any]) -> Iterator[None]:
    """Let ``recorder`` follow every forward pass of a model inside the context.

    Raises:
        InputError: if the model hides its attention.
    """
    way = capture_way(lm)
    with contextlib.ExitStack() as stack:
        if way == "function":
            stack.enter_context(observing(list(recorder.sites), recorder.on_call))
        else:
            for attention in recorder.sites:
                handle = attention.register_forward_hook(recorder.on_weights)
                stack.callback(handle.remove)
        # The module that holds the list of decoder layers: every forward pass enters it, with the
        # cache, also one that goes round the language model head.
        decoder = lm.model.get_submodule(lm.layers_name.rpartition(".")[0])
        before = decoder.register_forward_pre_hook(recorder.begin, with_kwargs=True)
        stack.callback(before.remove)
        after = decoder.register_forward_hook(recorder.end, always_call=True)
        stack.callback(after.remove)
        yield
