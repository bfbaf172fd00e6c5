"""The explorer's server against hostile requests, impatient users and browsers that go away."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import queue
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from uvicorn import Server

from browser_helpers import chromium, visit
from explore_process import START, Served, events_in, explored, one
from headscope.heads import Gate
from headscope.live import connections
from headscope.live.command import Explore, explorer_of
from headscope.live.explorer import KEPT, Explorer
from headscope.live.server import _Server, application, listen, serve
from headscope.live.worker import END, Job, Worker
from headscope.live.writing import Stopped
from headscope.lm import LanguageModel

SENTENCE = {"sentence": "The good king planted flowers.", "pair": "en-de"}
RUN = {"input": SENTENCE, "gates": {"4.3": 0}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with explored(tmp_path_factory.mktemp("explore"), "--allow-host", "box.lan") as served:
        yield served


# ---- who is answered -----------------------------------------------------------------------------
def test_the_token_is_worth_a_cookie_and_leaves_the_address(server: Served) -> None:
    path = server.address[server.address.index("/?") :]
    status, headers, text = server.request("GET", path, Cookie="")
    assert status == 200 and 'content="0;url=/"' in text
    elsewhere = server.request("GET", f"//evil.example{path}", Cookie="")
    assert elsewhere[0] == 200 and elsewhere[2] == text
    cookie = headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie
    assert path.partition("=")[2] not in cookie
    status, headers, text = server.request("GET", "/")
    assert status == 200 and "token=" not in text
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe-inline" not in policy
    assert "access-control-allow-origin" not in headers


def test_the_address_works_as_a_link_of_another_page(server: Served, tmp_path: Path) -> None:
    """As in a terminal that is a page itself; the address that holds the token is left behind."""
    linking = tmp_path / "terminal.html"
    linking.write_text(f'<a href="{server.address}">open</a>')
    with chromium() as browser, visit(browser, linking) as seen:
        seen.page.get_by_role("link").click()
        seen.page.wait_for_selector(".explorer[data-state=done]")
        assert "token" not in seen.page.url
        seen.page.go_back()
        assert seen.page.url == linking.as_uri()


@pytest.mark.parametrize("path", ["/", "/explore.js", "/ask/about", "/?token=", "/?token=wrong"])
def test_without_the_secret_nothing_is_answered(server: Served, path: str) -> None:
    for cookie in ("", f"headscope-{server.port}=wrong", "headscope-1=x"):
        status, _, text = server.request("POST" if "ask" in path else "GET", path, Cookie=cookie)
        assert status == 403 and "has printed" in json.loads(text)["error"]


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Host": "127.0.0.1.evil.example"}, 421),
        ({"Host": "[::1"}, 421),
        ({"Host": "box.lan"}, 200),
        ({"Host": "LOCALHOST"}, 200),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Origin": "http://[::1"}, 403),
    ],
)
def test_foreign_hosts_and_origins_are_refused(
    server: Served, headers: dict[str, str], expected: int
) -> None:
    status, _, text = server.request("POST", "/ask/about", "{}", **headers)
    assert status == expected, text
    if status != 200:
        assert json.loads(text)["error"]


def test_the_pages_own_origin_is_answered(server: Served) -> None:
    origin = f"http://127.0.0.1:{server.port}"
    assert server.request("POST", "/ask/about", "{}", Origin=origin)[0] == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "127.0.0.2"])
# Other systems answer at 127.0.0.1 alone until somebody adds 127.0.0.2 as root.
@pytest.mark.skipif(sys.platform != "linux", reason="has one loopback address alone")
def test_the_printed_address_is_served_at_other_addresses_too(tmp_path: Path, host: str) -> None:
    with explored(tmp_path, "--host", host) as served:
        assert served.request("GET", "/")[0] == 200


@pytest.mark.parametrize(("method", "path"), [("PUT", "/"), ("OPTIONS", "/ask/run"), ("GET", "/x")])
def test_other_methods_and_paths_have_a_sentence(server: Served, method: str, path: str) -> None:
    status, _, text = server.request(method, path)
    assert status in (404, 405) and json.loads(text)["error"]


# ---- questions that make no sense ----------------------------------------------------------------
@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ("a" * 10_000_000, 413, "bytes"),
        ("{", 400, "not valid JSON"),
        ("[" * 100_000, 400, "not valid JSON"),
        (b"\xff\xfe", 400, "not valid JSON"),
        ('{"input": {"prompt": "a"}, "gates": {"4.3": NaN}}', 400, "not valid JSON"),
        ('{"input": {"prompt": "a"}, "gates": {"4.3": 1e999}}', 400, "from -1 to 5"),
        ([], 400, "JSON object"),
        ({"input": {"prompt": "a"}, "gates": [0, 1]}, 400, "JSON object"),
        ({"input": {"prompt": "a"}, "gates": {"4.3": "0"}}, 400, "from -1 to 5"),
        ({"input": {"prompt": "a"}, "gates": {"4.3": True}}, 400, "from -1 to 5"),
        ({"input": {"prompt": "a"}, "gates": {"4.3": -1.01}}, 400, "from -1 to 5"),
        ({"input": {"prompt": "a"}, "gates": {"44.3": 0}}, 400, "no head L44.H3"),
        ({"input": {"prompt": "a"}, "gates": {"x": 0}}, 400, "not a head"),
        ({"input": {"prompt": "a"}, "gates": {"9" * 5000 + ".1": 0}}, 400, "not a head"),
        ({"input": {"prompt": " "}}, 400, "empty"),
        ({"input": {"prompt": "\ud800"}}, 400, "surrogate"),
        ({"input": {"prompt": "a\0b"}}, 400, "U+0000 at character 2"),
        ({"input": {"prompt": "a", "reference": "b\x1b"}}, 400, "the reference holds"),
        ({"input": {"sentence": "a\x85b\x01", "pair": "en-de"}}, 400, "U+0001"),
        ({"input": {"sentence": "a\rb", "pair": "en-de"}}, 400, "the sentence holds a line break"),
        ({"input": {"prompt": "a " * 3000}}, 400, "context"),
        ({"input": {"prompt": "a" * 500_000}}, 400, "characters"),
        ({"input": {"prompt": "a", "reference": "b " * 3000}}, 400, "context"),
        ({"input": {"prompt": "a", "chat": "yes"}}, 400, "chat is"),
        ({"input": {"sentence": "a"}}, 400, "direction"),
        ({"input": {"sentence": "a", "pair": "xx-yy"}}, 400, "direction"),
        ({"input": {"prompt": "a", "extra": 1}}, 400, "unknown entry 'extra'"),
        ({"input": {"prompt": "a"}, "new_tokens": 10_000}, 400, "from 1 to 512"),
        ({"input": {"prompt": "a"}, "draw": -1}, 400, "whole number"),
        ({"input": {"prompt": "a"}, "pinned": "9.9"}, 400, "no head L9.H9"),
    ],
)
def test_what_makes_no_sense_gets_a_sentence(
    server: Served, body: Any, status: int, words: str
) -> None:
    answer = server.refused("run", body)
    assert answer[0] == status and words in answer[1] and len(answer[1]) < 300, answer
    assert one(server.ask("run", **RUN), "lane", lane="gated")["text"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"input": {"sentence": " ", "pair": "en-de"}}, "empty"),
        ({"input": {"sentence": "a" * 5_000, "pair": "en-de"}}, "context"),
        ({"input": {"sentence": "a " * 101, "pair": "en-de"}}, "101 words"),
        ({"input": {"sentence": "a", "pair": "xx-yy"}}, "direction"),
        ({"input": {"prompt": "a"}}, "direction"),
        ({}, "input"),
        ({"heads": ""}, "no heads"),
        ({"heads": ["4.3"]}, "heads is"),
        ({"heads": "4.3,4.3"}, "twice"),
        ({"heads": "9.9"}, "no head L9.H9"),
        ({"policy": "<b>"}, "there is no policy"),
        ({"number": -1}, "from 0"),
        ({"number": 1.5}, "whole number"),
        ({"number": 0, "policy": "wait-k"}, "from 1"),
        ({"gates": {}}, "unknown entry 'gates'"),
    ],
)
def test_what_cannot_arrive_gets_a_sentence(
    server: Served, body: dict[str, Any], words: str
) -> None:
    given = {"input": SENTENCE, "heads": "4.3,5.1", **body} if body else {}
    status, said = server.refused("interpret", given)
    assert status == 400 and words in said and len(said) < 300, said
    assert one(server.ask("interpret", input=SENTENCE, heads="4.3"), "interpreted")["text"]


def test_a_question_that_fails_leaves_the_model_as_it_was(pocket: LanguageModel) -> None:
    explorer = explorer_of(Explore(), pocket)
    hooks = [len(module._forward_pre_hooks) + len(module._forward_hooks)
             for module in pocket.model.modules()]  # fmt: skip
    logits = pocket.next_logits([pocket.encode("Word: Kuh")])
    after: list[int] = []

    def stop() -> bool:
        after.append(1)
        return len(after) > 40

    with pytest.raises(Stopped):
        explorer.compute("run", RUN, lambda event: None, stop)
    assert hooks == [len(module._forward_pre_hooks) + len(module._forward_hooks)
                     for module in pocket.model.modules()]  # fmt: skip
    assert (pocket.next_logits([pocket.encode("Word: Kuh")]) == logits).all()


# ---- one computation at a time -----------------------------------------------------------------
class Counted:
    """An explorer of the bundled model whose passes through the first layer are counted."""

    def __init__(self, lm: LanguageModel) -> None:
        self.explorer = explorer_of(Explore(), lm)
        self.passes = 0
        self.handle = lm.decoder_layers[0].register_forward_hook(self._count)

    def _count(self, *_: Any) -> None:
        self.passes += 1


@pytest.fixture
def counted(pocket: LanguageModel) -> Iterator[Counted]:
    counts = Counted(pocket)
    counts.explorer.warm()
    yield counts
    counts.handle.remove()


def test_a_newer_question_ends_the_older_one(counted: Counted) -> None:
    worker = Worker(counted.explorer)
    answers: list[list[dict[str, Any]]] = [[], []]
    began, ended = threading.Event(), threading.Event()

    def first(event: dict[str, Any]) -> None:
        answers[0].append(event)
        if event["event"] == "token":
            began.set()

    def second(event: dict[str, Any]) -> None:
        answers[1].append(event)
        if event == END:
            ended.set()

    worker.submit(Job("run", RUN, first))
    assert began.wait(60)
    worker.submit(Job("run", {**RUN, "gates": {"5.2": 0}}, second))
    assert ended.wait(60)
    worker.close()
    assert [each["event"] for each in answers[0]][-2:] == ["displaced", "end"]
    assert [each["event"] for each in answers[1]][-2:] == ["done", "end"]


def test_a_hundred_questions_at_once_leave_the_last_one_answered(server: Served) -> None:
    results: list[tuple[int, str]] = []

    def click(number: int) -> None:
        body = json.dumps({**RUN, "gates": {f"{number % 6}.{number % 16}": 0}})
        status, _, text = server.request("POST", "/ask/run", body)
        results.append((status, text))

    threads = [threading.Thread(target=click, args=(number,)) for number in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {status for status, _ in results} <= {200, 409}
    for status, text in results:
        if status == 200:
            assert events_in(text)[-1] == END
        else:
            assert "newer question" in json.loads(text)["error"]
    whole = [text for status, text in results if status == 200 and '"done"' in text]
    assert whole
    assert one(server.ask("run", **RUN), "lane", lane="gated")["text"]


def test_a_browser_that_goes_away_ends_the_computation(
    server: Served, pocket: LanguageModel
) -> None:
    """The next question is answered before the first could have been finished."""
    long = {"input": {"prompt": "The king " * 120}, "gates": {"0.0": 0}, "new_tokens": 512}
    body = json.dumps(long).encode()
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        head = (
            f"POST /ask/run HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: {server.cookie}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        connection.sendall(head.encode() + body)
        seen = b""
        while b'"token"' not in seen:
            seen += connection.recv(4096)
    deadline = time.monotonic() + 30
    while server.ask("about") and time.monotonic() < deadline:
        if not busy(server):
            break
    assert not busy(server)


def busy(server: Served) -> bool:
    """Whether the process has computed within a fifth of a second."""
    import psutil

    process = psutil.Process(server.process.pid)
    before = process.cpu_times()
    time.sleep(0.2)
    after = process.cpu_times()
    return (after.user + after.system) - (before.user + before.system) > 0.1


def test_what_is_kept_is_bounded(pocket: LanguageModel) -> None:
    explorer = explorer_of(Explore(), pocket)
    for number in range(3 * KEPT):
        explorer._once(("key", number), lambda: 0)
    assert len(explorer._kept) == KEPT


def test_an_error_of_ours_is_told_and_the_next_question_answered(
    pocket: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    explorer = explorer_of(Explore(), pocket)
    worker = Worker(explorer)
    answers: list[dict[str, Any]] = []
    ended = threading.Event()

    def emit(event: dict[str, Any]) -> None:
        answers.append(event)
        if event == END:
            ended.set()

    with monkeypatch.context() as patch:
        patch.setattr(Explorer, "_run", lambda *_: 1 / 0)
        worker.submit(Job("run", RUN, emit))
        assert ended.wait(60)
    assert answers[0]["status"] == 500 and "ZeroDivisionError" in answers[0]["error"]
    ended.clear()
    worker.submit(Job("run", RUN, emit))
    assert ended.wait(60)
    assert answers[-2]["event"] == "done"
    worker.close()


def test_an_error_of_ours_in_a_look_up_has_a_sentence(
    pocket: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    from starlette.testclient import TestClient

    explorer = explorer_of(Explore(), pocket)
    worker = Worker(explorer)
    guard = application(explorer, worker, ["localhost"], 1)
    client = TestClient(guard, "http://localhost", raise_server_exceptions=False)
    assert client.get(f"/?token={guard.token}").status_code == 200
    monkeypatch.setattr(Explorer, "look_up", lambda *_: 1 / 0)
    answer = client.post("/ask/copy", json=RUN)
    worker.close()
    assert answer.status_code == 500 and "ZeroDivisionError" in answer.json()["error"]


def gathered() -> tuple[list[dict[str, Any]], threading.Event, Any]:
    """Events of an answer, whether it has ended, and what takes them."""
    events: list[dict[str, Any]] = []
    ended = threading.Event()

    def emit(event: dict[str, Any]) -> None:
        events.append(event)
        if event == END:
            ended.set()

    return events, ended, emit


def test_saving_displaces_nothing_and_is_not_displaced(
    pocket: LanguageModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    worker = Worker(explorer_of(Explore(), pocket))
    answers = [gathered() for _ in range(4)]
    long, short = {**RUN, "new_tokens": 20}, {**RUN, "new_tokens": 2}
    for kind, body, (_, _, emit) in zip(
        ("run", "save", "save", "run"), (long, short, short, short), answers, strict=True
    ):
        worker.submit(Job(kind, body, emit))
    for _, ended, _ in answers:
        assert ended.wait(60)
    worker.close()
    names = [events[-2]["event"] for events, _, _ in answers]
    assert names == ["displaced", "saved", "saved", "done"]
    assert answers[1][0][0]["run"] == answers[2][0][0]["run"]

    worker = Worker(explorer_of(Explore(), pocket))
    first, second = gathered(), gathered()
    worker.submit(Job("run", long, first[2]))
    worker.submit(Job("save", short, second[2]))
    assert first[1].wait(60) and second[1].wait(60)
    worker.close()
    assert first[0][-2]["event"] == "done" and second[0][0]["event"] == "saved"


def test_questions_after_the_end_and_those_that_wait_have_an_end(pocket: LanguageModel) -> None:
    worker = Worker(explorer_of(Explore(), pocket))
    running, waiting, late = gathered(), gathered(), gathered()
    worker.submit(Job("run", {**RUN, "new_tokens": 500}, running[2]))
    worker.submit(Job("save", {**RUN, "new_tokens": 500}, waiting[2]))
    worker.close()
    worker.close()
    worker.submit(Job("run", RUN, late[2]))
    for events, ended, _ in (running, waiting, late):
        assert ended.is_set() and events[-2]["event"] == "displaced"


def test_the_end_of_the_server_cuts_no_answer(tmp_path: Path) -> None:
    """`explored` says that Ctrl-C leaves no traceback, and the exit code 0."""
    long = {"input": {"prompt": "The king " * 100}, "gates": {"0.0": 0}, "new_tokens": 512}
    body = json.dumps(long).encode()
    with explored(tmp_path) as served:
        connection = socket.create_connection(("127.0.0.1", served.port))
        connection.sendall(
            f"POST /ask/run HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: {served.cookie}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        seen = b""
        while b'"token"' not in seen:
            seen += connection.recv(4096)
    with connection:
        seen += b"".join(iter(lambda: connection.recv(65536), b""))
    assert b"displaced" in seen and b'"end"' in seen


# ---- the command ---------------------------------------------------------------------------------
def test_a_port_in_use_and_wrong_heads_are_said(server: Served, command: Any) -> None:
    said = command("explore", "--no-browser", "--port", server.port)
    assert said.code == 2 and "choose another --port" in said.err
    said = command("explore", "--no-browser", "--heads", "99.1")
    assert said.code == 2 and "no head L99.H1" in said.err
    said = command("explore", "--no-browser", "--pin", "x")
    assert said.code == 2


def test_heads_of_runs_are_shown(
    pocket: LanguageModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import headscope

    monkeypatch.chdir(tmp_path)
    found = headscope.find.translation_score(pocket, pair=["en-de", "de-en"], limit=10)
    gate = Gate.of(pocket.geometry, {next(iter(pocket.geometry.heads())): 2.0})
    gate.save_pretrained(tmp_path / "gate")
    heads = (str(found.run), str(tmp_path / "gate"), "5.3,4.1")
    about = explorer_of(Explore(heads=heads), pocket).about()
    mean, *directions = about["scores"]
    assert [each["title"] for each in directions] == [
        "translation-score, de → en", "translation-score, en → de",
    ]  # fmt: skip
    assert mean["by"] == mean["columns"][0]["key"] == "above_chance"
    by_place = {head.place: head for head in found.scored}
    for at, head in enumerate(pocket.geometry.heads()):
        values = {column["key"]: column["values"][at] for column in mean["columns"]}
        assert values["score"] == by_place[head].score
        assert values["low"] == by_place[head].low
        assert mean["rank"][at] == by_place[head].rank
    assert about["sets"][0]["gates"] == {"0.0": 2.0}
    assert about["sets"][1]["gates"] == {"4.1": 0.0, "5.3": 0.0}


# ---- hostile connections, and the end at any moment ----------------------------------------------
def posted(served: Served, kind: str, body: Any) -> socket.socket:
    """A connection that has asked and does not read."""
    content = json.dumps(body).encode()
    connection = socket.create_connection(("127.0.0.1", served.port), timeout=60)
    connection.sendall(
        f"POST /ask/{kind} HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: {served.cookie}\r\n"
        f"Content-Length: {len(content)}\r\n\r\n".encode()
        + content
    )
    return connection


@contextmanager
def served_here(lm: LanguageModel) -> Iterator[tuple[int, str]]:
    """The server in a thread of this process: its port, and the cookie that opens it."""
    addresses: queue.Queue[str] = queue.Queue()
    listening = listen("127.0.0.1", 0)
    port = listening.getsockname()[1]
    servers: list[Server] = []
    started = _Server.startup

    async def startup(self: Any, sockets: Any = None) -> None:
        servers.append(self)
        await started(self, sockets)

    explorer = explorer_of(Explore(), lm)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_Server, "startup", startup)
        thread = threading.Thread(
            target=serve, args=(explorer, listening, "127.0.0.1", (), addresses.put)
        )
        thread.start()
        address = addresses.get(timeout=60)
        answer = Served(cast(Any, None), address).request("GET", address[address.index("/?") :])
        try:
            yield port, answer[1]["set-cookie"].partition(";")[0]
        finally:
            servers[0].should_exit = True
            thread.join(60)
            assert not thread.is_alive()


@pytest.mark.parametrize(
    "begun",
    [b"GET / HTTP/1.1\r\nHost: 12", b"POST /ask/about HTTP/1.1\r\nHost: 127.0.0.1\r\n"
     b"Content-Length: 50\r\n\r\n{"],
    ids=["headers", "body"],
)  # fmt: skip
def test_a_request_that_does_not_come_whole_is_closed(
    begun: bytes, pocket: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trickling bytes do not put it off; whole requests on one connection are not counted."""
    monkeypatch.setattr(connections, "PATIENCE", 1.0)
    with served_here(pocket) as (port, _), socket.create_connection(("127.0.0.1", port)) as slow:
        slow.settimeout(0.2)
        slow.sendall(begun)
        until = time.monotonic() + 30
        closed = False
        while not closed and time.monotonic() < until:
            try:
                slow.sendall(b"7")
                while chunk := slow.recv(4096):
                    assert b" 200 " not in chunk
                closed = True
            except TimeoutError:
                continue
            except OSError:
                closed = True
        assert closed


def test_open_connections_are_few_and_the_page_is_still_served(
    pocket: LanguageModel, capsys: pytest.CaptureFixture[str]
) -> None:
    with served_here(pocket) as (port, _), contextlib.ExitStack() as open_ones:
        idle = [
            open_ones.enter_context(socket.create_connection(("127.0.0.1", port)))
            for _ in range(connections.MOST_CONNECTIONS + 40)
        ]
        with socket.create_connection(("127.0.0.1", port), timeout=60) as asking:
            asking.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert b" 403 " in asking.recv(4096)  # answered; without the cookie
        ended = 0
        for connection in idle:
            connection.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                with contextlib.suppress(ConnectionResetError):
                    connection.recv(1)
                ended += 1
        assert 40 <= ended <= 41
        assert connections.MOST_CONNECTIONS + connections.BACKLOG < 200
    assert capsys.readouterr().err.count("\n") <= 2


def test_nonsense_gives_a_line_and_no_traceback(
    pocket: LanguageModel, capsys: pytest.CaptureFixture[str]
) -> None:
    chances = random.Random(0)
    run = json.dumps(RUN).encode()
    with served_here(pocket) as (port, cookie):
        whole = (
            f"POST /ask/about HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: {cookie}\r\n"
            "Content-Length: 2\r\n\r\n{}"
        ).encode()
        asked = whole.replace(b"about", b"run").replace(b": 2", f": {len(run)}".encode())
        for attack in (
            chances.randbytes(2000),
            b"GET / HTTP/1.1\r\nx: " + b"a" * 100_000 + b"\r\n\r\n",
            whole[:-22] + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n",
            whole + b"\x00nonsense\r\n\r\n",
            asked[:-2] + run + chances.randbytes(100),
            asked[:-2] + run[:-4],
            b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\n"
            b"Upgrade: websocket\r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        ):
            for _ in range(12):
                connection = socket.create_connection(("127.0.0.1", port), timeout=60)
                with connection, contextlib.suppress(OSError):
                    connection.sendall(attack)
                    connection.settimeout(0.05)
                    connection.recv(100)
        with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
            connection.sendall(whole)
            assert b" 200 " in connection.recv(4096)
    said = capsys.readouterr().err
    assert "Traceback" not in said
    lines = said.splitlines()
    assert len(lines) == len(set(lines)) and len(lines) < 16


def test_equal_lines_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    """17,522 of them are told at 1, 10, 100, 1,000 and 10,000; only errors of ours have more."""
    log = logging.Logger("test")
    log.addHandler(connections.Lines())
    for _ in range(17_522):
        log.error("no file left", exc_info=OSError(24, "Too many open files"))
    for _ in range(3):
        log.error("an answer failed", exc_info=ZeroDivisionError("by zero"))
    said = capsys.readouterr().err
    assert said.count("no file left") == 5 and "(10,000 times)" in said
    assert said.count("an answer failed") == 1
    assert said.endswith("\nZeroDivisionError: by zero\n")


def test_what_nobody_waits_for_is_not_saved(tmp_path: Path) -> None:
    """Forty saves whose page is gone, behind one that runs and is dropped, too."""
    with explored(tmp_path) as served:
        for number in range(40):
            gates = {f"{number % 6}.{number % 16}": 0.5}
            posted(served, "save", {**RUN, "gates": gates, "new_tokens": 64}).close()
        assert served.ask("run", **RUN)[-1] == END
        assert len([*tmp_path.glob("runs/use-adapt-*")]) <= 1
        saved = one(served.ask("save", **RUN, new_tokens=2), "saved")["run"]
        assert (tmp_path / saved / "DONE.json").is_file()
    unfinished = [
        file for file in tmp_path.glob("runs/use-adapt-*") if not (file / "DONE.json").exists()
    ]
    assert not unfinished


def test_a_job_that_waits_is_dropped(pocket: LanguageModel) -> None:
    worker = Worker(explorer_of(Explore(), pocket))
    running, waiting, third = gathered(), gathered(), gathered()
    worker.submit(Job("save", {"input": {"prompt": "\ud800"}}, running[2]))
    job = Job("save", RUN, waiting[2])
    worker.submit(job)
    worker.drop(job)
    assert waiting[1].wait(60)
    worker.submit(Job("run", RUN, third[2]))
    assert third[1].wait(60)
    worker.close()
    assert waiting[0][0]["event"] == "displaced" and len(waiting[0]) == 2
    assert third[0][-2]["event"] == "done"


def test_a_thousand_draws_end_for_a_newer_question(pocket: LanguageModel) -> None:
    explorer = explorer_of(Explore(), pocket)
    asked: list[int] = []

    def stop() -> bool:
        asked.append(1)
        return len(asked) > 30

    long = {**RUN, "draw": 999, "control": "same layers"}
    with pytest.raises(Stopped):
        explorer.compute("run", long, lambda event: pytest.fail(str(event)), stop)
    assert len(asked) == 31  # in the draws: nothing is told before they are made


# Windows ends a process otherwise: SIGTERM cannot be caught there.
@pytest.mark.skipif(sys.platform == "win32", reason="has no such signals")
@pytest.mark.parametrize(
    ("name", "moment"),
    [
        ("SIGINT", "start"), ("SIGHUP", "start"), ("SIGTERM", "idle"), ("SIGHUP", "idle"),
        ("SIGINT", "run"), ("SIGHUP", "save"),
    ],
)  # fmt: skip
def test_a_signal_ends_it_at_any_moment_without_a_trace(
    name: str, moment: str, tmp_path: Path
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    place = tmp_path / "place"
    place.mkdir()
    arguments = [sys.executable, "-c", START, "explore", "--no-browser"]
    with subprocess.Popen(
        arguments, cwd=place, env={**os.environ, "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None and process.stderr is not None
        try:
            asking = None
            if moment == "start":
                while not [*temporary.glob("headscope-explore-*")]:  # not what imports try out
                    assert process.poll() is None
                    time.sleep(0.01)
            else:
                address = process.stdout.readline().split()[0]
                served = Served(process, address)
                _, headers, _ = served.request("GET", address[address.index("/?") :])
                served.cookie = headers["set-cookie"].partition(";")[0]
                if moment != "idle":
                    long = {"input": {"prompt": "The king " * 120}, "gates": {"0.0": 0}}
                    asking = posted(served, moment, {**long, "new_tokens": 512})
                    time.sleep(0.5)
            process.send_signal(getattr(signal, name))
            assert process.wait(60) == (130 if moment == "start" else 0)
            if asking is not None:
                asking.close()
            assert "Traceback" not in process.stderr.read()
        finally:
            process.kill()
    assert not [*temporary.iterdir()]
    assert not [file for file in place.rglob("*") if file.is_file()]


def test_compiled_code_does_not_put_off_the_end(tmp_path: Path) -> None:
    """A thread that waits in it, with the main one, keeps no process."""
    stubborn = (
        "import signal, threading, time\n"
        "from headscope.live.ending import ending\n"
        "with ending() as end:\n"
        "    (end.folder / 'token').write_text('x')\n"
        "    while True:\n"
        "        try:\n"
        "            print(end.folder, flush=True)\n"
        "            time.sleep(60)\n"
        "        except KeyboardInterrupt: pass\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", stubborn], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            folder = Path(process.stdout.readline().strip())
            assert (folder / "token").is_file()
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 130
        finally:
            process.kill()
    assert not folder.exists()
