"""Key-token attention against full matrices, the search for key words, and the bundled model."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from find_helpers import wrapped
from headscope.errors import InputError
from headscope.find.key_tokens_attention import KeyTokens, key_tokens, locate_words
from headscope.heads import Head, HeadSet
from headscope.lm import GenerateConfig, LanguageModel

PROMPT = "Sentence: The fire is near the camp, and the fire burns.\nAnswer:"


def found(prompt: str, *names: str) -> list[tuple[str, ...]]:
    return [
        tuple(prompt[start:end] for start, end in word.spans)
        for word in locate_words(prompt, names)
    ]


def test_every_occurrence_or_one_of_them() -> None:
    (word,) = locate_words(PROMPT, ["fire"])
    assert [PROMPT[start:end] for start, end in word.spans] == ["fire", "fire"]
    (second,) = locate_words(PROMPT, ["fire#2"])
    assert second.spans == word.spans[1:] and second.name == "fire#2"
    assert found(PROMPT, "near the camp", "is") == [("near the camp",), ("is",)]
    assert found("issue #2: a#2 and a", "a#2") == [("a#2",)]


def test_only_whole_words_with_their_capitals() -> None:
    assert found("campfire camp-fire fire2 fire", "fire") == [("fire", "fire")]
    assert found("aa a aa", "a") == [("a",)]
    assert found("我们在营地生火", "生火") == [("生火",)]
    assert found("Он видит дом, домой", "дом") == [("дом",)]
    with pytest.raises(InputError, match="nearest there: Sentence"):
        locate_words(PROMPT, ["sentence"])


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], "no key words"),
        (["fires"], "'fires' is not in the prompt.*nearest there: fire"),
        (["Qwxyz"], "'Qwxyz' is not in the prompt.*Sentence : The fire"),
        ([" "], "empty"),
        (["fire#3"], r"number 3 of 'fire', which the prompt holds 2 times; use fire#1 to fire#2"),
        (["camp#0"], "holds once"),
        (["ire"], "nearest there: fire"),
    ],
)
def test_words_that_are_not_there_are_told(names: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        locate_words(PROMPT, names)


@given(st.lists(st.sampled_from(["ab", "a", "b", "ba", "."]), min_size=1, max_size=12), st.data())
def test_words_of_a_text_are_all_found(words: list[str], data: st.DataObject) -> None:
    text = " ".join(words)
    wanted = data.draw(st.sampled_from(words))
    (word,) = locate_words(text, [wanted])
    assert len(word.spans) == words.count(wanted)
    assert all(text[start:end] == wanted for start, end in word.spans)


def matrices(lm: LanguageModel, ids: list[int]) -> torch.Tensor:
    """Full eager weights (L, H, T, T) of one row."""
    eager = copy.deepcopy(lm.model)
    eager.set_attn_implementation("eager")
    with torch.no_grad():
        found = eager(input_ids=torch.tensor([ids]), output_attentions=True).attentions
    return torch.stack([weights[0] for weights in found])


def tokens_of(offsets: list[tuple[int, int]], text: str, word: str) -> list[int]:
    """Tokens that share a character other than white space with any occurrence of a word."""
    kept = []
    for place, (start, end) in enumerate(offsets):
        at = text.find(word)
        while at >= 0:
            if any(at <= c < at + len(word) and not text[c].isspace() for c in range(start, end)):
                kept.append(place)
                break
            at = text.find(word, at + 1)
    return kept


@pytest.mark.parametrize("name", ["pocket-like", "gemma2", "gpt2"])
@pytest.mark.parametrize("mode", ["generated", "given", "last"])
def test_values_equal_those_read_off_full_matrices(name: str, mode: str) -> None:
    lm = wrapped(name)
    heads = HeadSet.parse("1.2,0.1,1.0", lm.geometry)
    words = ("fire", "the camp", "camp")
    options: dict[str, Any] = {
        "generated": {"max_new_tokens": 6, "stop_at_newline": False},
        "given": {"answer": "Das Feuer"},
        "last": {"steps": "last"},
    }[mode]
    result = key_tokens(lm, PROMPT, heads, KeyTokens(words, draws=2, **options))
    encoding = lm.tokenizer(PROMPT, return_offsets_mapping=True)
    ids, offsets = list(encoding["input_ids"]), list(encoding["offset_mapping"])
    length = len(ids)
    if mode == "generated":
        config = GenerateConfig(6, stop_at_newline=False)
        ids += lm.generate([PROMPT], config)[0].output_ids
        assert result.answer == lm.tokenizer.decode(ids[length:], skip_special_tokens=True)
    elif mode == "given":
        ids = lm.tokenizer(f"{PROMPT} Das Feuer")["input_ids"]
        assert result.answer == " Das Feuer"
    rows = range(length - 1, max(len(ids) - 1, length))
    whole = matrices(lm, ids)
    own = [tokens_of(offsets, PROMPT, word) for word in words]
    assert [list(tokens) for tokens in result.word_tokens] == own
    assert result.attention.shape == (len(rows), 3, 3)
    union = sorted({place for tokens in own for place in tokens})
    for step, row in enumerate(rows):
        for at, head in enumerate(heads):
            line = whole[head.layer, head.head, row]
            seen = int((line > 0).sum())
            for index, tokens in enumerate(own):
                expected = float(line[tokens].sum())
                assert result.attention[step, at, index] == pytest.approx(expected, abs=1e-5)
                visible = int((line[tokens] > 0).sum())
                assert result.even[step, at, index] == pytest.approx(visible / seen, abs=1e-6)
            # The camp and camp share a token, which counts once.
            assert result.mass[step, at] == pytest.approx(float(line[union].sum()), abs=1e-5)
    scores = result.mass.mean(axis=0, dtype=np.float64)
    assert result.scores == pytest.approx(scores)
    table = result.evidence
    draws = [each for each in table.conditions if each.kind in table.controls]
    assert len(draws) == 4
    for each in (table.main, *draws):
        values = [
            whole[head.layer, head.head, list(rows)][:, union].sum(dim=-1).mean()
            for head in map(Head.parse, each.heads)
        ]
        level = table.level("attention", each)
        assert level is not None
        assert level.value == pytest.approx(float(torch.stack(values).mean()), abs=1e-5)
    for control, test in table.against("attention", table.main).items():
        own, others = (
            table.level("attention", table.main),
            table.draws("attention", table.main, control),
        )
        assert own is not None and test.difference.value == pytest.approx(own.value - others.mean)
        above = sum(draw >= own.value for draw in others.each)
        assert (test.side, test.p_examples) == ("higher", None)
        assert test.p_draws == pytest.approx((1 + above) / (1 + len(others.each)))


def test_controls_are_random_heads_as_many_in_each_layer() -> None:
    lm = wrapped("pocket-like")  # 2 layers of 8 heads
    heads = HeadSet.parse("1.0,1.1,1.2,1.3,1.4,1.5,0.7", lm.geometry)
    table = key_tokens(lm, PROMPT, heads, KeyTokens(("camp",), steps="last", draws=3)).evidence
    for control in ("random", "same layers"):
        draws = [frozenset(each.heads) for each in table.of_control(table.main, control)]
        assert len(set(draws)) == 3 and all(len(draw) == 7 for draw in draws)
        assert frozenset(heads.keys) not in draws
        if control == "same layers":
            assert all(sum(head[0] == "1" for head in draw) == 6 for draw in draws)
    again = key_tokens(lm, PROMPT, heads, KeyTokens(("camp",), steps="last", draws=3))
    assert repr(again.evidence) == repr(table)
    every = HeadSet(lm.geometry, tuple(lm.geometry.heads()))
    assert not key_tokens(lm, PROMPT, every, KeyTokens(("camp",), steps="last")).evidence.controls


def test_texts_that_do_not_fit_are_refused() -> None:
    lm = wrapped("gpt2", n_positions=64)
    heads = HeadSet.parse("0.0", lm.geometry)
    config = KeyTokens(("camp",), steps="last")
    with pytest.raises(InputError, match="context holds 64"):
        key_tokens(lm, f"camp {'and so on ' * 60}", heads, config)
    with pytest.raises(InputError, match="context holds 64"):
        key_tokens(lm, PROMPT, heads, KeyTokens(("camp",), answer="and so on " * 60))
    with pytest.raises(InputError, match="no heads"):
        key_tokens(lm, PROMPT, HeadSet(lm.geometry, ()), config)


def test_aligning_heads_of_the_bundled_model_look_at_the_word_they_translate(
    pocket: LanguageModel,
) -> None:
    lm = pocket
    prompt = (
        "Translate this sentence from English to German\n"
        "Sentence: Our cheap spoons disappeared on the beautiful chair.\nAnswer:"
    )
    heads = HeadSet.parse("5.11,4.3,5.1", lm.geometry)
    result = key_tokens(lm, prompt, heads, KeyTokens(("spoons", "chair")))
    assert result.generated and "Löffel" in result.answer and "Stuhl" in result.answer
    assert result.even.mean() < result.attention.mean()
    table = result.evidence
    for control in ("random", "same layers"):
        assert result.scores.mean() > table.draws("attention", table.main, control).high
    # While it writes Löffel the heads look at spoons, and at chair while it writes Stuhl.
    pieces = [result.answer[start:end] for start, end in result.answer_spans]
    by_step = result.attention.max(axis=1)
    first = {"Löffel": pieces.index("Lö"), "Stuhl": pieces.index("St")}
    assert by_step[first["Löffel"], 0] > 0.9 > 0.1 > by_step[first["Löffel"], 1]
    assert by_step[first["Stuhl"], 1] > 0.9 > 0.1 > by_step[first["Stuhl"], 0]
