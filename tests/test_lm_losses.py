"""Losses of texts against a plain log-softmax over all logits, with and without gradients."""

from __future__ import annotations

import contextlib
import functools
from typing import Any

import numpy as np
import pytest
import torch

import lm_helpers
from headscope.errors import InputError
from headscope.lm import losses
from headscope.lm.batching import Batch, collate, in_halves
from headscope.lm.inputs import evaluating, forward_inputs
from headscope.lm.losses import checkpointed, frozen, row_losses, token_losses
from headscope.lm.model import LanguageModel
from headscope.lm.owners import inner_model
from headscope.lm.states import states
from lm_helpers import CHANGING, changing, fresh, sample_batch, wrapped

#: A scale and a soft cap on logits, layers without heads, a decoder within a decoder, router noise.
MODELS = ("llama", "cohere", "gemma2", "granite", "qwen3_next", "opt", "phimoe", "gpt2")


def later_tokens(batch: Batch) -> torch.Tensor:
    return batch.attention_mask.bool() & (batch.position_ids > 0)


def plain_row_losses(lm: LanguageModel, batch: Batch, learned: torch.Tensor) -> torch.Tensor:
    """Row by row and token by token, over the logits of the whole batch."""
    with evaluating(lm.model):
        logits = lm.model(**forward_inputs(lm.model, batch)).logits.float()
    rows = []
    for row, ids in enumerate(batch.input_ids):
        found = [
            torch.logsumexp(logits[row, at - 1], 0) - logits[row, at - 1, ids[at]]
            for at in range(1, len(ids))
            if learned[row, at]
        ]
        rows.append(torch.stack(found).mean())
    return torch.stack(rows)


def gradient(way: Any, lm: LanguageModel, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Losses and their gradient with respect to a gate of uneven values, one part a row."""
    generator = torch.Generator().manual_seed(3)
    shape = (len(batch.input_ids), lm.geometry.layers, lm.geometry.width)
    gate = torch.rand(shape, generator=generator).add(0.5).requires_grad_(True)
    with frozen(lm.model), lm.gated(gate):
        found = way(lm, batch, later_tokens(batch))
        found.sum().backward()
    assert gate.grad is not None and bool(gate.grad.any())
    return found.detach(), gate.grad


@pytest.mark.parametrize("name", MODELS)
def test_losses_and_gradients_are_those_of_all_logits(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lm, batch = wrapped(name), sample_batch()
    lm.model.train()  # dropout, layer dropout and router noise would show
    modes = [module.training for module in lm.model.modules()]
    wanted, slope = gradient(plain_row_losses, lm, batch)
    for chunk in (1 << 25, 3 * 96):
        monkeypatch.setattr(losses, "CHUNK", chunk)
        for again in (contextlib.nullcontext(), checkpointed(lm)):
            with again:
                found, own = gradient(row_losses, lm, batch)
            torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)
            torch.testing.assert_close(own, slope, rtol=1e-4, atol=1e-6)
    assert losses.applies_apart(lm, batch)
    assert [module.training for module in lm.model.modules()] == modes
    assert not any("forward" in vars(module) for module in lm.model.modules())


@pytest.mark.parametrize("name", ["opt", "xglm", "gpt2"])
def test_the_trap_of_training_mode_is_one(name: str) -> None:
    """These families do drop out in training, so the test above could fail."""
    lm, batch = wrapped(name), sample_batch()
    lm.model.train()
    for module in lm.model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.5
        for field in ("dropout", "layerdrop"):
            if isinstance(getattr(module, field, None), float):
                setattr(module, field, 0.5)
    with torch.no_grad():
        awake = lm.model(**forward_inputs(lm.model, batch)).logits
        with evaluating(lm.model):
            asleep = lm.model(**forward_inputs(lm.model, batch)).logits
    assert not torch.allclose(awake, asleep)
    wanted, slope = gradient(plain_row_losses, lm, batch)
    with checkpointed(lm):
        found, own = gradient(row_losses, lm, batch)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(own, slope, rtol=1e-4, atol=1e-6)


def test_checkpointing_keeps_less_and_computes_layers_twice() -> None:
    lm, batch = wrapped("llama"), sample_batch()
    losses.applies_apart(lm, batch)
    calls = {False: 0, True: 0}
    kept = {False: 0, True: 0}
    for again in calls:
        counted: list[int] = []

        def seen(*_: Any, counted: list[int] = counted) -> None:
            counted.append(1)

        def count(tensor: torch.Tensor, again: bool = again) -> torch.Tensor:
            kept[again] += tensor.numel()
            return tensor

        handle = lm.sites[0].projection.register_forward_hook(seen)
        context = checkpointed(lm) if again else contextlib.nullcontext()
        with context, torch.autograd.graph.saved_tensors_hooks(count, lambda one: one):
            gradient(row_losses, lm, batch)
        calls[again] = len(counted)
        handle.remove()
    assert calls[True] > calls[False]
    assert kept[True] < kept[False]


def test_the_backward_pass_outside_a_checkpointed_gate_is_no_silent_zero() -> None:
    lm, batch = wrapped("llama"), sample_batch()
    gate = torch.ones(lm.geometry.shape, requires_grad=True)
    with frozen(lm.model), checkpointed(lm), lm.gated(gate):
        found = row_losses(lm, batch, later_tokens(batch))
    with pytest.raises(Exception, match=r"(?i)checkpoint|recomput"):
        found.sum().backward()


@pytest.mark.parametrize("name", ["llama", "gemma2", "opt"])
def test_token_losses_are_those_of_each_row_alone(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lm = wrapped(name)
    rows = [[5, 9, 20, 31, 7], [8], [40, 41, 42], [], [11, 12, 13, 14, 15, 16, 17]]
    starts = [2, 1, 1, 1, 6]
    gate = torch.ones(lm.geometry.shape)
    gate[0, 1] = 0.0
    seen: list[tuple[int, int]] = []
    monkeypatch.setattr(losses, "CHUNK", 2 * 96)
    with lm.gated(gate):
        found = token_losses(lm, rows, starts, 10, lambda done, total: seen.append((done, total)))
        for row, start, own in zip(rows, starts, found, strict=True):
            if len(row) <= start:
                assert own.shape == (0,)
                continue
            with torch.no_grad():
                logits = lm.model(input_ids=torch.tensor([row])).logits[0].float()
            nll = -logits.log_softmax(-1)[range(len(row) - 1), row[1:]].numpy()
            np.testing.assert_allclose(own, nll[start - 1 :], rtol=1e-5, atol=1e-6)
    assert seen[-1] == (5, 5) and len(seen) > 1
    ungated = token_losses(lm, rows, starts, 10)
    assert not np.allclose(found[0], ungated[0])


def test_no_more_logits_at_once_than_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    lm, batch = wrapped("llama"), sample_batch()
    losses.applies_apart(lm, batch)
    sizes: list[int] = []
    own = losses.vocabulary_logits

    def spy(lm: Any, hidden: torch.Tensor, output: Any) -> torch.Tensor:
        sizes.append(len(hidden))
        return own(lm, hidden, output)

    monkeypatch.setattr(losses, "vocabulary_logits", spy)
    monkeypatch.setattr(losses, "CHUNK", 4 * 96)
    token_losses(lm, [list(range(3, 30))], None)
    assert max(sizes) == 4 and sum(sizes) == 26


def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in (("_LARGE", 1), ("_PIECE", 7), ("_POSITIONS", 3)):
        monkeypatch.setattr(losses, name, size)


@pytest.mark.parametrize("name", MODELS)
def test_losses_by_pieces_of_the_vocabulary_are_those_of_all_of_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [list(range(3, 30)), [5, 9, 4, 8], [7, 7, 95]]
    whole = token_losses(wrapped(name), rows, None)
    small_pieces(monkeypatch)
    lm = wrapped(name)
    losses.applies_apart(lm, sample_batch())
    assert losses._in_pieces[inner_model(lm.model)]
    monkeypatch.setattr(losses, "vocabulary_logits", None)  # is not asked
    for own, wanted in zip(token_losses(lm, rows, None), whole, strict=True):
        np.testing.assert_allclose(own, wanted, rtol=1e-5, atol=2e-6)
    assert not any("forward" in vars(module) for module in lm.model.modules())


class Adapted(torch.nn.Linear):
    """What an adapter makes of an output embedding, whose weight stays as it was."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return super().forward(input) + input[..., :1] * torch.arange(float(self.out_features))


def adapt(model: Any) -> None:
    model.lm_head.__class__ = Adapted


def hook(model: Any) -> None:
    order = torch.arange(float(model.lm_head.out_features))
    model.lm_head.register_forward_hook(lambda _, args, made: made + args[0][..., :1] * order)


@pytest.mark.parametrize("change", [adapt, hook])
def test_an_embedding_that_was_changed_since_is_not_read_by_pieces(
    change: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_pieces(monkeypatch)
    lm, batch = wrapped("llama"), sample_batch()
    before = row_losses(lm, batch, later_tokens(batch)).detach()
    assert losses._in_pieces[inner_model(lm.model)]
    change(lm.model)
    with torch.no_grad():
        found = row_losses(lm, batch, later_tokens(batch))
        wanted = plain_row_losses(lm, batch, later_tokens(batch))
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(found, before)


def test_a_model_that_does_more_with_its_logits_is_not_read_by_pieces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lm, batch = wrapped("llama"), sample_batch()
    wanted = row_losses(lm, batch, later_tokens(batch)).detach()
    small_pieces(monkeypatch)
    other = wrapped("llama")
    inner = other.model.forward

    def normalised(**options: Any) -> Any:
        """Losses do not change by it, and those of pieces would."""
        made = inner(**options)
        made.logits = made.logits.log_softmax(-1)
        return made

    other.model.forward = functools.wraps(inner)(normalised)
    assert losses.applies_apart(other, batch)
    assert not losses._in_pieces[inner_model(other.model)]
    found = row_losses(other, batch, later_tokens(batch)).detach()
    torch.testing.assert_close(found, wanted)


def test_a_model_whose_head_cannot_be_applied_apart_uses_plain_logits() -> None:
    lm, batch = wrapped("llama"), sample_batch()
    wanted = row_losses(lm, batch, later_tokens(batch)).detach()
    other = wrapped("llama")
    inner = other.model.forward

    def looks_at_everything(input_ids: torch.Tensor, **options: Any) -> Any:
        """Logits that depend on the ids, which a replaced decoder would not show."""
        made = inner(input_ids=input_ids, **options)
        made.logits = made.logits + (input_ids.sum() % 7) * torch.arange(96.0)
        return made

    # With the signature of the model's own, from which one sees what it can leave out.
    other.model.forward = functools.wraps(inner)(looks_at_everything)
    assert not losses.applies_apart(other, batch)
    found = row_losses(other, batch, later_tokens(batch)).detach()
    torch.testing.assert_close(found, plain_row_losses(other, batch, later_tokens(batch)).detach())
    assert not torch.allclose(found, wanted)


def test_a_failed_pass_leaves_the_model_as_it_was() -> None:
    lm, batch = wrapped("llama"), sample_batch()
    learned = later_tokens(batch)
    losses.applies_apart(lm, batch)
    wrong = torch.full((2, *lm.geometry.shape), 1.0)
    wrong[0, 0, 0] = 0
    lm.model.train()
    with pytest.raises(InputError), checkpointed(lm), lm.gated(wrong):
        row_losses(lm, batch, learned)
    assert lm.model.training
    assert not any("forward" in vars(module) for module in lm.model.modules())


def test_frozen_parameters_are_as_before_afterwards() -> None:
    lm = wrapped("llama")
    flags = {name: at % 2 == 0 for at, (name, _) in enumerate(lm.model.named_parameters())}
    for name, one in lm.model.named_parameters():
        one.requires_grad_(flags[name])
    with pytest.raises(RuntimeError, match="stop"), frozen(lm.model):
        assert not any(one.requires_grad for one in lm.model.parameters())
        raise RuntimeError("stop")
    assert {name: one.requires_grad for name, one in lm.model.named_parameters()} == flags


def test_what_cannot_be_a_loss_is_named() -> None:
    lm = wrapped("llama")
    batch = collate([[5, 6, 7], [8, 9]], 0)
    learned = later_tokens(batch)
    first = learned.clone()
    first[1, 1] = True
    with pytest.raises(InputError, match=r"Row 1 .* first token"):
        row_losses(lm, batch, first)
    nothing = learned.clone()
    nothing[0] = False
    with pytest.raises(InputError, match=r"Row 0 .* marks no token"):
        row_losses(lm, batch, nothing)
    with pytest.raises(InputError, match="bool of shape"):
        row_losses(lm, batch, learned.int())
    with pytest.raises(InputError, match="at least 1"):
        token_losses(lm, [[5, 6]], [0])
    with pytest.raises(InputError, match=r"2 starts .* 1 rows"):
        token_losses(lm, [[5, 6]], [1, 1])
    with pytest.raises(InputError, match="context holds"):
        token_losses(lm, [[5] * (lm.context_length + 1)])


@pytest.mark.parametrize("where", lm_helpers.SCARCE)
def test_batches_that_do_not_fit_are_halved_down_to_single_rows(where: str) -> None:
    tried: list[list[int]] = []

    def work(rows: list[int]) -> int:
        tried.append(rows)
        if len(rows) > 1 and 3 in rows:
            lm_helpers.no_memory(where)
        return sum(rows)

    assert list(in_halves([[5, 4, 3, 2], [1]], work)) == [
        ([5, 4], 9),
        ([3], 3),
        ([2], 2),
        ([1], 1),
    ]
    assert tried[0] == [5, 4, 3, 2]

    def never(rows: list[int]) -> int:
        lm_helpers.no_memory(where)
        return 0

    with pytest.raises(torch.OutOfMemoryError):
        list(in_halves([[1, 2]], never))


#: Below, at and above the 24 columns beyond which `changing` models compute otherwise.
LENGTHS = (6, 40, 24, 25, 9, 40, 31)


@pytest.mark.parametrize("kind", CHANGING)
def test_a_row_has_the_losses_it_has_alone(kind: str) -> None:
    lm, generator = changing(kind), torch.Generator().manual_seed(1)
    rows = [torch.randint(3, 96, (n,), generator=generator).tolist() for n in LENGTHS]
    whole = []
    for row in rows:  # plain transformers, a new model a row
        with torch.no_grad():
            made = fresh(lm)(torch.tensor([row]), output_hidden_states=True)
        whole.append((made.logits[0].log_softmax(-1), made.hidden_states[1][0, -1]))
    expected = [
        -found[:-1].gather(1, torch.tensor(row[1:])[:, None])[:, 0].numpy()
        for (found, _), row in zip(whole, rows, strict=True)
    ]
    together = token_losses(lm, rows)
    for own, loss in zip(expected, together, strict=True):
        np.testing.assert_allclose(loss, own, atol=2e-5)
    nexts = lm.next_logits(rows).log_softmax(-1)
    seen = states(lm, rows).after_layer[:, 0]
    for row, (found, state) in enumerate(whole):
        torch.testing.assert_close(nexts[row], found[-1], atol=2e-5, rtol=0)
        torch.testing.assert_close(seen[row], state, atol=2e-5, rtol=0)
    with pytest.raises(InputError, match="more than 24 tokens"):
        lm.collate(rows[:2])


@pytest.mark.parametrize("kind", CHANGING)
def test_gradients_ratings_and_readings_are_those_of_single_rows(kind: str) -> None:
    from headscope.find.gate_descent import Descent, Optimizer, descend
    from headscope.find.gate_gradients import gate_gradients
    from headscope.heads import HeadSet
    from headscope.live.reading import Reading
    from headscope.lm.prompting import Answered
    from headscope.use.rating.passes import row_losses_with_and_without

    lm, generator = changing(kind), torch.Generator().manual_seed(4)
    rows = [torch.randint(3, 96, (n,), generator=generator).tolist() for n in (7, 33, 24, 33)]
    gate = HeadSet(lm.geometry, (next(iter(lm.geometry.heads())),)).removed()
    removed = torch.from_numpy(np.array(gate.values))
    full, without, products = [], [], []
    for row in rows:  # a new model a row, over all logits
        single = LanguageModel.wrap(fresh(lm), check=False)
        ones = torch.ones(lm.geometry.shape, requires_grad=True)
        for values, kept in ((ones, full), (removed, without)):
            with frozen(single.model), single.gated(values):
                found = single.model(torch.tensor([row])).logits[0].log_softmax(-1)
            kept.append(-found[:-1].gather(1, torch.tensor(row[1:])[:, None])[:, 0])
        products.append(torch.autograd.grad(full[-1].mean(), ones)[0].numpy())
    own = gate_gradients(lm, [Answered(tuple(row), 1) for row in rows])
    np.testing.assert_allclose(own.products, np.stack(products), atol=2e-5)
    with evaluating(lm.model), torch.no_grad():
        for places, pairs in row_losses_with_and_without(lm, rows, [1] * len(rows), gate, 4096, 0):
            for place, pair in zip(places, pairs, strict=True):
                np.testing.assert_allclose(pair.full, full[place].detach(), atol=2e-5)
                np.testing.assert_allclose(pair.removed, without[place].detach(), atol=2e-5)
    reading = Reading(lm, [(row, 1) for row in rows[:2]], lambda layer: False)
    (changes,) = reading.under([gate])
    for at, change in enumerate(changes):
        np.testing.assert_allclose(reading.log_probabilities[at], -full[at].detach(), atol=2e-5)
        np.testing.assert_allclose(change, full[at].detach() - without[at].detach(), atol=4e-5)

    def number(values: torch.Tensor) -> torch.Tensor:
        return values.view(lm.geometry.shape)

    begin = Descent.begin(np.ones(lm.geometry.layers * lm.geometry.width, dtype=np.float32))
    samples = [Answered(tuple(row), 1, "") for row in rows]
    descent = descend(lm, samples, [[0, 1, 2, 3]], number, Optimizer(1e-2), begin)
    assert descent.losses[0] == pytest.approx(
        float(torch.stack([loss.detach().mean() for loss in full]).mean()), abs=2e-5
    )
