"""Whether headscope runs on a model: gates and peaks against slow references."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from headscope.progress import Progress
from headscope.runs import Result, Signature
from headscope.settings import Nested, Settings
from headscope.shown.blocks import Section, Shown, one_column
from headscope.shown.words import sentence_of
from headscope.studies.models import DTYPE, MODEL_ARGUMENT, ModelChoice
from headscope.studies.shows import model_facts
from headscope.studies.study import Study

if TYPE_CHECKING:
    from headscope.lm.check import CheckReport


@dataclass(frozen=True)
class Check(Settings):
    """Check that a model runs here: compare its gates and peaks with slow references.

    A few forward passes for each head; peaks are best compared in float32.
    """

    model: Annotated[
        ModelChoice,
        Nested(
            without=("check",),
            changed={**MODEL_ARGUMENT.changed, "dtype": replace(DTYPE, default="float32")},
        ),
    ] = field(default_factory=lambda: ModelChoice(dtype="float32"))


@dataclass(frozen=True, kw_only=True)
class CheckResult(Result):
    """Whether a model passed; `noise` is the largest difference of plain passes, None if none.

    `unknown_tokens` are special tokens of the tokenizer that the model has no embedding of.
    """

    model: str
    revision: str | None
    layers: int
    total_heads: int
    passed: bool
    noise: float | None
    report: CheckReport
    unknown_tokens: tuple[str, ...] = ()


def check(config: Check, progress: Progress) -> CheckResult:
    """Load the model and compare; the command's result."""
    from headscope.lm.check import check_model

    lm = replace(config.model, check="always").load()
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
        unknown_tokens=lm.unknown_tokens,
    )


def _show(result: CheckResult, run: Path) -> Shown:
    report = result.report

    def wrong(counts: tuple[int, int] | None) -> str:
        return f"{counts[1]} of {counts[0]} wrong" if counts else "not comparable"

    rows = {
        "gates: largest difference in logits to zeroed slices of W_O": (
            f"{report.gate_difference:.1g}"
        ),
        "the same with a gate for each row of a batch": f"{report.row_gate_difference:.1g}",
        "peaks in plain passes": wrong((report.peaks, report.wrong)),
        "peaks during generation, dynamic cache": wrong(report.dynamic),
        "peaks during generation, static cache": wrong(report.static),
        "logits and texts are the same with and without recording": (
            "yes" if report.same_outputs else "no"
        ),
    }
    verdict = "runs as it should" if result.passed else "does not pass"
    cautions = [sentence_of(report.note)] if report.note else []
    if result.unknown_tokens:
        named = ", ".join(result.unknown_tokens)
        cautions.append(
            f"The tokenizer has special tokens that the model has no embedding of: {named}. Rows "
            "are padded with another token, which is masked; texts that hold one of them, written "
            "by a chat template too, are refused (--no-chat leaves the template out)."
        )
    if result.noise:
        cautions.append(
            f"Repeated passes differ by up to {result.noise:.2g} standard deviations of the "
            "logits, so a gate of ones was held to that and not to equal bits."
        )
    title = f"{report.name}, {report.kernel} attention, peaks from the attention {report.way}"
    table = one_column(title, "found", rows.items())
    return Shown(
        "Check of a model",
        "Do gates and peaks of this model agree with slow references?",
        [f"{result.model} {verdict}: {result.total_heads} query heads in {result.layers} layers."],
        cautions=cautions,
        facts=model_facts(result.model, result.total_heads),
        sections=[Section("Comparisons", [table], brief=True)],
    )


def _failure(result: CheckResult) -> str | None:
    if result.passed:
        return None
    return (
        f"{result.model}: gates or peaks differ from the slow reference, so results on this "
        "model would be wrong; try --dtype float32, or another model"
    )


command = Study(Check, check, show=_show, out=None, failure=_failure, usage="pocket")
