"""Gates of heads and of feed-forward parts."""

from __future__ import annotations

import copy
import re
from typing import Any

import numpy as np
import pytest
import torch
from small_models import ARCHITECTURES
from torch import nn

from headscope.errors import InputError
from headscope.heads import Gate, Geometry, Head, HeadSet
from headscope.lm.batching import Batch
from headscope.lm.feed_forward import feed_forward_gated, feed_forward_sites
from headscope.lm.geometry import hidden_states_of
from headscope.lm.inputs import forward_inputs
from headscope.lm.model import LanguageModel
from lm_helpers import VARIED, folded, hooks_of, logits, sample_batch, slice_of_w_o, wrapped


def random_gate(lm, *rows: int, seed: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 2 * torch.rand(*rows, lm.geometry.layers, lm.geometry.width, generator=generator)


@pytest.mark.parametrize("name", VARIED)
def test_removing_any_head_equals_zeroing_its_slice_of_w_o(name: str) -> None:
    lm = wrapped(name)
    batch = sample_batch()
    for head in lm.geometry.heads():
        removed = HeadSet(lm.geometry, (head,)).removed()
        with lm.gated(removed):
            gated = logits(lm.model, batch)
        zeroed = logits(folded(lm, torch.from_numpy(np.array(removed.values))), batch)
        assert float((gated - zeroed).abs().max()) == 0.0, head
        assert not torch.equal(gated, logits(lm.model, batch)), head


@pytest.mark.parametrize("name", VARIED)
def test_one_gate_a_row_equals_each_row_under_its_own_gate(name: str) -> None:
    lm = wrapped(name)
    batch = sample_batch()
    gates = torch.randint(
        0, 2, (3, *lm.geometry.shape), generator=torch.Generator().manual_seed(3)
    ).float()
    with lm.gated(gates):
        together = logits(lm.model, batch)
    for row in range(3):
        with lm.gated(gates[row]):
            alone = logits(lm.model, batch)[row]
        # Experts see the tokens of all rows together, so those models differ by rounding.
        torch.testing.assert_close(together[row], alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", VARIED)
def test_fractional_gates_scale_the_slices_of_w_o(name: str) -> None:
    lm = wrapped(name)
    batch, gate = sample_batch(), random_gate(lm)
    with lm.gated(gate):
        gated = logits(lm.model, batch)
    torch.testing.assert_close(gated, logits(folded(lm, gate), batch), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", VARIED)
def test_identity_gate_changes_no_bit_and_needs_no_hook(name: str) -> None:
    lm = wrapped(name)
    batch = sample_batch()
    plain = logits(lm.model, batch)
    with lm.gated(Gate.identity(lm.geometry)):
        assert hooks_of(lm.model) == 0
        assert torch.equal(plain, logits(lm.model, batch))
    with lm.gated(torch.ones(lm.geometry.shape, requires_grad=True)):
        assert sum(hooks_of(site.projection) for site in lm.sites) == len(lm.sites)
        assert torch.equal(plain, logits(lm.model, batch))


@pytest.mark.parametrize("name", ["llama", "gpt2", "qwen3_next"])
def test_nested_contexts_multiply(name: str) -> None:
    lm = wrapped(name)
    batch = sample_batch()
    a, b = random_gate(lm, seed=1), random_gate(lm, seed=2)
    with lm.gated(a * b):
        product = logits(lm.model, batch)
    with lm.gated(a), lm.gated(b):
        nested = logits(lm.model, batch)
    torch.testing.assert_close(nested, product, rtol=1e-4, atol=1e-5)
    with lm.gated(a):
        with lm.gated(b):
            pass
        inner_left = logits(lm.model, batch)
    with lm.gated(a):
        assert torch.equal(inner_left, logits(lm.model, batch))


def test_model_is_as_before_after_an_exception() -> None:
    lm = wrapped("llama")
    batch = sample_batch()
    plain = logits(lm.model, batch)
    state = copy.deepcopy(lm.model.state_dict())
    with pytest.raises(RuntimeError, match="on purpose"), lm.gated(random_gate(lm)):
        raise RuntimeError("on purpose")
    assert hooks_of(lm.model) == 0
    assert torch.equal(plain, logits(lm.model, batch))
    assert all(torch.equal(value, state[key]) for key, value in lm.model.state_dict().items())


@pytest.mark.parametrize("name", VARIED)
def test_gradient_equals_that_through_folded_weights(name: str) -> None:
    lm = wrapped(name)
    inputs = forward_inputs(lm.model, sample_batch())
    weights = torch.randn(96, generator=torch.Generator().manual_seed(0))
    lm.model.requires_grad_(False)
    gate = torch.ones(lm.geometry.shape, requires_grad=True)
    with lm.gated(gate):
        (lm.model(**inputs).logits @ weights).sum().backward()
    for site in lm.sites:
        site.projection.weight.requires_grad_(True)
    (lm.model(**inputs).logits @ weights).sum().backward()
    for site in lm.sites:
        for head in range(site.heads):
            weight = slice_of_w_o(site.projection, head, site.head_width)
            holder = copy.deepcopy(site.projection)
            holder.weight.data = site.projection.weight.grad
            expected = (weight * slice_of_w_o(holder, head, site.head_width)).sum()
            torch.testing.assert_close(
                gate.grad[site.layer, head], expected.detach(), rtol=1e-3, atol=1e-3
            )
    absent = ~torch.from_numpy(lm.geometry.mask())
    assert bool((gate.grad[absent] == 0).all())


def test_gradient_passes_non_reentrant_checkpointing() -> None:
    lm = wrapped("llama")
    lm.model.requires_grad_(False)
    inputs = forward_inputs(lm.model, sample_batch())
    gradients = []
    for checkpointing in (False, True):
        if checkpointing:
            name = "activation_checkpointing_enable"
            if not hasattr(lm.model, name):  # its name before it could offload
                name = "gradient_checkpointing_enable"
            getattr(lm.model, name)({"use_reentrant": False})
            for layer in lm.model.model.layers:
                layer.training = True
        gate = torch.ones(lm.geometry.shape, requires_grad=True)
        with lm.gated(gate):
            lm.model(**inputs).logits.logsumexp(-1).sum().backward()
        gradients.append(gate.grad)
    assert torch.equal(gradients[0], gradients[1])
    assert float(gradients[0].abs().min()) > 0


def test_low_precision_removal_is_exact() -> None:
    lm = wrapped("llama")
    lm.model.to(torch.bfloat16)
    batch = sample_batch()
    removed = HeadSet(lm.geometry, (Head(0, 1), Head(1, 3))).removed()
    with lm.gated(removed):
        gated = logits(lm.model, batch)
    zeroed = logits(folded(lm, torch.from_numpy(np.array(removed.values))), batch)
    assert gated.dtype == torch.bfloat16
    assert torch.equal(gated, zeroed)


def test_row_gates_refuse_another_batch_and_leave_no_hook() -> None:
    lm = wrapped("llama")
    gates = random_gate(lm, 2)
    with pytest.raises(InputError, match="2 rows met a batch of shape"), lm.gated(gates):
        logits(lm.model, sample_batch())
    assert hooks_of(lm.model) == 0
    prompt = {"input_ids": torch.tensor([[5, 6, 7], [8, 9, 4]]), "max_new_tokens": 2}
    with pytest.raises(InputError, match="beam search"), lm.gated(gates):
        lm.model.generate(**prompt, attention_mask=torch.ones(2, 3).long(), num_beams=2)


def test_one_row_gate_does_not_spread_over_a_batch() -> None:
    lm = wrapped("llama")
    with pytest.raises(InputError, match="1 rows met"), lm.gated(random_gate(lm, 1)):
        logits(lm.model, sample_batch())


@pytest.mark.parametrize(
    ("gate", "words"),
    [
        (torch.ones(3, 4), r"(3, 4), but this model needs (2, 4)"),
        (torch.ones(4), "(4,), but this model needs (2, 4)"),
        (torch.full((2, 4), float("nan")), "not finite"),
        (Gate.identity(Geometry.uniform(3, 4)), "3 layers"),
        ([[1.0] * 4] * 2, ".removed()"),
    ],
)
def test_wrong_gates_are_refused(gate, words: str) -> None:
    lm = wrapped("llama")
    with pytest.raises(InputError, match=re.escape(words)), lm.gated(gate):
        pass


GATE = (0.0, 0.4, 1.7, 1.0)

#: Where each family's own code ends its feed-forward part, written down by hand: the last linear
#: map (its weights and bias can be scaled), or the norm behind it.
LAST = {
    "llama": "mlp.down_proj",
    "olmo2": "post_feedforward_layernorm",
    "granite": "mlp.down_proj",
    "glm4": "post_mlp_layernorm",
    "cohere": "mlp.down_proj",
    "gemma3": "post_feedforward_layernorm",
    "gpt2": "mlp.c_proj",
    "gpt_neox": "mlp.dense_4h_to_h",
    "opt": "fc2",
    "stablelm": "mlp.down_proj",
    "bloom": "mlp.dense_4h_to_h",
    "falcon": "mlp.dense_4h_to_h",
    "mpt": "ffn.down_proj",
    "xglm": "fc2",
    "bitnet": "mlp.down_proj",
    "phi3": "mlp.down_proj",
    "olmo3": "post_feedforward_layernorm",
    "lfm2": "feed_forward.w2",
}
#: Layers add more to the residual stream than attention and feed-forward part.
MORE = ("gemma3n", "gemma4")


def gate_of(lm: LanguageModel) -> torch.Tensor:
    layers = lm.geometry.layers
    return torch.tensor([GATE[layer % len(GATE)] for layer in range(layers)])


def scaled(lm: LanguageModel, last: str, gate: torch.Tensor) -> Any:
    """A copy of the model in which the end of each feed-forward part is scaled in its weights."""
    model = copy.deepcopy(lm.model)
    stack = lm.sites[0].attention_name.split(".")
    number = next(at for at, part in enumerate(stack) if part.isdigit())
    with torch.no_grad():
        for layer, module in enumerate(model.get_submodule(".".join(stack[:number])).children()):
            end = module.get_submodule(last)
            # Gemma's norms multiply by 1 + weight.
            shifted = "Gemma" in type(end).__name__
            if shifted:
                end.weight.copy_((1 + end.weight) * gate[layer] - 1)
            else:
                for parameter in end.parameters(recurse=False):
                    parameter.mul_(gate[layer])
    return model


@pytest.mark.parametrize("name", sorted(LAST))
def test_a_gate_is_the_same_as_scaled_weights(name: str) -> None:
    lm, batch = wrapped(name), sample_batch()
    gate = gate_of(lm)
    with feed_forward_gated(lm, gate):
        gated = logits(lm.model, batch)
    wanted = logits(scaled(lm, LAST[name], gate), batch)
    assert_same(gated, wanted, batch)
    # And it does something.
    assert not torch.allclose(gated, logits(lm.model, batch), atol=1e-3)


def assert_same(one: torch.Tensor, other: torch.Tensor, batch: Batch) -> None:
    there = batch.attention_mask.bool()
    torch.testing.assert_close(one[there], other[there], rtol=1e-4, atol=1e-4)


def three_gates(lm: LanguageModel, batch: Batch, layer: int) -> list[torch.Tensor]:
    """A layer's output under gates 0, 1 and 2 on its feed-forward part alone."""
    feed_forward_sites(lm)  # found by passes that are not to be seen here
    outputs: list[torch.Tensor] = []

    def keep(_: nn.Module, args: Any, output: Any) -> None:
        outputs.append(hidden_states_of(output).clone())

    handle = lm.decoder_layers[layer].register_forward_hook(keep)
    for value in (0.0, 1.0, 2.0):
        gate = torch.ones(lm.geometry.layers)
        gate[layer] = value
        with feed_forward_gated(lm, gate):
            logits(lm.model, batch)
    handle.remove()
    return outputs


@pytest.mark.parametrize("name", MORE)
def test_a_layer_that_adds_more_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="in layer 0 no module was found that writes the feed-f"):
        feed_forward_sites(wrapped(name))


@pytest.mark.parametrize("name", [name for name in ARCHITECTURES if name not in MORE])
def test_a_layer_is_a_line_in_its_gate(name: str) -> None:
    """Layer(m) = rest + m · contribution, with attention as it is: also with experts."""
    lm, batch = wrapped(name), sample_batch((6,))
    for layer in range(lm.geometry.layers):
        none, once, twice = three_gates(lm, batch, layer)
        change = once - none
        assert float(change.abs().max()) > 1e-3
        torch.testing.assert_close(twice - once, change, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["llama", "mixtral", "gemma2", "gpt_neox", "bloom", "opt"])
def test_ones_are_the_identity_bit_for_bit(name: str) -> None:
    lm, batch = wrapped(name), sample_batch()
    plain = logits(lm.model, batch)
    gate = torch.ones(lm.geometry.layers, requires_grad=True)
    with feed_forward_gated(lm, gate):
        assert torch.equal(logits(lm.model, batch), plain)
    assert torch.equal(logits(lm.model, batch), plain)


@pytest.mark.parametrize("name", ["llama", "opt", "bloom", "qwen3_moe", "qwen3_next"])
def test_gates_of_rows_are_those_rows_alone(name: str) -> None:
    lm, batch = wrapped(name), sample_batch((7, 7))
    generator = torch.Generator().manual_seed(1)
    gate = torch.rand(2, lm.geometry.layers, generator=generator)
    with feed_forward_gated(lm, gate):
        both = logits(lm.model, batch)
    for row in range(2):
        with feed_forward_gated(lm, gate[row]):
            alone = logits(lm.model, batch)
        torch.testing.assert_close(both[row], alone[row], rtol=1e-4, atol=1e-4)


def test_the_gradient_is_that_of_finite_differences() -> None:
    lm, batch = wrapped("gpt_neox"), sample_batch((6,))
    lm.model.double()
    gate = torch.full((lm.geometry.layers,), 0.8, dtype=torch.float64, requires_grad=True)

    def value(at: torch.Tensor) -> torch.Tensor:
        with feed_forward_gated(lm, at):
            out: torch.Tensor = lm.model(input_ids=batch.input_ids).logits
        return out.log_softmax(-1)[0, -1, 5]

    with feed_forward_gated(lm, gate):
        value(gate)
    (found,) = torch.autograd.grad(value(gate), gate)
    step = 1e-5
    for layer in range(lm.geometry.layers):
        up, down = gate.detach().clone(), gate.detach().clone()
        up[layer] += step
        down[layer] -= step
        assert float(found[layer]) == pytest.approx(
            float((value(up) - value(down)).detach()) / (2 * step)
        )


def test_experts_beside_a_shared_expert_are_gated_together() -> None:
    """Two modules that write side by side, as in Granite's mixtures of experts."""

    lm = wrapped("llama")
    for layer in lm.decoder_layers:
        _split_in_two(layer)
    found = feed_forward_sites(lm)
    assert [len(site.modules) for site in found] == [2, 2]
    batch = sample_batch((6,))
    none, once, twice = three_gates(lm, batch, 0)
    torch.testing.assert_close(twice - once, once - none, rtol=1e-3, atol=1e-4)


def _split_in_two(layer: Any) -> None:
    """Let a Llama layer add two feed-forward parts, one after the other's norm."""
    torch.manual_seed(3)
    layer.beside = nn.Linear(48, 48)

    def forward(hidden_states: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        attention, _ = layer.self_attn(layer.input_layernorm(hidden_states), **kwargs)
        between = hidden_states + attention
        normed = layer.post_attention_layernorm(between)
        added: torch.Tensor = between + layer.beside(normed) + layer.mlp(normed)
        return added

    layer.forward = forward


def test_a_layer_that_cannot_be_handled_is_refused() -> None:
    lm = wrapped("llama")
    layer: Any = lm.decoder_layers[1]

    def forward(hidden_states: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        attention, _ = layer.self_attn(layer.input_layernorm(hidden_states), **kwargs)
        between = hidden_states + attention
        # A norm of the whole stream: nothing is added to the input any more.
        normed: torch.Tensor = layer.post_attention_layernorm(between + layer.mlp(between))
        return normed

    layer.forward = forward
    with pytest.raises(InputError, match=r"LlamaForCausalLM: in layer 1 no module was found"):
        feed_forward_sites(lm)


def test_gates_that_do_not_fit_are_refused() -> None:
    lm, batch = wrapped("llama"), sample_batch()
    for shape in ((3,), (2, 3), (1, 2, 2)):
        with (
            pytest.raises(InputError, match=r"needs \(2,\) or \(rows, 2\)"),
            feed_forward_gated(lm, torch.ones(shape)),
        ):
            raise AssertionError("entered")
    with (
        pytest.raises(InputError, match="not finite"),
        feed_forward_gated(lm, torch.tensor([1.0, float("nan")])),
    ):
        raise AssertionError("entered")
    with (
        pytest.raises(InputError, match="2 rows met a batch"),
        feed_forward_gated(lm, torch.zeros(2, 2)),
    ):
        logits(lm.model, batch)
    hooks = [len(module._forward_hooks) for module in lm.model.modules()]
    assert not any(hooks)
