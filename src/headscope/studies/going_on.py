"""The command that decides what a comparison leaves open, and about how long it takes."""

from __future__ import annotations

import shlex
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import comb
from typing import Any, get_type_hints

from headscope import options
from headscope.evidence.controls import FREE, MATCHED
from headscope.evidence.headline import (
    OPEN,
    Case,
    exhausted,
    holds,
    least_draws,
    ranked,
    verdict_of,
)
from headscope.evidence.pace import Pacing
from headscope.evidence.rows import Evidence, Tested
from headscope.heads import Geometry
from headscope.heads.draws import Choices
from headscope.measure.sequence import bet_on, draws_to_win
from headscope.runs import Run
from headscope.shown.blocks import Next

AUTO = "auto"


@dataclass(frozen=True)
class Spent:
    """The seconds of a run until it measured, and of each condition; None where none was measured
    now, but before, or by another run."""

    before: float
    condition: float | None

    @classmethod
    def by(
        cls, run: Run, found: Evidence, began: float, ready: float, pacing: Pacing | None = None
    ) -> Spent:
        """By the clock (`time.monotonic`) when a run began and when it began to measure.

        Where nobody told the pace, as where examples are not kept in units, by all of the time.
        """
        each = pacing.seconds if pacing else None
        once = len(run.provenance.get("started", ())) == 1
        if once and not (pacing and pacing.told_of):
            each = (time.monotonic() - ready) / max(1, _measured(found))
        return cls(ready - began, each)


def going_on(
    command: str,
    run: Run,
    settings: type[Any],
    found: Evidence,
    cases: Iterable[Case],
    spent: Spent,
    option: str = "--draws",
    geometry: Geometry | None = None,
) -> Next | None:
    """What decides these cases as far as they are open; None where nothing is open, no more draws
    can decide it, or no command line was given.

    A run whose draws come one after another goes on by the same command. One with too few draws is
    made anew with `auto` where `settings` have that, else with the fewest that can decide, in a
    folder of its own.

    Args:
        command: such as `verify removal`.
        run: its folder, which knows what was typed.
        option: what gives more draws.
        geometry: of the model, so that no draws are asked for of which there are no more.
    """
    undecided = [case for case in cases if OPEN in verdict_of(found, case)]
    every = (test for case in undecided for test in ranked(found, case))
    tests = [test for test in every if holds(test, found.alpha) is None]
    words, line = command.split(), run.provenance.get("command_line", ())
    if list(line[: 1 + len(words)]) != ["headscope", *words]:
        return None
    line = _without(line, "--minutes")  # it is to decide, however long that takes
    if going := [test for test in tests if test.ended == "open"]:
        draws = max(_until_won(test, found.alpha) for test in going)
        return Next(shlex.join(line), _minutes(found, spent, draws, kept=True))
    if all(exhausted(found, test) or _all_drawn(found, test, geometry) for test in tests):
        return None
    auto = option == "--draws" and _takes_auto(settings)
    draws = draws_to_win(found.alpha) if auto else least_draws(found.alpha)
    given = [*_without(line, option), option, AUTO if auto else str(draws)]
    return Next(shlex.join(_elsewhere(given)), _minutes(found, spent, draws, kept=False))


def _all_drawn(found: Evidence, test: Tested, geometry: Geometry | None) -> bool:
    """Whether no set of a control is left, as far as that is known: all of so many heads, or of so
    many of each layer, but for the selected one."""
    (selected,) = (each for each in found.selected if each.id == test.condition)
    if geometry is None or not selected.heads:
        return False
    heads = selected.in_model(geometry)
    layers = geometry.by_layer()
    sizes = Counter(head.layer for head in heads)
    matched = Choices(layers, [tuple(sizes[layer] for layer in range(len(layers)))])
    exist = {
        **dict.fromkeys(FREE, comb(geometry.total, len(heads))),
        **dict.fromkeys(MATCHED, matched.count),
    }
    return test.control in exist and test.draws >= exist[test.control] - 1


def _until_won(test: Tested, level: float) -> int:
    """The draws with which a bet is won if no further one does as much."""
    so_far, most = list(test.as_far), test.at_most or test.draws
    while len(so_far) < most and bet_on(so_far, level, most).ended == "open":
        so_far.append(False)
    return len(so_far)


def _takes_auto(settings: type[Any]) -> bool:
    hints: Mapping[str, Any] = get_type_hints(settings, include_extras=True)
    return hints.get("draws") == options.DrawsOrAuto


def _minutes(found: Evidence, spent: Spent, draws: int, kept: bool) -> float | None:
    """About how long so many draws of each control take; of what is `kept` only what is left."""
    done = _measured(found)
    drawn = {(each.kind, each.case, each.of) for each in found.conditions if each.draw is not None}
    alone = len({each.key for each in found.conditions if each.draw is None})
    left = alone + draws * len(drawn) - (done if kept else 0)
    if spent.condition is None or not done:
        return None
    return round((spent.before + spent.condition * max(0, left)) / 60, 2)


def _measured(found: Evidence) -> int:
    return len({condition.key for condition in found.conditions})


def _without(line: Sequence[str], option: str) -> list[str]:
    """A command line without an option and its value."""
    kept, skip = list[str](), False
    for word in line:
        if not skip and word != option and not word.startswith(f"{option}="):
            kept.append(word)
        skip = not skip and word == option
    return kept


def _elsewhere(line: Sequence[str]) -> list[str]:
    """A command line with another folder, where it names one: a folder has one configuration."""
    made = list(line)
    for at, word in enumerate(line):
        if (at and line[at - 1] == "--out") or word.startswith("--out="):
            made[at] = f"{word.rstrip('/')}-more"
    return made
