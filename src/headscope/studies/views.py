"""A finished run in Python: its result read back, as frames, as a figure, as a page."""

from __future__ import annotations

from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

from headscope.errors import InputError
from headscope.report.figures import figure_of
from headscope.report.frames import frames_of
from headscope.report.notebook import page_in_frame
from headscope.report.page import page_of
from headscope.runs import Result
from headscope.runs.reading import naming, read_object, result_of
from headscope.shown.blocks import Shown
from headscope.studies.registry import study_of
from headscope.studies.study import shown_of


def read_run(folder: str | PathLike[str]) -> Any:
    """The typed result of a finished run; `InputError` if the folder is none, or damaged."""
    path = Path(folder)
    study = study_of(_command(path))
    result = result_of(path, study.result, f"`headscope {_command(path)}`")
    return replace(result, run=str(path))  # the folder may have been moved


def frames(result: Result) -> Any:
    """Its tables as pandas frames by title; the frame itself where there is one."""
    return frames_of(_shown(result))


def figure(result: Result, title: str = "") -> Any:
    """A picture of it as a matplotlib figure: the first, or the one of this title."""
    return figure_of(_shown(result), title)


def framed(result: Result) -> str:
    """Its report in a frame, as a notebook shows it."""
    folder = _folder(result)
    return page_in_frame(page_of(_shown(result), folder, _command(folder)))


def _shown(result: Result) -> Shown:
    folder = _folder(result)
    study = study_of(_command(folder))
    if study.show is None:
        raise InputError(f"`headscope {_command(folder)}` has nothing to draw")
    with naming(folder / "result.json", f"`headscope {_command(folder)}`"):
        return shown_of(study, result, folder)


def _folder(result: Result) -> Path:
    if result.run is None:
        raise InputError("this result has no run folder, so there is nothing to draw")
    return Path(result.run)


def _command(folder: Path) -> str:
    return str(read_object(folder / "run.json").get("command"))
