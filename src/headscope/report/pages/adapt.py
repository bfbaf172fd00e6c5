"""The report of `use adapt`: outputs with gates on a model, beside those of the model as it is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from headscope.report.html import Child, Html, join, tag
from headscope.report.page import Page
from headscope.report.pages import steering
from headscope.report.pages.frame import about_run, masthead, simple_page
from headscope.report.parts import scroll, section, table
from headscope.report.records.adapt import AdaptRecord, read_adapt
from headscope.report.words import count, number, percent
from headscope.runs.reading import read_result

__all__ = ["page"]


def page(path: Path) -> Page:
    """The report of the run of `use adapt` in this folder, with `--steer` or without."""
    if "steer" in read_result(path):
        return steering.page(path)
    record = read_adapt(path)
    gate = record.gate
    head = masthead(
        record.model,
        join("What the model writes with ", tag("bdi", str(gate["name"])), " on it."),
        [
            ("heads changed", f"{gate['heads']} of {gate['of']}"),
            ("prompts", str(record.prompts)),
            ("tokens of an output, at most", str(record.max_new_tokens)),
        ],
        kicker="headscope use adapt",
    )
    return simple_page(
        f"{record.model} \u00b7 adapted",
        head,
        [
            ("summary", "", _summary(record)),
            ("outputs", "Outputs", _outputs(record)),
            ("gate", "Gate", _gate(record)),
            ("provenance", "Provenance", about_run(path)),
        ],
    )


def _summary(record: AdaptRecord) -> Html:
    gate = record.gate
    what = "what they write is" if gate["on"] == "output" else "their queries are"
    lines = [
        f"Of {count(gate['of'], 'head')} {count(gate['heads'], 'is', 'are')} changed, "
        f"{gate['removed']} of them with a gate of 0; {what} multiplied."
    ]
    if gate["feed_forward"]:
        lines.append(
            f"{count(gate['feed_forward'], 'feed-forward part is', 'feed-forward parts are')} "
            "multiplied, too."
        )
    after, before = record.empty
    if record.changed is None:
        lines.append("The model was not asked as it is, so nothing says what the gate changed.")
    else:
        share = percent(record.changed / record.prompts if record.prompts else None)
        lines.append(
            f"{record.changed} of {count(record.prompts, 'output')} ({share}) "
            "differ from those of the model as it is."
        )
    lines.append(
        f"{count(after, 'output is', 'outputs are')} empty"
        + ("." if before is None else f", {before} with the model as it is.")
    )
    sure = (
        "Outputs are greedy, so they are the same whenever the run is repeated on the same "
        "machine. That they differ does not say which are better."
    )
    return section(
        "summary",
        "In short",
        [tag("p", line) for line in lines],
        tag("p", tag("span", sure, class_="sure")),
    )


def _outputs(record: AdaptRecord) -> Html:
    compared = any(one.as_is is not None for one in record.outputs)
    referenced = any(one.reference is not None for one in record.outputs)
    header = ["Prompt", *(["As is"] if compared else []), "Adapted"]
    header += [*(["Reference"] if referenced else [])]
    header += [*(["Differs"] if compared else []), "Id"]
    rows = []
    for one in record.outputs:
        cells: list[Child] = [tag("bdi", one.prompt)]
        cells += [tag("bdi", one.as_is or "\u2013")] if compared else []
        cells.append(tag("bdi", one.text or "\u2013"))
        cells += [tag("bdi", one.reference or "\u2013")] if referenced else []
        cells += ["yes" if one.changed else "no"] if compared else []
        rows.append([*cells, tag("bdi", one.id)])
    note = (
        f"{count(len(rows), 'output')} of {record.prompts}, those that differ first; "
        "all are in outputs.jsonl of the run folder."
    )
    shown = table("Outputs", header, rows)
    return section("outputs", "Outputs", tag("p", note, class_="note"), scroll("Outputs", shown))


def _gate(record: AdaptRecord) -> Html | None:
    if not record.heads and not record.feed_forward:
        return None
    parts = [
        _numbers("Heads", ("Number", "Heads (layer.head)"), record.heads),
        _numbers("Feed-forward parts", ("Number", "Layers"), record.feed_forward),
    ]
    note = "Everything that is not named here is multiplied by 1."
    return section("gate", "What was applied", tag("p", note, class_="note"), *parts)


def _numbers(name: str, header: tuple[str, str], values: Mapping[str, float]) -> Html | None:
    """Which places have which number, the numbers in ascending order."""
    if not values:
        return None
    by_number: dict[float, list[str]] = {}
    for place, value in values.items():
        by_number.setdefault(value, []).append(place)
    rows = [(number(value), ", ".join(places)) for value, places in sorted(by_number.items())]
    return scroll(name, table(name, list(header), rows))
