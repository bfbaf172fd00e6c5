"""What a series of checkpoints shows: when heads form, overlap with the last set, and chrF++."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from math import comb
from pathlib import Path
from statistics import fmean
from urllib.parse import quote

import numpy as np

from headscope.heads import Geometry, HeadScores, Rank, read_scores
from headscope.results.formation import CheckpointRow, FormationResult
from headscope.runs.reading import read_object
from headscope.shown.blocks import (
    Block,
    Cell,
    Content,
    HeadSets,
    Lines,
    Section,
    Series,
    Shown,
    Table,
    one_column,
    table_of,
)
from headscope.shown.words import enumeration, fixed, percent, sentence_of
from headscope.studies.shows import more_examples, places

#: Sentences below which the interval of chrF++ is wide.
FEW = 100

Rows = Sequence[CheckpointRow]


def show_formation(result: FormationResult, run: Path) -> Shown:
    """The share of heads over training; overlap with the last checkpoint, chrF++, every number."""
    rows, data = result.checkpoints, result.data.values()
    scored = result.method is None
    checked = min((series.verified_on for series in data), default=FEW)
    cautions = [*result.cautions]
    if checked < FEW:
        cautions.append(f"chrF++ is measured on few sentences ({checked} of a direction).")
    if not result.same_tokenizer:
        cautions.append(
            "The checkpoints do not all have the same tokenizer, so their scores are shares of "
            "different tokens."
        )
    if result.skipped:
        names = enumeration([checkpoint.name for checkpoint in result.skipped])
        cautions.append(f"Checkpoints that could not be read are left out: {names}.")
    skipped = [(each.name, sentence_of(each.reason)) for each in result.skipped]
    last = _scores_of(run, rows[-1]).get("mean")
    rank: Rank = "score" if result.rank == "score" else "above-chance"
    best = HeadSets(
        f"Highest heads of {rows[-1].name}",
        {"highest": places(last.top(result.k, rank))} if last else {},
    )
    facts = [
        ("model", _models(run)),
        ("directions", str(len(data))),
        ("sentences heads are found on", _range(series.found_on for series in data)),
        ("sentences translated", _range(series.verified_on for series in data)),
    ]
    return Shown(
        "Formation of heads",
        "When do the attention heads that look at the source word form, and when does the model "
        "translate?"
        if scored
        else "When do the heads that score high at the end of training form?",
        _finding(result),
        "One training run; another can differ.",
        more_examples(checked, run, FEW, "check", "--verify-limit"),
        cautions,
        [
            *(facts if scored else [("scores", result.method or "")]),
            ("checkpoints", str(len(rows))),
            ("heads", str(Geometry.from_dict(result.geometry).total)),
        ],
        [
            *([Section("Heads", [best])] if last else []),
            Section("Over training", _further(result)),
            Section("Every checkpoint", [_table(result)], brief=True),
            *([Section("Skipped", [one_column("Not read", "why", skipped)])] if skipped else []),
        ],
        _figure(result, run),
    )


def _scores_of(run: Path, row: CheckpointRow) -> Mapping[str, HeadScores]:
    """The scores of a checkpoint by direction, and their mean; nothing where they are not kept."""
    folder = run / "checkpoints" / quote(row.name, safe="@ ")
    return read_scores(folder) if (folder / "scores").is_dir() else {}


def _models(run: Path) -> str:
    """The model that the checkpoints are of: its name, or the folder that they lie in."""
    labels = list(map(str, read_object(run / "provenance.json").get("models") or ()))
    names = {"pocket" if label.startswith("pocket:") else label for label in labels}
    if len(names) > 1:
        names = {str(Path(name).parent) for name in names}
    return enumeration(sorted(names))


def _finding(result: FormationResult) -> list[str]:
    rows = result.checkpoints
    first, last = rows[0], rows[-1]
    before, after = (percent(_share(result, row), 1) for row in (first, last))
    moved = f"stay at {after}" if before == after else f"go from {before} to {after}"
    name = f"Heads above {fixed(result.threshold, 2)}" if result.method else "Token alignment heads"
    words = [f"{name} {moved} of all heads ({first.name} to {last.name})."]
    half = _settled(rows, lambda row: row.top_overlap_with_last, 0.5)
    # Half of a set that random ones share as well says nothing.
    if half is not None and _random(result)[1] < 0.5:
        chrf = "" if result.method else f"; chrF++ there: {fixed(half.chrf.value, 1)}"
        words.append(f"Half of the final top {result.k} heads are there from {half.name} on{chrf}.")
    return words


def _corrected(result: FormationResult) -> bool:
    return all(row.above_chance for row in result.checkpoints)


def _share(result: FormationResult, row: CheckpointRow) -> float:
    """The share of heads above the threshold, corrected for chance where that is known."""
    if row.above_threshold is not None:
        return row.above_threshold
    corrected = row.above_chance if _corrected(result) else None
    return (corrected or row.shares).token_alignment


def _random(result: FormationResult) -> tuple[float, float]:
    """The 95 % range of the share of the last top heads that as many random heads hold."""
    total, k = Geometry.from_dict(result.geometry).total, result.k
    below = [*accumulate(comb(k, at) * comb(total - k, k - at) for at in range(k + 1))]
    low, high = (
        next(at for at, ways in enumerate(below) if ways >= part * below[-1]) / k
        for part in (0.025, 0.975)
    )
    return low, high


def _settled(
    rows: Rows, of: Callable[[CheckpointRow], float | None], least: float
) -> CheckpointRow | None:
    """The first checkpoint from which on the value stays at `least` or above."""
    first = None
    for row in reversed(rows):
        value = of(row)
        if value is None or value < least:
            break
        first = row
    return first


def _table(result: FormationResult) -> Table:
    many = result.checkpoints[-1].counted_over
    mean = f"; means of {many} directions" if many > 1 else ""
    columns: dict[str, Callable[[CheckpointRow], Content]] = {
        f"above {fixed(result.threshold, 2)}": lambda row: Cell.share(row.above_threshold)
    }
    if result.method is None:
        columns = {
            "token alignment": lambda row: Cell.share(_share(result, row)),
            "low activity": lambda row: Cell.share((row.above_chance or row.shares).low_activity),
            "inactive": lambda row: Cell.share((row.above_chance or row.shares).inactive),
            "token alignment by score alone (as the paper counts)": lambda row: Cell.share(
                row.shares.token_alignment
            ),
            "chrF++": lambda row: Cell.of(row.chrf, 2),
        }
    columns |= {
        f"of last top {result.k}": lambda row: Cell.share(row.top_overlap_with_last),
        "of last set, by score alone": lambda row: Cell.share(row.overlap_with_last),
        "rank correlation with last": lambda row: row.rank_correlation_with_last,
        "mean score": lambda row: row.mean_score,
        "highest head": lambda row: str(row.highest.place),
        "its score": lambda row: Cell(row.highest.score, row.highest.low, row.highest.high),
    }
    note = (
        f"Shares of all heads{mean}. Of last top: the share of the last checkpoint\u2019s highest "
        f"heads that are among the highest here; of last set: of its heads with a score above "
        f"{fixed(result.threshold, 2)} those that are above it here"
    )
    return table_of("Every checkpoint", ((row.name, row) for row in result.checkpoints), columns,
                    note)  # fmt: skip


def _figure(result: FormationResult, run: Path) -> Lines:
    """The share of heads above the threshold at every checkpoint."""
    bounds = [_bounds(_scores_of(run, row), result) for row in result.checkpoints]
    known = [each for each in bounds if each is not None]
    low, high = zip(*known, strict=True) if len(known) == len(bounds) else ((), ())
    name, y = ("above the threshold" if result.method else "token alignment"), "% of heads"
    shares = [_share(result, row) for row in result.checkpoints]
    score = "score \u2212 chance" if _corrected(result) else "score"
    return _line(
        f"Heads with a {score} above {fixed(result.threshold, 2)}",
        result,
        y,
        [Series(name, _points(result, shares), low, high)],
        "shares from heads whose whole 95\u00a0% interval (over sentences) lies above the "
        "threshold to heads whose interval reaches above it",
    )


def _bounds(
    scores: Mapping[str, HeadScores], result: FormationResult
) -> tuple[float, float] | None:
    """Per cent of heads whose interval lies above the threshold, and of those where its upper end
    does: means over directions; None where no intervals are kept."""
    directions = [own for name, own in scores.items() if name != "mean"] or [*scores.values()]
    ends: list[list[float]] = [[], []]
    for own in directions:
        if own.low is None or own.high is None:
            return None
        chance = own.extra["chance"] if _corrected(result) else 0.0
        for shares, end in zip(ends, (own.low, own.high), strict=True):
            reached = np.where(np.isnan(end), own.values, end) - chance > result.threshold
            shares.append(100 * float(reached[own.geometry.mask()].mean()))
    return (fmean(ends[0]), fmean(ends[1])) if directions else None


def _further(result: FormationResult) -> list[Block]:
    """Overlap with the last checkpoint beside random heads, and chrF++."""
    rows, k = result.checkpoints, result.k
    random = _points(result, [row.top_overlap_with_last_expected for row in rows])
    low, high = (tuple([100 * end] * len(random)) for end in _random(result))
    overlap = _line(
        f"The last checkpoint\u2019s top {k} heads that are among the top {k} heads",
        result,
        "% of the last top heads",
        [
            Series("selected", _points(result, [row.top_overlap_with_last for row in rows])),
            Series("random", random, low, high),
        ],
        "the 95\u00a0% range of random sets",
    )
    if result.method is not None:
        return [overlap]
    chrf = Series.of("chrF++", zip(_places(rows)[0], (row.chrf for row in rows), strict=True))
    band = "95\u00a0% intervals over sentences"
    return [overlap, _line("Quality of translations", result, "chrF++", [chrf], band)]


def _line(
    title: str, result: FormationResult, y: str, series: Sequence[Series], band: str
) -> Lines:
    steps, labels = _steps(result.checkpoints), _places(result.checkpoints)[1]
    x = "training step" if steps else "checkpoint"
    return Lines(title, tuple(series), x, y, steps, labels=labels, band=band)


def _points(
    result: FormationResult, values: Iterable[float | None]
) -> tuple[tuple[float, float], ...]:
    known = zip(_places(result.checkpoints)[0], values, strict=True)
    return tuple((at, 100 * value) for at, value in known if value is not None)


def _steps(rows: Rows) -> bool:
    """Whether every checkpoint, the last aside, has its step, in rising order."""
    steps = [row.step for row in (rows if rows[-1].step is not None else rows[:-1])]
    known = [step for step in steps if step is not None]
    return bool(known) and len(known) == len(steps) and all(a < b for a, b in pairwise(known))


def _places(rows: Rows) -> tuple[list[float], tuple[tuple[float, str], ...]]:
    """Where each checkpoint stands: at its step, or by its number in the series.

    A last one without a step (`final`) stands a little beyond the one before.
    """
    if not _steps(rows):
        places = [float(number) for number in range(1, len(rows) + 1)]
        return places, tuple(zip(places, (row.name for row in rows), strict=True))
    places = [float(row.step) for row in rows if row.step is not None]
    labels = [(place, f"{place:.0f}") for place in places]
    if rows[-1].step is None:
        places.append(max(places[-1], 1.0) * 1.8)
        labels.append((places[-1], rows[-1].name if len(rows[-1].name) < 8 else "last"))
    return places, tuple(labels)


def _range(numbers: Iterable[int]) -> str:
    known = sorted(set(numbers)) or [0]
    return str(known[0]) if len(known) == 1 else f"{known[0]} to {known[-1]}"
