"""Every command that draws controls draws any that its help lists, and shows them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from command_runs import CommandRun
from conftest import json_of
from headscope.settings import options_in
from headscope.studies.registry import COMMANDS, study_of


def takes_controls(made: CommandRun) -> bool:
    """Whether a run is of a command whose `--control` lists the one below, and has drawn some."""
    if made.command not in COMMANDS:
        return False
    options = options_in(study_of(made.command).settings)
    names = {each.name for each in options if "equal norm" in each.option.help}
    result = json.loads((made.folder / "result.json").read_text("utf-8"))
    return "control" in names and any(
        each["draw"] is not None for each in result.get("conditions", ())
    )


def test_any_listed_control_can_be_drawn_and_shown_alone(
    command_runs: list[CommandRun], command: Callable[..., Any], tmp_path: Path
) -> None:
    """Heads with outputs as large, without random ones beside them."""
    wrong, drawn = {}, set()
    for made in filter(takes_controls, command_runs):
        out = tmp_path / made.folder.parent.name / made.folder.name
        with contextlib.chdir(made.folder.parent.parent):
            found = command(
                *made.command.split(), *made.arguments,
                "--control", "equal-norm", "--out", out, "--json",
            )  # fmt: skip
        shown = command("report", out, "--out", out / "again.html")
        if found.code or shown.code:
            wrong[made.command] = found.err, shown.err
            continue
        given = set(json_of(found.out)["controls"])
        assert "equal norm" in given, made.command
        assert not given & {"random", "same layers", "shuffled"}, made.command
        drawn.add(made.command)
    assert not wrong and len(drawn) > 15
