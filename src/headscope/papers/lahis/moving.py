"""Heads by the gate that the published code moves while it scores, beside the gate that stays 1."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from headscope.compare.agreement import RESAMPLES
from headscope.papers.lahis import steps
from headscope.papers.lahis.losses_told import NO_HEADS, losses_table, removed
from headscope.papers.lahis.runs import read_text, score_heads
from headscope.papers.lahis.scale import HEADS, MOVING, languages, scale, step_name
from headscope.papers.lahis.words import cell, draws_limit, several, sign, span, table_of
from headscope.papers.lahis.work import reading, scoring
from headscope.papers.paper import Setting, Step
from headscope.shown.blocks import Cell, Findings, p_cell
from headscope.studies.compare.overlap import CompareImportance, compare_importance
from headscope.studies.inputs import Progress

LOSSES, LOSSES_MOVING = "perplexity", "perplexity-moving"


def moving_steps(setting: Setting) -> tuple[Step, ...]:
    """Scores by the moving gate, texts without its heads, and both gates compared."""
    one, n = scale(setting), languages(setting)
    texts = n + n * n + 2 * one.layer_draws * n
    losses, losses_moving = (step_name(setting, name) for name in (LOSSES, LOSSES_MOVING))
    return (
        Step(
            MOVING,
            "importance with the gate that the published code moves",
            partial(score_heads, moving=True),
            scoring(setting, n, moving=True),
        ),
        steps.perplexity(setting),
        Step(
            losses_moving,
            "text of each language without its heads by the moving gate",
            partial(read_text, moving=True),
            reading(setting, texts * one.tested),
            (MOVING,),
        ),
        Step(
            step_name(setting, "gates"),
            "heads by the moving gate beside those by the still one",
            _compare,
            reading(setting, one.tested),
            (HEADS, MOVING, losses, losses_moving),
        ),
    )


def _compare(setting: Setting, folder: Path, progress: Progress | None) -> Mapping[str, Any]:
    losses = (setting.at(step_name(setting, name)) for name in (LOSSES, LOSSES_MOVING))
    scored, read = (setting.at(HEADS), setting.at(MOVING)), (next(losses), next(losses))
    return compare_importance(CompareImportance(scored, read, setting.seed), folder)


def tell_moving(setting: Setting) -> Findings:
    """How far both gates take the same heads, and what these cost each language's text."""
    found, texts = (setting.result(step_name(setting, name)) for name in ("gates", LOSSES_MOVING))
    if found is None or texts is None:
        return Findings()
    by_code = found["languages"]
    agreement = table_of(
        "Heads by the moving gate and by the still one",
        by_code,
        {
            "important": lambda one: Cell(one["important"][1], digits=0),
            "shared": lambda one: Cell(one["shared"], digits=0),
            "Jaccard": lambda one: Cell(one["jaccard"], digits=2),
            "by chance": lambda one: Cell(one["expected_exact"]),
            "p": lambda one: p_cell(one["p_value"]),
            "rank correlation": lambda one: cell(one["all"], 2),
            "within layers": lambda one: cell(one["within_layers"], 2),
            "p within layers": lambda one: p_cell(one["p_within_layers"]),
            "NLL, moving less still": lambda one: (
                cell(one["costs_more"]) if one["costs_more"] else Cell(why=NO_HEADS)
            ),
        },
        "Rank correlation: Spearman's, of the importance of all heads; within layers ranks are "
        "centred in each layer and heads permuted inside it. Intervals are percentiles, moved "
        "by how far the drawn values lie beside the measured one on average.",
    )
    chosen = {code: removed(texts, code, "chosen") for code in texts["languages"]}
    losses = losses_table(texts, chosen, " without heads by the moving gate")
    rows, cost = list(by_code.values()), [one for one in chosen.values() if one]
    signs = [sign(one["costs_more"]) for one in rows if one["costs_more"]]

    def over(key: str, digits: int = 2) -> str:
        figures = [one[key] for one in rows]
        return span([one["value"] if isinstance(one, dict) else one for one in figures], digits)

    text = (
        "The published, moving gate and the still one share "
        f"{over('shared', 0)} of {span([one['important'][1] for one in rows], 0)} important heads "
        f"of a language: Jaccard {over('jaccard')}, by chance {over('expected_exact', 3)} (largest "
        f"p {max(one['p_value'] for one in rows):.2g}). The rank correlation of all heads is "
        f"{over('all')}, within layers {over('within_layers')} (largest p "
        f"{max(one['p_within_layers'] for one in rows):.2g}). Without the specific heads by the "
        f"moving gate a text loses {span([one['change']['value'] for one in cost])} nats a token, "
        "with the interval above that without random heads on average "
        f"{several(sum(sign(one['against_random']) > 0 for one in cost), len(cost))}, and above "
        f"that without those by the still gate {several(signs.count(1), len(signs))}, below it "
        f"{several(signs.count(-1), len(signs))}."
    )
    sure = (
        f"Documents are drawn anew {RESAMPLES:,} times, alike for both gates; the gate's path, "
        f"which depends on their order, is not. In the texts {draws_limit(texts['draws'])}."
    )
    return Findings((agreement, losses), (), text, sure, {"by_language": by_code})
