"""Whether headscope runs on a model, and on the architectures that transformers knows."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from headscope.data.files import write_text_atomically
from headscope.recipes.inputs import DTYPE, MODEL_ARGUMENT, ModelChoice, Progress
from headscope.runs import Signature, collect_provenance
from headscope.settings import Option, Part, Settings

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


def check(config: Check, progress: Progress) -> dict[str, Any]:
    """Load the model and compare; the command's result."""
    from headscope.lm.matrix import check_model

    began = time.monotonic()
    lm = config.model.load()
    report = check_model(lm, progress=partial(progress, "comparing with slow references"))
    settings = {"dtype": str(lm.dtype), "quantised": lm.quantised}
    return {
        "signature": str(Signature.of("check", settings, {"model": lm.digest})),
        "run": None,
        "seconds": time.monotonic() - began,
        "model": lm.name,
        "revision": lm.revision,
        "layers": lm.geometry.layers,
        "total_heads": lm.geometry.total,
        "passed": report.passed,
        "noise": None if lm.noise is None else lm.noise.largest,
        "report": report,
    }


@dataclass(frozen=True)
class Architectures(Settings):
    """Build a tiny model of each known architecture, check it, and print the table.

    Takes half a minute, and ten minutes with `--registered`; the table is Markdown.
    """

    registered: Annotated[
        bool, Option("Also try every causal language model transformers registers.")
    ] = False


def architectures(config: Architectures, out: Path | None, progress: Progress) -> dict[str, Any]:
    """Check them all, and write the page to `out` if that is given; the command's result."""
    from headscope.lm.matrix import matrix
    from headscope.lm.registered import Trial, registered, try_all

    began = time.monotonic()
    trials: list[Trial] = []
    if config.registered:
        names = registered()
        for trial in try_all(names):
            trials.append(trial)
            progress("architectures", len(trials), len(names))
    versions = {"transformers": str(collect_provenance()["transformers"])}
    result: dict[str, Any] = {
        "signature": str(Signature.of("architectures", {}, versions)),
        "run": out,
        "architectures": matrix(),
        "registered": trials if config.registered else None,
    }
    if out is not None:
        write_text_atomically(out, f"{architectures_page(result)}\n")
    failed = [report.name for report in result["architectures"] if not report.passed]
    return {**result, "failed": failed, "seconds": time.monotonic() - began}


def architectures_page(result: Mapping[str, Any]) -> str:
    """The table of the architectures as Markdown, and below it what transformers registers."""
    from headscope.lm.matrix import as_page
    from headscope.lm.registered import trials_markdown

    page = as_page(result["architectures"]).rstrip("\n")
    if result["registered"] is None:
        return page
    version = str(collect_provenance()["transformers"])
    return f"{page}\n\n{trials_markdown(result['registered'], version)}".rstrip("\n")
