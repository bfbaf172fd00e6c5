"""The paper's question answered for one model, from what its experiments told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headscope.recipes.papers.lahis.words import count, several
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
        "its own, so with many of them one in forty lies there by chance. Which heads are specific "
        "depends on the documents they were found on, which no interval here holds."
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


def _heads_there(more: Mapping[str, Any]) -> str:
    with_own = sum(number > 0 for number in more["specific"].values())
    general = count(more["general"], "general head") if more["general"] else "no general head"
    return (
        f"The method finds heads specific to {with_own} of {len(more['specific'])} languages, and "
        f"{general}."
    )


def _depends(more: Mapping[str, Any]) -> str:
    if not more["with_heads"]:
        return ""
    surely, n = more["above_random_surely"], more["with_heads"]
    if not surely:
        return "No language's text surely loses more without its heads than without random ones."
    return (
        f"A language's text surely loses more without its own heads than without random ones "
        f"{several(surely, n)}."
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
    kinds = [one["specific"] for one in more.values() if "specific" in one]
    if not kinds:
        return ""
    if any(one["change"] > 0 and one["against_random"] > 0 for one in kinds):
        where = " and ".join(
            {"translate": "translating", "continue": "going on with documents"}[ask]
            for ask, one in more.items()
            if one.get("specific", {}).get("change", 0) > 0
            and one["specific"]["against_random"] > 0
        )
        return f"Without a language's heads the model leaves it more often, when {where}."
    return "Without a language's heads the model does not surely leave it more than without others."


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
    if raised:
        return (
            f"{trained} surely answer more questions, but not surely more than gates "
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
    "attn-transfer": _believed,
    "head-mask": _adapted,
}
