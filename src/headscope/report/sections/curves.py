"""Dose curves: chrF++ over how many heads are changed, and over how strongly."""

from __future__ import annotations

from statistics import fmean

from headscope.report.charts import Series, line_chart
from headscope.report.html import Html, join, tag
from headscope.report.parts import figure, section
from headscope.report.sections.evidence import DRAWN, MARKS, doing
from headscope.results.removal import RemovalResult
from headscope.shown.words import enumeration, fixed

__all__ = ["curves_section"]

Dose = tuple[float, int, float]
"""Where on the axis, the number of heads, their gate."""


def curves_section(result: RemovalResult) -> Html | None:
    """Curves over k for each gate, and over gates for each k; None with one of each."""
    figures = []
    if len(result.k) > 1:
        figures += [_over_k(result, gate) for gate in result.gates if gate != 1]
    if len(result.gates) > 1:
        figures += [_over_gates(result, k) for k in result.k]
    return section("curves", "More heads, other strengths", *figures) if figures else None


def _over_k(result: RemovalResult, gate: float) -> Html:
    doses: list[Dose] = [(float(k), k, gate) for k in sorted(result.k)]
    done = doing(gate, result.ablate)
    caption = join(
        tag("strong", f"chrF++ with more and more heads {done}. "),
        "The highest heads come first, so each step adds the next ones; 0 heads is the model as "
        "it is. A line that falls at once says that few heads carry it. ",
        _how_sure(result),
    )
    return figure(
        f"over-k-{gate:g}".replace(".", "-"),
        caption,
        _chart(result, doses, 0.0, f"heads {done}"),
    )


def _over_gates(result: RemovalResult, k: int) -> Html:
    doses: list[Dose] = [(gate, k, gate) for gate in sorted(result.gates)]
    caption = join(
        tag("strong", f"chrF++ as the output of {k} heads is weakened or strengthened. "),
        "0 removes the heads, 1 is the model as it is, above 1 their output is multiplied. ",
        _strengthened(result, k),
        _how_sure(result),
    )
    return figure(f"over-gates-{k}", caption, _chart(result, doses, 1.0, f"strength of {k} heads"))


def _chart(result: RemovalResult, doses: list[Dose], untouched: float, x_title: str) -> Html:
    baseline = result.chrf
    start = [] if baseline is None else [(untouched, baseline)]
    ring = [] if result.interval is None else [(untouched, *result.interval)]
    points, band = list(start), list(ring)
    for x, k, gate in doses:
        case = result.case(k, gate, result.ablate)
        if case is None or case.top.chrf is None:
            continue
        points.append((x, case.top.chrf))
        if (interval := result.interval_of(case.top)) is not None:
            band.append((x, *interval))
    series = [Series("highest heads", sorted(points), "key-top", sorted(band))]
    for kind, mark in MARKS.items():
        line, span = list(start), [(x, y, y) for x, y in start]
        for x, k, gate in doses:
            case = result.case(k, gate, result.ablate)
            values = case.chrf(kind) if case else ()
            if values:
                line.append((x, fmean(values)))
                span.append((x, min(values), max(values)))
        if len(line) > len(start):
            series.append(Series(f"{DRAWN[kind]}, mean", sorted(line), mark, sorted(span)))
    return line_chart(series, x_title, "chrF++", _description(series, x_title))


def _description(series: list[Series], x_title: str) -> str:
    told = [
        f"{one.name}: " + ", ".join(f"{fixed(y, 1)} at {x:g}" for x, y in one.points)
        for one in series
    ]
    return f"chrF++ over {x_title}. {'; '.join(told)}."


def _how_sure(result: RemovalResult) -> str:
    kinds = [words for kind, words in DRAWN.items() if result.main_case.draws(kind)]
    many = len(result.directions)
    mean = f", the mean over {many} directions" if many > 1 else ""
    text = (
        f"Measured at the marks{mean}; between them nothing is known. The band of the highest "
        "heads is the 95\u00a0% interval of the change from resampling sentences"
    )
    spread = f"; that of {enumeration(kinds)} goes from the lowest to the highest draw"
    return f"{text}{spread if kinds else ''}."


def _strengthened(result: RemovalResult, k: int) -> str:
    baseline = result.chrf
    above = [gate for gate in result.gates if gate > 1]
    told = []
    for gate in above:
        case = result.case(k, gate, result.ablate)
        if case and case.top.chrf is not None and baseline is not None:
            told.append(f"{fixed(case.top.chrf, 1)} at {gate:g}")
    return f"Over-strength leads to {enumeration(told)} from {fixed(baseline, 1)}. " if told else ""
