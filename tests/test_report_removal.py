"""What a removal shows: its numbers, what was not computed, and what weakens it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headscope.errors import InputError
from headscope.evidence.headline import NOT_SHOWN, OPEN, SHOWN, UNTESTED
from headscope.results.common import Leakage
from headscope.results.removal import Measuring, RemovalResult, Removed, removal_of
from headscope.runs.folder import reopen_run
from headscope.runs.reading import result_of
from headscope.shown.blocks import Lines, NotMeasured, Sentences, Shown, Table
from headscope.studies.report import write_report
from headscope.studies.study import shown_of
from headscope.studies.verify.removal import command
from removal_report_helpers import blocks_of, rows_of, write_removal

ALL = "Under every condition"


def shown(run: Path) -> Shown:
    return shown_of(command, result_of(run, RemovalResult, "a removal"), run)


def cautions(run: Path) -> str:
    return " ".join(shown(run).cautions)


def other(tmp_path: Path, **details: Any) -> Path:
    return write_removal(tmp_path / "other", details=details)


def test_what_was_not_computed_is_no_zero(tmp_path: Path) -> None:
    missing = blocks_of(shown(write_removal(tmp_path / "run")), NotMeasured)
    assert [(one.title, one.why) for one in missing] == [
        ("COMET", "not installed"),
        ("BLEURT", "not installed"),
    ]
    missing = blocks_of(shown(other(tmp_path, removed=Removed(measuring=Measuring()))), NotMeasured)
    assert {one.why for one in missing} == {"the run does not say why"}


def test_without_random_heads_nothing_is_said_of_them(tmp_path: Path) -> None:
    run = write_removal(tmp_path / "run", draws=0)
    told = shown(run)
    assert UNTESTED in removal_of(run).verdict
    assert told.figure is None and "no set was drawn" in told.uncertainty
    assert not any("minus random" in table.title for table in blocks_of(told, Table))


def test_the_verdict_is_that_of_both_controls(tmp_path: Path) -> None:
    few, many = write_removal(tmp_path / "few"), write_removal(tmp_path / "many", draws=19)
    less = write_removal(tmp_path / "less", draws=19, top=89.0)
    assert f": {OPEN}" in removal_of(few).verdict
    assert removal_of(many).verdict.endswith(f": {SHOWN}, also against those of the same layers")
    assert f": {NOT_SHOWN}" in removal_of(less).verdict


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"leakage": Leakage(known=False, overlap=None, of=9)}, "not recorded which"),
        ({"leakage": Leakage(known=True, overlap=3, of=9)}, "3 of 9 sentence pairs were used"),
    ],
)
def test_cautions_follow_from_the_run(tmp_path: Path, more: dict[str, Any], said: str) -> None:
    assert cautions(write_removal(tmp_path / "run", draws=19)) == ""
    assert said in cautions(other(tmp_path, **more))


def test_few_sentences_and_no_control_of_the_layers_are_cautions(tmp_path: Path) -> None:
    few = cautions(write_removal(tmp_path / "few", sentences=5, matched=False))
    assert "in only 32 ways, so p over sentences is hardly below 0.031" in few
    assert "No random heads of the same layers were drawn" in few


def test_zero_and_mean_stand_in_one_table(tmp_path: Path) -> None:
    run = write_removal(tmp_path / "run", kinds=("mean", "zero"))
    told = shown(run)
    # The finding is of the first kind, whose draws are its own.
    assert "chrF++ falls by 35.0" in told.finding[0] and "mean output" in told.finding[0]
    rows = rows_of(told, ALL)
    assert rows["14 selected, removed"]["chrF++"].value == 20.0
    assert rows["14 selected, replaced by mean output"]["chrF++"].value == 55.0
    (outputs,) = blocks_of(told, Sentences)
    assert all(one.outputs["selected"].endswith(" mean") for one in outputs.sentences)


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


def test_a_result_without_its_parts_is_named(tmp_path: Path) -> None:
    run = write_removal(tmp_path / "run")
    result = json.loads((run / "result.json").read_bytes())
    with reopen_run(run) as again:
        again.finish({**result, "conditions": 3})
    with pytest.raises(InputError, match=r"result\.json: is not the result of `headscope verify"):
        write_report(run)
