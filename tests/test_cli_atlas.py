"""`headscope atlas` and `headscope report`, with a tiny model."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conftest import json_of
from lm_helpers import saved

Command = Callable[..., Any]
WORDS = (("dog", "Hund"), ("cat", "Kater"), ("bird", "Vogel"), ("fish", "Fisch"), ("cow", "Rind"))


@pytest.fixture(scope="module")
def arguments(tmp_path_factory: pytest.TempPathFactory) -> tuple[object, ...]:
    """A small atlas; the folder's name is longer than a line of a terminal."""
    folder = tmp_path_factory.mktemp("atlas")
    rows = [f"the {a} sees a {c}\tder {b} sieht {d}\t0-0 1-1 2-2 4-3" for a, b in WORDS
            for c, d in WORDS]  # fmt: skip
    (folder / "pairs.tsv").write_text("\n".join(["source\ttarget\tlinks", *rows]) + "\n")
    model = saved(folder / "model")
    out = folder / "-".join(["a-long-name"] * 9)
    return (
        "atlas", model, "--data", folder / "pairs.tsv", "--pair", "en-de", "--draws", 2,
        "--verify-limit", 2, "--max-new-tokens", 3, "--out", out,
    )  # fmt: skip


def test_controls_are_those_of_every_comparison(
    command: Command, arguments: tuple[object, ...], tmp_path: Path
) -> None:
    """Random heads and those of the same layers; others by name, as `verify removal` draws them."""
    told = json_of(command(*arguments, "--json").out)
    assert [*told["controls"]] == ["random", "same layers"]
    named = (*arguments[:-1], tmp_path / "named", "--control", "outside", "--control", "equal-norm")
    third = sorted((each["score"] for each in told["scores"]), reverse=True)[2]
    made = command(*named, "--threshold", third, "--json")
    assert made.code == 0, made.err
    told = json_of(made.out)
    assert [*told["controls"]] == ["outside", "equal norm"]
    (own,) = ({*each["heads"]} for each in told["conditions"] if each["kind"] == "selected")
    rows = [row for row in told["scores"] if row["score"] > third]
    aligned = {f"{row['layer']}.{row['head']}" for row in rows}
    drawn = [each for each in told["conditions"] if each["draw"] is not None]
    assert aligned and {len(each["heads"]) for each in drawn} == {len(own)}
    for each in drawn:
        assert each["kind"] != "outside" or not {*each["heads"]} & (own | aligned)


def test_the_report_can_be_written_again_elsewhere(
    command: Command, arguments: tuple[object, ...], tmp_path: Path
) -> None:
    assert command(*arguments).code == 0
    run, file = Path(str(arguments[-1])), tmp_path / "again.html"
    code, said, _ = command("report", run, "--out", file, "--json")
    told = json_of(said)
    assert code == 0
    assert (told["run"], told["reports"]) == (str(file), [str(file)])
    assert file.read_bytes() == (run / "report.html").read_bytes()
    assert command("report", run).out == f"report: {(run / 'report.html').resolve()}\n"


def test_of_several_runs_one_page_tells_the_findings(
    command: Command, arguments: tuple[object, ...], tmp_path: Path
) -> None:
    assert command(*arguments).code == 0
    run, page = Path(str(arguments[-1])), tmp_path / "all.html"
    told = json_of(command("report", run, run, "--out", page, "--json").out)
    assert told["overview"] == str(page.resolve())
    assert told["reports"] == [str((run / "report.html").resolve())] * 2
    assert page.read_text("utf-8").count(">atlas</") == 1  # one run, though it is named twice


def test_a_report_replaces_reports_alone(
    command: Command, arguments: tuple[object, ...], tmp_path: Path
) -> None:
    assert command(*arguments).code == 0
    file = tmp_path / "mine.txt"
    file.write_text("mine")
    code, said, err = command("report", arguments[-1], "--out", file)
    assert (code, said, file.read_text()) == (2, "", "mine")
    assert "holds no report" in err


def test_a_moved_run_tells_where_it_is_now(
    command: Command, arguments: tuple[object, ...], tmp_path: Path
) -> None:
    assert command(*arguments).code == 0
    moved = tmp_path / "moved"
    shutil.copytree(str(arguments[-1]), moved)
    told = json_of(command(*arguments[:-1], moved, "--json").out)
    assert told["run"] == str(moved)
    assert told["report"] == str(moved.resolve() / "report.html")


def test_the_advice_for_a_damaged_result_helps(
    command: Command, arguments: tuple[object, ...], tmp_path: Path
) -> None:
    assert command(*arguments).code == 0
    run = tmp_path / "damaged"
    shutil.copytree(str(arguments[-1]), run)
    (run / "result.json").write_text("{")
    for again in (("report", run), (*arguments[:-1], run)):
        code, _, err = command(*again)
        assert code == 2
        assert "delete DONE.json and run the same command again" in err
    (run / "DONE.json").unlink()
    assert command(*arguments[:-1], run).code == 0
