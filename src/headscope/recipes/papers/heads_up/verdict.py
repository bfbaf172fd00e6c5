"""What masks did on several tasks, counted: the sentences of Tables 1 and 2 come from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from headscope.recipes.papers.heads_up.beside import (
    NAME,
    SCALE,
    Beside,
    cell,
    changed,
    mean_cell,
    surely,
)
from headscope.recipes.papers.published import published
from headscope.recipes.papers.told import Bars, Cell

__all__ = [
    "Verdict",
    "bars",
    "published_reached",
    "reached",
    "share",
    "summary",
    "sureness",
    "values",
    "verdict",
    "way",
]


#: The conditions of a task by the paper's names, and what they are called in sentences.
SERIES = {
    "original": "as is",
    "random mask": "under random masks",
    "mask": "masked",
    "instructed": "instructed",
}


ROLES = ("original", "mask", "instructed")
#: The fields of a verdict that name tasks.
COUNTED = ("better", "surely", "worse", "controlled", "surely_controlled", "helped", "reached",
           "short")  # fmt: skip


@dataclass(frozen=True)
class Verdict:
    """Tasks by what their masks did to one measure.

    Attributes:
        ran: tasks whose masks were tested.
        better: those where the mask is better than the bare prompt; `surely` where the paired
            interval says so, `worse` where it says the opposite.
        controlled: those where it is better than the mean of the random masks of its size;
            `surely_controlled` by the paired interval. `draws` is how many masks there were.
        helped: those where an instruction helps; `reached` those of them where the mask is at
            least as good; `short` where the intervals of both do not meet and the instruction is
            better.
        means: of the conditions `original`, `instructed`, `mask`, `random mask`, over the tasks
            that have all of them, on the paper's scale.
        way: share of the way from the bare prompt to the instructed one that the mask goes, by the
            means over the tasks where an instruction helps; None where it helps in none.
    """

    ran: tuple[str, ...]
    better: tuple[str, ...]
    surely: tuple[str, ...]
    worse: tuple[str, ...]
    controlled: tuple[str, ...]
    surely_controlled: tuple[str, ...]
    helped: tuple[str, ...]
    reached: tuple[str, ...]
    short: tuple[str, ...]
    draws: int
    means: Mapping[str, float]
    way: float | None


def verdict(rows: Mapping[str, Mapping[str, Any]], measure: str, higher: bool) -> Verdict:
    """Count, over tasks with their conditions (`original`, `instructed`, `mask`, `random mask`)."""
    sign = 1 if higher else -1
    ran = {name: own for name, own in rows.items() if _known(own.get("mask"), measure)}
    found: dict[str, list[str]] = {name: [] for name in COUNTED}
    gone, whole_way = 0.0, 0.0
    for name, own in ran.items():
        mask, told, plain = own["mask"], own.get("instructed"), own.get("original")
        change = changed(mask, measure)
        control = changed(mask, measure, "against_shuffled")
        for key, difference in (("", change), ("controlled", control)):
            if difference is not None and sign * difference["value"] > 0:
                found[key or "better"].append(name)
            if surely(difference, sign):
                found["surely_controlled" if key else "surely"].append(name)
        if surely(change, -sign):
            found["worse"].append(name)
        if told is None or told.get(measure) is None:
            continue
        before = None if plain is None else plain.get(measure)
        whole = None if before is None else sign * (told[measure] - before)
        helps = whole is None or whole > 0
        if helps:
            found["helped"].append(name)
        if sign * (mask[measure] - told[measure]) < 0:
            if _apart(mask, told, measure, sign):
                found["short"].append(name)
        elif helps:
            found["reached"].append(name)
        if whole is not None and whole > 0:
            gone += sign * (mask[measure] - before)
            whole_way += whole
    return Verdict(
        tuple(ran),
        **{key: tuple(names) for key, names in found.items()},
        draws=max((len(own.get("random mask", ())) for own in ran.values()), default=0),
        means=_means(ran, measure),
        way=gone / whole_way if whole_way else None,
    )


def bars(title: str, rows: Mapping[str, Mapping[str, Any]], measure: str, y: str) -> Bars | None:
    """The conditions of each task whose mask was tested, with intervals; None where none was.

    Random masks are the mean of their draws, without an interval.
    """
    ran = {name: own for name, own in rows.items() if _known(own.get("mask"), measure)}
    if not ran:
        return None
    cells = {
        name: tuple(
            mean_cell(own[key], measure) if key == "random mask" else cell(own[key], measure)
            for key in SERIES
        )
        for name, own in ran.items()
    }

    def of(pick: Callable[[Cell], Any]) -> tuple[tuple[float | None, ...], ...]:
        return tuple(tuple(pick(one) for one in row) for row in cells.values())

    return Bars(
        title,
        tuple(cells),
        tuple(SERIES.values()),
        of(lambda one: one.value),
        y,
        of(lambda one: one.low),
        of(lambda one: one.high),
        digits=2,
    )


def share(part: tuple[str, ...], whole: tuple[str, ...], what: str) -> str:
    """How many of the tasks, in words: `all 4 directions`, `3 of 4 directions`, `no direction`."""
    if not part:
        return f"no {what}"
    if len(whole) == 1:
        return f"the one {what}"
    if len(part) == len(whole) == 2:
        return f"both {what}s"
    if len(part) == len(whole):
        return f"all {len(whole)} {what}s"
    return f"{len(part)} of {len(whole)} {what}s"


def values(one: Verdict) -> str:
    """The means in brackets, such as ` (mean 0.40 as is, 0.28 masked, 0.07 instructed)`."""
    known = [f"{one.means[key]:.2f} {word}" for key, word in SERIES.items() if key in one.means]
    return f" (mean {', '.join(known)})" if known else ""


def way(one: Verdict) -> str:
    """How far the mask goes towards what the instruction does, where that is known."""
    if one.way is None:
        return ""
    far = "more than twice" if one.way > 2 else f"{one.way:.0%} of"
    return f", {far} the way that the instruction goes{_where(one)}"


def reached(one: Verdict, what: str, measure: str, theirs: str = "") -> str:
    """Whether masks do as well as an instruction, and how often the paper's do."""
    if "instructed" not in one.means:
        return "The model was not asked with an instruction."
    if one.way is None and "original" in one.means:
        return f"An instruction helps this model in no {what}, so there is nothing to reach."
    if not one.reached:
        told = f"In no {what} does the mask reach the instructed {measure}{_where(one)}"
    else:
        told = (
            f"The masked {measure} is at least as good as the instructed one in "
            f"{share(one.reached, one.helped, what)}{_where(one)}"
        )
    return f"{told}{theirs}."


def _where(one: Verdict) -> str:
    """Of which tasks that is said, if not of all."""
    if len(one.helped) == len(one.ran):
        return ""
    return f" where it helps ({len(one.helped)} of {len(one.ran)})"


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


def summary(one: Verdict, name: str, what: str, measure: str) -> str:
    """One sentence for the paper's question: whether masks bring `name` out; empty if not run."""
    if not one.ran:
        return ""
    if not one.surely:
        return f"Without an instruction no mask surely has a better {measure} in any {what}."
    control = ""
    if one.draws and len(one.surely_controlled) < len(one.surely):
        control = (
            f", and surely better than under random masks in "
            f"{share(one.surely_controlled, one.ran, what)}"
        )
    if len(one.reached) == len(one.ran):
        return (
            f"Without an instruction masks have as good a {measure} as the instructed model in "
            f"{share(one.reached, one.ran, what)}{control}."
        )
    better = f"the {measure} is surely better in {share(one.surely, one.ran, what)}"
    if not one.helped:
        return (
            f"Without an instruction, which helps this model in no {what}, {better}{control}, "
            "under masks."
        )
    part = way(one) if one.way is not None and one.way > 0 else ""
    return f"Without an instruction masks bring {name} out in part: {better}{part}{control}."


def sureness(one: Verdict, what: str, measure: str, better: str) -> str:
    """How sure that is: intervals over examples, random masks, and what was not repeated."""
    if not one.ran:
        return ""
    told = [
        f"By paired 95 % intervals over held-out examples the masked {measure} is {better} than as "
        f"is in {share(one.surely, one.ran, what)}"
    ]
    if one.worse:
        told[0] += f", and worse in {len(one.worse)}"
    if one.draws:
        told[0] += (
            f"; {better} than under {one.draws} random masks of its size in "
            f"{share(one.surely_controlled, one.ran, what)}"
        )
    told[0] += "."
    if one.short:
        told.append(
            f"The interval of the mask lies apart from the instruction's, on the worse side, in "
            f"{share(one.short, one.ran, what)}."
        )
    told.append("Every mask was trained once, with one seed.")
    return " ".join(told)


def _known(row: Mapping[str, Any] | None, measure: str) -> bool:
    return row is not None and row.get(measure) is not None


def _apart(mask: Mapping[str, Any], told: Mapping[str, Any], measure: str, sign: int) -> bool:
    one, other = (row.get("intervals", {}).get(measure) for row in (mask, told))
    if one is None or other is None:
        return False
    return bool(one["high"] < other["low"] if sign > 0 else one["low"] > other["high"])


def _means(ran: Mapping[str, Mapping[str, Any]], measure: str) -> dict[str, float]:
    scale = SCALE.get(measure, 1.0)
    found = {}
    for name in ("original", "instructed", "mask", "random mask"):
        values = []
        for own in ran.values():
            rows = own.get(name) if name == "random mask" else [own.get(name)]
            if rows and all(_known(row, measure) for row in rows):
                values.append(fmean(row[measure] for row in rows if row))
        if values and len(values) == len(ran):
            found[name] = fmean(values) * scale
    return found
