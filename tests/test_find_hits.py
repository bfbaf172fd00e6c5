"""Counting hits, and what "chance" is drawn from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headscope.data.words import split_words
from headscope.find.alignment import (
    Sentence,
    allowed_keys,
    count_hits,
    identical_links,
    similar_sentences,
)

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


def test_chance_is_twenty_draws_that_follow_the_seed() -> None:
    from headscope.find.translation import TranslationScore

    sizes = [(n % 7 + 3, n % 5 + 3) for n in range(100)]
    draws = TranslationScore().chance_draws
    one, two = similar_sentences(sizes, draws, 0), similar_sentences(sizes, draws, 1)
    assert {len(others) for others in one} == {20}
    assert one != two


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
    sentence = Sentence(
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
            if i < 4 and j < 4 and sentence.target[token, j]
            for key in range(len(sentence.source))
            if sentence.source[key, i]
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
    sentence = Sentence(target, np.eye(2, dtype=bool), frozenset({(1, 0), (0, 1)}), frozenset())
    np.testing.assert_array_equal(
        allowed_keys(sentence, sentence.links), [[True, True], [True, False]]
    )


@pytest.mark.parametrize("outside", [(2, 0), (0, 2), (7, 7)])
def test_borrowed_links_that_fall_outside_are_dropped(outside: tuple[int, int]) -> None:
    sentence = Sentence(np.eye(2, dtype=bool), np.eye(2, dtype=bool), frozenset(), frozenset())
    both = allowed_keys(sentence, frozenset({(1, 1), outside}))
    np.testing.assert_array_equal(both, [[False, False], [False, True]])


def test_surface_forms_are_compared_as_they_are_written() -> None:
    source, target = (
        split_words(text, True) for text in ("Anna sees Šárka 17 times,", "Anna sieht šárka 17 mal")
    )
    links = frozenset((n, n) for n in range(5))
    assert identical_links(links, source, target) == {(0, 0), (3, 3)}
