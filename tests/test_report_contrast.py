"""Words and marks stand out from their ground in both schemes, by the style sheets alone."""

from __future__ import annotations

import re
from functools import cache

import pytest

from headscope.live.page import assets
from headscope.report.drawing.key_text import DEEP
from headscope.report.figures import COLOURS
from headscope.report.parts import DIVERGING, RAMP

#: What the guidelines for content of the web (WCAG 2, level AA) ask of words and of marks.
WORDS, MARKS = 4.5, 3.0
SHEET = re.sub(
    r"/\*.*?\*/", "", "".join(v for k, v in sorted(assets().items()) if k[-4:] == ".css")
)
RULES = [(a.strip(), b) for a, b in re.findall(r"([^{}]+)\{([^{}]*)\}", SHEET)]
BOTH = pytest.mark.parametrize("scheme", ["light", "dark"])


@cache
def colours(scheme: str) -> dict[str, str]:
    """The colours of a scheme by name."""
    light, dark = (dict(re.findall(r"--([\w-]+): (#\w{6})", body))
                   for selector, body in RULES if selector.endswith(":root"))  # fmt: skip
    return light if scheme == "light" else light | dark


def luminance(colour: str) -> float:
    shares = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [v / 12.92 if v <= 0.03928 else ((v + 0.055) / 1.055) ** 2.4 for v in shares]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted(map(luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


def declared(body: str, names: str) -> str:
    """The colour of a declaration, by its name or as it is."""
    found = re.search(rf"(?:^|[;\s])(?:{names}): (?:var\(--([\w-]+)\)|(#\w{{6}}))", body)
    return (found[1] or found[2]) if found else ""


@BOTH
def test_all_words_stand_out_from_their_ground(scheme: str) -> None:
    known, wrong = colours(scheme), []
    for selector, body in RULES:
        svg = "text" in selector and not selector.endswith(".signs text")
        word = declared(body, "color|fill" if svg else "color")
        # Words on the ramp are tested by themselves.
        if word not in known or re.search(r"\.(tok|shade)\b", selector):
            continue
        own = declared(body, "background")
        for ground in [own] if own in known else ["paper", "raised", "hair"]:
            ratio = contrast(known[word], known[ground])
            if ratio < WORDS:
                wrong.append(f"{selector}: {word} on {ground} {ratio:.2f}")
    assert not wrong, "\n".join(wrong)


def on(kind: str, step: str) -> str:
    """The colour of words on a step of a ramp: the last rule that names it."""
    last = ""
    for selector, body in RULES:
        named = {"signs": rf"\.on-{step}\b", "tok": rf"\.tok:is\([^)]*\.{step}\b",
                 "shade": rf"\.shade:is\([^)]*\.{step}\b"}[kind]  # fmt: skip
        general = {"signs": ".signs", "tok": ".tok:is(.less, .more)", "shade": ".shade"}[kind]
        if selector == general or re.search(named, selector):
            last = declared(body, "fill|color") or last
    return last


@BOTH
def test_words_on_a_ramp_stand_out_from_every_step(scheme: str) -> None:
    known, wrong = colours(scheme), []
    steps = [f"s{step}" for step in range(RAMP + 1)]
    pairs = [("signs", step) for step in (*steps, *DIVERGING)]
    pairs += [("shade", step) for step in steps[:DEEP]]
    pairs += [("tok", step) for step in DIVERGING if step != "m0"]
    for kind, step in pairs:
        word = on(kind, step)
        ratio = contrast(known.get(word, word), known[step])
        if ratio < WORDS:
            wrong.append(f"{kind} on {step}: {word} {ratio:.2f}")
    assert all(contrast(known["paper"], known[step]) >= WORDS for step in steps[DEEP:])
    assert not wrong, "\n".join(wrong)


@BOTH
def test_marks_and_axes_stand_out_from_their_ground(scheme: str) -> None:
    known = colours(scheme)
    marks = {declared(body, "--colour") for selector, body in RULES if ".key-" in selector}
    marks = {*filter(None, marks), "faint", "none"}
    assert len(marks) > 9
    ratios = {
        f"{mark} on {ground}": round(contrast(known[mark], known[ground]), 2)
        for mark in marks
        for ground in ("paper", "hair")
    }
    assert {pair: ratio for pair, ratio in ratios.items() if ratio < MARKS} == {}
    assert contrast(known["dot"], known["dot-edge"]) >= MARKS


def test_figures_of_papers_have_the_colours_of_the_pages() -> None:
    known = colours("light")
    for selector, body in RULES:
        for mark in re.findall(r"\.(key-[\w-]+)", selector):
            colour = declared(body, "--colour")
            if colour and mark != "key-matched":  # lighter, since it is hatched
                assert COLOURS[mark] == known[colour], mark
