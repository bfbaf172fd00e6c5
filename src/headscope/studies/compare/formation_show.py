"""What a series of checkpoints shows: classes, overlap with the last set, and chrF++."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path

from headscope.heads import Geometry
from headscope.results.formation import CheckpointRow, FormationResult
from headscope.runs.reading import read_object
from headscope.shown.blocks import (
    Cell,
    Lines,
    Section,
    Series,
    Shown,
    Table,
    one_column,
    table_of,
)
from headscope.shown.words import enumeration, fixed, percent, sentence_of
from headscope.studies.shows import interval

#: Sentences below which the interval of chrF++ is wide.
FEW = 100

Rows = Sequence[CheckpointRow]


def show_formation(result: FormationResult, run: Path) -> Shown:
    """The checkpoints in a table, classes and overlap over training, what was skipped."""
    if result.method is not None:
        return _show_scores(result)
    rows, data = result.checkpoints, result.data.values()
    checked = min(series.verified_on for series in data)
    cautions = []
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
    return Shown(
        "Formation of heads",
        "When do the attention heads that look at the source word form, and when does the model "
        "translate?",
        _finding(result),
        "One training run: another can differ. Only chrF++ has an interval, over "
        f"{_range(series.verified_on for series in data)} sentences of each direction.",
        f"--verify-limit {FEW}" if checked < FEW else "",
        cautions,
        [
            ("model", _models(run)),
            ("checkpoints", str(len(rows))),
            ("heads", str(Geometry.from_dict(result.geometry).total)),
            ("directions", str(len(result.data))),
            ("sentences heads are found on", _range(series.found_on for series in data)),
        ],
        [
            Section("Checkpoints", [_table(result)], brief=True),
            Section("Over training", _lines(result)),
            Section("Scores", [_scores(rows)]),
            *([Section("Skipped", [one_column("Not read", "why", skipped)])] if skipped else []),
        ],
    )


def _show_scores(result: FormationResult) -> Shown:
    """A series of scores from files: the share above the threshold, overlap with the last."""
    rows, threshold = result.checkpoints, fixed(result.threshold, 2)
    above = f"above {threshold}"
    first, last = rows[0], rows[-1]
    finding = [
        f"The share of heads that score above {threshold} is "
        f"{percent(first.above_threshold, 1)} at {first.name} and "
        f"{percent(last.above_threshold, 1)} at {last.name}."
    ]
    half = _settled(rows, lambda row: row.top_overlap_with_last, 0.5)
    if half is not None:
        finding.append(f"{_half(result, half)}).")
    table = table_of(
        "Every checkpoint",
        ((row.name, row) for row in rows),
        {
            above: lambda row: Cell.share(row.above_threshold),
            "of last set": lambda row: Cell.share(row.overlap_with_last),
            f"of last top {result.k}": lambda row: Cell.share(row.top_overlap_with_last),
            "rank correlation with last": lambda row: row.rank_correlation_with_last,
            "mean score": lambda row: row.mean_score,
            "highest head": lambda row: str(row.highest.place),
            "its score": lambda row: row.highest.score,
        },
        f"Of last set: the share of the last checkpoint\u2019s heads above {threshold} that are "
        "above it here; of last top: the same for its highest heads",
    )
    return Shown(
        "Formation of heads",
        "When do the heads that score high at the end of training form?",
        finding,
        "One training run, and scores without intervals: another run can differ.",
        "",
        [],
        [
            ("scores", result.method or ""),
            ("checkpoints", str(len(rows))),
            ("heads", str(Geometry.from_dict(result.geometry).total)),
        ],
        [Section("Checkpoints", [table], brief=True), Section("Over training", _lines(result))],
    )


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
    corrected = ""
    if first.above_chance is not None and last.above_chance is not None:
        low, high = (percent(shares.token_alignment, 1) for shares in (first.above_chance,
                                                                 last.above_chance))  # fmt: skip
        corrected = f" (corrected for chance {low} and {high})"
    words = [
        f"The share of token alignment heads is {percent(first.shares.token_alignment, 1)} at "
        f"{first.name} and {percent(last.shares.token_alignment, 1)} at {last.name}{corrected}; "
        f"chrF++ is {_chrf(first)} and {_chrf(last)}."
    ]
    half = _settled(rows, lambda row: row.top_overlap_with_last, 0.5)
    good = _settled(rows, lambda row: row.chrf.value, last.chrf.value / 2)
    if half is not None and good is not None and last.chrf.value > 0:
        words.append(
            f"{_half(result, half)}; chrF++ there {fixed(half.chrf.value, 1)}). Half of the last "
            f"chrF++ is reached from {good.name} on."
        )
    return words


def _half(result: FormationResult, half: CheckpointRow) -> str:
    """Where half of the last top set is there; the parenthesis at its end is left open."""
    return (
        f"From {half.name} on, half of the last checkpoint\u2019s top {result.k} heads are in "
        f"the top {result.k} (random sets share {percent(half.top_overlap_with_last_expected, 1)}"
    )


def _chrf(row: CheckpointRow) -> str:
    return interval(row.chrf, 1)


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
    note = (
        f"Token alignment: score above {fixed(result.threshold, 2)}; inactive: at most "
        f"{fixed(result.inactive, 2)}; low activity: between{mean}. Corrected: token alignment by "
        f"score \u2212 chance. Of last set: the share of the last checkpoint\u2019s token "
        "alignment heads that already align tokens; of last top: the same for its highest heads"
    )
    return table_of(
        "Every checkpoint",
        ((row.name, row) for row in result.checkpoints),
        {
            "token alignment": lambda row: Cell.share(row.shares.token_alignment),
            "corrected": lambda row: Cell.share(
                row.above_chance.token_alignment if row.above_chance else None
            ),
            "low activity": lambda row: Cell.share(row.shares.low_activity),
            "inactive": lambda row: Cell.share(row.shares.inactive),
            "of last set": lambda row: Cell.share(row.overlap_with_last),
            f"of last top {result.k}": lambda row: Cell.share(row.top_overlap_with_last),
            "chrF++": lambda row: Cell.of(row.chrf, 2),
        },
        note,
    )


def _scores(rows: Rows) -> Table:
    return table_of(
        "Scores of every checkpoint",
        ((row.name, row) for row in rows),
        {
            "token alignment heads": lambda row: Cell(row.counts.token_alignment, digits=1),
            "mean score": lambda row: row.mean_score,
            "highest head": lambda row: str(row.highest.place),
            "its score": lambda row: Cell(row.highest.score, row.highest.low, row.highest.high),
        },
    )


def _lines(result: FormationResult) -> list[Lines]:
    rows = result.checkpoints
    places, labels = _places(rows)
    steps = _steps(rows)
    x = "training step" if steps else "checkpoint"

    def line(name: str, values: Iterable[float | None]) -> Series:
        known = zip(places, values, strict=True)
        return Series(name, tuple((at, 100 * value) for at, value in known if value is not None))

    overlap = (
        line("of the last set, %", [row.overlap_with_last for row in rows]),
        line(f"of the last top {result.k} (selected), %",
             [row.top_overlap_with_last for row in rows]),
        line(f"random, k = {result.k}, %", [row.top_overlap_with_last_expected for row in rows]),
    )  # fmt: skip
    if result.method is not None:
        above_it = line("above the threshold, % of heads", [row.above_threshold for row in rows])
        series = (above_it, *overlap)
        return [Lines("Scores over training", series, x, "%", steps, labels=labels)]
    shares = [
        line("token alignment", [row.shares.token_alignment for row in rows]),
        line("low activity", [row.shares.low_activity for row in rows]),
        line("inactive", [row.shares.inactive for row in rows]),
    ]
    above = [row.above_chance.token_alignment for row in rows if row.above_chance]
    if len(above) == len(rows):
        shares.append(line("token alignment, corrected for chance", above))
    chrf = Series.of("chrF++", zip(places, (row.chrf for row in rows), strict=True))
    return [
        Lines("Classes of heads", tuple(shares), x, "% of heads", steps, labels=labels),
        Lines("Heads of the last checkpoint, and chrF++", (*overlap, chrf), x, "% or chrF++",
              steps, labels=labels, band="95\u00a0% intervals of chrF++ over sentences"),
    ]  # fmt: skip


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
    known = sorted(set(numbers))
    return str(known[0]) if len(known) == 1 else f"{known[0]} to {known[-1]}"
