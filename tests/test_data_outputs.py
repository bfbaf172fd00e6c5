"""Links between sources and outputs: inherited from the reference, or fitted."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headscope.data.align.outputs import OutputLinks, align_conditions, bare, shared_words
from headscope.data.pairs import PairFile, SentencePair
from headscope.errors import InputError
from headscope.pocket.sample import sample_pairs

LINKS = frozenset({(0, 0), (1, 1), (2, 3), (2, 4)})
PAIR = SentencePair("1", "The dog slept.", "Der Hund hat lange geschlafen.", LINKS)


def align_outputs(
    data: PairFile, outputs: list[str], method: str | None = None
) -> list[OutputLinks]:
    return align_conditions(data, {"": outputs}, method)[""]


def pairs(*some: SentencePair) -> PairFile:
    return PairFile(some, "en", "de", "somewhere", "0")


def test_references_as_outputs_have_their_own_links() -> None:
    data = sample_pairs("en-tr", "dev", 30, 0)
    found = align_outputs(data, [pair.target for pair in data.pairs])
    for pair, one in zip(data.pairs, found, strict=True):
        assert frozenset(one.links) == pair.links
        assert list(one.links) == sorted(one.links)
        assert one.method == "reference"
        assert [pair.source[a:b] for a, b in one.source_spans] == pair.source.split()
        assert [pair.target[a:b] for a, b in one.output_spans] == pair.target.split()


def test_shared_words_inherit_links_and_others_have_none() -> None:
    (one,) = align_outputs(pairs(PAIR), ["Der  Kater hat, geschlafen lange"])
    assert one.links == ((0, 0), (2, 3), (2, 4))  # both moved words stand once on either side
    assert one.output_spans[1] == (5, 10)
    (none,) = align_outputs(pairs(PAIR), [""])
    assert none.output_spans == () and none.links == () and len(none.source_spans) == 3


def test_links_between_units_reach_the_words_of_an_output() -> None:
    units = (((0, 3), (4, 7)), ((0, 1), (1, 3)))
    pair = SentencePair("1", "The dog", "狗在家", frozenset({(1, 0), (0, 1)}), units=units)
    (reference, other) = (align_outputs(pairs(pair), [text])[0] for text in ("狗在家", "家里，狗"))
    assert reference.output_spans == ((0, 1), (1, 2), (2, 3))
    assert reference.links == ((0, 1), (0, 2), (1, 0))
    assert other.links == ((0, 0), (1, 3))


def test_words_are_compared_without_case_and_signs() -> None:
    assert shared_words(["¿Ves", "la", "casa?"], ["La", "CASA,", "ves"]) == [(0, 2), (1, 0), (2, 1)]
    assert bare("«Hund»,") == "hund" and bare("...") == "..." and bare("हिन्दी।") == "हिन्दी"


def test_a_repeated_word_is_shared_as_often_as_both_have_it() -> None:
    assert shared_words(["a", "b", "a"], ["a", "a", "a", "a"]) == [(0, 0), (2, 1)]


words = st.lists(st.sampled_from("abcd"), max_size=8)


@given(words, words)
def test_shared_words_are_one_to_one_and_symmetric_in_number(
    one: list[str], two: list[str]
) -> None:
    found = shared_words(one, two)
    assert all(one[i] == two[j] for i, j in found)
    assert len({i for i, _ in found}) == len({j for _, j in found}) == len(found)
    assert shared_words(one, one) == [(i, i) for i in range(len(one))]
    # At least a longest common subsequence, by the definition.
    assert len(found) >= _longest(one, two)


def _longest(one: list[str], two: list[str]) -> int:
    if not one or not two:
        return 0
    if one[0] == two[0]:
        return 1 + _longest(one[1:], two[1:])
    return max(_longest(one[1:], two), _longest(one, two[1:]))


def test_without_links_eflomal_is_fitted_on_all_conditions_together() -> None:
    pytest.importorskip("eflomal")
    data = sample_pairs("en-de", "dev", 60, 0)
    plain = replace(data, pairs=tuple(replace(pair, links=None) for pair in data.pairs))
    outputs = [pair.target for pair in data.pairs]
    found = align_conditions(plain, {"as is": outputs, "empty": [""] * len(outputs)})
    assert {one.method for one in found["as is"]} == {"eflomal"}
    linked = sum(len(one.links) for one in found["as is"])
    assert linked > 3 * len(outputs)
    assert all(one.links == () and one.output_spans == () for one in found["empty"])
    assert all(
        i < len(one.source_spans) and j < len(one.output_spans)
        for one in found["as is"]
        for i, j in one.links
    )


def test_where_nothing_can_link_there_are_spans_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "eflomal", None)
    (one,) = align_outputs(pairs(replace(PAIR, links=None)), ["Der Hund."])
    assert one.method is None and one.links == ()
    assert one.output_spans == ((0, 3), (4, 8), (8, 9))


def test_bad_input() -> None:
    with pytest.raises(InputError, match="2 outputs of top but 1 sentence pairs"):
        align_conditions(pairs(PAIR), {"top": ["a", "b"]})
    with pytest.raises(InputError, match="unknown way 'magic'"):
        align_outputs(pairs(PAIR), ["a"], "magic")
    with pytest.raises(InputError, match="sentence pair 1 has no links"):
        align_outputs(pairs(replace(PAIR, links=None)), ["a"], "reference")
