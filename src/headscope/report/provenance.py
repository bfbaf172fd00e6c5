"""Where the numbers come from: model, data, versions, configuration, command."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headscope.heads import rank_words
from headscope.report.html import Html, tag
from headscope.report.parts import scroll, section, table
from headscope.results.common import ModelResult, few_draws
from headscope.runs import encode
from headscope.runs.reading import read_object, result_of
from headscope.shown.words import arrow

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

COLUMNS = {
    "path": "File",
    "found_on": "Found on",
    "verified_on": "Verified on",
    "verified_path": "Verified in",
    "examples": "Examples",
    "sentences": "Sentences",
    "units": "Units",
    "aligner": "Aligner",
    "digest": "Digest",
    "links_digest": "Links",
}


@dataclass(frozen=True, kw_only=True)
class _AnyResult(ModelResult):
    """What any command's result says of where it comes from."""

    data: Any = None
    config: Any = None


MOST, LONG = 24, 26
"""The most facts that stand open; characters of the longest name that stands beside its value."""


def about_run(path: Path) -> Html:
    """Where the numbers of any run come from: run, model, data, software, configuration.

    InputError if the files of the run are missing or damaged.
    """
    run, provenance = read_object(path / "run.json"), read_object(path / "provenance.json")
    result = result_of(path, _AnyResult, "a run")
    described = encode(result.model) or {}
    for name, key in (("name", "model"), ("digest", "weights")):
        described[name] = described.get(name) or provenance.get(key)
    for name in ("revision", "dtype", "device"):
        described[name] = described.get(name) or provenance.get(name)
    data = _data_table(result.data)
    inputs = run.get("inputs")
    return section(
        "provenance",
        "Where the numbers come from",
        tag(
            "div",
            facts_list("Run", _run_facts(result, provenance, path)),
            facts_list("Model", _model_facts(described)),
            class_="facts-grid",
        ),
        data,
        tag(
            "div",
            facts_list("Software", _software_facts(provenance)),
            facts_list("What was read (SHA-256)", inputs if isinstance(inputs, Mapping) else {}),
            class_="facts-grid",
        ),
        _configuration(run.get("config") or result.config),
    )


def _run_facts(result: _AnyResult, provenance: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Signature, command line, folder and times of a run."""
    command = provenance.get("command_line") or []
    started = provenance.get("started") or []
    return {
        "signature": result.signature,
        "heads ranked by": rank_words(encode(result)),
        "command": shlex.join(map(str, command)) if isinstance(command, list) else str(command),
        "run folder": result.run or str(path),
        "started": _time(started[0] if isinstance(started, list) and started else started),
        "ended": _time(provenance.get("ended")),
        "seconds": result.seconds,
        "draws": few_draws(encode(result)),
    }


def _software_facts(provenance: Mapping[str, Any]) -> dict[str, Any]:
    """The versions of what took part."""
    return {name: provenance.get(name) for name in (*PACKAGES, "platform")}


def _configuration(config: Any) -> Html:
    """A configuration as it is stored."""
    return tag("div", tag("h3", "Configuration"), tag("pre", _json(config), tabindex=0))


def _model_facts(model: Mapping[str, Any]) -> dict[str, Any]:
    """What a result says of its model, ready to be shown."""
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


def facts_list(title: str, facts: Mapping[str, Any]) -> Html | None:
    """Names and values under a heading, without those that are empty; None if all are."""
    rows = [
        tag(
            "div",
            tag("dt", name),
            tag("dd", value if isinstance(value, str) else _json(value)),
            class_="long" if len(name) > LONG else None,
        )
        for name, value in facts.items()
        if value not in (None, "", [])
    ]
    if not rows:
        return None
    listed = tag("dl", rows, class_="facts")
    if len(rows) > MOST:
        listed = tag("details", tag("summary", f"All {len(rows)}"), listed)
    return tag("div", tag("h3", title), listed)


def _data_table(data: Any) -> Html | None:
    """The data of every direction as a result holds it; None where it holds none."""
    if not isinstance(data, Mapping) or not data:
        return None
    parts = [part for part in data.values() if isinstance(part, Mapping)]
    columns = {name: words for name, words in COLUMNS.items() if any(name in p for p in parts)}
    rows = [
        (
            tag("bdi", arrow(str(name))),
            *(_cell(part.get(key)) for key in columns),
        )
        for name, part in data.items()
        if isinstance(part, Mapping)
    ]
    return scroll("Data", table("Data", ("Data", *columns.values()), rows, class_="data"))


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
