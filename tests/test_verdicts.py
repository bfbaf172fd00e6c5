"""Every sentence of a verdict is recomputed from the JSON of its run: controls, counts, levels."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pytest

from command_runs import CommandRun
from headscope.evidence.controls import FREE, MATCHED
from headscope.evidence.headline import LOST, NOT_SHOWN, OPEN, SHOWN, TOO_FEW
from headscope.measure.intervals import wilson_interval
from headscope.results.common import ComparedResult
from headscope.results.methods import MethodComparison
from headscope.shown.blocks import AS_MUCH, Cell, Forest, Row, Shown, Table
from headscope.studies.registry import study_of
from headscope.studies.report import read_run
from headscope.studies.study import shown_of

#: What is said of several cases: the others of their controls stand in the figure.
SEVERAL = re.compile(r" most of |; not (shown|decided yet) (in|for|with) | (in|with) (both|all)\b")
#: Counts of random sets in a sentence: `0 of 30 random sets do as much, 1 of the same layers`.
COUNTS = re.compile(r"\d+ of \d+ random sets do as much[^;).]*")


class Told(NamedTuple):
    name: str
    written: Mapping[str, Any]
    shown: Shown

    @property
    def tests(self) -> dict[tuple[str, str, str], list[Mapping[str, Any]]]:
        """The tests by case, that against random heads first."""
        cases: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
        for test in self.written["tests"]:
            case = test["part"], test["condition"], test["statistic"]
            cases.setdefault(case, []).append(test)
        order = (*FREE, *MATCHED)
        for own in cases.values():
            own.sort(key=lambda test: order.index(test["control"]) if test["control"] in order
                     else len(order))  # fmt: skip
        return cases

    def difference(self, test: Mapping[str, Any]) -> str:
        """The size of a difference as it is shown."""
        own = self.written["statistics"][test["statistic"]]
        factor = 100 if own["unit"] == "share" else 1
        return f"{abs(factor * test['difference']['value']):.{own.get('digits', 3)}f}"

    def spoken_of(self) -> Iterator[list[Mapping[str, Any]]]:
        """The tests of cases whose first difference stands in the verdict."""
        verdict = self.written["verdict"]
        for own in self.tests.values():
            first = self.written["controls"][own[0]["control"]]["words"]
            than = rf" than \w+ {re.escape(first)}\b"
            if own[0]["difference"]["value"] is None or not re.search(than, verdict):
                continue
            if "all of that" in verdict or re.search(rf"\b{self.difference(own[0])}\b", verdict):
                yield own


@pytest.fixture(scope="module")
def told(command_runs: list[CommandRun]) -> list[Told]:
    made = []
    for run in command_runs:
        written = json.loads((run.folder / "result.json").read_text("utf-8"))
        result = read_run(run.folder)
        if isinstance(result, ComparedResult):
            page = shown_of(study_of(run.command), result, run.folder)
            made.append(Told(f"{run.command} ({run.folder.name})", written, page))
    return made


def test_a_verdict_names_every_control_that_was_tested_with_its_difference(
    told: list[Told],
) -> None:
    """Where it names one at all: a case of the table has all that the sentence has."""
    named = 0
    for each in told:
        name, written, _ = each
        if " than " not in (verdict := written["verdict"]) or SEVERAL.search(verdict):
            continue
        complete = [
            all(
                written["controls"][test["control"]]["words"].removeprefix("random heads ")
                .removeprefix("random masks ") in verdict
                and re.search(rf"{each.difference(test)}|all of that|as much,?", verdict)
                for test in own
                if test["difference"]["value"] is not None
            )
            for own in each.spoken_of()
        ]  # fmt: skip
        if complete:
            named += 1
            assert any(complete), (name, verdict)
    assert named > 5


def test_counts_of_random_sets_are_those_of_the_tests(told: list[Told]) -> None:
    found = 0
    for each in told:
        name, _, shown = each
        for counts in COUNTS.findall(" ".join([*shown.finding, shown.uncertainty])):
            numbers, said = [int(number) for number in re.findall(r"\d+", counts)], []
            for own in each.tests.values():
                pairs = [
                    (test["at_least_as_harmful"], test["draws"])
                    for test in own
                    if test["p_draws"] is not None
                ]
                if pairs:
                    more = [n for one in pairs[1:] for n in one[: 1 + (one[1] != pairs[0][1])]]
                    said.append([*pairs[0], *(more if len(set(pairs)) > 1 else [])])
            assert numbers in said, (name, counts, said)
            found += 1
    assert found > 5


def test_what_is_shown_excludes_zero_and_few_random_sets_do_as_much(told: list[Told]) -> None:
    """Of a single case: the first answer is that of the first control, by the JSON alone."""
    answers = "|".join(sorted((NOT_SHOWN, SHOWN, LOST, OPEN, TOO_FEW), key=len, reverse=True))
    for each in told:
        name, written, _ = each
        cases = [own for own in each.spoken_of() if own[0]["p_draws"] is not None]
        answer = re.search(rf": ({answers})", written["verdict"])
        if answer is None or not cases or " most of " in written["verdict"]:
            continue
        shown = set()
        for own in cases:
            test, ends = own[0], own[0]["difference"]
            low, high = (ends[end] if ends[end] is not None else ends["value"]
                         for end in ("low", "high"))  # fmt: skip
            beyond = low > 0 if test["side"] == "higher" else high < 0
            shown.add(beyond and test["p_draws"] <= 0.05)
        assert (answer[1] == SHOWN) in shown, (name, written["verdict"])


def test_levels_stand_beside_every_difference(told: list[Told]) -> None:
    """In the table of tests, the selected level minus the random one is the difference shown."""
    rows = 0
    for name, _, shown in told:
        for block in shown.blocks:
            if isinstance(block, Table) and AS_MUCH in block.columns and "control" in block.columns:
                for row in block.rows:
                    at = dict(zip(block.columns, row.cells, strict=True))
                    selected, random = at["selected"].value, at["control"].value
                    difference = at["difference"].value
                    if None not in (selected, random, difference):
                        rows += 1
                        assert selected - random == pytest.approx(difference, abs=1e-6), (name, row)
    assert rows > 20


def test_nothing_void_is_shown_and_nothing_shown_is_muted(told: list[Told]) -> None:
    """A row of a figure or of tests has a number; a page has a warning if and only if the original
    model is not known to do the task."""
    for name, written, shown in told:
        works = written.get("baseline_works", True)
        checked = written.get("baseline_check") is not None
        assert bool(shown.warning) == (checked and works is not True), name
        judged = [each for each in (written.get("baseline_check") or {}).values()
                  if isinstance(each, dict)]  # fmt: skip
        fails = [each["works"] is False or "data_at_fault" in each["counts"] for each in judged]
        assert shown.muted == (bool(fails) and all(fails)), name
        for block in shown.blocks:
            if isinstance(block, Forest):
                assert all(gaps for _, gaps in block.rows), name
                assert all(gap.value == gap.value for _, gaps in block.rows for gap in gaps), name
            if isinstance(block, Table):
                void = [row.name for row in block.rows if _void(row)]
                assert not void, (name, block.title, void)


def _void(row: Row) -> bool:
    def empty(cell: Cell) -> bool:
        return cell.value is None and cell.why is None

    return bool(row.cells) and all(map(empty, row.cells))


def test_of_what_never_changes_the_bound_is_that_of_all_outputs(told: list[Told]) -> None:
    """`0 of 160 outputs in every condition; 95 % upper bound 2.3 %`."""
    said, bounds = 0, re.compile(r"(\d+) of (\d+) [^;]*?; 95\W% (upper|lower) bound ([\d.]+)")
    for name, written, shown in told:
        for words in [*shown.finding, *(section.lead for section in shown.sections)]:
            for hits, total, side, bound in bounds.findall(words):
                assert (side == "upper") == (hits == "0") and hits in ("0", total), (name, words)
                low, high = wilson_interval(int(hits), int(total))
                exact = 100 * (high if side == "upper" else low)
                assert float(bound) == pytest.approx(exact, abs=0.051), (name, words)
                said += 1
        values: dict[str, set[Any]] = {}
        for row in written["levels"]:
            values.setdefault(row["statistic"], set()).add(row["value"])
        if written["verdict"].startswith("Nothing changes"):
            assert any(len(own) == 1 for own in values.values()), name
    assert said


def test_the_heads_that_come_first_are_those_that_most_methods_choose(
    command_runs: list[CommandRun],
) -> None:
    """Named if they are more than chance gives."""
    found = 0
    for run in command_runs:
        compared = getattr(read_run(run.folder), "comparison", None)
        said = json.loads((run.folder / "result.json").read_text("utf-8"))["verdict"]
        if not isinstance(compared, MethodComparison) or said.startswith("By "):
            continue
        most = max(len(head.selected_by) for head in compared.heads)
        chosen = {str(head.place) for head in compared.heads if len(head.selected_by) == most}
        chance = sum(row.expected for row in compared.agreement if row.methods >= most)
        assert (most > 1 and len(chosen) > chance) == said.startswith("Use first: "), said
        named = said.partition(", chosen by ")[0].removeprefix("Use first: ")
        assert (
            not said.startswith("Use first: ")
            or {name for name in re.split(", | and ", named) if "more" not in name} <= chosen
        )
        found += 1
    assert found > 1
