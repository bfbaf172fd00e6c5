"""`headscope verify one-by-one`: what a model is about to say as heads go, one after another."""

from __future__ import annotations

from headscope.results.one_by_one import OneByOneResult, State
from headscope.studies.study import Study
from headscope.studies.verify.one_by_one import OneByOne, verify_one_by_one

__all__ = ["command"]


def _table(result: OneByOneResult, rows: int = 24) -> str:
    """The untouched model, the steps where something happened, and where the rest is."""
    lines = [f"{'removed':>7}  {'head':<7}{'target':>9}{'first':>9}  text"]
    lines.append(_row(result.baseline))
    steps, last, shown = result.steps, result.states[0], 0
    for step in steps:
        if not _differs(step, last) and step.at < len(steps):
            continue
        last = step
        shown += 1
        if shown <= rows or step.at == len(steps):
            lines.append(_row(step))
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
    return "\n".join([*lines, f"run: {result.run}"])


def _mask(result: OneByOneResult) -> list[str]:
    """Where the cut of a learned mask lies, beside random orders."""
    mask, share = result.mask, result.target_first.share if result.target_first else ()
    if mask is None:
        return []
    at = mask.cut_step
    if at is None:
        return [f"the mask drops {mask.removed} heads; this order does not pass through it"]
    drawn = [order.target_first[at] for order in result.random_orders]
    beside = f", {sum(drawn) / len(drawn):.3g} in random orders" if drawn else ""
    return [
        f"the mask's own {mask.kept} heads are left after step {at}: the target is first in "
        f"{share[at]:.3g} of the prompts ({share[0]:.3g} before{beside})"
    ]


def _differs(step: State, last: State) -> bool:
    if step.texts_changed is None:
        return step.target_rank != last.target_rank
    return step.texts_changed > 0


def _row(step: State) -> str:
    text = step.text
    if text is None:
        words = f"{step.texts_changed} changed" if step.texts_changed else "unchanged"
        text = "" if step.texts_changed is None else f"{words}, chrF++ {step.chrf:.1f}"
    ranks = f"{step.target_rank:>9.6g}{step.top5_ranks[0]:>9.6g}"
    return f"{step.at:>7}  {step.last:<7}{ranks}  {text}".rstrip()


command = Study(OneByOne, verify_one_by_one, _table)
