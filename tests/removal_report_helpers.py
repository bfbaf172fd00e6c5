"""A run folder of `verify removal` with made-up numbers, in the format that the command writes."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from headscope.estimates import Estimate
from headscope.evidence.controls import CONTROLS
from headscope.evidence.rows import Condition, Evidence, Level, Tested
from headscope.results.common import Leakage, ModelFacts
from headscope.results.removal import (
    Languages,
    Measuring,
    OutputLinks,
    RemovalDetails,
    RemovalResult,
    Removed,
)
from headscope.runs import encode, open_run
from headscope.shown.blocks import Cell, Shown, Table
from headscope.studies.sentences import shown_conditions
from headscope.studies.verify.removal import comparison as removal
from headscope.verify.removal_translations.evidence import STATISTICS

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
    details: dict[str, Any] | None = None,
    kinds: tuple[str, ...] = ("zero",),
) -> Path:
    """Write a finished run; `text` goes into all names and sentences, `details` are further ones
    of the result."""
    with open_run(path, "verify removal", {"k": list(k), "note": text}, {}) as run:
        run.provenance |= {"model": "pocket" + text, "command_line": ["headscope", "verify"]}
        conditions = conditions_of(k, gates, draws, matched, kinds)
        written = rows or _outputs(directions, conditions, sentences, text)
        run.write_jsonl("outputs.jsonl", written)
        shown = {each.id for each in shown_conditions(conditions)}
        own = [row for row in written if row["condition"] in shown]
        run.write_jsonl("links.jsonl", links_of(own) if links else [])
        if counts:
            run.write_tensors("statistics.safetensors", _statistics(written, len(conditions)))
        removed = Removed(
            directions={name: Languages(*name.split("-")) for name in directions},
            measuring=Measuring("langid 9", dict.fromkeys(("comet", "bleurt"), "not installed")),
            links=OutputLinks(links),
        )
        about = RemovalDetails(
            k=k,
            gates=gates,
            draws=draws,
            text_draws=draws,
            ablate=kinds[0],
            heads=tuple(f"{n // 4}.{n % 4}" for n in range(max(k))),
            leakage=Leakage(known=True, overlap=0, of=sentences * len(directions)),
            removed=removed,
        )
        result = RemovalResult(
            signature=run.signature,
            run=str(path),
            seconds=12.5,
            model=ModelFacts(name="pocket" + text, geometry={"counts": [16] * 6}),
            evidence=_evidence(conditions, directions, top, sentences),
            details=replace(about, **(details or {})),
        )
        run.finish(encode(removal.concluded(result)))
    return path


def conditions_of(
    k: tuple[int, ...], gates: tuple[float, ...], draws: int, matched: bool, kinds: tuple[str, ...]
) -> list[Condition]:
    """The original model, and the selected heads with their draws; all hold the same heads."""
    conditions = [Condition()]
    for size in k:
        for gate, replacement in product(gates, kinds):
            own = Condition("selected", "", size, gate, replacement, heads=("0.1",) * size)
            conditions.append(own)
            for kind in ("random", "same layers")[: 1 + matched]:
                conditions += [replace(own, kind=kind, draw=draw) for draw in range(draws)]
    return conditions


def _evidence(
    conditions: list[Condition], directions: tuple[str, ...], top: float, sentences: int
) -> Evidence:
    """Made-up scores: selected heads lower chrF++ to `top`, random ones by about 8."""
    levels, tests = [], []
    parts = {"": top, **dict.fromkeys(directions, top + 1)} if len(directions) > 1 else {
        directions[0]: top
    }  # fmt: skip
    for part, low in parts.items():
        examples = sentences * (1 if part else len(directions))
        for each in conditions:
            gate = 1.0 if each.gate is None else each.gate
            harm = each.k / 14 * abs(1 - gate) * (0.5 if each.replacement == "mean" else 1)
            lost = 0.0 if each.kind == "original" else 90 - low
            lost = 8.0 + each.draw if each.draw is not None else lost
            chrf = 90 - lost * min(1.0, harm)
            values = {"chrf": chrf, "bleu": chrf / 2, "off_target": (90 - chrf) / 100,
                      "source_copy": 0.0, "empty": 0.0}  # fmt: skip
            for name, value in values.items():
                ends = Estimate(chrf - 90, chrf - 92, chrf - 88) if name == "chrf" else None
                change = None if each.kind == "original" else ends
                levels.append(
                    Level(value=value, low=value - 2, high=value + 2, part=part,
                          condition=each.id, statistic=name, examples=examples, change=change)
                )  # fmt: skip
            for control in ("random", "same layers") if each.kind == "selected" else ():
                drawn = [o for o in conditions if o.kind == control and o.controls(each)]
                if drawn:
                    tests.append(
                        Tested(part=part, condition=each.id, statistic="chrf", control=control,
                               difference=Estimate(chrf - 80, chrf - 83, chrf - 77),
                               p_examples=0.0001, p_draws=1 / (1 + len(drawn)),
                               draws=len(drawn), least_p=1 / (1 + len(drawn)), shared=0.0)
                    )  # fmt: skip
    return Evidence(
        statistics={name: STATISTICS[name] for name in values},
        controls={name: CONTROLS[name] for name in dict.fromkeys(t.control for t in tests)},
        conditions=tuple(conditions),
        levels=tuple(levels),
        tests=tuple(tests),
    )


def _outputs(
    directions: tuple[str, ...], conditions: list[Condition], sentences: int, text: str
) -> Rows:
    rows = []
    for condition in conditions:
        for direction in directions:
            source, target = direction.split("-")
            for number in range(sentences):
                reference = SENTENCES[target][number % 2] + text
                words = reference.split()
                broken = " ".join(words[: number % (len(words) + 1)])
                broken += " mean" if condition.replacement == "mean" else ""
                rows.append(
                    {
                        "direction": direction,
                        "id": f"{number}{text}",
                        "source": SENTENCES[source][number % 2] + text,
                        "reference": reference,
                        "condition": condition.id,
                        "output": broken if condition.kind == "selected" else reference,
                    }
                )
    return rows


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
        if row["condition"] == "original":
            texts["reference"] = row["reference"]
        for condition, text in texts.items():
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
