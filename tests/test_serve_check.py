"""`headscope serve-check` against servers on loopback: honest ones, and others that lie.

They run the tiny model by plain transformers, multiply channels before W_O themselves, and read
gates by themselves, so nothing of headscope is on their side.
"""

from __future__ import annotations

import json
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import headscope
from conftest import Said, json_of
from headscope.errors import InputError
from headscope.heads import Gate, Geometry
from headscope.lm import LanguageModel
from headscope.studies.serve_check import PROMPTS
from headscope.use.serving import KEY, agreement, ended, found, gate_words, rounding_of
from headscope_vllm.gates import Catalogue, factors_of

#: Heads in a layer of the tiny model.
HEADS = 4
#: Tokens that the command asks for here.
NEW = 12
SECRET = "sk-secret-0123456789"
Factors = Mapping[tuple[int, int], float]


class Plain:
    """A model by transformers alone, under gates of its own."""

    def __init__(self, folder: Path) -> None:
        from transformers import AutoModelForCausalLM

        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        config = self.model.config
        self.layers, self.heads = config.num_hidden_layers, config.num_attention_heads
        self.width = self.model.model.layers[0].self_attn.head_dim
        ends = self.model.generation_config.eos_token_id
        self.ends = ends if isinstance(ends, list) else [ends]
        self.lock = threading.Lock()

    def greedy(self, prompt: list[int], limit: int, factors: Factors) -> list[int]:
        """The tokens that follow, up to an end of text."""

        def multiplied(layer: int) -> Callable[..., Any]:
            def hook(_: Any, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
                own = [factors.get((layer, head), 1.0) for head in range(self.heads)]
                return (inputs[0] * torch.tensor(own).repeat_interleave(self.width),)

            return hook

        with self.lock, torch.no_grad():
            hooks = [
                layer.self_attn.o_proj.register_forward_pre_hook(multiplied(number))
                for number, layer in enumerate(self.model.model.layers)
            ]
            written, read, kept = list[int](), prompt, None
            while len(written) < limit and not set(written[-1:]) & set(self.ends):
                ids = torch.tensor([read])
                out = self.model(input_ids=ids, past_key_values=kept, use_cache=True)
                read, kept = [int(out.logits[0, -1].argmax())], out.past_key_values
                written += read
            for hook in hooks:
                hook.remove()
        return written


class Server(ThreadingHTTPServer):
    """A server of the tiny model; `lie` changes the factors of a request, given whether it has a
    gate, and `reply` a whole answer, given the request's number."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, plain: Plain, handler: type[Handler], gates: Mapping[str, Factors]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.plain, self.gates = plain, gates
        self.lie: Callable[[Factors], Factors] = lambda factors: factors
        self.reply: Callable[[int, Any], Any] = lambda number, answer: answer
        self.strict = True
        self.asked: list[tuple[str, Any, Mapping[str, str]]] = []
        self.under_way, self.most = 0, 0
        self.lock = threading.Lock()
        self.broken: list[str] = []

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing of it on stderr, which is the command's."""
        self.broken.append(traceback.format_exc())

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    """What both protocols share; `pages` are what GET answers, `text` what POST does."""

    server: Server

    def pages(self) -> Mapping[str, Any]:
        return {}

    def text(self, body: Any) -> tuple[int, Any]:
        raise NotImplementedError

    def do_GET(self) -> None:
        pages = self.pages()
        self.answer(*((200, pages[self.path]) if self.path in pages else (404, {"detail": "no"})))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            self.server.asked.append((self.path, body, dict(self.headers)))
            number = len(self.server.asked)
            self.server.under_way += 1
            self.server.most = max(self.server.most, self.server.under_way)
        status, answer = self.text(body)
        time.sleep(0.005)
        with self.server.lock:
            self.server.under_way -= 1
        answer = self.server.reply(number, answer) if status == 200 else answer
        if answer is None:  # it dies
            self.close_connection = True
            self.connection.close()
            return
        self.answer(status, answer)

    def answer(self, status: int, answer: Any) -> None:
        content = (answer if isinstance(answer, str) else json.dumps(answer)).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def written(self, prompt: list[int], limit: int, factors: Factors) -> list[int]:
        return self.server.plain.greedy(prompt, limit, self.server.lie(factors))

    def log_message(self, format: str, *args: object) -> None:
        """Keeps the test output free of the server's log."""


class Vllm(Handler):
    def pages(self) -> Mapping[str, Any]:
        models = {"object": "list", "data": [{"id": "tiny", "owned_by": "vllm"}]}
        return {"/v1/models": models, "/version": {"version": "0.11.0"}}

    def text(self, body: Any) -> tuple[int, Any]:
        assert (self.path, body["model"], body["temperature"]) == ("/v1/completions", "tiny", 0)
        assert body["return_token_ids"] is True
        try:
            gate = body["vllm_xargs"]["heads"] if "vllm_xargs" in body else ""
            known = self.server.gates.get(gate)
            factors = dict(self.factors(part) for part in gate.split(",") if part.strip())
        except ValueError as error:
            known, factors = self.server.gates.get(gate), {}
            if known is None and self.server.strict:
                return 400, {"error": {"message": str(error)}}
        ids = self.written(body["prompt"], body["max_tokens"], known or factors)
        return 200, {"choices": [{"index": 0, "token_ids": ids}]}

    def factors(self, part: str) -> tuple[tuple[int, int], float]:
        head, times, factor = part.strip().partition("*")
        layer, number = (int(each) for each in head.removeprefix("-").split("."))
        plain = self.server.plain
        fits = 0 <= layer < plain.layers and 0 <= number < plain.heads
        if not (fits and head.startswith("-") != bool(times)):
            raise ValueError(f"no head {part}")
        return (layer, number), float(factor or 0)


class LlamaCpp(Handler):
    """With the adapters 0 and 1, of which each removes heads at scale 1."""

    def pages(self) -> Mapping[str, Any]:
        adapters = [{"id": at, "path": name, "scale": 1.0} for at, name in enumerate("ab")]
        models = {"object": "list", "data": [{"id": "tiny", "owned_by": "llamacpp"}]}
        return {"/v1/models": models, "/lora-adapters": adapters, "/props": {"build_info": "b1"}}

    def text(self, body: Any) -> tuple[int, Any]:
        assert (self.path, body["temperature"], body["return_tokens"]) == ("/completion", 0, True)
        scales = {each["id"]: each["scale"] for each in body["lora"]}
        assert scales.keys() == {0, 1}  # one that is left out would stand at its own scale
        factors: dict[tuple[int, int], float] = {}
        for name, scale in scales.items():
            for head, factor in self.server.gates[str(name)].items():
                factors[head] = factors.get(head, 1.0) + scale * (factor - 1)
        ids = self.written(body["prompt"], body["n_predict"], factors)
        return 200, {"content": "", "tokens": ids, "stop_type": "limit"}


GATES = {"quiet": {(0, 1): 0.0, (1, 2): 0.0}}
ADAPTERS = {"0": {(0, 3): 0.0}, "1": {(0, 1): 0.0, (1, 2): 0.0}}


@pytest.fixture(scope="module")
def plain(model: Path) -> Plain:
    return Plain(model)


@pytest.fixture
def serve(
    plain: Plain, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[type[Handler]], Server]]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv(KEY, raising=False)
    started: list[Server] = []

    def start(handler: type[Handler], of: Plain = plain) -> Server:
        server = Server(of, handler, GATES if handler is Vllm else ADAPTERS)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        started.append(server)
        return server

    yield start
    for server in started:
        server.shutdown()
        server.server_close()
        assert server.broken == []


Check = Callable[..., tuple[Said, dict[str, Any]]]


@pytest.fixture
def check(command: Callable[..., Said], model: Path) -> Check:
    """The command on the tiny model, in float32 on both sides; what it says, and its JSON."""

    def run(url: str, *more: object, heads: str = "0.1,1.2") -> tuple[Said, dict[str, Any]]:
        said = command(
            "serve-check", url, "--model", model, "--device", "cpu", "--heads", heads,
            "--max-new-tokens", NEW, "--server-dtype", "float32", "--json", *more,
        )  # fmt: skip
        return said, json_of(said.out) if said.out else {}

    return run


@pytest.mark.parametrize(
    ("handler", "options"),
    [
        (Vllm, []),
        (Vllm, ["--name", "quiet"]),
        (Vllm, ["--scale", "0.25"]),
        (Vllm, ["--scale", "-1.5"]),
        (Vllm, ["--outside", "0.7"]),
        (LlamaCpp, ["--adapter", "1"]),
        (LlamaCpp, ["--adapter", "1", "--adapter-scale", "0.5"]),
    ],
)
def test_an_honest_server_is_right(
    handler: type[Handler], options: list[str], serve: Any, check: Check
) -> None:
    server = serve(handler)
    said, told = check(server.url, *options)
    assert said.code == 0 and told["right"] is True, said
    counts = [told[name] for name in ("equal", "equal_without", "changed", "decisive")]
    assert counts == [len(PROMPTS)] * 4
    texts = [row[side] for row in told["prompts"] for side in ("gated", "plain")]
    assert {text["agreement"]["texts"] for text in texts} == {"equal"}
    assert all(text["here"] == text["served"] for text in texts)
    assert told["server"]["kind"] == ("vLLM" if handler is Vllm else "llama.cpp")
    # A user's requests come together, with and without a gate.
    assert server.most > 1
    assert told["refusal"] == (400 if handler is Vllm else None)
    if handler is Vllm:
        gated = ["vllm_xargs" in body for _, body, _ in server.asked]
        assert gated.count(False) == len(PROMPTS) and gated.count(True) == len(PROMPTS) + 1


def next_head(factors: Factors) -> Factors:
    return {(layer, (head + 1) % HEADS): factor for (layer, head), factor in factors.items()}


def half(factors: Factors) -> Factors:
    return {head: (1 + factor) / 2 for head, factor in factors.items()}


@pytest.mark.parametrize(
    ("handler", "options"),
    [(Vllm, []), (Vllm, ["--name", "quiet"]), (LlamaCpp, ["--adapter", "1"])],
)
@pytest.mark.parametrize(
    ("lie", "with_gate", "without", "as_other"),
    [
        (lambda factors: {}, False, True, True),
        (lambda factors: GATES["quiet"], True, False, True),
        (next_head, False, True, False),
        (half, False, True, False),
        (lambda factors: {(1, 0): 0.0, **factors}, False, False, False),
    ],
    ids=["no gate", "all gated", "another head", "another factor", "another model"],
)
def test_a_server_that_lies_is_caught(
    handler: type[Handler], options: list[str], lie: Any, with_gate: bool, without: bool,
    as_other: bool, serve: Any, check: Check,
) -> None:  # fmt: skip
    server = serve(handler)
    server.lie = lie
    said, told = check(server.url, *options)
    assert (said.code, told["right"]) == (2, False), told["verdict"]
    equal = told["equal"] == len(PROMPTS), told["equal_without"] == len(PROMPTS)
    assert equal == (with_gate, without)
    wrong = [
        text
        for row in told["prompts"]
        for text in (row["gated"], row["plain"])
        if text["agreement"]["texts"] == "different"
    ]
    assert wrong and all(text["as_other"] is as_other for text in wrong)
    agreements = [text["agreement"] for text in wrong]
    assert all(each["gap"] > each["allowed"] > 0 for each in agreements)


def test_every_lie_has_words_of_its_own(serve: Any, check: Check) -> None:
    """What is wrong is said, and of which prompts."""
    server, verdicts = serve(Vllm), []
    for lie in (dict, lambda factors: GATES["quiet"], next_head, lambda factors: {(1, 0): 0.0}):
        server.lie = (lambda factors: {}) if lie is dict else lie
        verdicts.append(check(server.url)[1]["verdict"])
    assert len(set(verdicts)) == len(verdicts)


def test_only_the_prompts_that_differ_are_named(serve: Any, check: Check) -> None:
    server = serve(Vllm)

    def reply(number: int, answer: Any) -> Any:
        _, body, _ = server.asked[number - 1]
        if len(body["prompt"]) == len(PROMPTS[5]) and "vllm_xargs" in body:
            answer["choices"][0]["token_ids"][5] = 3
        return answer

    server.reply = reply
    said, told = check(server.url)
    assert (said.code, told["equal"]) == (2, len(PROMPTS) - 1)
    assert "prompt 6" in told["verdict"] and "prompts" not in told["verdict"]
    assert told["prompts"][5]["gated"]["agreement"]["token"] == 5


def test_a_gate_that_no_server_should_know_is_refused(serve: Any, check: Check) -> None:
    server = serve(Vllm)
    server.strict = False
    said, told = check(server.url)
    assert (said.code, told["right"], told["refusal"]) == (2, False, 200)
    assert told["equal"] == told["equal_without"] == len(PROMPTS)


@pytest.mark.parametrize("lie", [lambda factors: factors, lambda factors: {}])
def test_a_gate_without_an_effect_shows_nothing(lie: Any, serve: Any, check: Check) -> None:
    server = serve(Vllm)
    server.lie = lie
    said, told = check(server.url, "--scale", "0.9999999")
    assert (said.code, told["right"], told["decisive"]) == (2, None, 0)
    assert told["equal"] == len(PROMPTS)


def test_what_rounding_explains_shows_nothing_either(serve: Any, check: Check) -> None:
    """A tolerance that swallows the gate's effect makes no ignored gate right."""
    server = serve(Vllm)
    server.lie = lambda factors: {}
    said, told = check(server.url, "--scale", "0.97", "--server-dtype", "bfloat16")
    texts = [row["gated"]["agreement"]["texts"] for row in told["prompts"]]
    assert "rounding" in texts and "different" not in texts and told["cautions"]
    assert (said.code, told["right"], told["changed"]) == (2, None, 0)
    assert told["rounding"] == 2 * torch.finfo(torch.bfloat16).eps
    exact = check(server.url, "--scale", "0.97")[1]
    assert exact["right"] is False and exact["changed"] > 0


def test_texts_that_end_by_themselves_are_equal(
    serve: Any, command: Callable[..., Said], pocket: LanguageModel
) -> None:
    assert pocket.folder is not None
    server = serve(Vllm, Plain(pocket.folder))
    arguments = ["serve-check", server.url, "--device", "cpu", "--heads", "4.3,5.2", "--json"]
    said = command(*arguments, "--server-dtype", "float32")
    told = json_of(said.out)
    assert (said.code, told["right"]) == (0, True), told["verdict"]
    assert 0 < told["decisive"] < len(PROMPTS)
    texts = [row["plain"] for row in told["prompts"]]
    assert any(len(pocket.encode(text["served"], False)) < 24 for text in texts)
    # One that goes on behind the end is no other.
    server.plain.ends = []
    assert json_of(command(*arguments).out)["right"] is True


@pytest.mark.parametrize(
    "reply",
    [
        lambda number, answer: None if number > 5 else answer,
        lambda number, answer: "<html>",
        lambda number, answer: {"choices": []},
        lambda number, answer: [1, 2],
        lambda number, answer: {"choices": [{"text": "x"}], "content": "x"},
        lambda number, answer: {"choices": [{"token_ids": ["a"]}], "tokens": ["a"]},
    ],
    ids=["dies", "no JSON", "no choice", "a list", "no ids", "ids that are none"],
)
@pytest.mark.parametrize("handler", [Vllm, LlamaCpp])
def test_a_server_that_breaks_off_or_answers_rubbish_is_one_sentence(
    handler: type[Handler], reply: Any, serve: Any, check: Check
) -> None:
    server = serve(handler)
    server.reply = reply
    said, told = check(server.url)
    assert (said.code, told) == (2, {})
    assert said.err.startswith("error: ") and said.err.count("\n") == 1 and server.url in said.err


def test_ids_that_the_model_does_not_have_are_a_difference(serve: Any, check: Check) -> None:
    server = serve(Vllm)
    server.reply = lambda number, answer: {"choices": [{"token_ids": [10**9] * NEW}]}
    said, told = check(server.url)
    assert (said.code, told["equal"], told["equal_without"]) == (2, 0, 0)
    assert {row["gated"]["agreement"]["gap"] for row in told["prompts"]} == {None}


def test_an_error_of_the_server_is_told_without_the_key(
    serve: Any, check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY, SECRET)
    server = serve(Vllm)
    said, told = check(server.url, "--name", f"loud {SECRET}")
    assert (said.code, told) == (2, {})
    assert "status 400" in said.err and SECRET not in said.err
    assert {headers["Authorization"] for _, _, headers in server.asked} == {f"Bearer {SECRET}"}


def test_no_key_is_sent_where_there_is_none(serve: Any, check: Check) -> None:
    server = serve(LlamaCpp)
    check(server.url)
    assert all("Authorization" not in headers for _, _, headers in server.asked)


@pytest.mark.parametrize(
    ("handler", "options"),
    [
        (Vllm, ["--adapter", "0"]),
        (Vllm, ["--adapter-scale", "0.5"]),
        (LlamaCpp, ["--name", "quiet"]),
        (LlamaCpp, ["--adapter", "2"]),
        (LlamaCpp, ["--adapter", "1", "--adapter-scale", "0"]),
        (Vllm, ["--scale", "1"]),
    ],
)
def test_what_a_server_cannot_have_is_told_before_it_is_asked(
    handler: type[Handler], options: list[str], serve: Any, check: Check
) -> None:
    server = serve(handler)
    said, told = check(server.url, *options)
    assert (said.code, told, server.asked) == (2, {}, [])
    assert said.err.startswith("error: ") and said.err.count("\n") == 1


class Other(Handler):
    def pages(self) -> Mapping[str, Any]:
        return {"/v1/models": {"data": [{"id": "x", "owned_by": "somebody"}]}, "/health": {}}


def test_another_server_or_none_is_one_sentence(serve: Any, check: Check) -> None:
    other = serve(Other)
    gone = "http://127.0.0.1:9"
    for url in (other.url, gone, "127.0.0.1:8000", "http://", "http://host:x", "ftp://host", ""):
        said, told = check(url)
        assert (said.code, told) == (2, {}), url
        assert said.err.startswith("error: ") and said.err.count("\n") == 1


def test_an_address_holds_no_secret_and_may_end_as_that_of_a_client(serve: Any) -> None:
    with pytest.raises(InputError) as raised:
        found(f"http://user:{SECRET}@127.0.0.1:1")
    assert SECRET not in str(raised.value)
    server = serve(Vllm)
    assert found(f"{server.url}/v1/") == found(server.url)


def test_what_is_shown_says_what_json_says(
    serve: Any, command: Callable[..., Said], model: Path
) -> None:
    server = serve(Vllm)
    server.lie = lambda factors: {}
    said = command("serve-check", server.url, "--model", model, "--device", "cpu", "--heads", "0.1",
                   "--prompt", "The old mill", "--server-dtype", "float32", "--full")  # fmt: skip
    assert said.code == 2 and "ignores the gate" in said.out and "-0.1" in said.out


def test_prompts_come_from_a_file(serve: Any, check: Check, tmp_path: Path) -> None:
    file = tmp_path / "prompts.txt"
    file.write_text("The cat\nA dog in\nThree\n", "utf-8")
    server = serve(Vllm)
    said, told = check(server.url, "--data", file, "--limit", 2)
    assert (said.code, [row["id"] for row in told["prompts"]]) == (0, ["1", "2"])
    assert len(server.asked) == 2 * 2 + 1


@given(
    st.dictionaries(
        st.tuples(st.integers(0, 11), st.integers(0, 5)),
        st.floats(-1000, 1000, width=32).filter(lambda factor: factor != 1),
        min_size=1,
        max_size=9,
    )
)
def test_a_gate_in_words_is_what_the_plugin_reads(factors: dict[tuple[int, int], float]) -> None:
    geometry = Geometry.uniform(12, 6)
    gate = Gate.of(geometry, {f"{layer}.{head}": of for (layer, head), of in factors.items()})
    words = gate_words(gate)
    assert Catalogue(geometry).read(words) == factors_of(gate)
    assert all(part.startswith("-") != ("*" in part) for part in words.split(", "))


def test_a_text_ends_where_it_ends() -> None:
    assert ended([5, 6, 7], 3, [2]) == (5, 6, 7)
    assert ended([5, 2], 3, [2]) == ended([5], 3, [2]) == ended([5, 2, 9], 3, [2]) == (5, None)
    assert ended([5, 6, 7, 8], 3, [2]) == (5, 6, 7)
    assert ended([], 3, [2]) == (None,)


def test_rounding_explains_a_gap_that_is_small_for_its_dtype(model: Path) -> None:
    lm: LanguageModel = headscope.load(str(model), device="cpu")
    prompt = [40, 41, 42]
    logits = lm.next_logits([prompt])[0]
    best, second, *_, last = logits.argsort(descending=True).tolist()
    largest, gap = float(logits.abs().max()), float(logits[best] - logits[second])
    for share, texts in ((1.001 * gap / largest, "rounding"), (0.999 * gap / largest, "different")):
        compared = agreement(lm, prompt, (best, 5), (second, 7), share)
        assert (compared.texts, compared.token) == (texts, 0)
        assert compared.gap == pytest.approx(gap) and compared.allowed == share * largest
    assert agreement(lm, prompt, (best, 5), (last, 5), rounding_of([lm.dtype])).texts == "different"
    assert agreement(lm, prompt, (best, 5), (best, 5), 0.0).texts == "equal"
    exact = rounding_of([torch.float32])
    assert (
        exact == 2e-5 < rounding_of([torch.float32, torch.float16]) < rounding_of([torch.bfloat16])
    )
