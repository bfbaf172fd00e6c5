"""Shared prefixes: bit for bit the whole pass, and everything back in its place afterwards."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from small_models import ARCHITECTURES, build

from headscope.errors import InputError
from headscope.lm.batching import collate
from headscope.lm.geometry import hidden_states_of
from headscope.lm.inputs import forward_inputs
from headscope.lm.model import LanguageModel
from headscope.lm.prefix import (
    Prefix,
    can_share,
    last_token,
    record_prefix,
    replay_prefix,
)
from lm_helpers import VARIED, logits, sample_batch, tokenizer

#: Rows are rounded differently in batches of other sizes, and experts group tokens of all rows.
ROUNDING = 1e-4

#: Upper layers read the keys of lower ones.
KEYS_SHARED = ("gemma3n", "gemma4")
SHARING = [name for name in ARCHITECTURES if name not in KEYS_SHARED]


def deep(name: str, layers: int = 4) -> LanguageModel:
    """A tiny model with enough layers to be cut in several places."""
    return LanguageModel.wrap(build(name, layers=layers), tokenizer(), name=name, check=False)


def gates(lm: LanguageModel, rows: int, from_layer: int = 0, seed: int = 0) -> torch.Tensor:
    """Random gates a row, 1 below a layer."""
    values = 2 * torch.rand(rows, *lm.geometry.shape, generator=torch.Generator().manual_seed(seed))
    values[:, :from_layer] = 1
    return values


def forwards(lm: LanguageModel) -> list[Any]:
    """The instance forward of every layer, or None, and the number of hooks."""
    layers = lm.decoder_layers
    return [(one.__dict__.get("forward"), len(one._forward_hooks)) for one in layers]


@pytest.mark.parametrize("name", SHARING)
def test_a_replayed_prefix_gives_the_whole_pass_bit_for_bit_at_every_layer(name: str) -> None:
    lm = deep(name)
    batch = sample_batch()  # rows of unlike lengths, padded on the left
    for layer in range(1, lm.geometry.layers):
        gate = gates(lm, 3, layer)
        with lm.gated(gate):
            whole = logits(lm.model, batch)
        with record_prefix(lm, layer) as recording:
            plain = logits(lm.model, batch)
        with replay_prefix(lm, recording.prefix()), lm.gated(gate):
            shared = logits(lm.model, batch)
        with replay_prefix(lm, recording.prefix()):
            assert torch.equal(logits(lm.model, batch), plain)
        assert torch.equal(shared, whole), layer
        assert not torch.equal(shared, plain), layer


@pytest.mark.parametrize("name", SHARING)
def test_a_pass_that_stops_early_records_the_same_and_one_row_serves_many(
    name: str, record_property: Any
) -> None:
    lm = deep(name)
    ids = sample_batch((9,)).input_ids[0].tolist()
    one, many = collate([ids], 0), collate([ids] * 3, 0)
    worst = 0.0
    for layer in range(1, lm.geometry.layers):
        gate = gates(lm, 3, layer)
        with record_prefix(lm, layer) as whole:
            logits(lm.model, one)
        with record_prefix(lm, layer, stop=True) as recording:
            logits(lm.model, one)
            raise AssertionError("the block ends with the pass")
        assert torch.equal(
            hidden_states_of(recording.outputs[0]), hidden_states_of(whole.outputs[0])
        )
        with lm.gated(gate):
            expected = logits(lm.model, many)
        with replay_prefix(lm, recording.prefix().select([0] * 3)), lm.gated(gate):
            found = logits(lm.model, many)
        worst = max(worst, float((found - expected).abs().max()))
    record_property("largest_difference", worst)
    assert worst <= ROUNDING


@pytest.mark.parametrize("name", VARIED)
def test_rows_can_be_taken_from_a_padded_batch_in_any_order(name: str) -> None:
    lm = deep(name)
    batch = sample_batch((9, 5, 7))
    chosen = [2, 0, 0, 1]
    picked = type(batch)(
        batch.input_ids[chosen], batch.attention_mask[chosen], batch.position_ids[chosen]
    )
    gate = gates(lm, 4, 2)
    with lm.gated(gate):
        whole = logits(lm.model, picked)
    with record_prefix(lm, 2, stop=True) as recording:
        logits(lm.model, batch)
    with replay_prefix(lm, recording.prefix().select(chosen)), lm.gated(gate):
        shared = logits(lm.model, picked)
    seen = picked.attention_mask.bool()
    torch.testing.assert_close(shared[seen], whole[seen], rtol=ROUNDING, atol=ROUNDING)


def test_layers_get_their_own_forward_back_also_after_an_exception() -> None:
    lm = deep("llama")
    layers = lm.decoder_layers
    calls = []
    inside = layers[1].forward

    def own(*args: Any, **kwargs: Any) -> Any:  # as placement over devices sets one
        calls.append(1)
        return inside(*args, **kwargs)

    layers[1].forward = own
    before = forwards(lm)
    batch = sample_batch()
    with record_prefix(lm, 3) as recording:
        plain = logits(lm.model, batch)
    assert len(calls) == 1
    with replay_prefix(lm, recording.prefix()):
        assert torch.equal(logits(lm.model, batch), plain)
    assert len(calls) == 1  # not run while replayed
    with pytest.raises(ZeroDivisionError), replay_prefix(lm, recording.prefix()):
        raise ZeroDivisionError
    with pytest.raises(ZeroDivisionError), record_prefix(lm, 3, stop=True):
        raise ZeroDivisionError
    assert forwards(lm) == before
    assert torch.equal(logits(lm.model, batch), plain) and len(calls) == 2


def test_an_inner_recording_that_stops_leaves_an_outer_one_going() -> None:
    lm = deep("llama")
    batch = sample_batch()
    with record_prefix(lm, 3) as outer:
        with record_prefix(lm, 1, stop=True):
            logits(lm.model, batch)
        with pytest.raises(InputError, match="No pass ran inside record_prefix"):
            outer.prefix()
        logits(lm.model, batch)
    assert outer.prefix().rows == 3


def test_what_is_not_a_tensor_of_rows_is_kept_when_rows_are_selected() -> None:
    hidden = torch.arange(12.0).view(2, 3, 2)
    other = torch.arange(5.0)
    prefix = Prefix(1, (hidden, None, {"a": [hidden, other]}, torch.tensor(4.0)), 2)
    found = prefix.select([1, 1, 0])
    assert found.rows == 3
    assert torch.equal(found.output[0], hidden[[1, 1, 0]]) and found.output[1] is None
    assert torch.equal(found.output[2]["a"][0], hidden[[1, 1, 0]])
    assert found.output[2]["a"][1] is other and float(found.output[3]) == 4.0


def test_a_prefix_that_does_not_fit_is_refused() -> None:
    lm = deep("llama")
    for layer in (0, 4):
        with (
            pytest.raises(InputError, match="choose a layer from 1 to 3"),
            record_prefix(lm, layer),
        ):
            pass
    with record_prefix(lm, 2, stop=True) as recording:
        logits(lm.model, sample_batch((5,)))
    prefix = recording.prefix()
    wrong = r"\(1, 5\) was replayed in a pass over \(3, 9\)"
    with pytest.raises(InputError, match=wrong), replay_prefix(lm, prefix):
        logits(lm.model, sample_batch())
    cached = pytest.raises(InputError, match="use_cache=False")
    with cached, replay_prefix(lm, prefix), torch.no_grad():
        lm.model(input_ids=sample_batch((5,)).input_ids, use_cache=True)
    with pytest.raises(InputError, match="has no rows"):
        prefix.select([1])


def test_sharing_is_tried_before_it_is_trusted() -> None:
    lm = deep("llama")
    assert can_share(lm)
    assert not can_share(deep("llama", layers=1))
    # A layer that reads what a lower one left behind, as with shared keys.
    layers = lm.decoder_layers
    left: list[torch.Tensor] = []
    low, high = layers[0].self_attn, layers[3].self_attn
    low.register_forward_hook(lambda _, args, output: left.append(output[0]))

    def reads(_: Any, args: Any, output: Any) -> Any:
        return (output[0] + left.pop(), *output[1:])

    high.register_forward_hook(reads)
    assert not can_share(lm)


@pytest.mark.parametrize("name", KEYS_SHARED)
def test_layers_that_share_keys_are_not_replayed(name: str) -> None:
    lm = deep(name)
    assert not can_share(lm)
    assert not any(can_share(lm, layer) for layer in range(1, lm.geometry.layers))
    # The last two layers read the keys of layers 4 and 5: half of the layers say nothing of that.
    assert not can_share(deep(name, layers=8))


def test_noise_of_plain_passes_does_not_forbid_sharing_and_hides_no_fault() -> None:
    lm = deep("llama")
    generator = torch.Generator().manual_seed(0)
    lm.decoder_layers[3].register_forward_hook(
        lambda _, args, out: out + 1e-3 * torch.randn(out.shape, generator=generator)
    )
    assert can_share(lm)
    # A replayed pass that differs, as where upper layers read what lower ones left behind.
    calls: list[int] = []

    def second_differs(_: Any, args: Any) -> Any:
        calls.append(1)
        return (2 * args[0], *args[1:]) if len(calls) == 2 else None

    lm.decoder_layers[2].register_forward_pre_hook(second_differs)
    assert not can_share(lm)


def one_pass(
    lm: LanguageModel, ids: list[int], gate: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits and the output of every layer at the last token, by a single plain pass."""
    seen: list[torch.Tensor] = []
    handles = [
        layer.register_forward_hook(lambda _, args, out: seen.append(hidden_states_of(out)[0, -1]))
        for layer in lm.decoder_layers
    ]
    with lm.gated(gate), torch.no_grad():
        alone = lm.model(**forward_inputs(lm.model, collate([ids], 0))).logits[0, -1]
    for handle in handles:
        handle.remove()
    return alone, torch.stack(seen)


@pytest.mark.parametrize("name", VARIED)
@pytest.mark.parametrize("share", [True, False])
def test_the_last_token_under_many_gates_is_that_of_each_gate_alone(name: str, share: bool) -> None:
    lm = deep(name)
    ids = sample_batch((9,)).input_ids[0].tolist()
    heads = sorted(lm.geometry.heads(), key=lambda head: (head.head, -head.layer))
    many = torch.ones(len(heads) + 1, *lm.geometry.shape)
    for place, head in enumerate(heads):
        many[place + 1 :, head.layer, head.head] = 0.3
    found = last_token(lm, ids, many, share)
    layers = lm.decoder_layers
    for row, gate in enumerate(many):
        alone, states = one_pass(lm, ids, gate)
        torch.testing.assert_close(found.logits[row], alone, rtol=ROUNDING, atol=ROUNDING)
        torch.testing.assert_close(found.states[row], states, rtol=ROUNDING, atol=ROUNDING)
    assert all(not layer._forward_hooks for layer in layers)


@pytest.mark.parametrize("share", [True, False])
def test_layers_run_on_the_rows_that_differ_and_no_others(share: bool) -> None:
    lm = deep("llama")
    layers = lm.decoder_layers
    rows = [0] * len(layers)

    def count(number: int) -> Any:
        def hook(_: Any, args: Any, kwargs: Any) -> None:
            rows[number] += int(args[0].shape[0])

        return hook

    for number, layer in enumerate(layers):
        layer.self_attn.q_proj.register_forward_pre_hook(
            lambda _, args, number=number: count(number)(_, args, None)
        )
    many = torch.ones(8, *lm.geometry.shape)
    many[4:, 1, 0] = 0.0
    for row in range(8):
        many[row, 3, 0] = row
    last_token(lm, [5, 6, 7], many, share)
    assert rows == ([1, 2, 2, 8] if share else [8, 8, 8, 8])
