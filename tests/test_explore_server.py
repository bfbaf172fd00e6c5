"""The explorer's server against hostile requests, impatient users and browsers that go away."""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from browser_helpers import chromium, visit
from explore_process import Served, events_in, explored, one
from headscope.heads import Gate
from headscope.live.command import Explore, explorer_of
from headscope.live.explorer import KEPT, Explorer
from headscope.live.server import application
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
        ({"input": {"prompt": "a"}, "gates": {"44.3": 0}}, 400, "no head 44.3"),
        ({"input": {"prompt": "a"}, "gates": {"x": 0}}, 400, "not a head"),
        ({"input": {"prompt": "a"}, "gates": {"9" * 5000 + ".1": 0}}, 400, "not a head"),
        ({"input": {"prompt": " "}}, 400, "empty"),
        ({"input": {"prompt": "\ud800"}}, 400, "surrogate"),
        ({"input": {"prompt": "a " * 3000}}, 400, "context"),
        ({"input": {"prompt": "a" * 30_000}}, 400, "characters"),
        ({"input": {"prompt": "a", "reference": "b " * 3000}}, 400, "context"),
        ({"input": {"prompt": "a", "chat": "yes"}}, 400, "chat is"),
        ({"input": {"sentence": "a"}}, 400, "direction"),
        ({"input": {"sentence": "a", "pair": "xx-yy"}}, 400, "direction"),
        ({"input": {"prompt": "a", "extra": 1}}, 400, "unknown entry 'extra'"),
        ({"input": {"prompt": "a"}, "new_tokens": 10_000}, 400, "from 1 to 512"),
        ({"input": {"prompt": "a"}, "draw": -1}, 400, "whole number"),
        ({"input": {"prompt": "a"}, "pinned": "9.9"}, 400, "no head 9.9"),
    ],
)
def test_what_makes_no_sense_gets_a_sentence(
    server: Served, body: Any, status: int, words: str
) -> None:
    answer = server.refused("run", body)
    assert answer[0] == status and words in answer[1] and len(answer[1]) < 300, answer
    assert one(server.ask("run", **RUN), "lane", lane="gated")["text"]


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


def test_an_older_computation_ends_within_two_tokens(counted: Counted) -> None:
    at_stop: list[int] = []
    stopped = threading.Event()

    def emit(event: dict[str, Any]) -> None:
        if event["event"] == "token" and event["at"] == 3:
            at_stop.append(counted.passes)
            stopped.set()

    with pytest.raises(Stopped):
        counted.explorer.compute("run", RUN, emit, stopped.is_set)
    assert counted.passes - at_stop[0] <= 2


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


def test_an_output_without_tokens_has_no_place_among_draws(pocket: LanguageModel) -> None:
    """Without a reference there is nothing whose log-probability could change."""

    def end(_: Any, args: tuple[Any, ...], output: Any) -> Any:
        output.logits[..., pocket.eos_token_ids[0]] = 1e4
        return output

    events: list[dict[str, Any]] = []
    with pocket.model.register_forward_hook(end, prepend=True):
        explorer_of(Explore(), pocket).compute("run", RUN, events.append, bool)
    assert not one(events, "lane", lane="gated")["tokens"]
    names = [event["event"] for event in events]
    assert "place" not in names and names[-1] == "done"


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
    assert said.code == 2 and "no head 99.1" in said.err
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
    by_place = {head.place: head for head in found.heads}
    for at, head in enumerate(pocket.geometry.heads()):
        values = {column["key"]: column["values"][at] for column in mean["columns"]}
        assert values["score"] == by_place[head].score
        assert values["low"] == by_place[head].low
        assert mean["rank"][at] == by_place[head].rank
    assert about["sets"][0]["gates"] == {"0.0": 2.0}
    assert about["sets"][1]["gates"] == {"4.1": 0.0, "5.3": 0.0}


def test_connections_without_http_do_not_disturb(server: Served) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(b"\x16\x03\x01 no http\r\n\r\n")
        connection.recv(100)
    assert server.request("GET", "/")[0] == 200
