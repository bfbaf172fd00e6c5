"""The report of an export: what was written, how exact it is, and which heads it changes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from headscope.heads import HeadScores
from headscope.report.html import Child, Html, join, tag
from headscope.report.page import Page
from headscope.report.pages.frame import about_run, masthead, simple_page
from headscope.report.parts import figure, scroll, section, table
from headscope.report.records.export import ExportRecord, read_export
from headscope.report.sections.head_scores import head_map
from headscope.report.words import count, number, percent

__all__ = ["page"]

FORMS = {"checkpoint": "checkpoint", "ia3": "(IA)\u00b3 adapter"}
#: Rows of the table of heads.
MOST = 200


def page(path: Path) -> Page:
    """The report of the run of `use export` in this folder."""
    record = read_export(path)
    form = FORMS[record.form]
    heads = len(record.gate.changed_heads())
    head = masthead(
        record.model,
        f"What {count(heads, 'gated head')} became as "
        f"{'an' if record.form == 'ia3' else 'an ordinary'} {form}.",
        [
            ("heads changed", f"{heads} of {record.gate.geometry.total}"),
            ("files", str(len(record.files))),
            ("size", _size(record.size)),
        ],
        kicker="headscope use export",
    )
    return simple_page(
        f"{record.model} \u00b7 exported",
        head,
        [
            ("summary", "", _summary(record)),
            ("check", "Comparison", _comparison(record)),
            ("heads", "Heads", _heads(record)),
            ("files", "Files", _files(record)),
            ("provenance", "Provenance", about_run(path)),
        ],
    )


def _summary(record: ExportRecord) -> Html:
    gate = record.gate
    lines: list[Child] = [
        tag(
            "p",
            f"Of {count(gate.geometry.total, 'head')} ",
            tag("strong", f"{len(gate.changed_heads())} are multiplied"),
            f", {len(gate.removed_heads())} of them by 0, which removes them. ",
            "The numbers stand in the attention output projections; nothing of headscope is needed "
            "to use the checkpoint."
            if record.form == "checkpoint"
            else "The numbers are vectors before the attention output projections; stock PEFT "
            "loads them around the base model, whose weights stay as they are.",
        )
    ]
    if record.feed_forward:
        parts = count(record.feed_forward, "feed-forward part is", "feed-forward parts are")
        lines.append(tag("p", f"{parts} multiplied, too."))
    if record.comparison is not None:
        one = record.comparison
        lines.append(
            tag(
                "p",
                f"Its logits differ from those of the gated model by at most "
                f"{number(one.difference)}, where the gate itself moves them by up to "
                f"{number(one.moved)}.",
                class_="sure",
            )
        )
        if one.allowed is not None and one.moved <= one.allowed:
            lines.append(
                tag(
                    "p",
                    "This proves nothing: rounding alone may make a difference of "
                    f"{number(one.allowed)}.",
                )
            )
    else:
        lines.append(tag("p", f"It was not compared with the gated model: {record.note}."))
    if record.same_weights is False:
        lines.append(
            tag("p", "The heads were found on other weights of the same shape, not on these.")
        )
    licence = (
        f"The licence is that of the base model: {record.licence}."
        if record.licence
        else "No licence of the base model is known here"
        + (f" ({record.licence_note})" if record.licence_note else "")
        + "; its model card says none."
    )
    return section("summary", "In short", *lines, tag("p", licence))


def _comparison(record: ExportRecord) -> Html | None:
    one = record.comparison
    if one is None:
        return None
    rows: list[tuple[Child, ...]] = [
        ("Export against the gated model: largest difference", number(one.difference)),
        ("Export against the model as it is: largest difference", number(one.moved)),
        ("Largest logit of the gated model", number(one.largest)),
        ("Positions with the same most likely token", percent(one.same, 1)),
    ]
    caption = join(
        tag("strong", "Logits of the export beside those of the gated model. "),
        f"Both were computed in {one.dtype} on {count(one.positions, 'token')} of a few short "
        "texts; the export was loaded as anybody would load it. ",
        f"Multiplied weights are rounded to {one.rounded}; factors of 0 and 1 need no rounding. "
        "The second row is there for scale: it says what the gate does at all. A few texts show "
        "that the right weights were multiplied; they do not say how good the model is.",
    )
    body = scroll("Comparison", table("Logits compared", ("What", "Value"), rows, class_="numbers"))
    return section("check", "Comparison", figure("check-figure", caption, body))


def _heads(record: ExportRecord) -> Html:
    gate = record.gate
    changed = gate.changed_heads()
    far = np.abs(gate.values.astype(np.float64) - 1)
    caption = join(
        tag("strong", "How far each head's factor is from 1. "),
        "The palest heads are as they were; a removed head, whose factor is 0, is at 1.",
    )
    picture = head_map(HeadScores(gate.geometry, far, "gate"), "Distance of the factor from 1")
    shown = list(changed)[:MOST]
    rows: list[tuple[Child, ...]] = [(str(head), number(gate[head])) for head in shown]
    more = f" The first {MOST} of {len(changed)}." if len(changed) > MOST else ""
    numbers = scroll(
        "Factors", table(f"Factors by head.{more}", ("Head", "Factor"), rows, class_="numbers")
    )
    found: list[Child] = []
    if record.found_by:
        found.append(tag("p", "Found by the run ", tag("code", record.found_by), "."))
    return section("heads", "Heads", *found, figure("map", caption, picture), numbers)


def _files(record: ExportRecord) -> Html:
    what = "tensor" if record.form == "checkpoint" else "module"
    lines = [
        f"{_size(record.size)} in {count(len(record.files), 'file')}: "
        + ", ".join(record.files[:4])
        + (" \u2026" if len(record.files) > 4 else ""),
        f"{count(len(record.changed), what)} with factors: "
        + ", ".join(record.changed[:4])
        + (" \u2026" if len(record.changed) > 4 else ""),
    ]
    if record.quantised:
        lines.append(f"The base model's weights are quantised: {record.quantised}.")
    return section("files", "Files", *(tag("p", line) for line in lines))


def _size(size: int) -> str:
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if size >= unit:
            return f"{number(size / unit)}\u00a0{name}"
    return f"{size}\u00a0bytes"
