"""What a removal shows: its numbers, what was not computed, and what weakens it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headscope.errors import InputError
from headscope.results.removal import RemovalResult, removal_of
from headscope.runs.reading import result_of
from headscope.shown.blocks import Lines, NotMeasured, Sentences, Shown
from headscope.studies.report import write_report
from headscope.studies.sentences import read_sentences
from headscope.studies.study import shown_of
from headscope.studies.verify.removal import command
from removal_report_helpers import blocks_of, rows_of, write_removal

ALL = "Translations under every condition"


def shown(run: Path) -> Shown:
    return shown_of(command, result_of(run, RemovalResult, "a removal"), run)


def cautions(run: Path) -> str:
    return " ".join(shown(run).cautions)


def other(tmp_path: Path, **entries: Any) -> Path:
    return write_removal(tmp_path / "other", entries=entries)


def test_what_was_not_computed_is_no_zero(tmp_path: Path) -> None:
    missing = blocks_of(shown(write_removal(tmp_path / "run")), NotMeasured)
    assert [(one.title, one.why) for one in missing] == [
        ("COMET", "not installed"),
        ("BLEURT", "not installed"),
    ]
    missing = blocks_of(shown(other(tmp_path, not_measured={})), NotMeasured)
    assert {one.why for one in missing} == {"the run does not say why"}


def test_without_random_heads_nothing_is_said_of_them(tmp_path: Path) -> None:
    told = shown(write_removal(tmp_path / "run", draws=0))
    assert "there are no random heads to compare with" in told.finding[0]
    assert "Tests" not in [part.title for part in told.sections]
    less = shown(write_removal(tmp_path / "less", top=89.0))
    assert "The selected heads matter less than random ones here." in less.finding


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"leakage": {"known": False, "overlap": None, "of": 9}}, "not recorded which"),
        ({"leakage": {"known": True, "overlap": 3, "of": 9}}, "3 of 9 sentence pairs were used"),
        ({"pool_note": "heads hold no scores"}, "Heads hold no scores."),
        ({"pool": "outside"}, "drawn from all heads outside the selected ones"),
    ],
)
def test_cautions_follow_from_the_run(tmp_path: Path, more: dict[str, object], said: str) -> None:
    assert cautions(write_removal(tmp_path / "run")) == ""
    assert said in cautions(other(tmp_path, **more))


def test_few_sentences_and_no_control_of_the_layers_are_cautions(tmp_path: Path) -> None:
    few = cautions(write_removal(tmp_path / "few", sentences=5, matched=False))
    assert "in only 32 ways, so p over sentences is hardly below 0.031" in few
    assert "No random heads of the same layers were drawn" in few


def test_zero_and_mean_stand_in_one_table(tmp_path: Path) -> None:
    run = write_removal(tmp_path / "run", kinds=("mean", "zero"))
    told = shown(run)
    # The finding is of the first kind, whose draws are its own.
    assert "falls from 90.0 to 55.0" in told.finding[0]
    rows = rows_of(told, ALL)
    assert rows["14 selected, removed"]["chrF++"].value == 20.0
    assert rows["14 selected, replaced by mean output"]["chrF++"].value == 55.0
    (outputs,) = blocks_of(told, Sentences)
    assert all(one.outputs["top"].endswith(" mean") for one in outputs.sentences)
    assert outputs.sentences == read_sentences(
        run, 14, 0.0, {"baseline": 0, "top": 19, "random": 21, "random-layer-matched": 29}, "mean"
    )
    plain = write_removal(tmp_path / "plain")
    zero = [one for one in removal_of(run).conditions if one.label.ablate == "zero"]
    assert list(removal_of(plain).conditions) == zero


def test_an_output_in_another_example_is_named_where_it_stands(tmp_path: Path) -> None:
    told = shown(write_removal(tmp_path / "run", kinds=("resample", "zero")))
    assert "14 selected, replaced by output in another example" in rows_of(told, ALL)
    assert "their output in another example" in dict(told.facts)["removed heads give"]
    (method,) = (each.after for each in told.sections if each.title == "Method")
    assert "under zero ablation but not under resample ablation" in " ".join(method)
    apart = shown(write_removal(tmp_path / "apart", kinds=("mean", "resample")))
    (method,) = (each.after for each in apart.sections if each.title == "Method")
    assert "zero ablation" not in " ".join(method)


def test_filled_up_draws_are_told_with_what_they_share(tmp_path: Path) -> None:
    run = write_removal(tmp_path / "run")
    rows = json.loads((run / "result.json").read_bytes())["conditions"]
    drawn = [one for one in rows if one["kind"] != "top" and one["k"] == 14]
    for one in drawn:
        if one["draw"] == 1:
            one["filled_up"] = 3
    alike = len(set.intersection(*(set(one["heads"]) for one in drawn[:4])))
    said = cautions(other(tmp_path, conditions=rows))
    assert "up to 3 heads of a draw, in 1 of 4 draws, are token alignment heads" in said
    assert "up to 3 heads of a draw, in 1 of 4 draws of the same layers, come from" in said
    assert said.count(f"All 4 share {alike}.") == 2
    single = [one for one in rows if one["kind"] == "top" or one["draw"] == 1]
    said = cautions(write_removal(tmp_path / "one", entries={"conditions": single}))
    assert "in 1 of 1 draw" in said and "All 1 share" not in said


def test_draws_that_repeat_count_once(tmp_path: Path) -> None:
    run = write_removal(tmp_path / "run")
    rows = json.loads((run / "result.json").read_bytes())["conditions"]
    for row in rows:
        if row["kind"] == "top":
            row |= {"p_draws_layer_matched": 1 / 3, "distinct_draws_layer_matched": 2}
    told = shown(other(tmp_path, conditions=rows))
    tests = rows_of(told, "Selected minus random")
    matched = tests["chrF++: 14 selected, removed \u2212 random, same layers"]
    assert (matched["different sets"].value, matched["p over draws"].value) == (2, 1 / 3)
    assert "Only 2 of 4 draws of the same layers are different sets" in " ".join(told.cautions)


def test_doses_are_there_where_there_are_several(tmp_path: Path) -> None:
    assert blocks_of(shown(write_removal(tmp_path / "one", k=(14,))), Lines) == []
    told = shown(write_removal(tmp_path / "several", k=(14,), gates=(0.0, 0.5, 2.0)))
    (lines,) = blocks_of(told, Lines)
    selected, random, _ = lines.series
    assert selected.points == ((0.0, 20.0), (0.5, 55.0), (1, 90.0), (2.0, 20.0))
    assert random.band[0] == (0.0, 79.0, 82.0)


@pytest.mark.parametrize("left", [None, ""])
def test_a_run_without_its_outputs_says_so(tmp_path: Path, left: str | None) -> None:
    run = write_removal(tmp_path / "run")
    (run / "outputs.jsonl").unlink() if left is None else (run / "outputs.jsonl").write_text(left)
    missing = blocks_of(shown(run), NotMeasured, "Outputs")
    assert [one.why for one in missing] == ["outputs.jsonl of the run folder is missing or empty"]


def test_words_without_links_are_named(tmp_path: Path) -> None:
    run = write_removal(tmp_path / "run", sentences=3)
    assert "are not linked." not in write_report(run).read_text("utf-8")
    lines = (run / "links.jsonl").read_text("utf-8").splitlines(keepends=True)
    kept = [line for line in lines if "random-layer-matched" not in line]
    (run / "links.jsonl").write_text("".join(kept), "utf-8")
    named = "The words of \u201cRandom, same layers, removed\u201d are not linked"
    assert named in write_report(run).read_text("utf-8")


@pytest.mark.parametrize("name", ["k", "conditions"])
def test_a_result_without_its_parts_is_named(tmp_path: Path, name: str) -> None:
    run = write_removal(tmp_path / "run", entries={name: None})
    with pytest.raises(InputError, match=r"result\.json: is not the result of `headscope verify"):
        write_report(run)
