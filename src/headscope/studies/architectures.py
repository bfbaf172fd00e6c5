"""The architectures that headscope is checked against, as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from headscope.data.files import write_text_atomically
from headscope.progress import Progress
from headscope.runs import Result, Signature, collect_provenance
from headscope.settings import Option, Settings
from headscope.studies.study import OUT_FILE, Study

if TYPE_CHECKING:
    from headscope.lm.matrix import ArchitectureReport
    from headscope.lm.registered import Trial


@dataclass(frozen=True)
class Architectures(Settings):
    """Build a tiny model of each known architecture, check it, and print the table.

    Takes half a minute, and ten minutes with `--registered`; the table is Markdown.
    """

    registered: Annotated[
        bool, Option("Also try every causal language model transformers registers.")
    ] = False


@dataclass(frozen=True, kw_only=True)
class ArchitecturesResult(Result):
    """Every architecture, those that transformers registers if asked for, and who failed."""

    architectures: Sequence[ArchitectureReport]
    registered: Sequence[Trial] | None
    failed: Sequence[str]


def architectures(
    config: Architectures, out: Path | None, progress: Progress
) -> ArchitecturesResult:
    """Check them all, and write the page to `out` if that is given; the command's result."""
    from headscope.lm.matrix import matrix
    from headscope.lm.registered import registered, try_all

    trials: list[Trial] = []
    if config.registered:
        names = registered()
        for trial in try_all(names):
            trials.append(trial)
            progress("architectures", len(trials), len(names))
    versions = {"transformers": str(collect_provenance()["transformers"])}
    reports = matrix()
    result = ArchitecturesResult(
        signature=str(Signature.of("architectures", {}, versions)),
        run=None if out is None else str(out),
        architectures=reports,
        registered=trials if config.registered else None,
        failed=[report.name for report in reports if not report.passed],
    )
    if out is not None:
        write_text_atomically(out, f"{architectures_page(result)}\n")
    return result


def architectures_page(result: ArchitecturesResult) -> str:
    """The table of the architectures as Markdown, and below it what transformers registers."""
    from headscope.lm.matrix import as_page
    from headscope.lm.registered import trials_markdown

    page = as_page(result.architectures).rstrip("\n")
    if result.registered is None:
        return page
    version = str(collect_provenance()["transformers"])
    return f"{page}\n\n{trials_markdown(result.registered, version)}".rstrip("\n")


def _text(result: ArchitecturesResult) -> str:
    if result.run is None:
        return architectures_page(result)
    return f"{result.run}: {len(result.architectures)} architectures"


def _failure(result: ArchitecturesResult) -> str | None:
    if not result.failed:
        return None
    return (
        f"{', '.join(result.failed)}: gates or peaks differ from the slow reference with the "
        "installed version of transformers; use one that the table in the documentation names"
    )


command = Study(Architectures, architectures, _text, out=OUT_FILE, failure=_failure)
