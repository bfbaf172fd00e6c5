"""The report of `compare masks`: similarity, maps, layers, and groups that share keys."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from headscope.heads import Geometry
from headscope.report.charts import Series, line_chart
from headscope.report.html import Html, join, tag
from headscope.report.matrix import Axis, Cell, matrix, ramp_bar
from headscope.report.page import Page
from headscope.report.pages.frame import about_run, masthead, simple_page
from headscope.report.pages.overlap import group_table, jaccard_matrix, pair_table
from headscope.report.parts import figure, in_short, ramp_class, scroll, section, table
from headscope.report.sections.mask_maps import maps_section
from headscope.results.masks import BaseComparison, ComparedMask, KeyGroups, MasksResult
from headscope.runs.reading import result_of
from headscope.shown.words import arrow, between, count, fixed, p_value, percent

__all__ = ["page"]

#: Masks that get a line each in the chart of layers; of more, the mean and the range are drawn.
LINES = 6
MARKS = ("key-top", "key-base", "key-random", "key-matched", "key-ta", "key-low")


def page(path: Path) -> Page:
    """The report of the comparison in this folder."""
    result = result_of(path, MasksResult, "a comparison of masks")
    own, pairs = result.own, result.pairs
    geometry = Geometry.from_dict(result.geometry)
    shares = [mask.kept_share for mask in own]
    facts = [
        ("", count(len(result.masks), "mask")),
        ("kept", f"{percent(min(shares))} to {percent(max(shares))}"),
        ("heads of the model", f"{geometry.total} in {count(geometry.layers, 'layer')}"),
    ]
    names = [mask.name for mask in own]
    maps = {mask.name: result.maps[mask.name] for mask in own}
    bases = {mask.name: result.maps[mask.name] for mask in result.masks if mask.base}
    return simple_page(
        "Learned masks",
        masthead(
            "Learned masks",
            "Which heads learned masks keep, how far they agree, and whether they drop whole "
            "groups of heads that share keys, each beside random masks of the same size.",
            facts,
            "headscope compare masks",
        ),
        [
            ("summary", "", _summary(result)),
            ("base-masks", "Base model", None if result.base is None else _base(result.base)),
            ("overlap", "Matrix", jaccard_matrix(names, pairs) if pairs else None),
            ("maps", "Maps", maps_section(maps, bases)),
            ("layers", "Layers", _layers(own)),
            ("key-groups", "Key groups", _key_groups(result, geometry)),
            ("groups", "Directions", group_table(result.groups)),
            ("pairs", "Pairs", pair_table(pairs) if pairs else None),
            ("provenance", "Provenance", about_run(path)),
        ],
    )


def _summary(result: MasksResult) -> Html:
    pairs, base = result.pairs, result.base
    parts: list[Html] = []
    kept = fmean(mask.kept_share for mask in result.own)
    parts.append(join(f"The masks keep {percent(kept)} of the heads on average. "))
    if pairs:
        mean = fmean(pair.jaccard for pair in pairs)
        chance = fmean(pair.expected_exact for pair in pairs)
        clear = sum(pair.p_value < 0.05 for pair in pairs)
        parts.append(
            join(
                f"Over {count(len(pairs), 'pair')} their Jaccard index is ",
                tag("strong", fixed(mean, 2)),
                f" on average, where random masks of these sizes would reach {fixed(chance, 2)}; "
                f"in {clear} of {len(pairs)} so large an overlap has a probability below 0.05 "
                "under random masks. ",
            )
        )
    if base is not None:
        jaccard, above = base.mean["jaccard"], base.above_chance
        parts.append(
            join(
                "With the base model\u2019s mask of the same task the index is ",
                tag("strong", fixed(jaccard.mean, 2)),
                f" (interval {between(jaccard.low, jaccard.high, 2)} over tasks), "
                f"{fixed(above.mean, 2)} above random masks "
                f"({between(above.low, above.high, 2)}). ",
            )
        )
    groups = _groups(result.own)
    if groups:
        dropped = fmean(each.dropped for each in groups)
        expected = fmean(each.expected for each in groups)
        parts.append(
            join(
                f"Of {count(groups[0].groups, 'group')} of heads that share keys a mask drops "
                f"{fixed(dropped, 2)} as a whole on average; random masks of the same size would "
                f"drop {fixed(expected, 2)}."
            )
        )
    return in_short(join(*parts))


def _groups(masks: Sequence[ComparedMask]) -> list[KeyGroups]:
    return [mask.groups for mask in masks if mask.groups is not None]


def _base(base: BaseComparison) -> Html:
    header = ("Task", "Heads kept", "Base keeps", "Recall", "Jaccard", "Random (ratio)",
              "Random (exact)", "p")  # fmt: skip
    rows = [
        (
            tag("bdi", arrow(pair.task or pair.a)),
            pair.size_a,
            pair.size_b,
            fixed(pair.recall, 3),
            fixed(pair.jaccard, 3),
            fixed(pair.expected, 3),
            fixed(pair.expected_exact, 3),
            p_value(pair.p_value),
        )
        for pair in base.pairs
    ]
    caption = join(
        tag("strong", "Each mask beside the base model\u2019s mask of its task. "),
        "Recall is the share of the base model\u2019s heads that the other mask keeps too. Random: "
        "what two masks of these sizes share by chance, as the ratio of expected counts and as the "
        "exact mean of the index; p is the probability of as large an overlap (hypergeometric). "
        "One mask a task: a second training run might share more or fewer heads.",
    )
    grid = scroll("Base masks", table("Masks and base masks", header, rows, class_="numbers"))
    body = figure("base-figure", caption, grid)
    return section("base-masks", "The base model\u2019s masks", body)


def _layers(own: Sequence[ComparedMask]) -> Html:
    def points(mask: ComparedMask) -> list[tuple[float, float]]:
        return [(row.layer, row.share) for row in mask.layers if row.share is not None]

    if len(own) <= LINES:
        series = [
            Series(arrow(mask.name), points(mask), mark)
            for mask, mark in zip(own, MARKS, strict=False)
        ]
        words = "one line a mask"
    else:
        columns = list(zip(*(points(mask) for mask in own), strict=True))
        middle = [(column[0][0], fmean(y for _, y in column)) for column in columns]
        band = [(c[0][0], min(y for _, y in c), max(y for _, y in c)) for c in columns]
        series = [Series(f"mean of {len(own)} masks", middle, "key-top", band)]
        words = f"the mean of {len(own)} masks, and their lowest and highest as a band"
    chart = line_chart(
        series,
        "layer",
        "share of heads kept",
        "Share of its heads that each layer keeps, by layer",
        y_range=(0, 1),
    )
    caption = (
        f"The share of each layer\u2019s heads that a mask keeps: {words}. Under random masks all "
        "layers keep the same share on average. The band is the spread of masks, not an interval."
    )
    return section("layers", "Where heads are kept", figure("layers-figure", caption, chart))


def _key_groups(result: MasksResult, geometry: Geometry) -> Html:
    title = "Groups of heads that share keys and values"
    key_heads, always = result.key_value_heads, result.always_dropped_groups
    if key_heads is None or always is None:
        words = (
            "The runs do not say which query heads share keys and values; name the model with "
            "--model to count groups."
        )
        return section("key-groups", title, tag("p", words))
    if sum(key_heads) == geometry.total:
        words = (
            "Every query head of this model has keys and values of its own: there are no groups."
        )
        return section("key-groups", title, tag("p", words))
    own = _groups(result.own)
    cells = []
    for layer, groups in enumerate(key_heads):
        for group in range(groups):
            each = [mask.kept_in_groups[layer][group] for mask in own]
            empty, kept = each.count(0), fmean(each)
            words = (
                f"layer {layer}, group {group}: dropped by {empty} of {len(own)}, "
                f"{fixed(kept, 1)} heads kept on average"
            )
            colour = ramp_class(kept / (geometry.counts[layer] / groups), 1.0)
            row = len(key_heads) - 1 - layer
            cells.append(Cell(row, group, colour, words=words, marked=bool(empty)))
    labels = [str(layer) for layer in reversed(range(len(key_heads)))]
    columns = Axis([str(group) for group in range(max(key_heads))], "group")
    grid = matrix(cells, Axis(labels, "layer"), columns, 22, "Heads kept in each group")
    header = ("Mask", "Groups", "Dropped whole", "Kept whole", "Dropped at random",
              "At random, layer by layer", "p")  # fmt: skip
    rows = [
        (
            tag("bdi", arrow(mask.name)),
            each.groups,
            each.dropped,
            each.kept,
            fixed(each.expected, 3),
            fixed(each.expected_by_layer, 3),
            p_value(each.p_value),
        )
        for mask, each in zip(result.masks, _groups(result.masks), strict=True)
    ]
    caption = join(
        tag("strong", "Query heads kept in each group that shares one head of keys and values"),
        f", as a share of the group, mean over {count(len(own), 'mask')}. ",
        f"{count(len(always), 'group')} of {sum(key_heads)} "
        f"{'is' if len(always) == 1 else 'are'} dropped whole by every mask. If a task did without "
        "some keys altogether, whole groups would go more often than at random. The table counts "
        "them beside the exact mean under random masks of the same size, over all layers and with "
        "each layer\u2019s own number; p is the probability that a random mask drops at least as "
        "many.",
    )
    told = scroll("Groups dropped", table("Groups dropped whole", header, rows, class_="numbers"))
    body = figure("groups-dropped", caption, scroll("Groups", grid), ramp_bar("0", "1"), told)
    return section("key-groups", title, body)
