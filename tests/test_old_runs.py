"""Finished runs of 0.1.0 and 0.2.0 stay readable, reportable and measurable.

They were made by those versions themselves, with a tiny model.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headscope.studies.report import write_report

OLD = Path(__file__).parent / "data" / "old_runs"
RUNS = sorted(path.parent for path in OLD.glob("*/*/DONE.json"))


def test_there_are_runs_of_both_versions() -> None:
    assert {path.parent.name for path in RUNS} == {"0.1.0", "0.2.0"}


@pytest.mark.parametrize("run", RUNS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_a_run_of_an_older_version_has_a_report(run: Path, tmp_path: Path) -> None:
    page = write_report(run, tmp_path / "report.html").read_text("utf-8")
    assert json.loads((run / "result.json").read_text("utf-8"))["signature"] in page


@pytest.mark.parametrize("version", ["0.1.0", "0.2.0"])
def test_a_removal_of_an_older_version_is_measured_again(
    version: str, tmp_path: Path, command: Callable[..., Any]
) -> None:
    shutil.copytree(OLD / version / "verify-removal", tmp_path / "run")
    before = json.loads((tmp_path / "run" / "result.json").read_text("utf-8"))
    assert command("verify", "measure", tmp_path / "run").code == 0
    after = json.loads((tmp_path / "run" / "result.json").read_text("utf-8"))
    assert after.keys() >= before.keys()
    for old, new in zip(before["conditions"], after["conditions"], strict=True):
        assert new["heads"] == old["heads"]
        shown = [name for name in ("chrf", "nll") if name in old]
        assert shown and [new[name] for name in shown] == pytest.approx(
            [old[name] for name in shown]
        )
