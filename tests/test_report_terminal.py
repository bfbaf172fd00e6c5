"""What every command prints: the verdict first, as wide as the terminal, nothing twice."""

from __future__ import annotations

from collections import Counter

import pytest
from rich.cells import cell_len

from command_runs import CommandRun
from headscope.report.terminal import LEAST, SCREEN, text_of
from headscope.shown.blocks import Cell, Row, Section, Shown, Table
from headscope.studies.registry import study_of
from headscope.studies.report import read_run
from headscope.studies.study import shown_of


def words_of(text: str) -> list[str]:
    return " ".join(text.replace("\u00a0", " ").replace("\u202f", " ").split()).split()


@pytest.fixture(scope="module")
def shown(command_runs: list[CommandRun]) -> dict[str, Shown]:
    return {
        f"{made.command} ({made.folder.parent.name}/{made.folder.name})": shown_of(
            study_of(made.command.replace("reproduce all", "reproduce")), read_run(made.folder),
            made.folder,
        )
        for made in command_runs
    }  # fmt: skip


@pytest.mark.parametrize("width", [80, 200])
def test_no_line_is_longer_than_the_terminal(shown: dict[str, Shown], width: int) -> None:
    wrong = [
        f"{name}: {line}"
        for name, each in shown.items()
        for line in text_of(each, width=width, full=True).splitlines()
        if cell_len(line) > width and len(line.split()) > 1
    ]
    assert not wrong, "\n".join(wrong)


def test_the_verdict_is_first_and_nothing_stands_twice(shown: dict[str, Shown]) -> None:
    wrong = []
    for name, each in shown.items():
        lines = text_of(each, width=200, full=True).splitlines()
        first = f"Warning: {each.warning}" if each.warning else each.finding[0]
        if words_of(first)[:4] != words_of(lines[0])[:4]:
            wrong.append(f"{name}: begins with {lines[0]}")
        # Rows of numbers may be equal; sentences and titles are not.
        said = Counter(line for line in lines if len(line.split()) > 4 and "  " not in line)
        wrong += [f"{name}: twice {line}" for line, many in said.items() if many > 1]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("width", [80, 100, 200])
def test_what_is_printed_has_one_screen_and_says_how_many_lines_are_left(
    shown: dict[str, Shown], width: int
) -> None:
    """More lines are cautions alone; what is left out is what `--full` adds."""
    for name, each in shown.items():
        brief, full = (
            text_of(each, "runs/a", None, width, whole).splitlines() for whole in (False, True)
        )
        said = sum(len(words) // width + 2 for words in (*each.cautions, each.warning))
        assert len(brief) <= max(SCREEN, LEAST + 14 + said), (name, len(brief))
        left = [line for line in brief if line.endswith("--full")]
        assert len(left) == (brief != full), name


def test_a_wide_table_is_one_table_where_the_terminal_is_wide() -> None:
    columns = tuple(f"difference from control {at}" for at in range(6))
    rows = tuple(Row(f"row {at}", (Cell(float(at), at - 1.0, at + 1.0),) * 6) for at in range(3))
    block = Shown(
        "", "", ("Found.",), sections=[Section("A", [Table("A", columns, rows)], brief=True)]
    )
    narrow, wide = (text_of(block, width=width, full=True).splitlines() for width in (80, 200))
    assert sum("row 1" in line for line in wide) == 1
    assert 1 < sum("row 1" in line for line in narrow) < 6
    assert max(map(cell_len, narrow)) <= 80
    for lines in (narrow, wide):  # all intervals are there
        assert " ".join(lines).count("0.000 \u2013 2.000") == 6
