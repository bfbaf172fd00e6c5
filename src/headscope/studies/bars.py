"""How far work is, on stderr: bars on a terminal and in a notebook, lines elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from headscope.progress import Progress

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

T = TypeVar("T")

#: Seconds between two lines of progress where stderr is no terminal.
LINE_EVERY = 30.0
#: Seconds between two states of a line in a notebook, and the characters of its bar.
REWRITTEN_EVERY, BAR_WIDTH = 0.2, 20
#: What work is called that no task tells of.
WORKING = "working"
#: Tasks that count bytes.
_IN_BYTES = frozenset(("loading weights", "digesting weights", "writing the checkpoint"))


@contextmanager
def progress() -> Iterator[Progress]:
    """Show how far tasks are, with rate and time left, for as long as the block runs.

    On a terminal one bar a task, in a notebook one line with a bar, which leave nothing behind;
    elsewhere a plain line now and then. Work of one step, and what no task tells of, shows the time
    it has taken.
    """
    if type(sys.stderr).__module__.startswith("ipykernel"):
        line = _Rewritten()
        with _showing(line):
            yield line
        line.write("")
        return
    if not sys.stderr.isatty():
        lines = _Lines()
        with _showing(lines), _repeated(lines.remind):
            yield lines
        return
    from rich.console import Console
    from rich.progress import Progress as Bars

    console = Console(stderr=True)
    with (
        Bars(*columns(console.width), console=console, transient=True) as bars,
        _showing(_Bars(bars)) as update,
    ):
        yield update


def columns(width: int) -> list[Any]:
    """What stands in the line of a task, on a terminal of so many characters."""
    from rich.progress import BarColumn, ProgressColumn, Task, TextColumn
    from rich.text import Text

    class Clock(ProgressColumn):
        """The time that is left, or has passed where nothing is known of what is left."""

        def render(self, task: Task) -> Text:
            left = None if task.finished or task.total is None else task.time_remaining
            seconds = timedelta(seconds=int((task.elapsed or 0) if left is None else left))
            return Text(f"{seconds}{'' if left is None else ' left'}", style="progress.elapsed")

    return [
        TextColumn("{task.description}", markup=False),
        BarColumn(max(4, min(40, width - 70))),  # the rest has 70 with a title of 30
        TextColumn("{task.fields[amount]}"),
        TextColumn("{task.fields[rate]}"),
        Clock(),
    ]


class _Bars:
    """Progress as bars on a terminal. One whose end is unknown, or is its only step, moves to and
    fro; so does one of no task, wherever all tasks are at their end."""

    def __init__(self, bars: Bars) -> None:
        self._bars = bars
        self._clock = _Clock()
        self._tasks: dict[str, TaskID] = {}
        self._rest = bars.add_task(WORKING, total=None, amount="", rate="")

    def __call__(self, title: str, done: int, total: int) -> None:
        known = total > 1  # of a single step nothing is known until it ends
        old = self._tasks.get(title)
        if old is not None and done < total and self._task(old).finished:
            self._bars.remove_task(old)  # the same work anew
            old = None
        if old is None:
            end = total if known else None
            self._tasks[title] = self._bars.add_task(title, total=end, amount="", rate="")
        rate, _ = self._clock.read(title, done, total)
        self._bars.update(
            self._tasks[title],
            completed=done,
            total=total if known or done >= total else None,
            amount=_share(title, done, total) if known else "",
            rate=rate,
        )
        ended = all(self._task(task).finished for task in self._tasks.values())
        self._bars.update(self._rest, visible=ended)

    def _task(self, task: TaskID) -> Any:
        return next(each for each in self._bars.tasks if each.id == task)


def counted(title: str, items: Collection[T]) -> Iterator[T]:
    """Iterate over items and show how far that is, where a block of `progress` runs."""
    for done, item in enumerate(items):
        _tell(title, done, len(items))
        yield item
    _tell(title, len(items), len(items))


#: What the innermost block of `progress` around the running code shows things by.
_shown: ContextVar[Progress | None] = ContextVar("progress that is shown", default=None)


def _tell(title: str, done: int, total: int) -> None:
    if (update := _shown.get()) is not None:
        update(title, done, total)


@contextmanager
def _showing(update: Progress) -> Iterator[Progress]:
    before = _shown.set(update)
    try:
        yield update
    finally:
        _shown.reset(before)


class _Clock:
    """Rates of tasks since their first report; what was done before does not count."""

    def __init__(self) -> None:
        self._first: dict[str, tuple[float, int]] = {}

    def read(self, title: str, done: int, total: int) -> tuple[str, float | None]:
        """The rate as text, and the seconds left; None while unknown."""
        now = time.monotonic()
        began, before = self._first.setdefault(title, (now, done))
        seconds, more = now - began, done - before
        if not seconds or more <= 0:
            return "", None
        return f"{_amount(title, more / seconds)}/s", seconds / more * (total - done)

    def since(self, title: str) -> float:
        """Seconds since the first report."""
        return time.monotonic() - self._first[title][0]


def _share(title: str, done: int, total: int) -> str:
    """How much of how much, with one unit where it is the same."""
    done_text, total_text = _amount(title, done), _amount(title, total)
    number, _, unit = done_text.partition(" ")
    return f"{number if total_text.endswith(f' {unit}') else done_text}/{total_text}"


def _amount(title: str, count: float) -> str:
    """Bytes with their unit, where a task counts bytes; else the number."""
    if title in _IN_BYTES:
        for unit in ("B", "kB", "MB", "GB"):
            if count < 1000 or unit == "GB":
                break
            count /= 1000
        return f"{count:.1f} {unit}"
    return str(count) if isinstance(count, int) else f"{count:.1f}"


class _Lines:
    """Progress as plain lines, for logs."""

    def __init__(self) -> None:
        self._clock = _Clock()
        self._began = self._said = time.monotonic()
        self._last: float | None = None  # what comes before the first update is no wait
        self._task: tuple[str, int, int] | None = None
        self._pace: tuple[str, float] | None = None  # rate, and when the task will end

    def __call__(self, title: str, done: int, total: int) -> None:
        self._task = (title, done, total)
        rate, left = self._clock.read(title, done, total)
        now = time.monotonic()
        self._pace = None if left is None else (rate, now + left)
        if self._last is None:
            self._last = now
        if now - self._last >= LINE_EVERY:
            self._say(self._far())

    def remind(self) -> None:
        """Say that work goes on, where nothing has been said for long."""
        now = time.monotonic()
        if now - self._said < LINE_EVERY:
            return
        if self._task is None or self._task[1] >= self._task[2]:
            self._say(f"{WORKING}: {now - self._began:.0f} s so far")
        elif self._pace is None:
            self._say(f"{self._far()}, {self._clock.since(self._task[0]):.0f} s so far")
        else:
            self._say(self._far())

    def _far(self) -> str:
        title, done, total = self._task or (WORKING, 0, 0)
        far = f"{title}: {_amount(title, done)} of {_amount(title, total)}"
        if self._pace is None:
            return far
        rate, end = self._pace
        return f"{far} ({rate}, {max(0.0, end - time.monotonic()):.0f} s left)"

    def _say(self, line: str) -> None:
        self._last = self._said = time.monotonic()
        print(line, file=sys.stderr, flush=True)


class _Rewritten:
    """Progress as one line that is written anew, as notebooks show it."""

    def __init__(self) -> None:
        self._clock = _Clock()
        self._said, self._width = 0.0, 0

    def __call__(self, title: str, done: int, total: int) -> None:
        rate, _ = self._clock.read(title, done, total)
        now = time.monotonic()
        if done < total and now - self._said < REWRITTEN_EVERY:
            return
        self._said, full = now, BAR_WIDTH * done // max(total, 1)
        bar = "█" * full + "░" * (BAR_WIDTH - full)
        self.write(f"{title} {bar} {_share(title, done, total)} {rate}")

    def write(self, line: str) -> None:
        """The line in the place of the one before."""
        print(f"\r{line:<{self._width}}", end="" if line else "\r", file=sys.stderr, flush=True)
        self._width = len(line)


@contextmanager
def _repeated(call: Callable[[], None]) -> Iterator[None]:
    """Call a function now and then, beside the block."""
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(LINE_EVERY):
            call()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()


@contextmanager
def chosen(wanted: Progress | bool | None, loads: bool) -> Iterator[Progress | None]:
    """What a study called as a function reports to: bars by default, nothing for False, or what
    was given. Where a model is loaded, its bars are among them, or silent."""
    if callable(wanted):
        yield wanted
        return
    with _own_loading_bars() if loads else nullcontext():
        if not wanted:
            yield None
            return
        with progress() as update:
            yield update


#: What `transformers` was to call for its bars, for each block that has its own shown; the first
#: is put back when all have ended, since blocks of several threads end in any order.
_hooks_before: list[Any] = []
_hooking = threading.Lock()


@contextmanager
def _own_loading_bars() -> Iterator[None]:
    from transformers.utils import logging

    library: Any = logging  # its functions carry no types
    with _hooking:
        _hooks_before.append(library.set_tqdm_hook(_loading_bar_alone))
    try:
        yield
    finally:
        with _hooking:
            before = _hooks_before.pop()
            if not _hooks_before:
                library.set_tqdm_hook(before)


def _loading_bar_alone(factory: Callable[..., Any], args: Any, options: dict[str, Any]) -> Any:
    return _loading_bar(factory, args, {**options, "disable": True})


def hide_loading_bars() -> None:
    """Let `transformers` load models without bars of its own; those of downloads stay.

    How far loading and the self-check are is shown by the command's own `progress` instead.
    """
    from transformers.utils import logging

    library: Any = logging  # its functions carry no types
    library.disable_progress_bar()
    library.set_tqdm_hook(_loading_bar)


def _loading_bar(factory: Callable[..., Any], args: Any, options: dict[str, Any]) -> Any:
    """What `transformers` iterates over, or counts with, instead of one of its bars."""
    from headscope.lm.selfcheck import CHECKING

    title = str(options.get("desc"))
    if title == CHECKING and args:
        return counted(title.lower(), args[0])
    if title.lower() in _IN_BYTES and "total" in options:
        return _Counter(title.lower(), int(options["total"]))
    return factory(*args, **options)


class _Counter:
    """A bar that is told how much more is done."""

    def __init__(self, title: str, total: int) -> None:
        self._title, self._done, self._total = title, 0, total
        self.update(0)

    def update(self, more: int) -> None:
        self._done += more
        _tell(self._title, self._done, self._total)

    def __enter__(self) -> _Counter:
        return self

    def __exit__(self, *_: object) -> None:
        pass
