"""The report in a real browser: it shows, reacts, fits, prints, and runs nothing foreign."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import paper_run_helpers
from browser_helpers import Visit, chromium, visit
from command_runs import CommandRun
from headscope.heads import HeadScores, read_scores
from headscope.studies.report import write_report
from report_helpers import write_atlas

HOSTILE = (
    "</script><script>window.hacked=1;alert(1)</script>"
    "<img src=x onerror='window.hacked=1'>\"' onmouseover=\"window.hacked=1\" \u2028 &amp; <!--"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as opened:
        yield opened


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_atlas(tmp_path_factory.mktemp("browser") / "run")


@pytest.fixture(scope="module")
def report(run: Path) -> Path:
    return write_report(run)


def scores_shown(page: Visit) -> list[float]:
    cells = page.page.locator("#ranking-table tbody [data-c=score]").all_inner_texts()
    return [float(text.replace("\u2212", "-")) for text in cells]


def colours(page: Visit) -> list[str]:
    fills: list[str] = page.value(
        "Array.from(document.querySelectorAll('#heatmap .cell'), c => getComputedStyle(c).fill)"
    )
    return fills


def best(scores: HeadScores, number: int) -> list[float]:
    return [round(scores[head], 3) for head, _ in scores.ranked()[:number]]


def test_it_opens_without_errors_and_asks_for_nothing(browser: Any, report: Path) -> None:
    with visit(browser, report) as page:
        assert page.page.title() == "pocket \u00b7 headscope atlas"
        page.choose("#direction", "de-ru")
        page.page.click("#more")
        assert page.errors == []
        assert page.requests == [report.as_uri()]


def test_single_draws_are_told_by_arrow_keys(browser: Any, report: Path) -> None:
    with visit(browser, report) as page:
        bars = page.page.locator("#removal-figure .bars")
        words = [point.get_attribute("data-words") for point in bars.locator(".point").all()]
        assert len(words) == 3
        bars.focus()
        told = []
        for key in ("ArrowRight", "ArrowLeft", "ArrowLeft", "ArrowLeft"):
            page.page.keyboard.press(key)
            told.append(page.page.locator("#tip").inner_text())
        lowest = min(words, key=float)
        assert told[0] in words and told[-1] == lowest
        page.page.keyboard.press("Escape")
        assert page.page.locator("#tip").is_hidden()


def test_the_heat_map_shows_every_head_and_its_numbers(
    browser: Any, run: Path, report: Path
) -> None:
    mean = read_scores(run)["mean"]
    head = mean.ranked()[0][0]
    with visit(browser, report) as page:
        cells = page.page.locator("#heatmap .cell")
        assert cells.count() == 96
        assert len(set(colours(page))) > 5
        cell = cells.nth(list(mean.geometry.heads()).index(head))
        assert cell.bounding_box()["width"] > 10
        cell.hover()
        tip = page.page.locator("#tip")
        assert f"Head {head}: token alignment" in tip.inner_text()
        assert f"TS {mean[head]:.3f}" in tip.inner_text()
        assert "chance" in tip.inner_text()


def test_arrow_keys_read_single_heads(browser: Any, report: Path) -> None:
    with visit(browser, report) as page:
        page.page.focus("#heatmap-picture")
        read = []
        for key in ("ArrowRight", "ArrowRight", "ArrowDown", "ArrowLeft"):
            page.page.keyboard.press(key)
            read.append(page.page.locator("#tip").inner_text().split(":")[0])
        assert read == ["Head 0.0", "Head 0.1", "Head 1.1", "Head 1.0"]
        page.page.keyboard.press("Escape")
        assert page.page.locator("#tip").is_hidden()


def test_a_direction_changes_every_figure_that_depends_on_it(
    browser: Any, run: Path, report: Path
) -> None:
    scores = read_scores(run)
    with visit(browser, report) as page:
        mean_colours = colours(page)
        profile = page.page.locator("#profile-table").inner_text()
        assert scores_shown(page) == pytest.approx(best(scores["mean"], 30), abs=0.0011)
        page.choose("#direction", "es-tr")
        assert scores_shown(page) == pytest.approx(best(scores["es-tr"], 30), abs=0.0011)
        assert colours(page) != mean_colours
        assert page.page.locator("#profile-table").inner_text() != profile
        shown = set(page.page.locator(".example .direction").all_inner_texts())
        assert shown == {"es \u2192 tr"}
        page.choose("#direction", "mean")
        assert colours(page) == mean_colours


def test_the_script_draws_what_the_page_was_written_with(browser: Any, report: Path) -> None:
    tables = []
    for enabled in (True, False):
        with visit(browser, report, java_script_enabled=enabled) as page:
            table = page.page.locator("#ranking-table tbody")
            profile = page.page.locator("#profile-table tbody")
            classes = [
                page.page.locator("#heatmap .cell").nth(n).get_attribute("class")
                for n in range(0, 96, 7)
            ]
            tables.append((table.inner_text(), profile.inner_text(), classes))
    assert tables[0] == tables[1]


def test_colours_can_show_chance(browser: Any, report: Path) -> None:
    with visit(browser, report) as page:
        before = colours(page)
        page.choose("#shade", "chance")
        assert colours(page) != before
        page.choose("#direction", "en-ru")
        page.choose("#shade", "identical")  # into Russian no word has the same form
        assert len(set(colours(page))) == 1


def test_the_table_sorts_and_extends(browser: Any, run: Path, report: Path) -> None:
    mean = read_scores(run)["mean"]
    everything = best(mean, 96)
    with visit(browser, report) as page:
        assert len(scores_shown(page)) == 30
        page.page.click("#more")
        assert scores_shown(page) == pytest.approx(everything, abs=0.0011)
        page.page.click("button[data-sort=above]")
        assert scores_shown(page) == pytest.approx(everything[::-1], abs=0.0011)
        page.page.click("button[data-sort=score]")
        page.page.click("button[data-sort=score]")
        rising = sorted(score for _, score in mean.ranked("score"))
        assert scores_shown(page) == pytest.approx(rising, abs=0.0011)
        heading = page.page.locator("th[data-c=score]")
        assert heading.get_attribute("aria-sort") == "ascending"
        page.page.click("button[data-sort=head]")
        heads = page.page.locator("#ranking-table tbody [data-c=head]").all_inner_texts()
        assert heads == [f"{layer}.{head}" for layer in range(6) for head in range(16)]
        assert heading.get_attribute("aria-sort") is None


def test_directions_can_be_grouped_by_target(browser: Any, report: Path) -> None:
    with visit(browser, report) as page:
        assert page.page.locator("#by-source").is_visible()
        page.choose("#order", "target")
        assert page.page.locator("#by-source").is_hidden()
        labels = page.page.locator("#by-target text").all_text_contents()
        assert labels[:4] == [f"{source} \u2192 de" for source in ("en", "es", "ru", "tr")]
        page.page.locator("#by-target .cell[data-words]").nth(3).hover()
        assert "expected" in page.page.locator("#tip").inner_text()


@pytest.mark.parametrize("width", [320, 390, 768, 1280])
def test_the_page_never_scrolls_sideways(browser: Any, report: Path, width: int) -> None:
    with visit(browser, report, width=width) as page:
        page.value("for (const d of document.querySelectorAll('details')) d.open = true")
        assert page.value("document.documentElement.scrollWidth") <= width
        box = page.page.locator("#ranking .scroll")
        if width < 500:
            assert box.evaluate("node => node.scrollWidth > node.clientWidth")


def test_hostile_text_is_shown_and_not_run(browser: Any, tmp_path: Path) -> None:
    report = write_report(write_atlas(tmp_path / "run", ("en-de", "de-en"), text=HOSTILE))
    with visit(browser, report) as page:
        page.choose("#direction", "en-de")
        page.page.locator("#heatmap .cell").first.hover()
        assert page.value("window.hacked") is None
        assert page.dialogs == []
        assert page.errors == []
        assert page.requests == [report.as_uri()]
        assert page.page.locator("img").count() == 0
        assert page.value("document.querySelector('h1').textContent") == "pocket" + HOSTILE
        shown = page.value(
            "Array.from(document.querySelectorAll('.example .source dd'), node => node.textContent)"
        )
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


def test_right_to_left_text_runs_from_the_right(browser: Any, tmp_path: Path) -> None:
    run = write_atlas(tmp_path / "run", ("en-de", "de-en"), model={"name": "م"}, links=False)
    rows = (run / "outputs.jsonl").read_text("utf-8")
    hebrew = rows.replace("The old teacher sees three small birds.", "המורה רואה ציפורים.")
    (run / "outputs.jsonl").write_text(hebrew, "utf-8")
    with visit(browser, write_report(run)) as page:
        page.choose("#by-loss", "file")
        directions = set(
            page.value(
                "Array.from(document.querySelectorAll('.example .source dd'),"
                " node => getComputedStyle(node).direction)"
            )
        )
        assert directions == {"rtl", "ltr"}


def test_it_follows_the_dark_scheme(browser: Any, report: Path) -> None:
    light_and_dark = []
    for scheme in ("light", "dark"):
        with visit(browser, report, color_scheme=scheme) as page:
            channels = page.value(
                "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)"
            )
            light_and_dark.append((sum(channels) / 3, colours(page)))
    (light, one), (dark, other) = light_and_dark
    assert light > 240 and dark < 40
    assert one != other


def test_it_prints_in_pages(browser: Any, report: Path) -> None:
    with visit(browser, report) as page:
        printed = page.page.pdf(format="A4")
        assert printed.startswith(b"%PDF")
        assert printed.count(b"/Type /Page\n") >= 3
        page.page.emulate_media(media="print", color_scheme="dark")
        assert page.page.locator(".toolbar").is_hidden()
        assert page.page.locator("#ranking-table").is_visible()
        paper = page.value("getComputedStyle(document.body).backgroundColor")
        assert sum(map(int, paper.removeprefix("rgb(").removesuffix(")").split(","))) > 720


def test_the_report_of_a_paper_prints_in_two_columns(browser: Any, tmp_path: Path) -> None:
    figures = [paper_run_helpers.single_bars(), paper_run_helpers.lines()]
    long = paper_run_helpers.accuracy_table(36)
    one = paper_run_helpers.experiment("e", "Table 1", tables=[long], figures=figures)
    report = write_report(paper_run_helpers.write_paper(tmp_path / "run", experiments=[one]))
    with visit(browser, report, width=700) as page:
        assert page.page.locator("#runs").is_visible()
        assert page.page.locator(".on-paper").is_hidden()
        page.page.emulate_media(media="print")
        boxes = [page.page.locator(f"#e-figure-{at}").bounding_box() for at in (1, 2)]
        assert boxes[0]["y"] == boxes[1]["y"] and boxes[0]["x"] < boxes[1]["x"]
        folded = page.page.locator("details")
        assert folded.count() and not any(part.is_visible() for part in folded.all())
        assert page.page.locator("#runs").is_hidden()
        assert page.page.locator("#provenance").is_hidden()
        assert page.page.locator(".on-paper").is_visible()


def test_figures_have_words_for_those_who_do_not_see_them(browser: Any, report: Path) -> None:
    with visit(browser, report) as page:
        pictures = page.value(
            "Array.from(document.querySelectorAll('svg'), s => [s.getAttribute('role'),"
            " s.getAttribute('aria-label')])"
        )
        assert len(pictures) == 3
        assert all(role == "img" and len(label) > 60 for role, label in pictures)
        assert page.value(
            "Array.from(document.querySelectorAll('figure'), f =>"
            " document.getElementById(f.getAttribute('aria-labelledby')).textContent.length)"
            ".every(length => length > 80)"
        )
        assert page.value(
            "Array.from(document.querySelectorAll('table')).every(t => t.caption &&"
            " t.querySelector('thead th[scope]') && t.querySelector('tbody th[scope=row]'))"
        )


def test_the_page_of_every_command_fits_a_phone(
    browser: Any, command_runs: list[CommandRun], tmp_path: Path
) -> None:
    with browser.new_context(viewport={"width": 360, "height": 800}) as context:
        page = context.new_page()
        seen: list[str] = []
        page.on("console", lambda one: seen.append(one.text) if one.type == "error" else None)
        page.on("pageerror", lambda error: seen.append(str(error)))
        wrong = []
        for name, run, _ in command_runs:
            report = write_report(run, tmp_path / "page.html")
            page.goto(report.resolve().as_uri())
            page.evaluate("for (const d of document.querySelectorAll('details')) d.open = true")
            wide = page.evaluate("document.documentElement.scrollWidth")
            captions = page.evaluate(
                "Array.from(document.querySelectorAll('figure'), f =>"
                " document.getElementById(f.getAttribute('aria-labelledby')).textContent.length)"
            )
            if wide > 360 or seen or not all(captions) or report.stat().st_size > 1_000_000:
                wrong.append((name, wide, captions, tuple(seen)))
            seen.clear()
        assert wrong == []


REPORTS = sorted((Path(__file__).parents[1] / "docs" / "papers").glob("*.html"))


@pytest.mark.parametrize("paper", REPORTS, ids=lambda file: file.stem)
def test_a_paper_s_report_prints_on_eight_pages(browser: Any, paper: Path) -> None:
    with visit(browser, paper) as page:
        assert page.page.pdf(format="A4").count(b"/Type /Page\n") <= 8
