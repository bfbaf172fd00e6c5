"""Whether the same heads translate in every direction (Figures 5 and 28)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import comb
from statistics import fmean
from typing import Any

from headscope.papers.claims import LEVEL, with_claims
from headscope.papers.paper import Experiment, Missing, Setting, Step
from headscope.papers.published import value
from headscope.papers.token_alignment_heads.cells import cell, sentence
from headscope.papers.token_alignment_heads.setting import (
    FIGURE_5,
    FIGURE_28,
    GROUPS,
    NAME,
    bound,
    given_directions,
)
from headscope.papers.token_alignment_heads.steps import overlap_steps
from headscope.shown.blocks import Claim, Findings, Heatmap, Row, Table, p_cell

LLAMA = "Llama-3.1-8B"
#: The directions that the paper compares.
FIGURES = {"Figure 5": FIGURE_5, "Figure 28": FIGURE_28, **GROUPS}


def _needs(setting: Setting, element: str, steps: Sequence[Step]) -> Missing | None:
    """Each figure is of all its directions."""
    if setting.pocket:
        why = "the paper's directions are of languages that the bundled model does not know"
        return Missing(why, "--model MODEL with --pairs for each direction", "needs MODEL")
    left = [pair for pair in FIGURES[element] if pair not in given_directions(setting)]
    why = f"{element} is of {len(FIGURES[element])} directions, {len(left)} of them not given"
    return Missing(why, f"--pairs PAIR=FILE for {', '.join(left)}") if left else None


def matrix(
    names: Sequence[str], pairs: Sequence[Mapping[str, Any]]
) -> tuple[tuple[float | None, ...], ...]:
    """The Jaccard index of every two sets, 1 with itself; None where two were not compared."""
    known = {(one["a"], one["b"]): one["jaccard"] for one in pairs}
    return tuple(
        tuple(1.0 if a == b else known.get((a, b), known.get((b, a))) for b in names) for a in names
    )


def _tell(setting: Setting) -> Findings:
    found = setting.result("overlap")
    if found is None:
        return Findings()
    pairs = found["pairs"]
    names = [one["name"] for one in found["artifacts"]]
    figure = Heatmap(
        f"Jaccard index of the top {found['artifacts'][0]['size']} heads of two directions",
        tuple(names),
        tuple(names),
        matrix(names, pairs),
        "Jaccard index",
        low=0.0,
        high=1.0,
    )
    by_relation = {one["relation"]: [] for one in pairs}  # type: dict[str | None, list[Any]]
    for one in pairs:
        by_relation[one["relation"]].append(one)
    theirs = {name: _among(pairs, own) for name, own in FIGURES.items()}
    groups = [
        ("all", pairs),
        *((name, one) for name, one in theirs.items() if one),
        *((name, one) for name, one in by_relation.items() if name),
    ]
    least = value(
        NAME,
        "Section 3.2",
        model=LLAMA,
        row="token alignment heads",
        column="all pairs, not below",
        measure="jaccard",
    )
    table = Table(
        "Jaccard index of the best heads of two directions",
        ("pairs", "mean", "lowest", "highest", "above 0.8", "by chance", "largest p"),
        tuple(_row(name, group, least) for name, group in groups),
        bound(setting, "Section 3.2", LLAMA),
        sentence(
            "The p-value is that of the pair least alike (hypergeometric). Published: the paper "
            "tells that of Figure 5's ten directions no pair lies below this figure."
        ),
    )
    said, sure = overlap_words(pairs)
    claims = (
        _figure_5(theirs["Figure 5"], least),
        *_figure_28(theirs["from English"], theirs["into English"]),
    )
    return Findings((table,), (figure,), said, sure, with_claims(*claims))


def _among(pairs: Sequence[Mapping[str, Any]], own: Sequence[str]) -> list[Mapping[str, Any]]:
    """The pairs of which both directions are among these."""
    return [one for one in pairs if {one["a"], one["b"]} <= set(own)]


def _figure_5(pairs: Sequence[Mapping[str, Any]], least: float | None) -> Claim:
    """That the heads of Figure 5's directions are the same; one pair that is not speaks against it.

    Open where directions of the figure are missing and the others agree.
    """
    of = comb(len(FIGURE_5), 2)
    name = "the same heads align tokens in the ten directions of Figure 5"
    missing = "the other directions of Figure 5, of sentences in their languages"
    if not pairs:
        return Claim(name, None, f"none of its {of} pairs is here", decides=missing)
    values = [one["jaccard"] for one in pairs]
    largest = max(one["p_value"] for one in pairs)
    by = (
        f"{len(pairs)} of its {of} pairs: Jaccard index {fmean(values):.2f} on average, "
        f"{min(values):.2f} at the lowest, {fmean(one['expected_exact'] for one in pairs):.2f} by "
        f"chance, largest p {largest:.2g}"
        + ("" if least is None else f"; {least:g} is the lowest in the paper")
    )
    holds: bool | None = None
    if least is not None and min(values) < least:
        holds = False
    elif len(pairs) == of and largest < LEVEL:
        holds = True
    decides = missing if len(pairs) < of else "more sentences a direction"
    tested = "random sets of as many heads (hypergeometric)"
    # That a pair lies below the paper's lowest is no test.
    sure = "" if holds is False else tested
    return Claim(name, holds, by, sure, decides="" if holds is not None else decides)


def _figure_28(
    out_of: Sequence[Mapping[str, Any]], into: Sequence[Mapping[str, Any]]
) -> tuple[Claim, ...]:
    """That directions from English are more alike than those into it; none without both."""
    if not out_of or not into:
        return ()
    means = [fmean(one["jaccard"] for one in group) for group in (out_of, into)]
    of = comb(len(GROUPS["from English"]), 2)
    by = (
        f"Jaccard index {means[0]:.2f} and {means[1]:.2f} on average, of {len(out_of)} and "
        f"{len(into)} of {of} pairs each"
    )
    name = "directions from English share more heads than those into English (Figure 28)"
    return (Claim(name, means[0] > means[1], by),)


def _row(name: str, group: Sequence[Mapping[str, Any]], least: float | None) -> Row:
    values = [one["jaccard"] for one in group]
    return Row(
        name,
        (
            cell(len(group), digits=0),
            cell(fmean(values)),
            cell(
                min(values),
                published=f"\u2265 {least:g}" if name == "Figure 5" and least is not None else None,
            ),
            cell(max(values)),
            cell(sum(one > 0.8 for one in values), digits=0),
            cell(fmean(one["expected_exact"] for one in group)),
            p_cell(max(one["p_value"] for one in group)),
        ),
    )


def overlap_words(pairs: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """How alike the directions' sets are, beside chance."""
    values = [one["jaccard"] for one in pairs]
    chance = fmean(one["expected_exact"] for one in pairs)
    said = (
        f"Over {len(pairs)} pairs of directions the Jaccard index is {fmean(values):.2f} on "
        f"average and {min(values):.2f} at the lowest; {chance:.2f} would be chance."
    )
    largest = max(one["p_value"] for one in pairs)
    verdict = (
        "Every pair shares more heads than random sets would"
        if largest < 0.05
        else "Not every pair shares more heads than random sets would"
    )
    return said, (
        f"{verdict} (largest p {largest:.2g}). The directions' sentences may say the same, and "
        "with another choice of sentences the sets would differ a little; that was not drawn again."
    )


CONSISTENCY = Experiment(
    "figure-5",
    ("Figure 5", "Figure 28"),
    "Whether the same heads translate in all directions",
    overlap_steps,
    _tell,
    _needs,
)
