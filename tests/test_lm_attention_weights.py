"""Exact weights of chosen keys against full eager attention matrices, and what must raise."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_models import ARCHITECTURES, build

from headscope.errors import InputError
from headscope.heads import Head
from headscope.lm.attention import scores as arithmetic
from headscope.lm.attention.peaks import PeakRequest, attention_peaks
from headscope.lm.attention.recording import capture_way
from headscope.lm.attention.scores import Block, _Running, softmax_of_chosen
from headscope.lm.attention.weights import WeightRequest, attention_weights
from headscope.lm.inputs import forward_inputs
from headscope.lm.interpose import observing
from headscope.lm.model import LanguageModel
from lm_helpers import full_weights, sample_batch, tokenizer, whole_text

VARIED = ["llama", "gemma2", "gemma3", "qwen3_next", "gpt_oss", "bloom"]
#: Rows of the left-padded batch; the longest is more than twice a sliding window.
LENGTHS = (14, 9, 13)
LARGEST_DIFFERENCE = 1e-5


def wrap(name, **options):
    lm = LanguageModel.wrap(build(name, **options), name=name, check=False)
    try:
        capture_way(lm)
    except InputError:  # Falcon shows its attention under eager alone
        lm = LanguageModel.wrap(build(name, attn_implementation="eager"), name=name, check=False)
    return lm


def places(batch, *columns):
    """The same keys for every row of a batch."""
    return torch.tensor([columns] * len(batch.input_ids))


def recorded(lm, batch, request):
    with torch.no_grad(), attention_weights(lm, request) as found:
        lm.model(**forward_inputs(lm.model, batch))
    return found


def largest_difference(found, whole, keys, mask):
    """Over all rows that are no padding; padding must see nothing."""
    largest, compared = 0.0, 0
    for (row, place), weights in zip(found.rows.tolist(), found.weights, strict=True):
        if not mask[row, place]:
            assert not weights.any()
            continue
        expected = whole[row, :, place][:, keys[row]]
        largest = max(largest, float((weights - expected).abs().max()))
        compared += 1
    assert compared
    return largest


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_weights_equal_the_full_matrices_of_every_architecture(name):
    lm = wrap(name)
    batch = sample_batch(LENGTHS)
    keys = torch.tensor([[13, 0, 5, 9], [13, 12, 6, 7], [1, 3, 8, 11]])
    rows = torch.rand(batch.input_ids.shape, generator=torch.Generator().manual_seed(1)) < 0.6
    rows[:, -1] = True
    found = recorded(lm, batch, WeightRequest(keys, rows=rows))
    assert found.rows.tolist() == rows.nonzero().tolist()
    assert found.weights.dtype == torch.float32
    assert found.weights.shape == (int(rows.sum()), lm.geometry.total, 4)
    whole = full_weights(lm, batch)
    assert largest_difference(found, whole, keys, batch.attention_mask) <= LARGEST_DIFFERENCE


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_weights_while_text_is_generated(name):
    lm = wrap(name)
    batch = sample_batch(LENGTHS)
    inputs = {"input_ids": batch.input_ids, "attention_mask": batch.attention_mask}
    settings_ = {"max_new_tokens": 8, "do_sample": False, "eos_token_id": None}
    if name in VARIED:  # the static cache is as long as the text will be
        settings_["cache_implementation"] = "static"
    keys = places(batch, 0, 2, 5, 13, 14, 19)
    plain = lm.model.generate(**inputs, **settings_)
    with lm.attention_weights(WeightRequest(keys, rows="last")) as found:
        text = lm.model.generate(**inputs, **settings_)
    assert torch.equal(plain, text)
    assert [step.rows.tolist() for step in found.steps] == [
        [[0, place], [1, place], [2, place]] for place in range(13, 21)
    ]
    whole = whole_text(batch, text)
    difference = largest_difference(found, full_weights(lm, whole), keys, whole.attention_mask)
    assert difference <= LARGEST_DIFFERENCE


@pytest.mark.parametrize("name", ["gemma3", "mistral", "gpt_oss", "llama"])
def test_a_dynamic_cache_that_drops_old_keys(name):
    lm = wrap(name)
    batch = sample_batch((16,))
    keys = places(batch, 1, 8, 15)
    settings_ = {"max_new_tokens": 9, "do_sample": False, "eos_token_id": None}
    with attention_weights(lm, WeightRequest(keys, rows="last")) as found:
        text = lm.model.generate(batch.input_ids, **settings_)
    whole = whole_text(batch, text)
    difference = largest_difference(found, full_weights(lm, whole), keys, whole.attention_mask)
    assert difference <= LARGEST_DIFFERENCE


@pytest.mark.parametrize("name", VARIED)
def test_even_shares_count_the_keys_a_query_sees(name):
    lm = wrap(name)
    batch = sample_batch(LENGTHS)
    keys = places(batch, *range(14))
    found = recorded(lm, batch, WeightRequest(keys))
    whole = full_weights(lm, batch)
    for (row, place), even in zip(found.rows.tolist(), found.uniform, strict=True):
        if not batch.attention_mask[row, place]:
            assert not even.any()
            continue
        seen = whole[row, :, place] > 0
        expected = seen / seen.sum(dim=-1, keepdim=True)
        assert torch.equal(even, expected)


@pytest.mark.parametrize("name", VARIED)
def test_the_largest_weight_is_at_the_peak(name):
    lm = wrap(name)
    batch = sample_batch(LENGTHS)
    found = recorded(lm, batch, WeightRequest(places(batch, *range(14))))
    with torch.no_grad(), lm.attention_peaks() as peaks:
        lm.model(**forward_inputs(lm.model, batch))
    assert torch.equal(found.rows, peaks.rows)
    for at, head in enumerate(found.heads):
        own = peaks.keys[:, head.layer, head.head]
        seeing = own >= 0
        assert seeing.any()
        assert torch.equal(found.weights[seeing, at].argmax(dim=-1), own[seeing].long())


def test_heads_come_in_the_order_asked_for_and_missing_keys_are_zero():
    lm = wrap("gemma3")
    batch = sample_batch(LENGTHS)
    keys = torch.tensor([[5, -1, 99], [-1, -1, 7], [3, 4, -1]])
    everyone = recorded(lm, batch, WeightRequest(keys))
    chosen = (Head(2, 1), Head(0, 3), Head(2, 0))
    found = recorded(lm, batch, WeightRequest(keys, chosen))
    assert found.heads == chosen
    order = [everyone.heads.index(head) for head in chosen]
    assert torch.allclose(found.weights, everyone.weights[:, order], atol=1e-6)
    for (row, _), weights, even in zip(
        found.rows.tolist(), found.weights, found.uniform, strict=True
    ):
        outside = torch.tensor([key not in range(14) for key in keys[row].tolist()])
        assert not weights[:, outside].any() and not even[:, outside].any()
    assert found.weights.any()


@settings(deadline=None, max_examples=60)
@given(
    st.integers(1, 2),
    st.sampled_from([(2, 2), (4, 2), (3, 1)]),
    st.integers(1, 5),
    st.integers(1, 60),
    st.sampled_from([None, 2.0]),
    st.booleans(),
    st.sampled_from([1, 7, 64]),
    st.integers(0, 10_000),
)
def test_streams_equal_one_softmax_in_double_precision(
    batch, shape, rows, keys, softcap, sinks, least, seed
):
    heads, shared = shape
    g = torch.Generator().manual_seed(seed)
    query, key, value = (
        torch.randn(batch, many, length, 4, generator=g) * 2
        for many, length in ((heads, rows), (shared, keys), (shared, keys))
    )
    allowed = torch.rand(batch, 1, rows, keys, generator=g) < 0.5
    bias = torch.randn(batch, heads, rows, keys, generator=g)
    added = torch.where(allowed, bias, -torch.inf)
    sink = torch.randn(heads, generator=g) if sinks else None
    columns = torch.randint(-1, keys + 1, (batch, 3), generator=g)
    chosen = [head for head in range(heads) if head != 1]
    blocks = [
        Block((row, row + 1), (0, keys), 0, lambda row=row: added[:, :, row : row + 1])
        for row in range(rows)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(arithmetic._SCORES_AT_ONCE, "cpu", 1)
        patch.setattr(arithmetic, "_LEAST_COLUMNS", least)
        got = softmax_of_chosen(
            query[:, chosen],
            key,
            value,
            columns,
            chosen,
            heads,
            blocks,
            scale=0.7,
            softcap=softcap,
            sink=None if sink is None else sink[chosen],
        )
    for b in range(batch):
        for n, h in enumerate(chosen):
            for r in range(rows):
                own = h // (heads // shared)
                scores = (key[b, own].double() @ query[b, h, r].double()) * 0.7
                if softcap is not None:
                    scores = softcap * torch.tanh(scores / softcap)
                scores = (scores + bias[b, h, r].double()).exp() * allowed[b, 0, r]
                whole = scores.sum() + (0.0 if sink is None else sink[h].double().exp())
                weights = scores / whole if whole > 0 else scores
                many = int(allowed[b, 0, r].sum())
                for k, place in enumerate(columns[b].tolist()):
                    inside = place in range(keys)
                    expected = float(weights[place]) if inside else 0.0
                    assert float(got.weights[b, n, r, k]) == pytest.approx(expected, abs=1e-5)
                    even = 1 / many if inside and allowed[b, 0, r, place] else 0.0
                    assert float(got.uniform[b, n, r, k]) == pytest.approx(even)
                output = weights @ value[b, own].double()
                assert torch.allclose(got.output[b, n, r].double(), output, atol=1e-4)


@pytest.mark.parametrize("name", ["llama", "gemma3", "gpt_oss"])
def test_no_more_scores_are_held_than_a_chunk(name, monkeypatch):
    lm = wrap(name)
    batch = sample_batch((120, 90))
    keys = places(batch, 3, 40, 119)
    whole = recorded(lm, batch, WeightRequest(keys))
    held = []
    take = _Running.take
    monkeypatch.setattr(
        _Running, "take", lambda self, s, *more: (held.append(s.numel()), take(self, s, *more))
    )
    monkeypatch.setitem(arithmetic._SCORES_AT_ONCE, "cpu", 4000)
    monkeypatch.setattr(arithmetic, "_LEAST_COLUMNS", 16)
    pieces = recorded(lm, batch, WeightRequest(keys))
    assert 0 < max(held) <= 4000 < 2 * 4 * 120 * 120
    assert torch.allclose(whole.weights, pieces.weights, atol=1e-6)
    assert torch.equal(whole.uniform, pieces.uniform)


def test_halves_are_computed_from_the_same_queries_and_keys_in_float32():
    lm = LanguageModel.wrap(build("llama").to(torch.bfloat16), check=False)
    batch = sample_batch((14,))
    capture_way(lm)  # makes a pass of its own
    calls = []
    with observing(
        lm.model, [site.attention for site in lm.sites], lambda module, call: calls.append(call)
    ):
        found = recorded(lm, batch, WeightRequest(places(batch, *range(14))))
    assert found.weights.dtype == torch.float32
    for layer, call in enumerate(calls):
        for head in range(4):
            scores = call.query[0, head].float() @ call.key[0, head // 2].float().T
            scores = scores * call.options["scaling"]
            scores = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -torch.inf)
            own = found.weights[:, layer * 4 + head]
            assert torch.allclose(own, scores.softmax(dim=-1), atol=1e-5)


@pytest.mark.parametrize("kernel", ["sdpa", "eager"])
def test_an_unknown_change_of_scores_raises(kernel, monkeypatch):
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS as table
    from transformers.models.llama import modeling_llama

    lm = wrap("llama", attn_implementation=kernel)
    plain = modeling_llama.eager_attention_forward

    def sloping(module, query, key, value, mask, **options):
        distance = torch.arange(key.shape[2])[None] - torch.arange(query.shape[2])[:, None]
        slope = torch.where(distance <= 0, 0.05 * distance.float(), -torch.inf)
        return plain(module, query, key, value, slope[None, None], **options)

    if kernel == "eager":
        monkeypatch.setattr(modeling_llama, "eager_attention_forward", sloping)
    else:
        monkeypatch.setitem(table._local_mapping, "sdpa", sloping)
    batch = sample_batch((14,))
    with (
        torch.no_grad(),
        attention_weights(lm, WeightRequest(places(batch, 3))) as found,
        pytest.raises(InputError, match="layer 0 that headscope does not know"),
    ):
        lm.model(**forward_inputs(lm.model, batch))
    assert found.steps == []


def test_a_sink_that_the_kernel_was_not_told_of_raises(monkeypatch):
    from transformers.models.gpt_oss import modeling_gpt_oss

    lm = wrap("gpt_oss")
    batch = sample_batch((9,))
    plain = modeling_gpt_oss.eager_attention_forward

    def secret(module, query, key, value, mask, **options):
        sinks, module.sinks = module.sinks, torch.nn.Parameter(module.sinks + 4.0)
        try:
            return plain(module, query, key, value, mask, **options)
        finally:
            module.sinks = sinks

    recorded(lm, batch, WeightRequest(places(batch, 3)))
    monkeypatch.setattr(modeling_gpt_oss, "eager_attention_forward", secret)
    with pytest.raises(InputError, match="does not know"):
        recorded(lm, batch, WeightRequest(places(batch, 3)))


def test_returned_weights_that_are_no_softmax_raise():
    lm = wrap("bloom")
    batch = sample_batch(LENGTHS)
    lm.sites[1].attention.register_forward_hook(lambda module, args, out: (out[0], out[1] * 0.9))
    with pytest.raises(InputError, match=r"scores of layer 1.*off by 0\.1"):
        recorded(lm, batch, WeightRequest(places(batch, 3)))


@pytest.mark.parametrize("name", ["llama", "bloom"])
def test_no_rows_is_an_empty_step(name):
    lm = wrap(name)
    batch = sample_batch(LENGTHS)
    request = WeightRequest(places(batch, 1, 2), rows=torch.zeros(3, 14, dtype=torch.bool))
    found = recorded(lm, batch, request)
    assert found.weights.shape == (0, lm.geometry.total, 2) and found.rows.shape == (0, 2)


@pytest.mark.parametrize(
    "bad",
    [
        {"keys": torch.ones(2, 3)},
        {"keys": torch.ones(3, dtype=torch.long)},
        {"keys": torch.ones(1, 1, dtype=torch.long), "rows": "first"},
        {"keys": torch.ones(1, 1, dtype=torch.long), "rows": torch.ones(2, 3)},
        {"keys": torch.ones(1, 1, dtype=torch.long), "heads": ()},
    ],
)
def test_malformed_requests_are_refused(bad):
    with pytest.raises(InputError, match="weight request"):
        WeightRequest(**bad)


def test_requests_that_do_not_fit_are_refused():
    lm = wrap("llama")
    batch = sample_batch(LENGTHS)
    with pytest.raises(InputError, match="has 1 rows but the forward pass has 3"):
        recorded(lm, batch, WeightRequest(torch.tensor([[0]])))
    with pytest.raises(InputError, match=r"weight request has shape \(3, 5\).*3 rows of 14"):
        rows = torch.ones(3, 5, dtype=torch.bool)
        recorded(lm, batch, WeightRequest(places(batch, 0), rows=rows))
    with pytest.raises(InputError, match=r"L2\.H0"):
        recorded(lm, batch, WeightRequest(places(batch, 0), (Head(2, 0),)))


def prefixed(seed: int = 1) -> Any:
    """A Llama with four keys and values before every text (PEFT prefix tuning)."""
    peft = pytest.importorskip("peft")
    torch.manual_seed(seed)
    config = peft.PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4)
    model = peft.get_peft_model(build("llama"), config).eval()
    for name, parameter in model.named_parameters():
        if "prompt" in name:
            torch.nn.init.normal_(parameter)
    return model


def test_keys_of_prefix_tuning_take_their_share_and_are_no_keys_of_the_text() -> None:
    """Against the weights that the model returns, softmax over these keys and the text's; padded
    rows, and steps of generation."""
    lm = LanguageModel.wrap(prefixed(), tokenizer())
    batch = sample_batch()
    full = full_weights(lm, batch)
    keys = torch.arange(full.shape[2])[None].repeat(len(full), 1)
    counting = torch.zeros_like(keys, dtype=torch.bool)
    counting[:, 3:] = True
    with (
        attention_weights(lm, WeightRequest(keys)) as weights,
        attention_peaks(lm) as every,
        attention_peaks(lm, PeakRequest(keys=counting)) as some,
    ):
        lm.forward(batch)
    real = batch.attention_mask.bool()
    at = weights.rows.T.tolist()
    seen = real[*at]
    mine, wanted = weights.weights[seen], full.transpose(1, 2)[*at][seen]
    torch.testing.assert_close(mine, wanted[..., 4:], rtol=1e-4, atol=1e-5)
    assert float(mine.sum(dim=-1).max()) < 1 - 1e-4

    best = wanted.argmax(dim=-1) - 4
    assert torch.equal(every.keys[seen].flatten(1).long(), best.clamp(min=-1))
    assert bool((best < 0).any()) and bool((best >= 0).any())
    few = wanted[..., 7:].argmax(dim=-1) + 3
    sees = wanted[..., 7:].amax(dim=-1) > 0
    assert torch.equal(some.keys[seen].flatten(1).long()[sees], few[sees])
    assert bool((some.keys[seen].flatten(1)[~sees] == -1).all())

    ids = [5, 6, 7, 8, 9]
    with attention_peaks(lm, PeakRequest("last")) as steps:
        made = lm.model.generate(input_ids=torch.tensor([ids]), max_new_tokens=3, do_sample=False)
    again = lm.collate([made[0, :-1].tolist()])
    with attention_peaks(lm) as whole:
        lm.forward(again)
    assert steps.rows.tolist() == [[0, place] for place in (4, 5, 6)]
    assert torch.equal(steps.keys, whole.keys[4:7])
    with lm.model.disable_adapter(), attention_peaks(lm) as plain:
        lm.forward(again)
    assert plain.rows.tolist() == whole.rows.tolist() and int(plain.keys.min()) >= 0


@pytest.mark.parametrize("kind", ["PromptTuningConfig", "PromptEncoderConfig"])
def test_tokens_of_an_adapter_among_those_of_a_text_are_told(kind: str) -> None:
    peft = pytest.importorskip("peft")
    config = getattr(peft, kind)(task_type="CAUSAL_LM", num_virtual_tokens=4)
    with pytest.raises(InputError, match="virtual tokens"):
        LanguageModel.wrap(peft.get_peft_model(build("llama"), config), tokenizer())
