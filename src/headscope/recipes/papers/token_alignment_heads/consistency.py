"""Whether the same heads translate in every direction (Figures 5 and 28)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from headscope.recipes.papers.paper import Experiment, Setting
from headscope.recipes.papers.published import value
from headscope.recipes.papers.token_alignment_heads.cells import cell, sentence
from headscope.recipes.papers.token_alignment_heads.claims import Claim, with_claims
from headscope.recipes.papers.token_alignment_heads.setting import NAME, bound
from headscope.recipes.papers.token_alignment_heads.steps import overlap_steps
from headscope.recipes.papers.told import Heatmap, Row, Table, Told, p_cell

__all__ = ["CONSISTENCY", "matrix", "overlap_claim", "overlap_words"]

LLAMA = "Llama-3.1-8B"


def matrix(
    names: Sequence[str], pairs: Sequence[Mapping[str, Any]]
) -> tuple[tuple[float | None, ...], ...]:
    """The Jaccard index of every two sets, 1 with itself; None where two were not compared."""
    known = {(one["a"], one["b"]): one["jaccard"] for one in pairs}
    return tuple(
        tuple(1.0 if a == b else known.get((a, b), known.get((b, a))) for b in names) for a in names
    )


def _tell(setting: Setting) -> Told:
    found = setting.result("overlap")
    if found is None:
        return Told()
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
    ways = _ways(pairs)
    groups = [
        ("all", pairs),
        *((name, one) for name, one in by_relation.items() if name),
        *((name, one) for name, one in ways.items() if one),
    ]
    least = value(
        NAME,
        "Section 3.2",
        model=LLAMA,
        row="token alignment heads",
        column="all pairs, not below",
        measure="jaccard",
    )
    usual = value(
        NAME,
        "Section 3.2",
        model=LLAMA,
        row="token alignment heads",
        column="most pairs, above",
        measure="jaccard",
    )
    table = Table(
        "Jaccard index of the best heads of two directions",
        ("pairs", "mean", "lowest", "highest", "above 0.8", "by chance", "largest p"),
        tuple(_row(name, group, least) for name, group in groups),
        bound(setting, "Section 3.2", LLAMA),
        sentence(
            "The p-value is that of the pair least alike (hypergeometric). Published: the paper "
            "tells that no pair lies below this figure.",
        ),
    )
    said, sure = overlap_words(pairs, least, usual)
    said = sentence(said, _ways_words(ways))
    return Told((table,), (figure,), said, sure, overlap_claim(pairs, least))


def _ways(pairs: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Pairs of two directions from English, and of two into English (Figure 28)."""

    def both(one: Mapping[str, Any], end: int) -> bool:
        return all(str(one[name]).split("-")[end] == "en" for name in ("a", "b"))

    return {
        "from English": [one for one in pairs if both(one, 0)],
        "into English": [one for one in pairs if both(one, -1)],
    }


def _ways_words(ways: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Which of both the paper's Figure 28 finds more alike; empty where one has no pair."""
    if not all(ways.values()):
        return ""
    means = [fmean(each["jaccard"] for each in one) for one in ways.values()]
    verdict = (
        "as in the paper the former are more alike"
        if means[0] > means[1]
        else "in the paper the former are more alike, which they are not here"
    )
    return (
        f"Directions from English have {means[0]:.2f} on average, those into English "
        f"{means[1]:.2f}; {verdict}."
    )


def overlap_claim(pairs: Sequence[Mapping[str, Any]], least: float | None) -> dict[str, Any]:
    """That the same heads translate in all directions."""
    values = [one["jaccard"] for one in pairs]
    largest = max(one["p_value"] for one in pairs)
    alike = largest < 0.05 and (least is None or min(values) >= least)
    by = (
        f"Jaccard index {fmean(values):.2f} on average, {min(values):.2f} at the lowest, "
        f"{fmean(one['expected_exact'] for one in pairs):.2f} by chance"
    )
    tested = f"random sets of as many heads (largest p {largest:.2g})"
    return with_claims(Claim("the same heads align tokens in all directions", alike, by, tested))


def _row(name: str, group: Sequence[Mapping[str, Any]], least: float | None) -> Row:
    values = [one["jaccard"] for one in group]
    return Row(
        name,
        (
            cell(len(group), digits=0),
            cell(fmean(values)),
            cell(
                min(values),
                published=f"\u2265 {least:g}" if name == "all" and least is not None else None,
            ),
            cell(max(values)),
            cell(sum(one > 0.8 for one in values), digits=0),
            cell(fmean(one["expected_exact"] for one in group)),
            p_cell(max(one["p_value"] for one in group)),
        ),
    )


def overlap_words(
    pairs: Sequence[Mapping[str, Any]], least: float | None, usual: float | None
) -> tuple[str, str]:
    """How alike the directions' sets are, beside chance and the paper's figures."""
    values = [one["jaccard"] for one in pairs]
    chance = fmean(one["expected_exact"] for one in pairs)
    said = (
        f"Over {len(pairs)} pairs of directions the Jaccard index is {fmean(values):.2f} on "
        f"average and {min(values):.2f} at the lowest; {chance:.2f} would be chance."
    )
    compared = ""
    if least is not None and usual is not None:
        high = sum(one > usual for one in values)
        bound = "no pair lies" if min(values) >= least else "some pairs lie"
        compared = (
            f"{high} of {len(values)} pairs are above {usual:g}, and {bound} below {least:g}; in "
            f"the paper most are above {usual:g} and none is below {least:g}."
        )
    largest = max(one["p_value"] for one in pairs)
    verdict = (
        "Every pair shares more heads than random sets would"
        if largest < 0.05
        else "Not every pair shares more heads than random sets would"
    )
    return sentence(said, compared), (
        f"{verdict} (largest p {largest:.2g}). The directions' sentences may say the same, and "
        "with another choice of sentences the sets would differ a little; that was not drawn again."
    )


CONSISTENCY = Experiment(
    "figure-5",
    ("Figure 5", "Figure 28"),
    "Whether the same heads translate in all directions",
    overlap_steps,
    _tell,
)
