"""The end of the explorer: within two seconds of Ctrl-C, whatever it does, and without a trace."""

from __future__ import annotations

import gc
import os
import secrets
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

#: Seconds after a signal in which what runs may end by itself.
GRACE = 1.0
INTERRUPTED = 130


class Ending:
    """What an end by force would leave behind, and the exit code it has.

    Attributes:
        folder: holds every temporary file of the process.
        unfinished: gives further folders that are of no use to anybody.
        came: whether a signal has come.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.unfinished: Callable[[], Iterable[Path]] = tuple
        self.code = INTERRUPTED
        self.came = False

    def by_force(self) -> None:
        """End the process at once, and leave no file."""
        for place in (self.folder, *self.unfinished()):
            shutil.rmtree(place, ignore_errors=True)
        if self.code == INTERRUPTED:
            print("error: interrupted", file=sys.stderr)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(self.code)


@contextmanager
def ending() -> Iterator[Ending]:
    """Ctrl-C, SIGTERM and SIGHUP end what runs inside by `KeyboardInterrupt`.

    Compiled code that does not notice, such as the reading of weights, ends `GRACE` seconds after
    the signal with the process.
    """
    before = tempfile.tempdir
    # Named before it is made, so that a signal at that very moment finds it.
    end = Ending(Path(tempfile.gettempdir(), f"headscope-explore-{secrets.token_hex(8)}"))
    with _signals(end):
        try:
            end.folder.mkdir(mode=0o700)
            tempfile.tempdir = str(end.folder)
            yield end
        finally:
            tempfile.tempdir = before
            shutil.rmtree(end.folder, ignore_errors=True)
            if end.came:
                gc.freeze()  # a last search for garbage among all modules takes a second


@contextmanager
def _signals(end: Ending) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    names = ("SIGINT", "SIGTERM", "SIGHUP")
    # One that is ignored stays so, as under nohup.
    wanted = [
        number
        for number in (getattr(signal, name, None) for name in names)
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN
    ]
    reading, writing = os.pipe()
    os.set_blocking(writing, False)

    def watch() -> None:
        """In a thread: the main one may be in compiled code, where no handler runs."""
        while came := os.read(reading, 1):
            if came[0] in wanted:
                end.came = True
                threading.Event().wait(GRACE)
                end.by_force()
        os.close(reading)

    def interrupt(number: int, frame: Any) -> None:
        end.came = True
        raise KeyboardInterrupt

    handlers = {number: signal.signal(number, interrupt) for number in wanted}
    wakeup = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    threading.Thread(target=watch, name="end", daemon=True).start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(wakeup)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        os.close(writing)
