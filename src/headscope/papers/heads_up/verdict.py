"""Masks beside no mask, an instruction and random masks: what tasks show, and what is claimed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from headscope.papers.claims import of_interval, of_removal
from headscope.papers.heads_up.beside import (
    NAME,
    SCALE,
    Beside,
    cell,
    changed,
    mean_cell,
    not_run,
)
from headscope.papers.published import published
from headscope.shown.blocks import NOT_RUN, Bars, Cell, Claim, p_cell

#: The conditions of each task by the paper's names; `random mask` holds draws, `examples` a number.
Tasks = Mapping[str, Mapping[str, Any]]

#: The conditions of a task by the paper's names, and what they are called in sentences.
SERIES = {
    "original": "as is",
    "random mask": "under random masks",
    "mask": "masked",
    "instructed": "instructed",
}
ROLES = ("original", "mask", "instructed")
#: What measures are called, and on which side of zero a difference is better.
MEASURES = {
    "nll": ("loss", -1),
    "rouge_l": ("ROUGE-L", 1),
    "accuracy": ("accuracy", 1),
    "bleu_published": ("BLEU", 1),
}
#: Of the tests of several tasks the figure that shows least.
WEAKEST = {"p_draws": max, "p_examples": max, "least_p": max, "distinct_draws": min}


def words_of(rows: Tasks, measure: str, what: str, theirs: str = "") -> str:
    """What masks did to a measure, in figures; empty where none was tested.

    How often it is better than as it is, and, where an instruction helps, how much of the
    difference that this makes the masks make together, and how often they reach it.
    """
    ran = _ran(rows, measure)
    if not ran:
        return ""
    word, sign = MEASURES[measure]
    changes = [changed(own["mask"], measure) for own in ran.values()]
    better = sum(one is not None and sign * one["value"] > 0 for one in changes)
    told = (
        f"Without an instruction the {word} is better under the mask than as it is in {better} of "
        f"{len(ran)} {what}s."
    )
    # Turned so that more is better.
    known = [
        [sign * float(own[name][measure]) for name in ROLES]
        for own in ran.values()
        if all(_known(own.get(name), measure) for name in ROLES)
    ]
    if not known:
        return f"{told} The model was not asked with an instruction."
    helped = [one for one in known if one[2] > one[0]]
    if not helped:
        return f"{told} An instruction helps in none, so there is nothing to reach."
    gone = sum(one[1] - one[0] for one in helped) / sum(one[2] - one[0] for one in helped)
    good = sum(one[1] >= one[2] for one in helped)
    far = "more than twice" if gone > 2 else f"{gone:.0%} of"
    return (
        f"{told} Where an instruction helps ({len(helped)} of {len(ran)}), masks go {far} its way, "
        f"and do at least as well in {good}{theirs}."
    )


def without_instruction(rows: Tasks, measures: Sequence[str], what: str, task: str) -> list[Claim]:
    """That masks bring `what` out in every task, and do at least as well as an instruction.

    A claim by loss is one of its own beside that by what the model writes.
    """
    claims = []
    for measure in measures:
        ran = _ran(rows, measure)
        if not ran:
            continue
        end = ", by loss" if measure == "nll" else ""
        named = f"masks bring {what} out without an instruction{end}"
        claims.append(of_masks(named, ran, measure, task, MEASURES[measure][1]))
        named = f"masks do at least as well as an instruction in every {task}{end}"
        claims += as_instructed(named, ran, measure, task)
    return claims


def as_instructed(name: str, rows: Tasks, measure: str, task: str) -> list[Claim]:
    """The claim that the masked model reaches the instructed one, by paired intervals.

    None where a task has no such interval.
    """
    paired = [changed(own["mask"], measure, "against_instructed") for own in rows.values()]
    known = [one for one in paired if one is not None]
    if not known or len(known) < len(rows):
        return []
    word, sign = MEASURES[measure]
    better = sum(min(sign * one["low"], sign * one["high"]) > 0 for one in known)
    worse = sum(max(sign * one["low"], sign * one["high"]) < 0 for one in known)
    by = f"{word} better in {better} and worse in {worse} of {_all_of(rows, task)}"
    return [of_interval(name, _least(known, sign), by, "paired intervals", sign=sign)]


def of_masks(
    name: str,
    rows: Tasks,
    measure: str,
    task: str,
    sign: int,
    words: Mapping[str, str] = SERIES,
    random: str = "shuffled",
) -> Claim:
    """A claim that each of these masks does more than random ones of its size.

    It holds as far as that of the least sure of them does: the tests of each have to hold, so none
    is corrected for the others, and the largest p is that of all (intersection-union test, Berger
    1982). `task` says what the rows are of, `words` what their conditions are, and `random` is the
    kind of the random masks.
    """
    masks = [own["mask"] for own in rows.values()]
    against = [changed(one, measure, f"against_{random}") for one in masks]
    row: dict[str, Any] = {"against_random": _least(against, sign)}
    for ending in ("", "_layer_matched"):
        for key, pick in WEAKEST.items():
            found = [one.get(f"{key}_{random}{ending}") for one in masks]
            each = [one.get(measure) if isinstance(one, Mapping) else one for one in found]
            known = [one for one in each if one is not None]
            if len(known) == len(masks):
                row[f"{key}{ending}"] = pick(known)
    change = _least([changed(one, measure) for one in masks], sign)
    by = f"{MEASURES[measure][0]} {_values(rows, measure, words)}; {_all_of(rows, task)}"
    return of_removal(name, row, by, change=change, sign=sign)


def _all_of(rows: Tasks, task: str) -> str:
    """The number of tasks and of their examples."""
    sizes = sorted(own["examples"] for own in rows.values())
    size = " to ".join(dict.fromkeys((f"{sizes[0]}", f"{sizes[-1]}")))
    return f"{len(rows)} {task}{'' if len(rows) == 1 else 's'} of {size} examples"


def tests(mask: Mapping[str, Any] | None, measure: str) -> dict[str, Cell]:
    """What a claim about this mask rests on: its difference to random masks, and the p-values."""
    beside = changed(mask, measure, "against_shuffled")
    examples, free, matched = (
        ((mask or {}).get(f"p_{key}") or {}).get(measure)
        for key in ("examples_shuffled", "draws_shuffled", "draws_shuffled_layer_matched")
    )
    less, scale = not_run(), SCALE.get(measure, 1.0)
    if beside is not None:
        less = Cell(scale * beside["value"], scale * beside["low"], scale * beside["high"])
    layers = "" if matched is None else f" ({matched:.2g})"
    return {
        "mask less random masks": less,
        "p over examples": not_run() if examples is None else p_cell(examples),
        "p over draws (of the same layers)": Cell(
            None if free is None else f"{free:.2g}{layers}", why=NOT_RUN
        ),
    }


def bars(title: str, rows: Tasks, measure: str, y: str) -> tuple[Bars, ...]:
    """The conditions of each task whose mask was tested, with intervals; none where none was.

    Random masks are the mean of their draws, without an interval.
    """
    ran = _ran(rows, measure)
    cells = [
        [
            mean_cell(own[key], measure) if key == "random mask" else cell(own[key], measure)
            for key in SERIES
        ]
        for own in ran.values()
    ]
    value, low, high = (
        tuple(tuple(getattr(one, end) for one in row) for row in cells)
        for end in ("value", "low", "high")
    )
    made = Bars(title, tuple(ran), tuple(SERIES.values()), value, y, low, high, digits=2)
    return (made,) if ran else ()


def published_reached(place: Beside, measure: str, higher: bool) -> str:
    """In how many of a published table's tasks the mask does as well as an instruction that helps.

    Its columns of averages are no tasks.
    """
    by: dict[str, dict[str, float]] = {}
    for figure in published(NAME):
        mean = figure.column.casefold() == "average"
        if figure.table == place.table and figure.measure == measure and not mean:
            by.setdefault(figure.column, {})[figure.row] = figure.value
    sign = 1 if higher else -1
    both = [
        (own["mask"], own["instructed"])
        for own in by.values()
        if {*ROLES} <= own.keys() and sign * (own["instructed"] - own["original"]) > 0
    ]
    if not both:
        return ""
    good = sum(sign * (mask - told) >= 0 for mask, told in both)
    return f" (in the paper, {place.reference.model}: {good} of {len(both)})"


def _ran(rows: Tasks, measure: str) -> dict[str, Mapping[str, Any]]:
    """The tasks whose masks were tested by this measure."""
    return {name: own for name, own in rows.items() if _known(own.get("mask"), measure)}


def _known(row: Mapping[str, Any] | None, measure: str) -> bool:
    return row is not None and row.get(measure) is not None


def _least(differences: Sequence[Mapping[str, float] | None], sign: int) -> dict[str, float | None]:
    """The bounds that lie least far on the side of `sign`; None where a difference has none."""
    known = [one for one in differences if one is not None]
    if not known or len(known) < len(differences):
        return {"low": None, "high": None}
    pick = min if sign > 0 else max
    return {end: pick(one[end] for one in known) for end in ("low", "high")}


def _values(rows: Tasks, measure: str, words: Mapping[str, str] = SERIES) -> str:
    """The means of the conditions that all tasks have, such as `0.402 as is, 0.281 masked`."""
    found = []
    for key, word in words.items():
        # Of random masks first the mean over their draws.
        each = [own.get(key) for own in rows.values()]
        drawn = [[one] if isinstance(one, Mapping) else one or [] for one in each]
        if all(own and all(_known(one, measure) for one in own) for own in drawn):
            mean = fmean(fmean(one[measure] for one in own) for own in drawn)
            found.append(f"{SCALE.get(measure, 1.0) * mean:.3f} {word}")
    return ", ".join(found)
