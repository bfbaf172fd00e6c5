"""Reports of runs: where they lie, that they load nothing, and what is no run to report."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest

from headscope.errors import InputError
from headscope.heads import Geometry, HeadScores
from headscope.results.common import ModelFacts, ScoredHead
from headscope.results.head_scores import NeedlePlace, RetrievalResult
from headscope.runs import encode, open_run
from headscope.shown.blocks import Forest
from headscope.shown.words import fixed
from headscope.studies import report
from headscope.studies.report import write_overview, write_report
from removal_report_helpers import write_removal


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_removal(tmp_path / "run", sentences=3)


def test_the_report_lies_in_the_run_or_where_it_is_asked_for(run: Path, tmp_path: Path) -> None:
    assert write_report(run) == run / "report.html"
    out = tmp_path / "new" / "page.html"
    assert write_report(run, out) == out
    assert out.read_bytes() == (run / "report.html").read_bytes()
    with pytest.raises(InputError, match="is a folder; name a file for the report"):
        write_report(run, tmp_path)


def test_nothing_is_loaded_from_anywhere_and_no_name_is_given_twice(run: Path) -> None:
    html = write_report(run).read_text(encoding="utf-8")
    # The name of SVG is no address, and a pattern of the page itself is nothing that is loaded.
    html = html.replace("http://www.w3.org/2000/svg", "").replace("url(#", "")
    assert not re.search(r'(?:src|href)=(?!"#)|url\(|@import|https?://', html)
    assert "default-src 'none'" in unescape(html)
    identifiers = re.findall(r'\sid="([^"]+)"', html)
    assert len(identifiers) == len(set(identifiers))


def test_a_run_that_is_not_finished_is_refused(run: Path) -> None:
    (run / "DONE.json").unlink()
    with pytest.raises(InputError, match="run: this run is not finished; run the same command"):
        write_report(run)
    assert not (run / "report.html").exists()


def test_a_changed_result_is_refused_and_the_old_report_kept(run: Path) -> None:
    before = write_report(run).read_bytes()
    (run / "result.json").write_text("{}", encoding="utf-8")
    with pytest.raises(InputError, match=r"result\.json: is not the result that DONE"):
        write_report(run)
    assert (run / "report.html").read_bytes() == before


def test_a_damaged_line_of_outputs_is_named(run: Path) -> None:
    with (run / "outputs.jsonl").open("a", encoding="utf-8") as file:
        file.write("{}\n")
    lines = len((run / "outputs.jsonl").read_text("utf-8").splitlines())
    with pytest.raises(InputError, match=rf"outputs\.jsonl, line {lines}: is damaged"):
        write_report(run)


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no run\.json, so it is not a finished run"):
        write_report(tmp_path)
    with pytest.raises(InputError, match="is not a folder"):
        write_report(tmp_path / "nothing")
    (tmp_path / "run.json").write_text('{"command": "of tomorrow"}', encoding="utf-8")
    with pytest.raises(InputError, match="'of tomorrow', which has no report"):
        write_report(tmp_path)


def test_several_runs_stand_in_one_table_with_what_their_pages_say(tmp_path: Path) -> None:
    runs = [write_removal(tmp_path / name / "run", sentences=3) for name in ("<b>a", "b")]
    overview = write_overview(runs)
    assert overview == tmp_path / "reports.html"
    html = overview.read_text("utf-8")
    assert "<b>a/run" not in html
    links = [unquote(link) for link in re.findall(r'href="\./([^"#]+)"', html)]
    assert links == [f"{name}/run/report.html" for name in ("<b>a", "b")]
    text = unescape(re.sub(r"<[^>]+>", "", html)).replace("\u202f", "\u2009")
    for run in runs:
        result = report.read_run(run)
        shown = report.shown_of(report.study_of("verify removal"), result, run)
        assert " ".join(shown.finding[:1]) in text
        assert isinstance(shown.figure, Forest)
        for gap in shown.figure.rows[0][1]:
            assert fixed(gap.value, shown.figure.digits) in text
            assert f"selected \u2212 {gap.control}" in text
    # From elsewhere nothing is linked; what is no run is refused, and no page is written.
    beside = write_overview(runs, tmp_path / "pages" / "all.html")
    assert 'href="./' not in beside.read_text("utf-8")
    with pytest.raises(InputError, match="is not a folder"):
        write_overview([*runs, tmp_path / "nothing"], tmp_path / "none.html")
    assert not (tmp_path / "none.html").exists()


GEOMETRY = Geometry((5, 0, 40))


def result() -> RetrievalResult:
    values = np.random.default_rng(0).random(GEOMETRY.shape) - 0.2
    extra = {"chance": np.full(GEOMETRY.shape, 0.25), "elsewhere": np.zeros(GEOMETRY.shape)}
    scores = HeadScores(GEOMETRY, values, "retrieval", values - 0.05, values + 0.05, extra=extra)
    return RetrievalResult(
        signature="s",
        model=ModelFacts("<script>evil"),
        scored=ScoredHead.all_of(scores),
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
