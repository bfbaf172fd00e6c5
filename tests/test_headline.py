"""The headline of a comparison: its numbers are the table's, its verdict that of the tests, and
the command that goes on is one that decides."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from math import comb
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import Said
from headscope.evidence.controls import CONTROLS
from headscope.evidence.headline import (
    LOST,
    NOT_SHOWN,
    OPEN,
    SHOWN,
    TOO_FEW,
    UNTESTED,
    Case,
    as_much,
    decisive,
    effect,
    headline,
    holds,
    ranked,
    resolution,
    verdict_of,
)
from headscope.evidence.rows import KEPT, SELECTED, SHARE, Condition, Evidence, Statistic
from headscope.evidence.sequence import with_rule
from headscope.evidence.table import evidence
from headscope.heads import Geometry
from headscope.measure.statistics import counted
from headscope.runs import Run
from headscope.shown.blocks import Next
from headscope.shown.words import duration, fixed
from headscope.studies.going_on import Spent, going_on
from headscope.studies.report import read_run, write_report
from headscope.studies.study import shown_of
from headscope.studies.verify.removal import VerifyRemoval
from headscope.studies.verify.removal import command as removal
from headscope.studies.verify.tasks import VerifyTasks

NUMBER = re.compile(r"[\u2212]?\d+(?:\.\d+)?")
#: What is done to heads, with the words that a headline begins with.
DONE: Mapping[str, dict[str, Any]] = {
    "Without 2 heads,": {},
    "With 2 heads at 2 \u00d7 strength,": {"gate": 2.0},
    "With 2 heads replaced by mean output,": {"replacement": "mean"},
    "With 2 heads kept, the others removed,": {"of": KEPT},
    "Without 2 heads of de,": {"of": "de"},
}
UNITS = ("", "nats a token", SHARE)


@st.composite
def tables(draw: st.DrawFn, done: str = "Without 2 heads,") -> Evidence:
    """A table of one statistic under selected heads and draws of some controls."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    examples, draws = draw(st.integers(2, 12)), draw(st.integers(1, 25))
    kinds = draw(st.lists(st.sampled_from([n for n, c in CONTROLS.items() if c.draw]),
                          unique=True, max_size=3))  # fmt: skip
    unit, better = draw(st.sampled_from(UNITS)), draw(st.sampled_from(["higher", "lower"]))
    shift = draw(st.sampled_from([-0.3, -0.01, 0.0, 0.01, 0.3]))
    top = Condition(SELECTED, **{"k": 2, "gate": 0.0, "heads": ("0.0", "1.2"), **DONE[done]})
    others = [replace(top, kind=kind, draw=n, heads=(f"0.{n % 9}", f"1.{n}"))
              for kind in kinds for n in range(draws)]  # fmt: skip
    base = rng.uniform(0.3, 0.6, examples)
    values = [base, base + shift * rng.uniform(0.5, 1, examples)]
    values += [base + 0.1 * rng.normal(size=examples) for _ in others]
    numbers = {"a": {"s": [*counted(np.clip(values, 0, 1))]}}
    statistic = Statistic("the score", better, unit, 1 if unit == SHARE else 3)
    helps = draw(st.booleans())
    return evidence([Condition(), top, *others], numbers, {"s": statistic},
                    helps=lambda each: helps)  # fmt: skip


def main(table: Evidence) -> Case:
    return Case("s", table.main)


@given(st.data())
def test_the_numbers_of_an_effect_are_those_of_the_table(data: st.DataObject) -> None:
    """Change, difference and interval as the table shows them, turned into the direction of the
    words, and none besides; the direction is that of the change."""
    done = data.draw(st.sampled_from([*DONE]))
    table = data.draw(tables(done))
    said, own = effect(table, main(table)), table.statistics["s"]
    assert said.startswith(f"{done} the score "), said
    level = table.level("s", table.main)
    assert level is not None and level.change is not None
    change, rest = own.shown(level.change), said.removeprefix(f"{done} the score ")
    flat = not float(fixed(abs(change.value), own.digits))
    if flat:
        assert rest.startswith(f"stays at {own.number(level)}")
        rest = rest.removeprefix(f"stays at {own.number(level)}")
    else:
        assert rest.startswith("rises" if change.value > 0 else "falls")
        harm = (change.value > 0) == (own.better == "lower")
        against = {each.side == "higher" for each in table.tests} == {change.value < 0}
        assert ("(worse)" in rest, "(better)" in rest) == (against and harm, against and not harm)
        by = fixed(abs(change.value), own.digits)
        assert f" by {by}{' ' * bool(own.points or own.unit)}{own.points or own.unit}" in rest
        rest = rest.split(f" by {by}", 1)[1]
    free, _ = decisive(table, main(table))
    every = table.against("s", table.main)
    test = free or next(iter(every.values()), None)
    if test is None:
        assert not NUMBER.findall(rest)
        return
    assert table.controls[test.control].words in rest
    gap = own.shown(test.difference)
    higher = "higher" in rest or ("more" in rest if change.value > 0 else "less" in rest)
    turn = 1 if flat or change.value > 0 else -1
    sign = turn if ("more" in rest or "higher" in rest) else -turn
    ends = sorted((sign * gap.low, sign * gap.high)) if gap.bounded else []
    value = fixed(sign * gap.value, own.digits)
    same = not flat and "more" in rest and value == fixed(abs(change.value), own.digits)
    assert ("all of that" in rest) == same
    told = [] if same else [value]
    others = [own.shown(each.difference).value for each in every.values() if each is not test]
    told += [fixed(end, own.digits) for end in ends]
    known = [fixed(sign * other, own.digits) for other in others]
    told += [each for each in known if each != value]
    assert NUMBER.findall(rest) == told and rest.count("as much") == known.count(value)
    for each in every:  # every control that was tested is named
        words = table.controls[each].words
        assert words.removeprefix(f"{table.controls[test.control].words} ") in rest
    assert gap.value == 0 or (gap.value > 0) == higher


@given(tables())
def test_what_is_shown_is_what_the_tests_hold(table: Evidence) -> None:
    """`shown` if and only if the first test holds; every further one has its own answer; no
    headline has an option or more than its numbers."""
    answer, (free, matched) = verdict_of(table, main(table)), decisive(table, main(table))
    state = None if free is None else holds(free, table.alpha)
    assert answer.startswith(SHOWN) == (state is True)
    assert (UNTESTED in answer) == (free is None)
    if free is not None and state is not True:
        told = NOT_SHOWN if state is False else (OPEN, TOO_FEW)
        assert answer.startswith(told)
    further = [each for each in ranked(table, main(table)) if each is not free]
    if state and free is not None and free.control == "random":
        deep = None if matched is None else holds(matched, table.alpha)
        assert (f"{SHOWN} for heads of any layer alone" in answer) == (not further)
        assert ("of the same layers" in answer) == (matched is not None)
        assert all(table.controls[each.control].words[-11:] in answer for each in further)
        if deep:
            assert f"{SHOWN}, also against" in answer
    said = headline(table, [main(table)], "text")
    assert "--" not in said and "\n" not in said
    assert said.startswith("Nothing changes.") or said.endswith(f": {answer}")


@given(tables(), st.integers(1, 25))
def test_random_sets_that_do_as_much_are_counted(table: Evidence, most: int) -> None:
    """Of draws one after another too: given up with as many as do as much, open while there may be
    more."""
    bets = with_rule(table, lambda test: max(most, test.draws), table.alpha)
    test, _ = decisive(bets, main(bets))
    if test is None or test.p_draws is None:
        return
    answer = verdict_of(bets, main(bets))
    if test.ended == "given up" and not holds(test, bets.alpha):
        assert answer.startswith(LOST)
    counted = ranked(bets, main(bets))
    said = as_much(bets, counted)
    assert said in answer and len(counted) >= 1
    numbers = [int(each) for each in re.findall(r"\d+", said)]
    harm, draws = ([getattr(each, name) for each in counted]
                   for name in ("at_least_as_harmful", "draws"))  # fmt: skip
    pairs = [*zip(harm, draws, strict=True)]
    further = [number for pair in pairs[1:] for number in pair[: 1 + (pair[1] != draws[0])]]
    assert numbers == [*pairs[0], *(further if len(set(pairs)) > 1 else [])]
    named = as_much(bets, counted, named=True)
    assert all(bets.controls[each.control].words[-11:] in named for each in counted[1:])
    if answer.startswith(OPEN):
        assert test.ended == "open" and holds(test, bets.alpha) is None


@given(tables())
def test_a_difference_that_could_be_shown_has_an_interval_without_zero(table: Evidence) -> None:
    """As large as is said, around it an interval as wide as the table's touches zero."""
    test, _ = decisive(table, main(table))
    words = resolution(table, [main(table)], "text")
    if test is None or not test.difference.bounded or holds(test, table.alpha):
        assert words == []
        return
    own, gap = table.statistics["s"], test.difference
    half = own.shown((gap.high - gap.low) / 2).value
    assert fixed(half, own.digits) in words[0] and "--" not in words[0]
    level = table.level("s", table.main)
    assert level is not None and f"{level.examples} text" in words[0]


def test_where_nothing_changes_one_line_says_so() -> None:
    draws = [Condition(SELECTED, k=1, gate=0.0, heads=("0.0",))]
    draws += [replace(draws[0], kind="random", draw=n, heads=(f"1.{n}",)) for n in range(4)]
    share = Statistic("empty", "lower", SHARE, 1)
    table = evidence([Condition(), *draws], {"a": {"s": [*counted(np.zeros((6, 200)))]}},
                     {"s": share})  # fmt: skip
    said = headline(table, [main(table)], "output")
    assert said.startswith("Nothing changes. ") and "0 of 200 outputs" in said and ":" in said
    assert NUMBER.findall(said.partition("condition")[0]) == ["0", "200"]


def test_of_many_cases_the_largest_is_spoken_of_and_all_are_counted() -> None:
    """Each part has an effect of its own; p of 19 draws decides in each."""
    rng, parts = np.random.default_rng(0), {}
    top = Condition(SELECTED, k=2, gate=0.0, heads=("0.0", "1.2"))
    draws = [replace(top, kind="random", draw=n, heads=(f"0.{n}", "1.3")) for n in range(19)]
    falls = {"a": 0.0, "b": 3.0, "c": 1.0, "d": 0.0}
    for name, fall in falls.items():
        base = rng.random(30)
        rows = [base, base - fall, *(base + 0.05 * rng.normal(size=30) for _ in draws)]
        parts[name] = {"s": [*counted(np.array(rows))]}
    table = evidence([Condition(), top, *draws], parts, {"s": Statistic("the score")})
    cases = [Case("s", top, part, part) for part in falls]
    said = headline(table, cases, "text", each="part")
    assert said.startswith("Without 2 heads, the score in b falls by 3.000")
    assert f"most of 4 parts: {SHOWN} for heads of any layer alone in 2; {NOT_SHOWN} in 2" in said


# ---- what goes on ------------------------------------------------------------------------------
LINE = ("headscope", "verify", "removal", "--heads", "5.1", "--draws", "4", "--out", "runs/a b/")


def following(
    table: Evidence, *line: str, settings: type[Any] = VerifyRemoval, **more: Any
) -> Next | None:
    run = cast(Run, SimpleNamespace(provenance={"command_line": list(line)}))
    name = " ".join(line[1:3])
    spent = Spent(60.0, 100.0)
    return going_on(name, run, settings, table, [main(table)], spent, **more)


def few(draws: int = 4, harm: float = 3.0, asked: int = 0) -> Evidence:
    rng = np.random.default_rng(1)
    base, top = rng.random(20), Condition(SELECTED, k=2, gate=0.0, heads=("0.0", "1.2"))
    others = [replace(top, kind="random", draw=n, heads=(f"0.{n}", "1.3")) for n in range(draws)]
    rows = [base, base - harm, *(base + 0.05 * rng.normal(size=20) for _ in others)]
    table = evidence([Condition(), top, *others], {"a": {"s": [*counted(np.array(rows))]}},
                     {"s": Statistic("the score")})  # fmt: skip
    return replace(table, asked=asked or draws)


def test_too_few_draws_go_on_one_after_another_in_another_folder() -> None:
    """The same command but for draws and folder; 32 conditions of 100 seconds."""
    assert OPEN in verdict_of(few(), main(few()))
    found = following(few(), *LINE)
    assert found is not None and found.minutes == pytest.approx(1 + 100 * 32 / 60, abs=0.01)
    assert found.command == (
        "headscope verify removal --heads 5.1 --out 'runs/a b-more' --draws auto"
    )


def test_a_command_whose_draws_have_no_auto_asks_for_the_fewest_that_decide() -> None:
    class Fixed(VerifyTasks):
        draws: int = 5

    line = ("headscope", "verify", "tasks", "--draws=4")
    found = following(few(), *line, settings=Fixed)
    assert found is not None and found.command == "headscope verify tasks --draws 19"
    found = following(replace(few(), alpha=0.01), *line, settings=Fixed)
    assert found is not None and found.command.endswith("--draws 99")
    seeds = following(few(), "headscope", "find", "soft-gate", option="--seeds")
    assert seeds is not None and seeds.command.endswith("--seeds 19")


def test_draws_one_after_another_go_on_by_the_same_command() -> None:
    table = with_rule(few(8), lambda test: 199, 0.05)
    found = following(table, *LINE)
    assert found is not None and found.command == (
        "headscope verify removal --heads 5.1 --draws 4 --out 'runs/a b/'"
    )
    assert found.minutes == pytest.approx(1 + 100 * (32 - 10) / 60, abs=0.01)
    # It decides, so it does not end early as this run did.
    for minutes in (("--minutes", "4.5"), ("--minutes=4.5",)):
        assert following(table, *LINE, *minutes) == found


@pytest.mark.parametrize(
    ("table", "line"),
    [
        (few(19), LINE),  # shown
        (few(19, harm=0.0), LINE),  # not shown
        (few(4, asked=99), LINE),  # there are no other sets
        (few(), ("script.py", "verify", "removal")),
        (few(), ("headscope", "reproduce", "lahis")),  # the run is a step of another command
    ],
)
def test_what_cannot_help_is_not_advised(table: Evidence, line: tuple[str, ...]) -> None:
    run = cast(Run, SimpleNamespace(provenance={"command_line": list(line)}))
    assert going_on("verify removal", run, VerifyRemoval, table, [main(table)],
                    Spent(1, 1)) is None  # fmt: skip


def test_no_draws_are_asked_for_where_all_sets_were_drawn() -> None:
    """Of two layers of two heads there are six pairs, of which one is selected."""
    line = ("headscope", "verify", "removal", "--draws", "5")
    for layers, more in (((2, 3), False), ((1, 4), False), ((3, 3), True)):
        table = few(max(1, comb(sum(layers), 2) - 1 - more))
        assert OPEN in verdict_of(table, main(table))
        assert (following(table, *line, geometry=Geometry(layers)) is not None) == more


def test_few_sets_are_said_to_be_few() -> None:
    assert verdict_of(few(4, asked=99), main(few())).startswith(f"{TOO_FEW} (only 4 different sets")


def test_page_terminal_and_json_have_the_command_and_it_decides(
    command_line: Callable[..., Said], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = ("verify", "removal", "--pair", "en-de", "--heads", "5.1,5.3,4.3", "--measure", "loss",
             "--limit", "8", "--allow-overlap", "--draws", "2", "--control", "random",
             "--out", str(tmp_path / "few"))  # fmt: skip
    said = command_line(*asked)
    result = json.loads((tmp_path / "few" / "result.json").read_text("utf-8"))
    told = result["next"]["command"]
    assert OPEN in result["verdict"] and "--" not in result["verdict"]
    assert said.out.rstrip("\n").splitlines()[-1] == told
    assert said.out.splitlines()[-2].startswith("Next, ")
    stored = read_run(tmp_path / "few")
    shown = shown_of(removal, stored, tmp_path / "few")
    assert shown.next == stored.next == Next(told, result["next"]["minutes"])
    page = write_report(tmp_path / "few").read_text("utf-8")
    assert f'data-text="{told}"' in page
    command_line(*told.split()[1:])
    decided = json.loads((tmp_path / "few-more" / "result.json").read_text("utf-8"))
    assert f": {SHOWN}" in decided["verdict"] and "next" not in decided


@pytest.fixture
def command_line(
    command: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Said]:
    """The command line, with what was typed where provenance finds it."""

    def run(*arguments: str) -> Said:
        monkeypatch.setattr(sys, "argv", ["headscope", *arguments])
        said = command(*arguments)
        assert said.code == 0, said.err
        return said

    return run


# ---- durations ---------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("ends", "words"),
    [
        ((0.2,), "less than 1 second"),
        ((40,), "40 seconds"),
        ((29, 125), "less than 1 to 2 minutes"),
        ((540, 2400), "9 to 40 minutes"),
        ((5400, 21600), "1.5 to 6.0 hours"),
    ],
)
def test_durations_have_one_unit(ends: tuple[float, ...], words: str) -> None:
    assert duration(*ends) == words
