"""How often each record stands in a mixture, and where to cut an order of records for that.

What stands before a cut has a wanted weight, group by group. The records are not sorted: their
places in the order are read several times, 16 bits at a time, and counted, until few enough are
left to be sorted. So the memory needed does not grow with the number of records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headscope.errors import InputError
from headscope.results.mix import Count, LanguageMix
from headscope.use.mixing.index import Block, Index, Mask, SameTexts, mixed, score_order
from headscope.use.mixing.plan import MixPlan

SORTED = 1 << 20
"""So many records are sorted in memory at the end."""
FEW = 64
"""For so many groups there is memory to count 16 bits at a time; for more, 8."""
BITS = 24
"""So many bits of a place tell its class in a streaming cut."""
_END = (1 << 128) - 1


class Places(NamedTuple):
    """Some records: their group, their place in the order (128 bits in two halves), their weight.

    `group` (n,) from 0, `high` and `low` (n,) uint64, `weight` (n,) int64 of 0 or more.
    """

    group: NDArray[np.int64]
    high: NDArray[np.uint64]
    low: NDArray[np.uint64]
    weight: NDArray[np.int64]

    def where(self, chosen: NDArray[np.bool_] | NDArray[np.int64]) -> Places:
        """Those of the records that are chosen, by a mask or by their numbers."""
        return Places(self.group[chosen], self.high[chosen], self.low[chosen], self.weight[chosen])


Blocks = Callable[[], Iterator[Places]]
"""Reads all records anew, block by block."""


@dataclass(frozen=True)
class Cuts:
    """The last place before the cut, for each group; -1 where everything stands behind it."""

    last: tuple[int, ...]

    def before(self, places: Places) -> NDArray[np.bool_]:
        """Which records stand before the cut of their group."""
        some = np.array([last >= 0 for last in self.last], dtype=bool)
        halves = [divmod(max(last, 0), 1 << 64) for last in self.last]
        high, low = np.array(halves, dtype=np.uint64).reshape(-1, 2).T[:, places.group]
        below = (places.high < high) | ((places.high == high) & (places.low <= low))
        return np.asarray(some[places.group] & below)


@dataclass
class _Search:
    """One group's search: the bits of the cut known so far, and the weight before them.

    `inside` and `left` are weight and number of the records that share those bits.
    """

    target: int
    prefix: int = 0
    before: int = 0
    inside: int = 0
    left: int = 0
    last: int | None = None


def cut(blocks: Blocks, targets: Sequence[int], at_least_one: bool = False) -> Cuts:
    """Cut each group's order where the weight before it is nearest to the group's target.

    Of two cuts equally near the one with the lesser weight is taken; records at the same place are
    never parted.  A target of 0 takes nothing, one that is not reached takes everything.
    `at_least_one` takes the first place even where nothing at all would be nearer.
    """
    groups = [_Search(target, last=None if target > 0 else -1) for target in targets]
    width = 16 if len(groups) <= FEW else 8
    depth = 0
    while any(group.last is None for group in groups):
        _count(blocks, groups, depth, width)
        depth += width
        if sum(group.left for group in groups if group.last is None) <= SORTED:
            _sort(blocks, groups, depth, at_least_one)
        elif depth == 128:
            _part(groups, at_least_one)
    return Cuts(tuple(-1 if group.last is None else group.last for group in groups))


def _count(blocks: Blocks, groups: Sequence[_Search], depth: int, width: int) -> None:
    """Learn the next bits of every open cut, from the weight of all records that share the last."""
    size = 1 << width
    weights = np.zeros((len(groups), size), dtype=np.int64)
    counts = np.zeros_like(weights)
    for all_places in blocks():
        places = all_places.where(_sharing(all_places, groups, depth))
        half, shift = (
            (places.high, 64 - depth - width) if depth < 64 else (places.low, 128 - depth - width)
        )
        digit = ((half >> np.uint64(shift)) & np.uint64(size - 1)).astype(np.int64)
        index = places.group * size + digit
        counts += np.bincount(index, minlength=counts.size).reshape(counts.shape)
        # Weights are added as float64, exact up to 2**53 a block.
        added = np.bincount(index, places.weight, minlength=counts.size)
        weights += added.astype(np.int64).reshape(counts.shape)
    for search, weight, count in zip(groups, weights, counts, strict=True):
        if search.last is not None:
            continue
        total = search.before + np.cumsum(weight)
        if depth == 0 and total[-1] <= search.target:
            search.last = _END
            continue
        place = int(np.searchsorted(total, search.target))
        search.before = int(total[place] - weight[place])
        search.prefix = (search.prefix << width) | place
        search.inside, search.left = int(weight[place]), int(count[place])


def _sort(blocks: Blocks, groups: Sequence[_Search], depth: int, at_least_one: bool) -> None:
    """Find the cuts among the records that share the known bits, which fit in memory."""
    known = [places.where(_sharing(places, groups, depth)) for places in blocks()]
    every = Places(*map(np.concatenate, zip(*known, strict=True)))
    group, high, low, weight = every.where(np.lexsort((every.low, every.high, every.group)))
    for number, search in enumerate(groups):
        if search.last is not None:
            continue
        rows = slice(*np.searchsorted(group, [number, number + 1]))
        ends = np.flatnonzero(
            np.append((np.diff(high[rows]) != 0) | (np.diff(low[rows]) != 0), True)
        )
        total = search.before + np.cumsum(weight[rows])[ends]
        at = int(np.searchsorted(total, search.target))
        less = int(total[at - 1]) if at else search.before
        place = (int(high[rows][ends[at]]) << 64) | int(low[rows][ends[at]])
        nearer = int(total[at]) - search.target < search.target - less
        first = at_least_one and less == 0
        if nearer or first:
            search.last = place
        elif at:
            search.last = (int(high[rows][ends[at - 1]]) << 64) | int(low[rows][ends[at - 1]])
        else:
            search.last = place - 1


def _part(groups: Sequence[_Search], at_least_one: bool) -> None:
    """More records at one place than can be sorted: all of them, or none."""
    for search in groups:
        if search.last is None:
            nearer = search.before + search.inside - search.target < search.target - search.before
            first = at_least_one and search.before == 0
            search.last = search.prefix if nearer or first else search.prefix - 1


def _sharing(places: Places, groups: Sequence[_Search], depth: int) -> NDArray[np.bool_]:
    """Which records belong to an open group and share the known bits of its cut."""
    chosen = np.array([search.last is None for search in groups], dtype=bool)[places.group]
    if depth == 0:
        return np.asarray(chosen)
    known = min(depth, 64)
    high = [search.prefix >> (depth - known) for search in groups]
    chosen &= (places.high >> np.uint64(64 - known)) == _of(high, places)
    if depth > 64:
        low = [search.prefix & ((1 << (depth - 64)) - 1) for search in groups]
        chosen &= (places.low >> np.uint64(128 - depth)) == _of(low, places)
    return np.asarray(chosen)


def _of(values: list[int], places: Places) -> NDArray[np.uint64]:
    # Groups that are done have no bits of the present depth; they are left out already.
    return np.array([value & ((1 << 64) - 1) for value in values], dtype=np.uint64)[places.group]


def streaming_cut(blocks: Blocks, targets: Sequence[int]) -> Cuts:
    """As `cut` with `at_least_one`, in one reading: between two classes of the first 24 bits.

    A class of scores is at most 2⁻¹² (0.024 %) of its score wide: sign, exponent and 12 bits of the
    fraction. Classes that occur are kept, and no others. The counts are exact and do not depend on
    the order of the records; what is selected misses the target by at most half the weight of the
    one class that the target falls into (by all of it, where nothing at all would be selected).
    """
    classes = [(np.empty(0, np.uint64), np.empty(0, np.int64)) for _ in targets]
    for places in blocks():
        digit = places.high >> np.uint64(64 - BITS)
        for group in np.unique(places.group):
            rows = places.group == group
            known, weights = classes[group]
            names, inverse = np.unique(np.append(known, digit[rows]), return_inverse=True)
            added = np.zeros(len(names), np.int64)
            np.add.at(added, inverse, np.append(weights, places.weight[rows]))
            classes[group] = names, added
    return Cuts(
        tuple(
            _last_class(names, weights, target)
            for (names, weights), target in zip(classes, targets, strict=True)
        )
    )


def _last_class(names: NDArray[np.uint64], weights: NDArray[np.int64], target: int) -> int:
    """The last place of the class that the cut stands behind."""
    total = np.cumsum(weights)
    if not len(total) or target <= 0:
        return -1
    at = min(int(np.searchsorted(total, target)), len(total) - 1)
    less = int(total[at - 1]) if at else 0
    if less > 0 and not int(total[at]) - target < target - less:
        at -= 1
    return ((int(names[at]) + 1) << (128 - BITS)) - 1


@dataclass(frozen=True)
class DocumentChoice:
    """Of each record: how often it is in the mixture, and why.

    `copies` (n,) uint8; `baseline`, `before` the cut by score, and `selected` (n,): in the baseline
    before the cut, or before the cut, or a copy of such a text in the baseline. `factor` is what
    the budgets were multiplied by, 1 unless the reserve was too small.  Duplicates are records
    whose text stands in another record before: `duplicates` those of the mixture with every chosen
    record taken once.
    """

    copies: NDArray[np.uint8]
    baseline: Mask
    before: Mask
    selected: Mask
    languages: dict[str, LanguageMix]
    factor: Fraction
    duplicates_before: int
    duplicates: int


def choose(index: Index, plan: MixPlan, folder: Path) -> DocumentChoice:
    """Draw the baseline, select in it, and say how often each record is to be written.

    A few bytes a record stay in memory; `folder` takes files of 24 bytes a record. InputError if
    the plan requires more than there is, or what is selected has no place.
    """
    records = _Records(index, plan)
    every = np.ones(len(index), bool)
    corpus = records.total(every)
    baseline = every
    if plan.size is not None:
        sizes = [
            plan.size_of(code, count.by(plan.by))
            for code, count in zip(index.languages, corpus, strict=True)
        ]
        baseline = records.before(records.cut("baseline", sizes, at_least_one=True), "baseline")
        if not baseline.any():
            raise InputError(
                f"the baseline would hold no documents, since its size is 0 {plan.by} in every "
                "language; make it larger (--size)"
            )
    base = records.total(baseline)
    targets = [plan.selected_of(count.by(plan.by)) if count.by(plan.by) else 0 for count in base]
    if plan.quantile == "streaming":
        selection = streaming_cut(records.blocks("score", baseline), targets)
    else:
        selection = records.cut("score", targets, baseline, at_least_one=True)
    before = records.before(selection, "score")
    texts = SameTexts.of(index, folder, plan.seed)
    selected, fresh = texts.closed(baseline, before)
    chosen, others = baseline & selected, baseline & ~selected
    counts = {
        "corpus": corpus,
        "baseline": base,
        "selected": records.total(chosen),
        "others": records.total(others),
        "reserve": records.total(fresh),
    }
    budget = _budgets(index, plan, counts)
    # Others that weigh nothing, documents without tokens, fit into any budget.
    room = [
        left if count.by(plan.by) else 1
        for left, count in zip(budget.others, counts["others"], strict=True)
    ]
    kept = others & records.before(records.cut("others", room, others), "others")
    refilled = fresh & records.before(records.cut("reserve", budget.refill, fresh), "reserve")
    copies = np.zeros(len(index), np.uint8)
    copies[kept | refilled] = 1
    copies[chosen] = budget.times
    if not copies.any():
        raise InputError(
            "nothing would be left in the mixture; select less of each language, or make the "
            "baseline smaller so that there is a reserve"
        )
    counts["kept"], counts["refilled"] = records.total(kept), records.total(refilled)
    counts["mixture"] = records.total(copies > 0, copies)
    edges: list[tuple[float | None, float | None]] = [(None, None)] * len(index.languages)
    if plan.select == "top":
        edges = index.extremes(baseline & before, baseline & ~before)
    return DocumentChoice(
        copies,
        baseline,
        before,
        selected,
        _languages(index, plan, counts, selection, edges),
        budget.factor,
        texts.duplicates(baseline),
        texts.duplicates(copies > 0),
    )


def score_places(block: Block, plan: MixPlan) -> Places:
    """Places by descending score; equal scores are ordered by a draw from seed and content.

    Where the plan selects at random, places are drawn; copies of a text share theirs.
    """
    if plan.select == "random":
        high = mixed(block.text, plan.seed, "random selection")
    else:
        high = score_order(block.score)
    return Places(
        block.language, high, mixed(block.record, plan.seed, "ties"), _weight(block, plan)
    )


def _weight(block: Block, plan: MixPlan) -> NDArray[np.int64]:
    return block.tokens if plan.by == "tokens" else np.ones_like(block.tokens)


@dataclass(frozen=True)
class _Records:
    """Counts records, and draws and cuts orders of them; `score` is the order by score."""

    index: Index
    plan: MixPlan

    def total(self, chosen: Mask, times: NDArray[np.uint8] | None = None) -> list[Count]:
        """Documents and tokens of each language that are chosen, taken so many times each."""
        size = len(self.index.languages)
        documents, tokens = np.zeros(size, np.int64), np.zeros(size, np.int64)
        for block in self.index.blocks():
            some = chosen[block.rows]
            repeats = np.ones(int(some.sum())) if times is None else times[block.rows][some]
            language = block.language[some]
            documents += np.bincount(language, repeats, size).astype(np.int64)
            # As float64, exact up to 2**53 tokens a block.
            tokens += np.bincount(language, repeats * block.tokens[some], size).astype(np.int64)
        return [
            Count(int(n), int(t) if self.index.has_tokens else None)
            for n, t in zip(documents, tokens, strict=True)
        ]

    def places(self, block: Block, order: str) -> Places:
        if order == "score":
            return score_places(block, self.plan)
        rows = np.arange(block.rows.start, block.rows.stop, dtype=np.uint64)
        drawn = mixed(block.record, self.plan.seed, order)
        return Places(block.language, drawn, rows, _weight(block, self.plan))

    def blocks(self, order: str, chosen: Mask | None = None) -> Blocks:
        """The places in an order of all records, or of those chosen, as `cut` reads them."""

        def read() -> Iterator[Places]:
            for block in self.index.blocks():
                places = self.places(block, order)
                yield places if chosen is None else places.where(chosen[block.rows])

        return read

    def cut(
        self,
        order: str,
        targets: list[int],
        chosen: Mask | None = None,
        at_least_one: bool = False,
    ) -> Cuts:
        return cut(self.blocks(order, chosen), targets, at_least_one)

    def before(self, cuts: Cuts, order: str) -> Mask:
        """Which of all records stand before the cut of their language."""
        taken = np.zeros(len(self.index), bool)
        for block in self.index.blocks():
            taken[block.rows] = cuts.before(self.places(block, order))
        return taken


@dataclass(frozen=True)
class _Budget:
    """How much to keep of the others and to take from the reserve, by language."""

    others: list[int]
    refill: list[int]
    times: int
    factor: Fraction = Fraction(1)


def _budgets(index: Index, plan: MixPlan, counts: Mapping[str, list[Count]]) -> _Budget:
    amounts = {name: [count.by(plan.by) for count in several] for name, several in counts.items()}
    baseline, selected, others = (amounts[name] for name in ("baseline", "selected", "others"))
    if plan.kind == "baseline":
        return _Budget(others, [0] * len(baseline), 1)
    if plan.kind == "enhance":
        rest = [whole - plan.times * some for whole, some in zip(baseline, selected, strict=True)]
        for code, whole, some, left in zip(index.languages, baseline, selected, rest, strict=True):
            if left < 0:
                raise InputError(
                    f"{plan.times} times the {some} selected {plan.by} of {code!r} are more than "
                    f"the {whole} that the language has in the baseline; select less, or take "
                    "the selected documents fewer times"
                )
        return _Budget(rest, [0] * len(baseline), plan.times)
    there = [kept + new for kept, new in zip(others, amounts["reserve"], strict=True)]
    shares = (Fraction(have, want) for have, want in zip(there, baseline, strict=True) if want)
    factor = min((Fraction(1), *shares))
    targets = [round(factor * want) for want in baseline]
    refill = [max(0, want - kept) for want, kept in zip(targets, others, strict=True)]
    return _Budget(targets, refill, 0, factor)


def _languages(
    index: Index,
    plan: MixPlan,
    counts: Mapping[str, list[Count]],
    selection: Cuts,
    edges: list[tuple[float | None, float | None]],
) -> dict[str, LanguageMix]:
    totals = {
        name: sum(count.by(plan.by) for count in counts[name]) for name in ("baseline", "mixture")
    }
    copies = {"baseline": 1, "remove": 0, "enhance": plan.times}[plan.kind]
    languages = {}
    for code, at in sorted((code, at) for at, code in enumerate(index.languages)):
        own = {name: several[at] for name, several in counts.items()}
        base = own["baseline"].by(plan.by)
        shares = {
            name: own[name].by(plan.by) / total if total else 0.0 for name, total in totals.items()
        }
        last = selection.last[at]
        languages[code] = LanguageMix(
            corpus=own["corpus"],
            baseline=own["baseline"],
            mixture=own["mixture"],
            share_before=shares["baseline"],
            share_after=shares["mixture"],
            share_difference=shares["mixture"] - shares["baseline"],
            selected=own["selected"],
            selected_share=own["selected"].by(plan.by) / base if base else 0.0,
            wanted=plan.selected_of(base) if base else 0,
            threshold=edges[at][0],
            next_score=edges[at][1],
            cut=f"{last:032x}" if last >= 0 else None,
            copies=copies,
            kept=own["kept"],
            reserve=own["reserve"],
            refilled=own["refilled"],
        )
    return languages
