"""Figures 8 and 9: heads removed one by one in other orders than that of Table 1's weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import comb
from typing import Any

from headscope.papers.claims import LEVEL, with_claims
from headscope.papers.heads_up.asked import too_few
from headscope.papers.heads_up.beside import Beside, not_run
from headscope.papers.heads_up.walks import (
    INFLUENTIAL,
    NEGATIVE,
    SWITCH,
    WALK,
    beside_walk,
    rank_lines,
    target_first,
    text_table,
    walk_steps,
)
from headscope.papers.paper import Experiment, Setting
from headscope.shown.blocks import Cell, Claim, Findings, Row, Table


def _compared(
    name: str, title: str, paper: str, row: str, claim: str
) -> Callable[[Setting], Findings]:
    def tell(setting: Setting) -> Findings:
        result, plain = setting.result(name), setting.result(WALK)
        table = _table(setting, result, plain, beside_walk(setting, paper), title, row)
        if result is None:
            return Findings((table,))
        prompts = target_first(result)[1]
        steps = len(result["heads"])
        share = max(result["target_first"]["share"])
        found = (
            f"Within {steps} removed heads the target is first in at most {share:.0%} of {prompts} "
            "prompts"
        )
        claims = []
        if plain is not None:
            other = max(plain["target_first"]["share"][: steps + 1])
            claims = [_later(claim, _steps_of(result, steps), _steps_of(plain, steps))]
            found += f", by rising weight of Table 1's mask in at most {other:.0%}; {claims[0].by}"
        shown: tuple[Table, ...] = (table,)
        if name == NEGATIVE:
            shown = (table, text_table(result, "What is written for the first prompt"))
        return Findings(
            shown,
            (rank_lines(result, title),),
            f"{found}.",
            "There are no random orders beside, and the paper shows one prompt.",
            with_claims(*claims),
        )

    return tell


def _table(
    setting: Setting,
    result: Mapping[str, Any] | None,
    plain: Mapping[str, Any] | None,
    place: Beside,
    title: str,
    row: str,
) -> Table:
    """When the target comes first, and in how many prompts never, in this order and beside it."""
    theirs = place.value(row, "behaviour switches", "heads")
    return Table(
        f"{title}, of {setting.geometry.total} heads",
        ("this order", "rising weight"),
        (
            Row(
                SWITCH,
                (_median_cell(result, theirs), _median_cell(plain, None)),
            ),
            Row("prompts with the target never first", (_never_cell(result), _never_cell(plain))),
        ),
        place.reference,
        "" if result is None else f"In this order {len(result['heads'])} heads go.",
    )


def _steps_of(result: Mapping[str, Any], within: int) -> list[float]:
    """For each prompt the first step with the target first; later than all if there is none."""
    found = result["target_first"]["first_steps"]
    return [float("inf") if at is None or at > within else float(at) for at in found]


def _later(name: str, own: Sequence[float], plain: Sequence[float]) -> Claim:
    """That the task comes later in this order, as in the paper, by a sign test over prompts."""
    later = sum(one > other for one, other in zip(own, plain, strict=True))
    sooner = sum(one < other for one, other in zip(own, plain, strict=True))
    p = sign_test(later, sooner)
    by = f"later in {later} and sooner in {sooner} of {len(own)} prompts, p {p:.2g}"
    holds = None if p > LEVEL else later > sooner
    decides = "more prompts" if holds is None else ""
    return Claim(name, holds, by, "a sign test over prompts", decides=decides)


def sign_test(more: int, less: int) -> float:
    """Two-sided p-value of so many differences of either sign, those without one left out."""
    total = more + less
    tail = sum(comb(total, count) for count in range(min(more, less) + 1))
    return min(1.0, float(2 * tail / 2**total))


def _median_cell(result: Mapping[str, Any] | None, published: float | None) -> Cell:
    if result is None:
        return not_run(published, digits=0)
    median = target_first(result)[2]
    return Cell(median, published=published, why="never" if median is None else None, digits=0)


def _never_cell(result: Mapping[str, Any] | None) -> Cell:
    return not_run(digits=0) if result is None else Cell(target_first(result)[0], digits=0)


FIGURE_8 = Experiment(
    "figure-8",
    ("Figure 8",),
    "Heads removed in the order of what each does to the target's rank",
    walk_steps(INFLUENTIAL),
    _compared(
        INFLUENTIAL,
        "Heads gone by influence",
        "Figure 8",
        "removal in order of rank gained",
        "with the most influential heads gone first the task takes over later",
    ),
    needs=lambda setting, element, steps: too_few(setting, ("en-zh",)),
)
FIGURE_9 = Experiment(
    "figure-9",
    ("Figure 9",),
    "Heads removed by the weights of a mask begun with hardly any head",
    walk_steps(NEGATIVE),
    _compared(
        NEGATIVE,
        "Heads gone by weights of a negative start",
        "Figure 9",
        "removal in order of weight, negative start",
        "by the weights of a mask begun with hardly any head the task takes over later",
    ),
    needs=lambda setting, element, steps: too_few(setting, ("en-zh",)),
)
