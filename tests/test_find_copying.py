"""Induction and retrieval scores: heads made by hand, and twins written from the definitions."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from small_models import build

import lm_helpers as helpers
from headscope.data.questions import Needle, needle_file
from headscope.errors import InputError
from headscope.find.capture import Captured
from headscope.find.induction_scores import TEXT_TOKENS, Induction, induction, repeated_blocks
from headscope.find.retrieval_scores import Hidden, Retrieval, _count, by_place, hide, retrieval
from headscope.lm import LanguageModel, load
from headscope.lm.batching import collate
from headscope.lm.generation import GenerateConfig
from headscope.lm.inputs import forward_inputs
from headscope.pocket.facts import sample_needles
from test_find_hits import looking

N = 5


def test_the_crafted_induction_head_scores_one_and_others_nothing() -> None:
    """Place n + i holds the token of place i; the token that followed it stands at i + 1."""
    second = range(N, 2 * N)
    follows = {place: place - N + 1 for place in second}
    same = {place: place - N for place in second}
    half = {place: place - N + 1 for place in second if place % 2}  # places 5, 7, 9; else place 0
    # Of places 2, 3 and 4 of the first block two look at the token before.
    itself = {place: place for place in second} | {2: 1, 4: 3}
    lm = looking([follows, same, half, itself])
    scores = induction(lm, Induction(sequences=3, length=N))
    np.testing.assert_allclose(scores.values[0], [1, 0, 3 / 5, 0], atol=1e-12)
    np.testing.assert_allclose(scores.extra["duplicate"][0], [0, 1, 0, 0], atol=1e-12)
    # Places 1 to n could count: all peaks of the first head, four of five of the second.
    expected = [1 / N, 4 / 5 / N, 3 / 5 / N, 1 / 5 / N]
    np.testing.assert_allclose(scores.extra["chance"][0], expected, atol=1e-12)
    np.testing.assert_allclose(scores.extra["previous_token"][0], [0, 0, 0, 2 / 3], atol=1e-12)
    assert scores.statistics["totals"].tolist() == [N] * 3
    assert scores.low is not None and scores.high is not None
    # All tokens are hit, or none: the interval has a width.
    assert 0 < scores.low[0, 0] < scores.high[0, 0] == 1
    assert 0 == scores.low[0, 1] < scores.high[0, 1] < 1


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_induction_equals_the_definition_on_returned_attention(name: str) -> None:
    model = build(name, 3, "eager")
    lm = LanguageModel.wrap(model, helpers.tokenizer(), name=name, check=False)
    config = Induction(sequences=4, length=9, batch_tokens=40)
    opening, blocks = repeated_blocks(lm, config)
    hits = np.zeros((len(blocks), *lm.geometry.shape))
    before = np.zeros_like(hits)
    for number, block in enumerate(blocks):
        assert len(set(block)) == config.length and not set(block) & {0, 1, 2}
        ids = [*opening, *block, *block]
        batch = collate([ids], 0)
        with torch.no_grad():
            weights = model(**forward_inputs(model, batch), output_attentions=True).attentions
        for layer, attention in enumerate(weights):
            for place in range(len(opening) + config.length, len(ids)):
                earlier = ids.index(ids[place])
                hits[number, layer] += (attention[0, :, place].argmax(-1) == earlier + 1).numpy()
            for place in range(2, len(opening) + config.length):
                before[number, layer] += (attention[0, :, place].argmax(-1) == place - 1).numpy()
    # Natural texts: every place from 2 on; one of two tokens is left out, a long one is cut.
    texts = ["a cat", "x", "the dog sees a bird near the house", "to be or not to be " * 40]
    shares = []
    for text in texts:
        ids = lm.encode(text)[:TEXT_TOKENS]
        if len(ids) < 3:
            continue
        batch = collate([ids], 0)
        with torch.no_grad():
            weights = model(**forward_inputs(model, batch), output_attentions=True).attentions
        shares.append([
            np.mean([(attention[0, :, place].argmax(-1) == place - 1).numpy()
                     for place in range(2, len(ids))], axis=0)
            for attention in weights
        ])  # fmt: skip
    assert len(shares) == 3
    scores = induction(lm, config, texts=texts)
    np.testing.assert_array_equal(scores.statistics["previous"], before)
    places = len(opening) + config.length - 2
    np.testing.assert_allclose(scores.extra["previous_token"], (before / places).mean(axis=0))
    np.testing.assert_allclose(scores.extra["previous_token_text"], np.mean(shares, axis=0))
    assert "previous_token_text" not in induction(lm, config).extra
    np.testing.assert_array_equal(scores.statistics["hits"], hits)
    np.testing.assert_allclose(scores.values, (hits / config.length).mean(axis=0))


def test_blocks_that_do_not_fit_are_refused() -> None:
    lm = helpers.wrapped("gpt2", overrides={"n_positions": 100})
    with pytest.raises(InputError, match="the 93 ordinary tokens"):
        repeated_blocks(lm, Induction(length=94))
    with pytest.raises(InputError, match="shorter with --block"):
        repeated_blocks(lm, Induction(length=93))
    with pytest.raises(InputError, match="length is 1"):
        Induction(length=1)


def test_hits_chance_and_elsewhere_of_answers_told_by_hand() -> None:
    #       0  1  2  3  4  5  6  7  8  9
    ids = (90, 5, 6, 7, 8, 9, 7, 5, 91, 92)  # haystack 1 to 7, needle 3 to 5 (7 8 9)
    one = Hidden("a", 0, "", ids, np.array([3, 4, 5]), (1, 8), 7, 0.5, None)
    # Generated: 7 (in the needle), 50 (not), 9 (in the needle); one layer, four heads.
    peaks = np.array([[[3, 6, 0, -1]], [[3, 3, 3, -1]], [[5, 5, 2, -1]]], dtype=np.int32)
    hits, chance, elsewhere, total = _count(one, Captured(peaks, (7, 50, 9)), Retrieval())
    assert total == 2
    assert hits[0, :3].tolist() == [2, 1, 0]
    assert elsewhere[0, :3].tolist() == [0, 1, 0]
    # The needle fits at five places, 1 to 5: its first token then stands at 1 … 5, its last at 3
    # … 7. So place 3 is hit by one of five, 6 by none (for 7), 5 and 3 … 7 by one (for 9).
    np.testing.assert_allclose(chance[0, :3], [2 / 5, 1 / 5, 0])
    by_needle = dataclasses.replace(Retrieval(), share_of="needle")
    assert _count(one, Captured(peaks, (7, 50, 9)), by_needle)[3] == 3
    # 7 three times: as published a head has copied it or not, of three different tokens.
    again = Captured(np.array([[[3, 6, 0, -1]], [[3, 3, 2, -1]], [[4, 6, 1, -1]]]), (7, 7, 7))
    hits, chance, elsewhere, total = _count(one, again, by_needle)
    assert (total, hits[0].tolist(), elsewhere[0].tolist()) == (3, [1, 1, 0, 0], [0, 1, 0, 0])
    # The first token of the needle stands at 1 … 5 as the needle moves.
    np.testing.assert_allclose(chance[0], [2 / 5, 1 / 5, 2 / 5, 0])
    hits, chance, elsewhere, total = _count(one, again, Retrieval())
    assert (total, hits[0].tolist(), elsewhere[0].tolist()) == (3, [2, 1, 0, 0], [0, 2, 0, 0])
    np.testing.assert_allclose(chance[0], [3 / 5, 1 / 5, 2 / 5, 0])
    nothing = Captured(np.zeros((1, 1, 4), dtype=np.int32), (50,))
    assert _count(one, nothing, by_needle)[3] == _count(one, nothing, Retrieval())[3] == 0


def test_retrieval_equals_the_definition_on_returned_attention() -> None:
    """Twin: the whole text in one eager pass, and every step looked up by hand."""
    lm = load("pocket")
    needles = sample_needles("dev", 3, 1)
    config = Retrieval(lengths=(30,), depths=(1.0,), answered_only=False, max_new_tokens=6)
    scores = retrieval(lm, needles, config)
    hidden = hide(lm, needles, config)
    assert len(hidden) == 3
    made = lm.generate([one.prompt.text for one in hidden], GenerateConfig(max_new_tokens=6))
    lm.model.set_attn_implementation("eager")
    rates: dict[int, list[np.ndarray[Any, Any]]] = {}
    for one, output in zip(hidden, made, strict=True):
        needle = lm.tokenizer.decode([one.ids[at] for at in one.needle]).strip()
        assert needle == needles.needles[one.number].needle
        ids = [*one.ids, *output.output_ids]
        with torch.no_grad():
            inputs = torch.tensor([ids], device=lm.device)
            found = lm.model(inputs, output_attentions=True).attentions
        looked = torch.stack([layer[0].argmax(-1) for layer in found]).cpu().numpy()  # (L, H, T)
        hits, total = np.zeros(lm.geometry.shape), 0
        for step, token in enumerate(output.output_ids):
            places = [at for at in one.needle if one.ids[at] == token]
            if places:
                total += 1
                hits += np.isin(looked[:, :, len(one.ids) + step - 1], places)
        rates.setdefault(one.number, []).append(np.stack([hits, np.full_like(hits, total)]))
    sums = [np.sum(parts, axis=0) for parts in rates.values()]
    mean = np.mean([one[0] / one[1] for one in sums if one[1].any()], axis=0)
    # A head may be undecided between two keys by the last bit.
    assert np.isclose(scores.values, mean, atol=1e-9).mean() > 0.97
    assert sum(place.examples for place in by_place(scores)) == 3
    assert scores.values.max() > 0.3


def test_needles_stand_where_they_should_and_haystacks_are_long_enough(
    pocket: LanguageModel,
) -> None:
    lm = pocket
    needles = sample_needles("dev", 2, 0)
    for one in hide(lm, needles, Retrieval(lengths=(60,), depths=(0.0, 0.5, 1.0))):
        text = needles.needles[one.number].needle
        context = one.prompt.text.partition("\nQuestion:")[0]
        assert context.count(text) == 1
        share = context.index(text) / max(1, len(context) - len(text))
        assert abs(share - one.depth) < 0.2
        assert one.context[1] - one.context[0] <= 62
    with pytest.raises(InputError, match=r"line 1: the haystack has .* --length asks for 900"):
        hide(lm, needles, Retrieval(lengths=(900,)))
    short = needle_file([dataclasses.replace(needles.needles[0], haystack="No.")], "x")
    assert all(one.needle.size for one in hide(lm, short, Retrieval(depths=(0.5,))))


def test_a_model_that_finds_no_needle_is_told() -> None:
    lm = looking([{}])
    needles = needle_file(
        [Needle("1", "cold onion", "fell", "the down heute", "cold onion", 1)], "memory"
    )
    with pytest.raises(InputError, match="found no needle of memory"):
        retrieval(lm, needles, Retrieval(depths=(1.0,), max_new_tokens=3))
