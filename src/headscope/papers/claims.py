"""A paper's claims, each held against what was measured here.

Each claim has one test, of all its directions, languages or tasks together. It does not hold where
the interval of an effect excludes the effect that is claimed; it holds where that is not so, the
intervals of all its effects exclude that there is none, and no more random sets do as much than p
allows. Both are corrected for all claims of the paper in the same way (Holm), so that neither
verdict is easier than the other. The rank among random sets is ours, and needed; what else no paper
tests (sets of the same layers, random sets that are trained alike) is told beside a verdict and
decides none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import ceil, erfc, exp, hypot, isnan, lgamma, log, sqrt
from statistics import NormalDist
from typing import Any, Literal

from headscope.estimates import Estimate
from headscope.evidence.rows import Condition, Evidence, Tested
from headscope.measure.intervals import t_quantile, t_tail
from headscope.measure.sequence import draws_for
from headscope.measure.statistics import holm
from headscope.papers.paper import Experiment, Setting
from headscope.papers.published import PublishedClaim, published_claims
from headscope.papers.show import Answer
from headscope.shown.blocks import Claim, Findings, Table
from headscope.shown.words import count

#: What p, after Holm over the claims of a paper, may be at most.
LEVEL = 0.05
#: How many standard errors a 95 % interval reaches to either side.
ENDS = NormalDist().inv_cdf(0.975)
#: Behind so many counts a tail of Poisson's distribution has nothing left that counts.
FAR = 100
#: What a difference from random sets rests on: where draws ended at the first that does as much,
#: these are few, and chosen by what they do.
GIVEN_UP = "given up"
#: Why a claim is open where an effect was the same in every example, or not measured.
NO_INTERVAL = "an effect has no interval"


@dataclass(frozen=True)
class Effect:
    """One of the comparisons that a claim rests on.

    Attributes:
        estimate: its value with a 95 % interval.
        sign: 1 where the claim says that it is high, -1 where it says low.
        least: what it is if there is no effect.
        claimed: the least that the paper's words allow; None: it gives no size, so that only the
            opposite refutes.
        units: of how few values the interval is one of Student's t; None: a normal one.
        among: of how many it is the best, chosen by its value.
        decides: whether it can show the claim, refute it, or both.
    """

    estimate: Estimate
    sign: int = 1
    least: float = 0.0
    claimed: float | None = None
    units: int | None = None
    among: int = 1
    decides: Literal["both", "for", "against"] = "both"

    @property
    def p_values(self) -> tuple[float, float]:
        """Two-sided p that it is beyond `least`, and that it falls short of what is claimed.

        1 where it lies on the other side, or has no interval.
        """
        if not self.estimate.bounded:
            return 1.0, 1.0
        value = self.sign * self.estimate.value
        low, high = sorted(self.sign * end for end in (self.estimate.low, self.estimate.high))
        least = self.sign * self.least
        claimed = least if self.claimed is None else self.sign * self.claimed
        beyond, short = self._p(value - least, value - low), self._p(claimed - value, high - value)
        return min(1.0, self.among * beyond), short

    def _p(self, distance: float, half: float) -> float:
        """Of a distance in the direction in which the interval reaches so far."""
        if distance <= 0:
            return 1.0
        if half <= 0:  # that all values are the same tells nothing of others
            return 1.0
        if self.units is None:
            return erfc(ENDS * distance / half / sqrt(2))
        return t_tail(t_quantile(self.units - 1) * distance / half, self.units - 1)


def of_effects(
    claim: PublishedClaim,
    by: str,
    effects: Sequence[Effect],
    draws: Tested | None = None,
    *,
    sure: str,
    note: str = "",
) -> Claim:
    """A claim by its effects, all of which have to be there, and by its rank among random sets.

    Args:
        by: what was measured, with its n and intervals.
        draws: the test against random sets, which may show that these heads do more than any; None
            where the claim is about no heads.
        sure: what was tested.
        note: what controls of ours say, which decides nothing.
    """
    for_ = [effect.p_values[0] for effect in effects if effect.decides != "against"]
    against = [effect.p_values[1] for effect in effects if effect.decides != "for"]
    return Claim(
        **_stated(claim),
        by=by,
        p=max(for_, default=1.0),
        p_against=min(1.0, len(against) * min(against, default=1.0)),
        sure=sure,
        note=note,
        decides="" if all(effect.estimate.bounded for effect in effects) else NO_INTERVAL,
        **_ranked(draws),
    )


def of_count(
    claim: PublishedClaim, by: str, number: int, expected: float, *, sure: str, note: str = ""
) -> Claim:
    """A claim that something is more frequent than chance, which gives `expected`: the two tails of
    Poisson's distribution at the number, each twice as p of effects are."""

    def chance(count: int) -> float:
        return exp(count * log(expected) - expected - lgamma(count + 1)) if expected else not count

    more = sum(map(chance, range(number, number + ceil(2 * expected) + FAR)))
    at_most = sum(map(chance, range(number + 1)))
    p, p_against = (min(1.0, 2 * tail) for tail in (more, at_most))
    return Claim(**_stated(claim), by=by, p=p, p_against=p_against, sure=sure, note=note)


def of_heads(
    claim: PublishedClaim,
    table: Evidence,
    statistic: str,
    condition: Condition,
    by: Callable[[float, Estimate, float], str],
    part: str | None = None,
    *,
    claimed: float | None = None,
    control: str = "random",
) -> Claim:
    """A claim about some heads of a table of evidence: with them changed the statistic changes, by
    more than with `control`, and by more than with any random set.

    Its grounds are `by` of the statistic, of its change and of the mean of the control. `claimed`
    is the least change that the paper's words allow.
    """
    now, tests = table.level(statistic, condition, part), table.against(statistic, condition, part)
    test = tests.get(control)
    change = (now and now.change) or Estimate()
    mean = table.draws(statistic, condition, control, part).mean
    sign = -1 if test is not None and test.side == "lower" else 1
    effects = [Effect(change, sign, claimed=claimed)]
    if test is not None:
        few = test.ended == GIVEN_UP
        effects.append(Effect(test.difference, sign, decides="for" if few else "both"))
    grounds = by(now.value if now else Estimate().value, change, mean)
    sure = "its change, its difference from random heads, and its rank among random sets"
    return of_effects(
        claim, grounds, effects, tests.get("random"), sure=sure, note=same_layers(tests)
    )


def either(*ways: Claim) -> Claim:
    """A claim that holds if one of several ways, named beforehand, shows it: twice the better p of
    two; it does not hold only if no way can."""
    best = min(ways, key=_for)
    times = len(ways)

    def known(p: float | None) -> float | None:
        return None if p is None else min(1.0, times * p)

    return replace(
        best,
        by="; ".join(way.by for way in ways),
        p=known(best.p),
        p_draws=known(best.p_draws),
        least_p=known(best.least_p),
        p_against=max(1.0 if way.p_against is None else way.p_against for way in ways),
        sure=f"{best.sure}, in the better of {times} ways",
        note="; ".join(dict.fromkeys(way.note for way in ways if way.note)),
        rank="; ".join(way.rank for way in ways if way.rank),
    )


def same_layers(tests: Mapping[str, Tested]) -> str:
    """What random sets of the same layers say, which no paper draws; empty where there are none."""
    same = tests.get("same layers")
    if same is None or same.p_draws is None or not same.draws:
        return ""
    if same.p_draws <= LEVEL:
        return f"also more than heads of the same layers ({_rank(same)})"
    if (same.least_p or 0.0) > LEVEL:
        return f"the same layers have too few sets to tell ({_rank(same)})"
    return f"not shown to do more than heads of the same layers ({_rank(same)})"


def _stated(claim: PublishedClaim) -> dict[str, Any]:
    about = asdict(claim)
    return {name: value for name, value in about.items() if name != "paper"}


def _ranked(draws: Tested | None) -> dict[str, Any]:
    if draws is None or draws.p_draws is None:
        return {}
    most = draws.at_most or draws.draws
    least = 1 / (1 + most) if draws.at_most else draws.least_p
    return {"p_draws": draws.p_draws, "least_p": least, "rank": _rank(draws)}


def _rank(test: Tested) -> str:
    if test.at_least_as_harmful is None:
        return f"p {test.p_draws:.2g} over {count(test.draws, 'random set')}"
    return f"{test.share_as_far} random sets do as much"


def _for(claim: Claim) -> float:
    """p that a claim is shown by, before it is corrected."""
    if claim.p is None:
        return 1.0
    return max(claim.p, claim.p_draws or 0.0)


def judged(claims: Iterable[Claim], family: int | None = None) -> list[Claim]:
    """The claims with their verdicts, after Holm over the `family` of the paper's claims.

    Those that were not measured are among them; without it over these.
    """
    known = list(claims)
    others = [1.0] * ((family or len(known)) - len(known))
    size = len(known) + len(others)
    shown = holm([*map(_for, known), *others])
    intervals = holm([1.0 if each.p is None else each.p for each in known] + others)
    refuted = holm([1.0 if each.p_against is None else each.p_against for each in known] + others)
    found = []
    for claim, for_, by_interval, against in zip(known, shown, intervals, refuted, strict=False):
        holds = False if against <= LEVEL else True if for_ <= LEVEL else None
        why = claim.decides if holds is None else ""
        if holds is None and claim.measured and not why:
            if by_interval > LEVEL or claim.p_draws is None:
                why = "an interval, corrected for the number of claims, covers what would decide it"
            elif (claim.least_p or 0.0) * size > LEVEL:
                why = f"too few random sets: {draws_for(size, LEVEL)} are needed"
            else:
                why = f"{claim.rank}; more of them will not change that"
        found.append(replace(claim, holds=holds, decides=why))
    return found


def claimed(
    shown: Findings, *claims: Claim, tables: Iterable[Table] = (), in_words: bool = False
) -> Findings:
    """The same behind these tables, with claims; `in_words`: each a sentence of what was found."""
    if shown == Findings() and not claims and not tables:
        return shown
    words = [f"{claim.name}: {claim.by}." for claim in claims]
    return replace(
        shown,
        tables=(*tables, *shown.tables),
        found=" ".join(filter(None, [shown.found, *(words if in_words else ())])),
        more={**shown.more, "claims": [asdict(claim) for claim in claims]},
    )


def claims_of(findings: Mapping[str, Findings]) -> list[Claim]:
    """The claims of these experiments, in their order."""
    return [
        Claim(**claim)
        for findings_of in findings.values()
        for claim in findings_of.more.get("claims", ())
    ]


def answer_of(
    claims: Iterable[Claim], paper: Mapping[str, PublishedClaim], left: Sequence[str] = ()
) -> Answer:
    """All claims of a paper in its order, those that were not measured, too; how they were tested,
    and which experiments are `left`. Empty where nothing was measured."""
    measured = {claim.key: claim for claim in judged(claims, len(paper))}
    if not measured:
        return Answer()
    every = tuple(measured.get(key) or Claim(**_stated(claim)) for key, claim in paper.items())
    verdicts = [claim.verdict for claim in every]
    holding, failing, open_, unmeasured = map(
        verdicts.count, ("holds", "does not hold", "open", "not measured")
    )
    found = (
        f"Of {count(len(every), 'claim')} {holding} hold{'s' * (holding == 1)} here, {failing} "
        f"{'does' if failing == 1 else 'do'} not, {open_} {'is' if open_ == 1 else 'are'} open"
        + (f", {unmeasured} {'was' if unmeasured == 1 else 'were'} not measured." if unmeasured
           else ".")
    )  # fmt: skip
    able = sum((claim.least_p or 0.0) * len(every) <= LEVEL for claim in measured.values())
    sure = (
        f"With as many random sets as were planned {able} of {len(every)} could hold. Each has one "
        f"test; both verdicts are corrected for {len(every)} claims (Holm). All of it is one model."
    )
    missing = f" Not answered here: {', '.join(left)}." if left else ""
    return Answer(found=found, sure=sure + missing, claims=every)


def answering(
    paper: str,
    experiments: Sequence[Experiment],
    named: Callable[[Experiment], str] = lambda experiment: experiment.elements[0],
) -> Callable[[Setting, Mapping[str, Findings]], Answer]:
    """A paper's answer: the claims of its experiments, and those that found nothing, `named`."""

    def answer(setting: Setting, findings: Mapping[str, Findings]) -> Answer:
        answered = {name for name, shown in findings.items() if shown.found}
        left = [named(experiment) for experiment in experiments if experiment.name not in answered]
        return answer_of(claims_of(findings), published_claims(paper), left)

    return answer


def minus(a: Estimate, b: Estimate) -> Estimate:
    """The difference of two independent values, whose errors add up in squares."""
    value = a.value - b.value
    below, above = (
        hypot(a.value - a.low, b.high - b.value),
        hypot(a.high - a.value, b.value - b.low),
    )
    return Estimate(value, value - below, value + above)


def jackknife(values: Callable[[Sequence[str]], float], units: Sequence[str]) -> Estimate:
    """A value of several units, such as directions, with an interval of Student's t from what it is
    without each of them (Tukey 1958); no interval of fewer than three."""
    value, n = values(units), len(units)
    if n < 3 or isnan(value):
        return Estimate(value)
    without = [values([other for other in units if other != unit]) for unit in units]
    mean = sum(without) / n
    error = sqrt((n - 1) / n * sum((each - mean) ** 2 for each in without))
    half = t_quantile(n - 1) * error
    return Estimate(value, value - half, value + half)
