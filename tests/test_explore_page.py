"""The page of the explorer in a real browser, before a server whose answers are scripted."""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from browser_helpers import Visit, chromium, visit
from explore_helpers import (
    CHANGE,
    GATED,
    INPUT,
    ORIGINAL,
    Served,
    about,
    answer,
    lane,
    run,
    serving,
)
from headscope.heads import Geometry, HeadScores, HeadSet
from headscope.live import page
from headscope.live.inputs import Wanted
from headscope.live.lesson import lesson
from headscope.live.scores import Source, described

HOSTILE = '<img src=x onerror="window.broken=1"></script>'


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as opened:
        yield opened


@contextmanager
def explorer(
    browser: Any, answers: Any = answer, where: str = "", model: Any = None, **window: Any
) -> Iterator[tuple[Visit, Served]]:
    """The open page after its first run; at the end the browser must not have complained."""
    with (
        serving(model or about(), answers) as served,
        visit(browser, served.address + where, **window) as seen,
    ):
        done(seen, 1)
        yield seen, served
        assert seen.errors == []


def done(seen: Visit, runs: int, state: str = "done") -> None:
    seen.page.wait_for_selector(f'.explorer[data-run="{runs}"][data-state={state}]')


def cell(seen: Visit, head: str) -> Any:
    return seen.page.locator(f'.cell[data-head="{head}"]')


def tokens(seen: Visit, name: str, kind: str = "written") -> Any:
    return seen.page.locator(f"[data-lane={name}] .{kind} .tok")


def press(seen: Visit, name: str, runs: int) -> None:
    seen.page.click(f".{name}")
    done(seen, runs)


# ---- gates ---------------------------------------------------------------------------------------
def test_a_click_removes_a_head_and_brings_it_back(browser: Any) -> None:
    with explorer(browser) as (seen, served):
        head = cell(seen, "5.1")
        for runs, gate, gates in ((2, "0", {"5.1": 0}), (3, "1", {})):
            head.click()
            done(seen, runs)
            assert served.runs()[-1]["gates"] == gates
            assert f"head L5.H1, gate {gate}," in head.get_attribute("aria-label")
        assert seen.page.locator("[data-lane=gated] .ending").inner_text().startswith("No gate")


def test_keys_move_over_a_layer_without_heads_and_set_gates(browser: Any) -> None:
    with explorer(browser) as (seen, served):
        cell(seen, "1.2").focus()
        for keys, gates, pinned in (
            (("ArrowDown", "ArrowRight", "Enter"), {"3.3": 0}, "5.1"),
            (("+",), {"3.3": 0.25}, "5.1"),
            (("-", "-", "-"), {"3.3": -0.5}, "5.1"),
            (("-",) * 5, {"3.3": -1}, "5.1"),
            (("p",), {"3.3": -1}, "3.3"),
        ):
            for key in keys:
                seen.page.keyboard.press(key)
            until(served, lambda body, g=gates, p=pinned: (body["gates"], body["pinned"]) == (g, p))
        assert seen.page.locator(".pinned h2").inner_text() == "Pinned head L3.H3"


def until(served: Served, holds: Any) -> None:
    """Wait until a run like that was asked for; two asked for at once may arrive in any order."""
    for _ in range(200):
        if any(holds(body) for body in served.runs()):
            return
        threading.Event().wait(0.02)
    raise AssertionError(served.runs()[-1])


def test_a_number_sets_any_gate_of_the_current_head(browser: Any) -> None:
    with explorer(browser) as (seen, served):
        cell(seen, "4.7").click(modifiers=["Shift"])
        assert seen.value("document.activeElement.className") == "gate-value"
        seen.page.keyboard.type("1.75")
        seen.page.keyboard.press("Tab")
        done(seen, 2)
        assert served.runs()[-1]["gates"] == {"4.7": 1.75}
        assert seen.page.locator(".map .letters").text_content() == "1.75"


def test_a_drag_is_one_run_a_frame_and_one_step_of_undo(browser: Any) -> None:
    with explorer(browser) as (seen, served):
        seen.value(
            """() => {
              const slider = document.querySelector(".slider");
              for (let value = 0; value < 4; value += 0.25) {
                slider.value = value;
                slider.dispatchEvent(new Event("input"));
              }
              slider.dispatchEvent(new Event("change"));
            }"""
        )
        done(seen, 2)
        assert served.runs()[-1]["gates"] == {"5.1": 3.75}
        press(seen, "undo", 3)
        assert served.runs()[-1]["gates"] == {} and seen.page.locator(".undo").is_disabled()


def test_presets_choose_heads_of_the_run_and_random_ones(browser: Any) -> None:
    with explorer(browser) as (seen, served):
        rank = about()["scores"][0]["rank"]
        layers = {0: 0, 1: 1, 2: 3, 3: 4, 4: 5}
        highest = {f"{layers[at // 16]}.{at % 16}" for at in range(80) if rank[at] <= 5}
        press(seen, "top", 2)
        assert set(served.runs()[-1]["gates"]) == highest
        of_layers = Counter(name.split(".")[0] for name in highest)
        press(seen, "random-layers", 3)
        assert Counter(name.split(".")[0] for name in served.runs()[-1]["gates"]) == of_layers
        seen.page.fill(".k", "7")
        press(seen, "random", 4)
        assert len(served.runs()[-1]["gates"]) == 7
        press(seen, "everything", 5)
        assert len(served.runs()[-1]["gates"]) == 80
        press(seen, "nothing", 6)
        assert served.runs()[-1]["gates"] == {}
        press(seen, "draw", 7)
        assert served.runs()[-1]["draw"] == 1
        assert seen.page.locator(".drawn-count").inner_text() == "draw 2 · 4 draws seen"
        press(seen, "undo", 8)
        assert len(served.runs()[-1]["gates"]) == 80
        press(seen, "redo", 9)
        assert served.runs()[-1]["gates"] == {}
        press(seen, "given-set", 10)
        assert served.runs()[-1]["gates"] == about()["sets"][0]["gates"]


@pytest.mark.parametrize("width", [1280, 390])
def test_the_words_at_a_head_cover_neither_numbers_nor_key(browser: Any, width: int) -> None:
    covered = """() => {
      const box = (node) => node.getBoundingClientRect(), tip = box(document.querySelector(".tip"));
      const kept = document.querySelectorAll(".head-words, .reading, .legend, .rampbar");
      return [...kept].filter((node) => box(node).height && tip.left < box(node).right
        && box(node).left < tip.right && tip.top < box(node).bottom && box(node).top < tip.bottom)
        .map((node) => node.className);
    }"""
    with explorer(browser, width=width) as (seen, _):
        shown = 0
        for at in range(seen.page.locator(".heads .cell").count()):
            seen.page.locator(".heads .cell").nth(at).hover()
            shown += seen.page.locator(".tip").is_visible()
            assert seen.value(covered) == []
        assert shown > 0
        column = seen.page.locator(".shade option").first.inner_text()
        assert column in seen.page.locator(".shown").inner_text()


# ---- outputs -------------------------------------------------------------------------------------
def test_the_original_is_coloured_and_the_first_difference_marked(browser: Any) -> None:
    with explorer(browser) as (seen, _):
        press(seen, "top", 2)
        shifted = tokens(seen, "gated", "shifted")
        assert shifted.all_inner_texts() == ORIGINAL
        # The end of the scale is 4 nats, and −3.4 is step 7 of 8.
        assert shifted.nth(4).get_attribute("class") == "tok n7 less"
        assert shifted.nth(4).get_attribute("aria-label") == "Daniel, \u22123.40 nats"
        assert shifted.nth(6).get_attribute("class") == "tok q1 more"
        assert shifted.nth(8).get_attribute("aria-label") == "hat, no value"
        assert tokens(seen, "random", "shifted").nth(4).get_attribute("class") == "tok n1 less"
        ends = seen.page.locator(".scale .rampbar > span:not(.ramp)").all_inner_texts()
        assert ends == ["\u22124", "+4"]
        written = tokens(seen, "gated")
        assert written.all_inner_texts() == GATED
        assert seen.page.locator("[data-lane=gated] .fork").all_inner_texts() == [" Peter"]
        assert "differs" in written.nth(4).get_attribute("aria-label")
        ending = seen.page.locator("[data-lane=gated] .ending").inner_text()
        assert ending == "First differs at token 5 of 9."
        finding = seen.page.locator(".place h2").inner_text()
        assert (
            finding == "log p(reference) changes by \u22125.10 nats; 0 of 20 random sets do as much"
        )
        assert "from \u22121.60 to +0.30" in seen.page.locator(".place .note").inner_text()
        assert seen.page.locator(".place u").count() == 20
        # The heads of the control are marked on the map.
        assert seen.page.locator(".marks .drawn.line").get_attribute("d").count("M") == 5


def test_scores_below_0_are_seen_and_rank_by_size(browser: Any) -> None:
    """As by attribution: the head with the largest effect is below 0."""
    geometry = Geometry((16, 16, 0, 16, 16, 16))
    values = np.where(geometry.mask(), 0.001, np.nan)
    values[5, 3], values[4, 1], values[3, 0] = -0.326, 0.0725, -0.01
    scores = HeadScores(geometry, values, "attribution")
    known = described(Source("runs/ioi", "attribution", scores))
    with explorer(browser, model=about(scores=[known])) as (seen, served):
        classes = {head: cell(seen, head).get_attribute("class").split()[1]
                   for head in ("5.3", "4.1", "3.0", "1.1")}  # fmt: skip
        assert classes == {"5.3": "n8", "4.1": "q2", "3.0": "m0", "1.1": "m0"}
        shown = seen.page.locator(".heads .rampbar:visible")
        assert shown.count() == 1
        ends = shown.locator("> span:not(.ramp)").all_inner_texts()
        assert ends == ["score: \u22120.326", "+0.326"]
        assert "rank 1 of 80 by size" in seen.page.locator(".head-words").inner_text()
        seen.page.fill(".k", "2")
        press(seen, "top", 2)
        assert set(served.runs()[-1]["gates"]) == {"5.3", "4.1"}
        assert page.static(about(scores=[known])).count("cell n8") == 1


def test_a_newer_click_cancels_the_older_run(browser: Any) -> None:
    reached, go_on = threading.Event(), threading.Event()

    def answers(kind: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if kind != "run" or set(body["gates"]) != {"5.1"}:
            yield from answer(kind, body)
            return
        for event in run(body):
            yield event
            if event["event"] == "shift":
                reached.set()
                assert go_on.wait(20)
        for _ in range(200):
            yield lane("gated", ["older", " output"], 0)

    with explorer(browser, answers) as (seen, served):
        cell(seen, "5.1").click()
        done(seen, 2, "shifted")
        assert reached.is_set()
        cell(seen, "5.3").click()
        done(seen, 3)
        assert served.runs()[-1]["gates"] == {"5.1": 0, "5.3": 0}
        go_on.set()
        for _ in range(200):
            if "cancelled" in [kind for kind, _ in served.asked]:
                break
            threading.Event().wait(0.02)
        else:
            raise AssertionError("the older stream was read to its end")
        assert tokens(seen, "gated").all_inner_texts() == GATED
        assert seen.value("document.querySelector('.explorer').dataset.state") == "done"


def lit(seen: Visit) -> str:
    """The stretch of the prompt that is marked."""
    return str(seen.value("[...CSS.highlights.get('lit')].join('|')"))


def test_a_prompt_of_32000_tokens_is_text_that_answers(browser: Any) -> None:
    """No element a token: text, of which the peak is marked and brought into view."""
    text = " ".join(f"w{at}" for at in range(32_000))
    given = {"prompt": text, "reference": None, "language": None, "chat": False}

    def answers(kind: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        for event in answer(kind, body):
            if event["event"] == "attention":
                event["peaks"] = [31_000] * len(event["peaks"])
            yield event

    model = about(examples=[{"title": "Long", "input": given}])
    with explorer(browser, answers, model=model) as (seen, served):
        shown = seen.page.locator(".prompt")
        assert shown.text_content() == text == served.runs()[0]["input"]["prompt"]
        assert seen.value("document.querySelectorAll('*').length") < 2_000
        assert len(seen.page.content()) < 1_000_000
        assert tokens(seen, "gated", "shifted").count() == 0
        cell(seen, "5.1").click()
        done(seen, 2)
        looks = tokens(seen, "gated", "shifted").evaluate_all("all => all.map(e => e.className)")
        assert len(looks) == len(CHANGE) and len(set(looks)) > 3
        tokens(seen, "gated").nth(1).hover()
        assert lit(seen) == "w31000" and "peak at “w31000”" in seen.page.inner_text(".reading")
        inside = seen.value(
            """() => {
              const [range] = CSS.highlights.get("lit"), at = range.getBoundingClientRect();
              const box = document.querySelector(".prompt").getBoundingClientRect();
              return at.height > 0 && at.top >= box.top && at.bottom <= box.bottom;
            }"""
        )
        assert inside and seen.page.locator(".arcs path.peak").count() == 1


def test_arcs_go_to_the_peak_and_the_weights_are_told(browser: Any) -> None:
    with explorer(browser) as (seen, _):
        press(seen, "top", 2)
        reading = seen.page.locator(".reading")
        tokens(seen, "gated").nth(4).hover()
        assert seen.page.locator(".arcs path").count() == 6
        assert seen.page.locator(".arcs path.peak").count() == 1
        assert lit(seen) == "broke"
        words = reading.inner_text()
        assert "head L5.H1, peak at “broke”" in words and "broke 0.600" in words
        # By keyboard: the next token; this one's peak is a token of the output.
        tokens(seen, "gated").nth(4).focus()
        seen.page.keyboard.press("ArrowLeft")
        assert "Selected, token 4 “dass”" in reading.inner_text()
        assert seen.page.locator("[data-lane=gated] .written .lit").inner_text() == " denkst"
        seen.page.keyboard.press("Escape")
        assert seen.page.locator(".arcs path").count() == 0


def test_the_pinned_head_has_its_numbers_and_best_sentences(browser: Any) -> None:
    with explorer(browser) as (seen, served):
        facts = seen.page.locator(".about-head dl.facts").inner_text()
        for words in (
            "95\u00a0% CI",
            "1 of 80",
            "token alignment",
            "\u22125.70, reference \u22122.10",
        ):
            assert words in facts
        best = seen.page.locator(".best article")
        best.nth(9).wait_for()
        assert ("best", {"scores": "runs/ts", "head": "5.1"}) in served.asked
        miss = best.first.locator(".word.miss")
        assert miss.get_attribute("aria-label") == "gemächlich: miss, peak at slowly."
        miss.hover()
        assert best.first.locator(".lit").inner_text() == "slowly."
        asked = len(served.asked)
        seen.page.locator(".pin").click()
        done(seen, 2)
        assert served.runs()[-1]["pinned"] is None
        assert not [kind for kind, _ in served.asked[asked:] if kind == "best"]


def test_what_else_was_likely_is_told_at_a_token(browser: Any) -> None:
    with explorer(browser) as (seen, _):
        press(seen, "top", 2)
        listed = seen.page.locator(".reading .candidates li")
        tokens(seen, "gated").nth(4).hover()
        assert [words.strip() for words in listed.all_inner_texts()] == [
            "“Peter” 0.700", "“Daniel” 0.200",
        ]  # fmt: skip
        press(seen, "pin", 3)  # also where no head is pinned
        tokens(seen, "original").first.hover()
        assert listed.first.inner_text().strip() == "“Du” 0.700"


def test_the_attention_of_a_whole_sentence_is_a_table(browser: Any) -> None:
    with explorer(browser) as (seen, _):
        table = seen.page.get_by_role("table", name="Weights of head L5.H1")
        words = [*INPUT["sentence"].split(), "elsewhere"]
        assert table.locator("thead th").all_inner_texts() == words
        assert table.locator("tbody th").all_inner_texts() == [text.strip() for text in ORIGINAL]
        cells = table.locator("tbody tr").nth(4).locator("td")
        shares = [0, 0, 0, 0, 0.6, 0.3, 0, 0, 0.1]
        assert cells.all_text_contents() == [f"{share:.2f}" for share in shares]
        classes = [cells.nth(at).get_attribute("class") for at in (0, 4, 8)]
        assert classes == ["s0", "s10", "s2"]
        cells.nth(4).hover()
        assert seen.page.locator(".tip").inner_text() == "Daniel → broke: 0.60"
        press(seen, "pin", 2)
        assert table.count() == 0


def test_the_map_shows_what_each_head_does_alone(browser: Any) -> None:
    """Of one text: those of the last one are gone when another is asked."""
    go_on = threading.Event()

    def answers(kind: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        for event in answer(kind, body):
            if event["event"] == "effects" and "prompt" in body["input"]:
                assert go_on.wait(20)
            yield event

    with explorer(browser, answers) as (seen, served):
        seen.choose(".shade", "effect")
        done(seen, 2)
        assert [body["effects"] for body in served.runs()] == [False, True]
        assert "n8" in str(cell(seen, "0.3").get_attribute("class"))
        assert "q4" in str(cell(seen, "0.4").get_attribute("class"))
        assert "removed −2.000" in str(cell(seen, "0.3").get_attribute("aria-label"))
        cell(seen, "0.3").focus()
        assert "rank 1 of 80 by size" in seen.page.locator(".head-words").inner_text()
        seen.page.fill(".k", "2")
        press(seen, "top", 3)
        assert set(served.runs()[-1]["gates"]) == {"0.3", "0.4"}
        address = seen.page.url
        seen.page.locator(".example-input").nth(1).click()
        seen.page.wait_for_selector(".explorer[data-run='4'][data-state=written]")
        assert seen.page.locator(".cell.na").count() == 80
        assert seen.page.locator("button.top").is_disabled()
        go_on.set()
        done(seen, 4)
        assert seen.page.locator(".cell.na").count() == 0
        seen.page.goto("about:blank")
        seen.page.goto(address)
        done(seen, 1)
        assert served.runs()[-1]["effects"] and served.runs()[-1]["input"] == INPUT


# ---- the lesson ----------------------------------------------------------------------------------
def taught() -> dict[str, Any]:
    steps = lesson(
        HeadSet.parse("5.1,4.2", Geometry((16, 16, 0, 16, 16, 16))),
        Wanted(INPUT["sentence"], pair="en-de", reference=INPUT["reference"]),
        Wanted("Word: Kuh", reference="Kühe"),
        Wanted("Кот спит.", pair="en-de"),
    )
    return about(lesson=[vars(step) for step in steps])


@pytest.mark.parametrize("width", [1280, 390])
def test_a_lesson_opens_with_heads_off_and_the_draws_in_view(browser: Any, width: int) -> None:
    with explorer(browser, model=taught(), width=width) as (seen, served):
        first = served.runs()[0]
        assert (first["gates"], first["pinned"]) == ({"5.1": 0, "4.2": 0}, "5.1")
        assert first["input"] == INPUT
        box = seen.page.locator(".place .bars").bounding_box()
        assert box["height"] > 20 and box["y"] + box["height"] <= 900
        assert seen.page.locator(".place u").count() == 20
        assert seen.value("document.documentElement.scrollWidth") == width
        assert seen.page.locator(".step[aria-pressed=true]").inner_text() == "1 Remove"


def test_the_steps_of_a_lesson_are_scenes_with_an_address(browser: Any) -> None:
    with explorer(browser, model=taught()) as (seen, served):
        said = {seen.page.locator(".step-text").inner_text()}
        off = {"5.1": 0, "4.2": 0}
        scenes = [({}, "effect"), ({}, ""), (off, "Word: Kuh"), (off, "Кот спит.")]
        for at, (gates, wanted) in enumerate(scenes, 1):
            press_step = seen.page.locator(".step").nth(at)
            press_step.focus()
            seen.page.keyboard.press("Enter")
            done(seen, 1 + at)
            last = served.runs()[-1]
            assert last["gates"] == gates and last["effects"] is (wanted == "effect")
            asked = INPUT["sentence"] if wanted in ("", "effect") else wanted
            assert asked in (last["input"].get("sentence"), last["input"].get("prompt"))
            assert seen.page.locator(".step[aria-pressed=true]").count() == 1
            said.add(seen.page.locator(".step-text").inner_text())
        assert len(said) == 5
        # What is changed in a step stays in it, in links too.
        cell(seen, "3.3").click()
        done(seen, 6)
        address, last = seen.page.url, served.runs()[-1]
        seen.page.goto("about:blank")
        seen.page.goto(address)
        done(seen, 1)
        assert served.runs()[-1] == last
        assert seen.page.locator(".step").nth(4).get_attribute("aria-pressed") == "true"


# ---- input, errors, text -------------------------------------------------------------------------
def test_own_text_examples_and_sentences_of_the_data_are_asked(browser: Any) -> None:
    with explorer(browser) as (seen, served):
        seen.page.fill(".own-text", "A cat slept.")
        seen.page.fill(".own-reference", "")
        seen.page.locator(".own-text").press("Control+Enter")
        done(seen, 2)
        own = {"sentence": "A cat slept.", "pair": "en-de", "reference": None}
        assert served.runs()[-1]["input"] == own
        seen.page.select_option(".kind", "prompt")
        press(seen, "go", 3)
        assert served.runs()[-1]["input"]["prompt"] == "A cat slept."
        for name, runs, said in (("later", 4, "1 of 3"), ("later", 5, "2 of 3"),
                                 ("earlier", 6, "1 of 3")):  # fmt: skip
            press(seen, name, runs)
            assert seen.page.locator(".data-place").inner_text() == said
        assert served.runs()[-1]["input"]["sentence"] == "Sentence 1."
        assert seen.page.locator(".earlier").is_disabled()


def test_a_reference_goes_with_its_text(browser: Any) -> None:
    """Typed text, another use of it, links and steps back, and what is kept or arrives."""
    own = about()["examples"][0]["input"]
    asked = {"sentence": "A cat slept.", "pair": "en-de", "reference": None}
    with explorer(browser) as (seen, served):
        reference = seen.page.locator(".own-reference")
        assert reference.input_value() == own["reference"]
        seen.page.fill(".own-text", asked["sentence"])
        assert reference.input_value() == ""
        seen.page.fill(".own-text", own["sentence"])
        assert reference.input_value() == own["reference"]
        seen.page.select_option(".kind", "prompt")
        assert reference.input_value() == ""
        seen.page.select_option(".kind", "en-de")
        assert reference.input_value() == own["reference"]
        seen.page.fill(".own-text", asked["sentence"])
        press(seen, "go", 2)
        assert served.runs()[-1]["input"] == asked
        seen.page.click(".copy-command")
        seen.page.wait_for_selector(".kept pre:text('headscope')")
        seen.page.click(".save-run")
        seen.page.wait_for_selector(".kept pre:text('runs/')")
        kept = [body["input"] for kind, body in served.asked if kind in ("copy", "save")]
        assert kept == [asked, asked]
        press(seen, "arrives", 3)
        assert interpretations(served)[-1]["input"] == asked
        press(seen, "arrives", 4)
        address = seen.page.url
        seen.page.locator(".example-input").first.click()
        done(seen, 5)
        assert served.runs()[-1]["input"] == own
        seen.page.goto("about:blank")
        seen.page.goto(address)
        done(seen, 1)
        assert served.runs()[-1]["input"] == asked and reference.input_value() == ""
        # A reference that is typed belongs to the text that is typed.
        seen.page.fill(".own-reference", "Ein Hund.")
        seen.page.fill(".own-text", "A dog.")
        press(seen, "go", 2)
        assert served.runs()[-1]["input"] == {**own, "sentence": "A dog.", "reference": "Ein Hund."}


def test_a_language_goes_with_its_prompt(browser: Any) -> None:
    given = {"prompt": "Word: Kuh", "reference": "cow", "language": "en", "chat": False}
    model = about(examples=[{"title": "Word", "input": given}], chat=True)
    with explorer(browser, model=model) as (seen, served):
        seen.page.select_option(".kind", "chat")  # the same prompt in a template
        press(seen, "go", 2)
        assert served.runs()[-1]["input"] == {**given, "chat": True}
        seen.page.fill(".own-text", "Mot: vache")
        press(seen, "go", 3)
        asked = {"prompt": "Mot: vache", "reference": None, "language": None, "chat": True}
        assert served.runs()[-1]["input"] == asked


def test_nothing_of_the_last_input_stands_beside_the_next(browser: Any) -> None:
    """Between the colours and the output of an input there are no facts of another output."""
    reached, go_on = threading.Event(), threading.Event()

    def answers(kind: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        for event in answer(kind, body):
            if kind == "run" and body["input"]["reference"] is None:
                if event["event"] == "token" and not reached.is_set():
                    reached.set()
                    assert go_on.wait(20)
                if event["event"] == "lane":
                    event |= {"chrf": None, "reference_logprob": None}
            yield event

    with explorer(browser, answers) as (seen, _):
        press(seen, "top", 2)
        facts = seen.page.locator("[data-lane=gated] .facts")
        assert "94.7" in facts.inner_text()
        seen.page.fill(".own-text", "A cat slept.")
        seen.page.click(".go")
        done(seen, 3, "shifted")
        assert reached.is_set() and "stale" in facts.get_attribute("class")
        go_on.set()
        done(seen, 3)
        assert facts.inner_text().count("no reference") == 2


def test_errors_are_shown_and_the_page_goes_on(browser: Any) -> None:
    answers_of = {
        "5.1": {"event": "error", "error": "Head 5.1 is out of memory."},
        "5.2": {"status": 409, "error": "The engine is busy."},
        "5.3": {"event": "displaced"},
    }

    def broken(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield next(run(body))
        raise ConnectionResetError

    def answers(kind: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        gates = list(body.get("gates", ()))
        if gates == ["5.4"]:
            yield from broken(body)
        yield from [answers_of[gates[0]]] if gates else answer(kind, body)

    with explorer(browser, answers) as (seen, _):
        alert = seen.page.get_by_role("alert")
        said = (
            "Head 5.1 is out of memory.",
            "The engine is busy.",
            "Another window",
            "The answer b",
        )
        for at, words in enumerate(said, 1):
            cell(seen, f"5.{at}").click()
            done(seen, 2 * at, "failed")
            assert alert.inner_text().startswith(words)
            cell(seen, f"5.{at}").click()
            done(seen, 2 * at + 1)
            assert not alert.is_visible()
        refused = [words for words in seen.errors if "409" in words]
        assert len(refused) == len(seen.errors) == 1
        seen.errors.clear()


def test_text_stays_text(browser: Any) -> None:
    def answers(kind: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        for event in answer(kind, body):
            name = event["event"]
            if name == "prompt":
                event |= {"text": HOSTILE, "source": None, "words": [[0, 4]],
                          "tokens": [[0, 4], [4, len(HOSTILE)]]}  # fmt: skip
            if name == "lane":
                event |= {"tokens": [HOSTILE] * 10, "text": HOSTILE,
                          "language": {"code": "de", "name": HOSTILE}}  # fmt: skip
            if name == "best":
                event["sentences"][0] |= {"source": HOSTILE, "target": HOSTILE, "id": HOSTILE}
            yield event

    model = about(model=HOSTILE)
    model["examples"][0]["title"] = model["scores"][0]["title"] = HOSTILE
    with explorer(browser, answers, model=model) as (seen, _):
        press(seen, "top", 2)
        tokens(seen, "gated").first.hover()
        assert tokens(seen, "gated").first.inner_text() == HOSTILE
        assert seen.page.locator(".prompt").inner_text() == HOSTILE
        assert seen.page.locator("h1").inner_text() == HOSTILE
        assert seen.page.locator("img").count() == 0
        assert seen.value("window.broken") is None


def test_spans_count_characters(browser: Any) -> None:
    def answers(kind: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        for event in answer(kind, body):
            if event["event"] == "prompt":
                event |= {"text": "😀😀 cat", "tokens": [[0, 2], [2, 6]], "source": [3, 6],
                          "words": [[3, 6]]}  # fmt: skip
            yield event

    with explorer(browser, answers) as (seen, _):
        assert seen.page.locator(".prompt").text_content() == "😀😀 cat"
        assert seen.page.locator(".prompt .asked").all_inner_texts() == ["cat"]


# ---- a source as it arrives ----------------------------------------------------------------------
def arrival(seen: Visit) -> dict[str, Any]:
    """What the page shows of a source that arrives."""
    return dict(
        seen.value(
            """() => {
              const every = (selector) => [...document.querySelectorAll(selector)];
              const text = (selector) => every(selector).map((e) => e.textContent);
              const shown = every(".arrivals .own").map((e) => (
                getComputedStyle(e).visibility === "hidden" ? "" : e.textContent));
              return {
                read: text(".arrivals li:not(.coming) .word"), last: text(".arrivals .last .word"),
                looked: text(".arrivals .lit"), own: shown,
                written: every(".drafted .written").map((e) => [e.textContent, e.dataset.read]),
                waits: text(".drafted .waits"), ahead: text(".drafted .ahead"),
                why: document.querySelector(".why").textContent,
              };
            }"""
        )
    )


def interpretations(served: Served) -> list[dict[str, Any]]:
    return [body for kind, body in served.asked if kind == "interpret"]


def test_a_source_arrives_word_by_word(browser: Any) -> None:
    with explorer(browser) as (seen, served):
        cell(seen, "5.1").click()
        done(seen, 2)
        cell(seen, "4.2").click()
        done(seen, 3)
        press(seen, "arrives", 4)
        assert interpretations(served) == [
            {"input": about()["examples"][0]["input"], "heads": "4.2,5.1", "policy": "alignatt",
             "number": 2}
        ]  # fmt: skip
        assert not seen.page.locator(".lanes").is_visible()
        assert arrival(seen)["read"] == [] and seen.page.locator(".word-back").is_disabled()
        seen.page.locator(".word-on").focus()
        for _ in range(4):
            seen.page.keyboard.press("Enter")
        shown = arrival(seen)
        why = shown.pop("why")
        assert shown == {
            "read": ["You", "think", "that", "Daniel"],
            "last": ["that", "Daniel"],
            "looked": ["Daniel"],
            "own": ["", "Du", "", "denkst, dass", "", "", "", ""],
            "written": [["Du", "2"], [" denkst", ""], [", dass", "4"]],
            "waits": [" Daniel"],
            "ahead": [" kam"],
        }
        assert "“Daniel” (word 4)" in why
        token = seen.page.locator(".drafted .tok").nth(1)
        token.hover()
        assert arrival(seen)["looked"] == ["think"]
        assert "written at word 4" in token.get_attribute("aria-label")
        # By keyboard: from token to token.
        seen.page.locator(".drafted .tok").first.focus()
        seen.page.keyboard.press("ArrowRight")
        seen.page.keyboard.press("ArrowRight")
        assert seen.value("document.activeElement.textContent") == ", dass"
        seen.page.click(".word-back")
        assert arrival(seen)["written"] == [["Du", "2"]]
        for _ in range(5):
            seen.page.click(".word-on")
        whole = arrival(seen)
        assert "".join(text for text, _ in whole["written"]).endswith("ein Sofa zerbrach.")
        assert whole["waits"] == whole["ahead"] == whole["last"] == whole["looked"] == []
        assert "2.5" in whole["why"] and seen.page.locator(".word-on").is_disabled()
        press(seen, "arrives", 5)
        assert seen.page.locator(".lanes").is_visible()
        assert not seen.page.locator(".arrivals").is_visible()


def test_a_played_source_goes_as_far_as_the_model(browser: Any) -> None:
    """It waits for what is not yet drafted, goes on with it, and ends by itself."""
    go_on = threading.Event()

    def answers(kind: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        for at, event in enumerate(answer(kind, body)):
            if kind == "interpret" and at == 4:
                assert go_on.wait(60)
            yield event

    with explorer(browser, answers) as (seen, _):
        seen.page.click(".arrives")
        seen.page.wait_for_selector(".arrivals li:nth-child(8)")
        seen.page.click(".play")
        seen.page.wait_for_selector(".why:text('drafting')")
        shown = arrival(seen)
        assert shown["read"] == ["You", "think", "that"]
        assert shown["written"] == [["Du", "2"]] and shown["waits"] == [" denkst"]
        assert seen.page.locator(".play").inner_text() == "Pause"
        go_on.set()
        done(seen, 2)
        seen.page.wait_for_selector(".play:text('Play')")
        assert len(arrival(seen)["read"]) == 8
        seen.page.click(".play")  # again, from the beginning
        seen.page.click(".play")
        assert 0 < len(arrival(seen)["read"]) < 8


def test_frontier_policy_and_heads_are_asked_and_stand_in_the_address(browser: Any) -> None:
    with explorer(browser) as (seen, served):
        press(seen, "arrives", 2)
        rank = about()["scores"][0]["rank"]
        assert len(interpretations(served)[0]["heads"].split(",")) == sum(at <= 5 for at in rank)
        for _ in range(3):
            seen.page.click(".word-on")
        seen.page.locator(".number").focus()
        seen.page.keyboard.press("ArrowRight")
        done(seen, 3)
        assert interpretations(served)[-1]["number"] == 3
        assert arrival(seen)["last"] == ["You", "think", "that"]
        assert seen.page.get_by_label("Frontier: 3 last words").count() == 1
        seen.page.keyboard.press("Home")
        done(seen, 4)
        assert interpretations(served)[-1]["number"] == 0
        seen.choose(".policy", "wait-k")
        done(seen, 5)
        last = interpretations(served)[-1]
        assert (last["policy"], last["number"]) == ("wait-k", 1)
        assert arrival(seen)["last"] == [] and "k = 1" in arrival(seen)["why"]
        address = seen.page.url
        seen.page.goto("about:blank")
        seen.page.goto(address)
        done(seen, 1)
        assert interpretations(served)[-1] == last
        assert seen.page.locator(".arrivals").is_visible()
        seen.page.locator(".example-input").nth(1).click()  # a prompt
        done(seen, 2)
        assert seen.page.locator(".lanes").is_visible() and served.asked[-1][0] != "interpret"
        assert seen.page.locator(".arrives").is_disabled()
        assert seen.page.locator(".of-arrival").inner_text().startswith("Only a sentence")


def test_a_source_that_arrives_stays_text_and_errors_are_told(browser: Any) -> None:
    def answers(kind: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if kind == "interpret" and body["number"] == 4:
            yield {"status": 400, "error": HOSTILE}
        if kind == "interpret":
            words = [[0, 1], [2, 2 + len(HOSTILE)]]
            yield {"event": "source", "text": f"😀 {HOSTILE}", "words": words}
            yield {"event": "read", "tokens": [HOSTILE], "written": 1, "looks": [1]}
            yield {"event": "read", "tokens": ["x" * 5_000], "written": 1, "looks": [0]}
            yield {"event": "interpreted", "text": HOSTILE, "delays": [1], "lag": 1}
            yield {"event": "done", "seconds": 0}
        else:
            yield from answer(kind, body)

    for width in (1280, 390):
        with explorer(browser, answers, width=width) as (seen, _):
            press(seen, "arrives", 2)
            seen.page.click(".word-on")
            assert arrival(seen)["own"] == [HOSTILE, ""]
            seen.page.click(".word-on")
            assert arrival(seen)["read"] == ["😀", HOSTILE]
            assert seen.value("document.documentElement.scrollWidth") == width
            assert seen.page.locator("img").count() == 0 and seen.value("window.broken") is None
            seen.page.locator(".number").fill("4")
            done(seen, 3, "failed")
            assert seen.page.get_by_role("alert").inner_text() == HOSTILE
            assert arrival(seen)["read"] == [] and seen.page.locator(".play").is_disabled()
            seen.errors.clear()  # the status of the refusal


# ---- the address, and what is kept ---------------------------------------------------------------
def test_the_address_holds_the_state(browser: Any) -> None:
    with explorer(browser) as (seen, served):
        cell(seen, "5.3").click()
        done(seen, 2)
        seen.page.wait_for_timeout(600)  # steps in quick succession are one of the history
        press(seen, "draw", 3)
        address = seen.page.url
        last = served.runs()[-1]
        seen.page.go_back()
        done(seen, 4)
        assert (served.runs()[-1]["gates"], served.runs()[-1]["draw"]) == ({"5.3": 0}, 0)
        seen.page.go_back()
        done(seen, 5)
        assert served.runs()[-1]["gates"] == {}
        seen.page.goto("about:blank")
        seen.page.goto(address)
        done(seen, 1)
        assert served.runs()[-1] == last
        assert seen.page.locator(".drawn-count").inner_text() == "draw 2 · 2 draws seen"


def test_links_commands_and_files(browser: Any) -> None:
    with explorer(
        browser, where="?token=secret", permissions=["clipboard-read", "clipboard-write"]
    ) as (seen, served):
        press(seen, "top", 2)
        kept = seen.page.locator(".kept pre")
        for name, starts in (("copy-command", "headscope use adapt"), ("copy-python", "import"),
                             ("save-run", "runs/"), ("copy-link", served.address)):  # fmt: skip
            seen.page.click(f".{name}")
            seen.page.wait_for_selector(f".kept pre:text('{starts}')")
            assert kept.inner_text().startswith(starts)
        assert "secret" not in kept.inner_text() and "gates=" in kept.inner_text()
        seen.page.wait_for_selector(".kept .note:text('Link, copied:')")
        assert seen.value("navigator.clipboard.readText()") == kept.inner_text()
        files = {}
        for name in ("save-svg", "save-csv"):
            with seen.page.expect_download() as download:
                seen.page.click(f".{name}")
            files[name] = Path(download.value.path()).read_text()
        assert re.search(r'<rect [^>]*fill="rgb\(', files["save-svg"])
        assert (
            files["save-csv"].splitlines()[5] == '"original","4"," Daniel","-3.4","-0.34","false"'
        )
        assert '"selected","4"," Peter","","","true"' in files["save-csv"]


# ---- access and size -----------------------------------------------------------------------------
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_narrow_page_does_not_scroll_sideways(browser: Any, scheme: str) -> None:
    with explorer(browser, width=380, color_scheme=scheme) as (seen, _):
        press(seen, "arrives", 2)
        assert seen.value("document.documentElement.scrollWidth") == 380
        press(seen, "arrives", 3)
        press(seen, "top", 4)
        assert seen.value("document.documentElement.scrollWidth") == 380
        lanes = [seen.page.locator(f"[data-lane={name}]").bounding_box()
                 for name in ("original", "gated", "random")]  # fmt: skip
        assert lanes[0]["x"] == lanes[1]["x"] == lanes[2]["x"]
        assert lanes[0]["y"] < lanes[1]["y"] < lanes[2]["y"]


def test_a_model_without_scores_has_a_plain_map(browser: Any) -> None:
    model = about(scores=[], data=None, examples=[], pairs=[])
    with serving(model) as served, visit(browser, served.address) as seen:
        seen.page.fill(".own-text", "Once upon a time")
        seen.page.click(".go")
        done(seen, 1)
        assert served.runs()[-1]["scores"] is None
        assert seen.page.locator(".arrives").count() == 0  # no direction: nothing to translate
        assert seen.page.locator(".cell.plain").count() == 80
        assert seen.page.locator("button.top").is_disabled()
        press(seen, "random", 2)
        assert len(served.runs()[-1]["gates"]) == 5
        seen.choose(".shade", "effect")
        done(seen, 3)
        assert served.runs()[-1]["effects"] and seen.page.locator(".cell.plain").count() == 0
        assert seen.errors == []


# ---- documents -----------------------------------------------------------------------------------
def test_the_page_has_neither_styles_nor_scripts_of_its_own() -> None:
    html = page.page(about(model=HOSTILE))
    assert not re.search(r'<style|\sstyle="|\son\w+="', html)
    scripts = re.findall(r"<script([^>]*)>([^<]*)</script>", html)
    assert [attributes for attributes, _ in scripts] == [
        ' type="application/json" id="about"', ' type="module" src="/boot.js"',
    ]  # fmt: skip
    assert json.loads(scripts[0][1]) == about(model=HOSTILE)
    assert scripts[1][1] == ""


def test_the_static_picture_is_the_map_by_the_first_score() -> None:
    html = page.static(about())
    assert html.startswith("<iframe") and "TS \u2212 chance" in html
    colours = Counter(re.findall(r"cell (\w+)", html))
    assert colours["na"] == 1 and colours["s16"] == 1
    assert "cell plain" in page.static(about(scores=[]))


def test_widgets_share_a_page_and_keep_their_state_to_themselves(browser: Any) -> None:
    model = {"html": page.skeleton(about()), "css": page.widget_css(), "about": about()}
    events = list(run({"input": about()["examples"][0]["input"], "gates": {"5.1": 0}, "draw": 0,
                       "control": "random", "pinned": "5.1"}))  # fmt: skip
    with serving(about()) as served, visit(browser, served.address) as seen:
        done(seen, 1)
        before = len(served.asked)
        seen.value(
            """async ([traits, events]) => {
              const { default: widget } = await import("/explore.js");
              const listeners = new Set();
              window.sent = [];
              const model = {
                get: (name) => traits[name],
                on: (_, react) => listeners.add(react),
                off: (_, react) => listeners.delete(react),
                send: (message) => {
                  window.sent.push(message);
                  if (message.kind !== "run") return;
                  for (const event of [...events, { event: "end" }]) {
                    listeners.forEach((react) => react({ ...event, id: message.id }));
                  }
                },
              };
              const [one, other] = ["one", "other"].map((id) => (
                document.body.appendChild(Object.assign(document.createElement("div"), { id }))));
              widget.render({ model, el: one });
              window.closeOther = widget.render({ model, el: other });
              window.listeners = listeners;
            }""",
            [model, events],
        )
        seen.page.wait_for_selector("#other .explorer[data-state=done]")
        seen.page.locator('#one .cell[data-head="4.4"]').click()
        seen.page.wait_for_selector('#one .explorer[data-run="2"][data-state=done]')
        assert seen.page.locator('#other .explorer[data-run="1"]').count() == 1
        assert seen.page.locator("#one [data-lane=gated] .written .tok").all_inner_texts() == GATED
        colour = (
            "getComputedStyle(document.querySelector('#one').shadowRoot.querySelector('.s16')).fill"
        )
        assert seen.value(colour) == "rgb(26, 34, 97)"
        ids = seen.value("window.sent.map((message) => message.id)")
        assert len(set(ids)) == len(ids)
        seen.value("window.closeOther()")
        assert seen.value("window.listeners.size") == 1
        assert len(served.asked) == before and "#" not in seen.page.url
        assert seen.errors == []
