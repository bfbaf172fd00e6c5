"""`headscope architectures`: the architectures that headscope is checked against."""

from __future__ import annotations

import time
from typing import Annotated

from typer import Option

from headscope.cli import old_options as options
from headscope.cli.output import emit, progress
from headscope.errors import InputError

Registered = Annotated[
    bool,
    Option("--registered", help="Also try every causal language model transformers registers."),
]


def architectures(
    registered: Registered = False, out: options.OutFile = None, as_json: options.AsJson = False
) -> None:
    """Build a tiny model of each known architecture, check it, and print the table.

    Takes half a minute, and ten minutes with `--registered`; the table is Markdown.
    """
    started = time.monotonic()
    from headscope.data.files import write_text_atomically
    from headscope.lm.matrix import as_page, matrix
    from headscope.lm.registered import Trial, trials_markdown, try_all
    from headscope.lm.registered import registered as all_names
    from headscope.runs import Signature, collect_provenance

    versions = collect_provenance()
    trials: list[Trial] = []
    if registered:
        names = all_names()
        with progress() as show:
            for trial in try_all(names):
                trials.append(trial)
                show("architectures", len(trials), len(names))
    reports = matrix()
    text = as_page(reports).rstrip("\n")
    if registered:
        text = f"{text}\n\n{trials_markdown(trials, str(versions['transformers']))}".rstrip("\n")
    if out is not None:
        write_text_atomically(out, f"{text}\n")
    key = Signature.of("architectures", {}, {"transformers": str(versions["transformers"])})
    failed = [report.name for report in reports if not report.passed]
    result = {
        "signature": str(key),
        "run": out,
        "seconds": time.monotonic() - started,
        "architectures": reports,
        "registered": trials if registered else None,
        "failed": failed,
    }
    emit(result, as_json, text if out is None else f"{out}: {len(reports)} architectures")
    if failed:
        raise InputError(
            f"{', '.join(failed)}: gates or peaks differ from the slow reference with the "
            "installed version of transformers; use one that the table in the documentation names"
        )


command = architectures
