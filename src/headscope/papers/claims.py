"""A paper's claims, each held against what was measured here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from math import isnan, nan

from headscope.estimates import Estimate
from headscope.evidence.rows import Condition, Evidence, Tested
from headscope.measure.statistics import holm
from headscope.papers.paper import Experiment, Setting
from headscope.papers.show import Answer
from headscope.shown.blocks import VERDICTS, Claim, Findings, Table
from headscope.shown.words import count

#: What p over draws, after Holm over the claims of a paper, may be at most.
LEVEL = 0.05
MORE, SETS = "more examples", "more random sets"
#: By what a claim is refuted.
OPPOSITE = "a 95 % interval on the other side, uncorrected, where a claim does not hold"


def of_tests(
    name: str, tests: Mapping[str, Tested], by: str, change: Estimate | None = None
) -> Claim:
    """A claim that a change of these heads does more than the same change of random ones.

    It holds where the interval of the difference from random heads lies on the side that is
    claimed, that of the `change` from the original model likewise, and p over draws is at most
    0.05 against random heads and against those of the same layers. Where only the first holds, the
    claim is that of more than heads at any depth; where the layers have too few sets to tell, it
    is open. It does not hold where either interval lies on the other side. `judged` corrects p.
    """
    free, same = tests.get("random"), tests.get("same layers")
    if free is None or free.p_draws is None:
        return Claim(name, None, by, decides="random sets of heads")
    sign = 1 if free.side == "higher" else -1
    spans = [_ends(gap, sign) for gap in (free.difference, change) if gap is not None]
    by += f"; {_rank(free)}"
    if same is not None and same.p_draws is not None:
        by += f", of the same layers {_rank(same, '')}"
    if any(high is not None and high < 0 for _, high in spans):
        return Claim(name, False, by, OPPOSITE, free.p_draws)
    needed = [MORE] if any(low is None or low <= 0 for low, _ in spans) else []
    if (free.least_p or 0.0) > LEVEL:
        needed.append("19 random sets or more, where the model has so many")
    elif free.p_draws > LEVEL:
        needed.append(f"{SETS}: some of these do as much")
    beyond = "random heads" if change is None else "the original model and random heads"
    tested = f"its interval against {beyond}, random sets, and those of the same layers (Holm)"
    if same is None or same.p_draws is None:
        needed.append("random sets of the same layers")
    elif (same.least_p or 0.0) > LEVEL and most(same) < most(free):
        sets = count(most(same), "different set")
        needed.append(f"more heads a layer: these layers have only {sets}")
    elif not needed and same.p_draws > LEVEL:
        return Claim(f"{name}, more than heads at any depth", True, by, tested, free.p_draws)
    p = free.p_draws if same is None else max(free.p_draws, same.p_draws or 0.0)
    return Claim(name, None if needed else True, by, tested, p, "; ".join(needed))


def _rank(test: Tested, sets: str = " random sets") -> str:
    """How many sets of a control do as much, and p before Holm."""
    if test.at_least_as_harmful is None:
        return f"p {test.p_draws:.2g} over {test.draws}{sets}"
    return f"{test.share_as_far}{sets} do as much (p {test.p_draws:.2g})"


def most(test: Tested) -> int:
    """How many random sets there may be, whether all were drawn or not."""
    return test.at_most or test.draws


def of_heads(
    name: str,
    table: Evidence,
    statistic: str,
    condition: Condition,
    by: Callable[[float, Estimate, float], str],
    part: str | None = None,
) -> Claim:
    """A claim about some heads of a table of evidence; its grounds are `by` of the statistic with
    them changed, the change from the original model, and the mean of random heads."""
    now = table.level(statistic, condition, part)
    change = (now and now.change) or Estimate()
    random = table.draws(statistic, condition, "random", part).mean
    grounds = by(now.value if now else nan, change, random)
    return of_tests(name, table.against(statistic, condition, part), grounds, change)


def of_interval(name: str, interval: Estimate, by: str, tested: str, *, sign: int) -> Claim:
    """A claim that an interval alone decides, by the side of zero that all of it lies on.

    `sign` is the side that is claimed, `tested` says of what the interval is.
    """
    low, high = _ends(interval, sign)
    if high is not None and high < 0:
        return Claim(name, False, by, OPPOSITE)
    holds = low is not None and low > 0
    return Claim(name, holds or None, by, tested, decides="" if holds else MORE)


def _ends(interval: Estimate, sign: int) -> tuple[float | None, float | None]:
    """Of an interval, turned so that what is claimed lies above zero; None where it has none."""
    known = sorted(sign * end for end in (interval.low, interval.high) if not isnan(end))
    return (known[0], known[1]) if len(known) == 2 else (None, None)


def claimed(
    shown: Findings, *claims: Claim, tables: Iterable[Table] = (), in_words: bool = False
) -> Findings:
    """The same behind these tables, with claims; `in_words`: each a sentence of what was found."""
    if shown == Findings() and not claims and not tables:
        return shown
    words = [f"{claim.name[:1].upper()}{claim.name[1:]}: {claim.by}." for claim in claims]
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


def judged(claims: Iterable[Claim]) -> list[Claim]:
    """The claims, with those open whose p over draws is above 0.05 after Holm over all."""
    known = list(claims)
    corrected = iter(holm([claim.p for claim in known if claim.p is not None]))
    found = []
    for claim in known:
        p = None if claim.p is None else next(corrected)
        if claim.holds is not False and p is not None and p > LEVEL:
            more = (
                ""
                if "random sets" in claim.decides
                else f"{SETS}: p over draws is {p:.2g} after Holm"
            )
            claim = replace(
                claim, holds=None, decides="; ".join(filter(None, (claim.decides, more)))
            )
        found.append(claim)
    return found


def answer_of(claims: Iterable[Claim], left: Sequence[str] = ()) -> Answer:
    """All claims, decided ones first; how they were tested, and which experiments are `left`.

    Empty without claims.
    """
    known = sorted(judged(claims), key=lambda claim: VERDICTS.index(claim.verdict))
    if not known:
        return Answer()
    tested = [claim.holds for claim in known if claim.tested]
    holding, failing, open_ = map(tested.count, (True, False, None))
    ways = dict.fromkeys(claim.sure for claim in known if claim.sure)
    found = (
        f"Of {count(len(tested), 'tested claim')} {holding} hold{'s' * (holding == 1)} here, "
        f"{failing} {'does' if failing == 1 else 'do'} not, {open_} "
        f"{'is' if open_ == 1 else 'are'} open."
        if tested
        else "No claim was tested."
    )
    sure = f"Tested by {'; by '.join(ways)}." if ways else "Nothing was tested."
    missing = f" Not answered here: {', '.join(left)}." if left else ""
    sure += f" All of it is one model.{missing}"
    return Answer(found=found, sure=sure, claims=tuple(known))


def answering(
    experiments: Sequence[Experiment],
    named: Callable[[Experiment], str] = lambda experiment: experiment.elements[0],
) -> Callable[[Setting, Mapping[str, Findings]], Answer]:
    """A paper's answer: the claims of its experiments, and those that found nothing, `named`."""

    def answer(setting: Setting, findings: Mapping[str, Findings]) -> Answer:
        answered = {name for name, shown in findings.items() if shown.found}
        left = [named(experiment) for experiment in experiments if experiment.name not in answered]
        return answer_of(claims_of(findings), left)

    return answer
