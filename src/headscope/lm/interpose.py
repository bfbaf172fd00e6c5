"""Standing between models and their attention kernels: to watch calls, or to change their queries.

Models look their kernel up anew in every call, in a table of ``transformers``.  While somebody
stands there, that look-up returns the very kernel it would have returned, wrapped: the wrapper
calls it and then, only for modules that are watched, tells the watchers.  No name in the table
changes, no configuration is touched, and the look-up is put back when the last one leaves.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import nn

from headscope.lm.owners import interposing


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Call:
    """One call of an attention kernel.

    Attributes:
        implementation: name of the kernel, such as ``"sdpa"``.
        query: (B, H, T, D).
        key: (B, G, S, D), with whatever a cache had put before the new keys.
        value: (B, G, S, V), the values of those keys.
        output: (B, T, H, V), what the kernel gave: for each head A·V.
        mask: what the kernel was given as a mask.
        options: the call's other keyword arguments (``scaling``, ``softcap``, ``sliding_window``…).
        causal: whether the kernel is causal where the mask does not say.
    """

    implementation: str
    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    output: torch.Tensor
    mask: Any
    options: Mapping[str, Any]
    causal: bool


Watcher = Callable[[nn.Module, Call], None]
#: From a module and its queries (B, H, T, D) to the queries that the kernel is given instead.
Change = Callable[[nn.Module, torch.Tensor], torch.Tensor]

_lock = threading.Lock()
_watchers: dict[nn.Module, list[Watcher]] = {}
_changes: dict[nn.Module, list[Change]] = {}
#: Tables whose look-up is wrapped: the table, how many stand there, and its own ``get_interface``.
_wrapped: dict[int, tuple[Any, int, Any]] = {}


def _tables(modules: Sequence[nn.Module]) -> list[Any]:
    """The tables of kernels that these modules look into; a model's file may hold its own."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    tables = {id(ALL_ATTENTION_FUNCTIONS): ALL_ATTENTION_FUNCTIONS}
    for module in modules:
        for kind in type(module).__mro__:
            file = sys.modules.get(kind.__module__)
            table = getattr(file, "ALL_ATTENTION_FUNCTIONS", None)
            if table is not None and hasattr(table, "get_interface"):
                tables[id(table)] = table
    return list(tables.values())


def _observed(implementation: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
    """``kernel`` with changed queries where somebody changes them, which tells the watchers."""

    @functools.wraps(kernel)
    def wrapper(
        module: nn.Module, query: Any, key: Any, value: Any, *args: Any, **kwargs: Any
    ) -> Any:
        for change in tuple(_changes.get(module, ())):
            query = change(module, query)
        result = kernel(module, query, key, value, *args, **kwargs)
        watchers = _watchers.get(module)
        if watchers:
            mask = args[0] if args else kwargs.get("attention_mask")
            causal = kwargs.get("is_causal")
            if causal is None:
                causal = getattr(module, "is_causal", True)
            output = result[0] if isinstance(result, tuple) else result
            call = Call(
                implementation=implementation,
                query=query,
                key=key,
                value=value,
                output=output,
                mask=mask,
                options=kwargs,
                causal=bool(causal),
            )
            for watcher in tuple(watchers):
                watcher(module, call)
        return result

    return wrapper


def _enter(table: Any) -> None:
    _, count, own = _wrapped.get(id(table), (table, 0, vars(table).get("get_interface")))
    _wrapped[id(table)] = table, count + 1, own
    if count:
        return
    look_up = table.get_interface

    def get_interface(attn_implementation: str, default: Callable[..., Any]) -> Callable[..., Any]:
        return _observed(str(attn_implementation), look_up(attn_implementation, default))

    table.get_interface = get_interface


def _leave(table: Any) -> None:
    _, count, own = _wrapped.pop(id(table))
    if count > 1:
        _wrapped[id(table)] = table, count - 1, own
    elif own is None:
        del table.get_interface
    else:
        table.get_interface = own


def stands_at(module: nn.Module) -> bool:
    """Whether somebody watches the calls of a module, or changes its queries."""
    return module in _watchers or module in _changes


@contextlib.contextmanager
def observing(model: nn.Module, modules: Sequence[nn.Module], watcher: Watcher) -> Iterator[None]:
    """Tell ``watcher`` of every call of an attention kernel by one of a model's ``modules``.

    It is called after the kernel, with the module and the :class:`Call`, whose queries are those
    the kernel was given.
    """
    with interposing(model), _standing(modules, _watchers, watcher):
        yield


@contextlib.contextmanager
def changing_queries(
    model: nn.Module, modules: Sequence[nn.Module], change: Change
) -> Iterator[None]:
    """Give the attention kernels of a model's ``modules`` other queries, inside the context.

    Of several changes the outermost context's comes first.
    """
    with interposing(model), _standing(modules, _changes, change):
        yield


_Anyone = TypeVar("_Anyone", Watcher, Change)


@contextlib.contextmanager
def _standing(
    modules: Sequence[nn.Module], places: dict[nn.Module, list[_Anyone]], own: _Anyone
) -> Iterator[None]:
    tables = _tables(modules)
    with _lock:
        for table in tables:
            _enter(table)
        for module in modules:
            places.setdefault(module, []).append(own)
    try:
        yield
    finally:
        with _lock:
            for module in modules:
                # By identity: bound methods of two recorders may be equal, their contexts not.
                rest = [place for place in places[module] if place is not own]
                if rest:
                    places[module] = rest
                else:
                    del places[module]
            for table in reversed(tables):
                _leave(table)
