"""Sentences and charts in a real browser: words light up, controls work, it fits and prints."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from browser_helpers import Visit, chromium, visit
from headscope.report.sections import sentences
from headscope.studies.report import write_report
from removal_report_helpers import write_removal

HOSTILE = "</script><script>window.hacked=1</script><img src=x onerror='window.hacked=1'>"
SCRIPTS = {
    "ar": "\u0627\u0644\u0628\u0627\u0628 \u0627\u0644\u0623\u062d\u0645\u0631",
    "zh": "\u7ea2\u8272\u7684\u95e8\U00020000\u5f00\u4e86",
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as opened:
        yield opened


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = write_removal(tmp_path_factory.mktemp("removal") / "run", gates=(0.0, 0.5, 2.0))
    return write_report(run)


def lit(page: Visit) -> list[list[str]]:
    """Of every text of the second sentence, the words that look lit."""
    found: list[list[str]] = page.value(
        """() => Array.from(document.querySelectorAll('.example:nth-child(2) dd'), text =>
        Array.from(text.querySelectorAll('.word')).filter(word =>
          word.classList.contains('lit') &&
          getComputedStyle(word).textDecorationLine === 'underline' &&
          getComputedStyle(word).backgroundColor !== getComputedStyle(text).backgroundColor)
        .map(word => word.textContent))"""
    )
    return found


def word(page: Visit, kind: str, number: int) -> Any:
    return page.page.locator(f".example:nth-child(2) .{kind} .word").nth(number)


def sort_by_file(page: Visit) -> None:
    page.choose("#by-loss", "file")  # then the second sentence has one word without the heads


def test_it_opens_without_errors_and_asks_for_nothing(browser: Any, report: Path) -> None:
    with visit(browser, report) as page:
        page.page.locator("#later").click()
        page.page.locator("#search").fill("Mira")
        page.page.locator(".chart").first.focus()
        page.page.keyboard.press("ArrowRight")
        assert page.errors == []
        assert page.requests == [report.as_uri()]


def test_pointing_at_a_source_word_lights_its_words_everywhere(browser: Any, report: Path) -> None:
    with visit(browser, report) as page:
        sort_by_file(page)
        word(page, "source", 0).hover()
        assert lit(page) == [[], ["Mira"], ["Mira"], ["Mira"], ["Mira"], ["Mira"]]
        word(page, "source", 2).hover()
        assert lit(page) == [[], ["die"], ["die"], [], ["die"], ["die"]]
        page.page.locator("h1").hover()
        assert lit(page) == [[]] * 6


def test_pointing_at_an_output_word_lights_its_source_words(browser: Any, report: Path) -> None:
    with visit(browser, report) as page:
        sort_by_file(page)
        word(page, "base", 1).hover()
        assert lit(page) == [["did"], [], [], [], [], []]
        word(page, "base", 4).hover()  # of the last words none is linked
        assert lit(page) == [[]] * 6


def test_the_keyboard_reads_words_too(browser: Any, report: Path) -> None:
    with visit(browser, report) as page:
        sort_by_file(page)
        word(page, "source", 0).focus()
        assert lit(page)[2] == ["Mira"]
        page.page.keyboard.press("ArrowRight")
        assert lit(page)[2] == ["\u00f6ffnete"]
        page.page.keyboard.press("Tab")
        assert lit(page) == [["Mira"], [], [], [], [], []]
        page.page.keyboard.press("Escape")
        assert lit(page) == [[]] * 6
        stops = page.value(
            "document.querySelectorAll('.example:nth-child(2) [tabindex=\"0\"]').length"
        )
        assert stops == 6


def test_a_tap_lights_words(browser: Any, report: Path) -> None:
    with visit(browser, report, width=390, has_touch=True) as page:
        sort_by_file(page)
        word(page, "source", 1).tap()
        assert lit(page)[2] == ["\u00f6ffnete"]


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
        assert page.page.locator("#later").is_disabled()
        page.page.fill("#search", "BIRDS")
        assert status.inner_text() == "1\u201310 of 13"
        page.page.fill("#search", "no such words")
        assert status.inner_text() == "No sentence like that"
        assert page.page.locator(".example").count() == 0


def test_without_scripts_the_first_sentences_are_there(browser: Any, report: Path) -> None:
    with visit(browser, report, java_script_enabled=False) as page:
        cards = page.page.locator(".example")
        plain = cards.all_inner_texts()
        assert len(plain) == 10
        assert page.page.locator("#search").is_hidden()
        assert "first 10 of 50 sentences" in page.page.locator(".unscripted").inner_text()
    with visit(browser, report) as page:
        assert page.page.locator(".example").all_inner_texts() == plain
        assert page.page.locator(".unscripted").is_hidden()


@pytest.mark.parametrize("width", [320, 360, 1280])
def test_the_page_never_scrolls_sideways(browser: Any, report: Path, width: int) -> None:
    with visit(browser, report, width=width) as page:
        page.value("for (const d of document.querySelectorAll('details')) d.open = true")
        assert page.value("document.documentElement.scrollWidth") <= width
        sizes = page.value(
            "Array.from(document.querySelectorAll('.chart span'), s =>"
            " parseFloat(getComputedStyle(s).fontSize))"
        )
        assert min(sizes) >= 12


def test_ticks_do_not_lie_on_one_another(browser: Any, report: Path) -> None:
    with visit(browser, report, width=360) as page:
        overlaps = page.value(
            """() => Array.from(document.querySelectorAll('.chart')).flatMap(chart => {
              const boxes = Array.from(chart.querySelectorAll('.below span'), s =>
                s.getBoundingClientRect()).filter(b => b.width).sort((a, b) => a.left - b.left);
              return boxes.slice(1).filter((box, at) => box.left < boxes[at].right);
            }).length"""
        )
        assert overlaps == 0


def test_a_point_tells_its_numbers(browser: Any, report: Path) -> None:
    with visit(browser, report) as page:
        chart = page.page.locator(".chart").first
        chart.locator(".point").nth(3).hover()
        tip = page.page.locator("#tip")
        assert tip.inner_text().startswith("highest heads\nheads removed: 14\nchrF++: 20")
        page.page.mouse.move(0, 0)
        assert tip.is_hidden()
        chart.focus()
        for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
            page.page.keyboard.press(key)
        assert tip.inner_text().startswith("random heads, mean\nheads removed: 4")
        page.page.keyboard.press("Escape")
        assert tip.is_hidden()


def test_it_prints_what_is_shown_and_no_controls(browser: Any, report: Path) -> None:
    with visit(browser, report) as page:
        assert page.page.pdf(format="A4").count(b"/Type /Page\n") >= 3
        page.page.emulate_media(media="print", color_scheme="dark")
        for name in (".toolbar", "#search", "#by-loss", "#later", ".unscripted"):
            assert page.page.locator(name).is_hidden()
        for name in (".chart .plot", ".bars", "#measures table", ".example .top dd"):
            assert page.page.locator(name).first.is_visible()
        paper = page.value("getComputedStyle(document.body).backgroundColor")
        assert sum(map(int, paper.removeprefix("rgb(").removesuffix(")").split(","))) > 720


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
        word(page, "source", 0).hover()
        grounds = {".lit": ".lit", ".held": ".held"}
        grounds |= dict.fromkeys(("p", "figcaption", ".chart .across span", "dt", "a"), "body")
        found = {text: page.value(contrast, [text, ground]) for text, ground in grounds.items()}
        assert all(value >= 4.5 for value in found.values()), found


def test_hostile_text_is_shown_and_not_run(browser: Any, tmp_path: Path) -> None:
    report = write_report(write_removal(tmp_path / "run", text=HOSTILE))
    with visit(browser, report) as page:
        page.page.locator(".word").first.hover()
        page.page.locator("#later").click()
        assert page.value("window.hacked") is None
        assert page.errors == []
        assert page.page.locator("img").count() == 0
        shown = page.page.locator(".example .source dd").all_text_contents()
        assert shown
        assert all(text.endswith(HOSTILE) for text in shown)


def test_other_scripts_look_right(browser: Any, tmp_path: Path) -> None:
    run = write_removal(tmp_path / "plain", directions=("en-de",), k=(2,), draws=1, sentences=2)
    text = (run / "outputs.jsonl").read_text("utf-8")
    rows = [json.loads(line) for line in text.splitlines()]
    for row in rows:
        written = SCRIPTS["ar" if row["id"] == "0" else "zh"]
        row |= {"source": written, "reference": written}
        if row["condition"] != "top":
            row["output"] = written
    report = write_report(
        write_removal(
            tmp_path / "run", ("en-de",), (2,), draws=1, sentences=2, rows=rows, counts=False
        )
    )
    with visit(browser, report) as page:
        page.choose("#by-loss", "file")
        sources = page.page.locator(".example .source dd")
        assert sources.all_text_contents() == list(SCRIPTS.values())
        directions = [sources.nth(n).evaluate("n => getComputedStyle(n).direction") for n in (0, 1)]
        assert directions == ["rtl", "ltr"]
        sources.nth(0).locator(".word").first.focus()
        page.page.keyboard.press("ArrowLeft")  # on to the next word, where text runs to the left
        assert page.page.locator(".held").inner_text() == SCRIPTS["ar"].split()[1]


def test_what_did_not_fit_is_said_to_be_left_out(
    browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sentences, "BYTES", 30_000)
    run = write_removal(tmp_path / "run", k=(2,), draws=1, matched=False, sentences=60)
    with visit(browser, write_report(run)) as page:
        assert page.page.locator(".example").count() == 10
        assert "did not fit into this page" in page.page.locator("#examples").inner_text()
        assert page.errors == []
