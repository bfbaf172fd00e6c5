"""`headscope verify tasks`: what else a model can do without heads."""

from __future__ import annotations

import time
from collections.abc import Mapping
from statistics import fmean
from typing import Any

from headscope.cli.output import cell
from headscope.results.removal import Kind
from headscope.results.tasks import Comparison, Metric, TasksResult, tops
from headscope.runs import Signature
from headscope.studies.study import Study
from headscope.studies.verify.tasks import VerifyTasks, verify_tasks
from headscope.verify.tasks.library import GROUPS

__all__ = ["command", "tasks_table"]

#: How random controls are called.
CONTROLS: dict[Kind, str] = {"random": "random", "random-layer-matched": "same layers"}


def _groups(given: Mapping[str, Any]) -> tuple[dict[str, Any], str] | None:
    """With `--list` the known groups, as a result and as text."""
    if not given["list"]:
        return None
    began = time.monotonic()
    key = Signature.of("verify tasks --list", GROUPS, {})
    width = max(map(len, GROUPS))
    lines = [f"{name:<{width}}  {words}" for name, words in GROUPS.items()]
    more = "and every other task of lm-evaluation-harness, and task files in its format"
    seconds = time.monotonic() - began
    result = {"signature": str(key), "run": None, "groups": GROUPS, "seconds": seconds}
    return result, "\n".join([*lines, more])


def tasks_table(result: TasksResult) -> str:
    """One line a task and head set: as is, without it, without random heads, and the tests.

    Of the random draws the mean is given, with the lowest and the highest; draws of the same layers
    have a line of their own below.
    """
    named: dict[str, Comparison] = {**result.tasks, **result.groups}
    width = max(len(name) for name in named) + 2
    head = f"{'':<{width}}{'metric':<14}{'k':>4}{'gate':>6}{'chance':>8}{'as is':>8}{'chosen':>8}"
    lines = [f"{head}  {'control':<12}{'mean':>7}  {'draws':<16}{'p_examples':>10}{'p_draws':>9}"]
    for name, one in named.items():
        chance = one.chance if isinstance(one, Metric) else None
        for top in tops(one.conditions):
            start = (
                f"{name:<{width}}{one.metric:<14}{top.label.k:>4}{top.label.gate:>6g}"
                f"{cell(chance, '.3f'):>8}{one.baseline.value:>8.3f}{top.value:>8.3f}"
            )
            for kind, words in CONTROLS.items():
                drawn, than = one.drawn(top, kind), top.than(kind)
                if not drawn:
                    continue
                span = f"{min(drawn):.3f} to {max(drawn):.3f}"
                tests = (None, None) if than is None else (than.p_examples, than.p_draws)
                lines.append(
                    f"{start}  {words:<12}{fmean(drawn):>7.3f}  {span:<16}"
                    f"{cell(tests[0], '.4g'):>10}{cell(tests[1], '.4g'):>9}"
                )
                start = " " * len(start)
    return "\n".join([*lines, *_remarks(result), f"run: {result.run}"])


def _remarks(result: TasksResult) -> list[str]:
    lines = [result.pool_note] if result.pool_note else []
    if result.leakage is None or not result.leakage.known:
        lines.append("whether the heads were found on these examples is not known")
    cut = {name: one.truncated for name, one in result.tasks.items() if one.truncated}
    lines += [f"{name}: {n} prompts lost their beginning, being longer than the model's context"
              for name, n in cut.items()]  # fmt: skip
    return lines


command = Study(VerifyTasks, verify_tasks, tasks_table, instead=_groups)
