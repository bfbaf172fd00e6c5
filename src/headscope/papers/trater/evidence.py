"""From measured models to their figures, and differences to the baseline and to random selections.

Differences are paired twice: models of one seed have the same prompts and the same weights to
begin with, and they are measured on the same sentences.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from headscope.measure.intervals import bootstrap_difference
from headscope.measure.metrics import chrf_from_statistics
from headscope.measure.statistics import counted, counted_mean
from headscope.papers.published import figure


@dataclass(frozen=True)
class Mixture:
    """One mixture to train on; `digest` is that of its texts in order, which a training sees.

    `share` is what was selected of every language's tokens, None for a baseline; `about` is what
    the result says of it.
    """

    name: str
    kind: str
    share: float | None
    seed: int
    folder: Path
    digest: str
    about: dict[str, Any]


#: What the published figures call the models of Table 1.
TRAINED = "1.5B trained on mixtures"
PAPER = "token-alignment-heads"

#: What is answered by choice: its name here, and the tasks whose items are taken together.
ANSWERED = {
    "words_across": ("translate",),
    "words_within": ("plural", "past", "first_letter", "capital"),
    "questions": ("questions",),
}


def describe(mixtures: Sequence[Mixture], measured: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What `TraterResult` holds besides model and corpus, as JSON.

    Every mixture is compared with the baseline, and selections by score also with random selections
    of the same size and seeds. Intervals are over sentences or items.
    """
    rows = [
        {**mixture.about, "steps": losses["steps"], **_figures(losses)}
        for mixture, losses in zip(mixtures, measured, strict=True)
    ]
    places: dict[tuple[str, Any], dict[int, int]] = {}
    for at, mixture in enumerate(mixtures):
        places.setdefault((mixture.kind, mixture.share), {})[mixture.seed] = at
    base = next(seeds for (kind, _), seeds in places.items() if kind == "baseline")
    changes = []
    for (kind, share), seeds in places.items():
        random = places.get((f"{kind} random", share))
        for than, others in (("baseline", base), ("random", random)):
            if others is not None and kind != "baseline":
                pairs = [(measured[at], measured[others[seed]]) for seed, at in seeds.items()]
                row = {"kind": kind, "share": share, "than": than}
                changes.append({**row, "figures": _differences(pairs)})
    chance = {name: 100 * _answered(measured[0], tasks)[1] for name, tasks in ANSWERED.items()}
    return {"models": rows, "changes": changes, "chance": chance}


def published_selection() -> float:
    """The share of each language's texts that the paper selects."""
    place = {"model": TRAINED, "row": "selection", "column": "of a language", "measure": "share"}
    return figure(PAPER, "Section 5.3", **place)


def _figures(found: Mapping[str, Any]) -> dict[str, float]:
    document = found["document"]
    return {
        "chrf_prompt": found["prompt"]["chrf"],
        "chrf_document": document["chrf"],
        "gain": document["nll_unrelated"] - document["nll"],
        "nll": document["nll"],
        "plain_nll": found["plain"]["mean"],
        **{name: 100 * fmean(_answered(found, tasks)[0]) for name, tasks in ANSWERED.items()},
    }


def _answered(found: Mapping[str, Any], tasks: Sequence[str]) -> tuple[list[bool], float]:
    """Whether each item of some tasks was answered right, and the share that guessing gets."""
    choices = [found["choices"][task] for task in tasks]
    right = [hit for items in choices for hit in items["right"]]
    return right, sum(items["chance"] * len(items["right"]) for items in choices) / len(right)


def _differences(pairs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> dict[str, Any]:
    """Of models to others of the same seeds, each figure's difference."""
    directions = pairs[0][0]["prompt"]["statistics"]
    condition, control = (
        [np.asarray(model["prompt"]["statistics"][way]) for model in models for way in directions]
        for models in zip(*pairs, strict=True)
    )
    found: dict[str, Any] = {
        "chrf_prompt": bootstrap_difference(condition, control, chrf_from_statistics).record()
    }
    for name, key in (("chrf_document", "scores"), ("gain", "per_text")):
        languages = len(pairs[0][0]["document"]["shares"])
        found[name] = _mean_difference(
            [(model["document"][key], control["document"][key]) for model, control in pairs],
            languages,
        )
    for name, tasks in ANSWERED.items():
        right, others = (
            [counted(100.0 * np.asarray(_answered(model, tasks)[0])) for model in models]
            for models in zip(*pairs, strict=True)
        )
        found[name] = bootstrap_difference(right, others, counted_mean).record()
    figures = [(_figures(model), _figures(control)) for model, control in pairs]
    for name in figures[0][0]:
        by_seed = [model[name] - control[name] for model, control in figures]
        found.setdefault(name, {"value": fmean(by_seed)})["by_seed"] = by_seed
    return found


def _mean_difference(
    pairs: Sequence[tuple[Sequence[float], Sequence[float]]], languages: int
) -> dict[str, Any]:
    """The mean of paired differences of texts, which lie language by language.

    A sentence is drawn in all languages and for all seeds together: its difficulty is shared, so
    separate draws would make the interval too narrow.
    """
    condition, control = (
        [group for texts in models for group in np.asarray(texts).reshape(languages, -1, 1)]
        for models in zip(*pairs, strict=True)
    )

    def per_text(sums: Any) -> Any:
        return np.asarray(sums)[..., 0] / len(condition[0])

    return bootstrap_difference(condition, control, per_text).record()
