"""Connections of the explorer's server: few, short to ask, and quiet about what makes no sense."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections import Counter
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

_log = logging.getLogger(__name__)

#: Seconds that a request may take to come whole, its body included.
PATIENCE = 10.0
#: Open connections, and those that wait to be accepted, at most: together fewer than the files
#: that any system lets a process open.
MOST_CONNECTIONS, BACKLOG = 64, 64


class Connection(H11Protocol):
    """A connection of uvicorn's that closes where a request does not come whole within `PATIENCE`
    seconds; one too many takes the place of the one that has been idle longest."""

    _since = 0.0
    _due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._since = self.loop.time()
        self._due = self.loop.call_later(PATIENCE, self._late)
        if len(self.connections) > MOST_CONNECTIONS:
            idle = [
                connection
                for connection in self.connections
                if isinstance(connection, Connection) and connection._idle
            ]
            oldest = min(idle, key=lambda connection: connection._since, default=self)
            _log.warning("more than %d connections; an idle one was closed", MOST_CONNECTIONS)
            oldest._end()

    def connection_lost(self, exc: Exception | None) -> None:
        self._known_whole()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        try:
            super().data_received(data)
        except h11.LocalProtocolError:
            # Nonsense behind a request that is being answered: no second answer can be begun.
            _log.warning("nonsense behind a request; its connection was closed")
            self._end()
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._known_whole()
        elif self._due is None:
            self._due = self.loop.call_later(PATIENCE, self._late)

    def _unsupported_upgrade_warning(self) -> None:
        _log.warning("an upgrade to another protocol was not granted")

    def shutdown(self) -> None:
        try:
            super().shutdown()
        except h11.LocalProtocolError:  # broken already
            self._end()

    @property
    def _idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _late(self) -> None:
        _log.warning("a request did not come whole within %g s and was dropped", PATIENCE)
        self._end()

    def _known_whole(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def _end(self) -> None:
        """Close at once; whoever answers is told."""
        self._known_whole()
        self.connections.discard(self)
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.abort()


class Lines(logging.Handler):
    """Records as lines on stderr; equal ones are counted, and told again at 10, 100, 1,000, ….

    Errors that are none of the program's, such as a connection that breaks, have no traceback.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._counts: Counter[str] = Counter()
        self._guard = threading.Lock()

    def emit(self, record: logging.LogRecord) -> None:
        kind, error, _ = record.exc_info or (None, None, None)
        if isinstance(error, asyncio.CancelledError):  # the server has ended
            return
        line = record.getMessage().strip()
        if kind is not None:
            line = f"{line} ({kind.__name__}: {error})"
        with self._guard:
            self._counts[line] += 1
            count = self._counts[line]
        power = str(count).strip("0") == "1"
        if not power:
            return
        often = f" ({count:,} times)" if count > 1 else ""
        print(f"explore: {line}{often}", file=sys.stderr, flush=True)
        own = kind is not None and not issubclass(kind, OSError | h11.ProtocolError)
        if own and count == 1 and record.exc_info:
            text = logging.Formatter().formatException(record.exc_info)
            print(text, file=sys.stderr, flush=True)
