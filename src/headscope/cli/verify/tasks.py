"""`headscope verify tasks`: what else a model can do without heads."""

from __future__ import annotations

import time
from collections.abc import Mapping
from statistics import fmean
from typing import Any

from headscope.cli.commands import Study
from headscope.cli.output import cell, emit
from headscope.recipes.verify.tasks import VerifyTasks, verify_tasks
from headscope.runs import Signature
from headscope.verify.tasks.library import GROUPS

__all__ = ["command", "tasks_table"]

#: Random controls by their kind in the result: their words, and how the names of their tests end.
CONTROLS = {"random": ("random", ""), "random-layer-matched": ("same layers", "_layer_matched")}


class _Tasks(Study):
    def __call__(self, given: Mapping[str, Any]) -> None:
        """Run the tasks, or with `--list` only name the known groups."""
        if not given["list"]:
            super().__call__(given)
            return
        began = time.monotonic()
        key = Signature.of("verify tasks --list", GROUPS, {})
        width = max(map(len, GROUPS))
        lines = [f"{name:<{width}}  {words}" for name, words in GROUPS.items()]
        more = "and every other task of lm-evaluation-harness, and task files in its format"
        result = {
            "signature": str(key),
            "run": None,
            "groups": GROUPS,
            "seconds": time.monotonic() - began,
        }
        emit(result, given["json"], "\n".join([*lines, more]))


def tasks_table(result: Mapping[str, Any]) -> str:
    """One line a task and head set: as is, without it, without random heads, and the tests.

    Of the random draws the mean is given, with the lowest and the highest; draws of the same layers
    have a line of their own below.
    """
    named = {**result["tasks"], **result["groups"]}
    width = max(len(name) for name in named) + 2
    head = f"{'':<{width}}{'metric':<14}{'k':>4}{'gate':>6}{'chance':>8}{'as is':>8}{'chosen':>8}"
    lines = [f"{head}  {'control':<12}{'mean':>7}  {'draws':<16}{'p_examples':>10}{'p_draws':>9}"]
    for name, one in named.items():
        for top in (row for row in one["conditions"] if row["kind"] == "top"):
            start = (
                f"{name:<{width}}{one['metric']:<14}{top['k']:>4}{top['gate']:>6g}"
                f"{cell(one.get('chance'), '.3f'):>8}{one['baseline']['value']:>8.3f}"
                f"{top['value']:>8.3f}"
            )
            for kind, (words, ending) in CONTROLS.items():
                drawn = [
                    row["value"]
                    for row in one["conditions"]
                    if (row["kind"], row["k"], row["gate"]) == (kind, top["k"], top["gate"])
                ]
                if not drawn:
                    continue
                span = f"{min(drawn):.3f} to {max(drawn):.3f}"
                tests = (top.get(f"p_examples{ending}"), top.get(f"p_draws{ending}"))
                lines.append(
                    f"{start}  {words:<12}{fmean(drawn):>7.3f}  {span:<16}"
                    f"{cell(tests[0], '.4g'):>10}{cell(tests[1], '.4g'):>9}"
                )
                start = " " * len(start)
    return "\n".join([*lines, *_remarks(result), f"run: {result['run']}"])


def _remarks(result: Mapping[str, Any]) -> list[str]:
    lines = [str(result["pool_note"])] if result["pool_note"] else []
    leak = result["leakage"]
    if not leak["known"]:
        lines.append("whether the heads were found on these examples is not known")
    cut = {name: one["truncated"] for name, one in result["tasks"].items() if one["truncated"]}
    lines += [f"{name}: {n} prompts lost their beginning, being longer than the model's context"
              for name, n in cut.items()]  # fmt: skip
    return lines


command = _Tasks(VerifyTasks, verify_tasks, tasks_table)
