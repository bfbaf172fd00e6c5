"""`headscope check`: does headscope run on this model?"""

from __future__ import annotations

from headscope.studies.check import Check, CheckResult, check
from headscope.studies.study import Study


def _text(result: CheckResult) -> str:
    from headscope.lm.matrix import as_markdown

    verdict = "runs as it should" if result.passed else "does not pass"
    if result.noise:
        verdict += (
            f"\nRepeated passes differ by up to {result.noise:.2g} standard deviations of the "
            "logits, so a gate of ones was held to that and not to equal bits."
        )
    return (
        f"{as_markdown([result.report]).rstrip()}\n\n{result.model}: "
        f"{result.total_heads} query heads in {result.layers} layers; {verdict}"
    )


def _failure(result: CheckResult) -> str | None:
    if result.passed:
        return None
    return (
        f"{result.model}: gates or peaks differ from the slow reference, so results on this "
        "model would be wrong; try --dtype float32, or another model"
    )


command = Study(Check, check, _text, out=None, failure=_failure)
