"""One thread at a time owns a model: in each of its passes here, while gates or recordings are open
on it, and for the whole of a study.

Hooks, modes and forwards belong to a model and not to a thread, so what one thread opens would act
in the passes of all. Others wait until they can have the model; a `Caution` says for whom. Where
the wait could not end they get one sentence instead. All that stands around one model of
`transformers` shares its owner: adapters, and several `LanguageModel`.

An owner is the code inside a block: the same thread may own the model again inside of it, and so
may what was started there with a copy of its context (`asyncio.to_thread`). Tasks of one event loop
are owners apart; a second one is refused at once, since waiting would stop the first one, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import selectors
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import nn

from headscope.errors import InputError, caution

AnyHook = TypeVar("AnyHook", bound=Callable[..., Any])

#: What a thread owns a model for, as messages say it.
PASSES, OPEN, STUDY = "passes", "open gates or recordings", "a study"
#: Seconds between two looks at an owner; until a word is said; and until nobody waits any longer
#: for one who has waited all the time for something else, as for the thread that waits here.
LOOK_EVERY, WORD_AFTER, IDLE_AFTER = 1.0, 5.0, 20.0
#: Where the frames of a thread stand that waits for another thread, or an event loop for events.
_WAITING_FILES = (threading.__file__, selectors.__file__)


@dataclass(frozen=True, eq=False)
class _Holding:
    """One block by which a model is owned."""

    what: str
    thread: threading.Thread
    task: asyncio.Task[Any] | None


#: Held while `transformers` builds or loads a model, which sets what belongs to the process (its
#: default dtype, functions that are replaced meanwhile): two threads would leave it changed.
LIBRARY = threading.RLock()

#: Guards what follows; told of every block that ends.
_changed = threading.Condition()
#: The blocks that own each model, the innermost last.
_held: weakref.WeakKeyDictionary[nn.Module, list[_Holding]] = weakref.WeakKeyDictionary()
#: Who waits for each model, in turn.
_lines: weakref.WeakKeyDictionary[nn.Module, list[_Holding]] = weakref.WeakKeyDictionary()
#: The model that each waiting thread waits for.
_awaited: dict[threading.Thread, nn.Module] = {}
#: The blocks around the running code. Those that have ended do no harm.
_around: ContextVar[frozenset[_Holding]] = ContextVar("blocks that own models", default=frozenset())
#: Whether what is opened is a part of the model, whoever runs it.
_attaching: ContextVar[bool] = ContextVar("attaching", default=False)


def _after_fork() -> None:
    """In a child a lock may be held by a thread that is not there."""
    global _changed
    _changed = threading.Condition()
    _awaited.clear()


os.register_at_fork(after_in_child=_after_fork)


def inner_model(model: Any) -> Any:
    """The model with the output embedding, inside of adapters."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def virtual_tokens(model: Any) -> int:
    """How many keys and values stand before every text by prefix tuning (PEFT).

    Raises `InputError` where an adapter puts tokens of its own among those of a text.
    """
    config = getattr(model, "active_peft_config", None)
    if config is None or not config.is_prompt_learning or model._adapters_disabled:
        return 0
    if config.peft_type not in ("PREFIX_TUNING", "CARTRIDGE"):
        raise InputError(
            f"the adapter of {type(inner_model(model)).__name__} ({config.peft_type.value}) puts "
            "virtual tokens before every text, which would be taken for the text's; use LoRA or "
            "prefix tuning"
        )
    return int(config.num_virtual_tokens)


@contextlib.contextmanager
def owned(model: Any, what: str = PASSES) -> Iterator[None]:
    """Let this thread alone use a model of `transformers` here, inside the block.

    Waits for other threads. Raises `InputError` where that could not end: the owner has ended with
    its gates open, waits for this thread, or is another task of this thread's event loop.
    """
    inner = inner_model(model)
    own = _Holding(what, threading.current_thread(), _task())
    try:
        _take(inner, own)
        yield
    finally:
        _leave(inner, own)


@contextlib.contextmanager
def interposing(model: Any) -> Iterator[None]:
    """`owned`, for what stands between the modules of a model: a pass that another thread begins
    without asking here ends in `InputError`, since it would be changed, or recorded."""
    with opened(model), guarded(model):
        yield


@contextlib.contextmanager
def opened(model: Any) -> Iterator[None]:
    """`owned`, for what is put on a model; the other half of `interposing`."""
    with contextlib.nullcontext() if _attaching.get() else owned(model, OPEN):
        yield


def is_open(model: Any) -> bool:
    """Whether gates or recordings are open on a model, so that its passes are not its own."""
    return any(holding.what == OPEN for holding in _held.get(inner_model(model), ()))


def guarded(model: Any) -> contextlib.AbstractContextManager[Any]:
    """Refuse passes that other threads begin without asking here; the model is owned."""
    if _attaching.get():
        return contextlib.nullcontext()
    inner = inner_model(model)
    decoder = inner.get_decoder() if hasattr(inner, "get_decoder") else inner
    handle: contextlib.AbstractContextManager[Any] = decoder.register_forward_pre_hook(
        _guard(inner, decoder)
    )
    return handle


@contextlib.contextmanager
def attaching(model: Any) -> Iterator[None]:
    """Gates that are opened inside become a part of the model: no thread owns it for them."""
    with owned(model):
        before = _attaching.set(True)
        try:
            yield
        finally:
            _attaching.reset(before)


def leaves_numbers(hook: AnyHook) -> AnyHook:
    """Mark a hook of headscope that a model may have while a study runs: it changes no number."""
    vars(hook)["leaves_numbers"] = True
    return hook


def _guard(inner: nn.Module, decoder: nn.Module) -> Any:
    of, here = weakref.ref(inner), weakref.ref(decoder)

    @leaves_numbers
    def check(module: nn.Module, _: tuple[Any, ...]) -> None:
        model = of()
        # Not in a copy of the model; nor where a backward pass computes something again, which a
        # GPU's does in a thread of torch's own.
        if model is None or module is not here() or torch._C._current_graph_task_id() != -1:
            return
        with _changed:
            holdings = _held.get(model, [])
            here_now = _Holding(PASSES, threading.current_thread(), _task())
            if holdings and not _is_own(holdings[-1], here_now):
                raise _refused(model, holdings, "the pass of another would be changed by it")

    return check


def _task() -> asyncio.Task[Any] | None:
    """The task of an event loop that is running in this thread."""
    return None if asyncio._get_running_loop() is None else asyncio.current_task()


def _is_own(holding: _Holding, wanted: _Holding) -> bool:
    """Whether a block is around what runs now, and wants another.

    In one thread it is, but for blocks of other tasks; one that a task left open when it ended, as
    a cell of a notebook may, belongs to the thread.
    """
    if holding in _around.get():
        return True
    task = holding.task
    same = task is None or task is wanted.task or task.done()
    return holding.thread is wanted.thread and same


def _take(inner: nn.Module, own: _Holding) -> None:
    began = busy = time.monotonic()
    said = False
    with _changed:
        line = _lines.setdefault(inner, [])
        line.append(own)
    try:
        while True:
            with _changed:
                holdings = _held.setdefault(inner, [])
                # In turn: who ends a pass and begins the next would be faster than who waits.
                if _is_own(holdings[-1], own) if holdings else line[0] is own:
                    holdings.append(own)
                    break
                before = list(holdings or line[:1])
                last = _last_awaited(before[-1], own.thread)
                if not _waits_elsewhere(last):
                    busy = time.monotonic()
                if holdings and (why := _endless(holdings, own, last, time.monotonic() - busy)):
                    raise _refused(inner, holdings, why)
                _awaited[own.thread] = inner
                try:
                    _changed.wait(LOOK_EVERY)
                finally:
                    _awaited.pop(own.thread, None)
            if not said and time.monotonic() - began > WORD_AFTER:
                said = True
                _say(inner, own, before)
    finally:
        with _changed:
            line.remove(own)
            _changed.notify_all()
    _around.set(_around.get() | {own})


def _say(inner: nn.Module, own: _Holding, before: Sequence[_Holding]) -> None:
    caution(
        f"{own.thread.name} waits for the model {type(inner).__name__}, which "
        f"{before[-1].thread.name} has for {before[0].what}"
    )


def _leave(inner: nn.Module, own: _Holding) -> None:
    """End a block, in whatever thread: a generator may be closed in another one."""
    with _changed:
        holdings = _held.get(inner, [])
        if own in holdings:
            holdings.remove(own)
        _changed.notify_all()
    _around.set(_around.get() - {own})


def _last_awaited(owner: _Holding, thread: threading.Thread) -> threading.Thread:
    """The thread that a wait for an owner comes down to: the owner's, that of the model which this
    one waits for, and so on; `thread` where these come back to it."""
    last, seen = owner.thread, {thread}
    while last in _awaited and last not in seen:
        seen.add(last)
        if not (holdings := _held.get(_awaited[last], [])):
            break  # it is about to have it
        last = holdings[-1].thread
    return last


def _waits_elsewhere(thread: threading.Thread) -> bool:
    """Whether a thread waits for another one, or its event loop for events."""
    frame = sys._current_frames().get(thread.ident or 0)
    waits = frame is not None and frame.f_code.co_filename in _WAITING_FILES
    return waits and thread not in _awaited


def _endless(
    holdings: Sequence[_Holding], own: _Holding, last: threading.Thread, idle: float
) -> str | None:
    """Why a wait for a model would not end, or None."""
    owner = holdings[-1]
    if any(holding.thread is own.thread and not _is_own(holding, own) for holding in holdings):
        return "another task of this event loop, which waiting would stop"
    if not (owner.thread.is_alive() and owner.thread.ident in sys._current_frames()):
        return "which has ended; close what it left open, or load the model anew"
    if last is own.thread:
        return "which itself waits for a model that this thread has"
    # A study waits for its own workers.
    if idle > IDLE_AFTER and all(holding.what != STUDY for holding in holdings):
        return f"which has itself waited for something else for {IDLE_AFTER:.0f} seconds"
    return None


def _refused(inner: nn.Module, holdings: Sequence[_Holding], why: str) -> InputError:
    return InputError(
        f"the model {type(inner).__name__} belongs to {holdings[-1].thread.name} for "
        f"{holdings[0].what} ({why}); use a model in the thread that opens gates and recordings "
        "on it, or after they are closed"
    )
