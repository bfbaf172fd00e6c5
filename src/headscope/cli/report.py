"""`headscope report`: a run folder as one HTML file."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

from typer import Argument

from headscope.cli import old_options as options
from headscope.cli.output import emit
from headscope.errors import InputError


def report(
    runs: Annotated[list[Path], Argument(metavar="RUN...", help="Folders of finished runs.")],
    out: options.OutFile = None,
    as_json: options.AsJson = False,
) -> None:
    """Write the HTML report of each run, without --out as report.html in its folder."""
    started = time.monotonic()
    from headscope.report import write_report
    from headscope.runs import Signature, file_digest

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
    result = {
        "signature": str(Signature.of("report", {}, inputs)),
        "run": files[0],
        "seconds": time.monotonic() - started,
        "reports": [file.resolve() for file in files],
    }
    emit(result, as_json, "\n".join(f"report: {file.resolve()}" for file in files))


command = report
