"""What every page has, and the page of scores without a removal."""

from __future__ import annotations

from html import unescape
from pathlib import Path

import pytest

from headscope.errors import InputError
from headscope.report.page import page_of, render
from headscope.report.provenance import about_run
from headscope.shown.blocks import Block, Cell, Heatmap, Row, Section, Shown, Table
from removal_report_helpers import write_removal


def test_about_run_tells_what_the_run_stores(tmp_path: Path) -> None:
    html = unescape(about_run(write_removal(tmp_path / "run")))
    for words in ("headscope-", "|verify removal|", "pocket", '"note": ""'):
        assert words in html
    (tmp_path / "run" / "provenance.json").write_text("[", "utf-8")
    with pytest.raises(InputError, match=r"provenance\.json: is damaged"):
        about_run(tmp_path / "run")


def test_the_registry_has_the_studies_of_all_commands() -> None:
    from headscope.studies.registry import COMMANDS, study_of
    from test_cli_app import commands

    assert set(COMMANDS) == {path for path, _ in commands()}
    for command in COMMANDS:
        study = study_of(command)
        # What has a run folder can be read again, and shown.
        assert study.show is None or study.out is None or study.result or command == "reproduce"
    with pytest.raises(InputError, match="did you mean find lahis"):
        study_of("find lahi")


def test_a_page_has_the_rules_and_colours_of_its_blocks_alone(tmp_path: Path) -> None:
    def style(*blocks: Block) -> str:
        shown = Shown("A", "B", ("Found.",), sections=[Section("One", blocks)])
        page = render(page_of(shown, run, "find lahis"))
        return page.partition("<style>")[2].partition("</style>")[0]

    run = write_removal(tmp_path / "run")
    table = Table("One", ("n",), (Row("a", (Cell(1),)),))
    bare, mapped = style(table), style(table, Heatmap("A", ("0",), ("0",), ((1.0,),), "n"))
    for rule in (".chart svg", ".cell", ".example", ".key-text", "--s16", "--q8"):
        assert rule not in bare
    assert ".values tbody th{" in bare and "@media print{" in bare and "--ink:" in bare
    assert ".ramp i{" in mapped and mapped.count("--s16:") == 2 and "/*" not in mapped
    assert len(bare) < len(mapped) < 12_000
