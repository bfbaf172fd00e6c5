"""What the studies show alike: tables of heads, sets, controls, and what weakens a finding."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import floor, log10
from pathlib import Path
from statistics import fmean, median
from typing import Any

from headscope.ablations import KINDS, gives
from headscope.estimates import Estimate
from headscope.evidence.rows import LEVEL
from headscope.heads import Head
from headscope.measure.intervals import wilson_interval
from headscope.measure.statistics import holm
from headscope.results.common import Ablation, Leakage, ReferenceText, ScoredHead
from headscope.results.overlap import GroupOverlap, PairOverlap
from headscope.runs.reading import read_object
from headscope.shown.blocks import (
    Bars,
    Column,
    Content,
    HeadMap,
    HeadPlace,
    HeadSets,
    HeadTable,
    Heatmap,
    Table,
    p_cell,
    table_of,
)
from headscope.shown.words import arrow, between, count, enumeration, fixed, number

SCORE = Column("score", "Score")
CHANCE = Column("chance", "Chance", "what the score would be by chance")
ABOVE = Column("above_chance", "Score \u2212 chance", "the score, corrected for chance")
#: Share of heads at chance whose 95 % intervals lie above it.
TAIL = 0.025
#: Heads whose intervals say how far scores are known.
HIGHEST = 10
ENDS = (Column("low", "low"), Column("high", "high"))
#: Intervals from fewer examples are unreliable.
FEW = 20
#: What the ceiling of an overlap is.
TWO_HALVES = ". Two halves: the Jaccard index of sets found on two halves of the same examples"
#: So many sets are compared by bars, more on a map.
FEW_SETS = 3
#: Characters of a name that an axis shows.
LONG = 28
#: Heads of a set that a page lists at most.
LISTED = 50


def head_table(
    title: str,
    parts: Mapping[str, Sequence[ScoredHead]],
    extra: Iterable[Column] = (),
    score: Column = SCORE,
    **more: Any,
) -> HeadTable:
    """Every head of scored parts (languages, directions; one: its name is not shown).

    First the number that heads are ranked by, with its interval: the score corrected for chance
    where they have a chance and `ranked_by` does not say otherwise; then the score, chance and the
    columns of `extra`, each as far as the heads have it; `more` goes to the block. Low scores are
    shown with more decimals.
    """
    heads = sorted({head.place for part in parts.values() for head in part})
    by_place = {name: {head.place: head for head in part} for name, part in parts.items()}
    corrected = any(head.number(ABOVE.key) is not None for part in parts.values() for head in part)
    by = more.setdefault("ranked_by", ABOVE.key if corrected else score.key)
    if more.get("signed"):
        more.setdefault("note", "Listed by size; --k takes the highest alone")

    def number_of(head: ScoredHead, key: str) -> float | None:
        own, chance = head.number(key), head.number("chance")
        # The interval is of the number that heads are ranked by.
        shifted = by == ABOVE.key and key in ("low", "high") and own is not None
        return own - chance if shifted and own is not None and chance is not None else own

    above = replace(ABOVE, title=f"{score.title} \u2212 chance")
    first, second = (above, score) if by == ABOVE.key else (score, above)
    columns = tuple(
        column
        for column in (first, second, CHANCE, *extra, *ENDS)
        if any(head.number(column.key) is not None for part in parts.values() for head in part)
    )
    most = max((abs(head.score or 0.0) for part in parts.values() for head in part), default=0.0)
    digits = min(6, 2 - floor(log10(most))) if most else 3
    columns = tuple(
        replace(column, digits=max(column.digits, digits))
        if column.key in (score.key, CHANCE.key, ABOVE.key)
        else column
        for column in columns
    )
    return HeadTable(
        title,
        places(heads),
        columns,
        {
            name: {
                column.key: [
                    number_of(part[place], column.key) if place in part else None for place in heads
                ]
                for column in columns
            }
            for name, part in by_place.items()
        },
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


def by_rank(head: ScoredHead) -> float:
    """The number that heads are ranked by: the score, corrected for chance where that is known."""
    return (head.score if head.above_chance is None else head.above_chance) or 0.0


def strongest(heads: Sequence[ScoredHead], unit: str = "", against: str = "") -> str:
    """`Strongest: 4.3 (0.70 above chance).`, by what its heads are ranked by; of scores with a sign
    by their size, and `against` says what one below 0 means."""
    best = max(heads, key=by_rank)
    above = "" if best.above_chance is None else " above chance"
    words = f"{best.place} ({number(by_rank(best))}{unit}{above})"
    least = min(heads, key=by_rank)
    if against and -by_rank(least) > by_rank(best):
        words = f"{least.place} ({number(by_rank(least))}{unit}: {against}); highest: {words}"
    return f"Strongest: {words}."


def significant(heads: Iterable[ScoredHead]) -> list[ScoredHead]:
    """The heads whose interval lies above chance, or above 0 where chance is not known."""
    return [
        head for head in heads if head.low is not None and head.low > (head.number("chance") or 0.0)
    ]


def by_luck(heads: Sequence[ScoredHead]) -> str:
    """How many heads would be above chance, were all of them at chance."""
    return by_chance(TAIL * len(heads))


def by_chance(heads: float) -> str:
    """How many heads chance gives; whole, since 0.1 would read like the head 0.1."""
    return f"{round(heads) or 'none'} expected by chance"


def candidates(heads: Sequence[ScoredHead], examples: int) -> bool:
    """Whether there are heads above chance that are only candidates: their intervals are of few
    examples, or as many may be above chance where all heads are at chance."""
    found = len(significant(heads))
    return found > 0 and (examples < FEW or wilson_interval(found, len(heads))[0] <= TAIL)


def head_sets(title: str, sets: Mapping[str, Sequence[ScoredHead]]) -> HeadSets:
    """Heads by name, those listed first that are ranked highest."""
    sets = {name: sorted(heads, key=by_rank, reverse=True) for name, heads in sets.items()}
    more = [f"{name}: {len(heads)}" for name, heads in sets.items() if len(heads) > LISTED]
    return HeadSets(
        title,
        {name: places(head.place for head in heads[:LISTED]) for name, heads in sets.items()},
        f"the first {LISTED} of {enumeration(more)}" if more else "",
    )


def top_heads(heads: Sequence[ScoredHead]) -> HeadSets:
    """The first heads of a ranking that tells no set of heads apart."""
    best = sorted(heads, key=by_rank, reverse=True)[:HIGHEST]
    return head_sets("Highest heads", {"highest": best})


def spread(heads: Sequence[ScoredHead], examples: str) -> str:
    """How wide intervals are; heads come highest first, `examples` counts what they are over."""
    best = heads[:HIGHEST]
    halves = [(h.high - h.low) / 2 for h in best if h.low is not None and h.high is not None]
    if not halves:
        return "These scores carry no interval."
    return (
        f"95\u00a0% intervals of the highest heads: \u00b1{number(median(halves))} (median), over "
        f"{examples}."
    )


def more_examples(
    examples: int, run: Path, wanted: int = 500, of: str = "limit", flag: str = "--limit"
) -> str:
    """The option for more examples than a run was limited to, where these are few; empty where it
    had no limit, or its data have no more. `of` is the setting."""
    limit = next(values_of(of, read_object(run / "run.json")), None)
    return f"{flag} {wanted}" if limit is not None and limit <= examples < wanted else ""


def values_of(name: str, settings: Mapping[str, Any]) -> Iterator[int]:
    """The numbers, and what is true or false, that settings of this name have, at any depth."""
    for key, value in settings.items():
        if key == name and isinstance(value, int):
            yield value
        elif isinstance(value, Mapping):
            yield from values_of(name, value)


def few_caution(
    examples: int | None, one: str, several: str | None = None, of: str = ""
) -> list[str]:
    """What it means that intervals are from few examples, `of` such as ` a direction`."""
    if examples is None or examples >= FEW:
        return []
    return [f"Only {count(examples, one, several)}{of}: the intervals are wide or unreliable."]


def few_parts(
    sizes: Mapping[str, int], what: str, fewest: int = 30, listed: int = LISTED
) -> list[str]:
    """The languages, groups or tasks with fewer examples than intervals are reliable for."""
    few = [f"{name} {size}" for name, size in sizes.items() if size < fewest]
    if len(few) > listed:
        few = [*few[:listed], f"{len(few) - listed} more"]
    reason = f"Intervals over fewer than {fewest} {what} ({enumeration(few)}) are unreliable."
    return [reason] if few else []


def places(heads: Iterable[Head]) -> tuple[HeadPlace, ...]:
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


def layer_labels(layers: Sequence[int]) -> tuple[tuple[float, str], ...]:
    """About a dozen layers as words on an axis."""
    return tuple((float(at), str(at)) for at in layers[:: max(1, len(layers) // 12)])


def leakage_caution(leakage: Leakage | None, examples: str = "sentence pairs") -> list[str]:
    """What it means that heads were found on the test data, or that this is not known."""
    if leakage is None or not leakage.known:
        return [
            f"It is not recorded which {examples} the heads were found on; if they are the same as "
            "here, the effect is overestimated."
        ]
    if leakage.overlap:
        return [
            f"{leakage.overlap} of {leakage.of} {examples} were used to find the heads, so the "
            "effect is overestimated."
        ]
    return []


def ablation_facts(result: Ablation) -> list[tuple[str, str]]:
    """What removed heads give, where that is not zero."""
    if not gives(result.ablate):
        return []
    reference = result.reference_text or ReferenceText()
    by = "in answers, at every token," if reference.everywhere else KINDS[result.ablate].by
    words = f"their {gives(result.ablate)} {by}"
    over = f" over {count(reference.texts, 'text')}" if reference.texts else ""
    source = f", {reference.source}" if reference.source else ""
    return [("removed heads give", f"{words}{over}{source}")]


def named_places(heads: Iterable[str]) -> tuple[HeadPlace, ...]:
    """Heads that results name by words such as `5.3`."""
    return places(map(Head.parse, heads))


def model_facts(name: str, heads: int | None = None) -> list[tuple[str, str]]:
    """The model, and how many heads it has."""
    return [("model", name), *([("heads", str(heads))] if heads else [])]


def alike(pairs: Sequence[PairOverlap], sets: str = "sets", several: str = "pairs") -> str:
    """Whether two sets share more heads than random sets do, of any layers and of the same ones, or
    how many pairs of several: p at most 0.05, of several pairs after Holm's correction."""
    free = sum(p <= LEVEL for p in holm([pair.p_value for pair in pairs]))
    known = [pair.p_within_layers for pair in pairs if pair.p_within_layers is not None]
    within = sum(p <= LEVEL for p in holm(known))
    than, same = f"than random {sets}", "those of the same layers"
    if len(pairs) > 1:
        if not free:
            return f"None of the {len(pairs)} {several} is shown to share more heads {than}."
        many = "All" if free == len(pairs) else f"{free} of the"
        also = {len(pairs): "all", 0: "none"}.get(within, str(within))
        more = f", {also} also than {same}" if known else ""
        return f"{many} {len(pairs)} {several} share more heads {than}{more}."
    if not free:
        return f"These {sets} are not shown to share more heads {than}."
    layers = f", {'also' if within else 'not shown to share more'} than {same}" if known else ""
    return f"These {sets} share more heads {than}{layers}."


def _overlap_figure(pairs: Sequence[PairOverlap]) -> Heatmap | Bars:
    """A map of the Jaccard indices, equal sets in one row; bars where few sets are left."""
    names = list(dict.fromkeys(name for pair in pairs for name in (pair.a, pair.b)))
    at = {pair: each.jaccard for each in pairs for pair in ((each.a, each.b), (each.b, each.a))}
    groups: dict[str, list[str]] = {}
    for name in names:
        first = next((other for other in groups if at.get((other, name)) == 1), name)
        groups.setdefault(first, []).append(name)
    if len(groups) <= FEW_SETS:
        apart = [pair for pair in pairs if pair.a in groups and pair.b in groups]
        return _overlap_bars(pairs if len(names) <= FEW_SETS else apart or pairs[:1])
    labels = tuple(
        (arrow(name) if len(name) <= LONG else f"\u2026{name[1 - LONG :]}")
        + (f" (and {len(equal) - 1} equal)" if len(equal) > 1 else "")
        for name, equal in groups.items()
    )
    note = "Sets of the same heads have one row. " if len(groups) < len(names) else ""
    chance = fixed(fmean(pair.expected_exact for pair in pairs), 2)
    return Heatmap(
        "Heads that two sets share",
        labels,
        labels,
        tuple(tuple(1.0 if a == b else at.get((a, b)) for b in groups) for a in groups),
        "Jaccard index",
        low=0.0,
        high=1.0,
        note=f"{note}Random sets of these sizes: {chance} on average",
    )


def _overlap_bars(pairs: Sequence[PairOverlap]) -> Bars:
    known: dict[str, list[float | None]] = {
        "selected": [pair.jaccard for pair in pairs],
        "random": [pair.expected_exact for pair in pairs],
        "random, same layers": [pair.expected_within_layers for pair in pairs],
        "two halves": [pair.ceiling for pair in pairs],
    }
    shown = {name: row for name, row in known.items() if all(each is not None for each in row)}
    return Bars(
        "Heads that two sets share",
        tuple(f"{arrow(pair.a)} and {arrow(pair.b)}" for pair in pairs),
        tuple(shown),
        tuple(zip(*shown.values(), strict=True)),
        "Jaccard index",
        digits=2,
        start=0.0,
        end=1.0,
        note="Random: the exact mean of sets of these sizes" + TWO_HALVES * ("two halves" in shown),
    )


def overlap_blocks(
    pairs: Sequence[PairOverlap], groups: Sequence[GroupOverlap] = ()
) -> tuple[Heatmap | Bars | Table, ...]:
    """The figure of the overlap, the pairs with chance, and groups of pairs."""
    ceiling = any(pair.ceiling is not None for pair in pairs)
    columns: dict[str, Callable[[PairOverlap], Content]] = {
        "Jaccard": lambda pair: pair.jaccard,
        "by chance": lambda pair: pair.expected_exact,
        "by chance, as a ratio": lambda pair: pair.expected,
        "p": lambda pair: p_cell(pair.p_value),
        "by chance within layers": lambda pair: pair.expected_within_layers,
        "p within layers": lambda pair: p_cell(pair.p_within_layers),
        "shared heads": lambda pair: pair.intersection,
        "heads of A": lambda pair: pair.size_a,
        "heads of B": lambda pair: pair.size_b,
        "shared, of A": lambda pair: pair.conditional.given_a,
        "shared, of B (recall)": lambda pair: pair.conditional.given_b,
        "rank correlation": lambda pair: pair.rank_correlation,
    }
    if ceiling:
        columns["two halves"] = lambda pair: pair.ceiling
    table = table_of(
        "Every two sets, A and B",
        ((f"{arrow(pair.a)} and {arrow(pair.b)}", pair) for pair in pairs),
        columns,
        "By chance: the exact mean for random sets of these sizes, and the ratio of expected "
        "counts used in the literature. p: random sets share as many heads (hypergeometric), not "
        "corrected for the number of pairs. Within layers: random sets with as many heads of each "
        f"layer. Rank correlation: Spearman, over all heads{TWO_HALVES if ceiling else ''}",
    )
    return (_overlap_figure(pairs), table, *([_overlap_groups(groups)] if groups else []))


def _overlap_groups(groups: Sequence[GroupOverlap]) -> Table:
    return table_of(
        "Groups of pairs of directions",
        ((group.name, group) for group in groups),
        {
            "pairs": lambda group: group.count,
            "mean Jaccard": lambda group: group.jaccard,
            "range": lambda group: between(group.lowest, group.highest, 2),
            "by chance": lambda group: group.expected_exact,
            "by chance, as a ratio": lambda group: group.expected,
            "largest p": lambda group: p_cell(group.largest_p),
            "by chance within layers": lambda group: group.expected_within_layers,
            "largest p within layers": lambda group: p_cell(group.largest_p_within_layers),
        },
        "Pairs of a group share directions, so they are not independent",
    )
