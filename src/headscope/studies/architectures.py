"""The architectures that headscope is checked against, as a table."""

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from headscope.data.files import write_text_atomically
from headscope.progress import Progress
from headscope.runs import Result, Signature, collect_provenance, entry
from headscope.settings import Option, Settings
from headscope.studies.study import OUT_FILE, Study

if TYPE_CHECKING:
    from headscope.lm.matrix import ArchitectureReport
    from headscope.lm.registered import Trial
    from headscope.use.exporting.lora_check import LoraCheck


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
    """Every architecture, those that transformers registers if asked for, and who failed.

    `lora` says, by architecture, whether a LoRA adapter is the gate; None without PEFT.
    """

    architectures: Sequence[ArchitectureReport]
    registered: Sequence[Trial] | None
    failed: Sequence[str]
    lora: Mapping[str, LoraCheck] | None = entry(absent=True)


def architectures(
    config: Architectures, out: Path | None, progress: Progress
) -> ArchitecturesResult:
    """Check them all, and write the page to `out` if that is given; the command's result."""
    from headscope.lm.architectures import ARCHITECTURES, build
    from headscope.lm.matrix import matrix
    from headscope.lm.model import LanguageModel
    from headscope.lm.registered import registered, try_all
    from headscope.use.exporting.lora_check import lora_check

    with_peft = importlib.util.find_spec("peft") is not None
    trials: list[Trial] = []
    if config.registered:
        names = registered()
        for trial in try_all(names, lora_check if with_peft else None, ["peft"] * with_peft):
            trials.append(trial)
            progress("architectures", len(trials), len(names))
    versions = {"transformers": str(collect_provenance()["transformers"])}
    reports = matrix()
    models = (LanguageModel.wrap(build(name), check=False) for name in ARCHITECTURES * with_peft)
    checks = {name: lora_check(lm) for name, lm in zip(ARCHITECTURES, models, strict=False)}
    result = ArchitecturesResult(
        signature=str(Signature.of("architectures", {}, versions)),
        run=None if out is None else str(out),
        architectures=reports,
        registered=trials if config.registered else None,
        failed=[report.name for report in reports if not report.passed],
        lora=checks if with_peft else None,
    )
    if out is not None:
        write_text_atomically(out, f"{architectures_page(result)}\n")
    return result


def architectures_page(result: ArchitecturesResult) -> str:
    """The table of the architectures as Markdown, and below it what transformers registers."""
    from headscope.lm.matrix import as_page
    from headscope.lm.registered import trials_markdown

    parts = [as_page(result.architectures)]
    if result.lora is not None:
        parts.append(lora_markdown(result.lora, result.registered or ()))
    if result.registered is not None:
        version = str(collect_provenance()["transformers"])
        parts.append(trials_markdown(result.registered, version))
    return "\n\n".join(part.rstrip("\n") for part in parts)


_LORA = """\
## LoRA adapters

`headscope use export --as lora` adds to the output of W_O, so W_O has to be a Linear or a Conv1D. \
*LoRA vs gate*: the largest difference in logits, in fp32 and as a share of the largest logit, \
between the gated model and PEFT's with the adapter of the same gate (0, 0.3, 1 and 1.7 in turn, \
on all heads); up to 1e-5 they count as equal. Layers without heads have no part in an adapter.
"""


def lora_markdown(checks: Mapping[str, LoraCheck], trials: Sequence[Trial] = ()) -> str:
    """Which architectures have LoRA adapters that are the gate; below it, of the registered ones
    that are loaded, those that have not."""
    lines = [_LORA, "| architecture | W_O | LoRA vs gate |  |", "|---|---|---|---|"]
    lines += [_lora_row(name, check) for name, check in checks.items()]
    measured = [trial for trial in trials if trial.measured is not None]
    if measured:
        equal = [trial for trial in measured if trial.measured.equal]
        most = max((trial.measured.difference for trial in equal), default=0.0)
        kinds = Counter(kind for trial in equal for kind in trial.measured.projections)
        lines += [
            "",
            f"Of the {len(trials)} registered architectures (below) {len(measured)} are loaded. "
            f"{len(equal)} of these have adapters with equal logits, at most {most:.1g} apart, as "
            f"output projections {', '.join(f'{kind} ({n})' for kind, n in kinds.most_common())}.",
        ]
        others = [trial for trial in measured if not trial.measured.equal]
        if others:
            lines += ["", "| architecture | W_O | LoRA vs gate | why not |", "|---|---|---|---|"]
            lines += [_lora_row(trial.name, trial.measured) for trial in others]
    return "\n".join(lines)


def _lora_row(name: str, check: LoraCheck) -> str:
    difference = "–" if check.difference is None else f"{check.difference:.1g}"
    reason = check.reason.replace("|", "\\|") or ("equal" if check.equal else "**differs**")
    return f"| {name} | {', '.join(check.projections)} | {difference} | {reason} |"


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
