"""The language model aligner against a real HTTP server on this machine."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chat_helpers import KEY, Endpoint, Reply, failed, said
from headscope.data.align import AlignWords, align_words, linked_pairs
from headscope.data.align.llm import (
    RESPONSE_FORMAT,
    LlmAligner,
    align_llm,
    read_answer,
)
from headscope.data.chat import EndpointError
from headscope.data.pairs import SentencePair
from headscope.errors import InputError

pytest.importorskip("openai")

PAIR = (["The", "dog", "sleeps"], ["Der", "Hund", "schläft"])


def linked(*entries: tuple[int, int | None, float]) -> str:
    return json.dumps(
        {"links": [{"target": t, "source": s, "confidence": c} for t, s, c in entries]}
    )


GOOD = linked((0, 0, 0.99), (1, 1, 0.95), (2, 2, 0.91))


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., tuple[Endpoint, LlmAligner]]]:
    for name in ("OPENAI_API_KEY", "HEADSCOPE_BASE_URL", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HEADSCOPE_API_KEY", KEY)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    started: list[Endpoint] = []

    def start(
        reply: Callable[[int, dict[str, Any]], Reply] | str, **options: Any
    ) -> tuple[Endpoint, LlmAligner]:
        server = Endpoint((lambda number, body: said(reply)) if isinstance(reply, str) else reply)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        started.append(server)
        quick: dict[str, Any] = {"retries": 3, "first_delay": 0.001, "workers": 1}
        return server, LlmAligner("m", server.url, **{**quick, **options})

    yield start
    for server in started:
        server.shutdown()
        server.server_close()


def test_links_above_the_threshold_are_kept(serve: Any) -> None:
    answer = linked((2, 2, 0.9), (0, None, 0.99), (1, 1, 0.95))
    server, options = serve(answer)
    result = align_llm([PAIR], options, "English", "German")
    assert result.links == (frozenset({(1, 1)}),)  # 0.9 is not above 0.9
    assert result.stats == {
        "cached": 0, "answered": 1, "malformed": 0, "retries": 0, "kept": 1, "dropped": 1,
    }  # fmt: skip
    lower = align_llm([PAIR], replace(options, threshold=0.5), "English", "German")
    assert lower.links == (frozenset({(1, 1), (2, 2)}),)
    path, headers, body = server.requests[0]
    assert path == "/v1/chat/completions"
    assert headers["authorization"] == f"Bearer {KEY}"
    assert body["model"] == "m"
    assert body["response_format"] == RESPONSE_FORMAT
    assert "temperature" not in body
    for part in ("English", "German", '2: "sleeps"', '1: "Hund"'):
        assert part in body["messages"][1]["content"]


def test_order_is_kept_with_many_workers(serve: Any) -> None:
    def reply(number: int, body: dict[str, Any]) -> Reply:
        last = body["messages"][1]["content"].count("x")
        return said(linked((0, last - 1, 1.0)))

    _, options = serve(reply, workers=8)
    pairs = [(["x"] * (1 + n % 7), ["y"]) for n in range(40)]
    result = align_llm(pairs, options, "English", "German")
    assert result.links == tuple(frozenset({(n % 7, 0)}) for n in range(40))


def test_empty_sentences_ask_nothing(serve: Any) -> None:
    server, options = serve(GOOD)
    assert align_llm([([], ["a"]), (["a"], [])], options, "a", "b").links == (frozenset(),) * 2
    assert server.requests == []


@pytest.mark.parametrize(
    "first", [failed(429), failed(500), failed(503, Retry_After="0.01"), failed(408), failed(409)]
)
def test_what_may_pass_is_tried_again(serve: Any, first: Reply) -> None:
    server, options = serve(lambda number, body: first if number < 3 else said(GOOD))
    result = align_llm([PAIR], options, "English", "German")
    assert result.links == (frozenset({(0, 0), (1, 1), (2, 2)}),)
    assert result.stats["retries"] == 2
    assert len(server.requests) == 3


def test_delays_double_and_the_server_may_ask_for_more(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr("headscope.data.chat.time.sleep", waits.append)

    def reply(number: int, body: dict[str, Any]) -> Reply:
        if number == 4:
            return failed(429, Retry_After="17")
        if number == 5:
            return failed(429, Retry_After="Sat, 01 Jan 2000 00:00:00 GMT")
        return failed(500) if number < 7 else said(GOOD)

    _, options = serve(reply, retries=6, first_delay=1.0, longest_delay=20.0)
    align_llm([PAIR], options, "English", "German")
    for wait, longest in zip(waits, [1, 2, 4, 17, 16, 20], strict=True):
        assert 0.75 * longest <= wait <= longest
    assert waits[3] == 17


def test_giving_up_says_why_without_the_key(
    serve: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server, options = serve(lambda number, body: failed(500), cache=tmp_path)
    with pytest.raises(EndpointError, match="after 4 tries: status 500") as caught:
        align_llm([PAIR], options, "English", "German")
    assert isinstance(caught.value, InputError)
    assert len(server.requests) == 4
    assert "[key]" in str(caught.value)
    error: BaseException | None = caught.value
    while error is not None:  # no exception behind it, which would hold the request's headers
        assert KEY not in repr(error)
        assert type(error).__module__.startswith("headscope")
        error = error.__cause__ or error.__context__
    assert KEY not in caplog.text
    assert list(tmp_path.rglob("*")) == []


@pytest.mark.parametrize(
    "reply", [failed(401), failed(404), failed(400), failed(500, x_should_retry="false")]
)
def test_what_cannot_pass_is_not_tried_again(serve: Any, reply: Reply) -> None:
    server, options = serve(lambda number, body: reply)
    with pytest.raises(EndpointError, match=f"status {reply[0]}"):
        align_llm([PAIR], options, "English", "German")
    assert len(server.requests) == 1


def test_timeouts_are_tried_again(serve: Any) -> None:
    release = threading.Event()

    def reply(number: int, body: dict[str, Any]) -> Reply:
        if number == 1:
            release.wait(20)
        return said(GOOD)

    _, options = serve(reply, timeout=0.5)
    result = align_llm([PAIR], options, "English", "German")
    release.set()
    assert result.stats["retries"] >= 1
    assert result.stats["answered"] == 1


malformed = {
    "no JSON": "I think the dog is Hund.",
    "cut off": GOOD[:-10],
    "no object": "[]",
    "no links": "{}",
    "links no list": '{"links": {}}',
    "entry no object": '{"links": [1, 2, 3]}',
    "source outside": linked((0, 0, 1), (1, 3, 1), (2, 2, 1)),
    "source negative": linked((0, 0, 1), (1, -1, 1), (2, 2, 1)),
    "target outside": linked((0, 0, 1), (1, 1, 1), (3, 2, 1)),
    "target twice": linked((0, 0, 1), (1, 1, 1), (1, 2, 1)),
    "target missing": linked((0, 0, 1), (1, 1, 1)),
    "source missing": '{"links": [{"target": 0, "confidence": 1}]}',
    "source a word": GOOD.replace('"source": 1', '"source": "dog"'),
    "source true": GOOD.replace('"source": 1', '"source": true'),
    "too confident": linked((0, 0, 1), (1, 1, 1.5), (2, 2, 1)),
    "confidence not a number": GOOD.replace("0.95", "NaN"),
    "confidence missing": GOOD.replace(', "confidence": 0.95', ""),
    "nested too deep": "[" * 100_000,
}


@pytest.mark.parametrize("text", malformed.values(), ids=malformed.keys())
def test_malformed_answers_are_not_read(text: str) -> None:
    assert read_answer(text, 3, 3) is None
    assert read_answer(GOOD, 3, 3) is not None


def test_malformed_answers_are_counted_skipped_and_asked_again(serve: Any, tmp_path: Path) -> None:
    replies = [said("nonsense"), said(None), (200, {}, "{}"), (200, {}, "<html>"), said(GOOD)]
    server, options = serve(lambda number, body: replies[number - 1], cache=tmp_path)
    pairs = [(["The", "dog", name], PAIR[1]) for name in "abcde"]
    result = align_llm(pairs, options, "English", "German")
    assert result.links == (None, None, None, None, frozenset({(0, 0), (1, 1), (2, 2)}))
    assert (result.stats["malformed"], result.stats["answered"]) == (4, 1)
    server.reply = lambda number, body: said(GOOD)
    again = align_llm(pairs, options, "English", "German")
    assert None not in again.links
    assert (again.stats["cached"], again.stats["answered"]) == (1, 4)


def test_cached_answers_need_neither_request_nor_key(
    serve: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, options = serve(GOOD, cache=tmp_path)
    first = align_llm([PAIR], options, "English", "German")
    monkeypatch.delenv("HEADSCOPE_API_KEY")
    second = align_llm([PAIR], options, "English", "German")
    assert second.links == first.links
    assert second.stats["cached"] == 1
    strict = align_llm([PAIR], replace(options, threshold=0.94), "English", "German")
    assert strict.links == (frozenset({(0, 0), (1, 1)}),)
    assert len(server.requests) == 1


def test_the_cache_is_keyed_by_all_that_shapes_an_answer(serve: Any, tmp_path: Path) -> None:
    server, options = serve(GOOD, cache=tmp_path)
    other = (["The", "dog", "slept"], PAIR[1])
    for pair, changed, target in [
        (PAIR, options, "German"),
        (other, options, "German"),
        (PAIR, replace(options, model="n"), "German"),
        (PAIR, replace(options, temperature=0.0), "German"),
        (PAIR, options, "Dutch"),
    ]:
        assert align_llm([pair], changed, "English", target).stats["answered"] == 1
    assert server.requests[3][2]["temperature"] == 0.0
    assert len(server.requests) == 5 == len(list(tmp_path.rglob("*.json")))


def test_a_damaged_cache_entry_is_asked_for_again(serve: Any, tmp_path: Path) -> None:
    server, options = serve(GOOD, cache=tmp_path)
    align_llm([PAIR], options, "English", "German")
    (entry,) = tmp_path.rglob("*.json")
    for damage in (b"{", b"\xff\xfe", b""):
        entry.write_bytes(damage)
        assert align_llm([PAIR], options, "English", "German").stats["answered"] == 1
        assert align_llm([PAIR], options, "English", "German").stats["cached"] == 1
    assert len(server.requests) == 4


@pytest.mark.parametrize("key", [None, "", "  ", "sk secret", "sk-\x07", "sk-ü"])
def test_without_a_usable_key_nothing_is_asked(
    serve: Any, monkeypatch: pytest.MonkeyPatch, key: str | None
) -> None:
    server, options = serve(GOOD)
    monkeypatch.delenv("HEADSCOPE_API_KEY")
    if key is not None:
        monkeypatch.setenv("OPENAI_API_KEY", key)
    with pytest.raises(InputError, match="API key") as caught:
        align_llm([PAIR], options, "English", "German")
    assert key is None or not key.strip() or key not in str(caught.value)
    assert server.requests == []


def test_the_key_is_in_no_file_and_no_log(
    serve: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    _, options = serve(GOOD, cache=tmp_path)
    result = align_llm([PAIR], options, "English", "German")
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 1
    assert not any(KEY.encode() in path.read_bytes() for path in files)
    assert KEY not in caplog.text + repr(options) + repr(result)


@pytest.mark.parametrize("url", ["localhost:8000", "http://", "http://[::bad", "/v1", "ftp://a/b"])
def test_a_malformed_base_url(serve: Any, url: str) -> None:
    _, options = serve(GOOD)
    with pytest.raises(InputError, match="base URL"):
        align_llm([PAIR], replace(options, base_url=url), "English", "German")


def test_as_one_of_the_aligners(serve: Any) -> None:
    replies = [said(GOOD), said("nonsense")]
    _, options = serve(lambda number, body: replies[number - 1])
    pairs = [
        SentencePair("1", "The dog sleeps", "Der Hund schläft"),
        SentencePair("2", "The cat sleeps", "Die Katze schläft"),
    ]
    alignment = align_words(pairs, AlignWords("llm", llm=options), "en", "de")
    assert alignment.stats["skipped"] == alignment.stats["malformed"] == 1
    (kept,) = linked_pairs(pairs, alignment)
    assert (kept.id, kept.links) == ("1", {(0, 0), (1, 1), (2, 2)})
