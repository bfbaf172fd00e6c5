"""Hits of looks at words: counted by plain loops, and of heads crafted to look there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headscope.data.pairs import PairFile, SentencePair
from headscope.data.prompts import Template
from headscope.find.hits import (
    Sentence,
    count_hits,
    counted_hits,
    similar_sentences,
)
from headscope.find.translation_score_config import TranslationScore
from headscope.find.translation_scores import translation_score
from headscope.lm.model import LanguageModel

lengths = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=1, max_size=60)


@given(lengths, st.integers(0, 20), st.integers(0, 5))
def test_chance_borrows_from_others_only_and_from_each_once(
    sizes: list[tuple[int, int]], draws: int, seed: int
) -> None:
    drawn = similar_sentences(sizes, draws, seed)
    assert len(drawn) == len(sizes)
    for index, others in enumerate(drawn):
        assert index not in others
        assert len(set(others)) == len(others) == min(draws, len(sizes) - 1)
        assert all(0 <= other < len(sizes) for other in others)
    assert drawn == similar_sentences(sizes, draws, seed)


@given(lengths, st.integers(1, 8))
def test_chance_borrows_from_sentences_of_similar_lengths(
    sizes: list[tuple[int, int]], draws: int
) -> None:
    """Nobody who is drawn is further away than the three times `draws` nearest."""
    for index, others in enumerate(similar_sentences(sizes, draws, 0)):
        away = [abs(a - sizes[index][0]) + abs(b - sizes[index][1]) for a, b in sizes]
        nearest = sorted(away[:index] + away[index + 1 :])[: 3 * draws]
        assert all(away[other] <= nearest[-1] for other in others)


def unwritten(target: Any, source: Any, links: Any, identical: Any) -> Sentence:
    """A sentence of tokens and words without its text."""
    sides, spans = np.nonzero(target), np.zeros((len(target), 2), np.int64)
    sizes = source.shape[1], target.shape[1]
    return Sentence(sides, np.nonzero(source), links, identical, "", spans, sizes)


def pairs(hits: Any) -> list[tuple[int, int]]:
    return [(int(hit) >> 32, int(hit) & 0xFFFFFFFF) for hit in hits]


@st.composite
def sentences(draw: Any, words: int = 4) -> tuple[Sentence, np.ndarray, list[Any]]:
    """A sentence with random tokens, links and peaks of six heads, and links of two others."""
    tokens, keys = draw(st.integers(1, 6)), draw(st.integers(1, 9))
    bools = st.booleans()
    target = draw(st.lists(bools, min_size=tokens * words, max_size=tokens * words))
    source = draw(st.lists(bools, min_size=keys * words, max_size=keys * words))
    pair = st.tuples(st.integers(0, words - 1), st.integers(0, words - 1))
    links = draw(st.frozensets(pair, max_size=6))
    same = frozenset(one for one in links if draw(bools))
    peaks = draw(st.lists(st.integers(-1, keys - 1), min_size=tokens * 6, max_size=tokens * 6))
    wide = st.tuples(st.integers(0, words + 2), st.integers(0, words + 2))
    others = draw(st.lists(st.frozensets(wide, max_size=6), max_size=3))
    sentence = unwritten(
        np.array(target).reshape(tokens, words), np.array(source).reshape(keys, words), links, same
    )
    return sentence, np.array(peaks, dtype=np.int32).reshape(tokens, 2, 3), others


@given(sentences(), st.sampled_from(["macro", "micro"]), st.booleans())
def test_counts_are_those_of_plain_loops(given_: Any, average: str, skip: bool) -> None:
    sentence, peaks, others = given_
    counts = count_hits(sentence, peaks, others, average, skip)

    def aligned(token: int, links: Any) -> set[int]:
        return {
            key
            for i, j in links
            for key, word in zip(*sentence.source, strict=True)
            if word == i and (token, j) in zip(*sentence.target, strict=True)
        }

    def plain(links: Any, tokens: list[int]) -> tuple[np.ndarray, int]:
        found = [(peaks[t], aligned(t, links)) for t in tokens if aligned(t, links)]
        hits = sum((np.isin(p, list(keys)) for p, keys in found), np.zeros((2, 3)))
        return hits, len(found)

    every = list(range(len(peaks)))
    same = [t for t in every if aligned(t, sentence.identical)]
    scored = [t for t in every if t not in same] if skip else every
    hits, total = plain(sentence.links, scored)
    np.testing.assert_array_equal(counts.hits, hits)
    assert counts.total == total
    hits, total = plain(sentence.links, [t for t in same if t in scored])
    np.testing.assert_array_equal(counts.identical_hits, hits)
    assert counts.identical_total == total
    draws = [one for one in (plain(links, scored) for links in others) if one[1]]
    if average == "macro":
        expected, weight = sum((h / n for h, n in draws), np.zeros((2, 3))), len(draws)
    else:
        expected, weight = sum((h for h, _ in draws), np.zeros((2, 3))), sum(n for _, n in draws)
    np.testing.assert_allclose(counts.chance, expected, rtol=0, atol=1e-12)
    assert counts.chance_total == weight


def test_a_token_over_two_words_counts_for_both() -> None:
    """Token 0 lies in target words 0 and 1, token 1 in word 1 alone; source tokens are words."""
    target = np.array([[True, True], [False, True]])
    sentence = unwritten(target, np.eye(2, dtype=bool), frozenset({(1, 0), (0, 1)}), frozenset())
    assert pairs(counted_hits(sentence, skip_identical=False)) == [(0, 0), (0, 1), (1, 0)]


@pytest.mark.parametrize("outside", [(2, 0), (0, 2), (7, 7)])
def test_links_that_fall_outside_are_dropped(outside: tuple[int, int]) -> None:
    words = np.eye(2, dtype=bool)
    sentence = unwritten(words, words, frozenset({(1, 1), outside}), frozenset())
    assert pairs(counted_hits(sentence, False)) == [(1, 1)]


PLACES = 32
SOURCE, TARGET = "the cold onion fell down", "heute fiel die kalte Zwiebel um"
LINKS = frozenset({(3, 1), (0, 2), (1, 3), (2, 4), (4, 5)})


def words_as_tokens() -> Any:
    """One token a word and no begin mark: word i of the source stands at place i."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    pieces = ["<pad>", "</s>", "=", *sorted({*SOURCE.split(), *TARGET.split()})]
    inner = Tokenizer(models.WordLevel({one: n for n, one in enumerate(pieces)}, unk_token="="))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", eos_token="</s>")


def looking(maps: list[dict[int, int]]) -> LanguageModel:
    """One layer; head h looks from place p at place maps[h][p], from others at place 0.

    Positions are one-hot vectors and words are nothing; queries of p are the keys of maps[h][p].
    """
    from transformers import GPT2Config, GPT2LMHeadModel

    tokenizer = words_as_tokens()
    width = PLACES * len(maps)
    config = GPT2Config(
        vocab_size=len(tokenizer),
        n_positions=PLACES,
        n_embd=width,
        n_head=len(maps),
        n_layer=1,
        n_inner=4,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
    )
    model = GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        model.transformer.wte.weight.zero_()
        model.transformer.wpe.weight.zero_()
        model.transformer.wpe.weight[:, :PLACES] = torch.eye(PLACES)
        attention = model.transformer.h[0].attn.c_attn
        attention.weight.zero_()
        attention.bias.zero_()
        for head, places in enumerate(maps):
            for place in range(PLACES):
                query = head * PLACES + places.get(place, 0)
                attention.weight[place, query] = 1
                attention.weight[place, width + head * PLACES + place] = 1
    return LanguageModel.wrap(model, tokenizer, "crafted", check=False)


@pytest.mark.parametrize("query", ["predict", "read"])
@pytest.mark.parametrize("scope", ["all", "source"])
def test_a_head_that_looks_at_the_aligned_word_scores_one(query: Any, scope: Any) -> None:
    sources = len(SOURCE.split())
    equals = sources  # place of "="
    shift = query == "read"

    def row(j: int) -> int:
        return equals + j + shift

    aligned = {row(j): i for i, j in LINKS}
    half = {place: i for place, i in aligned.items() if i >= 3}  # others: word 0, linked once
    beside = {place: (i + 1) % sources for place, i in aligned.items()}
    prompt = dict.fromkeys(aligned, equals)
    lm = looking([aligned, half, beside, prompt])
    pair = SentencePair("1", SOURCE, TARGET, LINKS, 1)
    pairs = PairFile((pair,), "en", "de", "memory", "0")
    config = TranslationScore(query=query, scope=scope, template=Template("{source} ="))
    scores = translation_score(lm, pairs, config)
    np.testing.assert_allclose(scores.values[0, :3], [1, 3 / 5, 0], rtol=0, atol=1e-12)
    # The last head prefers "=": under scope "source" its largest weight among source words is at
    # one of them, all alike, of which the first counts.
    expected = 0 if scope == "all" else 1 / 5
    np.testing.assert_allclose(scores.values[0, 3], expected, rtol=0, atol=1e-12)
    assert scores.statistics["totals"].tolist() == [5]
    assert np.isnan(scores.extra["chance"]).all()  # there is no other sentence
    assert scores.ranked()[0][1] == 1


def test_left_padding_does_not_move_what_a_head_looks_at() -> None:
    """A short and a long sentence in one batch, with the head's map holding for both."""
    short = SentencePair("1", "cold onion fell down the", "kalte Zwiebel", LINKS_OF_TWO, 1)
    long = SentencePair("2", "onion down cold the fell", TARGET, LINKS, 2)
    lm = looking([{5 + j: i for i, j in LINKS | LINKS_OF_TWO}])
    pairs = PairFile((short, long), "en", "de", "memory", "0")
    config = TranslationScore(template=Template("{source} ="))
    scores = translation_score(lm, pairs, config)
    assert scores.values.tolist() == [[1.0]]
    assert scores.statistics["totals"].tolist() == [2, 5]


LINKS_OF_TWO = frozenset({(2, 0), (3, 1)})
