"""Schedules, noise, gates and one whole step of mask training, against independent twins."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headscope.errors import InputError
from headscope.find.mask_config import MaskTraining, preset
from headscope.find.mask_training import (
    gumbel_noise,
    rows_of_step,
    starting_weights,
    straight_through,
    train_mask,
)
from headscope.heads import Geometry
from headscope.lm.model import LanguageModel
from headscope.lm.prompting import Answered
from lm_helpers import folded, wrapped

SHORT = MaskTraining(steps=6, learning_rate=2.0, batch=3, keep_every=1)


def samples(count: int = 5, seed: int = 0) -> list[Answered]:
    """Rows of random tokens, of unlike lengths, whose last two to four are the answer."""
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for number in range(count):
        ids = torch.randint(3, 96, (6 + number,), generator=generator).tolist()
        rows.append(Answered(tuple(ids), len(ids) - 2 - number % 3))
    return rows


# Schedules


def test_the_learning_rate_of_the_paper_at_some_steps() -> None:
    paper = preset("paper", 1024)
    assert paper.learning_rate_at(0) == pytest.approx(1e-2 / 620)
    assert paper.learning_rate_at(619) == pytest.approx(1e-2)
    assert paper.learning_rate_at(620) == pytest.approx(1e-2)
    half = (620 + 6199) / 2
    below, above = paper.learning_rate_at(math.floor(half)), paper.learning_rate_at(math.ceil(half))
    assert (below + above) / 2 == pytest.approx((1e-2 + 1e-4) / 2)
    assert paper.learning_rate_at(6199) == pytest.approx(1e-4)
    # Half a cosine has the mean of its ends; the warm-up half its height.
    assert paper.travel == pytest.approx(620 * 0.005 + 5580 * 0.00505, rel=1e-3)


def test_the_temperature_of_the_paper_at_some_steps() -> None:
    paper = preset("paper", 1024)
    assert paper.temperature_at(0) == 4
    assert paper.temperature_at(1240) == pytest.approx((4 + 0.05) / 2)
    assert paper.temperature_at(2479) == pytest.approx(0.05, abs=2e-3)
    assert {paper.temperature_at(step) for step in (2480, 4000, 6199)} == {0.05}


def test_presets_go_far_enough_and_follow_the_number_of_heads() -> None:
    small = preset(None, 96)
    assert small == preset("small", 1024) and small.steps <= 1000 and small.travel >= 15
    assert preset(None, 1024) == preset("paper", 96) == MaskTraining()
    slower = preset("paper", 1024, learning_rate=5e-3, steps=None)
    assert slower.final_learning_rate == pytest.approx(5e-5) and slower.steps == 6200


def test_a_schedule_that_cannot_get_to_zero_is_refused() -> None:
    with pytest.raises(InputError, match=r"none can get from 4 to 0; train more steps .* 15 is en"):
        preset("paper", 1024, steps=500)
    with pytest.raises(InputError, match="none can get from -3 to 0"):
        preset("paper", 1024, steps=500, start="negative")


# Noise and gates


def test_noise_has_the_distribution_of_a_left_tailed_gumbel() -> None:
    noise = gumbel_noise(3, 7, 400, 500).astype(np.float64).reshape(-1)
    assert noise.mean() == pytest.approx(-0.57722, abs=0.01)
    assert noise.var() == pytest.approx(math.pi**2 / 6, rel=0.01)
    # A head of weight m is kept if G >= -m: with probability exp(-exp(-m)).
    for weight in (-1.0, 0.0, 1.0, 4.0):
        kept = (noise >= -weight).mean()
        assert kept == pytest.approx(math.exp(-math.exp(-weight)), abs=0.005)


@settings(max_examples=30)
@given(
    st.lists(st.floats(-30, 30, width=32), min_size=1, max_size=8),
    st.sampled_from([4.0, 1.0, 0.05]),
    st.integers(0, 1000),
)
def test_gates_are_zero_or_one_with_the_gradient_of_the_sigmoid(
    weights: list[float], temperature: float, seed: int
) -> None:
    numbers = torch.tensor(weights, requires_grad=True)
    noise = torch.from_numpy(gumbel_noise(seed, 0, 3, len(weights)))
    gates = straight_through(numbers, noise, temperature)
    slope = torch.rand(gates.shape, generator=torch.Generator().manual_seed(seed))
    (gates * slope).sum().backward()
    assert numbers.grad is not None
    for at, weight in enumerate(weights):
        total = 0.0
        for row in range(3):
            x = (weight + float(noise[row, at])) / temperature
            p = 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))
            # Exactly on the edge float32 and this computation may differ.
            if abs(x) > 1e-5:
                assert float(gates[row, at].detach()) == (1.0 if p >= 0.5 else 0.0)
            total += float(slope[row, at]) * p * (1 - p) / temperature
        assert float(numbers.grad[at]) == pytest.approx(total, rel=1e-3, abs=1e-5)


@settings(max_examples=30)
@given(st.integers(1, 40), st.integers(1, 20), st.integers(0, 100))
def test_every_sample_is_used_once_before_any_is_used_again(
    count: int, batch: int, seed: int
) -> None:
    steps = 3 * count // batch + 2
    drawn = [row for step in range(steps) for row in rows_of_step(seed, step, batch, count)]
    assert len(drawn) == steps * batch
    for start in range(0, len(drawn) - count + 1, count):
        assert sorted(drawn[start : start + count]) == list(range(count))


# A whole training


def twin(
    lm: LanguageModel, rows: list[Answered], config: MaskTraining
) -> tuple[torch.Tensor, list[float]]:
    """Training without gates or hooks: each sample alone, through weights folded by hand.

    The model's output projections are replaced by ones whose heads' slices are multiplied by the
    gate, and the answer's losses are taken from the logits of the whole row.
    """
    layers, width = lm.geometry.layers, lm.geometry.width
    numbers = torch.tensor(
        starting_weights(config.seed, layers * width, config.mean, config.spread)
    ).reshape(layers, width)
    first, second = torch.zeros_like(numbers), torch.zeros_like(numbers)
    losses = []
    for step in range(config.steps):
        numbers = numbers.detach().requires_grad_()
        chosen = rows_of_step(config.seed, step, config.batch, len(rows))
        noise = gumbel_noise(config.seed, step, config.batch, layers * width)
        total = torch.zeros(())
        for place, row in enumerate(chosen):
            own = torch.tensor(noise[place]).reshape(layers, width)
            soft = torch.sigmoid((numbers + own) / config.temperature_at(step))
            gate = (soft >= 0.5).float().detach() - soft.detach() + soft
            changed = {}
            for site in lm.sites:
                weight = lm.model.get_submodule(site.projection_name).weight
                channels = gate[site.layer, : site.heads].repeat_interleave(site.head_width)
                changed[f"{site.projection_name}.weight"] = weight * channels
            ids = torch.tensor([rows[row].ids])
            out = torch.func.functional_call(lm.model, changed, (ids,))
            nll = -out.logits[0].log_softmax(-1)[:-1].gather(1, ids[0, 1:, None])[:, 0]
            total = total + nll[rows[row].start - 1 :].mean() / config.batch
            total = total + config.penalty * gate.sum() / config.batch
        (gradient,) = torch.autograd.grad(total, numbers)
        losses.append(float(total.detach()))
        # Adam as in Kingma & Ba (2015), algorithm 1.
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        hat = first / (1 - 0.9 ** (step + 1))
        root = (second / (1 - 0.999 ** (step + 1))).sqrt()
        numbers = numbers.detach() - config.learning_rate_at(step) * hat / (root + 1e-8)
    return numbers, losses


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("qwen3", {}),
        ("qwen3", {"start": "negative", "penalty": 0.01}),
        ("gemma2", {"seed": 3}),
        ("mixtral", {}),
        ("qwen3_moe", {}),
    ],
)
def test_a_training_equals_its_twin_with_folded_weights(name: str, changes: dict[str, Any]) -> None:
    """Experts, too: in float32 and a few steps no token changes its expert by rounding."""
    lm, rows = wrapped(name), samples()
    config = dataclasses.replace(SHORT, **changes)
    trained = train_mask(lm, rows, config)
    numbers, losses = twin(lm, rows, config)
    np.testing.assert_allclose(trained.losses, losses, rtol=1e-4)
    np.testing.assert_allclose(trained.weights, numbers.numpy(), rtol=2e-3, atol=2e-3)
    # It moved, and the mask is where the weights are positive.
    assert np.abs(trained.weights - config.mean).max() > 1
    assert np.array_equal(trained.mask.values, (trained.weights >= 0).astype(np.float32))
    listed = [float(trained.weights[head.layer, head.head]) for head in trained.selected]
    assert listed == sorted(listed, reverse=True) and all(weight >= 0 for weight in listed)


def test_a_mask_is_worth_what_a_folded_model_says() -> None:
    """Training towards one row's answer makes it likelier, in the model with folded weights."""
    lm, rows = wrapped("llama"), samples(1)
    config = MaskTraining(steps=30, learning_rate=1.0, batch=4, keep_every=5)
    trained = train_mask(lm, rows, config)
    model = folded(lm, torch.from_numpy(np.array(trained.mask.values)))
    ids = torch.tensor([rows[0].ids])

    def loss(one: Any) -> float:
        with torch.no_grad():
            logs = one(ids).logits[0].log_softmax(-1)
        wanted = ids[0, rows[0].start :]
        return -float(logs[rows[0].start - 1 : -1].gather(1, wanted[:, None]).mean())

    assert 0 < len(trained.selected) < lm.geometry.total
    assert loss(model) < loss(lm.model)


@pytest.mark.parametrize("changes", [{"batch_tokens": 12}, {"checkpointing": True}])
def test_computing_in_parts_or_twice_changes_nothing_but_rounding(changes: Any) -> None:
    lm, rows = wrapped("qwen3"), samples()
    whole = train_mask(lm, rows, SHORT)
    parts = train_mask(lm, rows, dataclasses.replace(SHORT, **changes))
    np.testing.assert_allclose(parts.losses, whole.losses, rtol=1e-5)
    np.testing.assert_allclose(parts.weights, whole.weights, rtol=1e-3, atol=1e-3)


def test_layers_without_heads_and_places_without_a_head_do_not_count() -> None:
    """A hybrid model: what lies where there is no head neither moves nor costs a penalty."""
    lm, rows = wrapped("qwen3_next"), samples()
    assert 0 in lm.geometry.counts
    config = dataclasses.replace(SHORT, penalty=0.5)
    trained = train_mask(lm, rows, config)
    empty = ~lm.geometry.mask()
    begun = starting_weights(config.seed, empty.size, config.mean, config.spread)
    np.testing.assert_array_equal(trained.weights[empty], begun.reshape(empty.shape)[empty])
    assert (trained.mask.values[empty] == 1).all()
    plain = train_mask(lm, rows, dataclasses.replace(config, penalty=0.0, steps=4))
    kept = 0.5 * lm.geometry.total
    assert trained.losses[0] - plain.losses[0] <= kept + 1e-4


def test_a_penalty_makes_masks_smaller() -> None:
    lm, rows = wrapped("llama"), samples(2)
    config = MaskTraining(steps=16, learning_rate=1.5, batch=2)
    plain = train_mask(lm, rows, config)
    penalised = train_mask(lm, rows, dataclasses.replace(config, penalty=5.0))
    assert len(penalised.selected) < len(plain.selected)


def test_feed_forward_gates_are_trained_beside_heads() -> None:
    lm, rows = wrapped("gpt2"), samples()
    trained = train_mask(lm, rows, dataclasses.replace(SHORT, feed_forward=True))
    assert trained.feed_forward is not None and trained.feed_forward.shape == (2,)
    assert trained.history.feed_forward is not None
    assert np.array_equal(trained.history.feed_forward[-1], trained.feed_forward)
    assert np.abs(np.diff(trained.history.feed_forward, axis=0)).max() > 0.1


def test_a_query_mask_is_trained_through_the_scores() -> None:
    """The loss of the first step is that under its own gates on queries, sample by sample."""
    from headscope.lm.queries import query_gated

    lm, rows = wrapped("qwen3"), samples()
    config = dataclasses.replace(SHORT, on="query")
    trained = train_mask(lm, rows, config)
    numbers = torch.tensor(starting_weights(config.seed, 8, config.mean, config.spread))
    noise = torch.tensor(gumbel_noise(config.seed, 0, config.batch, 8))
    wanted = 0.0
    for place, row in enumerate(rows_of_step(config.seed, 0, config.batch, len(rows))):
        gate = (numbers + noise[place] >= 0).float().reshape(2, 4)
        ids = torch.tensor([rows[row].ids])
        with query_gated(lm, gate), torch.no_grad():
            logs = lm.model(ids).logits[0].log_softmax(-1)
        target = ids[0, rows[row].start :]
        wanted -= float(logs[rows[row].start - 1 : -1].gather(1, target[:, None]).mean())
    assert trained.losses[0] == pytest.approx(wanted / config.batch, rel=1e-5)
    assert not np.allclose(trained.weights, train_mask(lm, rows, SHORT).weights)
    with pytest.raises(InputError, match="attention sinks"):
        train_mask(wrapped("gpt_oss"), rows, config)


# Trouble


def test_samples_that_do_not_fit_are_named() -> None:
    lm = wrapped("gpt2")
    long = Answered(tuple(range(3, 90)) * 3, 250)
    with pytest.raises(InputError, match=r"tasks\.json, line 7: .* 261 tokens, .* holds 256"):
        train_mask(
            lm, [*samples(1), long], SHORT, names=["tasks.json, line 2", "tasks.json, line 7"]
        )
    with pytest.raises(InputError, match="sample 1: its answer begins at token 4 of 4"):
        train_mask(lm, [Answered((5, 6, 7, 8), 4)], SHORT)
    with pytest.raises(InputError, match="no sample"):
        train_mask(lm, [], SHORT)


def test_a_loss_that_is_no_number_names_its_sample() -> None:
    lm, rows = wrapped("llama"), samples()
    bad = 95
    with torch.no_grad():
        lm.model.get_input_embeddings().weight[bad] = float("nan")
    rows = [Answered(tuple(3 + one % 90 for one in row.ids), row.start) for row in rows]
    rows[2] = Answered((*rows[2].ids[:3], bad, *rows[2].ids[4:]), rows[2].start)
    with pytest.raises(InputError, match=r"^sample 3: the loss of its answer is nan; leave it out"):
        train_mask(lm, rows, SHORT)


def test_memory_that_does_not_suffice_halves_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    from headscope.find import mask_training as train

    lm, rows = wrapped("llama"), samples()
    whole = train_mask(lm, rows, SHORT)
    real, sizes = train.answer_losses, []

    def small(model: Any, some: Any) -> torch.Tensor:
        sizes.append(len(some))
        if len(some) > 1:
            raise torch.OutOfMemoryError("no room")
        return real(model, some)

    monkeypatch.setattr(train, "answer_losses", small)
    halved = train_mask(lm, rows, SHORT)
    assert set(sizes) == {1, 2, 3}
    np.testing.assert_allclose(halved.weights, whole.weights, rtol=1e-3, atol=1e-3)


def test_geometries_of_unlike_layers_are_read_right() -> None:
    """What the history says of heads is told by geometry, not by the array's width."""
    from headscope.find.mask_config import History

    geometry = Geometry((2, 0, 1))
    weights = np.full((3, 3, 2), -1.0, dtype=np.float32)
    weights[:, 0, 1] = (1, -1, 1)
    history = History(np.array([0, 5, 10]), weights)
    assert [one.head.key for one in history.courses(geometry)] == ["0.0", "0.1", "2.0"]
