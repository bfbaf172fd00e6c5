"""The report of an export: what was written, how exact it is, and which heads it changes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from headscope.heads import Gate, HeadScores
from headscope.report.html import Child, Html, join, tag
from headscope.report.page import Page
from headscope.report.pages.frame import about_run, masthead, simple_page
from headscope.report.parts import figure, scroll, section, table
from headscope.report.sections.head_scores import head_map
from headscope.results.export import ExportedModel, ExportProof
from headscope.runs.reading import result_of
from headscope.shown.words import count, number, percent

__all__ = ["page"]

FORMS = {"checkpoint": "checkpoint", "ia3": "(IA)\u00b3 adapter"}
#: Rows of the table of heads.
MOST = 200


def page(path: Path) -> Page:
    """The report of the run of `use export` in this folder."""
    result = result_of(path, ExportedModel, "an export")
    form, heads = FORMS[result.form], result.gate.heads
    head = masthead(
        result.model_name,
        f"What {count(heads, 'gated head')} became as "
        f"{'an' if result.form == 'ia3' else 'an ordinary'} {form}.",
        [
            ("heads changed", f"{heads} of {result.gate.of}"),
            ("files", str(len(result.written.files))),
            ("size", _size(result.written.size)),
        ],
        kicker="headscope use export",
    )
    return simple_page(
        f"{result.model_name} \u00b7 exported",
        head,
        [
            ("summary", "", _summary(result)),
            ("check", "Comparison", _comparison(result.check)),
            ("heads", "Heads", _heads(path, result)),
            ("files", "Files", _files(result)),
            ("provenance", "Provenance", about_run(path)),
        ],
    )


def _summary(result: ExportedModel) -> Html:
    gate, base, proof = result.gate, result.base, result.check
    lines: list[Child] = [
        tag(
            "p",
            f"Of {count(gate.of, 'head')} ",
            tag("strong", f"{gate.heads} are multiplied"),
            f", {gate.removed} of them by 0, which removes them. ",
            "The numbers stand in the attention output projections; nothing of headscope is needed "
            "to use the checkpoint."
            if result.form == "checkpoint"
            else "The numbers are vectors before the attention output projections; stock PEFT "
            "loads them around the base model, whose weights stay as they are.",
        )
    ]
    if gate.feed_forward:
        parts = count(gate.feed_forward, "feed-forward part is", "feed-forward parts are")
        lines.append(tag("p", f"{parts} multiplied, too."))
    if proof is None:
        lines.append(tag("p", f"It was not compared with the gated model: {result.check_note}."))
    else:
        lines.append(
            tag(
                "p",
                f"Its logits differ from those of the gated model by at most "
                f"{number(proof.largest_difference)}, where the gate itself moves them by up to "
                f"{number(proof.untouched_difference)}.",
                class_="sure",
            )
        )
        if proof.proves_nothing:
            lines.append(
                tag(
                    "p",
                    "This proves nothing: rounding alone may make a difference of "
                    f"{number(proof.allowed)}.",
                )
            )
    if result.found_on_same_weights is False:
        lines.append(
            tag("p", "The heads were found on other weights of the same shape, not on these.")
        )
    licence = (
        f"The licence is that of the base model: {base.license}."
        if base.license
        else "No licence of the base model is known here"
        + (f" ({base.license_note})" if base.license_note else "")
        + "; its model card says none."
    )
    return section("summary", "In short", *lines, tag("p", licence))


def _comparison(proof: ExportProof | None) -> Html | None:
    if proof is None:
        return None
    rows: list[tuple[Child, ...]] = [
        (
            "Export against the gated model: largest difference",
            number(proof.largest_difference),
        ),
        (
            "Export against the model as it is: largest difference",
            number(proof.untouched_difference),
        ),
        ("Largest logit of the gated model", number(proof.largest_logit)),
        ("Positions with the same most likely token", percent(proof.same_choice, 1)),
    ]
    caption = join(
        tag("strong", "Logits of the export beside those of the gated model. "),
        f"Both were computed in {proof.dtype} on {count(proof.positions, 'token')} of a few short "
        "texts; the export was loaded as anybody would load it. ",
        f"Multiplied weights are rounded to {proof.rounded_to}; factors of 0 and 1 need no "
        "rounding. The second row is there for scale: it says what the gate does at all. A few "
        "texts show that the right weights were multiplied; they do not say how good the model is.",
    )
    body = scroll("Comparison", table("Logits compared", ("What", "Value"), rows, class_="numbers"))
    return section("check", "Comparison", figure("check-figure", caption, body))


def _heads(path: Path, result: ExportedModel) -> Html:
    gate = Gate.from_pretrained(path / "gate")
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
    if result.found_by:
        found.append(tag("p", "Found by the run ", tag("code", result.found_by), "."))
    return section("heads", "Heads", *found, figure("map", caption, picture), numbers)


def _files(result: ExportedModel) -> Html:
    files, changed = result.written.files, result.written.changed
    what = "tensor" if result.form == "checkpoint" else "module"
    lines = [
        f"{_size(result.written.size)} in {count(len(files), 'file')}: "
        + ", ".join(files[:4])
        + (" \u2026" if len(files) > 4 else ""),
        f"{count(len(changed), what)} with factors: "
        + ", ".join(changed[:4])
        + (" \u2026" if len(changed) > 4 else ""),
    ]
    if result.model and result.model.quantised:
        lines.append(f"The base model's weights are quantised: {result.model.quantised}.")
    return section("files", "Files", *(tag("p", line) for line in lines))


def _size(size: int) -> str:
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if size >= unit:
            return f"{number(size / unit)}\u00a0{name}"
    return f"{size}\u00a0bytes"
