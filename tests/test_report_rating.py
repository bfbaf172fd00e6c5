"""The page of a rated corpus: every number and document shown, texts escaped, damage named."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from headscope.errors import InputError
from headscope.report.drawing.histograms import histograms
from headscope.results.rating import Histogram, RatingSummary
from headscope.runs import decode
from headscope.studies.report import write_report
from rating_helpers import TEXTS, write_rating


def page_of(run: Path) -> str:
    return write_report(run).read_text("utf-8")


def summary_of(run: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    file = run / "summary.json"
    value = json.loads(file.read_text())
    change(value)
    file.write_text(json.dumps(value))


def test_the_page_shows_every_language_and_every_top_document(tmp_path: Path) -> None:
    page = page_of(write_rating(tmp_path / "run"))
    summary = decode(RatingSummary, json.loads((tmp_path / "run" / "summary.json").read_text()))
    assert list(summary.languages) == ["de", "ru", "ar", "ja", ""]
    assert page.count('class="plot"') == len(TEXTS)
    for one in summary.languages.values():
        assert f"{one.scores.documents} documents, mean" in page
        for top in one.top:
            assert f"<bdi>{top.id}</bdi>" in page and top.text[:40] in page
    # The direction of a text's lines is its own.
    documents = sum(len(one.top) for one in summary.languages.values())
    assert page.count('class="excerpt" dir="auto"') == documents
    assert "no language given" in page and "too short: no predicted token" in page
    assert "5\u202f123" in page and "3.4, 5.1" in page
    assert "NaN" not in page and ">nan<" not in page


def test_texts_names_and_reasons_are_escaped_and_long_texts_cut(tmp_path: Path) -> None:
    evil = "<script>evil</script>" + "long " * 200
    page = page_of(write_rating(tmp_path / "run", evil))
    assert "<script>evil" not in page and "&lt;script&gt;evil" in page
    texts = re.findall(r'class="excerpt" dir="auto">(.*?)</div>', page, re.DOTALL)
    assert {len(unescape(one)) for one in texts} == {401}  # and the sign that it goes on
    assert all(one.endswith("\u2026") for one in texts)


def test_panels_share_their_axes_and_bars_are_shares(tmp_path: Path) -> None:
    edges = (0.0, 1.0, 2.0, 3.0)
    one, two = Histogram(edges, (1, 3, 0)), Histogram(edges, (0, 0, 7))
    drawn = histograms([("", "one", one), ("", "two", two)], "score", "document", 8)
    first, second = re.findall(r'<path d="([^"]*)"', drawn)
    # The axis goes from 0 to 3 and from 0 to 100 %: 25 % and 75 %, then all in the last bin.
    assert first == "M0.0 1000V750.0H333.3V1000ZM333.3 1000V250.0H666.7V1000Z"
    assert second == "M666.7 1000V0.0H1000.0V1000Z"
    assert "most (75.0\u00a0%) from 1 to 2" in drawn and "7 documents (100.0\u00a0%)" in drawn
    # Bins half as wide: bars twice as high, and still a half of the documents each.
    fine = Histogram((0.0, 0.5, 1.0), (2, 2))
    drawn = histograms([("", "one", one), ("", "fine", fine)], "score", "document", 8)
    assert re.findall(r'<path d="([^"]*)"', drawn)[1].startswith("M0.0 1000V0.0H")
    assert "2 documents (50.0\u00a0%)" in drawn
    folded = histograms([("", str(at), one) for at in range(5)], "score", "document", 3)
    assert folded.index("The other 2") < folded.index('aria-label="3: ')


def test_a_run_with_few_or_no_documents_has_a_page(tmp_path: Path) -> None:
    run = write_rating(tmp_path / "run", rejected=0, documents=1, tokens_per_second=None)
    lonely = {
        "documents": 1, "tokens": 4, "mean": -0.25,
        "histogram": {"edges": [-0.3, -0.2], "counts": [1]},
        "top": [{"id": 7, "score": -0.25, "text": ""}],
    }  # fmt: skip
    summary_of(run, lambda s: s.update(languages={"xx": lonely}, reasons={}))
    page = page_of(run)
    assert "none was rejected" in page and "1 document, mean \u22120.25" in page
    assert "highest in" not in page  # one language is not compared with itself


def test_languages_with_the_same_mean_are_not_ranked(tmp_path: Path) -> None:
    def level(value: dict[str, Any]) -> None:
        for one in value["languages"].values():
            one["mean"] = 0.25

    run = write_rating(tmp_path / "run")
    assert "highest in" in page_of(run)
    summary_of(run, level)
    page = page_of(run)
    assert "highest in" not in page and "mean score is 0.2500 in all languages" in page
    summary_of(run, lambda s: s.update(languages={}))
    assert 'id="documents"' not in (page := page_of(run)) and 'id="scores"' not in page


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda s: s.pop("languages"), r"summary\.json: holds no 'summary.languages'"),
        (
            lambda s: s["languages"]["de"].pop("top"),
            r"holds no 'summary\.languages\.de\.top'",
        ),
        (lambda s: s["languages"]["de"]["histogram"]["counts"].pop(), r"summary\.json: .*edges"),
        (lambda s: s["languages"]["de"]["histogram"]["edges"].sort(reverse=True), "rising edges"),
        (lambda s: s["languages"]["de"]["top"][0].update(score="high"), r"summary\.json: is not"),
        (lambda s: s["languages"]["de"].update(mean=float("inf")), "mean: 'inf' is not a number"),
        (lambda s: s.update(reasons=[1]), r"summary\.json: is not"),
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
