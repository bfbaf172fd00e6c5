"""How often each record stands in a mixture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headscope.errors import InputError
from headscope.results.mixture import Count, LanguageMix
from headscope.use.mixing.cut import Blocks, Cuts, Places, cut, streaming_cut
from headscope.use.mixing.index import Block, Index, Mask, SameTexts, mixed, score_order
from headscope.use.mixing.plan import MixPlan


@dataclass(frozen=True)
class Choice:
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


def choose(index: Index, plan: MixPlan, folder: Path) -> Choice:
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
    kept = others & records.before(records.cut("others", budget.others, others), "others")
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
    return Choice(
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
        found = np.zeros(len(self.index), bool)
        for block in self.index.blocks():
            found[block.rows] = cuts.before(self.places(block, order))
        return found


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
