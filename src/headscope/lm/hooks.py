"""Hooks and forwards that a model's modules have inside a context alone, which owns the model."""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

import torch
from torch import nn

from headscope.lm.owners import guarded, interposing, opened, owned

if TYPE_CHECKING:
    from headscope.lm.model import LanguageModel

T = TypeVar("T")
P = ParamSpec("P")
Forward = Callable[..., Any]


def text_config(model: Any) -> Any:
    """The configuration of a model's decoder of text."""
    return model.config.get_text_config(decoder=True)


def kernel_name(model: Any) -> str:
    """The attention implementation that a model runs with, such as ``sdpa``."""
    return str(getattr(text_config(model), "_attn_implementation", None))


def once_a_model(find: Callable[P, T]) -> Callable[P, T]:
    """Remember what a function finds out about its first argument, a model, under each attention
    implementation and for what else it is given."""
    known: weakref.WeakKeyDictionary[nn.Module, dict[Any, T]] = weakref.WeakKeyDictionary()

    @functools.wraps(find)
    def remembered(*args: P.args, **kwargs: P.kwargs) -> T:
        model = cast("LanguageModel", args[0]).model
        found, key = known.setdefault(model, {}), (kernel_name(model), args[1:], *kwargs.items())
        if key not in found:
            with owned(model):
                if key not in found:  # by a thread that had the model meanwhile
                    found[key] = find(*args, **kwargs)
        return found[key]

    return remembered


def outermost(
    context: Callable[[nn.Module], contextlib.AbstractContextManager[None]],
) -> Callable[[nn.Module], contextlib.AbstractContextManager[None]]:
    """Let a context that owns its model be entered inside itself, where it does nothing more.

    Entering one goes through all of a model's modules or parameters, which takes as long as a
    layer of a small model, so loops of passes enter it once around them.
    """
    entered: weakref.WeakSet[nn.Module] = weakref.WeakSet()

    @functools.wraps(context)
    @contextlib.contextmanager
    def once(model: nn.Module) -> Iterator[None]:
        with owned(model):
            if model in entered:
                yield
                return
            with context(model):
                entered.add(model)
                try:
                    yield
                finally:
                    entered.discard(model)

    return once


@contextlib.contextmanager
def hooked(
    model: nn.Module, handles: Iterable[contextlib.AbstractContextManager[Any]]
) -> Iterator[None]:
    """Hooks of a model (the handles that registering them gives, which an iterator does when the
    model is owned) that are there inside the context alone."""
    with opened(model), contextlib.ExitStack() as stack:
        entered = [stack.enter_context(handle) for handle in handles]
        if entered:  # a gate of ones needs none
            stack.enter_context(guarded(model))
        yield


class _Stopped(Exception):
    """Ends a pass of which nobody needs the rest; it never leaves `ended_early`."""


@contextlib.contextmanager
def ended_early() -> Iterator[Exception]:
    """An exception that ends the pass in which it is raised, and with it the block."""
    stopped = _Stopped()
    try:
        yield stopped
    except _Stopped as caught:
        if caught is not stopped:  # of a context around this one
            raise
        # Frames that hold it would hold the tensors of the pass until garbage is collected.
        caught.__traceback__ = None


@contextlib.contextmanager
def kept_output(model: nn.Module, module: nn.Module, stop: bool = False) -> Iterator[list[Any]]:
    """Keep what a model's module returns in the passes inside the context: a list of the last
    output.

    With ``stop`` the first pass ends right after the module, and with it the block.
    """
    outputs: list[Any] = []
    with ended_early() as stopped:

        def keep(_: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            outputs[:] = [output]
            if stop:
                raise stopped

        with hooked(model, map(module.register_forward_hook, [keep])):
            yield outputs


@contextlib.contextmanager
def replaced_forwards(
    model: nn.Module, modules: Sequence[nn.Module], replace: Callable[[Forward], Forward]
) -> Iterator[None]:
    """Let each of a model's ``modules`` run what ``replace`` makes of its ``forward``, inside the
    context.

    Every module gets its own back at the end, also after an exception, an instance's own
    ``forward`` (as placement over devices sets it) included.
    """
    with interposing(model), contextlib.ExitStack() as stack:
        for module in modules:
            if "forward" in vars(module):
                stack.callback(setattr, module, "forward", vars(module)["forward"])
            else:
                stack.callback(vars(module).pop, "forward", None)
            vars(module)["forward"] = replace(module.forward)
        yield


def changed_output(module: nn.Module, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """A hook by which a module returns ``change`` of its output, or of the first of several."""

    def hook(_: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        if isinstance(output, tuple):
            return (change(output[0]), *output[1:])
        return change(output)

    return module.register_forward_hook(hook)
