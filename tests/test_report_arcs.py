"""Sentences of heads with their peaks as arcs, in a real browser and without scripts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from browser_helpers import Visit, chromium, visit
from headscope.find.best_sentences import excerpt
from headscope.heads import Head
from headscope.report.drawing.arcs import DATA, DRAWN, draw_head_sentences
from headscope.report.html import dump_json
from headscope.report.page import page_of, render
from headscope.results.translation_score import BestSentence
from headscope.runs import carry_out
from headscope.shown.blocks import (
    Column,
    HeadSentences,
    HeadSets,
    HeadTable,
    PeakSentence,
    Section,
    Shown,
)

ARABIC = "\u0627\u0644\u0628\u0627\u0628 \u0623\u062d\u0645\u0631"
HOSTILE = "<img src=x onerror='window.hacked=1'></script>&"
COMMAND = "headscope explore pocket --heads run --pin"


def spans(text: str) -> tuple[tuple[int, int], ...]:
    reached, found = 0, []
    for word in text.split():
        start = text.index(word, reached)
        found.append((start, reached := start + len(word)))
    return tuple(found)


def sentence(part: str, name: str, source: str, target: str, peaks: Any, hit: Any) -> PeakSentence:
    of = sum(on is not None for on in hit)
    return PeakSentence(
        part,
        name,
        source,
        target,
        spans(source),
        spans(target),
        peaks,
        hit,
        sum(map(bool, hit)),
        of,
    )


def block() -> HeadSentences:
    """Two heads with sentences of two directions: a hit, a miss, a miss on no word, no link."""
    peaks, hit = (0, 2, -1, 1), (True, False, False, None)
    first = sentence("en-de", "a", "the red door", "die rote T\u00fcr da", peaks, hit)
    arabic = sentence("en-ar", "b", "red door", ARABIC, (1, 0), (True, True))
    hostile = sentence(
        "en-de", HOSTILE, f"a {HOSTILE}", f"{HOSTILE} b", (1, 0, 0, 0)[:4], (True,) * 4
    )
    return HeadSentences("Arcs", {(0, 1): [first, arabic], (1, 0): [hostile]}, COMMAND)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as opened:
        yield opened


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("arcs") / "run"
    heads = tuple((layer, head) for layer in range(2) for head in range(2))
    numbers = {"score": [0.1, 0.9, 0.5, 0.2]}
    parts = {"mean": numbers, "en-de": numbers, "en-ar": numbers}
    shown = Shown(
        "Arcs",
        "Where heads look.",
        ["Something."],
        sections=[
            Section("Sets", [HeadSets("Sets", {"best": ((0, 1), (1, 0))})]),
            Section("Heads", [HeadTable("Heads", heads, (Column("score", "TS"),), parts)]),
            Section("Sentences", [block()]),
        ],
    )
    carry_out("find lahis", folder, {"seed": 0}, {}, lambda run: {"model": {"name": "m"}})
    file = folder / "page.html"
    file.write_text(render(page_of(shown, folder, "find lahis")), "utf-8")
    return file


def test_a_pair_of_32000_tokens_is_a_small_page(browser: Any, tmp_path: Path) -> None:
    """Of a long pair a stretch is kept, so that neither run nor page grow with it."""
    text, many = " ".join(f"w{at}" for at in range(16_000)), 16_000
    row = BestSentence(
        part="en-de", head="0.1", id="book", source=text, target=text, words=spans(text),
        tokens=spans(text), peaks=tuple(reversed(range(many))),
        hit=tuple(9_000 <= at < 9_050 for at in range(many)), hits=50, of=many,
    )  # fmt: skip
    shown = HeadSentences("Arcs", {(0, 1): [excerpt(row)]}, COMMAND)
    carry_out("find lahis", tmp_path / "run", {"seed": 0}, {}, lambda run: {"model": {"name": "m"}})
    file = tmp_path / "page.html"
    sections = [Section("Sentences", [shown])]
    whole = Shown("Arcs", "Where heads look.", ["Something."], sections=sections)
    file.write_text(render(page_of(whole, tmp_path / "run", "find lahis")), "utf-8")
    assert file.stat().st_size < 200_000
    with visit(browser, file) as seen:
        drawn = arcs(seen)
        assert len(drawn) == 128 and sum(each[1] == "key-base" for each in drawn) == 50
        assert dict(words_at(seen)).keys() == {f"w{many - 1 - int(each[0][1:])}" for each in drawn}
        assert seen.errors == []


def arcs(seen: Visit) -> list[tuple[Any, ...]]:
    """Of every token its text, look, dashes, and where its arc begins and ends."""
    found: list[list[Any]] = seen.value(
        """Array.from(document.querySelectorAll('.arcs g'), (mark) => {
            const path = mark.querySelector('path'), look = path && getComputedStyle(path);
            const d = path ? path.getAttribute('d').match(/-?\\d+/g).map(Number) : [];
            return [mark.textContent, mark.getAttribute('class').split(' ')[1],
                    look ? look.strokeDasharray : '', d[0], d.length > 3 ? d[d.length - 2] : null];
        })"""
    )
    return [tuple(each) for each in found]


def words_at(seen: Visit) -> list[tuple[str, int]]:
    found: list[list[Any]] = seen.value(
        "Array.from(document.querySelectorAll('.arcs svg > text'), (t) => "
        "[t.textContent, Number(t.getAttribute('x'))])"
    )
    return [(text, x) for text, x in found]


def command_of(seen: Visit) -> str:
    text: str = seen.page.locator(".head-sentences code").inner_text()
    return text


@pytest.mark.parametrize("scripts", [True, False])
def test_an_arc_goes_from_each_token_to_the_word_of_its_peak(
    browser: Any, page: Path, scripts: bool
) -> None:
    with visit(browser, page, java_script_enabled=scripts) as seen:
        assert seen.page.locator(".arcs bdi").all_inner_texts() == [
            "en \u2192 de \u00b7 a",
            "en \u2192 ar \u00b7 b",
        ]
        words, drawn = words_at(seen), arcs(seen)
        assert [word for word, _ in words] == ["the", "red", "door", "red", "door"]
        x = [place for _, place in words]
        assert [(each[0], each[1], each[4]) for each in drawn] == [
            ("die", "key-base", x[0]),
            ("rote", "key-top", x[2]),
            ("T\u00fcr", "key-top", None),
            ("da", "key-off", x[1]),
            (ARABIC.split()[0], "key-base", x[4]),
            (ARABIC.split()[1], "key-base", x[3]),
        ]
        # Hits are solid, misses dashed, others dotted; words run as their script does.
        assert drawn[0][2] == "none" and len({drawn[0][2], drawn[1][2], drawn[3][2]}) == 3
        starts = [each[3] for each in drawn]
        assert starts[:4] == sorted(starts[:4]) and starts[4] > starts[5]
        assert command_of(seen) == f"{COMMAND} 0.1"
        assert seen.errors == [] and seen.dialogs == []


def test_a_script_draws_what_the_page_was_written_with(browser: Any, page: Path) -> None:
    svg = "Array.from(document.querySelectorAll('.arcs > div'), (each) => each.outerHTML)"
    with visit(browser, page) as seen:
        drawn = seen.value(svg)
    with visit(browser, page, java_script_enabled=False) as seen:
        assert seen.value(svg) == drawn


def test_the_sentences_and_the_command_follow_the_chosen_head(browser: Any, page: Path) -> None:
    with visit(browser, page) as seen:
        status = seen.page.locator(".head-sentences [role=status]")
        for selector in (
            ".head-sentences .chip >> text=L1.H0",
            ".ranking tr[data-head='0.1'] td >> nth=0",
            ".heatmap .cell[data-head='1.0']",
        ):
            seen.page.locator(selector).click()
            head = seen.value("location.hash").partition("=")[2]
            assert command_of(seen) == f"{COMMAND} {head}"
            current = seen.page.locator(".head-sentences .chip[aria-current]").inner_text()
            assert current == str(Head.parse(head))
            assert seen.page.locator(".arcs > div").count() == {"0.1": 2, "1.0": 1}[head]
            assert status.inner_text() == ""
        # What was written by others is shown as it is.
        assert HOSTILE in seen.page.locator(".arcs bdi").inner_text()
        assert seen.value("window.hacked") is None
        seen.page.locator(".heatmap .cell[data-head='1.1']").click()
        assert "no sentences of head L1.H1" in status.inner_text()
        assert command_of(seen) == f"{COMMAND} 1.1"
        seen.page.evaluate("navigator.clipboard.writeText = (text) => { window.copied = text; }")
        seen.page.locator(".head-sentences .copy").click()
        assert seen.value("window.copied") == f"{COMMAND} 1.1"
        assert seen.errors == []


def test_the_sentences_follow_the_chosen_direction(browser: Any, page: Path) -> None:
    from playwright.sync_api import expect  # which waits until the page has followed

    with visit(browser, page) as seen:
        for part, ids in (("en-ar", ["b"]), ("en-de", ["a"]), ("mean", ["a", "b"])):
            seen.choose("#direction", part)
            expect(seen.page.locator(".arcs bdi")).to_have_text([re.compile(f"{i}$") for i in ids])
        seen.choose("#direction", "en-ar")
        seen.page.locator(".head-sentences .chip >> text=L1.H0").click()
        status = seen.page.locator(".head-sentences [role=status]")
        expect(status).to_contain_text("in this direction")
        expect(seen.page.locator(".arcs > div")).to_have_count(0)
        seen.page.locator(".head-sentences .chip >> text=L0.H1").click()
        expect(seen.page.locator(".arcs > div")).to_have_count(1)


def lit(seen: Visit) -> list[str]:
    found: list[str] = seen.page.locator(".arcs .current").all_text_contents()
    return found


def test_a_token_lights_its_arc_and_its_word_by_pointer_and_by_keyboard(
    browser: Any, page: Path
) -> None:
    with visit(browser, page) as seen:
        tip = seen.page.locator("#tip")
        seen.page.locator(".arcs g text >> text=rote").hover()
        assert lit(seen) == ["door", "rote"]
        assert tip.inner_text() == "\u2068rote\u2069 \u2192 \u2068door\u2069: miss"
        seen.page.mouse.move(0, 0)
        assert lit(seen) == []
        seen.page.locator(".arcs").focus()
        said = []
        for key in ("ArrowRight", "ArrowRight", "ArrowRight", "ArrowRight", "ArrowDown"):
            seen.page.keyboard.press(key)
            said.append(tip.inner_text().replace("\u2068", "").replace("\u2069", ""))
        assert said[:4] == [
            "die \u2192 the: hit",
            "rote \u2192 door: miss",
            "T\u00fcr \u2192 no source word: miss",
            "da \u2192 red: not counted",
        ]
        assert said[4].endswith(": hit") and said[4].split()[0] in ARABIC
        seen.page.keyboard.press("Escape")
        assert lit(seen) == [] and not tip.is_visible()
        assert seen.errors == []


def test_however_many_sentences_there_are_a_page_stays_small() -> None:
    source = "the quick brown fox jumps over the lazy dog near a river " * 4
    rows = [
        sentence(part, f"{part}{at}", source, f"{source} {at}", (0,) * 49, (True,) * 49)
        for part in ("en-de", "en-fr", "de-fr")
        for at in range(10)
    ]
    made = draw_head_sentences(
        "a", HeadSentences("Arcs", dict.fromkeys([(0, 1), (0, 2)], rows), "")
    )
    data = made.data["a"]
    assert len(dump_json(data).encode()) < 1.1 * DATA
    assert len(made.html.encode()) < 1.5 * DRAWN
    # The best of each direction come first, and the heads share their texts.
    ids = [data["texts"][arcs.text].label.split()[-1] for arcs in data["heads"]["0.1"]]
    assert ids[:6] == ["en-de0", "en-fr0", "de-fr0", "en-de1", "en-fr1", "de-fr1"]
    assert len(ids) < len(rows) and len(data["texts"]) == len(ids)
    assert len(data["heads"]["0.2"]) in (len(ids), len(ids) - 1)
