"""The report of a learned mask: how it was trained, which heads it keeps, which heads wavered."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np

from headscope.report.charts import Series, line_chart
from headscope.report.html import Child, Html, join, tag
from headscope.report.matrix import Axis, Cell, matrix, ramp_bar
from headscope.report.page import Page
from headscope.report.pages.frame import about_run, masthead, simple_page
from headscope.report.parts import figure, ramp_class, scroll, section, table
from headscope.report.records.mask import HeadCourse, MaskRecord, read_mask
from headscope.report.sections.mask_paths import STYLE, drawn_courses, paths_chart
from headscope.report.words import count, fixed, percent

__all__ = ["page"]

#: Points of a curve over steps.
POINTS = 100
#: Wavering heads that are listed.
LISTED = 40
FATES = {
    "kept": "selected from beginning to end",
    "dropped": "selected first, then dropped for good",
    "tried": "not in the mask, but selected again for a while",
    "regained": "in the mask, but dropped for a while",
    "added": "not selected first, then added for good",
    "never": "never selected",
}


def page(path: Path) -> Page:
    """The report of the run of `find mask` in this folder."""
    record = read_mask(path)
    total = record.geometry.total
    lead = (
        f"Which of {total} attention heads {record.model} keeps when it learns to do the task "
        f"{record.task} without being told to: {record.selected} "
        f"({percent(record.selected / total)})."
    )
    facts = [
        ("examples", str(record.examples)),
        ("shots", str(record.shots) if record.shots else ""),
        ("steps", str(len(record.losses))),
        ("start", "nearly all heads kept" if record.start == "positive" else "nearly none kept"),
        ("gates on", "queries" if record.on == "query" else "outputs"),
    ]
    return simple_page(
        f"{record.model} \u00b7 mask \u00b7 {record.task}",
        masthead("Learned mask", lead, facts, kicker="headscope find mask"),
        [
            ("summary", "", _summary(record)),
            ("map", "Map", _map(record)),
            ("training", "Training", _training(record)),
            ("wavering", "Wavering heads", _wavering(record)),
            ("provenance", "Provenance", about_run(path)),
        ],
        styles=(STYLE,),
    )


def _summary(record: MaskRecord) -> Html:
    first, last = _ends(record)
    moved = "fell" if last < first else "went"
    what = (
        "A head that is not kept still reads along, but evenly: its queries are 0."
        if record.on == "query"
        else "A head that is not kept writes nothing."
    )
    by_layer = _kept_by_layer(record)
    sparse = min(by_layer, key=lambda layer: by_layer[layer][0] / by_layer[layer][1])
    kept, heads = by_layer[sparse]
    parts: list[Child] = [
        tag(
            "p",
            "The model itself was frozen. Each head had a weight, and training moved the weights "
            "so that answers became likely after inputs alone, without an instruction; the heads "
            f"whose weight ended at 0 or above are the mask. {what}",
        ),
        tag(
            "p",
            f"It keeps {record.selected} of {record.geometry.total} heads; the fewest in layer "
            f"{sparse}, {kept} of {heads}. ",
            _feed_forward(record),
        ),
        tag(
            "p",
            f"The loss of the answers, in nats a token, {moved} from ",
            tag("strong", fixed(first, 3)),
            " in the first twentieth of the steps to ",
            tag("strong", fixed(last, 3)),
            " in the last. Gates are drawn at random during training, so this is not yet the loss "
            "under the mask itself, and the examples are those trained on: ",
            tag("code", "headscope verify mask"),
            " tests the mask on examples held out, beside shuffled masks.",
        ),
    ]
    parts += [tag("p", note[0].upper() + note[1:] + ".") for note in record.notes]
    parts.append(
        tag(
            "p",
            "This is one training run with one seed; another seed can keep other heads.",
            class_="sure",
        )
    )
    return section("summary", "In short", *parts)


def _feed_forward(record: MaskRecord) -> str:
    if record.feed_forward is None:
        return ""
    gone = [str(layer) for layer, kept in enumerate(record.feed_forward) if not kept]
    if not gone:
        return "Every layer keeps its feed-forward part."
    return f"The feed-forward part of layer {', '.join(gone)} is dropped, too."


def _kept_by_layer(record: MaskRecord) -> dict[int, tuple[int, int]]:
    counts = Counter(one.head.layer for one in record.courses if one.selected)
    return {
        layer: (counts[layer], heads) for layer, heads in enumerate(record.geometry.counts) if heads
    }


def _ends(record: MaskRecord) -> tuple[float, float]:
    part = max(1, len(record.losses) // 20)
    return float(record.losses[:part].mean()), float(record.losses[-part:].mean())


def _map(record: MaskRecord) -> Html:
    geometry = record.geometry
    pitch = max(9, min(28, 720 // geometry.width))
    cells = []
    for index, one in enumerate(record.courses):
        share = _sigma(one.weight)
        words = f"head {one.head}: \u03c3(M) {fixed(share, 3)}, {FATES[one.fate]}"
        cells.append(
            Cell(
                one.head.layer,
                one.head.head,
                ramp_class(share, 1.0),
                index,
                words,
                marked=one.selected,
            )
        )
    picture = matrix(
        cells,
        Axis(_labels(geometry.layers, pitch), "layer"),
        Axis(_labels(geometry.width, pitch), "head"),
        pitch,
        f"Mask map: {record.selected} of {geometry.total} heads are kept",
    )
    rows = [
        [str(layer), f"{kept} of {heads}", percent(kept / heads)]
        for layer, (kept, heads) in _kept_by_layer(record).items()
    ]
    caption = join(
        tag("strong", "The weight \u03c3(M) of every head. "),
        "A dot marks the heads of the mask, whose weight M is 0 or above and \u03c3(M) 0.5 or "
        "above; the nearer a head is to that, the less sure its place. Not shown is how the map "
        "would look after another training run.",
    )
    return section(
        "map",
        "Which heads are kept",
        figure("mask-map", caption, scroll("Mask map", picture), ramp_bar("0", "1", 0.5, "kept")),
        scroll(
            "Kept heads by layer",
            table("Kept heads by layer", ["layer", "kept", "share"], rows, class_="numbers"),
        ),
    )


def _training(record: MaskRecord) -> Html:
    steps = len(record.losses)
    width = max(1, steps // POINTS)
    blocks = [(start, record.losses[start : start + width]) for start in range(0, steps, width)]
    loss = Series("loss", [(start + len(part) / 2, float(part.mean())) for start, part in blocks])
    counts = (record.weights >= 0)[:, record.geometry.mask()].sum(axis=1)
    at = np.unique(np.linspace(0, len(record.steps) - 1, POINTS).round().astype(int))
    kept = Series("kept", [(float(record.steps[i]), float(counts[i])) for i in at], "key-base")
    first, last = _ends(record)
    loss_caption = join(
        tag("strong", "Loss of the answers while the mask was trained. "),
        f"Each point is the mean over {count(width, 'step')}, in nats a token, on the examples "
        "trained on and with gates drawn at random at each step; a penalty on kept heads is in it, "
        "where there was one.",
    )
    kept_caption = join(
        tag("strong", "Heads whose weight is 0 or above"),
        ", that is, the size the mask would have had if training had stopped there.",
    )
    said = f"The loss goes from {fixed(first, 3)} to {fixed(last, 3)}"
    return section(
        "training",
        "How it was trained",
        figure("loss", loss_caption, line_chart([loss], "steps", "loss", said)),
        figure(
            "sizes",
            kept_caption,
            line_chart([kept], "steps", "heads kept", f"It ends at {counts[-1]} heads"),
        ),
    )


def _wavering(record: MaskRecord) -> Html:
    counts = Counter(one.fate for one in record.courses)
    rows = [[FATES[fate], str(counts[fate])] for fate in FATES if counts[fate]]
    wavered = [one for one in record.courses if one.fate in ("tried", "regained")]
    shown = drawn_courses(record)
    some = f"Of {len(record.courses)} heads {len(shown)} are drawn. " if _left_out(record) else ""
    caption = join(
        tag("strong", "The weight of each head on its way. "),
        "A head is selected while its weight is at 0, the dashed line, or above. Bold lines are "
        "heads that changed sides more than once, stretches of less than 1\u00a0% of the steps "
        "left out: a head that is selected for a while and then dropped, or the reverse, depends "
        f"on which others are there. {some}One training run is shown; where lines would go in "
        "another one is not known.",
    )
    listed = None
    if wavered:
        listed = scroll(
            "Wavering heads",
            table(
                "Heads that changed sides more than once",
                ["head", "what became of it", "changed sides after steps"],
                [_row(one) for one in wavered[:LISTED]],
                said=(1, 2),
                class_="numbers",
            ),
        )
    said = f"{len(wavered)} of {len(record.courses)} heads changed sides more than once"
    return section(
        "wavering",
        "Heads that wavered",
        figure("paths", caption, paths_chart(record, said)),
        scroll(
            "What became of the heads",
            table("What became of the heads", ["course", "heads"], rows, class_="numbers"),
        ),
        listed,
        tag("p", f"And {len(wavered) - LISTED} more.") if len(wavered) > LISTED else None,
    )


def _left_out(record: MaskRecord) -> bool:
    return len(drawn_courses(record)) < len(record.courses)


def _row(one: HeadCourse) -> list[Child]:
    return [str(one.head), FATES[one.fate], ", ".join(map(str, one.changes))]


def _sigma(weight: float) -> float:
    return float(1 / (1 + np.exp(-weight)))


def _labels(number: int, pitch: int) -> list[str]:
    """A label for each place, or for every fourth where they stand too close."""
    step = 1 if pitch >= 16 else 4
    return [str(at) if at % step == 0 else "" for at in range(number)]
