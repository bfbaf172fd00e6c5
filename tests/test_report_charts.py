"""Line charts and bars: where values lie, what tells series apart, what the words say."""

from __future__ import annotations

import re
from html import unescape
from itertools import pairwise
from math import inf, log10, nan

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headscope.report.axes import rounds, scale
from headscope.report.drawing.blocks import draw
from headscope.shown.blocks import Bars, Lines, Series


def chart(*series: Series, x: str = "x", y: str = "y", **options: bool) -> str:
    return str(draw("a", Lines("A title", series, x, y, **options)).html)


FINITE = st.floats(-1e6, 1e6).map(lambda value: round(value, 3))


@given(st.lists(FINITE, min_size=1, max_size=20))
@example([-0.773, -0.772])
@example([1234.5, 1234.8])
def test_an_axis_holds_its_values_in_order(values: list[float]) -> None:
    for axis in (scale(values), scale(values, from_zero=True)):
        shares = [axis.share(value) for value in sorted(values)]
        assert shares == sorted(shares)
        assert all(axis.low - 1e-6 <= value <= axis.high + 1e-6 for value in values)
        places = [tick.share for tick in axis.ticks]
        assert places == sorted(places)
        assert len({tick.words for tick in axis.ticks}) == len(axis.ticks) <= 13


def test_an_axis_from_zero_ends_at_a_round_number() -> None:
    axis = scale([3.0, 88.0], from_zero=True)
    assert (axis.low, axis.high) == (0.0, 100.0)
    assert [tick.words for tick in axis.ticks] == ["0", "20", "40", "60", "80", "100"]
    assert scale([-3.0, 8.0], from_zero=True).low == -4.0
    assert (scale([0.0], from_zero=True).low, scale([0.0], from_zero=True).high) == (0.0, 1.0)


@given(st.floats(0.001, 1e6), st.floats(1.01, 1e6))
def test_round_steps_are_1_2_or_5(low: float, factor: float) -> None:
    found = rounds(low, low * factor)
    assert all(low - 1e-6 * low <= value <= low * factor * (1 + 1e-6) for value in found)
    steps = {round(b - a, 9) for a, b in pairwise(found)}
    for step in steps:
        assert round(step / 10 ** round(log10(step) - 0.35), 6) in (0.5, 1, 2, 5, 10)


def test_a_logarithmic_axis_spaces_powers_evenly() -> None:
    axis = scale([1, 10, 100, 1000], log=True)
    assert [axis.share(10.0**power) for power in range(4)] == pytest.approx([0, 1 / 3, 2 / 3, 1])
    assert [tick.words for tick in axis.ticks] == ["1", "10", "100", "1\u202f000"]


def test_zero_has_a_place_of_its_own_on_a_logarithmic_axis() -> None:
    axis = scale([0, 1, 10, 143_000], log=True)
    assert axis.share(0) == 0 < axis.share(1) < axis.share(10) < axis.share(143_000) == 1
    assert axis.ticks[0].words == "0"
    with pytest.raises(ValueError, match="negative"):
        scale([-1.0, 2.0], log=True)


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ([1.0, 3.4, 1500.0], ["1", "10", "100", "1000"]),
        ([1.0, 7.0, 6.0], ["1", "2", "5", "10"]),
        ([1.0, 1.0], ["1", "2"]),
        ([3.0, 40.0], ["2", "5", "10", "20", "50"]),
        ([0.0, 1.0, 300.0], ["0", "1", "10", "100"]),
    ],
)
def test_a_rounded_logarithmic_axis_has_plain_numbers(
    values: list[float], ticks: list[str]
) -> None:
    axis = scale(values, log=True, from_zero=True)
    assert [tick.words.replace("\u202f", "") for tick in axis.ticks] == ticks
    assert all(0 <= tick.share <= 1 for tick in axis.ticks)
    shares = [axis.share(value) for value in sorted(set(values))]
    assert shares == sorted(shares) and len(set(shares)) == len(shares)


def test_a_chart_may_be_logarithmic_upwards() -> None:
    html = chart(Series("rank", ((0, 1), (1, 10), (2, 100))), y="rank", logarithmic_y=True)
    path = re.search(r'<path d="([^"]*)"', html)
    assert path and path[1] == "M0 1000L500 500L1000 0"
    assert "rank: 100" in unescape(html)


def test_many_points_of_a_bar_are_summed_up_in_words_and_drawn_once_a_place() -> None:
    points = tuple(10.0 + n % 20 for n in range(199))
    bars = Bars("Bars", ("a",), ("random",), ((20.0,),), "n", draws=((points,),), end=100.0)
    html = draw("a", bars).html
    assert "199 single values from 10.0 to 29.0" in html
    assert html.count("<u ") == 20
    assert 'class="bar many"' in html


def test_series_differ_by_shape_and_dash_even_in_one_colour() -> None:
    html = chart(*(Series(f"random {n}", ((0, n), (1, n + 1))) for n in range(12)))
    key = html[html.index('class="legend"') :]
    looks = zip(
        re.findall(r"shape (p\d)", key), re.findall(r'class="(d\d)"', key),
        re.findall(r"line (key-\w+)", key), strict=True,
    )  # fmt: skip
    assert len(set(looks)) == 12
    assert html.count("<path") == 12


def test_every_point_says_its_numbers() -> None:
    series = Series("<b>", ((2, 17.25), (4, 3)), (15, nan), (19, nan))
    html = chart(series, x="heads", y="chrF++")
    words = [unescape(text) for text in re.findall(r'data-words="([^"]*)"', html)]
    assert words == [
        "<b>\nheads: 2\nchrF++: 17.2\nband: 15\u2009\u2013\u200919",
        "<b>\nheads: 4\nchrF++: 3",
    ]
    assert "<b>" not in html
    assert 'aria-label="A title: &lt;b&gt;: 17.25 at 2, 3 at 4."' in html
    assert 'class="legend"' not in html


@pytest.mark.parametrize("gap", [nan, inf])
def test_what_is_not_finite_leaves_a_gap(gap: float) -> None:
    html = chart(Series("a", ((0, 1), (1, gap), (2, 3), (3, 4))))
    path = re.search(r'<path d="([^"]*)"', html)
    assert path
    assert path[1].count("M") == 2
    drawn = html.partition('class="plot"')[2]
    assert drawn.count("data-words") == 3
    assert "nan" not in drawn
    assert "inf" not in drawn


def test_bars_show_points_intervals_and_what_is_missing() -> None:
    bars = Bars(
        "Bars", ("as is", "random & co", "top"), ("score",), ((80.0,), (40.0,), (None,)), "n",
        ((78.0,), (None,), (None,)), ((82.0,), (None,), (None,)),
        draws=(((),), ((30.0, 50.0),), ((),)), end=100.0,
    )  # fmt: skip
    html = draw("a", bars).html
    assert "--v:0.8" in html
    assert "--lo:0.78;--hi:0.82" in html
    assert html.count("<u ") == 2
    assert "single values 30.0 and 50.0" in html
    assert "random &amp; co" in html
    assert html.count(">not run<") == 1


def test_of_many_points_so_many_can_be_pointed_at_and_all_are_drawn() -> None:
    html = chart(Series("one", tuple((float(x), float(x % 7)) for x in range(1, 301))))
    assert html.count('class="point') == 101  # every third, and the last
    assert "x: 300" in html and "x: 1\n" in html and "x: 2\n" not in html
    assert re.search(r'<path d="([^"]*)', html)[1].count("L") == 299
