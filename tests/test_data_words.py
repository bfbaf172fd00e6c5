"""Units of text: values for several scripts, and laws for every text."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
