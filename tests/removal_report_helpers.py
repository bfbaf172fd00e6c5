"""A run folder of `verify removal` with made-up numbers, in the format that the command writes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from headscope.runs import open_run
from headscope.shown.blocks import Cell, Shown, Table

Rows = list[dict[str, Any]]
SENTENCES = {
    "en": ("The old teacher sees three small birds.", "Mira did not open the red door."),
    "de": ("Die alte Lehrerin sieht drei kleine Vögel.", "Mira öffnete die rote Tür nicht."),
}


def write_removal(
    path: Path,
    directions: tuple[str, ...] = ("en-de", "de-en"),
    k: tuple[int, ...] = (4, 8, 14),
    gates: tuple[float, ...] = (0.0,),
    draws: int = 4,
    matched: bool = True,
    sentences: int = 25,
    text: str = "",
    links: str | None = "reference",
    top: float = 20.0,
    rows: Rows | None = None,
    counts: bool = True,
    entries: dict[str, Any] | None = None,
    kinds: tuple[str, ...] = ("zero",),
) -> Path:
    """Write a finished run; `text` goes into all names and sentences, `entries` into the result."""
    with open_run(path, "verify removal", {"k": list(k), "note": text}, {}) as run:
        run.provenance |= {"model": "pocket" + text, "command_line": ["headscope", "verify"]}
        labels = [
            {**one, **({"ablate": kind} if len(kinds) > 1 else {})}  # older runs name none
            for one in _labels(k, gates, draws, matched)
            for kind in kinds
        ]
        written = rows or _outputs(directions, labels, sentences, text)
        run.write_jsonl("outputs.jsonl", written)
        shown = [row for row in written if row["k"] in (0, max(k)) and row["gate"] in (1, gates[0])]
        run.write_jsonl("links.jsonl", links_of(shown) if links else [])
        if counts:
            run.write_tensors("statistics.safetensors", _statistics(written, len(labels) + 1))
        result = {
            "signature": run.signature,
            "run": str(path),
            "seconds": 12.5,
            "k": list(k),
            "gates": list(gates),
            "draws": draws,
            "pool": "non-alignment",
            "ablate": kinds[0],
            "heads": [f"{n // 4}.{n % 4}" for n in range(max(k))],
            "leakage": {"known": True, "overlap": 0, "of": sentences * len(directions)},
            "model": {"name": "pocket" + text, "geometry": {"counts": [16] * 6}},
            "identifier": "langid 9",
            "not_measured": {"comet": "not installed", "bleurt": "not installed"},
            "links": {"method": links},
            **_evidence(labels, top, sentences * len(directions)),
            "directions": {name: _evidence(labels, top + 1, sentences) for name in directions},
        }
        run.finish(result | (entries or {}))
    return path


def _labels(
    k: tuple[int, ...], gates: tuple[float, ...], draws: int, matched: bool
) -> list[dict[str, Any]]:
    found = []
    for size in k:
        for gate in gates:
            found.append({"kind": "top", "k": size, "gate": gate, "draw": None})
            for kind in ("random", "random-layer-matched")[: 1 + matched]:
                found += [{"kind": kind, "k": size, "gate": gate, "draw": d} for d in range(draws)]
    return found


def _measures(chrf: float) -> dict[str, Any]:
    rates = {"off_target": (90 - chrf) / 100, "source_copy": 0.0, "empty": 0.0}
    return {"chrf": chrf, "bleu": chrf / 2, **rates, "comet": None, "bleurt": None}


def _evidence(labels: list[dict[str, Any]], top: float, sentences: int) -> dict[str, Any]:
    conditions = []
    for one in labels:
        harm = one["k"] / 14 * abs(1 - one["gate"]) * (0.5 if one.get("ablate") == "mean" else 1)
        chrf = 90 - (90 - top if one["kind"] == "top" else 8 + (one["draw"] or 0)) * min(1.0, harm)
        row = {**one, **_measures(chrf), "heads": ["0.1"] * one["k"], "filled_up": 0}
        row["change"] = {"chrf": {"value": chrf - 90, "low": chrf - 92, "high": chrf - 88}}
        if one["kind"] == "top":
            draws = sum(o["kind"] == "random" and _same(o, one) for o in labels)
            for ending in ("", "_layer_matched"):
                gap = {"value": chrf - 80, "low": chrf - 83, "high": chrf - 77}
                row[f"p_sentences{ending}"], row[f"p_draws{ending}"] = 0.0001, 1 / (1 + draws)
                row[f"against_random{ending}"] = gap
                row[f"distinct_draws{ending}"] = draws
        conditions.append(row)
    baseline = {**_measures(90.0), "low": 88.0, "high": 92.0}
    return {"sentences": sentences, "baseline": baseline, "conditions": conditions}


def _outputs(
    directions: tuple[str, ...], labels: list[dict[str, Any]], sentences: int, text: str
) -> Rows:
    rows = []
    baseline = {"kind": "baseline", "k": 0, "gate": 1.0, "draw": None}
    for label in (baseline, *labels):
        for direction in directions:
            source, target = direction.split("-")
            for number in range(sentences):
                reference = SENTENCES[target][number % 2] + text
                words = reference.split()
                broken = " ".join(words[: number % (len(words) + 1)])
                rows.append(
                    {
                        "direction": direction,
                        "id": f"{number}{text}",
                        "source": SENTENCES[source][number % 2] + text,
                        "reference": reference,
                        "condition": label["kind"],
                        **{
                            name: label[name]
                            for name in ("k", "gate", "draw", "ablate")
                            if name in label
                        },
                        "output": broken + (" mean" if label.get("ablate") == "mean" else "")
                        if label["kind"] == "top"
                        else reference,
                    }
                )
    return rows


def _same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return all(one.get(name) == other.get(name) for name in ("k", "ablate"))


def _statistics(rows: Rows, conditions: int) -> dict[str, Any]:
    """Counts with as many matches as outputs have characters: enough to put them into an order."""
    found: dict[str, list[list[int]]] = {}
    for row in rows:
        made, wanted = len(row["output"]), len(row["reference"])
        counts = [made, wanted, min(made, wanted)] * 8
        found.setdefault(f"{row['direction']}.chrf", []).append(counts)
    return {
        name: np.array(counts, dtype=np.int32).reshape(conditions, -1, 24)
        for name, counts in found.items()
    }


def links_of(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Links of the first words, one to one, of every shown output and of the reference."""
    made = []
    for row in rows:
        texts = {row["condition"]: row["output"]}
        if row["condition"] == "baseline":
            texts["reference"] = row["reference"]
        for condition, text in texts.items():
            if row["draw"] in (None, 0):
                source, output = word_spans(row["source"]), word_spans(text)
                made.append(
                    {
                        "direction": row["direction"],
                        "id": row["id"],
                        "condition": condition,
                        "source_spans": source,
                        "output_spans": output,
                        "links": [[i, i] for i in range(min(len(source), len(output), 4))],
                    }
                )
    return made


def word_spans(text: str) -> list[list[int]]:
    """Where words are, cut at white space."""
    return [list(match.span()) for match in re.finditer(r"\S+", text)]


def blocks_of(shown: Shown, kind: Any, title: str = "") -> list[Any]:
    """The blocks of one kind in all sections, or those with this title."""
    found = [block for part in shown.sections for block in part.blocks if isinstance(block, kind)]
    return [block for block in found if not title or block.title == title]


def rows_of(shown: Shown, title: str) -> dict[str, dict[str, Cell]]:
    """The cells of a table by row and column."""
    *_, table = blocks_of(shown, Table, title)
    return {row.name: dict(zip(table.columns, row.cells, strict=True)) for row in table.rows}
