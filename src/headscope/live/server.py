"""The explorer's page and its answers over HTTP, for one user of this machine.

Every request needs a secret: the address that is printed holds a token, which is exchanged for a
cookie and then leaves the address. Foreign Host and Origin headers are refused, bodies are small,
and a policy keeps scripts, styles and connections to this server.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import signal
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from hmac import compare_digest
from pathlib import PurePath
from typing import Any, cast
from urllib.parse import urlsplit

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headscope.errors import InputError
from headscope.live.connections import BACKLOG, Connection, Lines
from headscope.live.explorer import Explorer
from headscope.live.page import assets, page
from headscope.live.worker import END, Job, Worker
from headscope.runs import dump_json

_log = logging.getLogger(__name__)

#: Bytes of a question, at most.
MOST_BYTES = 1 << 22
LOOPBACK = ("127.0.0.1", "localhost", "::1")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' "
    "data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
#: The types of what a browser loads beside the page.
TYPES = {".css": "text/css", ".js": "text/javascript"}
ONWARD = (
    '<!DOCTYPE html><meta http-equiv="refresh" content="0;url=/"><link rel="icon" href="data:,">'
    "<title>headscope</title>"
)
#: Answered without a computation, also while one runs.
LOOKED_UP = ("about", "sentence", "best", "copy")


class Guard:
    """Lets requests through that come from this server's own page, and adds the headers."""

    def __init__(self, app: ASGIApp, hosts: Sequence[str], port: int) -> None:
        self._app, self._hosts = app, {host.lower() for host in hosts}
        self.token, self._secret = secrets.token_urlsafe(24), secrets.token_urlsafe(24)
        self._cookie = f"headscope-{port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                more = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message = {**message, "headers": [*message["headers"], *more]}
            await send(message)

        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refused = self._refused(Request(scope))
        await (refused or self._app)(scope, receive, send_with_headers)

    def _refused(self, request: Request) -> Response | None:
        """What answers a request that does not go through; None for one that does."""
        host = request.headers.get("host", "")
        if (_host_name(host) or "").lower() not in self._hosts:
            return _error(421, "this host name is not served here; add it with --allow-host")
        origin = request.headers.get("origin")
        if origin is not None and origin.partition("://")[2] != host:
            return _error(403, "requests from other pages are not answered")
        if request.method not in ("GET", "POST"):
            return _error(405, "only GET and POST are answered")
        token = request.query_params.get("token")
        if token is not None and _same(token, self.token):
            # A page of this server that goes on to the other one: after a redirection, a link in a
            # terminal that is itself a page would come there without a strict cookie.
            answer = Response(ONWARD, media_type="text/html; charset=utf-8")
            answer.set_cookie(self._cookie, self._secret, httponly=True, samesite="strict")
            return answer
        if not _same(request.cookies.get(self._cookie, ""), self._secret):
            return _error(403, "open the address that headscope explore has printed")
        return None


def application(explorer: Explorer, worker: Worker, hosts: Sequence[str], port: int) -> Guard:
    """The server's application; its token is the attribute `token`."""

    async def shown(request: Request) -> Response:
        return Response(page(explorer.about()), media_type="text/html; charset=utf-8")

    async def file(request: Request) -> Response:
        path = PurePath(request.url.path)
        kind = f"{TYPES[path.suffix]}; charset=utf-8"
        return Response(assets()[path.name], media_type=kind)

    async def answer(request: Request) -> Response:
        try:
            body = await _body(request)
        except _Refused as refused:
            return _error(*refused.args)
        except ClientDisconnect:
            return _error(400, "the question did not come whole")
        kind = request.path_params["kind"]
        if kind in LOOKED_UP:
            try:
                event = await run_in_threadpool(explorer.look_up, kind, body)
            except InputError as error:
                return _error(400, str(error))
            return Response(_message(event) + _message(END), media_type="text/event-stream")
        return await _computed(request, worker, kind, body)

    routes = [
        Route("/", shown),
        *(Route(f"/{name}", file) for name in assets()),
        Route("/ask/{kind}", answer, methods=["POST"]),
    ]
    missing: dict[Any, Callable[[Request, Exception], Awaitable[Response]]] = {
        404: _missing, 405: _missing, 500: _failed,
    }  # fmt: skip
    return Guard(Starlette(routes=routes, exception_handlers=missing), hosts, port)


async def _computed(request: Request, worker: Worker, kind: str, body: Any) -> Response:
    """The answer as server-sent events; an error before the first of them has a status of its own.

    A browser that goes away ends the computation, also one that waits for its turn.
    """
    loop, events = asyncio.get_running_loop(), asyncio.Queue[dict[str, Any]]()

    def emit(event: dict[str, Any]) -> None:
        if not loop.is_closed():  # the server has ended
            loop.call_soon_threadsafe(events.put_nowait, event)

    job = Job(kind, body, emit)
    worker.submit(job)
    coming, gone = asyncio.ensure_future(events.get()), asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait((coming, gone), return_when=asyncio.FIRST_COMPLETED)
    finally:
        gone.cancel()
        if not coming.done():
            coming.cancel()
            worker.drop(job)
    if coming.cancelled() or not coming.done():
        return _error(499, "nobody waits for this answer any more")
    first = coming.result()
    if first["event"] == "error":
        return _error(first["status"], first["error"])
    if first["event"] == "displaced":
        return _error(409, "a newer question has taken the place of this one")

    async def stream() -> AsyncIterator[str]:
        event = first
        try:
            while True:
                yield _message(event)
                if event == END:
                    return
                event = await events.get()
        finally:
            worker.drop(job)

    return StreamingResponse(stream(), media_type="text/event-stream")


async def _gone(request: Request) -> None:
    """Wait until nobody reads the answer any more."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


class _Refused(Exception):
    """A status and the sentence that goes with it."""


async def _body(request: Request) -> Any:
    """The JSON of a request; `_Refused` if it is too long or none."""
    content = bytearray()
    async for part in request.stream():
        content += part
        if len(content) > MOST_BYTES:
            raise _Refused(413, f"the question has more than {MOST_BYTES} bytes; shorten it")
    try:
        # Infinity and NaN are no JSON.
        return json.loads(content, parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise _Refused(400, "the question is not valid JSON") from None


def _no_number(name: str) -> float:
    raise ValueError(name)


def _message(event: dict[str, Any]) -> str:
    return f"data: {dump_json(event)}\n\n"


def _error(status: int, sentence: str) -> Response:
    return JSONResponse({"error": sentence}, status)


async def _missing(request: Request, error: Exception) -> Response:
    status: int = cast(Any, error).status_code
    return _error(status, "there is nothing here; the page is at /")


async def _failed(request: Request, error: Exception) -> Response:
    return _error(
        500,
        f"the answer failed ({type(error).__name__}); the terminal of headscope explore has more",
    )


def _same(given: str, known: str) -> bool:
    return compare_digest(given.encode("utf-8", "replace"), known.encode())


def _host_name(host: str) -> str | None:
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


class _Server(uvicorn.Server):
    """A server whose answers end before it does, so that none of them is cut."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().set_exception_handler(_told)
        await super().startup(sockets)

    def __init__(self, config: uvicorn.Config, worker: Worker) -> None:
        super().__init__(config)
        self._worker = worker

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._worker.stop()
        await super().shutdown(sockets)


def _told(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What went wrong outside an answer, such as no file left for a connection, as one line."""
    error = context.get("exception")
    about = None if error is None else (type(error), error, error.__traceback__)
    _log.error("%s", context["message"], exc_info=about)


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there; port 0 is one that is free. `InputError` where none can."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise InputError(
            f"{host}, port {port} cannot be listened at ({error.strerror}); choose another --port, "
            "0 for a free one"
        ) from error


def serve(
    explorer: Explorer,
    listening: socket.socket,
    host: str,
    allowed: Sequence[str],
    ready: Callable[[str], None],
) -> None:
    """Serve the page at a socket of `listen` until the process is interrupted.

    ``ready`` is called with the address, its token included, once it can be opened.
    """
    port = listening.getsockname()[1]
    worker = Worker(explorer)
    guard = application(explorer, worker, [*LOOPBACK, host, *allowed], port)
    config = uvicorn.Config(
        guard, log_level="warning", access_log=False, lifespan="off", server_header=False,
        timeout_graceful_shutdown=1, http=Connection, ws="none", backlog=BACKLOG, log_config=None,
    )  # fmt: skip
    # All addresses of this machine: the one that works on it.
    host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    shown = f"[{host}]" if ":" in host else host
    ready(f"http://{shown}:{port}/?token={guard.token}")
    server, lines = _Server(config, worker), Lines()
    loggers = [logging.getLogger(name) for name in ("uvicorn", "asyncio", "headscope")]
    for logger in loggers:
        logger.addHandler(lines)
    # The other signals that end it are uvicorn's own.
    hangup = getattr(signal, "SIGHUP", None)
    own = threading.current_thread() is threading.main_thread()
    if own and hangup is not None and signal.getsignal(hangup) is not signal.SIG_IGN:
        signal.signal(hangup, server.handle_exit)
    try:
        server.run(sockets=[listening])
    except KeyboardInterrupt:  # how the user ends it
        pass
    finally:
        worker.close()
        for logger in loggers:
            logger.removeHandler(lines)
