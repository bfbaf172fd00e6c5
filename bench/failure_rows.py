"""How often failures are sorted rightly on labelled translations, as JSON.

    python bench/failure_rows.py > bench/results/failure-rows.json

`tests/data/failure-rows-a.tsv` and `-b.tsv` hold 60 translations each, in five languages, labelled
by two authors: no translation, hallucination, missing details, or other (adequate in other words
or word order). The thresholds were set on the first (`--thresholds` tells how many rows each value
gets right); the second author had not seen the code, and the second rows were read once, after
the thresholds. Words are not linked: twelve rows a language are too few.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from machine import machine

from headscope.data.words import segmenter_name
from headscope.measure.identify import identifier_name, identify
from headscope.measure.intervals import wilson_interval
from headscope.results.failures import KINDS
from headscope.verify.failures_classes.classify import Case, Row, Rules, classify

DATA = Path(__file__).parents[1] / "tests" / "data"
THRESHOLDS = ("unsupported", "added", "dropped", "left_out")


def labelled(author: str) -> list[tuple[str, Row]]:
    """The rows of an author with their kinds."""
    lines = (DATA / f"failure-rows-{author}.tsv").read_text(encoding="utf-8").splitlines()
    names = lines[0].split("\t")
    found = []
    for number, line in enumerate(lines[1:], 1):
        cells = dict(zip(names, line.split("\t"), strict=True))
        kind, languages = cells.pop("kind"), (cells["source_language"], cells["target_language"])
        found.append((kind, Row(str(number), **cells, direction="-".join(languages))))
    return found


def sort_rows(rows: Sequence[tuple[str, Row]], rules: Rules | None = None) -> list[Case]:
    """What the rules say of them."""
    only = [row for _, row in rows]
    return classify(only, identify([row.after for row in only]), rules or Rules(), align=False)


def agreement(rows: Sequence[tuple[str, Row]], cases: Sequence[Case]) -> dict[str, Any]:
    """How many are sorted rightly, what each kind is taken for, and by language."""
    pairs = [(kind, case.kind) for (kind, _), case in zip(rows, cases, strict=True)]
    right = sum(kind == expected for kind, expected in pairs)
    low, high = wilson_interval(right, len(pairs))
    languages = Counter(row.target_language for _, row in rows)
    wrong = Counter(
        row.target_language
        for (kind, row), case in zip(rows, cases, strict=True)
        if kind != case.kind
    )
    return {
        "rows": len(pairs),
        "right": right,
        "low": low,
        "high": high,
        "taken_for": {
            kind: {answer: sum(pair == (kind, answer) for pair in pairs) for answer in KINDS}
            for kind in KINDS
        },
        "right_by_language": {code: n - wrong[code] for code, n in languages.items()},
        "of_language": dict(languages),
    }


def thresholds(rows: Sequence[tuple[str, Row]]) -> dict[str, dict[str, int]]:
    """How many rows are right at other values of one threshold, the rest as they are."""
    return {
        name: {
            f"{at / 20:g}": sum(
                kind == case.kind
                for (kind, _), case in zip(
                    rows, sort_rows(rows, replace(Rules(), **{name: at / 20})), strict=True
                )
            )
            for at in range(1, 21)
        }
        for name in THRESHOLDS
    }


def main() -> None:
    """Sort the rows of both authors and print how many are right."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--thresholds", action="store_true", help="other values, on the first rows")
    arguments = parser.parse_args()
    made = {author: labelled(author) for author in ("a", "b")}
    result = {
        "command": "bench/failure_rows.py",
        "rules": vars(Rules()),
        "segmenter": segmenter_name(),
        "identifier": identifier_name(),
        "machine": machine("cpu"),
        **{author: agreement(rows, sort_rows(rows)) for author, rows in made.items()},
    }
    if arguments.thresholds:
        result["thresholds"] = thresholds(made["a"])
    print(json.dumps(result, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
