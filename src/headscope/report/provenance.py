"""Where the numbers come from: model, data, versions, configuration, command."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headscope.report.html import Html, tag
from headscope.report.parts import bdi, folded, scroll, section, table
from headscope.results.common import ModelResult
from headscope.runs import encode
from headscope.runs.reading import read_object, result_of, result_so_far
from headscope.shown.words import arrow

PACKAGES = ("headscope", "python", "torch", "transformers", "numpy", "safetensors", "tokenizers",
            "sacrebleu", "platform")  # fmt: skip

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
"""The most facts that stand open; characters of the longest name on the line of its value."""


def about_run(path: Path) -> Html:
    """Where the numbers of any run come from: run, model, data, software, configuration.

    InputError if the files of the run are missing or damaged.
    """
    run, provenance = read_object(path / "run.json"), read_object(path / "provenance.json")
    result = result_so_far(path, _AnyResult, "a run") or result_of(path, _AnyResult, "a run")
    inputs = run.get("inputs")
    # The configuration the run was keyed by; where that is lacking, what its result says.
    config = run.get("config") or result.config
    software = {name: provenance.get(name) for name in PACKAGES}
    read = facts_list("What was read (SHA-256)", inputs if isinstance(inputs, Mapping) else {})
    return section(
        "provenance",
        "Where the numbers come from",
        _grid(
            facts_list("Run", _run_facts(result, provenance, path)),
            facts_list("Model", _model_facts(encode(result.model) or {}, provenance)),
        ),
        _data_table(result.data),
        _grid(facts_list("Software", software), read),
        tag("div", tag("h3", "Configuration"), tag("pre", _json(config), tabindex=0)),
        closed=True,
    )


def _grid(*facts: Html | None) -> Html:
    return tag("div", *facts, class_="facts-grid")


def _run_facts(result: _AnyResult, provenance: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Signature, command line, folder and times of a run."""
    command = provenance.get("command_line") or []
    started = provenance.get("started") or []
    return {
        "signature": result.signature,
        "command": shlex.join(map(str, command)) if isinstance(command, list) else str(command),
        "run folder": result.run or str(path),
        "started": _time(started[0] if isinstance(started, list) and started else started),
        "ended": _time(provenance.get("ended")),
        "seconds": result.seconds,
    }


def _model_facts(model: Mapping[str, Any], provenance: Mapping[str, Any]) -> dict[str, Any]:
    """What a result and its run say of the model, ready to be shown."""
    facts = dict(model)
    known = {"name": "model", "digest": "weights", "revision": "revision", "dtype": "dtype",
             "device": "device", "system_turn": "system_turn",
             "prompt_date": "prompt_date", "template_told": "template_told",
             "answers_follow": "answers_follow",
             "generation_settings": "generation_settings"}  # fmt: skip
    facts |= {name: facts.get(name) or provenance.get(key) for name, key in known.items()}
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
    listed = tag("dl", rows, class_="facts")
    if len(rows) > MOST:
        listed = folded(f"All {len(rows)}", listed)
    return tag("div", tag("h3", title), listed) if rows else None


def _data_table(data: Any) -> Html | None:
    """The data of every direction as a result holds it; None where it holds none."""
    if not isinstance(data, Mapping) or not data:
        return None
    parts = {str(name): part for name, part in data.items() if isinstance(part, Mapping)}
    columns = [key for key in COLUMNS if any(key in part for part in parts.values())]
    rows = [
        (bdi(arrow(name)), *(_cell(part.get(key)) for key in columns))
        for name, part in parts.items()
    ]
    header = ("Data", *(COLUMNS[key] for key in columns))
    return scroll(table("Data", header, rows, class_="data"))


def _time(stamp: Any) -> str:
    return str(stamp or "").replace("T", " ").replace("+00:00", " UTC")


def _cell(value: Any) -> Html | str:
    text = "\u2013" if value is None else str(value)
    if len(text) < 32 or not text.isalnum():
        return bdi(text)
    return tag("bdi", f"{text[:12]}\u2026", title=text)


def _json(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.1f}"
    return json.dumps(value, ensure_ascii=False, indent=2)
