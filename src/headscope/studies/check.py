"""Whether headscope runs on a model, and on the architectures that transformers knows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from headscope.data.files import write_text_atomically
from headscope.runs import Result, Signature, collect_provenance
from headscope.settings import Option, Part, Settings
from headscope.studies.inputs import DTYPE, MODEL_ARGUMENT, ModelChoice, Progress

if TYPE_CHECKING:
    from headscope.lm.matrix import ArchitectureReport
    from headscope.lm.registered import Trial

__all__ = ["Architectures", "Check", "architectures", "architectures_page", "check"]


@dataclass(frozen=True)
class Check(Settings):
    """Load a model and compare gates and peaks with slow references: does it run here?

    A few forward passes for each head; peaks are best compared in float32.
    """

    model: Annotated[
        ModelChoice,
        Part(changed={**MODEL_ARGUMENT.changed, "dtype": replace(DTYPE, default="float32")}),
    ] = field(default_factory=lambda: ModelChoice(dtype="float32"))


@dataclass(frozen=True, kw_only=True)
class CheckResult(Result):
    """Whether a model passed; `noise` is the largest difference of plain passes, None if none."""

    model: str
    revision: str | None
    layers: int
    total_heads: int
    passed: bool
    noise: float | None
    report: ArchitectureReport


def check(config: Check, progress: Progress) -> CheckResult:
    """Load the model and compare; the command's result."""
    from headscope.lm.matrix import check_model

    lm = config.model.load()
    report = check_model(lm, progress=partial(progress, "comparing with slow references"))
    settings = {"dtype": str(lm.dtype), "quantised": lm.quantised}
    return CheckResult(
        signature=str(Signature.of("check", settings, {"model": lm.digest})),
        model=lm.name,
        revision=lm.revision,
        layers=lm.geometry.layers,
        total_heads=lm.geometry.total,
        passed=report.passed,
        noise=None if lm.noise is None else lm.noise.largest,
        report=report,
    )


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
