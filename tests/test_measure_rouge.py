"""ROUGE-L: the longest common subsequence, and words of many scripts."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headscope.data.words import plain_words
from headscope.errors import InputError
from headscope.measure import rouge_l, rouge_l_from_statistics
from headscope.measure.metrics import common_length

SEQUENCES = st.lists(st.sampled_from("abcd"), max_size=12)


def naive_common_length(a: list[str], b: list[str]) -> int:
    """The definition: the longer of what remains without one of the last units."""

    @cache
    def length(i: int, j: int) -> int:
        if not i or not j:
            return 0
        if a[i - 1] == b[j - 1]:
            return 1 + length(i - 1, j - 1)
        return max(length(i - 1, j), length(i, j - 1))

    return length(len(a), len(b))


def naive_f1(output: list[str], reference: list[str]) -> float:
    """Lin 2004, equations 2 to 4 with beta 1."""
    common = naive_common_length(output, reference)
    if not common:
        return 0.0
    recall, precision = common / len(reference), common / len(output)
    return 100 * 2 * recall * precision / (recall + precision)


@given(SEQUENCES, SEQUENCES)
def test_the_longest_common_subsequence_is_that_of_the_definition(
    a: list[str], b: list[str]
) -> None:
    assert common_length(a, b) == naive_common_length(a, b) == common_length(b, a)


@given(st.lists(st.tuples(SEQUENCES, SEQUENCES), min_size=1, max_size=6))
def test_f1_is_that_of_the_definition(pairs: list[tuple[list[str], list[str]]]) -> None:
    outputs, references = [one for one, _ in pairs], [one for _, one in pairs]
    found = rouge_l(outputs, references)
    expected = [naive_f1(*pair) for pair in pairs]
    assert found.texts == pytest.approx(expected)
    assert found.value == pytest.approx(np.mean(expected))
    assert np.array_equal(rouge_l_from_statistics(found.statistics), found.texts)


def test_the_example_of_the_paper() -> None:
    # Lin 2004, section 3.1: "police killed the gunman" against S2 (3/4) and S3 (2/4).
    reference = ["police", "killed", "the", "gunman"]
    outputs = [["police", "kill", "the", "gunman"], ["the", "gunman", "kill", "police"]]
    found = rouge_l(outputs, [reference, reference])
    assert found.texts.tolist() == [75.0, 50.0]
    assert found.statistics.tolist() == [[3, 4, 4], [2, 4, 4]]


def test_long_texts_are_quick_and_exact() -> None:
    a = [str(number % 97) for number in range(5000)]
    assert common_length(a, a[1::3]) == len(a[1::3])


def test_empty_texts_score_nothing() -> None:
    found = rouge_l([[], ["a"], []], [["a"], [], []])
    assert found.texts.tolist() == [0, 0, 0]


def test_texts_must_belong_together() -> None:
    with pytest.raises(InputError, match="1 outputs but 2 references"):
        rouge_l([["a"]], [["a"], ["b"]])
    with pytest.raises(InputError, match="no outputs"):
        rouge_l([], [])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The cat's asleep, isn't it?", ["the", "cat", "s", "asleep", "isn", "t", "it"]),
        ("Кошка спит — дома.", ["кошка", "спит", "дома"]),
        ("बिल्ली सो रही है।", ["बिल्ली", "सो", "रही", "है"]),
        ("القِطّة نائمةٌ، هنا؟", ["القِطّة", "نائمةٌ", "هنا"]),
        ("猫は寝ている。", ["猫", "は", "寝", "て", "い", "る"]),
        ("我爱2024年", ["我", "爱", "2024", "年"]),
        ("แมวนอน", ["แ", "ม", "ว", "น", "อ", "น"]),
        ("Straße STRASSE", ["strasse", "strasse"]),
        ("Cafe\u0301 café", ["café", "café"]),
        ("ガラス ｶﾞﾗｽ", ["ガ", "ラ", "ス", "ガ", "ラ", "ス"]),
        ("… — !", []),
    ],
)
def test_words_of_the_language(text: str, words: list[str]) -> None:
    assert plain_words(text) == words


@pytest.mark.parametrize(
    "text", ["Она читает книгу", "वह किताब पढ़ती है", "هي تقرأ كتابًا", "她在看书", "彼女は本を読む"]
)
def test_a_text_in_any_script_is_like_itself(text: str) -> None:
    assert rouge_l([plain_words(text)], [plain_words(text)]).value == 100
