"""What the page of a mixture shows: the scores of each language, and documents near the cut."""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from headscope.data.columns import descend
from headscope.results.mixture import MixSummary, ShownDocument, ShownLanguage
from headscope.use.mixing.choose import Choice, score_places
from headscope.use.mixing.index import Block, Index
from headscope.use.mixing.plan import MixPlan
from headscope.use.mixing.texts import IN_BASELINE, SELECTED

BINS = 60
HIGHEST, AT_CUT = 10, 3
CHARACTERS = 400
Place = Literal["highest", "last selected", "first not selected"]


@dataclass(frozen=True)
class Near:
    """A document that is shown: its row, language and score, and why it is."""

    row: int
    language: int
    score: float
    place: Place


def documents_near(index: Index, plan: MixPlan, choice: Choice) -> list[Near]:
    """Of each language's baseline the highest, and those just before and behind the cut."""
    ends: dict[tuple[int, str], list[tuple[float, int]]] = {}

    def keep(language: int, name: str, value: float, row: int, most: int) -> None:
        heap = ends.setdefault((language, name), [])
        entry = (value, -row)  # of equal scores the first
        if len(heap) < most:
            heapq.heappush(heap, entry)
        elif entry > heap[0]:
            heapq.heapreplace(heap, entry)

    for block, language, selected, rest in _parts(index, choice, plan):
        for name, rows, sign, most in (
            ("highest", selected, 1.0, HIGHEST),
            ("last selected", selected, -1.0, AT_CUT),
            ("first not selected", rest, 1.0, AT_CUT),
        ):
            if name != "highest" and plan.select == "random":
                continue
            some = np.flatnonzero(rows)
            values = sign * block.score[some]
            best = some[np.argsort(-values, kind="stable")[:most]]
            for at in best.tolist():
                keep(language, name, sign * float(block.score[at]), block.start + at, most)
    found: dict[int, Near] = {}
    places: tuple[Place, ...] = ("highest", "last selected", "first not selected")
    for language in range(len(index.languages)):
        for place in places:
            sign = -1.0 if place == "last selected" else 1.0
            for value, row in sorted(ends.get((language, place), ()), reverse=True):
                found.setdefault(-row, Near(-row, language, sign * value, place))
    return list(found.values())


def summary(
    index: Index, plan: MixPlan, choice: Choice, near: list[Near], lines: dict[int, bytes]
) -> MixSummary:
    """Scores of each language by `edges` (b + 1): counts of `baseline` and `selected` (b).

    The counts are those of the baseline's records between two edges, selected ones included.
    """
    histograms = _histograms(index, choice)
    languages: dict[str, ShownLanguage] = {}
    for code, number in sorted((code, at) for at, code in enumerate(index.languages)):
        shown = []
        for one in sorted((one for one in near if one.language == number), key=lambda o: -o.score):
            record = json.loads(lines[one.row])
            text = str(descend(record, plan.text_column))
            shown.append(
                ShownDocument(
                    id=_readable(str(record.get("id"))),
                    score=one.score,
                    place=one.place,
                    text=_readable(text[:CHARACTERS]),
                    cut=len(text) > CHARACTERS,
                    tokens=record.get("tokens"),
                )
            )
        languages[code] = ShownLanguage(*histograms[number], tuple(shown))
    return MixSummary(languages)


def _readable(text: str) -> str:
    """A text without halves of surrogate pairs, which UTF-8 cannot hold."""
    return text.encode("utf-8", "replace").decode()


def _parts(
    index: Index, choice: Choice, plan: MixPlan | None = None
) -> Iterator[tuple[Block, int, NDArray[np.bool_], NDArray[np.bool_]]]:
    """Block by block and language by language: which records are selected, which are the rest.

    With a plan, copies that are selected for the text alone are among the rest.
    """
    for block in index.blocks():
        seen = choice.marks[block.rows]
        based, selected = seen & IN_BASELINE > 0, seen & SELECTED > 0
        if plan is not None:
            selected &= choice.selection.before(score_places(block, plan))
        for language in np.unique(block.language).tolist():
            here = based & (block.language == language)
            yield block, language, here & selected, here & ~selected


def _histograms(
    index: Index, choice: Choice
) -> list[tuple[tuple[float, ...], tuple[int, ...], tuple[int, ...]]]:
    lowest = np.full(len(index.languages), np.inf)
    highest = np.full(len(index.languages), -np.inf)
    for block, language, selected, rest in _parts(index, choice):
        scores = block.score[selected | rest]
        if len(scores):
            lowest[language] = min(lowest[language], scores.min())
            highest[language] = max(highest[language], scores.max())
    edges = [
        np.linspace(low, high if high > low else low + 1.0, BINS + 1) if low <= high else None
        for low, high in zip(lowest, highest, strict=True)
    ]
    counts = np.zeros((len(index.languages), 2, BINS), np.int64)
    for block, language, selected, rest in _parts(index, choice):
        bounds = edges[language]
        if bounds is not None:
            counts[language, 0] += np.histogram(block.score[selected | rest], bounds)[0]
            counts[language, 1] += np.histogram(block.score[selected], bounds)[0]
    return [
        ((), (), ())
        if bounds is None
        else (tuple(bounds.tolist()), tuple(all_counts.tolist()), tuple(some.tolist()))
        for bounds, (all_counts, some) in zip(edges, counts, strict=True)
    ]
