"""`headscope report`: a run folder as one HTML file."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from headscope.cli.commands import OUT_FILE, Study
from headscope.errors import InputError
from headscope.settings import Option, Settings


@dataclass(frozen=True)
class Report(Settings):
    """Write the HTML report of each run, without --out as report.html in its folder."""

    folders: Annotated[
        tuple[Path, ...], Option("Folders of finished runs.", metavar="RUN...", argument=True)
    ]


def _report(config: Report, out: Path | None) -> dict[str, Any]:
    started = time.monotonic()
    from headscope.report import write_report
    from headscope.runs import Signature, file_digest

    runs = config.folders
    if out is not None and len(runs) > 1:
        raise InputError(
            f"--out names one file for {len(runs)} runs; leave it out, and each report goes into "
            "its own run folder"
        )
    if out is not None and out.is_file() and out.read_bytes()[:9].lower() != b"<!doctype":
        raise InputError(f"{out} exists and holds no report; name another file with --out")
    files = [write_report(run, out) for run in runs]
    # A report follows from the runs it shows.
    inputs = {str(number): file_digest(run / "run.json") for number, run in enumerate(runs, 1)}
    return {
        "signature": str(Signature.of("report", {}, inputs)),
        "run": files[0],
        "seconds": time.monotonic() - started,
        "reports": [file.resolve() for file in files],
    }


def _text(result: dict[str, Any]) -> str:
    return "\n".join(f"report: {file}" for file in result["reports"])


command = Study(Report, _report, _text, out=OUT_FILE)
