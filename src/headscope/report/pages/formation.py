"""The report of `compare formation`: how heads form during training, beside chrF++."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path

from headscope.heads import Geometry
from headscope.report.charts import Series, line_chart
from headscope.report.html import Html, join, tag
from headscope.report.page import Page
from headscope.report.pages.frame import about_run, masthead, simple_page
from headscope.report.parts import figure, in_short, scroll, section, table
from headscope.results.classes import Classes
from headscope.results.formation import CheckpointRow, FormationResult, Skipped
from headscope.runs.reading import read_object, result_of
from headscope.shown.words import between, count, enumeration, fixed, percent

__all__ = ["page"]

Rows = Sequence[CheckpointRow]


def page(path: Path) -> Page:
    """The report of the series in this folder."""
    result = result_of(path, FormationResult, "a series of checkpoints")
    rows = result.checkpoints
    return simple_page(
        "Formation of heads",
        masthead(
            "Formation of heads",
            "How the attention heads that find the source word form during training, beside "
            "how well the model translates.",
            [
                ("model", _models(path)),
                ("", count(len(rows), "checkpoint")),
                ("heads", str(Geometry.from_dict(result.geometry).total)),
                ("directions", str(len(result.data))),
            ],
            "headscope compare formation",
        ),
        [
            ("summary", "", _summary(result)),
            ("formation", "Formation", _figure(result)),
            ("checkpoints", "Checkpoints", _table(result)),
            ("skipped", "Skipped", _skipped(result.skipped)),
            ("provenance", "Provenance", about_run(path)),
        ],
    )


def _models(path: Path) -> str:
    """The model that the checkpoints are of: its name, or the folder that they lie in."""
    labels = list(map(str, read_object(path / "provenance.json").get("models") or ()))
    names = {"pocket" if one.startswith("pocket:") else one for one in labels}
    if len(names) > 1:
        names = {str(Path(one).parent) for one in names}
    return enumeration(sorted(names))


def _summary(result: FormationResult) -> Html:
    rows = result.checkpoints
    first, last = rows[0], rows[-1]
    words = [
        join(
            "From ",
            tag("bdi", first.name),
            " to ",
            tag("bdi", last.name),
            " the share of token alignment heads goes from ",
            tag("strong", percent(first.shares.token_alignment, 1)),
            " to ",
            tag("strong", percent(last.shares.token_alignment, 1)),
            _beyond(first.above_chance, last.above_chance),
            " and chrF++ from ",
            tag("strong", fixed(first.chrf.value, 1)),
            " to ",
            tag("strong", f"{fixed(last.chrf.value, 1)}."),
        )
    ]
    half = _settled(rows, lambda row: row.top_overlap_with_last, 0.5)
    good = _settled(rows, lambda row: row.chrf.value, last.chrf.value / 2)
    if half is not None and good is not None:
        words.append(
            join(
                f"Half of the last checkpoint\u2019s top {result.k} heads are in place, and "
                "stay so, from ",
                tag("bdi", half.name),
                f" on (chrF++ {fixed(half.chrf.value, 1)} there); half of its chrF++ is reached "
                "at ",
                tag("bdi", good.name),
                ".",
            )
        )
    if not result.same_tokenizer:
        words.append(
            join(
                "The checkpoints do not all have the same tokenizer, so their scores rest on "
                "different tokens."
            )
        )
    return in_short(*words)


def _beyond(first: Classes | None, last: Classes | None) -> str:
    if first is None or last is None:
        return ","
    low, high = (percent(above.token_alignment, 1) for above in (first, last))
    return f" (with chance taken off, from {low} to {high}),"


def _settled(
    rows: Rows, of: Callable[[CheckpointRow], float | None], least: float
) -> CheckpointRow | None:
    """The first checkpoint from which on the value stays at `least` or above."""
    found = None
    for row in reversed(rows):
        value = of(row)
        if value is None or value < least:
            break
        found = row
    return found


def _figure(result: FormationResult) -> Html:
    rows = result.checkpoints
    places, labels = _places(rows)
    x_title = "training step" if _steps(rows) else "checkpoint"

    def line(values: Sequence[float | None], scale: float = 100) -> list[tuple[float, float]]:
        return [
            (x, value * scale) for x, value in zip(places, values, strict=True) if value is not None
        ]

    above = [one.above_chance for one in rows if one.above_chance]
    shares = [
        Series("token alignment", line([one.shares.token_alignment for one in rows]), "key-ta"),
        Series("low activity", line([one.shares.low_activity for one in rows]), "key-low"),
        Series("inactive", line([one.shares.inactive for one in rows]), "key-off"),
    ]
    if len(above) == len(rows):
        beyond = line([one.token_alignment for one in above])
        shares.append(Series("token alignment, chance taken off", beyond, "key-s9"))
    chrf = Series(
        "chrF++",
        line([one.chrf.value for one in rows], 1),
        "key-base",
        [(x, one.chrf.low, one.chrf.high) for x, one in zip(places, rows, strict=True)],
    )
    overlap = [
        Series("of the last set, %", line([one.overlap_with_last for one in rows]), "key-s9"),
        Series(
            f"of the last top {result.k}, %",
            line([one.top_overlap_with_last for one in rows]),
            "key-top",
        ),
        chrf,
    ]
    first, last, data = rows[0], rows[-1], result.data.values()
    many = last.counted_over
    mean = f"; mean of {many} directions" if many > 1 else ""
    caption = join(
        tag("strong", "How the heads form, and what the model can do by then. "),
        f"Above: the share of heads in each class (token alignment: score above "
        f"{fixed(result.threshold, 2)}; inactive: at most "
        f"{fixed(result.inactive, 2)}; low activity: between them{mean}), and the "
        "share above the threshold when corrected for chance. Below: the part of "
        "the last checkpoint\u2019s heads that a checkpoint holds already, and chrF++ of its "
        "translations. The band is the 95\u00a0% bootstrap interval over sentences; the last "
        "checkpoint holds all of its own heads by definition, and a random set of the top\u2019s "
        f"size would hold {percent(last.top_overlap_with_last_expected, 1)} of them. Heads were "
        f"found on {_number(one.found_on for one in data)} and translations made of "
        f"{_number(one.verified_on for one in data)} other sentences a direction; one training "
        "run, so nothing is said of how another would go.",
    )
    words = (
        f"token alignment heads from {percent(first.shares.token_alignment, 1)} to "
        f"{percent(last.shares.token_alignment, 1)}"
    )
    top = line_chart(
        shares, x_title, "share of heads, %", f"Shares of the classes over training: {words}.",
        x_log=_steps(rows), x_labels=labels,
    )  # fmt: skip
    below = line_chart(
        overlap, x_title, "% or chrF++",
        f"Overlap with the last set and chrF++, from {fixed(first.chrf.value, 1)} to "
        f"{fixed(last.chrf.value, 1)}.",
        x_log=_steps(rows), y_range=(0.0, 100.0), x_labels=labels,
    )  # fmt: skip
    return section("formation", "Over training", figure("formation-figure", caption, top, below))


def _steps(rows: Rows) -> bool:
    """Whether every checkpoint, the last aside, tells its step, in rising order."""
    steps = [one.step for one in (rows if rows[-1].step is not None else rows[:-1])]
    told = [step for step in steps if step is not None]
    return bool(told) and len(told) == len(steps) and all(a < b for a, b in pairwise(told))


def _places(rows: Rows) -> tuple[list[float], dict[float, str]]:
    """Where each checkpoint stands: at its step, or by its number in the series.

    A last one that tells no step (`final`) stands a little beyond the one before.
    """
    names = [one.name for one in rows]
    if not _steps(rows):
        places = [float(number) for number in range(1, len(rows) + 1)]
        return places, dict(zip(places, names, strict=True))
    places = [float(one.step) for one in rows if one.step is not None]
    labels = {place: f"{place:.0f}" for place in places}
    if rows[-1].step is None:
        places.append(max(places[-1], 1.0) * 1.8)
        labels[places[-1]] = names[-1]
    return places, labels


def _table(result: FormationResult) -> Html:
    header = ("Checkpoint", "Align", "beyond chance", "Low", "Inactive", "Mean TS", "Highest head",
              "Last set", f"Last top {result.k}", "chrF++", "Interval")  # fmt: skip
    body = [
        (
            tag("bdi", one.name),
            f"{percent(one.shares.token_alignment, 1)} ({one.counts.token_alignment})",
            percent(one.above_chance.token_alignment if one.above_chance else None, 1),
            percent(one.shares.low_activity, 1),
            percent(one.shares.inactive, 1),
            fixed(one.mean_score, 3),
            f"{one.highest.place} ({fixed(one.highest.score, 2)})",
            percent(one.overlap_with_last, 1),
            percent(one.top_overlap_with_last, 1),
            fixed(one.chrf.value, 2),
            between(one.chrf.low, one.chrf.high, 1),
        )
        for one in result.checkpoints
    ]
    caption = join(
        tag("strong", "The numbers of every checkpoint. "),
        "Shares are of all heads of the model, with their number in parentheses; \u201clast "
        f"set\u201d and \u201clast top {result.k}\u201d say how many of the last "
        "checkpoint\u2019s heads are there already. How sure: the interval of chrF++ comes from "
        "resampling sentences, and no other column has one; one training run was looked at, and "
        "another one may go differently.",
    )
    shown = scroll("Checkpoints", table("Every checkpoint", header, body, class_="numbers"))
    return section("checkpoints", "Every checkpoint", figure("checkpoints-figure", caption, shown))


def _skipped(skipped: Sequence[Skipped]) -> Html | None:
    if not skipped:
        return None
    rows = [tag("li", tag("bdi", one.name), f": {one.reason}") for one in skipped]
    return section(
        "skipped", "Skipped", tag("p", "These checkpoints could not be read:"), tag("ul", rows)
    )


def _number(sentences: Iterable[int]) -> str:
    numbers = sorted(set(sentences))
    return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"
