"""Query gates: removed heads attend evenly, kept heads are untouched."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import pytest
import torch
from small_models import ARCHITECTURES, WINDOW

from headscope.errors import InputError
from headscope.heads import Head
from headscope.lm.attention.weights import WeightRequest
from headscope.lm.inputs import forward_inputs
from headscope.lm.interpose import Call, changing_queries, observing
from headscope.lm.queries import check_queries, query_gated
from lm_helpers import logits, sample_batch, wrapped

BYPASS = ("bloom", "falcon", "mpt", "xglm")


@pytest.mark.parametrize("name", [one for one in ARCHITECTURES if one not in BYPASS])
def test_every_other_architecture_is_proved_or_refused(name: str) -> None:
    lm = wrapped(name)
    if name == "gpt_oss":
        with pytest.raises(InputError, match="layer 0: attention sinks take part"):
            check_queries(lm)
    else:
        check_queries(lm)


@pytest.mark.parametrize("name", BYPASS)
def test_models_that_go_round_the_attention_function_are_refused(name: str) -> None:
    with pytest.raises(InputError, match="in its own code"):
        check_queries(wrapped(name))


@pytest.mark.parametrize(
    ("name", "kernel"),
    [
        ("llama", "sdpa"),
        ("llama", "eager"),
        ("gemma2", "eager"),
        ("mistral", "sdpa"),
        ("mistral", "eager"),
        ("gpt2", "sdpa"),
    ],
)
def test_a_removed_head_attends_evenly_to_what_it_may_see(name: str, kernel: str) -> None:
    """Against attention computed by hand: causal, within the window, without padding."""
    lm, batch = wrapped(name, attn_implementation=kernel), sample_batch((9, 5))
    gate = torch.ones(lm.geometry.layers, lm.geometry.width)
    removed = Head(1, 2)
    gate[removed.layer, removed.head] = 0
    seen: list[Call] = []
    site = lm.sites[1]
    with (
        query_gated(lm, gate),
        observing(lm.model, [site.attention], lambda _, call: seen.append(call)),
    ):
        logits(lm.model, batch)
    (call,) = seen
    groups = call.query.shape[1] // call.key.shape[1]
    value = call.value[:, removed.head // groups]
    windowed = name == "mistral"  # of the others layer 1 sees everything
    for row, padding in enumerate(batch.padding):
        for token in range(padding, 9):
            first = max(padding, token - WINDOW + 1) if windowed else padding
            even = value[row, first : token + 1].mean(dim=0)
            torch.testing.assert_close(call.output[row, token, removed.head], even)


@pytest.mark.parametrize("name", ["qwen3", "gpt_neox", "deepseek_v3"])
def test_weights_of_a_removed_head_are_uniform(name: str) -> None:
    """By the recorder of exact weights, which looks at the queries that the kernel was given."""
    lm, batch = wrapped(name), sample_batch((6,))
    gate = torch.ones(lm.geometry.layers, lm.geometry.width)
    gate[0, 1] = 0
    request = WeightRequest(torch.arange(6)[None], (Head(0, 1), Head(0, 0)), "all")
    with query_gated(lm, gate), lm.attention_weights(request) as found:
        logits(lm.model, batch)
    torch.testing.assert_close(found.weights[:, 0], found.uniform[:, 0])
    assert not torch.allclose(found.weights[:, 1], found.uniform[:, 1], atol=1e-2)


@pytest.mark.parametrize("value", [0.0, 0.5, 1.5])
def test_a_gate_scales_the_scores(value: float) -> None:
    """GPT-2 has no norm or rotation of queries: its gate is a factor of W_Q and its bias."""
    lm, batch = wrapped("gpt2"), sample_batch((8, 5))
    gate = torch.ones(2, 4)
    gate[1, 3] = value
    with query_gated(lm, gate):
        found = logits(lm.model, batch)
    model: Any = copy.deepcopy(lm.model)
    projection = model.transformer.h[1].attn.c_attn
    with torch.no_grad():
        projection.weight[:, 36:48] *= value
        projection.bias[36:48] *= value
    there = batch.attention_mask.bool()
    torch.testing.assert_close(found[there], logits(model, batch)[there], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["llama", "gemma2", "qwen3_moe", "qwen3_next"])
def test_ones_are_the_identity_bit_for_bit(name: str) -> None:
    lm, batch = wrapped(name), sample_batch()
    plain = logits(lm.model, batch)
    ones = torch.ones(lm.geometry.layers, lm.geometry.width, requires_grad=True)
    with query_gated(lm, ones):
        assert torch.equal(logits(lm.model, batch), plain)
    assert torch.equal(logits(lm.model, batch), plain)


def test_gates_of_rows_are_those_rows_alone_and_contexts_multiply() -> None:
    lm, batch = wrapped("qwen3"), sample_batch((7, 7))
    gate = torch.rand(2, 2, 4, generator=torch.Generator().manual_seed(2))
    with query_gated(lm, gate):
        both = logits(lm.model, batch)
    for row in range(2):
        with query_gated(lm, gate[row].sqrt()), query_gated(lm, gate[row].sqrt()):
            alone = logits(lm.model, batch)
        torch.testing.assert_close(both[row], alone[row], rtol=1e-4, atol=1e-4)


def test_the_gradient_is_that_of_finite_differences() -> None:
    lm, batch = wrapped("gpt2"), sample_batch((6,))
    lm.model.double()  # GPT-2 computes in 64 bits throughout, without norms in 32
    gate = torch.full((2, 4), 0.7, dtype=torch.float64, requires_grad=True)

    def value(at: torch.Tensor) -> torch.Tensor:
        with query_gated(lm, at):
            out: torch.Tensor = lm.model(**forward_inputs(lm.model, batch)).logits
        return out.log_softmax(-1)[0, -1, 5]

    (found,) = torch.autograd.grad(value(gate), gate)
    step = 1e-5
    for layer, head in ((0, 0), (1, 3)):
        up, down = gate.detach().clone(), gate.detach().clone()
        up[layer, head] += step
        down[layer, head] -= step
        numeric = float((value(up) - value(down)).detach()) / (2 * step)
        assert float(found[layer, head]) == pytest.approx(numeric, rel=1e-4, abs=1e-8)


def test_attention_that_is_not_even_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The proof compares with the mean of values, so it does not rest on names of options."""
    lm = wrapped("llama")
    from headscope.lm import queries

    real = queries._problem

    def skewed(site: Any, call: Call) -> Any:
        return real(site, dataclasses.replace(call, output=call.output + 0.1))

    monkeypatch.setattr(queries, "_problem", skewed)
    with pytest.raises(InputError, match="attention is not even with queries of 0"):
        check_queries(lm)


def test_position_biases_are_refused() -> None:
    lm = wrapped("llama", attn_implementation="eager")
    real = lm.model.model.forward

    def biased(*args: Any, **kwargs: Any) -> Any:
        tokens = kwargs["input_ids"].shape[1]
        place = torch.arange(tokens, dtype=torch.float32)
        slope = -0.1 * (place[:, None] - place[None]).clamp(min=0)
        later = place[None] > place[:, None]
        mask = slope.masked_fill(later, torch.finfo(torch.float32).min)[None, None]
        return real(*args, **{**kwargs, "attention_mask": mask})

    lm.model.model.forward = biased
    with pytest.raises(InputError, match="position biases are added"):
        check_queries(lm)


def test_gates_that_do_not_fit_are_refused() -> None:
    lm = wrapped("llama")
    with pytest.raises(InputError, match=r"needs \(2, 4\)"), query_gated(lm, torch.ones(2, 5)):
        raise AssertionError("entered")
    with (
        pytest.raises(InputError, match="not finite"),
        query_gated(lm, torch.full((2, 4), float("inf"))),
    ):
        raise AssertionError("entered")
    with (
        pytest.raises(InputError, match="2 rows met a batch of 3"),
        query_gated(lm, torch.zeros(2, 2, 4)),
    ):
        logits(lm.model, sample_batch())


def test_nothing_is_left_behind_after_an_exception() -> None:
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    lm = wrapped("llama")
    plain = logits(lm.model, sample_batch())
    with (
        pytest.raises(RuntimeError, match="stop"),
        changing_queries(lm.model, [lm.sites[0].attention], lambda _, query: query * 0),
    ):
        raise RuntimeError("stop")
    assert "get_interface" not in vars(ALL_ATTENTION_FUNCTIONS)
    assert torch.equal(logits(lm.model, sample_batch()), plain)
