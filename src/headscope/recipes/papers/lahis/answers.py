"""The paper's question answered for one model, from what its experiments told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headscope.recipes.papers.claims import LEVEL, Claim, judged
from headscope.recipes.papers.lahis.words import count, several, span
from headscope.recipes.papers.paper import Setting
from headscope.recipes.papers.told import Told

__all__ = ["answer"]


def answer(setting: Setting, told: Mapping[str, Told]) -> tuple[str, str]:
    """Whether this model has heads of languages, and what they are good for; and how sure."""
    more = {name: one.more for name, one in told.items() if one.found}
    found = [
        sentence
        for name, says in ANSWERS.items()
        if name in more and (sentence := says(more[name]))
    ]
    if not found:
        return "", ""
    left = [name for name in ANSWERS if name not in more]
    sure = (
        "Counts are of languages whose whole 95 % interval lies on that side; each interval is of "
        "its own, so with many of them one in forty lies there by chance."
    )
    if "importance" in more and more["importance"]["halves"]:
        halves = more["importance"]["halves"]
        sure += (
            f" Two halves of a language's documents agree on its important heads to a Jaccard "
            f"index of {min(halves):.2f} at least."
        )
    if left:
        sure += f" Not answered here: {', '.join(left)}."
    return " ".join(found), sure


#: Whether more outputs are in another language than from the untouched model, and than without
#: random heads.
LEAVES = {
    (True, True): "surely more than from the untouched model and than without random heads",
    (True, False): "surely more than from the untouched model, but not than without random heads",
    (
        False,
        True,
    ): "not surely more than from the untouched model, but surely more than without random heads",
    (False, False): "not surely more than from the untouched model, nor than without random heads",
}


def _heads_there(more: Mapping[str, Any]) -> str:
    sizes = list(more["specific"].values())
    taken = (
        f"A quantile makes the heads of each language ({span(sizes, 0)} specific ones), so that "
        "there are such heads is no finding; what they do was tested."
    )
    if more["general_in"] is None:
        return taken
    return (
        f"{taken} {count(more['general'], 'head')} {'is' if more['general'] == 1 else 'are'} "
        f"important in at least {more['general_in']} of {len(sizes)} languages, where chance gives "
        f"{more['general_expected']:.2g}."
    )


def _depends(more: Mapping[str, Any]) -> str:
    if not more["with_heads"]:
        return ""
    claims = judged(Claim(**one) for one in more["claims"])
    n = len(claims)
    counts = [sum(one.holds is holds for one in claims) for holds in (True, False, None)]
    told = (
        "Text needs the heads specific to its language more than random ones "
        f"{several(counts[0], n)}"
    )
    if counts[1]:
        told += f", less than these {several(counts[1], n)}"
    if counts[2]:
        ways = dict.fromkeys(one.decides for one in claims if one.holds is None)
        told += f"; open {several(counts[2], n)} ({'; '.join(ways)})"
    return (
        f"{told}. Asked are the interval beside random heads, p over documents after Holm over "
        f"{n} languages, and p over draws of at most {LEVEL:g}."
    )


def _own(more: Mapping[str, Any]) -> str:
    if not more:
        return ""
    n, most, surely = (more[key] for key in ("languages", "own_most", "own_most_surely"))
    if not most:
        return "No language's own text loses most without its heads."
    return f"The loss is largest for the own text {several(most, n)}, surely in {surely or 'none'}."


def _shared(more: Mapping[str, Any]) -> str:
    task = "repeating sentences" if more["repeats"] else "summaries"
    if more["direction"] < 0 and more["against_random"] < 0:
        return f"General heads are needed for {task}, more than random ones."
    if more["direction"] < 0:
        return f"Without general heads {task} suffer, but not surely more than without random ones."
    return f"Without general heads {task} do not surely suffer."


def _leaves(more: Mapping[str, Any]) -> str:
    kinds = {ask: one["specific"] for ask, one in more.items() if "specific" in one}
    if not kinds:
        return ""
    doing = {"translate": "translating", "continue": "going on with documents"}
    said = [
        f"when {doing[ask]}, {LEAVES[one['change'] > 0, one['against_random'] > 0]}"
        for ask, one in kinds.items()
    ]
    return f"Outputs in another language, without a language's own heads: {'; '.join(said)}."


def _led_back(more: Mapping[str, Any]) -> str:
    ways = {"x3": "turning its heads up", "away x0": "removing the other language's heads"}
    helping = [way for kind, way in ways.items() if more.get(kind)]
    less = (
        f"become fewer by {' and by '.join(helping)}" if helping else "do not surely become fewer"
    )
    return f"Answers in another language than asked for {less}."


def _believed(more: Mapping[str, Any]) -> str:
    told = {
        "up": "Turning a language's heads up",
        "down": "Removing the other language's heads",
    }
    texts = []
    for kind, what in told.items():
        cases = [one[kind] for one in more.values() if kind in one]
        if not cases:
            continue
        surely = sum(one["change"] > 0 and one["against_random"] > 0 for one in cases)
        if surely == len(cases):
            texts.append(f"{what} surely makes its statement believed more often.")
        elif surely:
            texts.append(
                f"{what} surely makes its statement believed more often in {surely} of "
                f"{len(cases)} pairs."
            )
        else:
            texts.append(
                f"{what} does not surely decide which statement is believed, beside random heads."
            )
    return " ".join(texts)


def _adapted(more: Mapping[str, Any]) -> str:
    n = len(more)
    better = sum(one["change"] > 0 and one["against_random"] > 0 for one in more.values())
    trained = count(max(one["gates"] for one in more.values()), "trained gate")
    where = "" if n == 1 else f" in {better} of {n} languages"
    if better:
        return (
            f"{trained} surely answer more questions than the untouched model and "
            f"than random gates trained alike{where}."
        )
    raised = sum(one["change"] > 0 for one in more.values())
    where_raised = "" if n == 1 else f" in {raised} of {n} languages"
    if raised:
        return (
            f"{trained} surely answer more questions{where_raised}, but not surely more than gates "
            "of random heads trained alike."
        )
    return f"{trained} do not surely answer more questions."


#: What each experiment adds to the answer, from what it told beside its tables.
ANSWERS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "language-heads": _heads_there,
    "ppl": _depends,
    "ppl-cross": _own,
    "general-head": _shared,
    "off-target": _leaves,
    "mitigation": _led_back,
    "attn-transfer": _believed,
    "head-mask": _adapted,
}
