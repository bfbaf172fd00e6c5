"""Gates: what they do to single heads, and what they leave alone."""

from __future__ import annotations

import copy
import re

import numpy as np
import pytest
import torch

from headscope.errors import InputError
from headscope.heads import Gate, Geometry, Head, HeadSet
from headscope.lm.inputs import forward_inputs
from lm_helpers import VARIED, folded, logits, sample_batch, slice_of_w_o, wrapped


def hooks(model: torch.nn.Module) -> int:
    return sum(len(m._forward_pre_hooks) + len(m._forward_hooks) for m in model.modules())


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
        assert hooks(lm.model) == 0
        assert torch.equal(plain, logits(lm.model, batch))
    with lm.gated(torch.ones(lm.geometry.shape, requires_grad=True)):
        assert hooks(lm.model) == len(lm.sites)
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


def test_disjoint_removals_nest_exactly() -> None:
    lm = wrapped("llama")
    batch = sample_batch()
    one, two = HeadSet(lm.geometry, (Head(0, 1),)), HeadSet(lm.geometry, (Head(1, 2), Head(1, 3)))
    with lm.gated((one | two).removed()):
        union = logits(lm.model, batch)
    with lm.gated(one.removed()), lm.gated(two.removed()):
        assert torch.equal(union, logits(lm.model, batch))


def test_model_is_as_before_after_an_exception() -> None:
    lm = wrapped("llama")
    batch = sample_batch()
    plain = logits(lm.model, batch)
    state = copy.deepcopy(lm.model.state_dict())
    with pytest.raises(RuntimeError, match="on purpose"), lm.gated(random_gate(lm)):
        raise RuntimeError("on purpose")
    assert hooks(lm.model) == 0
    assert torch.equal(plain, logits(lm.model, batch))
    assert all(torch.equal(value, state[key]) for key, value in lm.model.state_dict().items())


def test_other_models_are_left_alone() -> None:
    lm, other = wrapped("llama"), wrapped("llama", seed=5)
    batch = sample_batch()
    plain = logits(other.model, batch)
    with lm.gated(torch.zeros(lm.geometry.shape)):
        assert hooks(other.model) == 0
        assert torch.equal(plain, logits(other.model, batch))


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


@pytest.mark.parametrize("name", ["llama", "gpt2", "bitnet"])
def test_gradient_equals_finite_difference(name: str) -> None:
    lm = wrapped(name)
    lm.model.double().requires_grad_(False)
    inputs = forward_inputs(lm.model, sample_batch((6, 4)))
    weights = torch.randn(96, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def loss(gate: torch.Tensor) -> torch.Tensor:
        with lm.gated(gate):
            return (lm.model(**inputs).logits @ weights).sum()

    gate = (0.5 + random_gate(lm).double() / 2).requires_grad_(True)
    (gradient,) = torch.autograd.grad(loss(gate), gate)
    direction = torch.randn(gate.shape, dtype=torch.float64, generator=torch.Generator())
    step = 3e-3  # norms compute in 32 bits whatever the model's dtype
    with torch.no_grad():
        slope = (loss(gate + step * direction) - loss(gate - step * direction)) / (2 * step)
    torch.testing.assert_close((gradient * direction).sum(), slope, rtol=1e-2, atol=1e-3)


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
    assert hooks(lm.model) == 0
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
