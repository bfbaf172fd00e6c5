"""One computation at a time: a newer question ends the running one and displaces a waiting one.

What is to be saved displaces nothing and is not displaced.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import threading
from typing import Any

from headscope.errors import InputError, first_line
from headscope.live.explorer import Emit, Explorer
from headscope.live.writing import Stopped

_log = logging.getLogger(__name__)

#: The last event of every answer, after errors too.
END = {"event": "end"}
SAVE = "save"


class Job:
    """A question on its way; events go to `emit`, the last of them is `END`."""

    def __init__(self, kind: str, body: Any, emit: Emit) -> None:
        self.kind, self.body, self.emit = kind, body, emit
        self._stop = threading.Event()
        self.stopped = self._stop.is_set
        #: End the computation before its next layer or token.
        self.cancel = self._stop.set

    def end(self, event: str, **more: Any) -> None:
        """End the answer with an event of this name."""
        self.emit({"event": event, **more})
        self.emit(END)


class Worker:
    """Answers questions to an explorer in a thread of its own."""

    def __init__(self, explorer: Explorer) -> None:
        self._explorer = explorer
        self._changed = threading.Condition()
        self._waiting: list[Job] = []
        self._running: Job | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="headscope explorer", daemon=True)
        self._thread.start()
        # An interpreter that ends takes the thread amid compiled code, which aborts.
        atexit.register(self.close)

    def submit(self, job: Job) -> None:
        """Answer this question next; the running one ends, and one that waits is displaced.

        After `close` it ends at once.
        """
        displaced: list[Job] = []
        with self._changed:
            if self._closed:
                displaced = [job]
            elif job.kind == SAVE:
                self._waiting.append(job)
            else:
                displaced = [question for question in self._waiting if question.kind != SAVE]
                self._waiting = [
                    question for question in self._waiting if question.kind == SAVE
                ] + [job]
                if self._running is not None and self._running.kind != SAVE:
                    self._running.cancel()
            self._changed.notify()
        for question in displaced:
            question.end("displaced")

    def drop(self, job: Job) -> None:
        """End a question whose answer nobody waits for any more."""
        with self._changed:
            waits = job in self._waiting
            if waits:
                self._waiting.remove(job)
        job.cancel()
        if waits:
            job.end("displaced")

    def close(self) -> None:
        """End the running computation, what waits, and the thread."""
        self.stop()
        self._thread.join()
        atexit.unregister(self.close)

    def stop(self) -> None:
        """End what runs and what waits; nothing is answered any more."""
        with self._changed:
            self._closed = True
            waiting, self._waiting = self._waiting, []
            if self._running is not None:
                self._running.cancel()
            self._changed.notify()
        for job in waiting:
            job.end("displaced")

    def _work(self) -> None:
        with contextlib.suppress(Stopped):
            self._explorer.warm(lambda: self._closed)
        while True:
            with self._changed:
                self._running = None
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if self._closed:
                    return
                self._running = job = self._waiting.pop(0)
            self._answer(job)

    def _answer(self, job: Job) -> None:
        try:
            self._explorer.compute(job.kind, job.body, job.emit, job.stopped)
        except Stopped:
            job.end("displaced")
        except InputError as error:
            job.end("error", error=str(error), status=400)
        except OSError as error:
            place = f"{error.filename}: " if error.filename else ""
            job.end("error", error=f"{place}{error.strerror}; nothing was saved", status=500)
        except Exception as error:
            # Whatever went wrong is told where it can be mended, and the next question answered.
            _log.exception("an answer of the explorer failed")
            job.end(
                "error",
                error=f"the computation failed ({type(error).__name__}: {first_line(error)}); the "
                "terminal of headscope explore has more",
                status=500,
            )
        else:
            job.emit(END)
