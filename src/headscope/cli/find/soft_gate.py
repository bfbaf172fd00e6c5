"""`headscope find soft-gate`: the gates of a few heads, trained on questions and answers."""

from __future__ import annotations

from headscope.results.soft_gate import SoftGateResult
from headscope.studies.find.soft_gate import FindSoftGate, find_soft_gate
from headscope.studies.study import Study

NAMES = {
    "untouched": "untouched",
    "trained": "gates trained",
    "random": "random heads",
    "random-layer-matched": "same layers",
    "removed": "removed",
    "random-removed": "random removed",
}


def _table(result: SoftGateResult) -> str:
    """Conditions with their accuracies, what the gates add, and where the rest is."""
    lines = [f"{'':<16}{'answered':>9}  {'95 % interval':<16}{'sd':>7}{'loss':>8}"]
    for kind, words in NAMES.items():
        if kind not in result.accuracy:
            continue
        measures = result.accuracy[kind]
        right = measures.accuracy
        bounds = f"{right.low:.3f} to {right.high:.3f}"
        spread = "" if right.sd is None else f"{right.sd:.3f}"
        loss = f"{measures.nll.mean:.3f}"
        lines.append(f"{words:<16}{right.mean:>9.3f}  {bounds:<16}{spread:>7}{loss:>8}")
    for difference in result.differences:
        change = difference.accuracy
        lines.append(
            f"{NAMES[difference.condition]} - {NAMES[difference.minus]}: {change.value:+.3f} "
            f"({change.low:+.3f} to {change.high:+.3f})"
        )
    first, counts = result.seeds[0], result.pairs
    shown = ", ".join(f"{head.name} {head.gate:.2f}" for head in first.trained.heads[:8])
    more = ", …" if len(first.trained.heads) > 8 else ""
    lines.append(f"gates of seed {first.seed}: {shown}{more}")
    lines.append(
        f"{counts.train} pairs learned from, {counts.stop} stopped on, {counts.test} tested on; "
        f"{counts.unanswerable} without an answer left out, {counts.cut} contexts cut"
    )
    return "\n".join([*lines, f"run: {result.run}"])


command = Study(FindSoftGate, find_soft_gate, _table)
