"""Finding and verifying on different sentences."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headscope.data.pairs import SentencePair
from headscope.data.split import (
    halves,
    known_digests,
    leakage,
    sentence_digest,
    source_digests,
    text_digests,
)
from headscope.errors import InputError

pairs = [SentencePair(str(n), f"sentence {n}", f"Satz {n}") for n in range(400)]


def test_halves_are_disjoint_complete_and_about_equal() -> None:
    find, verify = halves(pairs)
    assert sorted([*find, *verify], key=lambda one: int(one.id)) == pairs
    assert leakage(source_digests(find), verify) == 0
    assert 140 < len(find) < 260


@settings(deadline=None)
@given(st.permutations(pairs[:40]))
def test_the_half_of_a_sentence_does_not_depend_on_its_place(order: list[SentencePair]) -> None:
    assert {one.id for one in halves(order)[0]} == {one.id for one in halves(pairs[:40])[0]}


def test_pairs_that_share_a_sentence_in_any_direction_stay_in_one_half() -> None:
    back = [SentencePair(one.id, one.target, one.source) for one in pairs]
    onward = [SentencePair(one.id, one.target, f"phrase {one.id}") for one in pairs]
    directions = {"en-de": pairs, "de-en": back, "de-fr": onward}
    every = [one for several in directions.values() for one in several]
    split = {name: halves(several, every) for name, several in directions.items()}
    known = known_digests({name: text_digests(find) for name, (find, _) in split.items()})
    checked = [one for _, verify in split.values() for one in verify]
    assert leakage(known, checked) == 0
    assert {one.id for one in split["en-de"][0]} == {one.id for one in split["de-fr"][0]}
    assert all(140 < len(find) < 260 for find, _ in split.values())


def test_the_digest_is_stable_across_machines_and_spelling() -> None:
    assert sentence_digest("a").startswith("ca978112ca1bbdca")  # SHA-256 of the letter a
    assert sentence_digest(" caf\u00e9  now ") == sentence_digest("cafe\u0301 now")
    assert sentence_digest("Now") != sentence_digest("now")


def test_leakage_counts_test_pairs() -> None:
    known = source_digests(pairs[:3])
    assert leakage(known, [pairs[0], pairs[0], pairs[2], pairs[9]]) == 3
    assert leakage(sorted(known), pairs[5:]) == 0


def test_leakage_finds_a_sentence_on_either_side() -> None:
    known = known_digests({"en-de": text_digests(pairs[:3]), "de-en": text_digests([])})
    back = [SentencePair(one.id, one.target, one.source) for one in pairs]
    half = SentencePair("x", "another sentence", "Satz  1")
    assert leakage(known, [pairs[0], back[1], half, pairs[9], back[9]]) == 3


def test_what_early_runs_stored_can_be_read() -> None:
    early = {"en-de": sorted(source_digests(pairs[:3]))}
    assert known_digests(early) == source_digests(pairs[:3])
    for damaged in ({"en-de": 3}, {"en-de": [3]}, {"en-de": {"source": "abc"}}):
        with pytest.raises(InputError, match="en-de"):
            known_digests(damaged)


def test_too_few_pairs_are_refused() -> None:
    with pytest.raises(InputError, match="1 sentence pair"):
        halves(pairs[:1])
