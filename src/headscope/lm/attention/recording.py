"""Following the attention of a model through forward passes: the context behind peaks and weights.

:func:`recording` sees every pass and every call of an attention kernel in it; a :class:`Pass` knows
one forward pass, its rows and its place in the sequence; what is kept of it is for its subclasses
in `peaks` and `weights` to say.
"""

from __future__ import annotations

import abc
import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

import torch
from torch import nn

from headscope.errors import InputError
from headscope.lm.attention.plans import Mask, Plans, Rows, columns_of
from headscope.lm.geometry import AttentionSite
from headscope.lm.hooks import ended_early, hooked, kernel_name, once_a_model
from headscope.lm.inputs import probe_pass
from headscope.lm.interpose import Call, observing
from headscope.lm.owners import interposing, virtual_tokens
from headscope.lm.shards import whole, whole_call

if TYPE_CHECKING:
    from headscope.lm.model import LanguageModel

#: Queries of each forward pass: bool (B, T), or the last of each call, or all.
RowChoice = torch.Tensor | Literal["last", "all"]

#: Tokens in the cache, positions (0: not known), attention mask, tokens of prefix tuning.
Began = tuple[int, int, Any, int]

#: How a model's attention is seen: at its attention function, or in the weights it returns.
Way = Literal["function", "weights"]


@once_a_model
def capture_way(lm: LanguageModel) -> Way:
    """Find out, with one small forward pass, how its attention can be seen from a model.

    Returns ``"function"`` if every layer's attention goes through the shared table of kernels and
    ``"weights"`` if every attention module returns its weights.  The answer is remembered. Raises
    `InputError` if neither holds for every layer.
    """
    sites = {site.attention: site for site in lm.sites}
    called: set[nn.Module] = set()
    returned: set[nn.Module] = set()

    def look(module: nn.Module, args: Any, output: Any) -> None:
        if weights_of(output, sites[module]) is not None:
            returned.add(module)

    with (
        observing(lm.model, list(sites), lambda module, call: called.add(module)),
        hooked(lm.model, (module.register_forward_hook(look) for module in sites)),
    ):
        probe_pass(lm)
    if called == set(sites):
        return "function"
    if returned == set(sites):
        return "weights"
    implementation = kernel_name(lm.model)
    missing = ", ".join(str(site.layer) for site in lm.sites if site.attention not in called)
    advice = (
        "use another architecture for attention peaks"
        if implementation == "eager"
        else 'load it with transformers and attn_implementation="eager", then wrap it with '
        "LanguageModel.wrap"
    )
    raise InputError(
        f"{type(lm.model).__name__} computes the attention of layers {missing} where it cannot "
        "be observed and returns no weights under "
        f"attn_implementation={implementation!r}; {advice}."
    )


def weights_of(output: Any, site: AttentionSite) -> torch.Tensor | None:
    """The attention weights (B, H, T, S) among what an attention module returned."""
    if not isinstance(output, tuple):
        return None
    for part in output[1:]:
        if isinstance(part, torch.Tensor) and part.dim() == 4 and part.shape[1] == site.heads:
            return part
    return None


def check_request(
    what: str, rows: RowChoice, keys: torch.Tensor | None, dtype: torch.dtype
) -> None:
    """InputError unless rows and keys of a request can be such: see `PeakRequest` and others."""
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
    if keys is not None and (keys.dim() != 2 or keys.dtype != dtype):
        raise InputError(
            f"keys of a {what} request is a {keys.dtype} tensor of shape {tuple(keys.shape)}; it "
            f"must be {dtype} of shape (batch, keys)."
        )


class Pass(abc.ABC):
    """What is known while one forward pass runs.

    ``began`` are the tokens in the cache, positions (0: not known) and attention mask that the
    decoder was called with, and how many of the tokens in the cache are those of prefix tuning,
    which have no place in the padded sequence; ``keys`` has a row for each of the batch, if any.

    Attributes:
        past: tokens in the cache, those of prefix tuning, ``virtual``, among them.
        what: ``"peak"`` or ``"weight"``, for messages.
        exact: whether scores are wanted as softmax takes them; `keys` then do not restrict them.
        found: for each layer what was taken of it, tensors with heads in their second and rows in
            their third dimension.
    """

    what: ClassVar[str]
    exact: ClassVar[bool]

    def __init__(self, began: Began, rows: RowChoice, keys: torch.Tensor | None) -> None:
        self.past, self._queries, self._padding, self.virtual = began
        self._rows, self.keys = rows, keys
        self.found: dict[int, tuple[torch.Tensor, ...]] = {}
        self._plans: Plans | None = None
        #: Plans of layers that compute only so many last positions.
        self._shorter: dict[int, Plans] = {}

    @abc.abstractmethod
    def of_call(self, site: AttentionSite, call: Call, plans: Plans) -> tuple[torch.Tensor, ...]:
        """What is wanted of one layer, from a call of its attention kernel."""

    @abc.abstractmethod
    def of_weights(
        self, site: AttentionSite, lines: torch.Tensor, visible: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """What is wanted of one layer, from its attention weights (B, H, R, S) and the keys seen,
        bool (B, R, S)."""

    @abc.abstractmethod
    def of_no_rows(self, site: AttentionSite, like: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """What is kept of one layer of a batch, on the device of ``like``, without any row."""

    def take(self, site: AttentionSite, seen: Call | torch.Tensor) -> None:
        """Take what is wanted of one layer, from a call of its attention kernel or from its
        attention weights (B, H, T, S)."""
        like = seen.query if isinstance(seen, Call) else seen.detach()
        plans = self.plans(int(like.shape[0]), int(like.shape[2]))
        with torch.no_grad():
            if not plans.rows.height:
                found = self.of_no_rows(site, like)
            elif isinstance(seen, Call) and site.mesh is not None:
                # Of shared heads peaks are small, and taken where the heads are.
                call = whole_call(seen, site.mesh) if self.exact else seen
                found = self.of_call(site, call, plans)
                if not self.exact:
                    found = tuple(whole(part, site.mesh, 1) for part in found)
            elif isinstance(seen, Call):
                found = self.of_call(site, seen, plans)
            else:
                index = plans.index(like.device)
                lines = plans.rows.take(like, index)
                found = self.of_weights(site, lines, self._visible(site, like, index))
        self.found[site.layer] = found

    def plans(self, batch: int, queries: int) -> Plans:
        """The plans of layers that compute so many positions."""
        if self._plans is None:
            if self.keys is not None and self.keys.shape[0] != batch:
                raise InputError(
                    f"keys of a {self.what} request has {self.keys.shape[0]} rows but the forward "
                    f"pass has {batch}; give one a row (beam search expands the batch)."
                )
            self._queries = self._queries or queries
            rows = self._choose(batch, self._queries)
            self._plans = Plans(rows, None if self.exact else self.keys, self.past, self.exact)
        if queries == self._queries:
            return self._plans
        # A model that is asked for few logits may leave the other positions out of upper layers.
        if queries not in self._shorter:
            self._shorter[queries] = self._plans.shorter(self._queries - queries)
        return self._shorter[queries]

    def _choose(self, batch: int, queries: int) -> Rows:
        rows = self._rows
        if isinstance(rows, str):
            mask = torch.zeros((batch, queries), dtype=torch.bool)
            mask[:, -1 if rows == "last" else slice(None)] = True
            return Rows.of_mask(mask)
        if tuple(rows.shape) != (batch, queries):
            raise InputError(
                f"rows of a {self.what} request has shape {tuple(rows.shape)} but the forward "
                f'pass has {batch} rows of {queries} queries; for generation use rows="last".'
            )
        return Rows.of_mask(rows.cpu())

    def _visible(
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
            whole = Mask(mask.to(device), "eager", queries, keys)
            return whole.decode(index, (0, keys)).allowed[:, 0]
        place = (index + self.past)[..., None]
        allowed = torch.arange(keys, device=device) <= place
        module: Any = site.attention
        if getattr(module, "attention_type", None) == "local":
            allowed &= torch.arange(keys, device=device) > place - module.config.window_size
        if mask is not None:
            allowed = allowed & columns_of(mask.to(device).bool(), 0, keys)[:, None]
        return allowed

    def collect(self, *parts: torch.Tensor) -> list[torch.Tensor]:
        """The rows of the pass, int64 (rows, 2) on the CPU: batch row, and place in the padded
        sequence; and tensors (B, R, …) as (rows, …), without the repeats that fill shorter batch
        rows."""
        assert self._plans is not None  # a layer was seen, hence rows were chosen
        rows = self._plans.rows
        numbers = torch.arange(len(rows.index))[:, None].expand_as(rows.index)
        where = torch.stack([numbers, rows.index + self.past - self.virtual], dim=-1)
        flat = [part.flatten(0, 1) for part in (where, *parts)]
        if bool(rows.valid.all()):
            return flat
        kept = rows.valid.reshape(-1).nonzero()[:, 0]
        return [part[kept.to(part.device)] for part in flat]


P = TypeVar("P", bound=Pass)


def _began(
    lm: LanguageModel, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Began:
    """What a decoder is about to be called with.

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
    return past, queries, given.get("attention_mask"), min(past, virtual_tokens(lm.model))


@contextlib.contextmanager
def recording(
    lm: LanguageModel,
    layers: set[int],
    begin: Callable[[Began], P],
    end: Callable[[P], None],
    stop: bool = False,
) -> Iterator[None]:
    """Follow the attention of some layers through every forward pass inside the context.

    ``begin`` makes the `Pass` of each of them, ``end`` keeps what it found. With ``stop`` the first
    pass ends when all layers are seen, and with it the block. Raises `InputError` if the model
    hides its attention.
    """
    sites = {site.attention: site for site in lm.sites if site.layer in layers}
    # None outside of passes, as when checkpointing recomputes a layer for the backward pass.
    current: P | None = None

    def enter(module: nn.Module, args: Any, kwargs: Mapping[str, Any]) -> None:
        nonlocal current
        current = begin(_began(lm, module, args, kwargs))

    def on_call(module: nn.Module, seen: Call | torch.Tensor | None) -> None:
        if current is None or seen is None:
            return
        current.take(sites[module], seen)
        if stop and current.found.keys() == layers:
            raise stopped

    def on_weights(module: nn.Module, args: Any, output: Any) -> None:
        on_call(module, weights_of(output, sites[module]))

    def leave(module: nn.Module, args: Any, output: Any) -> None:
        nonlocal current
        done, current = current, None
        if done is None:
            return
        missing = sorted(layers - done.found.keys())
        # Called after an exception too, then without an output.
        if output is None and (missing or not stop):
            return
        if missing:
            raise InputError(
                f"attention {done.what}s saw no attention in layers {missing} of a forward pass; "
                "a compiled model hides it: use the model uncompiled (generate: disable_compile)."
            )
        end(done)

    # Owned before the first question to the model, and until its last hook is gone.
    with ended_early() as stopped, interposing(lm.model), contextlib.ExitStack() as stack:
        if capture_way(lm) == "function":
            stack.enter_context(observing(lm.model, list(sites), on_call))
        else:
            hooks = (module.register_forward_hook(on_weights) for module in sites)
            stack.enter_context(hooked(lm.model, hooks))
        # Entered with the cache, also by a pass that goes round the language model head.
        stack.enter_context(lm.decoder.register_forward_pre_hook(enter, with_kwargs=True))
        stack.enter_context(lm.decoder.register_forward_hook(leave, always_call=True))
        yield
