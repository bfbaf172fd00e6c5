"""Pages of blocks in a real browser: they show, react, fit, print, and run nothing foreign."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from struct import unpack
from typing import Any
from xml.etree.ElementTree import fromstring

import pytest

from browser_helpers import Visit, chromium, visit
from headscope.report.drawing.heads import ROWS
from headscope.report.page import page_of, render
from headscope.runs import carry_out
from headscope.shown.blocks import (
    Bars,
    Cell,
    Column,
    Forest,
    Gap,
    HeadMap,
    HeadMaps,
    HeadSets,
    HeadTable,
    Lines,
    LinkedWords,
    Row,
    Section,
    Sentence,
    Sentences,
    Series,
    Shown,
    Table,
    p_cell,
)

HOSTILE = (
    "</script><script>window.hacked=1;alert(1)</script>"
    "<img src=x onerror='window.hacked=1'>\"' onmouseover=\"window.hacked=1\" \u2028 &amp; <!--"
)
ARABIC = "\u0627\u0644\u0628\u0627\u0628 \u0627\u0644\u0623\u062d\u0645\u0631"
CHINESE = "\u7ea2\u8272\u7684\u95e8\U00020000\u5f00\u4e86"
HEADS = tuple((layer, head) for layer in range(6) for head in range(16))
PARTS = ("mean", "en-de", "es-tr")


def scores(part: str, key: str) -> list[float]:
    """Numbers of all heads, different for each part and column."""
    factor = 7 + 6 * PARTS.index(part) + 2 * ("score", "chance", "above").index(key)
    return [(factor * at % 97) / 97 for at in range(len(HEADS))]


def head_table() -> HeadTable:
    columns = (Column("score", "TS"), Column("chance", "Chance"), Column("above", "TS - chance"))
    parts = {
        part: {key: scores(part, key) for key in ("score", "chance", "above")} for part in PARTS
    }
    return HeadTable(
        "Heads",
        HEADS,
        columns,
        parts,
        ranked_by="above",
        threshold=0.5,
        classes=(("high", 0.5), ("low", None)),
    )


def sentence(at: int, text: str = "", words: str = "Mira opened the door") -> Sentence:
    source, reference = f"{words}{text}", f"Mira \u00f6ffnete die T\u00fcr {at}{text}"
    after = "Mira die" if at % 2 else reference
    outputs = {"original": reference, "selected": after, "random": reference}
    spans = ((0, 4), (5, 11), (12, 15), (16, 20))
    other = ((0, 4), (5, 12), (13, 16), (17, 20))
    links = ((0, 0), (1, 1), (2, 2), (3, 3))
    linked = {} if words != "Mira opened the door" else {
        name: LinkedWords(spans, other, links) for name in ("reference", "original", "random")
    }  # fmt: skip
    chrf = {"original": 100.0, "selected": float(at), "random": 90.0}
    direction = "en-de" if at % 2 else "de-en"
    return Sentence(direction, f"{at}{text}", source, reference, outputs, chrf, linked)


def page_file(
    path: Path,
    text: str = "",
    sentences: tuple[Sentence, ...] = (),
    table: HeadTable | None = None,
) -> Path:
    """The page of a run that shows blocks of every kind; `text` stands in all of its texts."""
    labels = {
        "original": f"Original{text}",
        "selected": "Selected removed",
        "random": "Random removed",
    }
    shown = sentences or tuple(sentence(at, text) for at in range(50))
    draws = (((), (3.0, 5.0, 9.0)),)
    bars = Bars(f"Bars{text}", (f"k = 3{text}",), ("selected", "random"), ((4.0, 5.0),), "chrF++",
                draws=draws)  # fmt: skip
    x = (1.0, 2.0, 4.0)
    lines = Lines(
        f"Lines{text}",
        (
            Series(f"selected{text}", tuple((at, 90 / at) for at in x), (20, 20, 20), (95, 95, 95)),
            Series("random", tuple((at, 60 + at) for at in x)),
        ),
        "heads removed",
        "chrF++",
    )
    gaps = Gap("random", 2.0, 1.0, 3.0, (1.5, 2.5), "1 of 2"), Gap("same layers", 1.0, -1.0, 2.0)
    forest = Forest(
        f"Forest{text}", ((f"en \u2192 de{text}", gaps),), "chrF++", ("worse", "better")
    )
    rows = tuple(Row(f"row {at}{text}", (Cell(float(7 * at % 5)), Cell(f"word{text}")))
                 for at in range(5))  # fmt: skip
    block = Shown(
        f"Blocks{text}",
        f"What a page shows.{text}",
        [f"Something was found.{text}"],
        f"Three draws, so p is at least 0.25.{text}",
        "--draws 99",
        [f"Few sentences.{text}"],
        [("model", f"pocket{text}")],
        [
            Section("Heads", [table or head_table()]),
            Section(
                "Maps",
                [
                    HeadMaps("Maps", (HeadMap(f"a{text}", ((0.5, 1.0),)),), "score"),
                    HeadSets("Sets", {f"selected{text}": ((4, 3), (0, 11))}),
                ],
            ),
            Section(
                "Figures", [bars, lines, forest, Table(f"Table{text}", ("number", "word"), rows)]
            ),
            Section("Sentences", [Sentences("Sentences", shown, labels, "reference")]),
        ],
    )
    carry_out("find lahis", path, {"seed": 0}, {}, lambda run: {"model": {"name": f"m{text}"}})
    file = path / "page.html"
    file.write_text(render(page_of(block, path, "find lahis")), "utf-8")
    return file


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as opened:
        yield opened


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return page_file(tmp_path_factory.mktemp("browser") / "run")


def column(page: Visit, key: str) -> list[str]:
    cells: list[str] = page.page.locator(f".ranking tbody [data-c={key}]").all_inner_texts()
    return cells


def colours(page: Visit) -> list[str]:
    fills: list[str] = page.value(
        "Array.from(document.querySelectorAll('.heatmap .cell'), c => getComputedStyle(c).fill)"
    )
    return fills


def ranked(part: str) -> list[str]:
    above = scores(part, "above")
    order = sorted(range(len(HEADS)), key=lambda at: (-above[at], at))
    return [f"L{HEADS[at][0]}.H{HEADS[at][1]}" for at in order]


# ---- heads ---------------------------------------------------------------------------------------
def test_a_cell_tells_its_numbers_by_pointer_and_by_arrow_keys(browser: Any, report: Path) -> None:
    with visit(browser, report) as page:
        cells, tip = page.page.locator(".heatmap .cell"), page.page.locator("#tip")
        assert cells.count() == 96
        cells.nth(35).hover()
        assert tip.inner_text().startswith("head L2.H3: ")
        assert f"TS {scores('mean', 'score')[35]:.3f}" in tip.inner_text()
        page.page.mouse.move(0, 0)  # or what scrolls below the pointer would be read
        page.page.locator(".heatmap .matrix").focus()
        page.page.keyboard.press("Escape")
        read = []
        for key in ("ArrowRight", "ArrowRight", "ArrowDown", "ArrowLeft"):
            page.page.keyboard.press(key)
            read.append(tip.inner_text().split(":")[0])
        assert read == ["head L0.H0", "head L0.H1", "head L1.H1", "head L1.H0"]
        page.page.keyboard.press("Escape")
        assert tip.is_hidden()


def test_the_choice_changes_map_layers_and_ranking(browser: Any, report: Path) -> None:
    with visit(browser, report) as page:
        before, layers = colours(page), page.page.locator(".profile").text_content()
        assert column(page, "head") == ranked("mean")[:ROWS]
        page.choose("#direction", "es-tr")
        assert column(page, "head") == ranked("es-tr")[:ROWS]
        assert colours(page) != before
        assert page.page.locator(".profile").text_content() != layers
        page.choose(".shade", "chance")
        chance = colours(page)
        page.choose("#direction", "mean")
        assert colours(page) != chance
        page.choose(".shade", "score")
        assert colours(page) == before


def effects() -> HeadTable:
    """Effects of either sign, the strongest below 0, with their intervals."""
    values = [at % 7 / 10 - 0.4 for at in range(len(HEADS))]
    ends = {"low": [value - 0.15 for value in values], "high": [value + 0.15 for value in values]}
    columns = (Column("score", "Effect"), Column("low", ""), Column("high", ""))
    parts = {"all": {"score": values, **ends}}
    return HeadTable("Heads", HEADS, columns, parts, significant=True, signed=True)


@pytest.mark.parametrize("table", [head_table(), effects()], ids=["scores", "effects"])
def test_the_script_draws_what_the_page_was_written_with(
    browser: Any, table: HeadTable, tmp_path: Path
) -> None:
    file, drawn = page_file(tmp_path / "run", table=table), []
    for enabled in (True, False):
        with visit(browser, file, java_script_enabled=enabled) as page:
            texts = [page.page.locator(f"{name} tbody").text_content()
                     for name in (".ranking", ".profile")]  # fmt: skip
            cells = page.page.locator(".heatmap .cell")
            drawn.append((texts, [cells.nth(n).get_attribute("class") for n in range(0, 96, 7)]))
    assert drawn[0] == drawn[1]


def test_both_ends_of_the_colours_are_those_of_the_column(browser: Any, tmp_path: Path) -> None:
    table = effects()
    double = [2 * (value or 0.0) for value in table.parts["all"]["score"]]
    table = replace(
        table,
        columns=(*table.columns, Column("double", "Twice")),
        parts={"all": {**table.parts["all"], "double": double}},
    )
    with visit(browser, page_file(tmp_path / "run", table=table)) as page:
        ends = page.page.locator(".heatmap .rampbar > span:not(.ramp)")
        for key, end in (("score", 0.4), ("double", 0.8), ("score", 0.4)):
            page.page.select_option(".shade", key)
            said = [float(text.replace("\u2212", "-")) for text in ends.all_inner_texts()]
            assert said == [-end, end]


def test_the_ranking_sorts_extends_and_is_saved(browser: Any, report: Path, tmp_path: Path) -> None:
    with visit(browser, report) as page:
        page.page.click(".more")
        assert column(page, "head") == ranked("mean")
        page.page.click("button[data-sort=above]")
        assert column(page, "above") == sorted(column(page, "above"))
        page.page.click("button[data-sort=head]")
        assert column(page, "head") == [f"L{layer}.H{head}" for layer, head in HEADS]
        with page.page.expect_download() as download:
            page.page.click(".csv")
        download.value.save_as(tmp_path / "heads.csv")
        lines = (tmp_path / "heads.csv").read_text("utf-8").splitlines()
        assert lines[0] == "layer,head,score,chance,above" and len(lines) == 97
        assert [float(x) for x in lines[36].split(",")] == pytest.approx(
            [2, 3, *(scores("mean", key)[35] for key in ("score", "chance", "above"))], abs=1e-6
        )


def test_a_head_in_the_address_is_marked_everywhere(browser: Any, report: Path) -> None:
    with visit(browser, report) as page:
        page.page.locator("a.chip").first.click()
        assert page.value("location.hash") == "#head=4.3"
        marked = page.page.locator(".chosen-head")
        page.page.click(".more")
        assert {one.get_attribute("class").split()[0] for one in marked.all()} >= {"cell", "chip"}
        assert page.page.locator("tr.chosen-head [data-c=head]").inner_text() == "L4.H3"
        page.page.locator(".heatmap .cell").nth(35).click()
        assert page.value("location.hash") == "#head=2.3"
        page.page.locator(".heatmap .cell").nth(35).click()
        assert page.value("location.hash") == "" and marked.count() == 0


def test_a_set_of_heads_is_copied_as_the_option_takes_it(browser: Any, report: Path) -> None:
    with visit(browser, report) as page:
        page.value("navigator.clipboard.writeText = async text => { window.copied = text }")
        copied = {}
        for button in page.page.locator(".head-set .copy").all():
            words = button.inner_text()
            button.click()
            copied[words] = page.value("window.copied")
    assert copied == {
        "copy for --heads": "4.3,0.11",
        "CSV": "layer,head\n4,3\n0,11\n",
        "Python": "[(4, 3), (0, 11)]",
    }


# ---- figures and tables --------------------------------------------------------------------------
def test_single_draws_and_points_tell_their_numbers(browser: Any, report: Path) -> None:
    with visit(browser, report) as page:
        tip = page.page.locator("#tip")
        page.page.locator(".bars[tabindex]").first.focus()
        page.page.keyboard.press("ArrowRight")
        assert tip.inner_text() == "3.0"
        chart = page.page.locator(".chart").first
        chart.locator(".point").nth(2).hover()
        assert tip.inner_text().startswith("selected\nheads removed: 4\nchrF++: 22.5")
        page.page.mouse.move(0, 0)
        assert tip.is_hidden()
        page.page.locator("#maps .cell").nth(1).hover()
        assert tip.inner_text() == "head L0.H1\nscore: 1.000"


def test_a_table_sorts_down_then_up_then_as_it_was(browser: Any, report: Path) -> None:
    with visit(browser, report) as page:
        table = page.page.locator("table.values")
        heading = table.locator("thead th").nth(1)
        read = [table.locator("tbody td:nth-child(2)").all_inner_texts()]
        heading.locator("button").focus()
        said = []
        for key in ("Enter", "Space", "Enter"):
            page.page.keyboard.press(key)
            said.append(heading.get_attribute("aria-sort"))
            read.append(table.locator("tbody td:nth-child(2)").all_inner_texts())
        assert read[1] == sorted(read[0], reverse=True) and read[2] == sorted(read[0])
        assert read[3] == read[0] and said == ["descending", "ascending", None]


def test_the_address_opens_and_shows_what_it_names(browser: Any, report: Path) -> None:
    in_view = """(selector) => {
      const { top, bottom } = document.querySelector(selector).getBoundingClientRect();
      return top >= 0 && bottom <= innerHeight;
    }"""
    address = report.as_uri()
    with visit(browser, f"{address}#head=4.3", height=500) as page:
        assert page.value(in_view, ".heatmap .cell.chosen-head")
        page.value("scrollTo(0, document.body.scrollHeight)")
        page.value("location.hash = '#head=2.3'")
        page.page.wait_for_selector(".heatmap .cell[data-head='2.3'].chosen-head")
        assert page.value(in_view, ".heatmap .cell.chosen-head")
    with visit(browser, f"{address}#provenance") as page:
        assert page.page.locator("#provenance pre").is_visible()
    with visit(browser, report) as page:
        page.value("document.querySelector('#provenance pre').id = 'configuration'")
        assert page.page.locator("#configuration").is_hidden()
        page.value("location.hash = '#configuration'")
        page.page.locator("#configuration").wait_for()


# ---- pictures ------------------------------------------------------------------------------------
def saved(page: Visit, figure: str, kind: str) -> bytes:
    """What the button of a figure saves."""
    with page.page.expect_download() as download:
        page.page.locator(f"figure:has({figure}) > .pictures").get_by_text(kind).first.click()
    assert download.value.suggested_filename.endswith(f".{kind.lower()}")
    return Path(download.value.path()).read_bytes()


SHAPES = {"svg", "title", "defs", "pattern", "rect", "circle", "line", "path", "polygon", "text"}


@pytest.mark.parametrize(
    ("figure", "words", "shapes"),
    [
        (".matrix", {"Every head: TS.", "head", "layer", "15", "TS"}, {"rect", "circle"}),
        (".bars:not(.forest)", {"Bars.", "4.0", "5.0", "selected", "random"}, {"rect"}),
        (".chart", {"Lines.", "heads removed", "chrF++", "80"}, {"path", "polygon", "rect"}),
        (".forest", {"Forest.", "+2.0", "en \u2192 de", "\u2190 worse"}, {"rect"}),
    ],
)
def test_a_figure_is_saved_as_shapes_and_texts(
    browser: Any, report: Path, figure: str, words: set[str], shapes: set[str]
) -> None:
    with visit(browser, report) as page:
        drawn = fromstring(saved(page, figure, "SVG"))
        image = saved(page, figure, "PNG")
        cells = colours(page)
        assert page.errors == [] and page.requests == [report.as_uri()]
    names = Counter(node.tag.removeprefix("{http://www.w3.org/2000/svg}") for node in drawn.iter())
    assert SHAPES >= set(names) >= shapes
    texts = "\n".join(text for node in drawn.iter() if node.tag.endswith("}text")
                      for text in node.itertext())  # fmt: skip
    assert {word for word in words if word not in texts} == set()
    if "matrix" in figure:
        fills = Counter(node.get("fill", "") for node in drawn.iter())
        assert not Counter(cells) - fills
    # Width and height are the first fields of a PNG.
    assert image.startswith(b"\x89PNG")
    assert unpack(">II", image[16:24]) == tuple(
        2 * int(drawn.get(k, 0)) for k in ("width", "height")
    )


# ---- sentences -----------------------------------------------------------------------------------
def lit(page: Visit) -> list[list[str]]:
    """Of every text of the first sentence, the words that look lit."""
    found: list[list[str]] = page.value(
        """() => Array.from(document.querySelectorAll('.example:nth-child(1) dd'), text =>
        Array.from(text.querySelectorAll('.word.lit')).map(word => word.textContent))"""
    )
    return found


def word(page: Visit, kind: str, number: int) -> Any:
    return page.page.locator(f".example:nth-child(1) .{kind} .word").nth(number)


def test_linked_words_light_up_by_pointer_tap_and_keyboard(browser: Any, report: Path) -> None:
    with visit(browser, report) as page:
        word(page, "source", 1).hover()
        opened = "\u00f6ffnete"
        assert lit(page) == [[], [opened], [opened], [], [opened]]
        word(page, "base", 2).hover()
        assert lit(page) == [["the"], [], [], [], []]
        page.page.locator("h1").hover()
        word(page, "source", 0).focus()
        page.page.keyboard.press("ArrowRight")
        assert lit(page)[2] == [opened]
        page.page.keyboard.press("Escape")
        assert lit(page) == [[]] * 5
    with visit(browser, report, width=390, has_touch=True) as page:
        word(page, "source", 1).tap()
        assert lit(page)[2] == [opened]


def test_sentences_are_filtered_sorted_searched_and_turned(browser: Any, report: Path) -> None:
    with visit(browser, report) as page:
        status = page.page.locator("#sentence-count")
        assert status.inner_text() == "1\u201310 of 50"
        losses = page.page.locator(".example header b").all_inner_texts()
        after = [float(text.split("\u2192")[1]) for text in losses]
        assert after == sorted(after)
        page.choose("#of-direction", "de-en")
        assert status.inner_text() == "1\u201310 of 25"
        page.page.click("#later")
        page.page.click("#later")
        assert status.inner_text() == "21\u201325 of 25"
        page.page.fill("#search", "T\u00dcR 48")
        assert status.inner_text() == "1\u20131 of 1"
        page.page.fill("#search", "no such words")
        assert page.page.locator(".example").count() == 0


def test_sentences_are_saved_as_they_are_chosen(browser: Any, report: Path, tmp_path: Path) -> None:
    with visit(browser, report) as page:
        page.choose("#of-direction", "de-en")
        with page.page.expect_download() as download:
            page.page.click(".sentences .csv")
        download.value.save_as(tmp_path / "sentences.csv")
    with (tmp_path / "sentences.csv").open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["direction", "id", "before", "after", "Source", "Reference", "Original",
                      "Selected removed", "Random removed"]  # fmt: skip
    shown = [sentence(at) for at in range(0, 50, 2)]
    assert rows == [
        ["de \u2192 en", one.id, "100", f"{one.chrf['selected']:.0f}", one.source, one.reference,
         *(one.outputs[name] for name in ("original", "selected", "random"))]
        for one in shown
    ]  # fmt: skip


def test_without_scripts_the_first_sentences_are_there(browser: Any, report: Path) -> None:
    with visit(browser, report, java_script_enabled=False) as page:
        plain = page.page.locator(".example").all_inner_texts()
        assert len(plain) == 10
        assert page.page.locator("#search").is_hidden()
    with visit(browser, report) as page:
        assert page.page.locator(".example").all_inner_texts() == plain


def test_text_runs_as_its_script_does(browser: Any, tmp_path: Path) -> None:
    shown = tuple(sentence(at, words=words) for at, words in enumerate((ARABIC, CHINESE)))
    with visit(browser, page_file(tmp_path, sentences=shown)) as page:
        page.choose("#by-loss", "file")
        sources = page.page.locator(".example .source dd")
        assert sources.all_text_contents() == [ARABIC, CHINESE]
        directions = [sources.nth(n).evaluate("n => getComputedStyle(n).direction") for n in (0, 1)]
        assert directions == ["rtl", "ltr"]


# ---- whole pages ---------------------------------------------------------------------------------
def test_on_a_phone_a_row_of_a_wide_table_is_a_list(browser: Any, tmp_path: Path) -> None:
    columns = ("original", "selected", "change", "p over sentences, same layers")
    rows = (Row("en-de", (Cell(97.9), Cell(85.0), Cell(-12.9, -24.0, -5.5), p_cell(0.0001))),)
    shown = Shown("Wide", "", ("Found.",), sections=[Section("A", [Table("A", columns, rows)])])
    carry_out("find lahis", tmp_path / "run", {"seed": 0}, {}, lambda run: {"model": {"name": "m"}})
    file = tmp_path / "page.html"
    file.write_text(render(page_of(shown, tmp_path / "run", "find lahis")), "utf-8")
    with visit(browser, file, width=390) as page:
        cells = page.page.locator("table.values td")
        named = cells.evaluate_all(
            "nodes => nodes.map(n => getComputedStyle(n, '::before').content)"
        )
        assert [name.strip('"').strip() for name in named] == [*columns]
        edges = cells.evaluate_all("nodes => nodes.map(n => n.getBoundingClientRect().right)")
        assert max(edges) <= 390 and cells.last.inner_text() == "< 0.001"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_stand_out_from_their_ground(browser: Any, report: Path, scheme: str) -> None:
    contrast = """([text, ground]) => {
      const light = (colour) => {
        const [r, g, b] = colour.match(/[\\d.]+/g).map(v => v / 255)
          .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
      };
      const style = (selector) => getComputedStyle(document.querySelector(selector));
      const [one, other] = [light(style(text).color), light(style(ground).backgroundColor)];
      return (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    }"""
    with visit(browser, report, color_scheme=scheme) as page:
        channels = page.value(
            "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)"
        )
        assert (sum(channels) / 3 > 240) == (scheme == "light")
        word(page, "source", 0).hover()
        page.page.locator("a.chip").first.click()
        grounds = {".lit": ".lit", ".held": ".held", ".chip.chosen-head": ".chip.chosen-head"}
        grounds |= {".badge": ".badge"}
        grounds |= dict.fromkeys(("p", "figcaption", ".chart .across span", "dt", "a"), "body")
        word(page, "source", 0).hover()
        found = {text: page.value(contrast, [text, ground]) for text, ground in grounds.items()}
        assert all(value >= 4.5 for value in found.values()), found


def test_hostile_text_is_shown_and_not_run(browser: Any, tmp_path: Path) -> None:
    report = page_file(tmp_path / "run", HOSTILE)
    with visit(browser, report) as page:
        page.page.locator(".heatmap .cell").first.hover()
        page.page.locator("#later").click()
        assert page.value("window.hacked") is None
        assert page.dialogs == [] and page.errors == []
        assert page.requests == [report.as_uri()]
        assert page.page.locator("img").count() == 0
        assert page.value("document.querySelector('h1').textContent") == f"Blocks{HOSTILE}"
        shown = page.page.locator(".example .source dd").all_text_contents()
        assert shown and all(text.endswith(HOSTILE) for text in shown)
        assert page.value("document.documentElement.scrollWidth") <= 1280


def test_a_foreign_script_would_be_stopped_by_the_policy(
    browser: Any, report: Path, tmp_path: Path
) -> None:
    tampered = tmp_path / "tampered.html"
    html = report.read_text(encoding="utf-8")
    tampered.write_text(html.replace("<main>", "<main><script>window.hacked=1</script>"), "utf-8")
    with visit(browser, tampered) as page:
        assert page.value("window.hacked") is None
        assert any("Content Security Policy" in error for error in page.errors)


def test_it_prints_what_is_shown_and_no_controls(browser: Any, report: Path) -> None:
    with visit(browser, report) as page:
        assert page.page.pdf(format="A4").count(b"/Type /Page\n") >= 3
        page.page.emulate_media(media="print", color_scheme="dark")
        for name in (".toolbar", "#search", "#by-loss", "#later", ".copy", ".csv"):
            assert page.page.locator(name).first.is_hidden()
        for name in (".chart .plot", ".bars", ".ranking", ".example .top dd"):
            assert page.page.locator(name).first.is_visible()
        facts = page.page.locator("#provenance .facts").first
        assert facts.is_visible() and page.page.locator("#provenance pre").is_hidden()
        paper = page.value("getComputedStyle(document.body).backgroundColor")
        assert sum(map(int, paper.removeprefix("rgb(").removesuffix(")").split(","))) > 720


def test_figures_and_tables_have_words_for_those_who_do_not_see_them(
    browser: Any, report: Path
) -> None:
    with visit(browser, report) as page:
        assert page.value(
            "Array.from(document.querySelectorAll('svg.matrix')).every(s =>"
            " s.getAttribute('role') === 'img' && s.getAttribute('aria-label').length > 30)"
        )
        assert page.value(
            "Array.from(document.querySelectorAll('table')).every(t => t.caption &&"
            " t.querySelector('thead th[scope]') && t.querySelector('tbody th[scope=row]'))"
        )


REPORTS = sorted((Path(__file__).parents[1] / "docs" / "papers").glob("*.html"))


@pytest.mark.parametrize("paper", REPORTS, ids=lambda file: file.stem)
def test_a_paper_s_report_prints_on_eight_pages(browser: Any, paper: Path) -> None:
    with visit(browser, paper) as page:
        assert page.page.pdf(format="A4").count(b"/Type /Page\n") <= 8
