"""What runs know of single heads, as the page shows it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headscope.heads import (
    Gate,
    Geometry,
    HeadScores,
    HeadSet,
    check_geometry,
    named_scores,
    resolve_heads,
)
from headscope.heads.geometry import count_of, default_amount
from headscope.heads.resolve import MEAN, place_of, read_scores
from headscope.heads.scores import TRANSLATION_SCORE
from headscope.heads.store import check_finished, held
from headscope.pocket import weights
from headscope.report.parts import ends
from headscope.results.translation_score import SENTENCES
from headscope.shown.words import arrow

if TYPE_CHECKING:
    from headscope.lm import LanguageModel

#: Score above which a head aligns tokens, and up to which it is inactive (Token Alignment Heads).
ALIGNING, INACTIVE = 0.1, 0.0


@dataclass(frozen=True, eq=False)
class Source:
    """Scores of a run, or of one of its parts (directions, languages).

    `name` is what the page calls them by, `folder` that of the run, where there is one.
    """

    name: str
    title: str
    scores: HeadScores
    folder: Path | None = None
    part: str | None = None


def read_sources(specs: Iterable[str], geometry: Geometry) -> tuple[list[Source], dict[str, Gate]]:
    """Scores, and gates by name, from what `--heads` names.

    Runs with scores give these; masks, gates and sets a gate each, of sets the one that removes
    them. Raises `InputError` as `resolve_heads` does.
    """
    sources: list[Source] = []
    gates: dict[str, Gate] = {}
    for spec in specs:
        place = place_of(spec)
        scores = read_scores(place) if place is not None and place.is_dir() else {}
        if place is not None and scores:
            check_finished(place)
            sources += scored(scores, spec, geometry, place)
            continue
        if (published := named_scores(spec, geometry)) is not None:
            sources += scored({MEAN: published}, spec, geometry)
            continue
        saved = held(place, "gate") if place is not None and place.is_dir() else None
        if saved is not None and place is not None:
            check_finished(place)
            gates[spec] = Gate.from_pretrained(saved)
            check_geometry(gates[spec], geometry, spec)
        else:
            gates[spec] = resolve_heads(spec, None, geometry).removed()
    return sources, gates


def bundled_scores(lm: LanguageModel) -> list[Source]:
    """The scores that come with the bundled model, if this is it: no number of it has changed."""
    place = weights.scores_path()
    scores = read_scores(place)
    if any(part.provenance.get("weights") != lm.digest for part in scores.values()):
        return []
    return scored(scores, "bundled", lm.geometry, place)


def scored(
    scores: dict[str, HeadScores], name: str, geometry: Geometry, folder: Path | None = None
) -> list[Source]:
    """The scores of a run, the mean over its parts first."""
    ordered = sorted(scores, key=lambda part: part != MEAN)
    sources = []
    for part in ordered:
        check_geometry(scores[part], geometry, name)
        words = f"{scores[part].method}, {arrow(part)}" if part != MEAN else scores[part].method
        own = name if part == ordered[0] else f"{name}#{part}"
        sources.append(Source(own, words, scores[part], folder, None if part == MEAN else part))
    return sources


def of_value(value: HeadScores | HeadSet | Gate, geometry: Geometry) -> Source | Gate:
    """Scores, a set or a gate in memory as `read_sources` gives those of runs."""
    check_geometry(value, geometry)
    if isinstance(value, HeadScores):
        return Source(value.method, value.method, value)
    return value.removed() if isinstance(value, HeadSet) else value


def described(source: Source) -> dict[str, Any]:
    """All that scores say of every head, by layer, then head."""
    scores, geometry = source.scores, source.scores.geometry
    used, chance = scores.rank_used(), scores.extra.get("chance")
    titles = {"identical": "same form", "different": "other form"}
    titles |= {"score": "TS" if scores.method == TRANSLATION_SCORE else "score"}
    arrays: dict[str, NDArray[Any] | None] = {"score": scores.values}
    if chance is not None:
        titles["above_chance"] = f"{titles['score']} \u2212 chance"
        arrays["above_chance"] = scores.values - chance
    arrays |= {"low": scores.low, "high": scores.high, **scores.extra}
    above = scores.values - chance if used == "above-chance" and chance is not None else None
    ranked = scores.ranked()
    if by_size := above is None and ends(_numbers(scores.values, geometry))[1]:
        ranked.sort(key=lambda pair: -abs(pair[1]))
    rank = {head: place for place, (head, _) in enumerate(ranked, 1)}
    order = sorted(arrays.items(), key=lambda item: (item[0] != "above_chance", item[0] != "score"))
    columns = {key: _numbers(array, geometry) for key, array in order if array is not None}
    return {
        "name": source.name,
        "title": source.title,
        "by": "score" if above is None else "above_chance",
        "threshold": ALIGNING if scores.method == TRANSLATION_SCORE else None,
        "columns": [
            {
                "key": key,
                "title": titles.get(key, key.replace("_", " ")),
                "values": values,
                "high": ends(values)[0],
                "signed": ends(values)[1],
            }
            for key, values in columns.items()
        ],
        "rank": [rank[head] for head in geometry.heads()],
        "by_size": by_size,
        "classes": _classes(scores.values if above is None else above, geometry)
        if scores.method == TRANSLATION_SCORE
        else None,
        "k": count_of(default_amount(geometry), geometry.total),
        "sentences": source.folder is not None and (source.folder / SENTENCES).is_dir(),
    }


def _numbers(array: NDArray[Any], geometry: Geometry) -> list[float | None]:
    return [None if np.isnan(value) else float(value) for value in array[geometry.mask()]]


def _classes(values: NDArray[Any], geometry: Geometry) -> Sequence[str]:
    return [
        "token alignment"
        if value > ALIGNING
        else "low activity"
        if value > INACTIVE
        else "inactive"
        for value in values[geometry.mask()]
    ]
