"""The judge against a real HTTP server on this machine, and the command that asks it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chat_helpers import KEY, Endpoint, Reply, failed, said
from headscope.data.chat import ChatModel, EndpointError, default_cache
from headscope.errors import InputError
from headscope.verify.failure.classify import Row
from headscope.verify.failure.judge import judge, question, read_verdict

pytest.importorskip("openai")

ROW = Row("1", "The dog sleeps.", "Der Hund schläft.", "Der Hund schläft.", "The dog sleeps.",
          "en-de", "en", "de")  # fmt: skip
GOOD = json.dumps({"kind": "no translation", "reason": "It repeats the source."})


Serve = Callable[[Callable[[int], tuple[int, str]]], tuple[Endpoint, ChatModel]]


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Serve]:
    for name in ("OPENAI_API_KEY", "HEADSCOPE_BASE_URL", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HEADSCOPE_API_KEY", KEY)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    started: list[Endpoint] = []

    def start(reply: Callable[[int], tuple[int, str]]) -> tuple[Endpoint, ChatModel]:
        def answer(number: int, _: Any) -> Reply:
            status, content = reply(number)
            return said(content) if status == 200 else failed(status)

        server = Endpoint(answer)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        started.append(server)
        options = {"retries": 2, "first_delay": 0.001, "workers": 1}
        return server, ChatModel("m", server.url, tmp_path / "cache", **options)

    yield start
    for server in started:
        server.shutdown()
        server.server_close()


def test_a_verdict_is_asked_for_once_and_kept(serve: Serve) -> None:
    server, options = serve(lambda number: (200, GOOD))
    found = judge([ROW], options)
    assert found.verdicts[0] is not None and found.verdicts[0].kind == "no translation"
    assert found.stats == {"cached": 0, "answered": 1, "invalid": 0, "retries": 0}
    again = judge([ROW], options)
    assert again.verdicts == found.verdicts and again.stats["cached"] == 1
    assert len(server.requests) == 1
    sent = server.requests[0][2]
    assert sent["response_format"]["json_schema"]["strict"] is True
    text = sent["messages"][1]["content"]
    assert "Source (English)" in text and "Reference (German)" in text and "Output to judge" in text
    # Another output, or another model, is another question.
    judge([replace(ROW, after="Der Hund.")], options)
    judge([ROW], replace(options, model="n"))
    assert len(server.requests) == 3


def test_unreadable_answers_are_asked_for_again_and_then_reported(serve: Serve) -> None:
    server, options = serve(lambda number: (200, "perhaps" if number < 3 else GOOD))
    found = judge([ROW], options)
    assert found.stats == {"cached": 0, "answered": 1, "invalid": 0, "retries": 2}
    server, options = serve(lambda number: (200, '{"kind": "bad", "reason": ""}'))
    found = judge([replace(ROW, after="x")], options)
    assert found.verdicts == (None,) and found.stats["invalid"] == 1
    assert len(server.requests) == 3


def test_an_overloaded_server_is_asked_again_and_a_refusal_is_told(serve: Serve) -> None:
    _server, options = serve(lambda number: (503 if number == 1 else 200, GOOD))
    assert judge([ROW], options).stats["retries"] == 1
    _server, options = serve(lambda number: (401, ""))
    with pytest.raises(EndpointError, match="did not judge an output: status 401") as error:
        judge([replace(ROW, after="y")], options)
    assert KEY not in str(error.value)


def test_without_a_key_nothing_is_asked(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    server, options = serve(lambda number: (200, GOOD))
    monkeypatch.delenv("HEADSCOPE_API_KEY")
    with pytest.raises(InputError, match="no API key in the environment"):
        judge([ROW], options)
    assert server.requests == []


def test_answers_are_read_strictly() -> None:
    assert read_verdict(GOOD) is not None
    for text in ("", "[]", "{}", '{"kind": "other"}', '{"kind": 1, "reason": "x"}', "[" * 10**5):
        assert read_verdict(text) is None
    unknown = replace(ROW, source_language=None, target_language="xx-none")
    assert '\nReference: "Der' in question(unknown)[1]["content"]


def test_the_command_tells_agreement(
    serve: Serve, command: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    server, _options = serve(lambda number: (200, GOOD))
    rows = [
        {"id": 1, "source": "The dog sleeps.", "reference": "Der Hund schläft.",
         "before": "Der Hund schläft.", "after": after}
        for after in ("The dog sleeps.", "Der Hund schläft.")
    ]  # fmt: skip
    rows[1]["id"] = 2
    file = tmp_path / "outputs.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    out = tmp_path / "run"
    asked = ["--judge", "llm", "--llm-model", "m", "--base-url", server.url]
    said = command("verify", "failures", "--outputs", file, "--out", out, *asked, "--json")
    assert said.code == 0, said.err
    result = json.loads(said.out)
    assert result["judge"]["agreement"] == 0.5 and result["judge"]["answered"] == 2
    assert result["judge"]["rules_and_judge"]["other"]["no translation"] == 1
    assert [case["judge"]["kind"] for case in result["cases"]] == ["no translation"] * 2
    assert default_cache("failures").is_dir()
    assert command("report", out).code == 0
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "The judge says no translation: It repeats the source." in page
    without = command("verify", "failures", "--outputs", file, "--judge", "llm")
    assert without.code == 2 and "--llm-model" in without.err
