"""Peaks against full eager attention matrices, and the manners of the context."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_models import build

from headscope.errors import InputError
from headscope.heads import Gate, Head
from headscope.lm.attention import plans
from headscope.lm.attention import scores as arithmetic
from headscope.lm.attention.peaks import PeakRequest, attention_peaks
from headscope.lm.attention.plans import Rows
from headscope.lm.attention.scores import Block, largest
from headscope.lm.attention.weights import WeightRequest
from headscope.lm.inputs import forward_inputs
from headscope.lm.interpose import observing
from headscope.lm.model import LanguageModel
from lm_helpers import full_weights, hooks_of, sample_batch, whole_text

VARIED = ["llama", "mistral", "gemma2", "gemma3", "gpt2", "qwen3_next", "gpt_oss", "bloom"]


def wrap(name, **options):
    return LanguageModel.wrap(build(name, **options), name=name, check=False)


def naive(lm, batch, keys=None):
    """{(row, place): peaks of all heads}, from full matrices of the same weights."""
    whole = full_weights(lm, batch)
    if keys is not None:
        for row, places in enumerate(keys):
            outside = [place for place in range(whole.shape[3]) if place not in places]
            whole[row, :, :, outside] = 0.0
    peaks = whole.argmax(dim=-1).masked_fill(whole.amax(dim=-1) == 0, -1)
    rows, places = batch.attention_mask.nonzero(as_tuple=True)
    return {
        (row, place): peaks[row, :, place].tolist()
        for row, place in zip(rows.tolist(), places.tolist(), strict=True)
    }


def forward(lm, batch, **options):
    with torch.no_grad():
        return lm.model(**forward_inputs(lm.model, batch), **options)


def as_dict(lm, peaks):
    """{(row, place): peaks of all heads}, and no entry twice."""
    found = {}
    for (row, place), keys in zip(peaks.rows.tolist(), peaks.keys, strict=True):
        assert (row, place) not in found
        found[row, place] = [int(keys[head.layer, head.head]) for head in lm.geometry.heads()]
    return found


@pytest.mark.parametrize("name", VARIED)
@pytest.mark.parametrize("lengths", [(17, 11, 16), (17, 17, 17)])
def test_every_row_equals_the_full_matrices(name, lengths):
    lm = wrap(name)
    inputs = sample_batch(lengths)
    with lm.attention_peaks() as peaks:
        forward(lm, inputs)
    assert peaks.keys.dtype == torch.int32
    assert peaks.keys.shape == (51, lm.geometry.layers, lm.geometry.width)
    found = as_dict(lm, peaks)
    expected = naive(lm, inputs)
    assert {key: found[key] for key in expected} == expected
    # Queries that are padding see nothing at all.
    padding = [found[key] for key in found if key not in expected]
    assert len(padding) == 51 - sum(lengths)
    assert all(key == -1 for line in padding for key in line)


@pytest.mark.parametrize("name", VARIED)
def test_keys_can_be_restricted(name):
    lm = wrap(name)
    inputs = sample_batch((15, 13))
    chosen = [range(3, 8), range(4, 7)]
    with lm.attention_peaks(PeakRequest("all", among(10, chosen))) as peaks:
        forward(lm, inputs)
    found = as_dict(lm, peaks)
    expected = naive(lm, inputs, chosen)
    assert {key: found[key] for key in expected} == expected
    assert any(-1 in line for line in expected.values())


@pytest.mark.parametrize("name", ["llama", "gemma3", "qwen3_next", "gpt_oss"])
@pytest.mark.parametrize("scores", [64, 700])
@pytest.mark.parametrize("keys", [None, [(2, 9), (8, 14), (0, 16)]])
@pytest.mark.parametrize("lengths", [(16, 9, 12), (16, 16, 16)])
def test_small_blocks_change_nothing(name, scores, keys, lengths, monkeypatch):
    lm = wrap(name)
    inputs = sample_batch(lengths)
    keys = keys and among(16, [range(*span) for span in keys])
    rows = torch.rand(3, 16, generator=torch.Generator().manual_seed(1)) < 0.5
    rows[2] = False
    with lm.attention_peaks(PeakRequest(rows, keys)) as whole:
        forward(lm, inputs)
    monkeypatch.setitem(arithmetic._SCORES_AT_ONCE, "cpu", scores)
    monkeypatch.setattr(arithmetic, "_LEAST_COLUMNS", 5)
    monkeypatch.setattr(plans, "_KEEP", 0)
    with lm.attention_peaks(PeakRequest(rows, keys)) as pieces:
        forward(lm, inputs)
    assert whole.rows.tolist() == rows.nonzero().tolist()
    assert torch.equal(whole.rows, pieces.rows)
    assert torch.equal(whole.keys, pieces.keys)
    assert (whole.keys >= 0).any()


@pytest.mark.parametrize("name", VARIED)
@pytest.mark.parametrize("cache", [None, "static"])
def test_generation_records_the_step_that_predicts(name, cache):
    lm = wrap(name, overrides={"eos_token_id": None})
    inputs = sample_batch((10, 7))
    settings_ = {"max_new_tokens": 9, "do_sample": False}
    if cache:
        settings_["cache_implementation"] = cache
    given = {"input_ids": inputs.input_ids, "attention_mask": inputs.attention_mask}
    plain = lm.model.generate(**given, **settings_)
    with lm.attention_peaks(PeakRequest("last")) as peaks:
        observed = lm.model.generate(**given, **settings_)
    assert torch.equal(plain, observed)
    assert [step.rows.tolist() for step in peaks.steps] == [
        [[0, place], [1, place]] for place in range(9, 18)
    ]
    expected = naive(lm, whole_text(inputs, observed))
    found = as_dict(lm, peaks)
    assert found == {key: expected[key] for key in found}


def test_generation_with_keys_of_the_prompt_alone():
    lm = wrap("gemma3", overrides={"eos_token_id": None})
    inputs = sample_batch((10, 7))
    chosen = [range(1, 9), range(4, 10)]
    with lm.attention_peaks(PeakRequest("last", among(10, chosen))) as peaks:
        out = lm.model.generate(
            input_ids=inputs.input_ids,
            attention_mask=inputs.attention_mask,
            max_new_tokens=12,
            do_sample=False,
        )
    expected = naive(lm, whole_text(inputs, out), chosen)
    found = as_dict(lm, peaks)
    assert found == {key: expected[key] for key in found}
    # Far from the prompt a sliding window sees none of it, a global layer still does.
    assert found[0, 20][:4] == [-1] * 4 and -1 not in found[0, 20][8:]


def test_prefix_in_a_cache_counts_from_the_start_of_the_sequence():
    from transformers import DynamicCache

    lm = wrap("gemma3")
    inputs = sample_batch((16,))
    expected = naive(lm, inputs)
    cache = DynamicCache(config=lm.model.config)
    with lm.attention_peaks() as peaks, torch.no_grad():
        for start, end in [(0, 9), (9, 10), (10, 16)]:
            lm.model(input_ids=inputs.input_ids[:, start:end], past_key_values=cache)
    assert [len(step.rows) for step in peaks.steps] == [9, 1, 6]
    assert as_dict(lm, peaks) == expected


def test_bfloat16_products_are_summed_in_float32():
    lm = LanguageModel.wrap(build("llama").to(torch.bfloat16), check=False)
    inputs = sample_batch((14, 9))
    seen = []

    def keep(module, call):
        seen.append((call.query.float(), call.key.float()))

    modules = [site.attention for site in lm.sites]
    with lm.attention_peaks() as peaks, observing(lm.model, modules, keep):
        forward(lm, inputs)
    assert len(seen) == len(modules)
    found = as_dict(lm, peaks)
    for layer, (query, key) in enumerate(seen):
        for (row, place), lines in found.items():
            if not inputs.attention_mask[row, place]:
                continue
            for head in range(4):
                scores = key[row, head // 2, : place + 1] @ query[row, head, place]
                scores[inputs.attention_mask[row, : place + 1] == 0] = float("-inf")
                assert scores[lines[4 * layer + head]] >= scores.max() - 1e-5


def test_a_bias_in_a_float_mask_counts_before_and_after_scale_and_soft_cap():
    for name in ("llama", "gemma2"):
        lm = wrap(name, attn_implementation="eager")
        inputs = sample_batch((12,))
        generator = torch.Generator().manual_seed(2)
        bias = torch.randn(1, 1, 12, 12, generator=generator) * 3
        bias = bias.masked_fill(torch.triu(torch.ones(12, 12), 1).bool(), torch.finfo().min)
        with lm.attention_peaks() as peaks, torch.no_grad():
            ids = inputs.input_ids
            mask = {"full_attention": bias, "sliding_attention": bias} if name == "gemma2" else bias
            out = lm.model(input_ids=ids, attention_mask=mask, output_attentions=True)
        for (_, place), keys in zip(peaks.rows.tolist(), peaks.keys, strict=True):
            for layer, weights in enumerate(out.attentions):
                assert keys[layer].tolist() == weights[0, :, place].argmax(-1).tolist()


@settings(deadline=None, max_examples=40)
@given(
    st.integers(1, 2),
    st.sampled_from([(2, 2), (4, 2), (3, 1)]),
    st.integers(1, 6),
    st.integers(1, 80),
    st.integers(1, 400),
    st.sampled_from([1, 7, 70, 256]),
    st.integers(0, 10_000),
)
def test_the_first_of_equal_keys_wins_across_blocks(batch, shape, rows, keys, budget, least, seed):
    heads, shared = shape
    generator = torch.Generator().manual_seed(seed)
    # Few distinct numbers, so that ties are the rule; products of small integers are exact.
    query = torch.randint(-1, 2, (batch, heads, rows, 3), generator=generator).float()
    key = torch.randint(-1, 2, (batch, shared, keys, 3), generator=generator).float()
    allowed = torch.rand(batch, 1, rows, keys, generator=generator) < 0.3
    added = torch.where(allowed, 0.0, float("-inf"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(arithmetic._SCORES_AT_ONCE, "cpu", budget)
        patch.setattr(arithmetic, "_LEAST_COLUMNS", least)
        got = largest(query, key, [Block((0, rows), (0, keys), 0, lambda: added)])
    for b in range(batch):
        for h in range(heads):
            for r in range(rows):
                best, where = float("-inf"), -1
                for k in range(keys):
                    score = float(query[b, h, r] @ key[b, h // (heads // shared), k])
                    if allowed[b, 0, r, k] and score > best:
                        best, where = score, k
                assert got[b, h, r] == where


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 4), st.integers(1, 6), st.integers(0, 10_000))
def test_rows_of_a_mask_are_its_true_places(batch, width, seed):
    mask = torch.rand(batch, width, generator=torch.Generator().manual_seed(seed)) < 0.5
    rows = Rows.of_mask(mask)
    assert rows.height == int(mask.sum(1).max())
    query = torch.arange(batch * width).view(batch, 1, width, 1)
    taken = rows.take(query, rows.index)[:, 0, :, 0]
    assert taken.shape == (batch, rows.height)
    for row in range(batch):
        own = taken[row][rows.valid[row]].tolist()
        assert own == [row * width + place for place in mask[row].nonzero()[:, 0].tolist()]


def among(width, chosen):
    """bool (B, width): the places chosen for each row."""
    return torch.tensor([[place in own for place in range(width)] for own in chosen])


def interrupted(lm, inputs):
    """Peaks of a context that is left by an exception after one forward pass."""
    try:
        with lm.attention_peaks() as peaks:
            forward(lm, inputs)
            raise ZeroDivisionError
    except ZeroDivisionError:
        return peaks


def test_contexts_nest_restore_and_leave_others_alone():
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS as table

    lm, other = wrap("llama"), wrap("llama", seed=1)
    inputs = sample_batch((9, 6))
    before = dict(table.__dict__), dict(table._global_mapping), dict(table._local_mapping)
    hooks = hooks_of(lm.model)
    with lm.attention_peaks(PeakRequest("last")) as outer:
        inner = interrupted(lm, inputs)
        with other.attention_peaks() as elsewhere:
            forward(lm, inputs)
        forward(other, inputs)
    forward(lm, inputs)
    assert (len(outer.steps), len(inner.steps), len(elsewhere.steps)) == (2, 1, 0)
    assert torch.equal(outer.steps[0].keys, outer.steps[1].keys)
    place = inner.rows[:, 1] == 8
    assert torch.equal(inner.keys[place], outer.steps[0].keys)
    assert (table.__dict__, table._global_mapping, table._local_mapping) == before
    assert hooks == hooks_of(lm.model)


@pytest.mark.parametrize("name", ["llama", "bloom"])
def test_a_pass_that_raises_leaves_no_step(name):
    lm = wrap(name)
    inputs = sample_batch((8, 5))

    def fail(*_):
        raise ZeroDivisionError

    with lm.attention_peaks() as peaks:
        handle = lm.sites[-1].projection.register_forward_hook(fail)
        with pytest.raises(ZeroDivisionError):
            forward(lm, inputs)
        handle.remove()
        assert peaks.steps == []
        assert peaks.keys.shape == (0, lm.geometry.layers, lm.geometry.width)
        forward(lm, inputs)
    assert len(peaks.steps) == 1


def test_a_pass_that_ended_early_holds_nothing_until_garbage_is_collected():
    lm, seen = wrap("llama"), []

    def keep(_, args, kwargs):
        seen.append(weakref.ref(args[0] if args else kwargs["hidden_states"]))

    gc.disable()
    try:
        with lm.decoder_layers[-1].register_forward_pre_hook(keep, with_kwargs=True):
            for _ in range(2):
                with attention_peaks(lm, stop=True):
                    forward(lm, sample_batch())
        assert len(seen) > 1 and all(tensor() is None for tensor in seen)
    finally:
        gc.enable()


def test_gates_and_peaks_nest_either_way():
    lm = wrap("gemma3")
    inputs = sample_batch((12, 9))
    values = np.ones((3, 4), dtype=np.float32)
    values[0, 1] = 0.0
    gate = Gate(lm.geometry, values)
    with lm.gated(gate), lm.attention_peaks() as one:
        first = forward(lm, inputs).logits
    with lm.attention_peaks() as two, lm.gated(gate):
        second = forward(lm, inputs).logits
    with lm.attention_peaks() as plain:
        forward(lm, inputs)
    assert torch.equal(first, second)
    assert torch.equal(one.keys, two.keys)
    # The removed head acts on what comes after it, never on its own layer's attention.
    assert torch.equal(one.keys[:, 0], plain.keys[:, 0])
    assert not torch.equal(one.keys[:, 1:], plain.keys[:, 1:])


@pytest.mark.parametrize("name", ["llama", "xglm"])
def test_recomputation_by_checkpointing_is_not_recorded(name):
    lm = wrap(name)
    inputs = sample_batch((7, 7))
    calls = []
    lm.model.gradient_checkpointing_enable({"use_reentrant": False})
    for module in lm.model.modules():
        # Checkpointing wants training mode, which dropout must not see.
        if type(module).__name__.endswith("DecoderLayer"):
            module.training = True
    gate = torch.ones(2, 4, requires_grad=True)
    with lm.gated(gate), lm.attention_peaks() as peaks:
        lm.sites[0].projection.register_forward_hook(lambda *_: calls.append(1))
        lm.model(input_ids=inputs.input_ids, labels=inputs.input_ids).loss.backward()
    assert len(calls) == 2
    assert len(peaks.steps) == 1
    assert gate.grad is not None and (gate.grad != 0).all()


def test_the_body_can_be_called_without_the_language_model_head():
    lm = wrap("opt")
    inputs = sample_batch((9,))
    with lm.attention_peaks() as whole:
        lm.model(input_ids=inputs.input_ids)
    with lm.attention_peaks() as body:
        lm.model.model(input_ids=inputs.input_ids)
    assert torch.equal(whole.keys, body.keys) and len(whole.keys) == 9


def test_no_rows_is_an_empty_step():
    lm = wrap("qwen3_next")
    with lm.attention_peaks(PeakRequest(torch.zeros(2, 7, dtype=torch.bool))) as peaks:
        forward(lm, sample_batch((7, 4)))
    assert peaks.keys.shape == (0, 4, 4) and peaks.rows.shape == (0, 2)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (PeakRequest(torch.ones(2, 6, dtype=torch.bool)), r'has 2 rows of 7 queries.*"last"'),
        (
            PeakRequest("all", torch.ones(1, 3, dtype=torch.bool)),
            "has 1 rows but the forward pass has 2",
        ),
    ],
)
def test_requests_that_do_not_fit_are_refused(request_, message):
    lm = wrap("llama")
    with lm.attention_peaks(request_) as peaks, pytest.raises(InputError, match=message):
        forward(lm, sample_batch((7, 7)))
    assert peaks.steps == []


@pytest.mark.parametrize(
    "bad",
    [
        {"rows": "first"},
        {"rows": torch.ones(2, 3)},
        {"rows": torch.ones(3, dtype=torch.bool)},
        {"keys": torch.ones(2, 3)},
        {"keys": torch.ones(2, 3, dtype=torch.long)},
        {"keys": torch.ones(3, dtype=torch.bool)},
    ],
)
def test_malformed_requests_are_refused(bad):
    with pytest.raises(InputError, match="peak request"):
        PeakRequest(**bad)


@pytest.mark.parametrize("rows", ["last", "mask"])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_upper_layers_that_leave_positions_out_are_followed(attention, rows):
    """Gemma 4 computes upper layers only for the positions whose logits are asked for."""
    lm = wrap("gemma4", attn_implementation=attention)
    inputs = sample_batch((9, 5))
    chosen = "last"
    if rows == "mask":
        chosen = torch.zeros(2, 9, dtype=torch.bool)
        chosen[0, 7] = chosen[:, 8] = True
    kept = 1 if rows == "last" else 2
    ran = []
    handle = lm.sites[3].projection.register_forward_pre_hook(lambda _, x: ran.append(x[0].shape))
    with lm.attention_peaks(PeakRequest(chosen)) as peaks:
        forward(lm, inputs, logits_to_keep=kept)
    handle.remove()
    assert ran[-1][1] == kept  # else there is nothing to follow
    expected = naive(lm, inputs)
    found = as_dict(lm, peaks)
    assert set(found) == {(0, 8), (1, 8)} | ({(0, 7)} if rows == "mask" else set())
    assert all(found[place] == expected[place] for place in found)
    with lm.attention_peaks(PeakRequest("all")), pytest.raises(InputError, match="logits_to_keep"):
        forward(lm, inputs, logits_to_keep=kept)


def test_heads_of_layers_that_leave_positions_out_are_weighed_alone():
    lm = wrap("gemma4")
    inputs = sample_batch((9, 5))
    keys = torch.tensor([[0, 3, 8], [4, 6, 8]])
    head = Head(3, 1)
    with torch.no_grad(), lm.attention_weights(WeightRequest(keys, (head,), "last")) as found:
        lm.model(**forward_inputs(lm.model, inputs), logits_to_keep=1)
    with torch.no_grad():
        whole = full_weights(lm, inputs)[:, -4:]
    assert found.rows.tolist() == [[0, 8], [1, 8]]
    for row in range(2):
        expected = whole[row, 1, 8, keys[row]]
        torch.testing.assert_close(found.weights[row, 0], expected, atol=1e-5, rtol=1e-5)
