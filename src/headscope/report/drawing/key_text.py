"""Prompt and answer of key-token attention, shaded, to be read step by step."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np

from headscope.heads import Head
from headscope.report.html import Child, Html, tag
from headscope.report.matrix import ramp_bar
from headscope.report.parts import RAMP, Drawn, bdi, caption, figure, ramp_class
from headscope.shown.blocks import KeyText
from headscope.shown.words import count, fixed

#: Decimals of the numbers that the page holds; the run folder holds them in full.
DIGITS = 5
#: The most numbers a page holds; beyond that it lets single heads go, lowest first.
NUMBERS = 300_000
#: From this step of the ramp on, text on it takes the colour of the paper.
DEEP = 11


def draw_key_text(identifier: str, block: KeyText) -> Drawn:
    """Prompt and answer: without scripts shaded by the means, with them by step and head."""
    means = block.attention.mean(axis=(0, 1), dtype=np.float64).tolist()
    scale = max(float(block.attention.max(initial=0.0)), float(block.mass.max(initial=0.0))) or 1.0
    listed = block.heads[: _heads_shown(block)]
    options = [
        tag("option", f"mean of {count(len(block.heads), 'head')}", value="0"),
        *(tag("option", f"head {Head(a, b)}", value=at) for at, (a, b) in enumerate(listed, 1)),
    ]
    control = tag(
        "label", "Attention of", tag("select", options, class_="key-head"), class_="control script"
    )
    parts: list[Child] = [
        tag("h3", "Prompt"),
        tag("div", _prompt(block, means, scale), class_="key-text key-prompt", dir="auto"),
    ]
    if block.steps:
        name = f"{identifier}-answer"
        parts += [
            tag("h3", "Answer", id=name),
            tag("div", _answer(block, scale), class_="key-text key-answer", dir="auto",
                aria_labelledby=name),
            # Tokens may be too narrow for a finger.
            tag(
                "p",
                tag("button", "Step before", class_="key-before"),
                tag("button", "Step after", class_="key-after"),
                class_="key-turn script",
            ),
        ]  # fmt: skip
    whole, even = (float(array.mean(dtype=np.float64)) for array in (block.mass, block.even))
    said = tag(
        "p",
        _by_word([word for word, _ in block.words], means),
        f"; all key words {fixed(whole, 3)}, spread evenly {fixed(even, 3)}",
        class_="key-said note",
        aria_live="polite",
    )
    shown = figure(identifier, _caption(block, len(listed)), control, *parts, said,
                   ramp_bar("0", fixed(scale, 2)), class_="key-reading")  # fmt: skip
    return Drawn(shown, {identifier: _data(block, scale)}, ("key_tokens.js",))


def _caption(block: KeyText, listed: int) -> Html:
    left = len(block.heads) - listed
    touch = (
        "Point at a token of the answer, tap it or go there with the arrow keys to see its own "
        "step; a tap or Enter holds it, Escape lets go."
    )
    answer: Child = [
        "In the answer each token is shaded by the attention that all key words together get at "
        "the step that predicts it. ",
        tag("span", touch, class_="script"),
    ]
    return caption(
        block.title,
        block.note,
        "Key words are shaded by the attention they get, as a mean over all steps.",
        answer if block.steps else None,
        f"{count(left, 'head')} with less attention cannot be selected here, to keep the page "
        "small; the run folder holds them."
        if left
        else None,
    )


def _prompt(block: KeyText, means: Sequence[float], scale: float) -> list[Child]:
    """The prompt with its key words marked; where words overlap, a stretch shows the larger."""
    prompt = block.prompt
    of: list[tuple[int, ...]] = [()] * len(prompt)
    for at, (_, spans) in enumerate(block.words):
        for start, end in spans:
            for place in range(start, end):
                of[place] = (*of[place], at)
    parts: list[Child] = []
    for words, places in groupby(range(len(prompt)), of.__getitem__):
        first, *rest = places
        text = prompt[first : first + len(rest) + 1]
        if words:
            look = f"key-word shade {_shade(max(means[word] for word in words), scale)}"
            text = tag("mark", text, class_=look, data_of=" ".join(map(str, words)))
        parts.append(text)
    return parts


def _answer(block: KeyText, scale: float) -> list[Child]:
    """The answer token by token; what stands between tokens stays as it is."""
    parts: list[Child] = []
    reached = 0
    for step, (start, end) in enumerate(block.steps):
        if start > reached:
            parts.append(block.answer[reached:start])
        own = _seen(block.answer[max(start, reached) : end])
        reached = max(reached, end)
        look = f"key-token shade {_shade(float(block.mass[step].mean(dtype=np.float64)), scale)}"
        parts.append(tag("span", own, class_=look, data_step=step))
    return [*parts, block.answer[reached:]]


def _by_word(words: Sequence[str], values: Sequence[float]) -> list[Child]:
    """`teacher 0.31, birds 0.12`, as the script writes it too."""
    parts: list[Child] = []
    for word, value in zip(words, values, strict=True):
        before = ", " if parts else "mean over all steps: "
        parts += [before, bdi(word), f" {fixed(value, 3)}"]
    return parts


def _heads_shown(block: KeyText) -> int:
    """How many single heads the page holds the steps of."""
    cells = len(block.attention) * (len(block.words) + 2)
    return max(1, min(len(block.heads), NUMBERS // cells - 1))


def _data(block: KeyText, scale: float) -> dict[str, Any]:
    """What the script needs: arrays by head (0 is the mean over all of them), then step."""
    kept = _heads_shown(block)

    def listed(array: Any) -> Any:
        mean = array.mean(axis=1, keepdims=True, dtype=np.float64)
        by_head = np.concatenate([mean, array[:, :kept]], axis=1).swapaxes(0, 1)
        return np.round(by_head.astype(np.float64), DIGITS).tolist()

    return {
        "words": [word for word, _ in block.words],
        "tokens": [_seen(block.answer[start:end]) for start, end in block.steps],
        "attention": listed(block.attention),
        "mass": listed(block.mass),
        "even": listed(block.even),
        "scale": scale,
        "ramp": RAMP,
        "deep": DEEP,
    }


def _seen(token: str) -> str:
    """A token, or a dot where there is nothing that could be seen."""
    return token if token.strip() else "\u00b7"


def _shade(value: float, scale: float) -> str:
    """The classes of a stretch of text on the ramp from 0 to `scale`."""
    name = ramp_class(value, scale)
    return f"{name} deep" if int(name[1:]) >= DEEP else name
