"""Descent on gates: the same as a plain loop, the same in parts and in halves, and its stops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from headscope.errors import InputError
from headscope.find.gate_descent import Descent, Optimizer, descend, mean_losses
from headscope.heads import Gate
from headscope.lm import losses
from headscope.lm.model import LanguageModel
from headscope.lm.prompting import Answered
from lm_helpers import wrapped

ROWS = [((5, 9, 12, 40, 41), 2), ((7, 8, 30, 31, 32, 33, 60), 4), ((9, 50, 51, 52), 3)]
SAMPLES = [Answered(ids, start, f"row {at}") for at, (ids, start) in enumerate(ROWS)]
BATCHES = [[0, 1], [2], [1, 2], [0]]


@pytest.fixture(scope="module")
def lm() -> LanguageModel:
    return wrapped("qwen3")


def maker(lm: LanguageModel) -> Any:
    """Numbers for heads 0.1, 1.0 and 1.2."""
    width = lm.geometry.width
    places = torch.tensor([1, width, width + 2])

    def make(values: torch.Tensor) -> torch.Tensor:
        ones = torch.ones(lm.geometry.layers * width)
        return ones.index_put((places,), values).view(lm.geometry.shape)

    return make


def naive(lm: LanguageModel, batches: list[list[int]], config: Optimizer, penalty: Any) -> Any:
    """Adam written out, one row at a time through whole logits."""
    values = torch.ones(3, dtype=torch.float64)
    first, second = torch.zeros(3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
    losses = []
    for step, rows in enumerate(batches):
        numbers = values.float().requires_grad_(True)
        total = torch.zeros(())
        for row in rows:
            ids = torch.tensor([SAMPLES[row].ids])
            with lm.gated(maker(lm)(numbers)):
                logits = lm.model(input_ids=ids, use_cache=False).logits[0].log_softmax(-1)
            places = range(SAMPLES[row].start, ids.shape[1])
            total = total - sum(logits[t - 1, ids[0, t]] for t in places) / len(places)
        loss = total / len(rows)
        losses.append(loss.item())
        whole = loss + (penalty(numbers) if penalty else 0)
        (gradient,) = torch.autograd.grad(whole, numbers)
        gradient = gradient.double()
        if config.clip_norm is not None:
            gradient = gradient * min(1.0, config.clip_norm / (gradient.norm().item() + 1e-6))
        rate = config.rate(step)
        values = values * (1 - rate * config.weight_decay)
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        corrected = (second / (1 - 0.999 ** (step + 1))).sqrt() + 1e-8
        values = values - rate * first / (1 - 0.9 ** (step + 1)) / corrected
    return values.numpy(), losses


@pytest.mark.parametrize(
    "config",
    [Optimizer(1e-2, 0.01), Optimizer(0.3, 0.0, 1e-3, 0.1, 4)],
    ids=["decay", "clipped and falling"],
)
@pytest.mark.parametrize("pushed", [False, True])
def test_descent_is_adam_on_the_gates(lm: LanguageModel, config: Optimizer, pushed: bool) -> None:
    def push(values: torch.Tensor) -> torch.Tensor:
        return 0.05 * values.square().mean()

    penalty = push if pushed else None
    start = Descent.begin(np.ones(3, dtype=np.float32))
    done = descend(lm, SAMPLES, BATCHES, maker(lm), config, start, penalty)
    values, losses = naive(lm, BATCHES, config, penalty)
    np.testing.assert_allclose(done.losses, losses, rtol=1e-5)
    np.testing.assert_allclose(done.values, values, atol=2e-4)
    assert done.steps == 4 and not np.allclose(done.values, 1)
    # In two goes, kept in between, every bit is the same.
    half = descend(lm, SAMPLES, BATCHES[:2], maker(lm), config, start, penalty)
    half = Descent.of({name: one.copy() for name, one in half.arrays().items()})
    whole = descend(lm, SAMPLES, BATCHES[2:], maker(lm), config, half, penalty)
    for name, one in done.arrays().items():
        np.testing.assert_array_equal(one, whole.arrays()[name])


def test_the_model_is_as_before_and_checkpointing_changes_nothing(lm: LanguageModel) -> None:
    before = {name: p.requires_grad for name, p in lm.model.named_parameters()}
    state = {name: one.clone() for name, one in lm.model.state_dict().items()}
    start = Descent.begin(np.ones(3, dtype=np.float32))
    config = Optimizer(0.1)
    plain = descend(lm, SAMPLES, BATCHES, maker(lm), config, start)
    twice = descend(lm, SAMPLES, BATCHES, maker(lm), config, start, checkpointing=True)
    np.testing.assert_allclose(plain.values, twice.values, atol=1e-5)
    assert {name: p.requires_grad for name, p in lm.model.named_parameters()} == before
    assert all(p.grad is None for p in lm.model.parameters())
    for name, one in lm.model.state_dict().items():
        assert torch.equal(one, state[name])


def test_a_batch_that_does_not_fit_is_done_in_halves(
    lm: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = Descent.begin(np.ones(3, dtype=np.float32))
    plain = descend(lm, SAMPLES, [[0, 1, 2]], maker(lm), Optimizer(0.1), start)
    sizes = []
    original = losses.row_losses

    def short(lm: Any, batch: Any, learned: Any) -> Any:
        sizes.append(len(batch.input_ids))
        if len(batch.input_ids) > 1:
            raise torch.OutOfMemoryError("no room")
        return original(lm, batch, learned)

    monkeypatch.setattr(losses, "row_losses", short)
    halves = descend(lm, SAMPLES, [[0, 1, 2]], maker(lm), Optimizer(0.1), start)
    assert sizes == [3, 2, 1, 1, 1]
    np.testing.assert_allclose(plain.values, halves.values, atol=1e-6)
    np.testing.assert_allclose(plain.losses, halves.losses, rtol=1e-6)


def test_mean_losses_are_those_of_the_learned_tokens(
    lm: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(lm.geometry, maker(lm)(torch.tensor([0.0, 2.0, 0.5])).numpy())
    found = mean_losses(lm, SAMPLES, gate)
    start = Descent.begin(np.array([0.0, 2.0, 0.5], dtype=np.float32))
    first = [descend(lm, SAMPLES, [[at]], maker(lm), Optimizer(0.1), start) for at in range(3)]
    np.testing.assert_allclose(found, [one.losses[0] for one in first], rtol=1e-5)
    spoilt = [np.array([np.inf], dtype=np.float32)] * 3
    monkeypatch.setattr(losses, "token_losses", lambda *arguments: spoilt)
    with pytest.raises(InputError, match="row 0: the loss of its answer is inf"):
        mean_losses(lm, SAMPLES, gate)


def test_rates_go_evenly_from_the_first_to_the_last() -> None:
    falling = Optimizer(0.5, last_rate=0.1, steps=4)
    assert [falling.rate(step) for step in (0, 2, 4, 9)] == pytest.approx([0.5, 0.3, 0.1, 0.1])
    assert Optimizer(0.5).rate(100) == 0.5
