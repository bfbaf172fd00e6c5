"""`headscope atlas` and `headscope report`, with a tiny model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

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
        "--check", 2, "--max-new-tokens", 3, "--out", out,
    )  # fmt: skip


def test_the_last_line_names_the_report_whole(
    command: Command, arguments: tuple[object, ...]
) -> None:
    code, said, _ = command(*arguments)
    assert code == 0
    report = Path(str(arguments[-1])).resolve() / "report.html"
    assert said.splitlines()[-1] == f"report: {report}"
    assert report.read_text().lower().startswith("<!doctype html>")


def test_the_json_has_the_agreed_names(command: Command, arguments: tuple[object, ...]) -> None:
    code, said, _ = command(*arguments, "--json")
    told = json.loads(said)
    assert code == 0
    assert {"signature", "run", "seconds", "heads", "counts", "directions", "report"} <= set(told)
    assert Path(told["report"]).is_file()
    assert len(told["removal"]["conditions"]) == 3


def test_the_report_can_be_written_again_elsewhere(
    command: Command, arguments: tuple[object, ...], tmp_path: Path
) -> None:
    assert command(*arguments).code == 0
    run, file = Path(str(arguments[-1])), tmp_path / "again.html"
    code, said, _ = command("report", run, "--out", file, "--json")
    told = json.loads(said)
    assert code == 0
    assert (told["run"], told["reports"]) == (str(file), [str(file)])
    assert file.read_bytes() == (run / "report.html").read_bytes()
    assert command("report", run).out == f"report: {(run / 'report.html').resolve()}\n"


def test_one_file_cannot_hold_the_reports_of_several_runs(command: Command, tmp_path: Path) -> None:
    code, said, err = command("report", "one", "two", "--out", tmp_path / "report.html")
    assert (code, said) == (2, "")
    assert "--out names one file for 2 runs" in err
