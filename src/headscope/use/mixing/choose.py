"""How often each record stands in a mixture."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headscope.errors import InputError
from headscope.results.mixture import Count
from headscope.use.mixing.cut import Blocks, Cuts, Places, cut
from headscope.use.mixing.index import Block, Index
from headscope.use.mixing.keys import mixed, score_order
from headscope.use.mixing.plan import MixPlan
from headscope.use.mixing.streaming import streaming_cut
from headscope.use.mixing.texts import FRESH, IN_BASELINE, SELECTED, deal_texts

Test = Callable[[Block], NDArray[np.bool_]]


@dataclass(frozen=True)
class LanguageChoice:
    """What was chosen of one language.

    `selected` counts records of the baseline, once each; `lowest` is the least score that stands
    before the cut and `highest_left` the highest behind it (None: there is none, or the selection
    is random).  `fresh` is
    what the reserve could give, `refilled` what it gave, `kept` what stays of the baseline's other
    records.
    """

    corpus: Count
    baseline: Count
    selected: Count
    lowest: float | None
    highest_left: float | None
    kept: Count
    fresh: Count
    refilled: Count
    mixture: Count


@dataclass(frozen=True)
class Choice:
    """`copies` (n,) uint8 says how often each record is in the mixture, `marks` (n,) what it is.

    `selection` are the cuts by score; `factor` is what the budgets were multiplied by, 1 unless
    the reserve was too small.  Duplicates are records whose text stands in another record before:
    `duplicates` those of the mixture with every chosen record taken once.
    """

    copies: NDArray[np.uint8]
    marks: NDArray[np.uint8]
    languages: dict[str, LanguageChoice]
    selection: Cuts
    factor: Fraction
    duplicates_before: int
    duplicates: int


def choose(index: Index, plan: MixPlan, folder: Path) -> Choice:
    """Draw the baseline, select in it, and say how often each record is to be written.

    One byte a record, twice, stays in memory; `folder` takes files of 24 bytes a record.

    Raises:
        InputError: if the plan asks for more than there is, or what is selected has no place.
    """
    weigh = _Weigher(index, plan)
    marks = np.zeros(len(index), np.uint8)
    corpus = weigh.total(lambda block: np.ones(len(block.score), bool))
    sizes = [
        plan.size_of(code, count.by(plan.by))
        for code, count in zip(index.languages, corpus, strict=True)
    ]
    if plan.size is None:
        marks |= IN_BASELINE
    else:
        drawn = weigh.draw("baseline")
        cuts = cut(drawn, sizes, at_least_one=True)
        for block in index.blocks():
            marks[block.rows] |= IN_BASELINE * cuts.before(weigh.keyed(block, "baseline"))

    def based(block: Block) -> NDArray[np.bool_]:
        return marks[block.rows] & IN_BASELINE > 0

    def is_selected(block: Block) -> NDArray[np.bool_]:
        return marks[block.rows] & SELECTED > 0

    baseline = weigh.total(based)
    selection = _select(index, plan, weigh, based, [one.by(plan.by) for one in baseline])
    for block in index.blocks():
        marks[block.rows] |= SELECTED * selection.before(score_places(block, plan))
    texts = deal_texts(index, folder, plan.seed)
    texts.close_over(marks)

    def chosen(block: Block) -> NDArray[np.bool_]:
        return based(block) & is_selected(block)

    def others(block: Block) -> NDArray[np.bool_]:
        return based(block) & ~is_selected(block)

    def fresh(block: Block) -> NDArray[np.bool_]:
        return marks[block.rows] & FRESH > 0

    counts = {
        name: weigh.total(test)
        for name, test in (("selected", chosen), ("others", others), ("fresh", fresh))
    }
    amounts = {
        name: [one.by(plan.by) for one in found]
        for name, found in {**counts, "baseline": baseline}.items()
    }
    budget = _budgets(index, plan, amounts)
    keep = cut(weigh.draw("others", others), budget.others)
    refill = cut(weigh.draw("reserve", fresh), budget.refill)
    copies = np.zeros(len(index), np.uint8)
    for block in index.blocks():
        here = copies[block.rows]
        here[others(block) & keep.before(weigh.keyed(block, "others"))] = 1
        here[fresh(block) & refill.before(weigh.keyed(block, "reserve"))] = 1
        here[chosen(block)] = budget.times
    if not copies.any():
        raise InputError(
            "nothing would be left in the mixture; select less of each language, or make the "
            "baseline smaller so that there is a reserve"
        )
    return Choice(
        copies,
        marks,
        _languages(weigh, marks, copies, selection, corpus, baseline, counts),
        selection,
        budget.factor,
        texts.duplicates(marks & IN_BASELINE),
        texts.duplicates(np.minimum(copies, 1)),
    )


def score_places(block: Block, plan: MixPlan) -> Places:
    """Places by descending score; equal scores are ordered by a draw from seed and content.

    Where the plan selects at random, places are drawn; copies of a text share theirs.
    """
    weight = block.tokens if plan.by == "tokens" else np.ones_like(block.tokens)
    if plan.select == "random":
        high = mixed(block.text, plan.seed, "random selection")
    else:
        high = score_order(block.score)
    return Places(block.language, high, mixed(block.record, plan.seed, "ties"), weight)


@dataclass(frozen=True)
class _Weigher:
    """Counts records and draws orders of them."""

    index: Index
    plan: MixPlan

    def total(self, test: Test, times: NDArray[np.uint8] | None = None) -> list[Count]:
        """Documents and tokens of each language that pass a test, taken so many times each."""
        size = len(self.index.languages)
        documents, tokens = np.zeros(size, np.int64), np.zeros(size, np.int64)
        for block in self.index.blocks():
            some = test(block)
            repeats = np.ones(int(some.sum())) if times is None else times[block.rows][some]
            language = block.language[some]
            documents += np.bincount(language, repeats, size).astype(np.int64)
            # As float64, exact up to 2**53 tokens a block.
            tokens += np.bincount(language, repeats * block.tokens[some], size).astype(np.int64)
        return [
            Count(int(n), int(t) if self.index.has_tokens else None)
            for n, t in zip(documents, tokens, strict=True)
        ]

    def keyed(self, block: Block, purpose: str) -> Places:
        """Places in the order drawn for a purpose."""
        weight = block.tokens if self.plan.by == "tokens" else np.ones_like(block.tokens)
        rows = np.arange(block.rows.start, block.rows.stop, dtype=np.uint64)
        return Places(block.language, mixed(block.record, self.plan.seed, purpose), rows, weight)

    def draw(self, purpose: str, test: Test | None = None) -> Blocks:
        """The same for all records, or those that pass a test, as `cut` reads them."""

        def blocks() -> Iterator[Places]:
            for block in self.index.blocks():
                places = self.keyed(block, purpose)
                yield places if test is None else places.where(test(block))

        return blocks


def _select(index: Index, plan: MixPlan, weigh: _Weigher, based: Test, totals: list[int]) -> Cuts:
    def blocks() -> Iterator[Places]:
        for block in index.blocks():
            yield score_places(block, plan).where(based(block))

    targets = [plan.selected_of(total) if total else 0 for total in totals]
    if plan.quantile == "streaming":
        return streaming_cut(blocks, targets)
    return cut(blocks, targets, at_least_one=True)


@dataclass(frozen=True)
class _Budget:
    """How much to keep of the others and to take from the reserve, by language."""

    others: list[int]
    refill: list[int]
    times: int
    factor: Fraction


def _budgets(index: Index, plan: MixPlan, amounts: dict[str, list[int]]) -> _Budget:
    baseline, selected = amounts["baseline"], amounts["selected"]
    none = [0] * len(baseline)
    if plan.kind == "baseline":
        return _Budget(amounts["others"], none, 1, Fraction(1))
    if plan.kind == "enhance":
        rest = [whole - plan.times * some for whole, some in zip(baseline, selected, strict=True)]
        for code, whole, some, left in zip(index.languages, baseline, selected, rest, strict=True):
            if left < 0:
                raise InputError(
                    f"{plan.times} times the {some} selected {plan.by} of {code!r} are more than "
                    f"the {whole} that the language has in the baseline; select less, or take "
                    "the selected documents fewer times"
                )
        return _Budget(rest, none, plan.times, Fraction(1))
    there = [kept + new for kept, new in zip(amounts["others"], amounts["fresh"], strict=True)]
    factor = min(
        (
            min(Fraction(1), Fraction(have, want))
            for have, want in zip(there, baseline, strict=True)
            if want
        ),
        default=Fraction(1),
    )
    targets = [round(factor * want) for want in baseline]
    refill = [max(0, want - kept) for want, kept in zip(targets, amounts["others"], strict=True)]
    return _Budget(targets, refill, 0, factor)


def _languages(
    weigh: _Weigher,
    marks: NDArray[np.uint8],
    copies: NDArray[np.uint8],
    selection: Cuts,
    corpus: list[Count],
    baseline: list[Count],
    counts: dict[str, list[Count]],
) -> dict[str, LanguageChoice]:
    index = weigh.index
    lowest = np.full(len(index.languages), np.inf)
    highest = np.full(len(index.languages), -np.inf)
    for block in index.blocks() if weigh.plan.select == "top" else ():
        based = marks[block.rows] & IN_BASELINE > 0
        before = selection.before(score_places(block, weigh.plan))
        some, rest = based & before, based & ~before
        np.minimum.at(lowest, block.language[some], block.score[some])
        np.maximum.at(highest, block.language[rest], block.score[rest])

    def written(want: np.uint8) -> list[Count]:
        def test(block: Block) -> NDArray[np.bool_]:
            what = marks[block.rows] & (IN_BASELINE | SELECTED)
            return np.asarray((copies[block.rows] > 0) & (what == want))

        return weigh.total(test)

    kept, refilled = written(IN_BASELINE), written(np.uint8(0))
    mixture = weigh.total(lambda block: copies[block.rows] > 0, copies)
    return {
        code: LanguageChoice(
            corpus[at],
            baseline[at],
            counts["selected"][at],
            _finite(lowest[at]),
            _finite(highest[at]),
            kept[at],
            counts["fresh"][at],
            refilled[at],
            mixture[at],
        )
        for code, at in sorted((code, at) for at, code in enumerate(index.languages))
    }


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
