"""What a command says: results on stdout, progress and errors on stderr."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from headscope.errors import Caution
from headscope.progress import Progress

if TYPE_CHECKING:
    from rich.progress import TaskID

    from headscope.runs import Result
    from headscope.studies.study import Study

T = TypeVar("T")

#: The exit code of a command whose output nobody reads on: 128 and SIGPIPE.
BROKEN_PIPE = 141

#: Seconds between two lines of progress where stderr is no terminal.
LINE_EVERY = 30.0


def emit(result: Mapping[str, Any] | Result, as_json: bool, text: str) -> None:
    """Print a command's result: `result` as one JSON object, or else `text`."""
    from headscope.runs import dump_json, encode

    _print(dump_json(encode(result)) if as_json else text)


def print_result(study: Study, result: Any, as_json: bool) -> None:
    """Print the result of a study: as one JSON object, or what it shows."""
    if study.show is None:
        text = study.text(result)
    elif not as_json:
        from headscope.report.terminal import text_of
        from headscope.studies.study import shown_of

        shown = shown_of(study, result, Path(result.run or "."))
        report = getattr(result, "report", None) or result.unknown.get("report")
        text = text_of(shown, result.run, report if isinstance(report, str) else None)
    emit(result, as_json, "" if as_json else text)


def _print(text: str) -> None:
    try:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # Nobody reads on (`| head`): no error, and no second one when Python empties its buffer.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(BROKEN_PIPE) from None


def fail(message: str) -> None:
    """Print an error as one line on stderr, neither wrapped nor coloured."""
    print(f"error: {one_line(message)}", file=sys.stderr, flush=True)


def note(message: str) -> None:
    """Print a sentence on stderr, of what is about to be done."""
    print(one_line(message), file=sys.stderr, flush=True)


def one_line(text: str) -> str:
    """`text` without line breaks, and with what could steer a terminal spelt out."""
    joined = " ".join(line.strip() for line in text.splitlines() if line.strip())
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode("ascii")
        for sign in joined
    )


def caution(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
    """Print what a result does not show as one line on stderr; other warnings stay unsaid."""
    if issubclass(category, Caution):
        print(f"warning: {one_line(str(message))}", file=sys.stderr, flush=True)


@contextmanager
def progress() -> Iterator[Progress]:
    """Show how far tasks are, with rate and time left, for as long as the block runs.

    On a terminal one bar a task, which leave nothing behind; elsewhere a plain line now and then.
    """
    if not sys.stderr.isatty():
        with _showing(_Lines()) as lines:
            yield lines
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, TaskID] = {}
        clock = _Clock()

        def update(title: str, done: int, total: int) -> None:
            if title not in tasks:
                tasks[title] = bars.add_task(title, total=total, rate="")
            rate, _ = clock.read(title, done, total)
            bars.update(tasks[title], completed=done, total=total, rate=rate)

        with _showing(update):
            yield update


def counted(title: str, items: Collection[T]) -> Iterator[T]:
    """Iterate over items and show how far that is, where a block of `progress` runs."""
    for done, item in enumerate(items):
        for update in _blocks[-1:]:
            update(title, done, len(items))
        yield item
    for update in _blocks[-1:]:
        update(title, len(items), len(items))


#: The blocks of `progress` that run, the innermost last.
_blocks: list[Progress] = []


@contextmanager
def _showing(update: Progress) -> Iterator[Progress]:
    _blocks.append(update)
    try:
        yield update
    finally:
        _blocks.pop()


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
        return f"{more / seconds:.1f}/s", seconds / more * (total - done)


class _Lines:
    """Progress as plain lines, for logs."""

    def __init__(self) -> None:
        self._clock = _Clock()
        self._last: float | None = None  # what comes before the first update is no wait

    def __call__(self, title: str, done: int, total: int) -> None:
        rate, left = self._clock.read(title, done, total)
        now = time.monotonic()
        if self._last is None:
            self._last = now
        if now - self._last < LINE_EVERY:
            return
        self._last = now
        more = f" ({rate}, {left:.0f} s left)" if left is not None else ""
        print(f"{title}: {done} of {total}{more}", file=sys.stderr, flush=True)


def hide_loading_bars() -> None:
    """Let `transformers` load models without bars of its own; those of downloads stay.

    How far loading and the self-check are is shown by the command's own `progress` instead.
    """
    from transformers.utils import logging

    library: Any = logging  # its functions carry no types
    library.disable_progress_bar()
    library.set_tqdm_hook(_loading_bar)


def _loading_bar(factory: Callable[..., Any], args: Any, options: dict[str, Any]) -> Any:
    """What `transformers` iterates over instead of one of its bars."""
    from headscope.lm.gguf import DEQUANTISING
    from headscope.lm.selfcheck import CHECKING

    title = str(options.get("desc"))
    if title not in ("Loading weights", DEQUANTISING, CHECKING) or not args:
        return factory(*args, **options)
    return counted(title.lower(), args[0])
