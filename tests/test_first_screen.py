"""What a reader sees first: of every command's page the verdict beside one figure, nothing cut."""

from __future__ import annotations

import re
from typing import Any

import pytest

from browser_helpers import chromium, visit
from command_runs import CommandRun
from headscope.studies.report import write_report

#: What begins on the first screen: at least so many pixels of the figure are seen of so many.
SEEN, SCREEN = 150, 900
#: The narrowest screen, which nothing may exceed, folded or not; bytes of a page.
SMALL, LARGEST = 360, 1_000_000
#: Pixels of a sheet of A4 between its margins.
PAPER = 710
#: Words of verdict, sentence and uncertainty together, with every control that was tested and how
#: many random sets do as much.
WORDS = 55
#: Pages that are a list of others, so that their first screen is that list: of papers, and of a
#: paper's tables and figures, each with a figure of its own below.
LISTS = ("reproduce all", "reproduce heads-up")

#: A number of words; that of a 95 % interval is part of its name.
NUMERAL = re.compile(r"(?<![\w.])[\u2212+]?\d+(?:[.,\u202f]\d+)*")

Measured = dict[str, dict[int, Any]]

MEASURE = """() => {
  const box = (node) => {
    if (!node) return null;
    const { top, bottom } = node.getBoundingClientRect();
    return [top + scrollY, bottom + scrollY];
  };
  // What reaches beyond the window is in a box that scrolls, or it is cut.
  const held = (node) => {
    for (let box = node.parentElement; box; box = box.parentElement) {
      const style = getComputedStyle(box);
      if (/auto|scroll/.test(style.overflowX) || style.clipPath !== "none") return true;
    }
    return getComputedStyle(node).clipPath !== "none";
  };
  const cut = [...document.querySelectorAll("body *")].filter((node) => {
    const { left, right, width } = node.getBoundingClientRect();
    return width && (right > innerWidth + 1 || left < -1) && !held(node) && !node.matches(".skip");
  }).map((node) => `${node.tagName} ${node.className.baseVal ?? node.className}`);
  const drawn = ".chart, .bars, svg.matrix, .histograms, .arcs, .key-text";
  const figures = [...document.querySelectorAll("main figure")];
  const figure = figures.find((each) => each.querySelector(drawn) && each.offsetHeight);
  const finding = document.querySelector("#summary .finding");
  // A warning stands before the verdict, the command that goes on behind it.
  const words = (without) => [...finding.children].map((part) => {
    const own = part.cloneNode(true);
    own.querySelectorAll(without).forEach((node) => node.remove());
    return part.matches(`.warning, .next, ${without}`) ? "" : own.textContent;
  }).join(" ");
  const sections = [...document.querySelectorAll("main > section")];
  const last = sections.filter(({ id }) => id === "method" || id === "provenance");
  return {
    figure: box(figure), finding: box(finding),
    words: words(".unseen"), numbers: words(".unseen, code"),
    cut, wide: document.documentElement.scrollWidth,
    last: sections.slice(-last.length).map(({ id }) => id),
    open: last.filter((each) => !each.querySelector(":scope > details:not([open])")).length,
  };
}"""


#: Codes in tables that are broken over lines.
BROKEN = """() => [...document.querySelectorAll("tbody th")].flatMap((cell) => {
  const text = cell.firstChild, words = text?.nodeType === Node.TEXT_NODE ? text.textContent : "";
  if (!/^\\w{1,3}$/.test(words)) return [];
  const range = document.createRange();
  range.selectNodeContents(text);
  return range.getClientRects().length > 1 ? [words] : [];
})"""


@pytest.fixture(scope="module")
def measured(command_runs: list[CommandRun], tmp_path_factory: pytest.TempPathFactory) -> Measured:
    """By page what the browser measures on a desk (1280 pixels) and on a phone (390)."""
    file = tmp_path_factory.mktemp("pages") / "page.html"
    pages: Measured = {}
    with chromium() as browser:
        for made in command_runs:
            write_report(made.folder, file)
            name = f"{made.command} ({made.folder.parent.name}/{made.folder.name})"
            pages[name] = {}
            with visit(browser, file, PAPER, SCREEN) as page:
                page.page.emulate_media(media="print")
                pages[name][PAPER] = page.value(BROKEN)
            for width in (1280, 390):
                with visit(browser, file, width, SCREEN) as page:
                    pages[name][width] = page.value(MEASURE)
                    page.page.set_viewport_size({"width": min(width, SMALL), "height": SCREEN})
                    page.value(
                        "for (const d of document.querySelectorAll('details')) d.open = true"
                    )
                    unfolded = page.value("document.documentElement.scrollWidth")
                    pages[name][width] |= {
                        "unfolded": unfolded, "errors": page.errors, "size": file.stat().st_size
                    }  # fmt: skip
    return pages


def with_figure(measured: Measured) -> Measured:
    return {name: seen for name, seen in measured.items() if not name.startswith(LISTS)}


def test_the_figure_stands_on_the_first_screen(measured: Measured) -> None:
    wrong = []
    for name, page in with_figure(measured).items():
        top, bottom = page[1280]["figure"] or (SCREEN, SCREEN)
        if min(SCREEN, bottom) - top < min(SEEN, bottom - top) or top == bottom:
            wrong.append(f"{name}: from {top:.0f} to {bottom:.0f}")
    assert not wrong, "\n".join(wrong)


def test_a_verdict_is_short(measured: Measured) -> None:
    words = {name: len(page[1280]["words"].split()) for name, page in measured.items()}
    wrong = [f"{name}: {many} words" for name, many in words.items() if many > WORDS]
    assert not wrong, "\n".join(wrong)


def test_a_verdict_says_no_number_twice(measured: Measured) -> None:
    wrong = []
    for name, page in with_figure(measured).items():
        said = NUMERAL.findall(re.sub(r"95[\s\u00a0]%", "", page[1280]["numbers"]))
        # A single digit, in runs as small as these, may well count two different things.
        said = [numeral for numeral in said if not numeral.isdigit() or len(numeral) > 1]
        if twice := sorted({numeral for numeral in said if said.count(numeral) > 1}):
            wrong.append(f"{name}: {', '.join(twice)}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_is_cut(measured: Measured, width: int) -> None:
    wrong = []
    for name, page in measured.items():
        seen = page[width]
        if seen["cut"] or seen["wide"] > width or seen["unfolded"] > min(width, SMALL):
            wrong.append(f"{name}: {seen['wide']}, {seen['unfolded']} {seen['cut'][:5]}")
    assert not wrong, "\n".join(wrong)


def test_codes_stay_whole_on_paper(measured: Measured) -> None:
    wrong = [f"{name}: {page[PAPER]}" for name, page in measured.items() if page[PAPER]]
    assert not wrong, "\n".join(wrong)


def test_on_a_phone_the_figure_follows_the_verdict(measured: Measured) -> None:
    wrong = []
    for name, page in with_figure(measured).items():
        end, start = page[390]["finding"][1], (page[390]["figure"] or [SCREEN**2])[0]
        if not 0 <= start - end <= 40:
            wrong.append(f"{name}: {start - end:.0f} pixels between them")
    assert not wrong, "\n".join(wrong)


def test_method_and_provenance_are_folded_at_the_end(measured: Measured) -> None:
    ends = {name: (page[1280]["last"], page[1280]["open"]) for name, page in measured.items()}
    right = ((["method", "provenance"], 0), (["provenance"], 0))
    wrong = [f"{name}: {end}" for name, end in ends.items() if end not in right]
    assert not wrong, "\n".join(wrong)


def test_a_page_is_small_and_raises_no_error(measured: Measured) -> None:
    wrong = [
        f"{name}: {page[1280]['size']} bytes, {page[1280]['errors'] + page[390]['errors']}"
        for name, page in measured.items()
        if page[1280]["size"] > LARGEST or page[1280]["errors"] or page[390]["errors"]
    ]
    assert not wrong, "\n".join(wrong)
