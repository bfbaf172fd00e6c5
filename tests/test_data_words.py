"""Words, languages, and halves of data."""

from __future__ import annotations

import re
import sys
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headscope.data import languages
from headscope.data.languages import (
    Direction,
    language_name,
    parse_direction,
    same_language,
)
from headscope.data.pairs import SentencePair
from headscope.data.split import (
    halves,
    known_digests,
    leakage,
    sentence_digest,
    source_digests,
    text_digests,
)
from headscope.data.words import split_words
from headscope.errors import InputError


def texts(sentence: str) -> list[str]:
    return [word.text for word in split_words(sentence, links_given=False)]


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("The dog's 2 bones, now!", ["The", "dog", "'", "s", "2", "bones", ",", "now", "!"]),
        ("snake_case x=1", ["snake_case", "x", "=", "1"]),
        ("我们在2024年见面。", [*"我们在", "2024", *"年见面。"]),
        ("東京タワーへ行く", list("東京タワーへ行く")),
        ("किताब पढ़ो।", ["किताब", "पढ़ो", "।"]),
        ("தமிழ் மொழி", ["தமிழ்", "மொழி"]),
        ("می\u200cخواهم", ["می\u200cخواهم"]),
        ("cafe\u0301!", ["cafe\u0301", "!"]),
        ("ไทย ๑๒", [*"ไทย", "๑๒"]),
        ("a\u200bb", ["a", "b"]),
        ("Дом — это", ["Дом", "—", "это"]),
        ("", []),
        (" \t\n", []),
    ],
)
def test_values(sentence: str, expected: list[str]) -> None:
    assert texts(sentence) == expected


def test_marks_stay_with_their_letter_in_scripts_without_spaces() -> None:
    thai = "\u0e17\u0e35\u0e48\u0e19\u0e35\u0e48"  # two consonants, each with vowel and tone
    assert texts(thai) == [thai[:3], thai[3:]]


@settings(deadline=None)
@given(st.text(st.characters(codec="ascii")))
def test_in_ascii_the_rule_is_the_expression(sentence: str) -> None:
    sentence = "".join(sign for sign in sentence if sign.isprintable() or sign.isspace())
    assert texts(sentence) == re.findall(r"\w+|[^\w\s]", sentence)


@settings(deadline=None)
@given(st.text(), st.booleans())
def test_units_cover_the_text_in_order(sentence: str, given_links: bool) -> None:
    position = 0
    for word in split_words(sentence, given_links):
        assert word.text == sentence[word.start : word.end] != ""
        between = sentence[position : word.start]
        assert all(
            sign.isspace() or (not given_links and unicodedata.category(sign) == "Cf")
            for sign in between
        )
        assert not any(sign.isspace() for sign in word.text)
        position = word.end
    assert all(
        sign.isspace() or (not given_links and unicodedata.category(sign) == "Cf")
        for sign in sentence[position:]
    )


@settings(deadline=None)
@given(st.text())
def test_given_units_are_the_white_space_pieces(sentence: str) -> None:
    assert [word.text for word in split_words(sentence, links_given=True)] == sentence.split()


def test_a_segmenter_is_located_or_refused() -> None:
    words = split_words("东京大学 在", False, lambda text: ["东京", "大学", " ", "在"])
    assert [(word.text, word.start, word.end) for word in words] == [
        ("东京", 0, 2),
        ("大学", 2, 4),
        ("在", 5, 6),
    ]
    with pytest.raises(InputError, match="'DOG'"):
        split_words("the dog", False, lambda text: ["the", "DOG"])


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("de", "German"),
        ("deu", "German"),
        ("deu_Latn", "German"),
        ("eng_Latn", "English"),
        ("zh", "Chinese"),
        ("zh-Hans", "Simplified Chinese"),
        ("zho_Hans", "Simplified Chinese"),
        ("zho_simpl", "Simplified Chinese"),
        ("zh-Hant", "Traditional Chinese"),
        ("cmn_Hant", "Traditional Chinese"),
        ("yue_Hant", "Cantonese"),
        ("srp_Cyrl", "Serbian"),
        ("sr-Latn", "Serbian (Latin)"),
        ("pt-BR", "Portuguese (Brazil)"),
        ("npi_Deva", "Nepali"),
        ("arb_Arab", "Standard Arabic"),
        ("tr", "Turkish"),
    ],
)
def test_names(code: str, name: str) -> None:
    assert language_name(code) == name


def test_names_without_langcodes_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    named = {code: language_name(code) for code in languages._NAMES}
    monkeypatch.setitem(sys.modules, "langcodes", None)
    assert {code: language_name.__wrapped__(code) for code in named} == named
    with pytest.raises(InputError, match="zho_Hans has no name; install it with: pip install lang"):
        language_name.__wrapped__("zho_Hans")


@pytest.mark.parametrize("code", ["", "und", "mul", "qaa", "e", "en-de-", "eng-Foob", "en de", "1"])
def test_codes_of_no_language(code: str) -> None:
    with pytest.raises(InputError):
        language_name(code)


@pytest.mark.parametrize(
    ("text", "source", "target"),
    [
        ("en-de", "en", "de"),
        ("eng_Latn-deu_Latn", "eng_Latn", "deu_Latn"),
        ("zh-Hans-de", "zh-Hans", "de"),
        ("de-zh-Hans", "de", "zh-Hans"),
        ("zh-Hans-zh-Hant", "zh-Hans", "zh-Hant"),
        ("en-pt-BR", "en", "pt-BR"),
        ("pt-BR-en", "pt-BR", "en"),
        ("kmr-ckb", "kmr", "ckb"),
    ],
)
def test_directions(text: str, source: str, target: str) -> None:
    assert parse_direction(text) == Direction(source, target)
    assert str(parse_direction(text)) == text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ende", "en-de"),
        ("en-", "en-de"),
        ("", "en-de"),
        ("xx-de", "'xx'"),
        ("en-german", "de (German)"),
        ("en-pt-br", "--source-language"),
        ("a-b-c", "two known language codes"),
    ],
)
def test_bad_directions(text: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_direction(text)
    assert said in str(caught.value)


def test_spellings_of_one_language() -> None:
    assert same_language("de", "deu_Latn")
    assert same_language("zh", "zho_Hans")
    assert not same_language("zh", "zho_Hant")
    assert not same_language("sr", "hr")


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


def test_too_few_pairs_are_refused() -> None:
    with pytest.raises(InputError, match="1 sentence pair"):
        halves(pairs[:1])
