"""How far LAHIS agrees with itself and with first-order importance on the bundled model, as JSON.

    python bench/lahis_sets.py --out bench/results/lahis-sets-pocket.json

Heads of five languages, found on 200 documents each (the `heads` step of `headscope reproduce
lahis`): how alike the sets of two halves of the documents are, how many important heads are general
and specific, in which share of the documents the median head lowers the loss when it speaks
louder, and the rank correlation of a language's importances with their first factor, which is
first-order importance. The run is kept in --runs and goes on where it was.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from machine import machine, tell

from headscope.compare.overlap_sets import rank_correlation
from headscope.heads import HeadScores
from headscope.results.lahis import LahisLanguage
from headscope.runs import encode
from headscope.studies.bars import progress
from headscope.studies.documents import DocumentsChoice
from headscope.studies.find.lahis import FindLahis, find_lahis


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=200, help="of a language")
    parser.add_argument("--runs", type=Path, default=Path("runs/bench-lahis-sets"))
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    before = machine("cpu")
    config = FindLahis(documents=DocumentsChoice(limit=given.documents))
    with progress() as update:
        found = find_lahis(config, given.runs, update)
    figures = {
        "command": "bench/lahis_sets.py",
        "machine": before,
        "signature": found.signature,
        "seconds": found.seconds,
        "general": len(found.general),
        "general_expected": found.general_expected,
        "languages": {
            name: _brief(language, HeadScores.from_pretrained(given.runs / "scores" / name))
            for name, language in found.languages.items()
        },
    }
    tell(figures, given.out)


def _brief(language: LahisLanguage, scores: HeadScores) -> dict[str, Any]:
    first_order = replace(scores, values=scores.extra["magnitude"], low=None, high=None)
    return {
        "documents": language.documents,
        "important": language.important,
        "specific": len(language.specific),
        "halves": encode(language.halves),
        "median_raising": float(np.nanmedian(scores.extra["raising"])),
        "rank_correlation_with_first_order": rank_correlation(scores, first_order),
    }


if __name__ == "__main__":
    main()
