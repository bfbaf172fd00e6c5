"""Small data and naive twins for tests of removals."""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Any

from headscope.evidence.rows import WHOLE

NOUNS = (("dog", "Hund"), ("cat", "Kater"), ("bird", "Vogel"), ("fish", "Fisch"))


def write_data(path: Path, rows: int = 8, reverse: bool = False) -> Path:
    """A file of linked sentence pairs, English to German, or back."""
    lines = ["source\ttarget\tlinks"]
    for at in range(rows):
        (a, b), (c, d) = NOUNS[at % 4], NOUNS[at // 4 % 4]
        english, german, links = f"the {a} sees {c}", f"der {b} sieht {d}", "0-0 1-1 2-2 3-3"
        lines.append("\t".join((german, english, links) if reverse else (english, german, links)))
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def scores(result: Any, part: str | None = None) -> dict[str, dict[str, float]]:
    """The values of a result's levels by condition, then statistic, in a part (None: in all)."""
    evidence = result.evidence
    whole = WHOLE if WHOLE in evidence.parts else evidence.parts[0]
    found: dict[str, dict[str, float]] = {}
    for row in evidence.levels:
        if row.part == (whole if part is None else part):
            found.setdefault(row.condition, {})[row.statistic] = row.value
    return found


def naive(rows: list[dict[str, Any]]) -> dict[str, dict[str, dict[str, float]]]:
    """Measures of every direction and condition by sacrebleu's own functions, sentence lists in
    hand; "" holds the plain means over directions."""
    import sacrebleu

    def key(row: dict[str, Any]) -> tuple[str, str]:
        return row["direction"], row["condition"]

    found: dict[str, dict[str, dict[str, float]]] = {}
    for (direction, condition), group in groupby(sorted(rows, key=key), key):
        part = list(group)
        outputs = [row["output"] for row in part]
        references = [row["reference"] for row in part]
        copies = []
        for row in part:
            near = sacrebleu.sentence_chrf(row["output"], [row["source"]]).score
            far = sacrebleu.sentence_chrf(row["output"], [row["reference"]]).score
            copies.append(near >= 80 and near - far >= 20)
        found.setdefault(direction, {})[condition] = {
            "chrf": sacrebleu.corpus_chrf(outputs, [references], word_order=2).score,
            "bleu": sacrebleu.corpus_bleu(outputs, [references], force=True).score,
            "source_copy": fmean(copies),
            "empty": fmean(not text.strip() for text in outputs),
        }
    directions = list(found.values())
    found[""] = {
        one: {name: fmean(part[one][name] for part in directions) for name in directions[0][one]}
        for one in directions[0]
    }
    return found
