"""The cost model against models built from the same configurations, and PyTorch's own counters."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    LlamaConfig,
    Qwen3Config,
    Qwen3MoeConfig,
)

from headscope.errors import InputError
from headscope.find.gate_gradients import batch_gradients, ones_gate
from headscope.lm.model import LanguageModel
from headscope.studies.costs.estimate import (
    Machine,
    Rate,
    Work,
    estimate_seconds,
    operations,
    peak_memory,
    steps_of,
)
from headscope.studies.costs.measuring import _busy, _overlapped, measure_machine
from headscope.studies.costs.shapes import (
    LOGITS_AT_ONCE,
    PUBLISHED,
    Shape,
    read_shape,
    shape_of,
    shape_of_config,
)
from lm_helpers import wrapped


def llama_3_1(hidden: int, intermediate: int, layers: int, heads: int) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=128256, hidden_size=hidden, intermediate_size=intermediate,
        num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=8,
        tie_word_embeddings=False,
    )  # fmt: skip


#: The published configurations, as files of the Hub have them.
CONFIGURATIONS: dict[str, Any] = {
    "Llama-3.1-8B": lambda: llama_3_1(4096, 14336, 32, 32),
    "Qwen3-30B-A3B": lambda: Qwen3MoeConfig(
        vocab_size=151936, hidden_size=2048, intermediate_size=6144, moe_intermediate_size=768,
        num_hidden_layers=48, num_attention_heads=32, num_key_value_heads=4, head_dim=128,
        num_experts=128, num_experts_per_tok=8, decoder_sparse_step=1, mlp_only_layers=[],
        tie_word_embeddings=False,
    ),
    "Llama-3.1-70B": lambda: llama_3_1(8192, 28672, 80, 64),
    "Llama-3.1-405B": lambda: llama_3_1(16384, 53248, 126, 128),
}  # fmt: skip
#: What their model cards say, in billions.
CARDS = {
    "Llama-3.1-8B": 8.03,
    "Qwen3-30B-A3B": 30.5,
    "Llama-3.1-70B": 70.6,
    "Llama-3.1-405B": 405.9,
}
COMMON = {
    "vocab_size": 512, "hidden_size": 64, "num_hidden_layers": 3, "max_position_embeddings": 128,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "tie_word_embeddings": False,
}  # fmt: skip
GROUPED = {"num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 16}
WIDE: dict[str, Any] = {**COMMON, "intermediate_size": 160}
SMALL: dict[str, Any] = {
    "dense": lambda: LlamaConfig(**WIDE, num_attention_heads=4),
    "grouped": lambda: Qwen3Config(**WIDE, **GROUPED),
    "mixture": lambda: Qwen3MoeConfig(
        **WIDE, **GROUPED, moe_intermediate_size=48, num_experts=8, num_experts_per_tok=2,
        decoder_sparse_step=1, mlp_only_layers=[],
    ),
}  # fmt: skip
ROWS, LENGTH = 4, 32


def model_of(kind: str) -> Any:
    """A small model of a kind, with every product written out so that the counter sees it."""
    torch.manual_seed(0)
    config = SMALL[kind]()
    config._attn_implementation = "sdpa"
    if kind == "mixture":
        config._experts_implementation = "eager"
    return AutoModelForCausalLM.from_config(config).eval()


def rows_of_tokens() -> list[list[int]]:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(3, 512, (ROWS, LENGTH), generator=generator).tolist()


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_parameters_are_exactly_those_of_the_configuration(name: str) -> None:
    config = CONFIGURATIONS[name]()
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    counted = sum(one.numel() for one in model.parameters())
    shape = PUBLISHED[name]
    assert shape.parameters == counted
    assert counted / 1e9 == pytest.approx(CARDS[name], rel=0.005)
    # What is read from the configuration is what was written down.
    read = shape_of_config(config, name)
    assert replace(read, dtype_bytes=2.0) == shape


def test_other_decoders_are_read_with_what_is_left_of_their_parameters() -> None:
    config = GPT2Config()  # the published one: 124,439,808 parameters, tied, two maps, biases
    shape = shape_of_config(config, "gpt2")
    assert shape.parameters == 124_439_808
    assert shape.feed_forward_maps == 2
    # 1024 learned positions, and biases.
    assert 1024 * 768 < shape.other < 1024 * 768 + 12 * 13 * 768 + 1


def test_a_decoder_of_another_kind_is_refused(tmp_path: Path) -> None:
    from transformers import DeepseekV3Config

    config = DeepseekV3Config(
        **COMMON, num_attention_heads=4, intermediate_size=160, n_routed_experts=8, n_group=2
    )
    with pytest.raises(InputError, match="so its costs cannot be told"):
        shape_of_config(config, "latent")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"hidden_size": -64}, "a width of -64 .*, which is no model; correct its config.json"),
        ({"hidden_size": 10**30}, "which is no model"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0"),
        ({"num_hidden_layers": 100_000}, "num_hidden_layers is 100000"),
        ({"vocab_size": 0}, "and 0 tokens"),
        ({"head_dim": -1}, "no decoder of text can be made of its configuration"),
        ({"model_type": "llava"}, "llama.: no decoder of text .*Unrecognized configuration class"),
    ],
)
def test_a_configuration_of_no_model_is_one_sentence(
    tmp_path: Path, change: dict[str, Any], why: str
) -> None:
    plain = {**COMMON, "model_type": "llama", "num_attention_heads": 4, "intermediate_size": 160}
    (tmp_path / "config.json").write_text(json.dumps({**plain, **change}))
    with pytest.raises(InputError, match=why) as told:
        read_shape(str(tmp_path))
    assert "\n" not in str(told.value) and len(str(told.value)) < 600


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "Llama-3.1-8B"),
        ("Qwen/Qwen3-30B-A3B", "Qwen3-30B-A3B"),
        ("Llama-3.1-70B", "Llama-3.1-70B"),
    ],
)
def test_published_models_are_known_by_their_names(name: str, known: str) -> None:
    assert read_shape(name) == replace(PUBLISHED[known], name=name)


def test_of_a_model_on_the_hub_the_configuration_alone_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    SMALL["grouped"]().save_pretrained(tmp_path)
    asked: list[tuple[str, list[str]]] = []

    def download(name: str, revision: str | None, noun: str, patterns: Any, **_: Any) -> Path:
        asked.append((name, list(patterns)))
        return tmp_path

    monkeypatch.setattr("headscope.lm.checkpoints.download", download)
    shape = read_shape("somebody/small")
    assert asked == [("somebody/small", ["config.json"])]
    assert (shape.name, shape.kv_heads, shape.query_norm) == ("somebody/small", 2, True)


@pytest.mark.parametrize("kind", sorted(SMALL))
def test_operations_of_a_pass_are_those_that_the_counter_sees(kind: str) -> None:
    model = model_of(kind)
    shape = shape_of_config(model.config, kind)
    ids = torch.tensor(rows_of_tokens())
    # The counter knows no fused attention of a CPU, but the products it is made of.
    with (
        torch.no_grad(),
        sdpa_kernel(SDPBackend.MATH),
        FlopCounterMode(display=False) as counter,
    ):
        model(input_ids=ids)
    assert ROWS * LENGTH * shape.forward(LENGTH) == pytest.approx(
        counter.get_total_flops(), rel=0.01
    )


@pytest.mark.parametrize("kind", sorted(SMALL))
def test_operations_of_gradients_for_gates_are_those_that_the_counter_sees(kind: str) -> None:
    lm = LanguageModel.wrap(model_of(kind), name=kind, check=False)
    shape = shape_of(lm)
    rows = rows_of_tokens()
    gate = ones_gate(lm, ROWS)
    with sdpa_kernel(SDPBackend.MATH):
        batch_gradients(lm, rows, gate, False)  # the first call tries out how logits are made
        with FlopCounterMode(display=False) as counter:
            batch_gradients(lm, rows, gate, False)
    tokens = ROWS * LENGTH
    counted = counter.get_total_flops()
    # Every token but the first of a row is predicted.
    logits = (LENGTH - 1) / LENGTH
    assert tokens * shape.backward(LENGTH, logits, tokens) == pytest.approx(counted, rel=0.01)
    ratio = counted / (tokens * shape.forward(LENGTH, logits))
    assert 1.8 < ratio < 2.1
    assert counted < 0.75 * tokens * shape.training(LENGTH)


def test_logits_that_do_not_fit_at_once_are_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    lm = LanguageModel.wrap(model_of("dense"), name="dense", check=False)
    rows, gate = rows_of_tokens(), ones_gate(lm, ROWS)
    # Those of the learned positions alone either way, not of all that fit.
    monkeypatch.setattr("headscope.lm.losses._MOST", 0)
    batch_gradients(lm, rows, gate, False)

    def counted() -> int:
        with FlopCounterMode(display=False) as counter:
            batch_gradients(lm, rows, gate, False)
        return counter.get_total_flops()

    once = counted()
    monkeypatch.setattr("headscope.lm.losses.CHUNK", 512 * 40)
    more = counted() - once
    shape = shape_of(lm)
    large = LOGITS_AT_ONCE / shape.vocabulary + 1
    told = shape.backward(LENGTH, 1.0, large) - shape.backward(LENGTH, 1.0, large - 2)
    assert ROWS * (LENGTH - 1) * told == more


def test_operations_of_training_are_those_that_the_counter_sees() -> None:
    model = model_of("grouped").train()
    shape = shape_of_config(model.config, "grouped")
    ids = torch.tensor(rows_of_tokens())
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model(input_ids=ids).logits.sum().backward()
    assert ROWS * LENGTH * shape.training(LENGTH) == pytest.approx(
        counter.get_total_flops(), rel=0.01
    )


@pytest.mark.parametrize("kind", sorted(SMALL))
def test_what_a_backward_pass_keeps_is_what_autograd_saves(kind: str) -> None:
    lm = LanguageModel.wrap(model_of(kind).bfloat16(), name=kind, check=False)
    shape = shape_of(lm)
    weights = {one.untyped_storage().data_ptr() for one in lm.model.parameters()}
    saved: dict[int, int] = {}
    alive = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            saved[storage.data_ptr()] = storage.nbytes()
            alive.append(storage)  # an address is nobody else's as long as it is held
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        batch_gradients(lm, rows_of_tokens(), ones_gate(lm, ROWS), False)
    tokens = ROWS * LENGTH
    logits = tokens * shape.vocabulary * 4.0
    assert tokens * shape.kept(LENGTH) + logits == pytest.approx(sum(saved.values()), rel=0.25)


def test_the_cache_is_that_of_the_model() -> None:
    model = model_of("grouped")
    shape = shape_of_config(model.config, "grouped")
    with torch.no_grad():
        cache = model(input_ids=torch.tensor(rows_of_tokens()), use_cache=True).past_key_values
    held = sum(one.keys.nbytes + one.values.nbytes for one in cache.layers)
    assert ROWS * LENGTH * replace(shape, dtype_bytes=4.0).cache == held


def test_a_step_reads_the_experts_that_its_rows_go_to() -> None:
    shape = PUBLISHED["Qwen3-30B-A3B"]
    dense = PUBLISHED["Llama-3.1-8B"]
    assert dense.read_by(1) == dense.read_by(64) == 2 * dense.active
    assert shape.read_by(1) == pytest.approx(2 * shape.active)
    embedding, rest = shape.embedding, shape.layers * (2 * shape.hidden + 2 * 128) + shape.hidden
    everything = 2 * (shape.parameters - embedding - rest)
    assert shape.read_by(10_000) == pytest.approx(everything)
    # By chance: of 128 experts two tokens with 8 each reach 15.5.
    draw = torch.Generator().manual_seed(0)
    reached = [
        len({int(i) for _ in range(2) for i in torch.randperm(128, generator=draw)[:8]})
        for _ in range(500)
    ]
    one = 2.0 * shape.layers * shape.one_feed_forward
    told = (shape.read_by(2) - shape.read_by(1)) / one + 8
    assert told == pytest.approx(sum(reached) / len(reached), abs=0.15)


def machine(**changes: Any) -> Machine:
    plain = Machine("m", Rate(1e9, 0.25, 0.5), Rate(5e8, 1.0), Rate(2e9, 0.125), 1e12, 1e9, "t")
    return replace(plain, **changes)


def test_seconds_are_passes_operations_and_what_is_read() -> None:
    shape = Shape("s", 2, 8, 2, 1, 4, 16, 100)
    work = Work(forward=1000, length=10, rows=5, calls=20)
    each = shape.forward(10)
    alone = 20 * (0.5 + 2 * 0.25)
    assert estimate_seconds(work, shape, machine()) == pytest.approx(alone + 1000 * each / 1e9)
    # On a device that works while it is given more, the longer of both counts.
    assert estimate_seconds(work, shape, machine(overlaps=True)) == pytest.approx(alone)
    # A run's start, and its 100 texts.
    told = estimate_seconds(work, shape, machine(start=7.0, text=0.5))
    assert told - estimate_seconds(work, shape, machine()) == pytest.approx(7 + 50)
    assert estimate_seconds(Work(), shape, machine(start=7.0)) == 0
    # Logits have a rate of their own where it was measured.
    half = estimate_seconds(work, shape, machine(logits=5e7), 0.5)
    layers, last = shape.forward(10, 0.0), 2.0 * shape.embedding * 0.5
    assert half == pytest.approx(alone + 1000 * layers / 1e9 + 1000 * last / 5e7)
    gradients = Work(backward=1000, length=10, rows=5, calls=20)
    again = shape.backward(10) - shape.backward(10, 0.0)
    assert estimate_seconds(gradients, shape, machine(logits=1e7)) == pytest.approx(
        20 * 2 * 1.0 + 1000 * shape.backward(10, 0.0) / 5e8 + 1000 * again / 1e7
    )
    assert estimate_seconds(gradients, shape, machine()) == pytest.approx(
        20 * 2 * 1.0 + 1000 * shape.backward(10) / 5e8
    )
    # 30 steps of 4 rows: reading takes longer than the operations where the memory is slow.
    written = Work(generated=120, length=10, rows=4, calls=30)
    slow = machine(bandwidth=1e3)
    read = shape.read_by(4) + 40 * shape.cache
    assert estimate_seconds(written, shape, slow) == pytest.approx(30 * 0.25 + 30 * read / 1e3)
    fast = 30 * 0.25 + 120 * each / 2e9
    assert estimate_seconds(written, shape, machine()) == pytest.approx(fast)


def test_seconds_of_parts_add_up() -> None:
    shape = PUBLISHED["Llama-3.1-8B"]
    work = Work(forward=4e5, generated=2e5, length=100, rows=50, calls=80 + 4000)
    assert steps_of(work) == (80, 4000)
    parts = (
        Work(forward=4e5, length=100, rows=50, calls=80),
        Work(generated=2e5, length=100, rows=50, calls=4000),
    )
    here = machine()
    apart = sum(estimate_seconds(one, shape, here) for one in parts)
    assert estimate_seconds(work, shape, here) == pytest.approx(apart)
    assert operations(work, shape) == pytest.approx(sum(operations(one, shape) for one in parts))
    # Without calls they follow from rows and length.
    assert steps_of(replace(work, calls=0)) == (80, 4000)
    # Double the work takes twice as long.
    assert estimate_seconds(work * 2, shape, here) == pytest.approx(2 * apart)


def test_memory_of_gradients_is_held_for_every_row() -> None:
    shape = PUBLISHED["Llama-3.1-8B"]
    small, large = (peak_memory(Work(backward=1, length=2048, rows=rows), shape) for rows in (1, 3))
    assert small.weights == large.weights == 2 * shape.parameters
    assert large.activations - small.activations == pytest.approx(
        2 * 2048 * (shape.kept(2048) + shape.held())
    )
    assert small.cache == 0
    written = peak_memory(Work(generated=1, length=100, rows=10), shape)
    assert written.cache == 10 * 100 * 2 * 32 * 8 * 128 * 2


def test_a_machine_is_measured_by_any_clock_and_the_model_left_alone() -> None:
    # A clock that ticks once a reading: every timed piece of work takes one tick.
    ticks = iter(range(10_000))
    lm = wrapped("llama")
    before = {name: one.clone() for name, one in lm.model.state_dict().items()}
    asked = [one.requires_grad for one in lm.model.parameters()]
    found = measure_machine(lm, clock=lambda: float(next(ticks)))
    shape = shape_of(lm)
    few = 2 * 24 * shape.forward(24, 1 / 24)
    many = 16 * 40 * shape.forward(40, 1 / 40)
    assert found.forward.operations == pytest.approx(2 * many)
    # Half of the large pass is the pass itself; the small one took no longer.
    assert found.forward.layer * shape.layers == pytest.approx(1 - 0.5 * few / many)
    # Logits took no time that could be seen.
    assert found.logits == pytest.approx(16 * 40 * shape.forward(40, 39 / 40))
    assert found.start == 35 and found.text == 0.2
    assert found.bandwidth > 0 and found.memory > 1e8
    assert found.measured is not None and "llama" in found.measured
    # The model is as it was.
    assert all(torch.equal(before[name], one) for name, one in lm.model.state_dict().items())
    assert [one.requires_grad for one in lm.model.parameters()] == asked
    assert all(not module._forward_pre_hooks for module in lm.model.modules())


def test_a_round_that_others_hold_up_is_left_out_and_told() -> None:
    """Every second round takes ten times as long: rates are those of the others."""
    lm = wrapped("llama")

    def clock(slow: bool) -> Callable[[], float]:
        now, reads = 0.0, 0

        def read() -> float:
            nonlocal now, reads
            reads += 1
            if reads % 2 == 0:  # the end of a round
                now += 10.0 if slow and reads % 4 == 0 else 1.0
            return now

        return read

    idle, held_up = (measure_machine(lm, clock=clock(slow)) for slow in (False, True))
    assert held_up.forward == idle.forward and held_up.backward == idle.backward
    assert _busy(1.0, 1.0) is None
    said = _busy(0.4, 1.1)
    assert said is not None and "busy" in said and "40%" in said


def test_more_threads_than_cores_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1000)
    said = _busy(0.1, 1.0)
    assert said is not None and "1000 threads" in said and "OMP_NUM_THREADS=" in said


def test_a_gpu_is_measured_by_launching_and_by_operations() -> None:
    """A small pass takes what its launching takes, a large one what its operations do."""
    shape = PUBLISHED["Llama-3.1-8B"]
    rate = _overlapped([(1e9, 0.032), (8e13, 0.2)], shape)
    assert (rate.operations, rate.layer, rate.call) == (pytest.approx(4e14), 0.001, 0.0)
    here = Machine("here", rate, rate, rate, 3e12, 8e10, overlaps=True)
    few = Work(forward=48, length=24, rows=2)
    many = Work(forward=2048, length=256, rows=8)
    assert estimate_seconds(few, shape, here, 0.0) == pytest.approx(0.032)
    operations = 2048 * shape.forward(256, 0.0)
    assert estimate_seconds(many, shape, here, 0.0) == pytest.approx(operations / 4e14)
