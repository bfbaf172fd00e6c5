"""A finished run: its report as one HTML file; in Python its result, frames and figures."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Annotated, Any

from headscope.errors import InputError, need
from headscope.heads.hub import Artifact
from headscope.heads.store import write_bytes
from headscope.report.figures import figure_of
from headscope.report.frames import frames_of, tables_of
from headscope.report.notebook import artifact_page, block_of, page_in_frame
from headscope.report.page import page_of, render
from headscope.results.common import ComparedResult
from headscope.runs import Result, Signature, entry, file_digest
from headscope.runs.reading import naming, read_object, result_of, result_so_far
from headscope.settings import Option, Settings
from headscope.shown.blocks import Cell, Forest, Row, Section, Shown, Table
from headscope.shown.words import count
from headscope.studies.registry import COMMANDS, study_of
from headscope.studies.study import OUT_FILE, Study, shown_of


@dataclass(frozen=True)
class Report(Settings):
    """Write the HTML report of each run, as report.html in its folder.

    Of several runs also one page with the verdict of each, beside their folders or where --out
    says; --out of a single run is its report.
    """

    folders: Annotated[
        tuple[Path, ...], Option("Folders of finished runs.", metavar="RUN...", argument=True)
    ]


def write_report(run: str | PathLike[str], out: str | PathLike[str] | None = None) -> Path:
    """Write the report of a run as one HTML file and return its path; of one that has not ended
    what it shows so far, where it tells.

    `out` is the file, by default `report.html` in the run folder; an earlier report there is
    replaced, whole or not at all. The file needs no network and nothing beside it. InputError if
    `run` is no run, or one that tells nothing yet, is damaged, or comes from a command that has no
    report.
    """
    folder = Path(run)
    shown, command = _read(folder)
    with naming(folder / "result.json", f"`headscope {command}`"):
        document = render(page_of(shown, folder, command))
    return _write(folder / "report.html" if out is None else Path(out), document)


def write_overview(
    runs: Sequence[str | PathLike[str]], out: str | PathLike[str] | None = None
) -> Path:
    """Write what each of several runs found as one table in one HTML file, and return its path.

    A row a run: its model and command, its finding, and of a comparison the differences that its
    figure begins with. `out` is the file, by default `reports.html` in the folder that all of them
    lie in; runs below that file's folder are linked. Raises `InputError` as `write_report` does.
    """
    folders = [Path(run).resolve() for run in runs]
    around = Path(os.path.commonpath([folder.parent for folder in folders]))
    file = (around / "reports.html" if out is None else Path(out)).resolve()
    runs_shown = {folder: _read(folder) for folder in folders}
    gaps = {folder: _first_gaps(shown) for folder, (shown, _) in runs_shown.items()}
    controls = dict.fromkeys(control for own in gaps.values() for control in own)
    rows = [
        Row(
            folder.name,
            (
                Cell(command, link=_link(folder, file)),
                Cell(_model(shown)),
                Cell(shown.warning if shown.muted else " ".join(shown.finding[:1])),
                *(gaps[folder].get(control, Cell()) for control in controls),
            ),
        )
        for folder, (shown, command) in runs_shown.items()
    ]
    table = Table(
        "What each run found",
        ("command", "model", "finding", *(f"selected \u2212 {control}" for control in controls)),
        tuple(sorted(rows, key=lambda row: [cell.words for cell in row.cells[:2]])),
        note="Differences are of the first row of a run's figure, in the unit of its finding",
    )
    models = {_model(shown) for shown, _ in runs_shown.values()}
    shown = Shown(
        "Runs side by side",
        "What did each run find?",
        [f"{count(len(rows), 'run')} of {count(len(models), 'model')}."],
        sections=[Section("Runs", [table])],
    )
    return _write(file, render(page_of(shown, None, "report")))


def _model(shown: Shown) -> str:
    return dict(shown.facts).get("model", "")


def _first_gaps(shown: Shown) -> dict[str, Cell]:
    """The differences from each control that a figure begins with, with their intervals."""
    if not isinstance(shown.figure, Forest) or not shown.figure.rows:
        return {}
    (_, first), *_ = shown.figure.rows
    return {gap.control: Cell.of(gap, shown.figure.digits) for gap in first}


def _link(folder: Path, file: Path) -> str:
    """The report of a run, from a page that lies above it."""
    place = folder / "report.html"
    return str(place.relative_to(file.parent)) if place.is_relative_to(file.parent) else ""


def _write(file: Path, document: str) -> Path:
    if file.is_dir():
        raise InputError(f"{file}: is a folder; name a file for the report")
    file.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(file, document.encode())
    return file


def _read(folder: Path) -> tuple[Shown, str]:
    """What a run shows, or shows so far, and its command."""
    if not folder.is_dir():
        raise InputError(f"{folder}: is not a folder; name the folder of a finished run")
    command = _command(folder)
    if not _has_page(command):
        raise InputError(
            f"{folder}: holds a run of '{command}', which has no report; "
            f"there are reports of: {', '.join(filter(_has_page, COMMANDS))}"
        )
    what = f"`headscope {command}`"
    if (folder / "DONE.json").exists():
        with naming(folder / "result.json", what):
            shown = _shown(read_run(folder), folder)
    else:
        so_far = result_so_far(folder, study_of(command).result, what)
        if so_far is None:
            raise InputError(
                f"{folder}: this run is not finished; run the same command again to finish it"
            )
        shown = _shown(replace(so_far, pending=True), folder)
    return shown, command


def read_run(folder: str | PathLike[str]) -> Any:
    """The typed result of a finished run; `InputError` if the folder is none, or damaged."""
    path = Path(folder)
    command = _command(path)
    result = result_of(path, study_of(command).result, f"`headscope {command}`")
    return replace(result, run=str(path))  # the folder may have been moved


def read_tests(*runs: str | PathLike[str] | Result) -> Any:
    """The tests of runs of any commands that compare heads, or of their results, in one pandas
    frame: a row a test, with its `run` and `command`.

    `difference`, from `low` to `high`, is the statistic under the selected heads minus the mean of
    the control's draws; numbers that are not known are NaN. Raises `InputError` for a run that
    compares no heads with a control, and as `read_run` does.
    """
    frames = []
    for run in runs:
        result = run if isinstance(run, Result) else read_run(run)
        command = _command(_folder(result))
        if not isinstance(result, ComparedResult):
            raise InputError(f"{result.run}: a run of `headscope {command}` has no tests")
        tests = tables_of(result)["tests"]
        tests.insert(0, "run", result.run)
        tests.insert(1, "command", command)
        frames.append(tests)
    if not frames:
        raise InputError("no run is named; name the folders of finished runs")
    return need("pandas", "a data frame", "plot").concat(frames, ignore_index=True)


def frames(value: Result | Artifact) -> Any:
    """Of a result that compares heads `levels` and `tests`, of one that scores heads `scores`; of
    others their tables as pandas frames by title, the frame itself where there is one."""
    rows = tables_of(value) if isinstance(value, Result) else {}
    if isinstance(value, ComparedResult):
        return rows
    named = {**rows, **frames_of(_blocks(value))}
    if not named:
        raise InputError("this run shows no tables")
    return named if rows or len(named) > 1 else next(iter(named.values()))


def concluded(result: Result) -> Result:
    """The result with what its page says: the finding as its verdict, unless it has one, and every
    caution. Of a command without a page it is as it is."""
    if result.command not in COMMANDS and not result.command.startswith("reproduce "):
        return result
    study = study_of(result.command)
    if study.show is None:
        return result
    shown = shown_of(study, result, _folder(result))
    cautions = dict.fromkeys([*([shown.warning] if shown.warning else []), *shown.cautions])
    verdict = result.verdict or " ".join(shown.finding)
    return replace(result, verdict=verdict, cautions=tuple(cautions))


def figure(value: Result | Artifact, title: str, ax: Any = None) -> Any:
    """A picture of it as a matplotlib figure: the first, or the one of this title; in `ax`."""
    return figure_of(_blocks(value), title, ax)


def framed(value: Result | Artifact) -> str:
    """Its report, or its map of heads, in a frame, as a notebook shows it."""
    if isinstance(value, Artifact):
        return page_in_frame(artifact_page(value))
    folder = _folder(value)
    return page_in_frame(page_of(_shown(value, folder), folder, _command(folder)))


def _blocks(value: Result | Artifact) -> Shown:
    if isinstance(value, Artifact):
        return Shown("", "", [], sections=[Section("", [block_of(value)])])
    return _shown(value, _folder(value))


def _shown(result: Result, folder: Path) -> Shown:
    command = _command(folder)
    study = study_of(command)
    if study.show is None:
        raise InputError(f"`headscope {command}` has nothing to draw")
    with naming(folder / "result.json", f"`headscope {command}`"):
        return shown_of(study, result, folder)


def _folder(result: Result) -> Path:
    if result.run is None:
        raise InputError("this result has no run folder, so there is nothing to draw")
    return Path(result.run)


def _command(folder: Path) -> str:
    return str(read_object(folder / "run.json").get("command"))


def _has_page(command: str) -> bool:
    known = command in COMMANDS or command.startswith("reproduce ")
    return known and study_of(command).show is not None


@dataclass(frozen=True, kw_only=True)
class Reports(Result):
    """The pages that were written; `run` is the first report, `overview` that of all runs."""

    reports: tuple[str, ...]
    overview: str | None = entry(absent=True)


def _report(config: Report, out: Path | None) -> Reports:
    started = time.monotonic()
    runs = config.folders
    if out is not None and out.is_file() and out.read_bytes()[:9].lower() != b"<!doctype":
        raise InputError(f"{out} exists and holds no report; name another file with --out")
    alone = len(runs) == 1
    files = [write_report(run, out if alone else None) for run in runs]
    overview = None if alone else str(write_overview(runs, out))
    # A report follows from the runs it shows.
    inputs = {str(number): file_digest(run / "run.json") for number, run in enumerate(runs, 1)}
    return Reports(
        signature=str(Signature.of("report", {}, inputs)),
        run=str(files[0]),
        seconds=time.monotonic() - started,
        reports=tuple(str(file.resolve()) for file in files),
        overview=overview,
    )


def _text(result: Reports) -> str:
    overview = [f"overview: {result.overview}"] if result.overview else []
    return "\n".join([*overview, *(f"report: {file}" for file in result.reports)])


command = Study(Report, _report, _text, out=OUT_FILE, usage="runs/found")
