"""The report of a learned mask: how it was trained, which heads it keeps, which heads wavered."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

import numpy as np

from headscope.report.charts import Series, line_chart
from headscope.report.html import Child, Html, join, tag
from headscope.report.matrix import Axis, Cell, matrix, ramp_bar
from headscope.report.page import Page
from headscope.report.pages.frame import about_run, masthead, simple_page
from headscope.report.parts import figure, ramp_class, scroll, section, table
from headscope.report.sections.mask_paths import (
    STYLE,
    MaskHistory,
    drawn_heads,
    paths_chart,
    read_history,
)
from headscope.results.mask import Fate, FoundMask, MaskHead
from headscope.runs.reading import result_of
from headscope.shown.words import count, fixed, percent

__all__ = ["page"]

#: Points of a curve over steps.
POINTS = 100
#: Wavering heads that are listed.
LISTED = 40
FATES: dict[Fate, str] = {
    "kept": "selected from beginning to end",
    "dropped": "selected first, then dropped for good",
    "tried": "not in the mask, but selected again for a while",
    "regained": "in the mask, but dropped for a while",
    "added": "not selected first, then added for good",
    "never": "never selected",
}


def page(path: Path) -> Page:
    """The report of the run of `find mask` in this folder."""
    found = result_of(path, FoundMask, "a learned mask")
    history = read_history(path, found)
    lead = (
        f"Which of {len(found.heads)} attention heads {found.model_name} keeps when it learns to "
        f"do the task {found.task} without being told to: {found.selected} "
        f"({percent(found.kept_share)})."
    )
    facts = [
        ("examples", str(found.examples)),
        ("shots", str(found.shots) if found.shots else ""),
        ("steps", str(len(found.loss))),
        ("start", "nearly all heads kept" if found.start == "positive" else "nearly none kept"),
        ("gates on", "queries" if found.on == "query" else "outputs"),
    ]
    return simple_page(
        f"{found.model_name} \u00b7 mask \u00b7 {found.task}",
        masthead("Learned mask", lead, facts, kicker="headscope find mask"),
        [
            ("summary", "", _summary(found)),
            ("map", "Map", _map(found, history)),
            ("training", "Training", _training(found, history)),
            ("wavering", "Wavering heads", _wavering(found, history)),
            ("provenance", "Provenance", about_run(path)),
        ],
        styles=(STYLE,),
    )


def _summary(found: FoundMask) -> Html:
    first, last = found.loss_ends
    moved = "fell" if last < first else "went"
    what = (
        "A head that is not kept still reads along, but evenly: its queries are 0."
        if found.on == "query"
        else "A head that is not kept writes nothing."
    )
    by_layer = _kept_by_layer(found)
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
            f"It keeps {found.selected} of {len(found.heads)} heads; the fewest in layer "
            f"{sparse}, {kept} of {heads}. ",
            _feed_forward(found),
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
    parts += [tag("p", note[0].upper() + note[1:] + ".") for note in found.notes]
    parts.append(
        tag(
            "p",
            "This is one training run with one seed; another seed can keep other heads.",
            class_="sure",
        )
    )
    return section("summary", "In short", *parts)


def _feed_forward(found: FoundMask) -> str:
    if found.feed_forward is None:
        return ""
    gone = found.feed_forward_dropped
    if not gone:
        return "Every layer keeps its feed-forward part."
    return f"The feed-forward part of layer {', '.join(map(str, gone))} is dropped, too."


def _kept_by_layer(found: FoundMask) -> dict[int, tuple[int, int]]:
    """How many heads of how many each layer keeps."""
    return {
        layer: (sum(head.selected for head in heads), len(heads))
        for layer, heads in found.layers.items()
    }


def _map(found: FoundMask, history: MaskHistory) -> Html:
    geometry = history.geometry
    pitch = max(9, min(28, 720 // geometry.width))
    cells = []
    for index, head in enumerate(found.heads):
        share = float(1 / (1 + np.exp(-head.score)))
        words = f"head {head.place}: \u03c3(M) {fixed(share, 3)}, {FATES[head.fate]}"
        colour = ramp_class(share, 1.0)
        cells.append(Cell(head.layer, head.head, colour, index, words, marked=head.selected))
    picture = matrix(
        cells,
        Axis(_labels(geometry.layers, pitch), "layer"),
        Axis(_labels(geometry.width, pitch), "head"),
        pitch,
        f"Mask map: {found.selected} of {geometry.total} heads are kept",
    )
    rows = [
        [str(layer), f"{kept} of {heads}", percent(kept / heads)]
        for layer, (kept, heads) in _kept_by_layer(found).items()
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


def _training(found: FoundMask, history: MaskHistory) -> Html:
    width = max(1, len(found.loss) // POINTS)
    blocks = {at: found.loss[at : at + width] for at in range(0, len(found.loss), width)}
    loss = Series("loss", [(at + len(part) / 2, fmean(part)) for at, part in blocks.items()])
    counts = (history.weights >= 0)[:, history.geometry.mask()].sum(axis=1)
    at = np.unique(np.linspace(0, len(history.steps) - 1, POINTS).round().astype(int))
    kept = Series("kept", [(float(history.steps[i]), float(counts[i])) for i in at], "key-base")
    first, last = found.loss_ends
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


def _wavering(found: FoundMask, history: MaskHistory) -> Html:
    rows = [[FATES[fate], str(found.fates[fate])] for fate in FATES if found.fates.get(fate)]
    wavered = [head for head in found.heads if head.wavered]
    total, shown = len(found.heads), len(drawn_heads(found.heads))
    some = f"Of {total} heads {shown} are drawn. " if shown < total else ""
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
                [_row(head) for head in wavered[:LISTED]],
                said=(1, 2),
                class_="numbers",
            ),
        )
    said = f"{len(wavered)} of {total} heads changed sides more than once"
    return section(
        "wavering",
        "Heads that wavered",
        figure("paths", caption, paths_chart(history, found.heads, said)),
        scroll(
            "What became of the heads",
            table("What became of the heads", ["course", "heads"], rows, class_="numbers"),
        ),
        listed,
        tag("p", f"And {len(wavered) - LISTED} more.") if len(wavered) > LISTED else None,
    )


def _row(head: MaskHead) -> list[Child]:
    return [str(head.place), FATES[head.fate], ", ".join(map(str, head.changes))]


def _labels(number: int, pitch: int) -> list[str]:
    """A label for each place, or for every fourth where they stand too close."""
    step = 1 if pitch >= 16 else 4
    return [str(at) if at % step == 0 else "" for at in range(number)]
