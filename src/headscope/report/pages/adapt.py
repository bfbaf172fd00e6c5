"""The report of `use adapt`: outputs with gates on a model, beside those of the model as it is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from headscope.report.html import Child, Html, join, tag
from headscope.report.page import Page
from headscope.report.pages import steering
from headscope.report.pages.frame import about_run, masthead, simple_page
from headscope.report.parts import scroll, section, table
from headscope.results.adapt import AdaptedModel, AdaptedOutput, GateNumbers
from headscope.runs import decode
from headscope.runs.reading import damaged_line, read_result, read_rows, result_of
from headscope.shown.words import count, number, percent

__all__ = ["page"]

#: Outputs that are shown, those that differ first.
SHOWN = 60


def page(path: Path) -> Page:
    """The report of the run of `use adapt` in this folder, with `--steer` or without."""
    if "steer" in read_result(path):
        return steering.page(path)
    result = result_of(path, AdaptedModel, "a run of `headscope use adapt`")
    gate = result.gate
    head = masthead(
        result.model_name,
        join("What the model writes with ", tag("bdi", gate.name), " on it."),
        [
            ("heads changed", f"{gate.heads} of {gate.of}"),
            ("prompts", str(result.prompts)),
            ("tokens of an output, at most", str(result.max_new_tokens)),
        ],
        kicker="headscope use adapt",
    )
    return simple_page(
        f"{result.model_name} \u00b7 adapted",
        head,
        [
            ("summary", "", _summary(result)),
            ("outputs", "Outputs", _outputs(path, result)),
            ("gate", "Gate", _gate(gate.applied)),
            ("provenance", "Provenance", about_run(path)),
        ],
    )


def _summary(result: AdaptedModel) -> Html:
    gate = result.gate
    what = "what they write is" if gate.on == "output" else "their queries are"
    lines = [
        f"Of {count(gate.of, 'head')} {count(gate.heads, 'is', 'are')} changed, "
        f"{gate.removed} of them with a gate of 0; {what} multiplied."
    ]
    if gate.feed_forward:
        lines.append(
            f"{count(gate.feed_forward, 'feed-forward part is', 'feed-forward parts are')} "
            "multiplied, too."
        )
    if result.changed is None:
        lines.append("The model was not asked as it is, so nothing says what the gate changed.")
    else:
        share = percent(result.changed / result.prompts if result.prompts else None)
        lines.append(
            f"{result.changed} of {count(result.prompts, 'output')} ({share}) "
            "differ from those of the model as it is."
        )
    before = result.empty_as_is
    lines.append(
        f"{count(result.empty, 'output is', 'outputs are')} empty"
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


def _outputs(path: Path, result: AdaptedModel) -> Html:
    outputs = _first_outputs(path / "outputs.jsonl")
    compared = any(output.text_as_is is not None for output in outputs)
    referenced = any(output.reference is not None for output in outputs)
    header = ["Prompt", *(["As is"] if compared else []), "Adapted"]
    header += [*(["Reference"] if referenced else [])]
    header += [*(["Differs"] if compared else []), "Id"]
    rows = []
    for output in outputs:
        cells: list[Child] = [tag("bdi", output.asked)]
        cells += [tag("bdi", output.text_as_is or "\u2013")] if compared else []
        cells.append(tag("bdi", output.text or "\u2013"))
        cells += [tag("bdi", output.reference or "\u2013")] if referenced else []
        cells += ["yes" if output.changed else "no"] if compared else []
        rows.append([*cells, tag("bdi", output.id)])
    note = (
        f"{count(len(rows), 'output')} of {result.prompts}, those that differ first; "
        "all are in outputs.jsonl of the run folder."
    )
    shown = table("Outputs", header, rows)
    return section("outputs", "Outputs", tag("p", note, class_="note"), scroll("Outputs", shown))


def _first_outputs(path: Path) -> list[AdaptedOutput]:
    """The first outputs that differ from the model's own and, if room is left, others."""
    changed: list[AdaptedOutput] = []
    same: list[AdaptedOutput] = []
    for line, row in read_rows(path):
        try:
            output: AdaptedOutput = decode(AdaptedOutput, row)
        except (KeyError, ValueError) as error:
            raise damaged_line(path, line) from error
        kept = changed if output.changed else same
        if len(kept) < SHOWN:
            kept.append(output)
    return [*changed, *same][:SHOWN]


def _gate(applied: GateNumbers) -> Html | None:
    if not applied.heads and not applied.feed_forward:
        return None
    parts = [
        _numbers("Heads", ("Number", "Heads (layer.head)"), applied.heads),
        _numbers("Feed-forward parts", ("Number", "Layers"), applied.feed_forward),
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
