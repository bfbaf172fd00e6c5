"""The page of key-token attention: what it says, and in a real browser what it does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

from browser_helpers import Visit, chromium, visit
from find_helpers import model, tokenizer
from headscope.errors import InputError
from headscope.report.drawing import key_text
from headscope.studies.find.key_tokens import FindKeyTokens, comparison
from headscope.studies.models import ModelChoice
from headscope.studies.report import write_report

HOSTILE = "</script><script>window.hacked=1</script><img src=x onerror='window.hacked=1'>"
PROMPT = f"Sentence: The fire is near the {HOSTILE} camp, and the fire burns.\nAnswer:"
ANSWER = "Das Feuer brennt\nim Lager"
WORDS = ("fire", "near", "the fire burns")


def written(folder: Path, **options: Any) -> Path:
    model("pocket-like").save_pretrained(folder / "model")
    tokenizer().save_pretrained(folder / "model")
    choice = ModelChoice(str(folder / "model"))
    config = FindKeyTokens(
        prompt=PROMPT, words=WORDS, heads="1.2,0.1,1.0,1.5", model=choice, **options
    )
    comparison.run(config, folder / "run")
    return folder / "run"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("key"), answer=ANSWER)


@pytest.fixture(scope="module")
def report(run: Path) -> Path:
    return write_report(run)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as opened:
        yield opened


def shades(page: Visit, selector: str) -> list[str]:
    found: list[str] = page.value(
        "s => Array.from(document.querySelectorAll(s), n => getComputedStyle(n).backgroundColor)",
        selector,
    )
    return found


def test_it_opens_without_errors_runs_nothing_foreign_and_fits(browser: Any, report: Path) -> None:
    for width in (320, 390, 1280):
        with visit(browser, report, width=width) as page:
            page.page.locator(".key-token").first.click()
            page.choose(".key-head", "2")
            assert page.errors == [] and page.dialogs == []
            assert page.requests == [report.as_uri()]
            assert page.value("window.hacked") is None
            assert page.value("document.documentElement.scrollWidth") <= width


def test_pointing_at_a_token_shows_its_step(browser: Any, run: Path, report: Path) -> None:
    arrays = load_file(run / "steps.safetensors")
    with visit(browser, report) as page:
        said = page.page.locator(".key-said")
        means = said.inner_text()
        calm = shades(page, ".key-prompt mark"), shades(page, ".key-answer .key-token")
        page.page.locator(".key-token").nth(3).hover()
        step = arrays["attention"][3].mean(axis=0)
        assert f"step 4 of {len(arrays['mass'])}" in said.inner_text()
        for word, value in zip(WORDS, step, strict=True):
            assert f"{word} {value:.3f}" in said.inner_text()
        assert f"all key words {arrays['mass'][3].mean():.3f}" in said.inner_text()
        assert shades(page, ".key-prompt mark") != calm[0]
        page.page.mouse.move(2, 2)
        assert said.inner_text() == means
        page.choose(".key-head", "1")
        assert shades(page, ".key-answer .key-token") != calm[1]
        page.page.locator(".key-token").nth(3).click()
        page.page.mouse.move(2, 2)
        assert f"{WORDS[0]} {arrays['attention'][3, 0, 0]:.3f}" in said.inner_text()
        assert f"all key words {arrays['mass'][3, 0]:.3f}" in said.inner_text()
        page.choose(".key-head", "0")
        page.page.locator(".key-token").nth(3).click()
        page.page.mouse.move(2, 2)
        assert shades(page, ".key-prompt mark") == calm[0]
        assert shades(page, ".key-answer .key-token") == calm[1]


def test_steps_can_be_walked_by_keyboard(browser: Any, report: Path) -> None:
    with visit(browser, report) as page:
        said = page.page.locator(".key-said")
        page.page.focus(".key-head")
        page.page.keyboard.press("Tab")
        read = []
        for key in ("ArrowRight", "ArrowDown", "ArrowLeft", "End", "Home"):
            read.append(said.inner_text().split(" of ")[0])
            page.page.keyboard.press(key)
        steps = page.page.locator(".key-token").count()
        assert read == ["step 1", "step 2", "step 3", "step 2", f"step {steps}"]
        page.page.keyboard.press("ArrowRight")
        page.page.keyboard.press("Enter")
        page.page.keyboard.press("Tab")
        assert said.inner_text().startswith("step 2 of")
        chosen = page.page.locator(".key-token[aria-selected=true]")
        assert chosen.count() == 1
        page.page.keyboard.press("Shift+Tab")
        page.page.keyboard.press("Escape")
        assert said.inner_text().startswith("mean over all steps")


def test_a_page_holds_no_more_numbers_than_it_may(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = len(load_file(run / "steps.safetensors")["mass"])
    monkeypatch.setattr(key_text, "NUMBERS", 3 * steps * (len(WORDS) + 2))
    html = write_report(run, tmp_path / "page.html").read_text(encoding="utf-8")
    data = json.loads(html.split('id="data">')[1].split("</script>")[0])
    (data,) = data.values()
    assert len(data["mass"]) == len(data["attention"]) == 3  # the mean and two heads
    assert "2 heads with less attention" in html


@pytest.mark.parametrize("name", ["steps.safetensors", "tokens.jsonl", "result.json"])
def test_damaged_files_are_named(run: Path, tmp_path: Path, name: str) -> None:
    import shutil

    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    (copy / name).write_bytes((copy / name).read_bytes()[:50])
    with pytest.raises(InputError, match=name):
        write_report(copy)
