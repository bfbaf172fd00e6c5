"""`headscope verify one-by-one`: what a model is about to say as heads go, one after another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headscope.cli.commands import Study
from headscope.recipes.verify.one_by_one import OneByOne, verify_one_by_one

__all__ = ["command"]


def _table(result: Mapping[str, Any], rows: int = 24) -> str:
    """The untouched model, the steps where something happened, and where the rest is."""
    lines = [f"{'removed':>7}  {'head':<7}{'target':>9}{'first':>9}  text"]
    lines.append(_row(0, "", result["baseline"]))
    steps = result["steps"]
    last = result["baseline"]
    shown = 0
    for number, step in enumerate(steps, 1):
        if not _differs(step, last) and number < len(steps):
            continue
        last = step
        shown += 1
        if shown <= rows or number == len(steps):
            lines.append(_row(number, f"{step['layer']}.{step['head']}", step))
        elif shown == rows + 1:
            lines.append("    ...")
    lines.append("target, first: ranks of the target's first token and of what was first before")
    hidden = len(steps) - min(shown, rows + (shown > rows))
    if hidden:
        lines.append(
            f"{hidden} of {len(steps)} steps are not shown: those that changed nothing, and what "
            f"goes beyond {rows} rows; steps.jsonl of the run holds all"
        )
    lines += _mask(result)
    return "\n".join([*lines, f"run: {result['run']}"])


def _mask(result: Mapping[str, Any]) -> list[str]:
    """Where the cut of a learned mask lies, beside random orders."""
    mask, share = result["mask"], result["target_first"]["share"]
    if mask is None:
        return []
    at = mask["cut_step"]
    if at is None:
        return [f"the mask drops {mask['removed']} heads; this order does not pass through it"]
    drawn = [order["target_first"][at] for order in result["random_orders"]]
    beside = f", {sum(drawn) / len(drawn):.3g} in random orders" if drawn else ""
    return [
        f"the mask's own {mask['kept']} heads are left after step {at}: the target is first in "
        f"{share[at]:.3g} of the prompts ({share[0]:.3g} before{beside})"
    ]


def _differs(step: Mapping[str, Any], last: Mapping[str, Any]) -> bool:
    if step["texts_changed"]:
        return True
    return bool(step["texts_changed"] is None and step["target_rank"] != last["target_rank"])


def _row(number: int, head: str, step: Mapping[str, Any]) -> str:
    text = step["text"]
    if text is None:
        changed, chrf = step["texts_changed"], step["chrf"]
        words = f"{changed} changed" if changed else "unchanged"
        text = "" if changed is None else f"{words}, chrF++ {chrf:.1f}"
    rank, first = step["target_rank"], step["top5_ranks"][0]
    return f"{number:>7}  {head:<7}{rank:>9.6g}{first:>9.6g}  {text}".rstrip()


command = Study(OneByOne, verify_one_by_one, _table)
