"""Tables and sentences of what other tasks lose without the heads."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from headscope.papers.claims import with_claims
from headscope.papers.paper import Setting
from headscope.papers.published import value
from headscope.papers.token_alignment_heads.cells import (
    cell,
    hundred,
    less,
    percent,
    random_mean,
    sentence,
    sets_of,
    text,
    tops,
)
from headscope.papers.token_alignment_heads.setting import NAME, bound
from headscope.pocket.tasks import CROSS_LINGUAL
from headscope.shown.blocks import Bars, Cell, Claim, Row, Table

MORE = "more examples of each task"
TRANSLATION = (("chrf", "chrF++", 1.0), ("bleu", "BLEU", 1.0))
LEARNT = (("bleurt", "BLEURT", 100.0), ("comet", "COMET", 100.0))


def task_claim(found: Mapping[str, Any]) -> dict[str, Any]:
    """That tasks within one language need the heads less; empty where no task needs a mapping."""
    families = _families(found)
    if families is None:
        return {}
    across, within, holds = families
    by = f"tasks across languages {across:+.1f} points, within one {within:+.1f}"
    # Random heads are told in the table, and no test of the families has them beside.
    return with_claims(Claim("other tasks need the heads less", holds, by, decides=MORE))


def _families(found: Mapping[str, Any]) -> tuple[float, float, bool | None] | None:
    """Mean changes, in points, of tasks that need a mapping and of others; is the first worse?

    By the means of the bounds, which is more careful than an interval of the mean: None where the
    two families overlap. None for all where one of the families has no task.
    """
    cross = {task.name for task in CROSS_LINGUAL}
    changes = {name: _top(one)["change"] for name, one in found["tasks"].items()}
    over = [one for name, one in changes.items() if name in cross]
    within = [one for name, one in changes.items() if name not in cross]
    if not over or not within:
        return None
    holds: bool | None = None
    if all(one.get("low") is not None for one in (*over, *within)):
        if fmean(one["high"] for one in over) < fmean(one["low"] for one in within):
            holds = True
        elif fmean(one["low"] for one in over) > fmean(one["high"] for one in within):
            holds = False
    means = [100 * fmean(one["value"] for one in family) for family in (over, within)]
    return means[0], means[1], holds


def _top(one: Mapping[str, Any]) -> Mapping[str, Any]:
    """The condition without the chosen heads; of several the largest."""
    tops = [row for row in one["conditions"] if row["kind"] == "top"]
    return max(tops, key=lambda row: int(row["k"]))


def _drawn(one: Mapping[str, Any], kind: str) -> float | None:
    k = _top(one)["k"]
    values = [row["value"] for row in one["conditions"] if row["kind"] == kind and row["k"] == k]
    return fmean(values) if values else None


def tasks_table(setting: Setting, found: Mapping[str, Any] | None) -> Table | None:
    """Every task as it is, without the heads, and without random ones."""
    if found is None:
        return None
    most = value(
        NAME, "Section 5.2", model="any", row="removal", column="largest drop", measure="accuracy"
    )
    changes = {name: _top(one)["change"]["value"] for name, one in found["tasks"].items()}
    worst = min(changes, key=lambda name: changes[name])
    rows = []
    for name, one in found["tasks"].items():
        base, top = one["baseline"], _top(one)
        change, against = top["change"], top.get("against_random") or {}
        drawn = _drawn(one, "random")
        matched = _drawn(one, "random-layer-matched")
        rows.append(
            Row(
                name,
                (
                    text(one["metric"]),
                    cell(one["examples"], digits=0),
                    _points(base),
                    _points(change, -most if most is not None and name == worst else None),
                    hundred(less(drawn, base["value"])),
                    hundred(less(matched, base["value"])),
                    _points(against),
                ),
            )
        )
    columns = (
        "metric",
        "examples",
        "as it is %",
        "change without the heads",
        "without random ones",
        "of the same layers",
        "chosen less random",
    )
    note = sentence(
        f"In points of a hundred; {sets_of(next(iter(found['tasks'].values())))}. Published: the "
        "largest loss of accuracy that the paper tells, beside our largest.",
        "The tasks are made from the pocket world; the paper's are other ones."
        if not setting.data.benchmarks
        else "",
    )
    cited = bound(setting, "Section 5.2")
    return Table("Tasks without the heads", columns, tuple(rows), cited, note)


def _points(found: Mapping[str, Any], published: float | None = None) -> Cell:
    """Points of a hundred; `published` in such points already."""
    ours = (percent(found.get(name)) for name in ("value", "low", "high"))
    return cell(*ours, published=published, digits=1)


def measures_table(setting: Setting, removal: Mapping[str, Any] | None) -> Table | None:
    """Translation by four measures, of which two are commands of their own."""
    if removal is None:
        return None
    base = removal["baseline"]
    removed = tops(removal)
    if not removed:
        return None
    top = max(removed, key=lambda row: int(row["k"]))
    missing = removal.get("not_measured") or {}
    rows = []
    for key, name, times in (*TRANSLATION, *LEARNT):
        values = [
            base.get(key),
            less(top.get(key), base.get(key)),
            less(random_mean(removal, "random", top["k"], key), base.get(key)),
        ]
        shown = [None if one is None else times * one for one in values]
        rows.append(Row(name, tuple(cell(one, digits=1, why="not measured") for one in shown)))
    columns = ("as it is", f"change without the top {top['k']}", "without random ones")
    reasons = [f"{name} ({missing[key]})" for key, name, _ in LEARNT if missing.get(key)]
    note = sentence(
        "BLEURT and COMET times 100; each is a command of its own, named by HEADSCOPE_BLEURT and "
        "HEADSCOPE_COMET.",
        f"Not measured: {'; '.join(reasons)}; Figures 19 to 21, which have both, are shown in part."
        if reasons
        else "",
    )
    return Table("Translation by four measures", columns, tuple(rows), note=note)


def change_bars(found: Mapping[str, Any], removal: Mapping[str, Any] | None) -> Bars:
    """The change of every task, and of translation, without the heads and without random ones."""
    names, values, lows, highs = [], [], [], []
    for name, one in found["tasks"].items():
        base, top = one["baseline"]["value"], _top(one)
        change = top["change"]
        names.append(name)
        values.append((percent(change["value"]), percent(less(_drawn(one, "random"), base))))
        lows.append((percent(change.get("low")), None))
        highs.append((percent(change.get("high")), None))
    if removal is not None:
        for top in tops(removal)[-1:]:
            change = top["change"]["chrf"]
            drawn = random_mean(removal, "random", top["k"], "chrf")
            names.append("translation (chrF++)")
            values.append((change["value"], less(drawn, removal["baseline"]["chrf"])))
            lows.append((change["low"], None))
            highs.append((change["high"], None))
    return Bars(
        "Change without the heads",
        tuple(names),
        ("the chosen heads", "random heads"),
        tuple(values),
        "change in points",
        tuple(lows),
        tuple(highs),
    )


def task_words(
    found: Mapping[str, Any], removal: Mapping[str, Any] | None = None
) -> tuple[str, str]:
    """What tasks lose on average, beside what translations do."""
    changes = {name: 100 * _top(one)["change"]["value"] for name, one in found["tasks"].items()}
    families = _families(found)
    if families is not None:
        across, within, _ = families
        compared = (
            f"Tasks that need a mapping between languages change by {across:+.1f} points on "
            f"average, tasks within one language by {within:+.1f}."
        )
    else:
        removed = [] if removal is None else tops(removal)
        change = removed[-1]["change"]["chrf"]["value"] if removed else None
        beside = "" if change is None else f", the translations by {change:+.1f} points of chrF++"
        compared = f"The tasks change by {fmean(changes.values()):+.1f} points on average{beside}."
    sure = (
        f"Intervals are over examples, beside {sets_of(next(iter(found['tasks'].values())))}; "
        "nothing is corrected for the number of tasks."
    )
    return compared, sure
