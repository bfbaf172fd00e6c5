"""`headscope architectures`: the architectures that headscope is checked against."""

from __future__ import annotations

from headscope.studies.check import (
    Architectures,
    ArchitecturesResult,
    architectures,
    architectures_page,
)
from headscope.studies.study import OUT_FILE, Study


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
