"""Prompt and answer of key-token attention, shaded, to be walked through step by step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscope.errors import InputError
from headscope.report.html import Child, Html, join, tag
from headscope.report.matrix import ramp_bar
from headscope.report.parts import RAMP, figure, ramp_class, section
from headscope.results.key_tokens import KeyTokensResult
from headscope.runs.reading import damaged_line, read_rows, result_of
from headscope.shown.words import count, fixed

__all__ = [
    "SCRIPT",
    "STYLE",
    "KeyTokensRun",
    "read_key_tokens",
    "shade",
    "shown",
    "text_data",
    "text_section",
]

SCRIPT, STYLE = "key_tokens.js", "key_tokens.css"
"""The assets that the section needs."""

DIGITS = 5
"""Decimals of the numbers that the page holds; the run folder holds them in full."""

NUMBERS = 300_000
"""The most numbers a page holds; beyond that it lets single heads go, lowest first."""

DEEP = 10
"""From this step of the ramp on, text on it takes the colour of the paper."""


@dataclass(frozen=True, eq=False)
class KeyTokensRun:
    """A run of `find key-tokens`: its result, and its attention step by step.

    `attention` is float32 (T, N, W) and `mass`, `even_mass` are (T, N): by step, head (best first)
    and word. `answer_spans` are the characters `[start, end)` of the answer's tokens, one a step;
    none where the last token of the prompt was looked at.
    """

    result: KeyTokensResult
    answer_spans: tuple[tuple[int, int], ...]
    attention: NDArray[np.float32]
    mass: NDArray[np.float32]
    even_mass: NDArray[np.float32]


def read_key_tokens(path: Path) -> KeyTokensRun:
    """Read a finished run; InputError if it holds no key-token attention or is damaged."""
    result = result_of(path, KeyTokensResult, "key-token attention")
    arrays = _arrays(path / "steps.safetensors")
    run = KeyTokensRun(result, _answer_spans(path / "tokens.jsonl"), **arrays)
    shape = result.tokens, len(result.heads), len(result.words)
    if (
        run.attention.shape != shape
        or run.mass.shape != shape[:2]
        or run.even_mass.shape != shape[:2]
        or len(run.answer_spans) not in (0, shape[0])
    ):
        raise InputError(
            f"{path}: its files are not of one run; run the same command again into a new folder"
        )
    return run


def _arrays(path: Path) -> dict[str, NDArray[np.float32]]:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        arrays = load(path.read_bytes())
        names = ("attention", "mass", "even_mass")
        return {name: arrays[name].astype(np.float32) for name in names}
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    except (SafetensorError, KeyError, ValueError) as error:
        raise InputError(f"{path}: is damaged; run the same command again") from error


def _answer_spans(path: Path) -> tuple[tuple[int, int], ...]:
    spans = []
    for number, row in read_rows(path):
        try:
            if row["part"] == "answer":
                spans.append((int(row["start"]), int(row["end"])))
        except (KeyError, TypeError, ValueError) as error:
            raise damaged_line(path, number) from error
    return tuple(spans)


def text_section(run: KeyTokensRun) -> Html:
    """Prompt and answer: without scripts shaded by the means, with them by step and head."""
    result = run.result
    means = run.attention.mean(axis=(0, 1), dtype=np.float64)
    highest = float(run.attention.max(initial=0.0)) or 1.0
    highest = max(highest, float(run.mass.max(initial=0.0)))
    listed = result.heads[: _heads_shown(run)]
    options = [
        tag("option", f"mean of {count(len(result.heads), 'head')}", value="0"),
        *(tag("option", f"head {head.place}", value=at) for at, head in enumerate(listed, 1)),
    ]
    control = tag(
        "label", "Attention of", tag("select", options, id="key-head"), class_="control script"
    )
    parts: list[Child] = [
        tag("h3", "Prompt"),
        tag("div", _prompt(result, means.tolist(), highest), id="key-prompt", **_READ),
    ]
    if run.answer_spans:
        parts += [
            tag("h3", "Answer", id="key-answer-title"),
            tag("div", _answer(run, highest), id="key-answer", **_READ),
            # Tokens may be too narrow for a finger.
            tag(
                "p",
                tag("button", "Step before", id="key-before", type="button"),
                tag("button", "Step after", id="key-after", type="button"),
                class_="key-turn script",
            ),
        ]
    said = tag(
        "p",
        _by_word(result.names, means.tolist()),
        f"; all key words {fixed(result.score, 3)}, spread evenly {fixed(result.uniform, 3)}",
        id="key-said",
        class_="note",
        aria_live="polite",
    )
    left = len(result.heads) - len(listed)
    caption = join(
        tag("strong", "Where the heads look, step by step. "),
        "In the prompt the key words are shaded by the attention they get; without a choice it is "
        "the mean over all steps. ",
        "In the answer each token is shaded by how much attention all key words together get at "
        "the step that predicts it. "
        if run.answer_spans
        else "",
        tag(
            "span",
            "Point at a token of the answer, tap it or walk there with the arrow keys to see its "
            "own step; a tap or Enter holds it, Escape lets go. ",
            class_="script",
        )
        if run.answer_spans
        else None,
        f"{count(left, 'head')} with less attention can be chosen in no list here, to keep the "
        "page small; the run folder holds them. "
        if left
        else "",
        "One prompt, exact weights, no interval.",
    )
    return section(
        "text",
        "In the text",
        figure(
            "reading",
            caption,
            control,
            *parts,
            said,
            ramp_bar("0", fixed(highest, 2)),
            class_="key-reading",
        ),
    )


_READ = {"class_": "key-text", "dir": "auto"}


def _prompt(result: KeyTokensResult, means: Sequence[float], scale: float) -> list[Child]:
    """The prompt with its key words marked; where words overlap, a stretch shows the larger."""
    places: list[tuple[int, ...]] = [()] * len(result.prompt)
    for at, word in enumerate(result.words):
        for start, end in word.spans:
            for place in range(start, end):
                places[place] = (*places[place], at)
    parts: list[Child] = []
    start = 0
    for place in range(1, len(places) + 1):
        if place < len(places) and places[place] == places[start]:
            continue
        text, words = result.prompt[start:place], places[start]
        start = place
        if not words:
            parts.append(text)
            continue
        value = max(means[word] for word in words)
        parts.append(
            tag(
                "mark",
                text,
                class_=f"key-word shade {shade(value, scale)}",
                data_of=" ".join(map(str, words)),
            )
        )
    return parts


def _answer(run: KeyTokensRun, scale: float) -> list[Child]:
    """The answer token by token; what stands between tokens stays as it is."""
    answer = run.result.answer
    parts: list[Child] = []
    reached = 0
    for step, (start, end) in enumerate(run.answer_spans):
        if start > reached:
            parts.append(answer[reached:start])
        own = shown(answer[max(start, reached) : end])
        reached = max(reached, end)
        value = float(run.mass[step].mean(dtype=np.float64))
        parts.append(
            tag("span", own, class_=f"key-token shade {shade(value, scale)}", data_step=step)
        )
    parts.append(answer[reached:])
    return parts


def _by_word(words: Sequence[str], values: Sequence[float]) -> list[Child]:
    """`teacher 0.31, birds 0.12`, as the script writes it too."""
    between: list[Child] = []
    for word, value in zip(words, values, strict=True):
        between += [", " if between else "mean over all steps: ", tag("bdi", word)]
        between.append(f" {fixed(value, 3)}")
    return between


def _heads_shown(run: KeyTokensRun) -> int:
    """How many single heads the page holds the steps of."""
    each = run.result.tokens * (len(run.result.words) + 2)
    return max(1, min(len(run.result.heads), NUMBERS // each - 1))


def text_data(run: KeyTokensRun) -> dict[str, Any]:
    """What the script needs: arrays by head (0 is the mean over all of them), then step."""
    kept = _heads_shown(run)

    def listed(array: Any) -> Any:
        mean = array.mean(axis=1, keepdims=True, dtype=np.float64)
        by_head = np.concatenate([mean, array[:, :kept]], axis=1).swapaxes(0, 1)
        return np.round(by_head.astype(np.float64), DIGITS).tolist()

    highest = max(float(run.attention.max(initial=0.0)), float(run.mass.max(initial=0.0)))
    return {
        "words": list(run.result.names),
        "tokens": [shown(run.result.answer[start:end]) for start, end in run.answer_spans],
        "attention": listed(run.attention),
        "mass": listed(run.mass),
        "even": listed(run.even_mass),
        "scale": highest or 1.0,
        "ramp": RAMP,
        "deep": DEEP,
    }


def shown(token: str) -> str:
    """A token, or a dot where there is nothing that could be seen."""
    return token if token.strip() else "\u00b7"


def shade(value: float, scale: float) -> str:
    """The classes of a stretch of text on the ramp from 0 to `scale`."""
    name = ramp_class(value, scale)
    return f"{name} deep" if int(name[1:]) >= DEEP else name
