"""Where the numbers come from: model, data, versions, configuration, command."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

from headscope.report.html import Html, tag
from headscope.report.parts import scroll, section, table
from headscope.report.record import AtlasRecord
from headscope.report.words import arrow

__all__ = ["origin_section", "provenance_section"]

PACKAGES = (
    "headscope",
    "python",
    "torch",
    "transformers",
    "numpy",
    "safetensors",
    "tokenizers",
    "sacrebleu",
)


def origin_section(record: AtlasRecord) -> Html:
    """The box beside the summary: which model, which run."""
    command = record.provenance.get("command_line") or []
    line = shlex.join(map(str, command)) if isinstance(command, list) else str(command)
    started = record.provenance.get("started") or []
    run = {
        "signature": record.result.get("signature"),
        "command": line,
        "run folder": record.result.get("run"),
        "started": _time(started[0] if isinstance(started, list) and started else started),
        "ended": _time(record.provenance.get("ended")),
        "seconds": record.result.get("seconds"),
    }
    return section(
        "origin",
        "Model and run",
        _facts("Model", _model(record.model)),
        _facts("Run", run),
        tag("p", tag("a", "Data, software and configuration", href="#provenance")),
        class_="box",
    )


def provenance_section(record: AtlasRecord) -> Html:
    """The data of every direction, versions and the configuration, as stored in the run."""
    software = {name: record.provenance.get(name) for name in (*PACKAGES, "platform")}
    return section(
        "provenance",
        "Where the numbers come from",
        _data(record),
        tag(
            "div",
            _facts("Software", software),
            tag(
                "div",
                tag("h3", "Configuration"),
                tag("pre", _json(record.result.get("config")), tabindex=0),
            ),
            class_="facts-grid",
        ),
    )


def _model(model: Mapping[str, Any]) -> dict[str, Any]:
    facts = dict(model)
    geometry = facts.get("geometry")
    counts = geometry.get("counts") if isinstance(geometry, Mapping) else None
    if isinstance(counts, list) and counts:
        low, high = min(counts), max(counts)
        uneven = f"{len(counts)} layers, {low} to {high} heads each, {sum(counts)} in all"
        facts["geometry"] = f"{len(counts)} layers \u00d7 {low} heads" if low == high else uneven
    if isinstance(facts.get("parameters"), int):
        facts["parameters"] = f"{facts['parameters']:,}".replace(",", "\u202f")
    return facts


def _facts(title: str, facts: Mapping[str, Any]) -> Html:
    rows = [
        tag("div", tag("dt", name), tag("dd", value if isinstance(value, str) else _json(value)))
        for name, value in facts.items()
        if value not in (None, "", [])
    ]
    return tag("div", tag("h3", title), tag("dl", rows, class_="facts"))


def _data(record: AtlasRecord) -> Html | None:
    data = record.result.get("data")
    if not isinstance(data, Mapping) or not data:
        return None
    names = ("path", "found_on", "verified_on", "units", "aligner", "digest", "links_digest")
    header = ("Direction", "File", "Found on", "Verified on", "Units", "Aligner", "Digest", "Links")
    rows = [
        (
            tag("bdi", arrow(str(name))),
            *(_cell(part.get(key)) for key in names),
        )
        for name, part in data.items()
        if isinstance(part, Mapping)
    ]
    return scroll("Data", table("Data of every direction", header, rows, class_="data"))


def _time(stamp: Any) -> str:
    return str(stamp or "").replace("T", " ").replace("+00:00", " UTC")


def _cell(value: Any) -> Html:
    if value is None:
        return tag("span", "\u2013")
    text = str(value)
    short = f"{text[:12]}\u2026" if len(text) >= 32 and text.isalnum() else text
    return tag("bdi", short, title=text if short != text else None)


def _json(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.1f}"
    return json.dumps(value, ensure_ascii=False, indent=2)
