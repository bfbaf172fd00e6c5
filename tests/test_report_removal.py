"""The page of a removal: its verdict, what it could not compute, its caveats."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path

import pytest

from headscope.errors import InputError
from headscope.report.records.outputs import read_sentences
from headscope.results.removal import removal_of
from headscope.studies.report import write_report
from removal_report_helpers import write_removal
from report_helpers import write_atlas


def words(run: Path) -> str:
    html = write_report(run).read_text("utf-8")
    html = re.sub(r"<(script|style)\b.*?</\1>", " ", html, flags=re.S)
    return re.sub(r"[ \n]+", " ", unescape(re.sub(r"<[^>]+>", " ", html)))


def test_the_figures_of_the_result_are_on_the_page(tmp_path: Path) -> None:
    text = words(write_removal(tmp_path / "run"))
    assert "Without the 14 highest heads chrF++ goes from 90.0 to 20.0 (\u221270.0)" in text
    assert "goes to 80.5 (\u22129.5, mean of 4 draws), and no draw did as much harm" in text
    assert "60.0 (57.0\u2009\u2013\u200963.0)" in text
    assert "Of 4 draws of random heads, none did at least as much harm" in text
    assert "with so many draws it cannot be lower than 0.200" in text
    assert "swapped at random, 9\u202f999 times (it cannot be lower than 0.0001)" in text


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({}, "highest by score."),  # of before there was a rank
        ({"rank": "above-chance"}, "highest by score minus chance."),
        ({"rank": "score", "rank_note": "no chance"}, "highest by score (no chance)."),
    ],
)
def test_what_the_heads_are_the_highest_by(tmp_path: Path, told: dict[str, str], said: str) -> None:
    assert f"The heads are the {said}" in words(write_removal(tmp_path / "run", entries=told))
    listed = words(write_removal(tmp_path / "list", entries={"rank": None}))
    assert "The heads are the highest" not in listed


def test_every_figure_has_a_caption_of_its_own(tmp_path: Path) -> None:
    html = write_report(write_removal(tmp_path / "run", gates=(0.0, 0.5, 2.0))).read_text("utf-8")
    figures = re.findall(r"<figure.*?</figure>", html, flags=re.S)
    assert len(figures) == 4 + 3 + 3 + 1  # of all; over k, over gates; by direction
    captions = [re.sub(r"<[^>]+>", "", f[f.index("<figcaption") :]) for f in figures]
    assert all(len(caption) > 150 for caption in captions)
    identifiers = re.findall(r'\sid="([^"]+)"', html)
    assert len(identifiers) == len(set(identifiers))


def test_what_was_not_computed_is_no_zero(tmp_path: Path) -> None:
    text = words(write_removal(tmp_path / "run"))
    assert text.count("not computed") == 8  # COMET and BLEURT of four conditions
    assert "COMET: not installed. BLEURT: not installed." in text
    text = words(write_removal(tmp_path / "other", entries={"not_measured": {}}))
    assert "COMET and BLEURT: the run does not say why." in text


def test_rates_that_never_occur_take_a_sentence_and_no_bars(tmp_path: Path) -> None:
    html = write_report(write_removal(tmp_path / "run")).read_text("utf-8")
    figure = html[html.index('id="rates"') : html.index('id="rates-caption"')]
    assert re.findall("<h3>(.*?)</h3>", figure) == ["Off target"]
    assert "Under no condition was an output a copy of the source or empty." in html


def test_without_random_heads_there_is_no_verdict_on_them(tmp_path: Path) -> None:
    text = words(write_removal(tmp_path / "run", draws=0))
    assert "there are no random heads to compare with" in text
    assert "There is no control." in text


def test_heads_that_do_less_than_random_ones_are_called_that(tmp_path: Path) -> None:
    text = words(write_removal(tmp_path / "run", top=89.0))
    assert "here the highest heads matter less than random ones" in text


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"leakage": {"known": False, "overlap": None, "of": 9}}, "It is not known what the heads"),
        ({"leakage": {"known": True, "overlap": 3, "of": 9}}, "3 of 9 sentence pairs were used"),
        ({}, "None of the 50 sentence pairs was used to find the heads"),
        ({"pool_note": "Heads hold no scores"}, "Heads hold no scores."),
        ({"pool": "outside"}, "drawn from all heads outside the highest ones"),
        ({"ablate": "mean", "reference_text": {"source": "dev"}}, "over reference text (dev)"),
    ],
)
def test_caveats_follow_from_the_run(tmp_path: Path, more: dict[str, object], said: str) -> None:
    assert said in words(write_removal(tmp_path / "run", entries=more))


def test_zero_and_mean_stand_beside_one_another(tmp_path: Path) -> None:
    run = write_removal(tmp_path / "run", kinds=("mean", "zero"))
    text = words(run)
    # The page speaks of the first kind, whose draws are its own; the other stands in a table.
    assert "With the 14 highest heads replaced by their mean output" in text
    assert "goes from 90.0 to 55.0" in text and "mean of 4 draws" in text
    assert "zero 20.0 80.5 (79.0\u2009\u2013\u200982.0)" in text
    assert "mean 55.0 85.2 (84.5\u2009\u2013\u200986.0)" in text
    shown = read_sentences(run, 14, 0.0, {}, "mean")
    assert all(one.outputs["top"].endswith(" mean") for one in shown)
    plain = write_removal(tmp_path / "plain")
    zero = [one for one in removal_of(run).conditions if one.label.ablate == "zero"]
    assert list(removal_of(plain).conditions) == zero
    assert "Zero and mean" not in words(plain)


def test_filled_up_draws_are_told(tmp_path: Path) -> None:
    run = write_removal(tmp_path / "run")
    result = json.loads((run / "result.json").read_bytes())
    for row in result["conditions"]:
        if row["kind"] != "top" and row["k"] == 14 and row["draw"] == 1:
            row["filled_up"] = 3
    text = words(write_removal(tmp_path / "other", entries={"conditions": result["conditions"]}))
    assert "token alignment heads in 1 of 4 draws, with up to 3 heads" in text
    assert "In 1 of 4 draws, with up to 3 heads of the same layers" in text


def test_draws_that_repeat_count_once(tmp_path: Path) -> None:
    run = write_removal(tmp_path / "run")
    result = json.loads((run / "result.json").read_bytes())
    for row in result["conditions"]:
        if row["kind"] == "top":
            row |= {"p_draws_layer_matched": 1 / 3, "distinct_draws_layer_matched": 2}
    text = words(write_removal(tmp_path / "other", entries={"conditions": result["conditions"]}))
    assert "Of 2 different draws of random heads of the same layers, none did" in text
    assert "p over draws is 0.333; with so many draws it cannot be lower than 0.333" in text
    assert "4 (2 different)" in text
    assert "only 2 of 4 draws are different sets" in text


def test_how_much_filled_up_draws_have_in_common_is_told_where_there_are_several(
    tmp_path: Path,
) -> None:
    run = write_removal(tmp_path / "run")
    rows = json.loads((run / "result.json").read_bytes())["conditions"]
    drawn = [one for one in rows if one["kind"] == "random-layer-matched" and one["k"] == 14]
    for one in drawn:
        one["filled_up"] = 3
    alike = len(set.intersection(*(set(one["heads"]) for one in drawn)))
    text = words(write_removal(tmp_path / "other", entries={"conditions": rows}))
    assert f"All {len(drawn)} share {alike}." in text
    single = [one for one in rows if one["kind"] == "top" or one["draw"] == 0]
    text = words(write_removal(tmp_path / "one", entries={"conditions": single}))
    assert "heads of the same layers" in text and "All 1 share" not in text


def test_curves_are_there_where_there_are_several(tmp_path: Path) -> None:
    one = words(write_removal(tmp_path / "one", k=(14,)))
    assert "More heads, other strengths" not in one
    text = words(write_removal(tmp_path / "several", k=(14,), gates=(0.0, 0.5, 2.0)))
    assert "chrF++ as the output of 14 heads is weakened or strengthened" in text
    assert "Over-strength leads to 20.0 at 2 from 90.0." in text


def test_one_direction_has_no_mean(tmp_path: Path) -> None:
    run = write_removal(tmp_path / "run", directions=("en-de",))
    text = words(run)
    assert "the plain mean over" not in text
    assert "mean of 1 " not in text


def test_words_that_are_not_linked_are_said_to_be(tmp_path: Path) -> None:
    text = words(write_removal(tmp_path / "run", links=None))
    assert "Words are not linked, so none light up" in text
    assert "light up under the pointer" in words(write_removal(tmp_path / "other"))


@pytest.mark.parametrize("left", [None, ""])
def test_a_run_without_its_outputs_says_so(tmp_path: Path, left: str | None) -> None:
    run = write_removal(tmp_path / "run")
    (run / "outputs.jsonl").unlink() if left is None else (run / "outputs.jsonl").write_text(left)
    assert "outputs.jsonl of the run folder is missing or empty" in words(run)


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    hostile = "</script><script>x=1</script><img src=x onerror=x=1>\"'&\u2028"
    html = write_report(write_removal(tmp_path / "run", text=hostile)).read_text("utf-8")
    assert len(re.findall(r"<script\b", html)) == len(re.findall(r"</script>", html)) == 3
    assert "<img" not in html
    assert hostile in unescape(html)


@pytest.mark.parametrize("name", ["k", "gates", "baseline", "conditions", "directions", "heads"])
def test_a_result_without_its_parts_is_named(tmp_path: Path, name: str) -> None:
    run = write_removal(tmp_path / "run", entries={name: None})
    with pytest.raises(InputError, match=r"result\.json: is not the result of a removal"):
        write_report(run)


def test_a_run_of_another_kind_is_refused_with_what_there_is(tmp_path: Path) -> None:
    run = write_atlas(tmp_path / "run", ("en-de",))
    record = json.loads((run / "run.json").read_bytes()) | {"command": "of tomorrow"}
    (run / "run.json").write_text(json.dumps(record), "utf-8")
    with pytest.raises(InputError, match=r"there are reports of: atlas, .*verify removal"):
        write_report(run)
