"""Tokens and the words they belong to, for tokenizers of three kinds and texts of many scripts."""

from __future__ import annotations

import unicodedata
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import find_helpers
from headscope.data.words import membership, split_words, within
from headscope.errors import InputError
from headscope.lm.tokens import encode, encode_output

KINDS = ("bytes", "bytes-untrimmed", "metaspace", "wordpiece")
TEXTS = {
    "German": "Die höfliche Jägerin vergisst, dass Öl süß schmeckt.",
    "Cyrillic": "Старый охотник не забыл, что женщина сидела.",
    "Turkish": "İyi şoför, kırmızı elmayı ağacın altında yedi mi?",
    "Chinese": "老猎人忘记了那位女士坐在这里。",
    "emoji": "Good 👍🏽 dog 👩‍👩‍👧 says hello 🎉!",
    "marks": "a\u0301 cafe\u0301 n\u0303andu\u0301 हिन्दी में",
    "space": "  two  spaces\tand a tab \n and a line ",
}
TEXTS |= {
    f"{name} {form}": unicodedata.normalize(form, TEXTS[name])
    for name in ("German", "Cyrillic", "Turkish")
    for form in ("NFC", "NFD")
}


def tokenizer(kind: str) -> Any:
    if kind == "bytes-untrimmed":
        return find_helpers.tokenizer("bytes", trim=False)
    return find_helpers.tokenizer(kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", TEXTS)
def test_every_word_has_tokens_and_no_token_starts_with_space(kind: str, name: str) -> None:
    text = TEXTS[name]
    encoded = encode(tokenizer(kind), text)
    words = split_words(text, links_given=True)
    belongs = membership(encoded.spans, words)
    assert belongs.any(axis=0).all(), [w.text for w in np.array(words)[~belongs.any(axis=0)]]
    for start, end in encoded.spans:
        assert start == end or not text[start].isspace()
        assert 0 <= start <= end <= len(text)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", TEXTS)
def test_tokens_of_no_characters_belong_to_nothing(kind: str, name: str) -> None:
    """The begin mark, and tokens of white space alone."""
    text = TEXTS[name]
    built = tokenizer(kind)
    encoded = encode(built, text)
    belongs = membership(encoded.spans, split_words(text, links_given=True))
    inside = within(encoded.spans, 0, len(text))
    assert encoded.ids[0] == built.bos_token_id
    for index, one in enumerate(encoded.ids):
        piece = built.decode([one], skip_special_tokens=True)
        if not piece.strip() and one not in built.all_special_ids:
            assert not belongs[index].any() and not inside[index], (one, encoded.spans[index])
    assert not belongs[0].any() and not inside[0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", TEXTS)
def test_tokens_stay_within_white_space(kind: str, name: str) -> None:
    """These tokenizers split at white space, so no token belongs to two of its pieces."""
    text = TEXTS[name]
    encoded = encode(tokenizer(kind), text)
    belongs = membership(encoded.spans, split_words(text, links_given=True))
    split_at_space = kind != "metaspace" or not set("\t\n") & set(text)
    assert not split_at_space or belongs.sum(axis=1).max() == 1


def _that_come_back() -> list[tuple[str, str]]:
    """Kind and text, of texts whose every sign the tokenizer knows: bytes know all of them."""
    return [
        (kind, name)
        for kind in ("bytes", "metaspace")
        for name, text in TEXTS.items()
        if tokenizer(kind).unk_token_id not in encode(tokenizer(kind), text).ids
    ]


def test_texts_that_come_back_are_enough() -> None:
    kinds = [kind for kind, _ in _that_come_back()]
    assert kinds.count("bytes") == len(TEXTS)
    assert kinds.count("metaspace") >= 3


@pytest.mark.parametrize(("kind", "name"), _that_come_back())
def test_output_spans_are_the_spans_of_the_same_tokens_read(kind: str, name: str) -> None:
    built = tokenizer(kind)
    text = TEXTS[name]
    encoded = encode(built, text)
    said, spans = encode_output(built, encoded.ids)
    shift = len(text) - len(text.lstrip()) if kind == "metaspace" and said != text else 0
    assert said == text[shift:] or said == text
    words = split_words(said, links_given=True)
    read = encode(built, said)
    assert read.ids == encoded.ids
    np.testing.assert_array_equal(membership(spans, words), membership(read.spans, words))


@given(st.text(st.characters(codec="utf-8", exclude_categories=("Cc",)), max_size=20))
@settings(deadline=None, max_examples=150)
def test_output_spans_of_any_text_agree_byte_by_byte(text: str) -> None:
    """Signs of up to four bytes, each a token of its own or part of one."""
    built = tokenizer("bytes")
    assume(not any(token in text for token in built.all_special_tokens))  # outputs leave them out
    ids = built(text, add_special_tokens=False)["input_ids"]
    said, spans = encode_output(built, ids)
    assert said == text
    read = encode(built, text).spans[1:]
    for places in (spans, read):
        places[places[:, 0] == places[:, 1]] = 0  # where an empty span stands says nothing
    np.testing.assert_array_equal(spans, read)


@given(st.lists(st.integers(0, find_helpers.VOCABULARY - 1), max_size=30))
@settings(deadline=None, max_examples=150)
def test_output_spans_cover_whatever_a_model_says(ids: list[int]) -> None:
    """Also bytes that are no text: spans ascend, and every sign but white space has a token."""
    built = tokenizer("bytes")
    text, spans = encode_output(built, ids)
    assert text == built.decode(ids, skip_special_tokens=True)
    assert spans.shape == (len(ids), 2)
    assert np.all(np.diff(spans[:, 1]) >= 0)
    covered = {at for start, end in spans for at in range(start, end)}
    assert {at for at, sign in enumerate(text) if not sign.isspace()} <= covered
    assert all(0 <= start <= end <= len(text) for start, end in spans)
    for index, one in enumerate(ids):
        if one in built.all_special_ids and text and "�" not in text:
            assert spans[index, 0] == spans[index, 1]


def test_a_sign_of_several_tokens_belongs_to_each_of_them() -> None:
    """Both when it is read and when it is said."""
    built = tokenizer("bytes")
    text = "x 👩 y"
    read, (_, said) = encode(built, text), encode_output(built, encode(built, text).ids)
    for spans in (read.spans, said):
        assert membership(spans, split_words(text, True))[:, 1].sum() >= 3


def test_a_token_over_two_words_belongs_to_both() -> None:
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    vocabulary = {piece: index for index, piece in enumerate(["a", " ", "b", " b", "a b", "c"])}
    inner = Tokenizer(models.BPE(vocab=vocabulary, merges=[(" ", "b"), ("a", " b")]))
    built = PreTrainedTokenizerFast(tokenizer_object=inner)
    encoded = encode(built, "a bc")
    assert len(encoded.ids) == 2
    belongs = membership(encoded.spans, split_words("a bc", links_given=True))
    np.testing.assert_array_equal(belongs, [[True, True], [False, True]])


def test_membership_moves_words_by_the_offset() -> None:
    encoded = encode(tokenizer("metaspace"), "Sentence: old dog")
    words = split_words("old dog", links_given=True)
    belongs = membership(encoded.spans, words, len("Sentence: "))
    inside = within(encoded.spans, len("Sentence: "), len("Sentence: old dog"))
    np.testing.assert_array_equal(belongs.any(axis=1), inside)
    assert membership(encoded.spans, []).shape == (len(encoded.ids), 0)


def test_a_tokenizer_that_loses_characters_is_refused() -> None:
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    inner = Tokenizer(models.BPE(vocab={"a": 0, "b": 1}, merges=[]))
    built = PreTrainedTokenizerFast(tokenizer_object=inner)
    with pytest.raises(InputError, match=r"leave out 6 of 8 characters \(first at 2: 'cdefgh'\)"):
        encode(built, "abcdefgh")


@pytest.mark.parametrize("kind", KINDS)
def test_the_space_put_before_a_text_belongs_to_no_word(kind: str) -> None:
    """A template may begin with the source; the first word then begins with the first letter."""
    text = "Ёж ист"  # its first letter follows the space as a token of its own
    encoded = encode(tokenizer(kind), text)
    first = membership(encoded.spans, split_words(text, True))[:, 0]
    pieces = tokenizer(kind).convert_ids_to_tokens(list(encoded.ids))
    assert first.any()
    assert not any(one and piece == "▁" for one, piece in zip(first, pieces, strict=True))


def test_accents_that_a_tokenizer_strips_are_not_lost_text() -> None:
    text = unicodedata.normalize("NFD", "é à ü ñ ç ö")
    encoded = encode(tokenizer("wordpiece"), text)
    assert membership(encoded.spans, split_words(text, True)).any(axis=0).all()


def test_a_tokenizer_without_places_is_refused() -> None:
    class Slow:
        is_fast = False

    with pytest.raises(InputError, match="Slow does not say which characters"):
        encode(Slow(), "text")
