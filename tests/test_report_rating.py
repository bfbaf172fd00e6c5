"""A rated corpus as it is shown: every number and document, texts escaped, damage named."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headscope.errors import InputError
from headscope.report.drawing.charts import draw_histograms
from headscope.runs.reading import result_of
from headscope.shown.blocks import Histogram, Histograms, Shown, Table, Text
from headscope.studies.registry import study_of
from headscope.studies.report import write_report
from headscope.studies.study import shown_of
from rating_helpers import write_rating


def page_of(run: Path) -> str:
    return write_report(run).read_text("utf-8")


def summary_of(run: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    file = run / "summary.json"
    value = json.loads(file.read_text())
    change(value)
    file.write_text(json.dumps(value))


def shown_by(run: Path) -> Shown:
    study = study_of("use rate")
    return shown_of(study, result_of(run, study.result, "a rated corpus"), run)


def blocks(shown: Shown, kind: type[Any]) -> list[Any]:
    return [block for block in shown.blocks if isinstance(block, kind)]


def test_texts_names_and_reasons_are_escaped_and_long_texts_cut(tmp_path: Path) -> None:
    run = write_rating(tmp_path / "run", "<script>evil</script>" + "long " * 200)
    page = page_of(run)
    assert "<script>evil" not in page and "&lt;script&gt;evil" in page
    texts = [text for block in blocks(shown_by(run), Text) for _, text in block.texts]
    assert {len(text) for text in texts} == {401}  # and the sign that it goes on
    assert all(text.endswith("\u2026") for text in texts)


def test_panels_share_their_axes_and_bars_are_shares() -> None:
    def drawn(*panels: Histogram) -> str:
        return str(draw_histograms("scores", Histograms("Scores", panels, "score")).html)

    edges = (0.0, 1.0, 2.0, 3.0)
    one, two = Histogram("one", edges, (1, 3, 0), line=1.5), Histogram("two", edges, (0, 0, 7))
    html = drawn(one, two)
    first, line, second = re.findall(r'<path d="([^"]*)"', html)
    # The axis goes from 0 to 3 and from 0 to 100 %: 25 % and 75 %, then all in the last bin.
    assert first == "M0.0 1000V750.0H333.3V1000ZM333.3 1000V250.0H666.7V1000Z"
    assert line == "M500.0 1000V0"
    assert second == "M666.7 1000V0.0H1000.0V1000Z"
    assert "most (75.0\u00a0%) from 1 to 2" in html and "7 documents (100.0\u00a0%)" in html
    # Bins half as wide: bars twice as high, and still a half of the documents each.
    html = drawn(one, Histogram("fine", (0.0, 0.5, 1.0), (2, 2)))
    assert re.findall(r'<path d="([^"]*)"', html)[2].startswith("M0.0 1000V0.0H")
    assert "2 documents (50.0\u00a0%)" in html
    folded = drawn(*(replace(one, name=str(at)) for at in range(10)))
    assert folded.index("The other 2") < folded.index('aria-label="8: ')


def test_one_document_has_no_interval_and_few_are_pointed_out(tmp_path: Path) -> None:
    run = write_rating(tmp_path / "run", rejected=0, documents=1, tokens_per_second=None)
    lonely = {
        "documents": 1, "tokens": 4, "mean": -0.25, "low": -0.25, "high": -0.25,
        "histogram": {"edges": [-0.3, -0.2], "counts": [1]},
        "top": [{"id": 7, "score": -0.25, "text": ""}],
    }  # fmt: skip
    summary_of(run, lambda s: s.update(languages={"xx": lonely}, reasons={}))
    shown = shown_by(run)
    (scores,) = blocks(shown, Table)
    assert (scores.rows[0].cells[2].value, scores.rows[0].cells[2].low) == (-0.25, None)
    # A document has no interval, so that nothing is claimed of it.
    assert "not shown" in shown.finding[0] and "\u22120.2500 nats a token." in shown.finding[1]
    assert "Fewer than 30 documents: xx." in shown.cautions
    summary_of(run, lambda s: s.update(languages={"xx": lonely, "yy": lonely}))
    assert "in none of 2 languages" in shown_by(run).finding[0]
    summary_of(run, lambda s: s.update(languages={}))
    assert shown_by(run).finding[0] == "No document was rated." and page_of(run)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda s: s.pop("languages"), r"summary\.json: holds no 'summary.languages'"),
        (lambda s: s["languages"]["de"]["histogram"]["counts"].pop(), r"summary\.json: .*edges"),
        (lambda s: s["languages"]["de"]["top"][0].update(score="high"), r"summary\.json: is not"),
        (lambda s: s["languages"]["de"].update(mean=float("inf")), "mean: 'inf' is not a number"),
    ],
)
def test_damage_is_named(tmp_path: Path, change: Callable[[Any], Any], said: str) -> None:
    run = write_rating(tmp_path / "run")
    summary_of(run, change)
    with pytest.raises(InputError, match=said):
        write_report(run)


def test_a_run_without_its_summary_is_told(tmp_path: Path) -> None:
    run = write_rating(tmp_path / "run")
    (run / "summary.json").unlink()
    with pytest.raises(InputError, match=r"holds no summary\.json"):
        write_report(run)
