"""Advice that cannot help is not given: more examples than data have, more sets than exist."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headscope.estimates import Draws, Estimate
from headscope.results.methods import Judgement, JudgesResult
from headscope.studies.judging import FIRST, remedy
from headscope.studies.shows import more_examples


@pytest.mark.parametrize(
    ("limit", "examples", "advised"),
    [
        (200, 200, True),  # the limit may have kept some out
        (None, 200, False),  # all that the file has
        (500, 200, False),
        (600, 600, False),  # enough
    ],
)
def test_more_examples_are_asked_for_where_a_limit_kept_some_out(
    limit: int | None, examples: int, advised: bool, tmp_path: Path
) -> None:
    settings = {"seed": 0, "model": {"model": "pocket"}, "pairs": {"limit": limit}}
    (tmp_path / "run.json").write_text(json.dumps({"config": {"settings": settings}}), "utf-8")
    assert (more_examples(examples, tmp_path) == "--limit 500") == advised


@pytest.mark.parametrize(
    ("low", "as_far", "drawn", "different", "advised"),
    [
        (0.1, 0, 3, 3, True),
        (-0.1, 0, 3, 3, False),  # more rankings do not narrow the interval
        (0.0, 3, 3, 3, False),  # none differs from the selected one
        (0.1, 0, 30, 3, False),  # there are no others
        (0.1, 0, 19, 19, False),  # these decide
    ],
)
def test_more_rankings_are_asked_for_where_there_are_some_and_they_decide(
    low: float, as_far: int, drawn: int, different: int, advised: bool
) -> None:
    first = Judgement(
        0.8, method="a", judge=FIRST, difference=Estimate(0.2, low, 0.3), p_draws=0.5,
        draws=different, at_least_as_harmful=as_far,
    )  # fmt: skip
    found = JudgesResult(
        draws=different, judgements=(first,), random={FIRST: Draws.of([0.6] * drawn)}
    )
    assert bool(remedy(found, first)) == advised
