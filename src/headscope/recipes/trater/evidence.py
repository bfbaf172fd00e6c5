"""From nine or more measured models to a table: means over seeds, and differences to the baseline.

Differences are paired twice: models of one seed have the same prompts and the same weights to
begin with, and they are measured on the same sentences.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

import numpy as np

from headscope.measure.intervals import bootstrap_difference
from headscope.measure.metrics import chrf_from_statistics
from headscope.recipes.papers.published import published
from headscope.recipes.trater.mixtures import Mixture

__all__ = ["describe", "paper_table"]

SOURCE = "Token Alignment Heads (ICLR 2026), Table 1: a model of 1.5 billion parameters, 1T tokens"

#: What is told of every model: its name, and how it is read from what was measured.
FIGURES = ("chrf_prompt", "chrf_document", "gain", "nll", "plain_nll")


def describe(mixtures: Sequence[Mixture], measured: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The tables of an experiment.

    Returns:
        `models`, one row a training: `kind`, `share`, `seed`, what its mixture holds, `chrf_prompt`
        and `chrf_document` (0 to 100), `gain` (nats a token by which the true translation is
        likelier after its own text than after another one), `nll` (of the true translation) and
        `plain_nll` (of documents in one language). `conditions`, one row a kind of mixture: means
        and standard deviations over seeds, and `differences` to the baseline of the same seeds
        with 95 % intervals over sentences, and by seed. `paper`: Table 1.
    """
    rows = [{**one.about, **_figures(found)} for one, found in zip(mixtures, measured, strict=True)]
    by_condition: dict[tuple[str, Any], dict[int, int]] = {}
    for at, one in enumerate(mixtures):
        by_condition.setdefault((one.kind, one.share), {})[one.seed] = at
    base = next(seeds for (kind, _), seeds in by_condition.items() if kind == "baseline")
    conditions = []
    for (kind, share), seeds in by_condition.items():
        own = [rows[at] for at in seeds.values()]
        row: dict[str, Any] = {"kind": kind, "share": share, "seeds": list(seeds)}
        for name in FIGURES:
            values = [one[name] for one in own]
            row[name] = fmean(values)
            row[f"{name}_sd"] = stdev(values) if len(values) > 1 else None
        if kind != "baseline":
            pairs = [(measured[at], measured[base[seed]]) for seed, at in seeds.items()]
            row["differences"] = _differences(pairs)
        conditions.append(row)
    return {"models": rows, "conditions": conditions, "paper": paper_table()}


def paper_table() -> dict[str, Any]:
    """What the paper measured: `source`, `measures`, and their figures by kind of mixture.

    chrF++ on FLORES first, then accuracies in per cent.
    """
    table = [one for one in published("token-alignment-heads") if one.table == "Table 1"]
    measures = tuple(dict.fromkeys(one.column for one in table))
    rows = {
        kind: tuple(one.value for one in table if one.row == kind)
        for kind in dict.fromkeys(one.row for one in table)
    }
    return {"source": SOURCE, "measures": measures, **rows}


def _figures(found: Mapping[str, Any]) -> dict[str, float]:
    document = found["document"]
    return {
        "steps": found["steps"],
        "chrf_prompt": found["prompt"]["chrf"],
        "chrf_document": document["chrf"],
        "gain": document["nll_unrelated"] - document["nll"],
        "nll": document["nll"],
        "plain_nll": found["plain"]["mean"],
    }


def _differences(pairs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> dict[str, Any]:
    """Of models to the baselines of their seeds: chrF++ in both forms, gain, and plain loss."""
    condition, control = [], []
    for one, other in pairs:
        for direction, counts in one["prompt"]["statistics"].items():
            condition.append(np.asarray(counts))
            control.append(np.asarray(other["prompt"]["statistics"][direction]))
    found: dict[str, Any] = {
        "chrf_prompt": bootstrap_difference(condition, control, chrf_from_statistics)._asdict()
    }
    for name, key in (("chrf_document", "scores"), ("gain", "per_text")):
        languages = len(pairs[0][0]["document"]["shares"])
        found[name] = _mean_difference(
            [(one["document"][key], other["document"][key]) for one, other in pairs], languages
        )
    figures = [(_figures(one), _figures(other)) for one, other in pairs]
    for name in FIGURES:
        by_seed = [one[name] - other[name] for one, other in figures]
        found.setdefault(name, {"value": fmean(by_seed)})["by_seed"] = by_seed
    return found


def _mean_difference(
    pairs: Sequence[tuple[Sequence[float], Sequence[float]]], languages: int
) -> dict[str, Any]:
    """The mean of paired differences of texts, which lie language by language.

    A sentence is drawn in all languages and for all seeds together: what it says is as hard for a
    model in either, so its texts drawn apart would make the mean look surer than it is.
    """

    def groups(texts: Sequence[float]) -> list[Any]:
        return list(np.asarray(texts).reshape(languages, -1, 1))

    condition = [group for one, _ in pairs for group in groups(one)]
    control = [group for _, other in pairs for group in groups(other)]

    def per_text(sums: Any) -> Any:
        return np.asarray(sums)[..., 0] / len(condition[0])

    return bootstrap_difference(condition, control, per_text)._asdict()
