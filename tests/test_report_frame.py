"""What every page has, and the page of scores without a removal."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import pytest

from headscope.errors import InputError
from headscope.report.html import Html, tag
from headscope.report.page import page_of, render
from headscope.report.parts import table
from headscope.report.provenance import about_run, facts_list
from headscope.shown.blocks import Block, Cell, Heatmap, Row, Section, Shown, Table
from removal_report_helpers import write_removal


def test_about_run_tells_what_the_run_stores(tmp_path: Path) -> None:
    html = unescape(about_run(write_removal(tmp_path / "run")))
    for words in ("headscope-", "|verify removal|", "pocket", '"note": ""'):
        assert words in html
    (tmp_path / "run" / "provenance.json").write_text("[", "utf-8")
    with pytest.raises(InputError, match=r"provenance\.json: is damaged"):
        about_run(tmp_path / "run")


def test_a_long_name_of_a_fact_stands_above_its_value() -> None:
    shown = str(facts_list("Read", {"short": "a", "pairs en-de=/data/of/mine/en-de.tsv": "b"}))
    assert re.findall(r'<div( class="long")?><dt>', shown) == ["", ' class="long"']


def test_columns_of_words_stand_at_the_left_in_a_table_of_numbers() -> None:
    html = table("Models", ("Name", "Method", "Score"), [("a", "b", "1")], said=(1,))
    assert html.count('class="said"') == 2
    assert '<th scope="col" class="said">Method</th>' in html
    assert isinstance(html, Html)
    assert tag("td", "b", class_="said") in html


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


def test_a_block_does_not_repeat_the_title_of_its_section(tmp_path: Path) -> None:
    tables = [Table(title, ("n",), (Row("a", (Cell(1),)),)) for title in ("One", "Other")]
    shown = Shown("A", "B", ("Found.",), sections=[Section("One", tables)])
    run = write_removal(tmp_path / "run")
    page = render(page_of(shown, run, "find lahis"))
    assert "<strong>One.</strong>" not in page and "<strong>Other.</strong>" in page
    assert "<caption>One</caption>" in page
