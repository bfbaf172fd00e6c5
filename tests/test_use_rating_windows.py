"""Rows of long texts: every predicted token counts exactly once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headscope.errors import InputError
from headscope.use.rating.texts import rows_of


@given(tokens=st.integers(0, 300), longest=st.integers(2, 40), data=st.data())
def test_windows_count_each_predicted_token_once_with_the_context_asked_for(
    tokens: int, longest: int, data: st.DataObject
) -> None:
    overlap = data.draw(st.integers(1, longest - 1))
    rows = rows_of(tokens, longest, overlap)
    counted = [token for row in rows for token in range(row.first, row.end)]
    assert counted == list(range(1, tokens))
    for place, row in enumerate(rows):
        assert 2 <= row.end - row.begin <= longest
        assert row.first - row.begin == (overlap if place else 1)


@given(tokens=st.integers(0, 300), longest=st.integers(2, 40))
def test_a_cut_text_is_one_row_of_its_first_tokens(tokens: int, longest: int) -> None:
    assert rows_of(tokens, longest) == ([(0, min(tokens, longest), 1)] if tokens > 1 else [])


@pytest.mark.parametrize("overlap", [0, 8, -1])
def test_windows_that_could_not_move_on_are_refused(overlap: int) -> None:
    with pytest.raises(InputError, match="8"):
        rows_of(0, 8, overlap)
