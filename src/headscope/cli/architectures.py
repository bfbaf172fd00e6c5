"""`headscope architectures`: the architectures that headscope is checked against."""

from __future__ import annotations

import time

from headscope.cli import options
from headscope.cli.output import emit
from headscope.errors import InputError


def architectures(out: options.OutFile = None, as_json: options.AsJson = False) -> None:
    """Build a tiny model of each known architecture, check it, and print the table.

    Takes some minutes; the table is Markdown.
    """
    started = time.monotonic()
    from headscope.data.files import write_text_atomically
    from headscope.lm.matrix import as_page, matrix
    from headscope.runs import Signature, collect_provenance

    reports = matrix()
    text = as_page(reports).rstrip("\n")
    if out is not None:
        write_text_atomically(out, f"{text}\n")
    versions = collect_provenance()
    key = Signature.of("architectures", {}, {"transformers": str(versions["transformers"])})
    failed = [report.name for report in reports if not report.passed]
    result = {
        "signature": str(key),
        "run": out,
        "seconds": time.monotonic() - started,
        "architectures": reports,
        "failed": failed,
    }
    emit(result, as_json, text if out is None else f"{out}: {len(reports)} architectures")
    if failed:
        raise InputError(
            f"{', '.join(failed)}: gates or peaks differ from the slow reference with the "
            "installed version of transformers; use one that the table in the documentation names"
        )
