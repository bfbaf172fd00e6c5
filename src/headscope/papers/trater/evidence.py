"""From measured models to a table: means over seeds, and differences to the baseline.

Differences are paired twice: models of one seed have the same prompts and the same weights to
begin with, and they are measured on the same sentences.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np

from headscope.measure.intervals import bootstrap_difference, t_quantile
from headscope.measure.metrics import chrf_from_statistics
from headscope.measure.statistics import counted, counted_mean
from headscope.papers.published import figure, published


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
SOURCE = "Token Alignment Heads (ICLR 2026), Table 1: a model of 1.5 billion parameters, 1T tokens"

#: The figures of every model.
FIGURES = (
    "chrf_prompt",
    "chrf_document",
    "gain",
    "nll",
    "plain_nll",
    "words_across",
    "words_within",
    "questions",
)
#: What is answered by choice: its name here, and the tasks whose items are taken together.
ANSWERED = {
    "words_across": ("translate",),
    "words_within": ("plural", "past", "first_letter", "capital"),
    "questions": ("questions",),
}
#: Power that a training at another share has to have beforehand, and simulated experiments.
ENOUGH, SIMULATED = 0.8, 20_000


def describe(mixtures: Sequence[Mixture], measured: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What `TraterResult` holds besides model and corpus, as JSON.

    Selections by score are also compared with random selections of the same size and seeds.
    Intervals are over sentences or items.
    """
    figures = map(_figures, measured)
    rows = [{**mixture.about, **own} for mixture, own in zip(mixtures, figures, strict=True)]
    by_condition: dict[tuple[str, Any], dict[int, int]] = {}
    for at, mixture in enumerate(mixtures):
        by_condition.setdefault((mixture.kind, mixture.share), {})[mixture.seed] = at
    base = next(seeds for (kind, _), seeds in by_condition.items() if kind == "baseline")
    conditions = []
    for (kind, share), seeds in by_condition.items():
        own = [rows[at] for at in seeds.values()]
        row: dict[str, Any] = {"kind": kind, "share": share, "seeds": list(seeds)}
        row["bilingual"] = fmean(model.get("bilingual_share_of_tokens", 0.0) for model in own)
        for name in FIGURES:
            values = [model[name] for model in own]
            row[name] = fmean(values)
            row[f"{name}_sd"] = stdev(values) if len(values) > 1 else None
        if kind != "baseline":
            pairs = [(measured[at], measured[base[seed]]) for seed, at in seeds.items()]
            row["differences"] = _differences(pairs)
        random = by_condition.get((f"{kind} random", share))
        if random is not None:
            pairs = [(measured[at], measured[random[seed]]) for seed, at in seeds.items()]
            row["against_random"] = _differences(pairs)
        conditions.append(row)
    chance = {name: 100 * _answered(measured[0], tasks)[1] for name, tasks in ANSWERED.items()}
    return {
        "models": rows,
        "conditions": conditions,
        "chance": chance,
        "power": power_at(conditions, published_selection()),
        "paper": paper_table(),
    }


def power_at(conditions: Sequence[Mapping[str, Any]], share: float) -> list[dict[str, Any]]:
    """What trainings on a selection of another `share` could show, computed beforehand.

    Between the trained mixtures chrF++ under the prompt is taken to go in a straight line with the
    share of tokens that carry a translation. Where the line below the baseline is flatter than the
    one above it, either may be the true slope near it, so both are given.

    Returns:
        For `remove` and `enhance` with the flatter and with the steeper slope: `change` expected
        (chrF++), `sd` of the measured change over seeds, `power` of a two-sided paired t test with
        as many seeds at 0.05, and whether that is `enough`. Nothing for a single seed.
    """
    known = {row["kind"]: row for row in reversed(conditions)}
    base = known["baseline"]
    if len(base["seeds"]) < 2:
        return []
    changes = {kind: known[kind]["differences"]["chrf_prompt"] for kind in ("remove", "enhance")}
    slopes = sorted(
        change["value"] / (known[kind]["bilingual"] - base["bilingual"])
        for kind, change in changes.items()
    )
    found = []
    for kind, tokens in (("remove", -share), ("enhance", 2 * share)):
        by_seed = changes[kind]["by_seed"]
        for slope in slopes:
            change, sd = slope * tokens, stdev(by_seed)
            power = _power(change, sd, len(by_seed))
            found.append({"kind": kind, "change": change, "sd": sd, "power": power,
                          "enough": power >= ENOUGH})  # fmt: skip
    return found


def _power(change: float, sd: float, seeds: int) -> float:
    drawn = change + sd * np.random.default_rng(0).standard_normal((SIMULATED, seeds))
    error = drawn.std(axis=1, ddof=1) / np.sqrt(seeds)
    return float((np.abs(drawn.mean(axis=1)) > t_quantile(seeds - 1) * error).mean())


def published_selection() -> float:
    """The share of each language's texts that the paper selects."""
    place = {"model": TRAINED, "row": "selection", "column": "of a language", "measure": "share"}
    return figure(PAPER, "Section 5.3", **place)


def paper_table() -> dict[str, Any]:
    """What the paper measured: `source`, `measures`, and their figures by kind of mixture.

    chrF++ on FLORES first, then accuracies in per cent.
    """
    rows: dict[str, dict[str, float]] = {}
    for cell in published(PAPER):
        if cell.table == "Table 1":
            rows.setdefault(cell.row, {})[cell.column] = cell.value
    measures = tuple(next(iter(rows.values())))
    return {"source": SOURCE, "measures": measures,
            **{kind: tuple(row.values()) for kind, row in rows.items()}}  # fmt: skip


def _figures(found: Mapping[str, Any]) -> dict[str, float]:
    document = found["document"]
    return {
        "steps": found["steps"],
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
            [(model["document"][key], other["document"][key]) for model, other in pairs], languages
        )
    for name, tasks in ANSWERED.items():
        right, others = (
            [counted(100.0 * np.asarray(_answered(model, tasks)[0])) for model in models]
            for models in zip(*pairs, strict=True)
        )
        found[name] = bootstrap_difference(right, others, counted_mean).record()
    figures = [(_figures(own), _figures(other)) for own, other in pairs]
    for name in FIGURES:
        by_seed = [own[name] - other[name] for own, other in figures]
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
