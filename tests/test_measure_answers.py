"""Whether a text holds an answer, letter for letter and as SQuAD compares."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headscope.measure.metrics import holds_answer, holds_normalized


@pytest.mark.parametrize(
    ("text", "answers", "exact", "normalized"),
    [
        ("It is in the Hall.", ["the Hall"], True, True),
        ("It is in the hall.", ["the Hall"], False, True),
        ("in a hall, I think", ["the hall"], False, True),
        ("1 903", ["1903"], False, False),
        ("nothing", ["no", "noth"], True, True),
        ("", ["x"], False, False),
        ("the", ["the"], True, True),
        ("all of that", ["the"], False, False),
        ("new  line\nhere", ["line here"], True, True),
        ("答案是蓝色", ["蓝色"], True, True),
    ],
)
def test_examples(text: str, answers: list[str], exact: bool, normalized: bool) -> None:
    assert (holds_answer(text, answers), holds_normalized(text, answers)) == (exact, normalized)


def test_accents_may_be_written_either_way() -> None:
    composed, apart = (unicodedata.normalize(form, "Málaga") for form in ("NFC", "NFD"))
    assert composed != apart
    for text, answer in ((composed, apart), (apart, composed)):
        assert holds_answer(f"in {text}", [answer]) and holds_normalized(f"in {text}", [answer])


@given(st.text(min_size=1).filter(lambda text: text.strip() != ""))
def test_a_text_holds_itself(text: str) -> None:
    assert holds_answer(text, [text])
    assert holds_normalized(text, [text])
