"""`headscope find soft-gate`: the gates of a few heads, trained on questions and answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headscope.cli.commands import Study
from headscope.recipes.find.soft_gate import FindSoftGate, find_soft_gate

NAMES = {
    "untouched": "untouched",
    "trained": "gates trained",
    "random": "random heads",
    "random-layer-matched": "same layers",
    "removed": "removed",
    "random-removed": "random removed",
}


def _table(result: Mapping[str, Any]) -> str:
    """Conditions with their accuracies, what the gates add, and where the rest is."""
    lines = [f"{'':<16}{'answered':>9}  {'95 % interval':<16}{'sd':>7}{'loss':>8}"]
    for kind, words in NAMES.items():
        if kind not in result["accuracy"]:
            continue
        one = result["accuracy"][kind]
        right = one["accuracy"]
        bounds = f"{right['low']:.3f} to {right['high']:.3f}"
        spread = "" if right["sd"] is None else f"{right['sd']:.3f}"
        loss = f"{one['nll']['mean']:.3f}"
        lines.append(f"{words:<16}{right['mean']:>9.3f}  {bounds:<16}{spread:>7}{loss:>8}")
    for one in result["differences"]:
        change = one["accuracy"]
        lines.append(
            f"{NAMES[one['condition']]} - {NAMES[one['minus']]}: {change['value']:+.3f} "
            f"({change['low']:+.3f} to {change['high']:+.3f})"
        )
    gates = result["seeds"][0]["trained"]["heads"]
    shown = ", ".join(f"{one['layer']}.{one['head']} {one['gate']:.2f}" for one in gates[:8])
    more = ", …" if len(gates) > 8 else ""
    counts = result["pairs"]
    lines.append(f"gates of seed {result['seeds'][0]['seed']}: {shown}{more}")
    lines.append(
        f"{counts['train']} pairs learned from, {counts['stop']} stopped on, {counts['test']} "
        f"tested on; {counts['unanswerable']} without an answer left out, {counts['cut']} contexts "
        "cut"
    )
    return "\n".join([*lines, f"run: {result['run']}"])


command = Study(FindSoftGate, find_soft_gate, _table)
