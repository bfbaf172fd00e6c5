"""What the studies show alike: tables of heads, sets, controls, and what weakens a finding."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headscope.estimates import Against, Estimate
from headscope.heads import Head
from headscope.results.common import Ablation, Leakage, ReferenceText, ScoredHead
from headscope.shown.blocks import Cell, Column, HeadMap, HeadTable, Place, Row, Table, p_cell
from headscope.shown.words import between, count, fixed, p_value

__all__ = [
    "ablation_facts",
    "against_cells",
    "against_table",
    "compared",
    "draws_remedy",
    "draws_words",
    "head_map",
    "head_table",
    "interval",
    "layer_labels",
    "leakage_caution",
    "model_facts",
    "named_places",
    "places",
    "tests_words",
]

SCORE = Column("score", "Score")
CHANCE = Column("chance", "Chance", "what the score would be by chance")
ABOVE = Column("above_chance", "Score \u2212 chance", "the score, corrected for chance")
ENDS = (Column("low", "low"), Column("high", "high"))


def head_table(
    title: str,
    parts: Mapping[str, Sequence[ScoredHead]],
    extra: Iterable[Column] = (),
    score: Column = SCORE,
    **more: Any,
) -> HeadTable:
    """Every head of scored parts (languages, directions; one: its name is not shown).

    The score, chance, the interval and the columns of `extra`, each as far as the heads have it;
    `more` goes to the block. Heads are ranked by their score corrected for chance where they have
    a chance and `ranked_by` does not say otherwise.
    """
    heads = sorted({head.place for part in parts.values() for head in part})
    by_place = {name: {head.place: head for head in part} for name, part in parts.items()}

    def numbers(part: Mapping[Head, ScoredHead], key: str) -> list[float | None]:
        return [part[place].number(key) if place in part else None for place in heads]

    columns = tuple(
        column
        for column in (score, CHANCE, ABOVE, *extra, *ENDS)
        if any(head.number(column.key) is not None for part in parts.values() for head in part)
    )
    keys = [column.key for column in columns]
    more.setdefault("ranked_by", "above_chance" if "above_chance" in keys else score.key)
    return HeadTable(
        title,
        places(heads),
        columns,
        {name: {key: numbers(part, key) for key in keys} for name, part in by_place.items()},
        **more,
    )


def head_map(
    name: str, heads: Iterable[ScoredHead], marked: Iterable[Head] = (), key: str = "score"
) -> HeadMap:
    """The map of one number of scored heads."""
    known = {head.place: head.number(key) for head in heads}
    layers, width = 1 + max(h.layer for h in known), 1 + max(h.head for h in known)
    values = tuple(
        tuple(known.get(Head(layer, head)) for head in range(width)) for layer in range(layers)
    )
    return HeadMap(name, values, places(marked))


def places(heads: Iterable[Head]) -> tuple[Place, ...]:
    """Heads as blocks name them."""
    return tuple((head.layer, head.head) for head in heads)


def interval(estimate: Estimate | None, digits: int = 3, unit: str = "") -> str:
    """`0.42 (95 % CI 0.31 – 0.50)`; the value alone where there is no interval."""
    if estimate is None or not estimate.known:
        return "not measured"
    value = fixed(estimate.value, digits) + unit
    if not estimate.bounded:
        return value
    return f"{value} (95\u00a0% CI {between(estimate.low, estimate.high, digits)}{unit})"


def compared(against: Against | None, examples: str = "sentences", digits: int = 3) -> str:
    """Selected minus random in words: difference, interval, p over examples and over draws."""
    if against is None or not against.difference.known:
        return "not compared with random heads"
    words = f"{interval(against.difference, digits)} against {against.distinct} random draws"
    if against.p_examples is not None:
        words += f"; p\u00a0=\u00a0{p_value(against.p_examples)} over {examples}"
    if against.p_draws is not None:
        words += f", {p_value(against.p_draws)} over draws"
    return words


def against_cells(
    against: Against | None, digits: int = 3, unit: str = "", factor: float = 1.0
) -> tuple[Cell, Cell, Cell]:
    """Selected minus random with its interval, p over examples, p over draws."""
    if against is None:
        return Cell(), Cell(), Cell()
    return (
        Cell.of(against.difference, digits, unit, factor),
        p_cell(against.p_examples),
        p_cell(against.p_draws),
    )


def against_table(
    title: str,
    rows: Mapping[str, tuple[Against | None, Against | None]],
    examples: str = "sentences",
    digits: int = 3,
    unit: str = "",
    factor: float = 1.0,
    note: str = "",
) -> Table | None:
    """Selected heads minus random ones, free and of the same layers; None if there are neither."""
    kinds = {0: "random", 1: "random, same layers"}
    kinds = {at: kind for at, kind in kinds.items() if any(row[at] for row in rows.values())}
    if not kinds:
        return None
    columns = [
        name
        for kind in kinds.values()
        for name in (f"\u2212 {kind}", f"p over {examples}", "p over draws")
    ]
    made = tuple(
        Row(name, tuple(c for at in kinds for c in against_cells(row[at], digits, unit, factor)))
        for name, row in rows.items()
    )
    return Table(title, tuple(columns), made, note=note)


def tests_words(examples: str, expected: str) -> str:
    """What the p-values of a table mean; `expected` is tested, such as `a larger change`."""
    return (
        f"One-sided p, tested: {expected} with selected than with random heads. p over {examples}: "
        f"{examples} swapped with those under a random draw. p over draws: rank among the random "
        "draws. Neither is corrected for the number of rows."
    )


def draws_words(distinct: int) -> str:
    """How many different random draws there are, and the least p over draws that they allow."""
    drawn = count(distinct, "random draw")
    return f"{drawn}: p over draws is at least {p_value(1 / (1 + distinct))}"


def draws_remedy(distinct: int) -> str:
    """The option for more draws, where p over draws cannot get below 0.05."""
    return "--draws 99" if distinct < 19 else ""


def layer_labels(layers: Sequence[int]) -> tuple[tuple[float, str], ...]:
    """About a dozen layers as words on an axis."""
    return tuple((float(at), str(at)) for at in layers[:: max(1, len(layers) // 12)])


def leakage_caution(leakage: Leakage | None, examples: str = "sentence pairs") -> list[str]:
    """What it means that heads were found on the test data, or that this is not known."""
    if leakage is None or not leakage.known:
        return [
            f"The heads came without a record of the {examples} they were found on; if these are "
            "the same, the effect is overestimated."
        ]
    if leakage.overlap:
        return [
            f"{leakage.overlap} of {leakage.of} {examples} were used to find the heads, so the "
            "effect is overestimated."
        ]
    return []


def ablation_facts(result: Ablation) -> list[tuple[str, str]]:
    """What removed heads give, where that is not zero."""
    if result.ablate != "mean":
        return []
    reference = result.reference_text or ReferenceText()
    over = f" over {count(reference.texts, 'text')}" if reference.texts else ""
    source = f", {reference.source}" if reference.source else ""
    return [("removed heads give", f"their mean output by class of position{over}{source}")]


def named_places(heads: Iterable[str]) -> tuple[Place, ...]:
    """Heads that results name by words such as `5.3`."""
    return places(map(Head.parse, heads))


def model_facts(name: str, heads: int | None = None) -> list[tuple[str, str]]:
    """The model, and how many heads it has."""
    return [("model", name), *([("heads", str(heads))] if heads else [])]
