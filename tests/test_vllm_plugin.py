"""The plugin of vLLM, without vLLM: what requests may ask, rows of gates, and an engine of the same
fields as vLLM's, on which the proof must catch every way of being wrong."""

from __future__ import annotations

import builtins
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headscope.errors import InputError
from headscope.heads import Gate, Geometry, Head, HeadScores, HeadSet
from headscope.heads.resolve import save_scores
from headscope_vllm import engine
from headscope_vllm.gates import Catalogue, Factors, catalogue, digest_of, geometry_of, salted
from headscope_vllm.peaks import LONGEST, Answers, Part, Peaks
from headscope_vllm.rows import Asked, GateRows

GEOMETRY = Geometry.uniform(4, 6)
SERVED = Catalogue(GEOMETRY, {"es": ((1, 2, 0.0),), "half": ((0, 0, 0.5), (3, 5, 0.5))})
PLUGIN = Path(__file__).parents[1] / "plugins" / "vllm"

heads = st.tuples(st.integers(0, 3), st.integers(0, 5))
numbers = st.floats(-1000, 1000, width=32)
gates = st.dictionaries(heads, numbers, max_size=8).map(
    lambda gate: tuple((*head, factor) for head, factor in sorted(gate.items()) if factor != 1)
)


# What requests ask for


@given(st.dictionaries(heads, numbers, min_size=1), st.randoms(), st.sampled_from(["", " ", "  "]))
def test_a_gate_written_out_is_read_as_it_is(gate: Any, random: Any, gap: str) -> None:
    parts = [
        f"-L{layer}.H{head}" if factor == 0 and random.random() < 0.5
        else f"{layer}.{head}{gap}*{gap}{factor!r}"
        for (layer, head), factor in gate.items()
    ]  # fmt: skip
    random.shuffle(parts)
    read = SERVED.read(f"{gap},{gap}".join(parts))
    assert {(layer, head): factor for layer, head, factor in read} == {
        head: factor for head, factor in gate.items() if factor != 1
    }
    assert list(read) == sorted(read)


def test_names_stand_for_gates_that_the_operator_listed() -> None:
    assert SERVED.read(" es ") == ((1, 2, 0.0),)
    assert Catalogue(GEOMETRY).read("-1.2") == SERVED.read("es")


RUBBISH = ("", " ", ",", "-", "*", "5", "1.2", "-1.2,", "-1.2,-1.2", "-1.2*0.5", "1.2*", "1.2*x",
           "1.2*nan", "1.2*1e39", "1.2*1001", ",".join(["-1.2"] * 25),
           "1.2*-inf", "-4.0", "-0.6", "--1.2", "es,half", "es*0.5", "../es",
           "/etc/passwd", "hf://a/b", "a" * 10**6, "-1." + "9" * 5000, "1.2*1_0",
           "1.2*\u0661", "-1.2;-1.3", "\x00", "−1.2",
           None, 3, 1.2, True, [], ["-1.2"], {"1.2": 0}, b"-1.2")  # fmt: skip


@pytest.mark.parametrize("asked", RUBBISH, ids=lambda asked: repr(asked)[:12])
def test_rubbish_is_refused_in_a_sentence_and_no_file_is_opened(
    asked: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("a file was opened")

    with monkeypatch.context() as here:
        here.setattr(builtins, "open", opened)
        here.setattr(Path, "exists", opened)
        with pytest.raises(InputError) as error:
            SERVED.read(asked)
    assert 10 < len(str(error.value)) < 400


@given(st.text(st.sampled_from("-.*,0123456789 LHeinfs/\u0663"), max_size=20))
def test_any_text_is_a_gate_of_the_model_or_refused(asked: str) -> None:
    try:
        read = SERVED.read(asked)
    except InputError:
        return
    assert all(Head(layer, head) in set(GEOMETRY.heads()) for layer, head, _ in read)
    assert all(np.isfinite(factor) for *_, factor in read)


def test_gates_are_what_heads_takes(tmp_path: Path) -> None:
    values = np.ones((4, 6), dtype=np.float32)
    values[2, 1], values[0, 3] = 0.25, 0.0
    Gate(GEOMETRY, values).save_pretrained(tmp_path / "soft" / "gate")
    HeadSet.parse("3.1,0.2", GEOMETRY).save_pretrained(tmp_path / "set")
    ranked = np.arange(24, dtype=np.float64).reshape(4, 6)
    save_scores(tmp_path / "found", HeadScores(GEOMETRY, ranked, "test"))
    served = catalogue(
        {
            "soft": str(tmp_path / "soft"),
            "set": str(tmp_path / "set"),
            "best": {"heads": str(tmp_path / "found"), "k": 2, "factor": 2.0},
            "list": {"heads": "1.1", "factor": 0.5},
        },
        GEOMETRY,
    )
    assert served.named == {
        "soft": ((0, 3, 0.0), (2, 1, 0.25)),
        "set": ((0, 2, 0.0), (3, 1, 0.0)),
        "best": ((3, 4, 2.0), (3, 5, 2.0)),
        "list": ((1, 1, 0.5),),
    }


@pytest.mark.parametrize(
    "given",
    [
        ["es"], {"5.1": "1.1"}, {"": "1.1"}, {"a/b": "1.1"}, {"x" * 65: "1.1"}, {"es": 3},
        {"es": {"heads": "1.1", "scale": 2}}, {"es": {"heads": "1.1", "factor": "2"}},
        {"es": {"k": 3}}, {"es": "9.9"}, {"es": "no/such/folder"},
        {"es": {"heads": "1.1", "factor": float("nan")}}, {"es": {"heads": "1.1", "factor": True}},
    ],
    ids=lambda given: repr(given)[:24],
)  # fmt: skip
def test_a_gate_that_cannot_be_served_is_refused_at_the_start(given: Any) -> None:
    with pytest.raises(InputError):
        catalogue(given, GEOMETRY)


def test_gates_of_other_models_and_of_other_parts_are_refused(tmp_path: Path) -> None:
    Gate(Geometry.uniform(2, 6), np.zeros((2, 6))).save_pretrained(tmp_path / "other")
    with pytest.raises(InputError, match="2 layers"):
        catalogue({"es": str(tmp_path / "other")}, GEOMETRY)
    query = Gate(GEOMETRY, np.zeros((4, 6)))
    query = replace(query, origin=replace(query.origin, config={"on": "query"}))
    query.save_pretrained(tmp_path / "query")
    with pytest.raises(InputError, match="query"):
        catalogue({"es": str(tmp_path / "query")}, GEOMETRY)


@given(st.lists(st.tuples(gates, st.none() | st.text(max_size=3)), min_size=2, max_size=6))
def test_keys_and_values_are_shared_by_equal_gates_and_salts_alone(asked: Any) -> None:
    salts = [salted(digest_of(gate), own) for gate, own in asked]
    assert not {own for _, own in asked} & {*salts}
    for left, one in zip(asked, salts, strict=True):
        for right, other in zip(asked, salts, strict=True):
            # 0 and -0 remove alike, and may be cached apart.
            assert (one == other) is (repr(left) == repr(right))


def test_the_salt_of_a_gate_cannot_be_written_by_another_request() -> None:
    program = "from headscope_vllm.gates import salted; print(salted('a', None))"
    made = {
        subprocess.run([sys.executable, "-c", program], env=path, capture_output=True, text=True,
                       check=True).stdout
        for path in 2 * [{"PYTHONPATH": str(PLUGIN / "src")}]
    }  # fmt: skip
    assert len(made) == 2


def test_layers_without_attention_have_no_heads() -> None:
    types = ["linear_attention", "full_attention", "sliding_attention", "mamba"]
    config = SimpleNamespace(layer_types=types, num_attention_heads=6)
    assert geometry_of(config, 4, 6) == Geometry((0, 6, 6, 0))
    assert geometry_of(SimpleNamespace(num_attention_heads=6), 4, 6) == GEOMETRY
    with pytest.raises(InputError):
        geometry_of(SimpleNamespace(num_attention_heads=[6, 4, 6, 6]), 4, 6)


# Rows of gates

steps = st.lists(
    st.lists(
        st.tuples(st.sampled_from([0, 0, 1, 2, 3, 4]), st.integers(1, 5)), min_size=1, max_size=6
    ),
    min_size=1,
    max_size=8,
)


@settings(deadline=None)
@given(st.lists(gates, min_size=4, max_size=4), steps)
def test_every_token_has_the_gate_of_its_request_over_any_schedule(
    some: list[Factors], schedule: list[list[tuple[int, int]]]
) -> None:
    """Also over two processes with half of the heads each; no gate stays from earlier steps."""
    every = [(), *some]
    whole = GateRows(4, range(6), 40, 6, torch.device("cpu"))
    halves = [GateRows(4, own, 40, 6, torch.device("cpu")) for own in (range(3), range(3, 6))]
    for batch in schedule:
        asked, tokens = [every[at] for at, _ in batch], [number for _, number in batch]
        for rows in (whole, *halves):
            rows.fill([Asked(digest_of(gate) if gate else "", gate) for gate in asked], tokens)
        padded = sum(tokens) + 3
        for layer in range(4):
            expected = torch.ones(padded, 6)
            start = 0
            for gate, number in zip(asked, tokens, strict=True):
                for at, head, factor in gate:
                    if at == layer:
                        expected[start : start + number, head] = factor
                start += number
            written = torch.ones(padded, 6, 2)
            whole.multiply(layer, written)
            assert torch.equal(written, expected.unsqueeze(-1).expand(-1, -1, 2))
            parts = [torch.ones(padded, 3, 2) for _ in halves]
            for rows, part in zip(halves, parts, strict=True):
                rows.multiply(layer, part)
            assert torch.equal(torch.cat(parts, 1), written)
        assert whole.active is any(asked)


def test_gates_are_multiplied_in_the_dtype_of_the_model() -> None:
    rows = GateRows(1, range(2), 4, 2, torch.device("cpu"))
    rows.fill([Asked("a", ((0, 1, 0.3),))], [2])
    written = torch.full((2, 2, 3), 1.7, dtype=torch.bfloat16)
    rows.multiply(0, written)
    assert torch.equal(
        written[:, 1],
        torch.tensor(1.7).bfloat16() * torch.tensor(0.3).bfloat16() * torch.ones(2, 3),
    )
    assert torch.equal(written[:, 0], torch.full((2, 3), 1.7, dtype=torch.bfloat16))


# Peaks


def attention_like(window: int | None, cap: float, sinks: torch.Tensor | None) -> Any:
    """Attention of four heads, two of which share keys."""
    made = type("Attention", (), {})()
    made.num_heads, made.num_kv_heads, made.sliding_window = 4, 2, window
    made.impl = SimpleNamespace(scale=0.5, logits_soft_cap=cap, sinks=sinks, alibi_slopes=None)
    return made


def naive_weights(attention: Any, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """The whole matrix of a text, (heads, queries, keys)."""
    keys = key.repeat_interleave(2, dim=1)
    scores = torch.einsum("qhd,khd->hqk", query, keys) * 0.5
    if attention.impl.logits_soft_cap:
        scores = attention.impl.logits_soft_cap * torch.tanh(
            scores / attention.impl.logits_soft_cap
        )
    places = torch.arange(len(query))
    apart = places[:, None] - places[None, :]
    seen = apart >= 0
    if attention.sliding_window is not None:
        seen &= apart < attention.sliding_window
    scores = scores.masked_fill(~seen, -torch.inf).exp()
    total = scores.sum(-1, keepdim=True)
    if attention.impl.sinks is not None:
        total = total + attention.impl.sinks[:, None, None].exp()
    return scores / total


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 2**31), st.sampled_from([None, 1, 3, 50]), st.sampled_from([0.0, 2.0]),
    st.booleans(), st.lists(st.integers(1, 4), min_size=1, max_size=4), st.integers(1, 9),
    st.integers(0, 3),
)  # fmt: skip
def test_peaks_are_those_of_the_whole_matrix_however_a_prompt_is_read(
    seed: int, window: int | None, cap: float, sink: bool, chunks: list[int], written: int, off: int
) -> None:
    made = torch.Generator().manual_seed(seed)
    prompt = sum(chunks)
    total, heads = prompt + written - 1, (0, 3)
    query = torch.randn(total, 4, 3, generator=made)
    key = torch.randn(total, 2, 3, generator=made)
    attention = attention_like(window, cap, torch.randn(4, generator=made) if sink else None)
    looked, answers, position = Peaks(), Answers(), 0
    for tokens in [*chunks, *[1] * (written - 1)]:
        part = Part("r", {2: heads}, off, position, tokens, prompt)
        looked.begin([part], {"r"})
        rows = slice(position, position + tokens)
        # Other requests' tokens stand before it in the step.
        own = [torch.cat([torch.zeros(off, *all_.shape[1:]), all_[rows]]) for all_ in (query, key)]
        looked.look(1, attention, *own)
        looked.look(2, attention, *own)
        answers.add(looked.news())
        position += tokens
    told = answers.take("r", written)
    assert told is not None and answers.take("r", written) is None
    weights = naive_weights(attention, query, key)
    for head in heads:
        peaks = told[f"2.{head}"]
        assert len(peaks) == written
        for at, (place, weight) in enumerate(peaks):
            row = weights[head, prompt - 1 + at]
            assert weight == pytest.approx(float(row.max()), abs=1e-6)
            assert float(row[int(place)]) == pytest.approx(weight, abs=1e-6)


def test_weights_that_are_not_computed_are_said() -> None:
    alibi = attention_like(None, 0.0, None)
    alibi.impl.alibi_slopes = torch.ones(4)
    other = type("ChunkedLocalAttention", (), vars(attention_like(None, 0.0, None)))()
    plain, shared = (attention_like(None, 0.0, None) for _ in range(2))
    shared.kv_sharing_target_layer_name = "model.layers.0"
    keys = torch.ones(1, 2, 3)
    for attention, position, key in (
        (alibi, 0, keys), (other, 0, keys), (plain, 2, keys), (shared, 0, keys), (plain, 0, None),
        (plain, LONGEST, keys),
    ):  # fmt: skip
        looked, answers = Peaks(), Answers()
        looked.begin([Part("r", {0: (1,)}, 0, position, 1, 1)], {"r"})
        looked.look(0, attention, torch.ones(1, 4, 3), key)
        answers.add(looked.news())
        assert set(answers.take("r", 1) or ()) == {"error"}


def test_what_fails_for_one_request_fails_for_it_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    query, keys = torch.randn(2, 4, 3), torch.randn(2, 2, 3)
    attention = attention_like(None, 0.0, None)

    def full(self: Peaks, own: Any, *more: Any) -> bool:
        if own is self._kept["a"]:
            raise torch.OutOfMemoryError("no")
        return kept(self, own, *more)

    kept = Peaks._kept_with
    small = 300 * keys[0, :1].nbytes
    for changed in (("headscope_vllm.peaks.Peaks._kept_with", full),
                    ("headscope_vllm.peaks.HELD", small)):  # fmt: skip
        with monkeypatch.context() as here:
            here.setattr(*changed)
            looked, answers = Peaks(), Answers()
            # Of one head a layer 256 places are kept, of heads with two keys twice as much.
            looked.begin(
                [Part("a", {0: (0, 3)}, 0, 0, 1, 1), Part("b", {0: (1,)}, 1, 0, 1, 1)], {"a", "b"}
            )
            looked.look(0, attention, query, keys)
            answers.add(looked.news())
            assert set(answers.take("a", 1) or ()) == {"error"}
            assert (answers.take("b", 1) or {})["0.1"] == [[0, pytest.approx(1.0)]]
            assert not looked._kept["a"].keys


def test_a_request_that_gives_way_twice_has_its_keys() -> None:
    made = torch.Generator().manual_seed(0)
    query, key = (torch.randn(101, heads, 3, generator=made) for heads in (4, 2))
    attention, looked, answers = attention_like(None, 0.0, None), Peaks(), Answers()
    # Read again from its first token, and then from where its own blocks are still there.
    for position, tokens in ((0, 100), (100, 1), (0, 32), (64, 36), (100, 1)):
        looked.begin([Part("r", {0: (3,)}, 0, position, tokens, 100)], {"r"})
        rows = slice(position, position + tokens)
        looked.look(0, attention, query[rows], key[rows])
        answers.add(looked.news())
    weights = naive_weights(attention, query, key)[3]
    told = (answers.take("r", 2) or {})["0.3"]
    assert [place for place, _ in told] == [int(row.argmax()) for row in weights[99:]]


@pytest.mark.parametrize(
    "asked", ["5.1", [], ["9.9"], [1.2], ["1.1"] * 33, ["1.1", None], {"1.1": 0}, None], ids=repr
)
def test_rubbish_for_peaks_is_refused(asked: Any) -> None:
    assert SERVED.read_peaks(["L1.H2", "0.1", "1.2"]) == ((0, 1), (1, 2))
    with pytest.raises(InputError):
        SERVED.read_peaks(asked)


# An engine with the fields that the plugin uses

LAYERS, HEADS, WIDTH, WORDS = 3, 4, 2, 50


class RowParallelLinear(torch.nn.Module):
    """A projection back, whose input is divided among processes."""

    def __init__(self) -> None:
        super().__init__()
        self.input_size_per_partition = HEADS * WIDTH
        self.linear = torch.nn.Linear(HEADS * WIDTH, HEADS * WIDTH, bias=False)

    def forward(self, written: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.linear(written)
        return out


class Kernel:
    """What a head writes: sums of its values so far, within a request."""

    scale, alibi_slopes = 1.0, None

    def forward(self, layer: Any, values: torch.Tensor, key: torch.Tensor,
                parts: Sequence[tuple[str, int]], *, output: torch.Tensor) -> None:  # fmt: skip
        lengths = [length for _, length in parts]
        for (name, _), own, out in zip(
            parts, values.split(lengths), output.split(lengths), strict=True
        ):
            before = layer.cache.get(name, torch.zeros(1, HEADS, WIDTH))
            sums = own.cumsum(0) + before
            layer.cache[name] = sums[-1:]
            out.copy_(sums)


class Attention(torch.nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.attn_type, self.num_heads, self.head_size_v = "decoder", HEADS, WIDTH
        self.num_kv_heads, self.sliding_window = HEADS, None
        self.layer_name, self.cache = name, dict[str, torch.Tensor]()
        self.impl = Kernel()

    def forward(self, values: torch.Tensor, parts: Sequence[tuple[str, int]]) -> torch.Tensor:
        output = torch.empty(len(values), HEADS, WIDTH)
        own = values.view(-1, HEADS, WIDTH)
        self.impl.forward(self, own, own, parts, output=output)
        return output.view(len(values), -1)


class Model(torch.nn.Module):
    do_not_compile = False

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words = torch.nn.Embedding(WORDS, HEADS * WIDTH)

        def block(at: int) -> torch.nn.ModuleDict:
            attention = Attention(f"layers.{at}.self_attn.attn")
            inner = torch.nn.ModuleDict({"attn": attention, "o_proj": RowParallelLinear()})
            return torch.nn.ModuleDict({"self_attn": inner})

        self.layers = torch.nn.ModuleList(map(block, range(LAYERS)))

    def forward(self, tokens: torch.Tensor, parts: Sequence[tuple[str, int]]) -> torch.Tensor:
        hidden: torch.Tensor = self.words(tokens)
        for layer in self.layers:
            own = layer["self_attn"]
            hidden = hidden + torch.tanh(own["o_proj"](own["attn"](hidden, parts)))
        last = torch.tensor([length for _, length in parts]).cumsum(0) - 1
        return hidden[last] @ self.words.weight.T


def config(**more: Any) -> Any:
    parallel = {"pipeline_parallel_size": 1, "use_ubatching": False, "tensor_parallel_size": 1,
                "decode_context_parallel_size": 1, "prefill_context_parallel_size": 1,
                "data_parallel_size": 1, "data_parallel_size_local": 1}  # fmt: skip
    model = SimpleNamespace(
        runner_type="generate", dtype=torch.float32, get_vocab_size=lambda: WORDS,
        hf_text_config=SimpleNamespace(num_attention_heads=HEADS),
        model_arch_config=SimpleNamespace(
            total_num_hidden_layers=LAYERS, total_num_attention_heads=HEADS
        ),
    )  # fmt: skip
    known = {
        "model_config": model, "additional_config": {}, "use_v2_model_runner": False,
        "parallel_config": SimpleNamespace(**parallel),
        "cache_config": SimpleNamespace(kv_sharing_fast_prefill=False, cache_dtype="auto"),
        "compilation_config": SimpleNamespace(
            pass_config=SimpleNamespace(fuse_attn_quant=False), max_cudagraph_capture_size=None,
            static_forward_context={}, cudagraph_mode=None,
        ),
        "kv_transfer_config": None, "speculative_config": None, "lora_config": None,
    }  # fmt: skip
    return SimpleNamespace(**{**known, **more})


@dataclass
class SamplingParams:
    temperature: float = 1.0
    max_tokens: int = 16
    n: int = 1
    stop: tuple[str, ...] = ()
    output_kind: Any = field(default_factory=lambda: SimpleNamespace(name="FINAL_ONLY"))
    extra_args: dict[str, Any] | None = None


@dataclass
class Step:
    scheduled_new_reqs: list[Any] = field(default_factory=list)
    scheduled_cached_reqs: Any = None
    num_scheduled_tokens: dict[str, int] = field(default_factory=dict)
    total_num_scheduled_tokens: int = 0
    num_common_prefix_blocks: list[int] = field(default_factory=list)
    finished_req_ids: set[str] = field(default_factory=set)

    @classmethod
    def make_empty(cls) -> Step:
        return cls()


class BadRequest(Exception):
    def __init__(self, message: str, parameter: str = "") -> None:
        super().__init__(message)


def build() -> dict[str, ModuleType]:
    """Modules of an engine, new ones each time, since the plugin changes their classes."""

    class InputProcessor:
        def __init__(self, vllm_config: Any) -> None:
            self.vllm_config = vllm_config

        def process_inputs(
            self, request_id: str, prompt: Any, params: Any, resumable: bool = False
        ) -> Any:
            return SimpleNamespace(
                prompt_token_ids=prompt.get("prompt_token_ids", [1]),
                request_id=request_id, cache_salt=prompt.get("cache_salt"),
                sampling_params=replace(params) if isinstance(params, SamplingParams) else None,
            )  # fmt: skip

    class GPUModelRunner:
        def __init__(self, vllm_config: Any) -> None:
            self.vllm_config, self.model = vllm_config, Model()
            self.model_config = vllm_config.model_config
            self.max_num_tokens, self.max_num_reqs = 64, 8
            self.device = torch.device("cpu")
            self.requests = dict[str, Any]()
            self.input_batch = SimpleNamespace(req_ids=[], num_computed_tokens_cpu=np.zeros(8))
            self.execute_model_state: Any = None
            self.later = False
            for at, layer in enumerate(self.model.layers):
                context = vllm_config.compilation_config.static_forward_context
                context[f"layers.{at}.self_attn.attn"] = layer["self_attn"]["attn"]

        def get_model(self) -> Any:
            return self.model

        def initialize_kv_cache(self, kv_cache_config: Any) -> None:
            self.kv_cache_config = kv_cache_config

        def _prepare_inputs(self, scheduler_output: Any, tokens: Any) -> Any:
            return tokens

        def execute_model(self, step: Any) -> None:
            for name in step.finished_req_ids:
                del self.requests[name]
                for layer in self.vllm_config.compilation_config.static_forward_context.values():
                    del layer.cache[name]
            assert len(step.num_scheduled_tokens) <= self.max_num_reqs
            for new in step.scheduled_new_reqs:
                self.requests[new.req_id], new.known = new, 0
            if not step.total_num_scheduled_tokens:
                return
            # The order of a batch is the engine's own, not that of what came.
            self.input_batch.req_ids = names = sorted(step.num_scheduled_tokens, reverse=True)
            parts = [(name, step.num_scheduled_tokens[name]) for name in names]
            for at, name in enumerate(names):
                self.input_batch.num_computed_tokens_cpu[at] = self.requests[name].known
            self._prepare_inputs(step, np.array([length for _, length in parts]))
            rows = [self.requests[name].prompt_token_ids for name in names]
            known = [self.requests[name].known for name in names]
            own = [
                row[at : at + some] for row, at, (_, some) in zip(rows, known, parts, strict=True)
            ]
            for name, length in parts:
                self.requests[name].known += length
            with torch.no_grad():
                logits = self.model(torch.tensor([*chain(*own)]), parts)
            self.execute_model_state = SimpleNamespace(logits=logits)

        def dummy_run(self) -> None:
            """As between two steps: no inputs are prepared."""
            with torch.no_grad():
                self.model(torch.tensor([3]), [("dummy", 1)])

        def sample_tokens(self, _: Any) -> Any:
            self.execute_model_state = None
            # On its way to another process, or there later.
            output = SimpleNamespace()
            return SimpleNamespace(get_output=lambda: output) if self.later else output

    def beams() -> type:
        class Request:
            def __init__(self, xargs: Any) -> None:
                self.vllm_xargs = xargs

            def to_beam_search_params(self, number: int) -> int:
                return number

        return Request

    class Scheduler:
        def __init__(self) -> None:
            self.requests = dict[str, Any]()

        def update_from_output(self, step: Any, output: Any) -> list[Any]:
            ended = [
                SimpleNamespace(request_id=name, num_output_tokens=1) for name in self.requests
            ]
            return [self._free_request(request) for request in ended]

        def _free_request(self, request: Any) -> tuple[dict[str, Any] | None, None]:
            return None, None

    class EngineCore:
        def __init__(self, vllm_config: Any, workers: list[Any]) -> None:
            engine.install()  # as an engine's process does, by its entry points

            def ask(method: str) -> list[Any]:
                return [getattr(worker, method)() for worker in workers]

            self.model_executor = SimpleNamespace(collective_rpc=ask)
            self.kept = self._initialize_kv_caches(vllm_config)

        def _initialize_kv_caches(self, vllm_config: Any) -> str:
            return "keys"

        def preprocess_add_request(self, request: Any) -> tuple[Any, int]:
            return request, 0

    class Worker:
        def __init__(self, vllm_config: Any) -> None:
            self.vllm_config, self.model_config = vllm_config, vllm_config.model_config
            self.model_runner = GPUModelRunner(vllm_config)

        def compile_or_warm_up_model(self) -> float:
            return 0.0

    told = dict[str, dict[str, Any]](
        {
            "vllm": {"SamplingParams": SamplingParams, "__version__": "0.32.0"},
            "vllm.envs": {"VLLM_USE_RUST_FRONTEND": False},
            "vllm.logger": {"init_logger": lambda _: SimpleNamespace(info=lambda *_: None)},
            "vllm.exceptions": {"VLLMValidationError": BadRequest},
            "vllm.distributed": {"get_tensor_model_parallel_rank": lambda: 0},
            "vllm.model_executor.layers.attention.attention": {"Attention": Attention},
            "vllm.model_executor.layers.linear": {"RowParallelLinear": RowParallelLinear},
            "vllm.v1.attention.backend": {"AttentionType": SimpleNamespace(DECODER="decoder")},
            "vllm.v1.core.sched.output": {
                "SchedulerOutput": Step, "NewRequestData": SimpleNamespace,
                "CachedRequestData": SimpleNamespace(make_empty=SimpleNamespace),
            },
            "vllm.entrypoints.openai.completion.protocol": {"CompletionRequest": beams()},
            "vllm.entrypoints.openai.chat_completion.protocol": {"ChatCompletionRequest": beams()},
            "vllm.entrypoints.speech_to_text.translation.protocol": {"TranslationRequest": beams()},
            "vllm.v1.core.sched.scheduler": {"Scheduler": Scheduler},
            "vllm.v1.engine.core": {"EngineCore": EngineCore},
            "vllm.v1.engine.input_processor": {"InputProcessor": InputProcessor},
            "vllm.v1.worker.gpu_model_runner": {"GPUModelRunner": GPUModelRunner},
            "vllm.v1.worker.gpu_worker": {"Worker": Worker},
        }
    )  # fmt: skip
    made = dict[str, ModuleType]()
    for name, names in told.items():
        parents = name.split(".")
        for end in range(1, len(parents) + 1):
            made.setdefault(".".join(parents[:end]), ModuleType(".".join(parents[:end])))
        vars(made[name]).update(names)
    return made


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> dict[str, ModuleType]:
    made = build()
    for name, module in made.items():
        monkeypatch.setitem(sys.modules, name, module)
    return made


def started(modules: dict[str, ModuleType]) -> Any:
    """A worker of an engine with the plugin, before it serves."""
    engine.install()
    worker = modules["vllm.v1.worker.gpu_worker"].Worker(config())
    group = SimpleNamespace(kv_cache_spec=SimpleNamespace(block_size=4))
    worker.model_runner.initialize_kv_cache(SimpleNamespace(kv_cache_groups=[group]))
    return worker


def step_of(requests: dict[str, tuple[list[int], Factors]]) -> Step:
    new = [
        SimpleNamespace(
            req_id=name, prompt_token_ids=prompt,
            # As they come from another process.
            sampling_params=SamplingParams(
                extra_args={engine.TOLD: [digest_of(gate), [*map(list, gate)]]} if gate else {}
            ),
        )
        for name, (prompt, gate) in requests.items()
    ]  # fmt: skip
    lengths = {name: len(prompt) for name, (prompt, _) in requests.items()}
    return Step(new, None, lengths, sum(lengths.values()))


def test_the_proof_passes_and_each_request_of_a_batch_has_its_own_gate(
    modules: dict[str, ModuleType],
) -> None:
    worker = started(modules)
    assert worker.compile_or_warm_up_model() == 0.0
    runner = worker.model_runner
    assert runner.requests == {} and not runner.headscope_rows.active
    asked: dict[str, tuple[list[int], Factors]] = {
        "a": ([3, 4, 5], ((0, 1, 0.0), (2, 3, -2.0))), "b": ([7, 8], ()),
        "c": ([9], ((1, 0, 0.5),)), "d": ([3, 4, 5], ()),
    }  # fmt: skip
    runner.execute_model(step_of(asked))
    logits = dict(zip(runner.input_batch.req_ids, runner.execute_model_state.logits, strict=True))
    for name, (prompt, gate) in asked.items():
        assert torch.allclose(logits[name], naive(runner.model, prompt, gate), atol=1e-5), name
    assert not torch.allclose(logits["a"], logits["d"], atol=1e-3)


@pytest.mark.parametrize("later", [False, True])
def test_peaks_go_from_the_model_to_the_answer_of_their_request(
    modules: dict[str, ModuleType], later: bool
) -> None:
    worker = started(modules)
    runner, prompt = worker.model_runner, [3, 4, 3]
    runner.later = later
    step = step_of({"a": (prompt, ()), "b": (prompt, ()), "c": (prompt, ())})
    for name, asked in (("a", [[0, 1]]), ("c", [[0, 1], [1, 2]])):
        new = next(new for new in step.scheduled_new_reqs if new.req_id == name)
        new.sampling_params.extra_args[engine.TOLD_PEAKS] = asked
    runner.dummy_run()
    runner.execute_model(step)
    output = runner.sample_tokens(None)
    output = output.get_output() if later else output
    scheduler = modules["vllm.v1.core.sched.scheduler"].Scheduler()
    # c was given up while the step ran.
    scheduler.requests = dict.fromkeys("ab")
    (first, _), (second, _) = scheduler.update_from_output(step, output)
    row = runner.model.words.weight.detach()[prompt][:, WIDTH : 2 * WIDTH]
    weights = torch.softmax(row @ row[-1], 0)
    assert second is None and set(first[engine.PEAKS]) == {"0.1"}
    ((place, weight),) = first[engine.PEAKS]["0.1"]
    assert weight == pytest.approx(float(weights.max())) == pytest.approx(float(weights[place]))
    assert scheduler._free_request(SimpleNamespace(request_id="c", num_output_tokens=1))[0] is None
    runner.dummy_run()
    assert runner.sample_tokens(None) is not None


def naive(model: Any, prompt: list[int], gate: Factors) -> torch.Tensor:
    """One prompt, with columns of W_O times the factors of their heads and no plugin."""
    hidden = model.words.weight[prompt]
    for at, layer in enumerate(model.layers):
        weight = layer["self_attn"]["o_proj"].linear.weight.clone()
        written = hidden.cumsum(0)
        for number, head, factor in gate:
            if number == at:
                written = written.clone()
                written[:, head * WIDTH : (head + 1) * WIDTH] *= factor
        hidden = hidden + torch.tanh(written @ weight.T)
    logits: torch.Tensor = (hidden[-1] @ model.words.weight.T).detach()
    return logits


def _bypass(worker: Any) -> None:
    """One layer calls another kernel than that which was wrapped."""
    worker.model_runner.model.layers[2]["self_attn"]["attn"].impl = Kernel()


def _one_token(worker: Any) -> None:
    """What is written behind a prompt goes another way."""
    for layer in worker.model_runner.model.layers:
        kernel = layer["self_attn"]["attn"].impl
        wrapped, plain = kernel.forward, Kernel().forward

        def forward(own: Any, query: Any, *more: Any, wrapped: Any = wrapped, plain: Any = plain,
                    **output: Any) -> None:  # fmt: skip
            (plain if len(query) == 3 else wrapped)(own, query, *more, **output)

        kernel.forward = forward


def _other_order(worker: Any) -> None:
    """The batch says another order of requests than it has."""
    rows, fill = worker.model_runner.headscope_rows, worker.model_runner.headscope_rows.fill
    rows.fill = lambda gates, tokens: fill([*gates][::-1], tokens)


def _other_heads(worker: Any) -> None:
    """What two heads write lies in each other's place."""
    rows, fill = worker.model_runner.headscope_rows, worker.model_runner.headscope_rows.fill
    turned = [0, 3, 2, 1]
    rows.fill = lambda gates, tokens: fill(
        [
            gate._replace(factors=tuple((at, turned[head], by) for at, head, by in gate.factors))
            for gate in gates
        ],
        tokens,
    )


def _other_layer(worker: Any) -> None:
    rows, multiply = worker.model_runner.headscope_rows, worker.model_runner.headscope_rows.multiply
    rows.multiply = lambda layer, written: multiply((layer + 1) % LAYERS, written)


def _without_effect(worker: Any) -> None:
    for layer in worker.model_runner.model.layers:
        layer["self_attn"]["o_proj"].linear.weight.data.zero_()


@pytest.mark.parametrize(
    "wrong", [_bypass, _one_token, _other_order, _other_heads, _other_layer, _without_effect]
)
def test_an_engine_in_which_gates_are_wrong_does_not_start(
    modules: dict[str, ModuleType], wrong: Any
) -> None:
    worker = started(modules)
    wrong(worker)
    with pytest.raises(RuntimeError, match="headscope-vllm"):
        worker.compile_or_warm_up_model()


def test_an_engine_of_one_request_at_a_time_proves_it_too(modules: dict[str, ModuleType]) -> None:
    worker = started(modules)
    worker.model_runner.max_num_reqs = 1
    assert worker.compile_or_warm_up_model() == 0.0


def test_requests_are_read_where_they_come_in(modules: dict[str, ModuleType]) -> None:
    engine.install()
    engine.install()
    own = config(additional_config={"headscope": {"gates": {"es": "1.2"}}})
    processor = modules["vllm.v1.engine.input_processor"].InputProcessor(own)

    def read(prompt: dict[str, Any] | None = None, **asked: Any) -> Any:
        params = SamplingParams(extra_args=asked or None)
        request = processor.process_inputs("r", prompt or {}, params)
        assert params.extra_args == (asked or None)
        return request

    gate, plain = read(heads="es", session_id="s"), read()
    assert gate.sampling_params.extra_args == {
        "heads": "es", "session_id": "s", engine.TOLD_PEAKS: (),
        engine.TOLD: [digest_of(((1, 2, 0.0),)), ((1, 2, 0.0),)],
    }  # fmt: skip
    assert gate.cache_salt == read(heads="-1.2").cache_salt != read(heads="-1.1").cache_salt
    assert read({"cache_salt": "own"}, heads="es").cache_salt not in ("own", gate.cache_salt)
    assert (plain.cache_salt, plain.sampling_params.extra_args) == (None, None)
    assert read({"cache_salt": "own"}).cache_salt == "own"
    none = read(heads="1.2*1")
    assert none.cache_salt is None and none.sampling_params.extra_args[engine.TOLD] == ["", ()]
    peaks = [read(peaks=["1.2"]) for _ in range(2)]
    assert [each.sampling_params.extra_args[engine.TOLD_PEAKS] for each in peaks] == [((1, 2),)] * 2
    # Nothing is shared, so that every key passes by.
    assert len({None, *(each.cache_salt for each in peaks)}) == 3
    for asked in (
        {"peaks": "1.2"},
        {engine.TOLD_PEAKS: [[1, 2]]},
        {"heads": "nl"},
        {"heads": "-9.9"},
        {engine.TOLD: [[1, 2, 0.0]]},
    ):
        with pytest.raises(BadRequest):
            read(**asked)
    with pytest.raises(BadRequest):
        read({"prompt_token_ids": None}, peaks=["1.2"])
    with pytest.raises(BadRequest):
        read({"prompt_token_ids": [1] * LONGEST}, peaks=["1.2"])
    session = SamplingParams(extra_args={"heads": "es"})
    with pytest.raises(BadRequest):
        processor.process_inputs("r", {}, session, resumable=True)
    assert processor.process_inputs("r", {}, object()).sampling_params is None
    for name in ("openai.completion", "openai.chat_completion", "speech_to_text.translation"):
        module = modules[f"vllm.entrypoints.{name}.protocol"]
        (request,) = (made for key, made in vars(module).items() if key.endswith("Request"))
        with pytest.raises(BadRequest):
            request({"heads": "es"}).to_beam_search_params(3)
        assert request({"other": 1}).to_beam_search_params(3) == 3
        assert request(None).to_beam_search_params(3) == 3


def test_peaks_are_refused_where_they_cannot_be_had(modules: dict[str, ModuleType]) -> None:
    engine.install()
    whole = SimpleNamespace(has_full_cudagraphs=lambda: True)
    for changed in (
        {"cache_config": SimpleNamespace(
            kv_sharing_fast_prefill=False, cache_dtype="int8_per_token_head")},
        {"compilation_config": SimpleNamespace(**{
            **vars(config().compilation_config), "cudagraph_mode": whole})},
    ):  # fmt: skip
        processor = modules["vllm.v1.engine.input_processor"].InputProcessor(config(**changed))
        with pytest.raises(BadRequest):
            processor.process_inputs("r", {}, SamplingParams(extra_args={"peaks": ["1.1"]}))
        processor.process_inputs("r", {}, SamplingParams(extra_args={"heads": "-1.1"}))
    processor = modules["vllm.v1.engine.input_processor"].InputProcessor(config())
    for more in ({"n": 2}, {"stop": ("a",)}, {"output_kind": SimpleNamespace(name="DELTA")}):
        with pytest.raises(BadRequest):
            processor.process_inputs("r", {}, SamplingParams(extra_args={"peaks": ["1.1"]}, **more))


def test_a_request_that_was_not_read_where_it_came_in_is_refused(
    modules: dict[str, ModuleType],
) -> None:
    """It would have no gate; or a gate of its own writing, whose keys others would share."""
    worker = started(modules)
    worker.compile_or_warm_up_model()
    core = modules["vllm.v1.engine.core"].EngineCore(config(), [worker])
    processor = modules["vllm.v1.engine.input_processor"].InputProcessor(config())
    for asked in ({"heads": "-1.2"}, {"peaks": ["1.2"]}, {"heads": "1.2*1"}, {"other": 1}, None):
        request = processor.process_inputs("r", {}, SamplingParams(extra_args=asked))
        assert core.preprocess_add_request(request) == (request, 0)
    gate = [digest_of(((1, 2, 0.0),)), [[1, 2, 0.0]]]
    for told in (
        {"heads": "-1.2"}, {"peaks": ["1.2"]}, {engine.TOLD: gate},
        {engine.TOLD: ["", []], engine.TOLD_PEAKS: [[1, 2]]},
    ):  # fmt: skip
        request = SimpleNamespace(
            sampling_params=SamplingParams(extra_args=told), cache_salt="the client's"
        )
        with pytest.raises(RuntimeError, match="not read"):
            core.preprocess_add_request(request)
    pooled = SimpleNamespace(sampling_params=None, cache_salt=None)
    assert core.preprocess_add_request(pooled) == (pooled, 0)


NEEDED = ("process_inputs", "_initialize_kv_caches", "preprocess_add_request",
          "_prepare_inputs", "initialize_kv_cache", "sample_tokens",
          "update_from_output", "_free_request")  # fmt: skip


@pytest.mark.parametrize("missing", NEEDED)
def test_an_engine_that_lacks_what_is_needed_is_named(
    modules: dict[str, ModuleType], missing: str
) -> None:
    for module in modules.values():
        for owner in vars(module).values():
            if isinstance(owner, type) and missing in vars(owner):
                delattr(owner, missing)
    with pytest.raises(RuntimeError, match=f"{missing}.*0.32.0"):
        engine.install()


def test_settings_of_another_release_are_named(modules: dict[str, ModuleType]) -> None:
    engine.install()
    own = config()
    del own.parallel_config.use_ubatching
    with pytest.raises(RuntimeError, match=r"use_ubatching.*0\.32\.0"):
        modules["vllm.v1.engine.input_processor"].InputProcessor(own)
    worker = modules["vllm.v1.worker.gpu_worker"].Worker(config())
    del worker.model_runner.max_num_tokens
    with pytest.raises(RuntimeError, match="max_num_tokens"):
        worker.model_runner.initialize_kv_cache(SimpleNamespace(kv_cache_groups=[]))


@pytest.mark.parametrize(
    "changed",
    [
        {"use_v2_model_runner": True},
        {
            "parallel_config": SimpleNamespace(
                **{**vars(config().parallel_config), "data_parallel_size": 2}
            )
        },
        {"cache_config": SimpleNamespace(kv_sharing_fast_prefill=True)},
        {"kv_transfer_config": object()},
        {"speculative_config": object()},
        {"lora_config": object()},
        {"additional_config": {"headscope": {"gate": {}}}},
        {"additional_config": {"headscope": {"gates": {"es": "9.9"}}}},
    ],
    ids=["v2", "machines", "cache", "transfer", "speculative", "lora", "config", "gate"],
)
def test_settings_that_cannot_be_served_are_refused_at_the_start(
    modules: dict[str, ModuleType], changed: dict[str, Any]
) -> None:
    engine.install()
    with pytest.raises(RuntimeError, match="headscope-vllm"):
        modules["vllm.v1.engine.input_processor"].InputProcessor(config(**changed))


def test_an_engine_asks_every_worker_for_the_plugin(modules: dict[str, ModuleType]) -> None:
    """Also where the plugin is loaded while the engine's core is being made."""
    other = modules["vllm.v1.worker.gpu_worker"].Worker
    core = modules["vllm.v1.engine.core"].EngineCore
    worker = started(modules)
    with pytest.raises(RuntimeError, match="every worker"):
        core(config(), [worker])  # which has proved nothing yet
    worker.compile_or_warm_up_model()
    assert core(config(), [worker, worker]).kept == "keys"
    for absent in (object(), other(config())):
        with pytest.raises(RuntimeError, match="every worker"):
            core(config(), [worker, absent])
    vars(modules["vllm.envs"])["VLLM_USE_RUST_FRONTEND"] = True
    with pytest.raises(RuntimeError, match="Rust"):
        core(config(), [worker])


def test_the_plugin_comes_while_the_core_is_being_made(modules: dict[str, ModuleType]) -> None:
    core = modules["vllm.v1.engine.core"].EngineCore
    with pytest.raises(RuntimeError, match="every worker"):
        core(config(), [object()])


def test_a_model_whose_heads_are_not_reached_is_refused(modules: dict[str, ModuleType]) -> None:
    engine.install()
    own = config()
    own.model_config.model_arch_config.total_num_attention_heads = HEADS + 1
    worker = modules["vllm.v1.worker.gpu_worker"].Worker(own)
    with pytest.raises(RuntimeError, match="does not reach the heads"):
        worker.model_runner.initialize_kv_cache(SimpleNamespace(kv_cache_groups=[]))


def test_an_engine_that_writes_no_text_is_left_alone(modules: dict[str, ModuleType]) -> None:
    engine.install()
    own = config(use_v2_model_runner=True)
    own.model_config.runner_type = "pooling"
    assert modules["vllm.v1.engine.input_processor"].InputProcessor(own).headscope_gates is None
    worker = modules["vllm.v1.worker.gpu_worker"].Worker(own)
    worker.model_runner.initialize_kv_cache(None)
    assert worker.compile_or_warm_up_model() == 0.0
    assert worker.model_runner.headscope_rows is None


# The distribution


def test_the_wheel_holds_all_that_reading_heads_needs(tmp_path: Path) -> None:
    """No torch and no headscope beside it: numpy and safetensors alone."""
    about = tomllib.loads((PLUGIN / "pyproject.toml").read_text(encoding="utf-8"))
    held = about["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    for source, target in held.items():
        place, copied = (PLUGIN / source).resolve(), tmp_path / target
        copied.parent.mkdir(parents=True, exist_ok=True)
        copied.symlink_to(place)
    for file in (PLUGIN / "src" / "headscope_vllm").glob("*.py"):
        (tmp_path / "headscope_vllm" / file.name).symlink_to(file)
    HeadSet.parse("3.1,0.2", GEOMETRY).save_pretrained(tmp_path / "set")
    program = (
        "import sys, importlib.util as u\n"
        "class No:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in {'torch', 'transformers', 'huggingface_hub', 'typer'}:\n"
        "            raise ModuleNotFoundError(name)\n"
        "        if name == 'headscope' and not any('reading' in p for p in sys.path):\n"
        "            return None\n"
        "sys.meta_path.insert(0, No())\n"
        f"sys.path[:] = [{str(tmp_path)!r}] + [p for p in sys.path if not p.endswith('/src')]\n"
        "sys.meta_path[:] = [m for m in sys.meta_path if 'editable' not in repr(m)]\n"
        "from headscope_vllm.gates import catalogue\n"
        "from headscope.heads import Geometry\n"
        "import headscope\n"
        "assert 'reading' in headscope.__file__, headscope.__file__\n"
        f"named = catalogue({{'es': {str(tmp_path / 'set')!r}}}, Geometry.uniform(4, 6)).named\n"
        "assert named == {'es': ((0, 2, 0.0), (3, 1, 0.0))}, named\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
