"""The report of an atlas: what it says agrees with the run, and bad runs are named."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest

from headscope.errors import InputError
from headscope.heads import Geometry, Rank, count_words, read_scores
from headscope.report.records.atlas import read_atlas
from headscope.report.sections.removal import verdict
from headscope.results.removal import Effect
from headscope.studies.report import write_report
from report_helpers import DIRECTIONS, write_atlas

PAIR = ("en-de", "de-en")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_atlas(tmp_path_factory.mktemp("atlas") / "run")


@pytest.fixture(scope="module")
def text(run: Path) -> str:
    """The words of the page, without elements, scripts and styles."""
    return words_of(write_report(run))


def words_of(file: Path) -> str:
    html = re.sub(r"(?s)<(script|style)\b.*?</\1>", " ", file.read_text(encoding="utf-8"))
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", "", html)))


def test_the_report_lies_in_the_run_or_where_it_is_asked_for(run: Path, tmp_path: Path) -> None:
    assert write_report(run) == run / "report.html"
    out = tmp_path / "new" / "page.html"
    assert write_report(run, out) == out
    assert out.read_bytes() == (run / "report.html").read_bytes()


def test_nothing_is_loaded_from_anywhere(run: Path) -> None:
    html = write_report(run).read_text(encoding="utf-8")
    assert not re.search(r'(?:src|href)=(?!"#)|url\(|@import|https?://', html)
    assert "default-src 'none'" in unescape(html)


def test_the_summary_says_what_the_run_found(run: Path, text: str) -> None:
    result = json.loads((run / "result.json").read_bytes())
    plain, above, removal = result["counts"], result["counts_above_chance"], result["removal"]
    assert above["token_alignment"] < plain["token_alignment"]  # chance is worth something
    best = next(one for one in result["heads"] if one["rank"] == 1)
    assert f"{count_words(above['token_alignment'])} of the 96 attention heads" in text
    assert f"in the paper, {count_words(plain['token_alignment'])} exceed 0.10" in text
    assert "mean of 20 directions" in text
    assert f"strongest is head {best['layer']}.{best['head']}: {best['score']:.2f}" in text
    baseline, top = removal["baseline"]["chrf"], removal["top"]["chrf"]
    assert f"goes from {baseline:.1f} to {top:.1f}" in text
    assert f"goes to {removal['random_mean']['chrf']:.1f}" in text
    jaccard = sum(pair["jaccard"] for pair in result["overlap"]["pairs"]) / 190
    assert f"overlap by {jaccard:.2f} (Jaccard, mean of 190 pairs" in text


RANKS: tuple[Rank, ...] = ("above-chance", "score")


def first_rows(path: Path) -> list[str]:
    table = path.read_text(encoding="utf-8").split('id="ranking-table"')[1]
    return re.findall(r'<th scope="row" data-c="head">([0-9.]+)</th>', table)[:5]


def classes(path: Path) -> dict[str, str]:
    table = path.read_text(encoding="utf-8").split('id="ranking-table"')[1]
    named = re.findall(r'data-c="head">([0-9.]+)</th>.*?data-c="class">([a-z ]+)</td>', table)
    return dict(named)


def test_the_page_ranks_and_marks_heads_by_what_they_were_cut_by(tmp_path: Path) -> None:
    run = write_atlas(tmp_path / "run")
    mean = read_scores(run)["mean"]
    by_chance, by_score = ([str(head) for head, _ in mean.ranked(by)[:5]] for by in RANKS)
    assert by_chance != by_score  # else nothing is tested
    record = read_atlas(run)
    assert record.rank == "above-chance" and record.counted_over == 20
    page = write_report(run)
    assert first_rows(page) == by_chance
    assert "Highest are those by score minus chance" in page.read_text(encoding="utf-8")
    aligning = [str(h) for h, above in mean.ranked() if above > 0.1]
    assert aligning != [str(h) for h, _ in mean.ranked() if mean[h] > 0.1]  # else nothing is tested
    assert classes(page) == {
        str(h): "token alignment" if str(h) in aligning else "low activity" if a > 0 else "inactive"
        for h, a in mean.ranked()[:30]
    }
    # As earlier versions left it: no word of a rank, and no directions in the mean.
    result = json.loads((run / "result.json").read_bytes())
    for told in (result, *result["directions"].values()):
        for name in ("rank", "rank_note", "counted_over"):
            del told[name]
    replace(mean, statistics={}).save_pretrained(run / "scores" / "mean")
    finish_with(run, tmp_path / "old", result)
    old = read_atlas(tmp_path / "old")
    assert old.rank == "score" and old.counts == record.counts
    page = write_report(tmp_path / "old")
    assert first_rows(page) == by_score
    assert "Highest are those by score." in page.read_text(encoding="utf-8")
    marked = page.read_text(encoding="utf-8").count('class="dot"')
    assert marked == len(mean.select(0.1))


def test_model_data_and_run_are_named(run: Path, text: str) -> None:
    result = json.loads((run / "result.json").read_bytes())
    for known in (result["signature"], result["model"]["digest"], "Qwen3ForCausalLM", "float32"):
        assert known in text
    assert "6 layers × 16 heads" in text
    assert "world/tr-ru.tsv" in text


def test_the_data_of_the_page_are_the_scores(run: Path) -> None:
    html = write_report(run).read_text(encoding="utf-8")
    found = re.search(r'(?s)<script type="application/json" id="data">(.*?)</script>', html)
    assert found is not None
    data = json.loads(found[1])
    scores = read_scores(run)
    assert list(data["values"]) == ["mean", *DIRECTIONS]
    for name, values in data["values"].items():
        expected = [scores[name][head] for head in scores[name].geometry.heads()]
        assert values["score"] == pytest.approx(expected, abs=5e-5)
    assert data["values"]["en-ru"]["identical"] == [None] * 96


def test_every_section_stands_once_with_a_heading(run: Path) -> None:
    html = write_report(run).read_text(encoding="utf-8")
    identifiers = re.findall(r'\sid="([^"]+)"', html)
    assert len(identifiers) == len(set(identifiers))
    for name in ("summary", "origin", "heads", "classes", "scores", "overlap", "removal"):
        assert f'<section id="{name}" aria-labelledby="{name}-title">' in html.replace(
            'class="box" ', ""
        )
    references = re.findall(r'aria-labelledby="([^"]+)"', html)
    assert set(references) <= set(identifiers)


def test_one_direction_has_no_mean_and_no_overlap(tmp_path: Path) -> None:
    run = write_atlas(tmp_path / "run", directions=("en-de",))
    assert list(read_atlas(run).scores) == ["en-de"]
    html = write_report(run).read_text(encoding="utf-8")
    assert 'id="overlap"' not in html
    assert 'id="direction"' not in html
    assert 'id="removal"' in html


def test_a_run_without_removal_has_no_such_section(tmp_path: Path) -> None:
    html = write_report(write_atlas(tmp_path / "run", PAIR, removal=False)).read_text("utf-8")
    assert 'id="removal"' not in html
    assert 'id="examples"' not in html
    assert 'id="heatmap"' in html


def test_layers_without_heads_leave_a_gap(tmp_path: Path) -> None:
    run = write_atlas(tmp_path / "run", PAIR, Geometry((4, 0, 8, 2)))
    html = write_report(run).read_text("utf-8")
    figure = html[html.index('id="heatmap"') : html.index('id="profile"')]
    assert len(re.findall(r'<rect [^>]*class="cell', figure)) == 14
    assert "4 layers, 0 to 8 heads each, 14 in all" in html


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    hostile = "</script><script>x=1</script><img src=x onerror=x=1>\"'&\u2028"
    html = write_report(write_atlas(tmp_path / "run", PAIR, text=hostile)).read_text("utf-8")
    counts = [len(re.findall(part, html)) for part in (r"<script\b", r"</script>")]
    assert counts == [4, 4]  # the data and three scripts
    assert "<img" not in html
    assert hostile in unescape(html)


EFFECT = Effect(80.0, 20.0, (70.0, 75.0))


@pytest.mark.parametrize(
    ("effect", "words"),
    [
        (EFFECT, "no draw did as much harm"),
        (Effect(80.0, 70.0, (60.0, 79.0)), "less than random ones"),
        (Effect(80.0, 65.0, (60.0, 79.0)), "1 of 2 draws did as much harm, so this shows no"),
    ],
)
def test_the_verdict_follows_the_numbers(effect: Effect, words: str) -> None:
    assert words in verdict(effect, 14)


def test_the_verdict_gives_the_numbers() -> None:
    text = verdict(EFFECT, 14)
    assert "from 80.0 to 20.0 (\u221260.0)" in text
    assert "to 72.5 (\u22127.5, mean of 2 draws)" in text


def test_effects_not_computed_yet_are_said_to_be_missing(tmp_path: Path) -> None:
    run = write_atlas(tmp_path / "run", PAIR, finish=False)
    result = json.loads((write_atlas(tmp_path / "other", PAIR) / "result.json").read_bytes())
    for part in (result["removal"], *result["removal"]["directions"].values()):
        part["baseline"]["chrf"] = None
    with_null = tmp_path / "null"
    finish_with(run, with_null, result)
    assert "chrF++ has not been computed" in words_of(write_report(with_null))


def finish_with(run: Path, to: Path, result: object) -> None:
    """Make a copy of a run folder and finish it with another result."""
    import shutil

    from headscope.runs import file_digest

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
    finish_with(run, tmp_path / "bad", {"directions": {"en-de": {}}, "overlap": {"k": 14}})
    with pytest.raises(InputError, match=r"result\.json: holds no 'pairs'"):
        write_report(tmp_path / "bad")


def test_missing_scores_are_named(tmp_path: Path) -> None:
    run = write_atlas(tmp_path / "run", PAIR)
    (run / "scores" / "de-en" / "config.json").unlink()
    with pytest.raises(InputError, match="scores: holds no scores named 'de-en'"):
        write_report(run)


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
