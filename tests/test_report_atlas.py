"""What an atlas shows agrees with the run, and bad runs are named."""

from __future__ import annotations

import json
import re
import shutil
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from headscope.errors import InputError
from headscope.heads import Geometry, Rank, count_words, read_scores
from headscope.results.atlas import AtlasResult
from headscope.runs import file_digest
from headscope.runs.reading import result_of
from headscope.shown.blocks import HeadTable, Heatmap, NotMeasured, Sentences, Shown
from headscope.studies.atlas import command
from headscope.studies.report import write_report
from headscope.studies.study import shown_of
from report_helpers import DIRECTIONS, blocks_of, rows_of, write_atlas

PAIR = ("en-de", "de-en")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_atlas(tmp_path_factory.mktemp("atlas") / "run")


def shown(run: Path) -> Shown:
    return shown_of(command, result_of(run, AtlasResult, "an atlas"), run)


def test_the_report_lies_in_the_run_or_where_it_is_asked_for(run: Path, tmp_path: Path) -> None:
    assert write_report(run) == run / "report.html"
    out = tmp_path / "new" / "page.html"
    assert write_report(run, out) == out
    assert out.read_bytes() == (run / "report.html").read_bytes()


def test_nothing_is_loaded_from_anywhere(run: Path) -> None:
    html = write_report(run).read_text(encoding="utf-8")
    assert not re.search(r'(?:src|href)=(?!"#)|url\(|@import|https?://', html)
    assert "default-src 'none'" in unescape(html)


def test_the_finding_says_what_the_run_found(run: Path) -> None:
    result = json.loads((run / "result.json").read_bytes())
    plain, above, removal = result["counts"], result["counts_above_chance"], result["removal"]
    assert above["token_alignment"] < plain["token_alignment"]  # chance is worth something
    best = next(one for one in result["heads"] if one["rank"] == 1)
    heads, strongest, removed, shared = shown(run).finding
    assert heads.startswith(f"{count_words(above['token_alignment'])} of 96 heads")
    assert "mean of 20 directions" in heads
    assert f"as in the paper, {count_words(plain['token_alignment'])} are." in heads
    assert f"{best['layer']}.{best['head']} ({best['score']:.3f}" in strongest
    ends = (f"{removal['baseline']['chrf']:.1f}", f"{removal['top']['chrf']:.1f}")
    assert f"falls from {ends[0]} to {ends[1]}" in removed
    assert f"it is {removal['random_mean']['chrf']:.1f} with as many random heads" in removed
    jaccard = sum(pair["jaccard"] for pair in result["overlap"]["pairs"]) / 190
    assert f"Jaccard index of {jaccard:.2f} (mean of 190 pairs" in shared


RANKS: tuple[Rank, ...] = ("above-chance", "score")


@pytest.mark.parametrize("by", RANKS)
def test_heads_are_ranked_and_marked_by_what_they_were_cut_by(tmp_path: Path, by: Rank) -> None:
    run = write_atlas(tmp_path / "run")
    mean = read_scores(run)["mean"]
    assert mean.ranked("above-chance")[0] != mean.ranked("score")[0]  # else nothing is tested
    if by == "score":  # of a run that does not say it, too
        result = json.loads((run / "result.json").read_bytes())
        for told in (result, *result["directions"].values()):
            for name in ("rank", "rank_note"):
                del told[name]
            for head in told["heads"]:
                del head["rank"]
        finish_with(run, tmp_path / "old", result)
        run = tmp_path / "old"
    (table,) = blocks_of(shown(run), HeadTable)
    ranked = [table.heads[at] for at in table.ranked()]
    assert ranked[:20] == [(head.layer, head.head) for head, _ in mean.ranked(by)[:20]]
    assert table.classes == (("token alignment", 0.1), ("low activity", 0.0), ("inactive", None))
    assert write_report(run).read_text("utf-8").count('class="dot"') == sum(
        value > 0.1 for _, value in mean.ranked(by)
    )


def test_every_direction_has_its_scores(run: Path) -> None:
    (table,) = blocks_of(shown(run), HeadTable)
    scores = read_scores(run)
    assert list(table.parts) == ["mean", *DIRECTIONS]
    for name, numbers in table.parts.items():
        expected = [scores[name][head] for head in scores[name].geometry.heads()]
        assert list(numbers["score"]) == pytest.approx(expected)
    assert set(table.parts["en-ru"]["identical"]) == {None}


def test_classes_and_overlap_are_those_of_the_result(run: Path) -> None:
    result, told = json.loads((run / "result.json").read_bytes()), shown(run)
    rows = rows_of(told, "Heads in each class")
    assert len(rows) == 2 * 21
    assert (
        rows["en \u2192 de, TS \u2212 chance"]["token alignment"].value
        == (result["directions"]["en-de"]["counts_above_chance"]["token_alignment"])
    )
    (shared,) = blocks_of(told, Heatmap, "Heads that two sets share")
    pair = result["overlap"]["pairs"][0]
    assert shared.values[0][1] == shared.values[1][0] == pair["jaccard"]


def test_what_the_model_loses_is_told_by_direction(run: Path) -> None:
    removal = json.loads((run / "result.json").read_bytes())["removal"]
    rows = rows_of(shown(run), "chrF++ by direction: values and intervals")
    part = removal["directions"]["de-en"]
    assert rows["de \u2192 en"]["original"].value == part["baseline"]["chrf"]
    assert rows["de \u2192 en"]["selected"].value == part["conditions"][0]["chrf"]
    assert rows["mean of 20"]["random"].value == pytest.approx(removal["random_mean"]["chrf"])


def test_model_data_and_run_are_named(run: Path) -> None:
    html = write_report(run).read_text("utf-8")
    result = json.loads((run / "result.json").read_bytes())
    for known in (result["signature"], result["model"]["digest"], "Qwen3ForCausalLM", "float32"):
        assert known in html
    assert "6 layers \u00d7 16 heads" in html and "world/tr-ru.tsv" in html
    identifiers = re.findall(r'\sid="([^"]+)"', html)
    assert len(identifiers) == len(set(identifiers))


def test_one_direction_has_no_mean_and_no_overlap(tmp_path: Path) -> None:
    run = write_atlas(tmp_path / "run", directions=("en-de",))
    told = shown(run)
    assert [list(table.parts) for table in blocks_of(told, HeadTable)] == [["en-de"]]
    assert len(blocks_of(told, Heatmap)) == 1 and len(blocks_of(told, Sentences)) == 1
    assert 'id="direction"' not in write_report(run).read_text("utf-8")


def test_a_run_without_removal_has_no_such_section(tmp_path: Path) -> None:
    told = shown(write_atlas(tmp_path / "run", PAIR, removal=False))
    assert {"Removal", "Sentences"}.isdisjoint(part.title for part in told.sections)


def test_layers_without_heads_leave_a_gap(tmp_path: Path) -> None:
    html = write_report(write_atlas(tmp_path / "run", PAIR, Geometry((4, 0, 8, 2)))).read_text()
    heat_map = html[html.index('id="every-head-1-map"') :].partition("</svg>")[0]
    assert len(re.findall(r'<rect [^>]*class="cell', heat_map)) == 14
    assert "4 layers, 0 to 8 heads each, 14 in all" in html


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    hostile = "</script><script>x=1</script><img src=x onerror=x=1>\"'&\u2028"
    html = write_report(write_atlas(tmp_path / "run", PAIR, text=hostile)).read_text("utf-8")
    assert html.count("<script") == html.count("</script>") and "<script>x" not in html
    assert "<img" not in html
    assert hostile in unescape(html)


def test_effects_not_computed_are_missing(tmp_path: Path) -> None:
    run = write_atlas(tmp_path / "run", PAIR)
    result = json.loads((run / "result.json").read_bytes())
    for part in (result["removal"], *result["removal"]["directions"].values()):
        part["baseline"]["chrf"] = None
    finish_with(run, tmp_path / "null", result)
    told = shown(tmp_path / "null")
    assert "chrF++ has not been computed for this run." in told.finding
    assert [one.title for one in blocks_of(told, NotMeasured)] == ["chrF++"]


def finish_with(run: Path, to: Path, result: Any) -> None:
    """Make a copy of a run folder and finish it with another result."""
    shutil.copytree(run, to)
    (to / "result.json").write_text(json.dumps(result), encoding="utf-8")
    (to / "provenance.json").write_text("{}", encoding="utf-8")
    done = {"result": file_digest(to / "result.json")}
    (to / "DONE.json").write_text(json.dumps(done), encoding="utf-8")


def test_a_run_that_is_not_finished_is_refused(tmp_path: Path) -> None:
    run = write_atlas(tmp_path / "run", PAIR, finish=False)
    with pytest.raises(InputError, match="run: this run is not finished; run the same command"):
        write_report(run)
    assert not (run / "report.html").exists()


def test_a_changed_result_is_refused_and_the_old_report_kept(tmp_path: Path) -> None:
    run = write_atlas(tmp_path / "run", PAIR)
    before = write_report(run).read_bytes()
    (run / "result.json").write_text("{}", encoding="utf-8")
    with pytest.raises(InputError, match=r"result\.json: is not the result that DONE"):
        write_report(run)
    assert (run / "report.html").read_bytes() == before


def test_a_result_without_its_parts_is_named(tmp_path: Path) -> None:
    run = write_atlas(tmp_path / "run", PAIR, finish=False)
    finish_with(run, tmp_path / "bad", {"directions": {}, "overlap": {"k": 14, "pairs": []}})
    with pytest.raises(InputError, match=r"result\.json: holds no 'result\.heads'"):
        write_report(tmp_path / "bad")


def test_a_damaged_line_of_outputs_is_named(tmp_path: Path) -> None:
    run = write_atlas(tmp_path / "run", PAIR)
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


def test_a_folder_is_no_place_for_the_report(run: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder; name a file for the report"):
        write_report(run, tmp_path)
