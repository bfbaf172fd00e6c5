"""Which heads a page names, and which it only calls candidates."""

from __future__ import annotations

import pytest

from headscope.heads import Head
from headscope.results.common import ScoredHead
from headscope.runs import decode
from headscope.studies.find.head_scores import CLEAR, looking
from headscope.studies.shows import FEW, candidates, head_table, significant


def heads(*scores: tuple[float, float]) -> list[ScoredHead]:
    """One a pair of a score and the lower end of its interval; chance is 0.2."""
    return [
        decode(ScoredHead, {"layer": 0, "head": at, "score": score, "low": low, "high": 1.0,
                            "chance": 0.2, "above_chance": score - 0.2, "rank": at + 1})
        for at, (score, low) in enumerate(scores)
    ]  # fmt: skip


def test_only_heads_clearly_above_chance_over_enough_examples_have_the_name() -> None:
    clear, slight, wide, none = (0.9, 0.8), (0.2 + CLEAR / 2, 0.21), (0.9, 0.1), (0.2, 0.1)
    scored = heads(none, slight, wide, clear)
    _, sets = looking("induction", scored, FEW)
    assert [*sets.sets.values()] == [((0, 3),), ((0, 1),)]
    _, few = looking("induction", scored, FEW - 1)
    assert [*few.sets.values()] == [(), ((0, 3), (0, 1))]
    table = head_table("heads", {"all": scored}, significant=True)
    dotted = [head for head, dot in zip(table.heads, table.dots("all"), strict=True) if dot]
    assert dotted == [(head.layer, head.head) for head in significant(scored)]
    assert Head(0, 3) == significant(scored)[-1].place


@pytest.mark.parametrize(
    ("found", "examples", "only"), [(0, 50, False), (3, 50, True), (12, 50, False), (12, 5, True)]
)
def test_no_more_heads_than_luck_gives_are_candidates(
    found: int, examples: int, only: bool
) -> None:
    scored = heads(*[(0.9, 0.8)] * found, *[(0.2, 0.1)] * (96 - found))
    assert candidates(scored, examples) is only
