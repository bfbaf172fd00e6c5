"""The page of every command that compares: verdict, figure, tests, cautions, heads and method."""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

import pytest

from command_runs import CommandRun
from headscope.evidence.blocks import places
from headscope.evidence.headline import LOST, NOT_SHOWN, OPEN, SHOWN, TOO_FEW, UNTESTED, unmoved
from headscope.results.common import ComparedResult
from headscope.shown.blocks import AS_MUCH, METHOD, Forest, HeadSets, Shown, Table
from headscope.shown.words import sentence_of
from headscope.studies.comparison import Comparison
from headscope.studies.registry import COMMANDS
from headscope.studies.report import read_run

#: `use adapt` compares with an option alone, so its study is none of a comparison.
MODULES = (*COMMANDS.values(), "headscope.studies.use.steering")
#: Every layer is removed in turn, so that no heads are selected.
WITHOUT_HEADS = "verify layers"
#: Its tests are those of the heads of each language by its own text.
OWN_TEXT = "verify perplexity"


class Page(NamedTuple):
    name: str
    command: str
    result: ComparedResult
    shown: Shown


def comparisons() -> dict[str, Comparison[Any, Any]]:
    found = (getattr(import_module(place), "comparison", None) for place in MODULES)
    return {each.command: each for each in found if isinstance(each, Comparison)}


@pytest.fixture(scope="module")
def pages(command_runs: list[CommandRun]) -> list[Page]:
    known, made = comparisons(), []
    for run in command_runs:
        comparison = known.get(run.command)
        if comparison is not None and isinstance(result := read_run(run.folder), comparison.result):
            page = comparison.page(result, run.folder)
            made.append(Page(f"{run.command} ({run.folder.name})", run.command, result, page))
    return made


def test_every_comparison_has_a_page(pages: list[Page]) -> None:
    assert {page.command for page in pages} == set(comparisons())


def test_the_effect_comes_first_and_then_its_verdict(pages: list[Page]) -> None:
    """In a sentence without an option: what is done, what that does, what of it is shown."""
    answers = (SHOWN, LOST, NOT_SHOWN, OPEN, TOO_FEW, UNTESTED)
    for name, _, result, shown in pages:
        first, unchanged = shown.finding[0], shown.finding[0].startswith("Nothing changes.")
        assert sentence_of(result.verdict) == first, name
        assert unchanged or any(f": {answer}" in first for answer in answers), (name, first)
        assert not [words for words in (*shown.finding, shown.uncertainty) if "--" in words], name


def test_the_effect_is_drawn(pages: list[Page]) -> None:
    assert not [page.name for page in pages if page.shown.figure is None]
    assert not [page.name for page in pages if page.result.evidence.tests
                and not any(isinstance(block, Forest) for block in page.shown.blocks)]  # fmt: skip


def test_every_test_is_shown_once(pages: list[Page]) -> None:
    """Those over all parts, where a statistic has a mean over them."""
    for name, command, result, shown in pages:
        found = result.evidence
        rows = [
            (block.title, row.name)
            for block in shown.blocks
            if isinstance(block, Table) and AS_MUCH in block.columns
            for row in block.rows
        ]
        assert len(rows) == len(set(rows)), name
        for statistic, own in found.statistics.items() if command != OWN_TEXT else ():
            tests = sum(
                len(found.against(statistic, condition, part))
                for condition in found.selected
                for part in places(found, statistic)
            )
            many = sum(own.words in row.split(": ") for _, row in rows)
            assert many == tests or (not many and unmoved(found, statistic)), (name, statistic)


def test_cautions_heads_and_method_are_there(pages: list[Page]) -> None:
    for name, command, result, shown in pages:
        assert set(result.cautions) <= set(shown.cautions), name
        sets = [block for block in shown.blocks if isinstance(block, HeadSets)]
        assert command == WITHOUT_HEADS or (sets and all(each.sets for each in sets)), name
        assert shown.sections[-1].title == METHOD and shown.sections[-1].lead, name
