"""What searches for heads show: every score, what lies above chance, damage named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from headscope.errors import InputError
from headscope.heads import Geometry, HeadScores
from headscope.results.common import ModelFacts, ScoredHead
from headscope.results.head_scores import NeedlePlace, RetrievalResult
from headscope.runs import encode, open_run
from headscope.studies import report
from headscope.studies.report import write_report

GEOMETRY = Geometry((5, 0, 40))


def result() -> RetrievalResult:
    values = np.random.default_rng(0).random(GEOMETRY.shape) - 0.2
    extra = {"chance": np.full(GEOMETRY.shape, 0.25), "elsewhere": np.zeros(GEOMETRY.shape)}
    scores = HeadScores(GEOMETRY, values, "retrieval", values - 0.05, values + 0.05, extra=extra)
    return RetrievalResult(
        signature="s",
        model=ModelFacts("<script>evil"),
        heads=ScoredHead.all_of(scores),
        examples=7,
        tokens=40,
        left_out=2,
        data={"needles": {"digest": "x", "examples": 7}},
        places=(NeedlePlace(32, 0.5, 7, 40, 0.25), NeedlePlace(32, 1.0, 0, 0, None)),
    )


def test_what_cannot_be_drawn_and_a_damaged_result_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    with open_run(run, "find retrieval", {}, {}) as opened:
        opened.finish(encode(result()))
    page = write_report(run).read_text("utf-8")
    assert "<script>evil" not in page and "&lt;script&gt;evil" in page
    for error in (OverflowError("too large"), IndexError("no entry 3"), StopIteration()):

        def broken(*_: object, error: Exception = error) -> None:
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(report, "shown_of", broken)
            wanted = str(error) or "an entry is missing"
            with pytest.raises(InputError, match=rf"run/result\.json: is not the .*\({wanted}\)"):
                write_report(run)
    (run / "result.json").write_text("{}")
    with pytest.raises(InputError, match="not the result that"):
        write_report(run)
