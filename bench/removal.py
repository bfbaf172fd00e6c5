"""How far the bundled model needs its token alignment heads, as JSON.

    python bench/removal.py --out bench/results/removal-pocket.json

Heads are found on the dev split and verified on the test split, the default share of them (15 %):
eleven conditions on 200 sentences, for the time they take; the default command; and once 199 random
draws, so that the p-value over draws can fall below 0.01; then doses over k and over gates. The
runs are kept in --runs and go on where they were; of a run that is there already the seconds are
those it took.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from machine import machine, table, tell

from headscope.runs import encode
from headscope.studies.bars import progress
from headscope.studies.find.translation_score import FindTranslation, find_translation
from headscope.studies.pairs import PairsChoice
from headscope.studies.verify.removal import VerifyRemoval
from headscope.studies.verify.removal import comparison as removal

ALL = PairsChoice(pair=("all",))
FEW = replace(ALL, limit=10)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=199, help="of the longest run")
    parser.add_argument("--runs", type=Path, default=Path("runs/bench-removal"))
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    before = machine("cpu")
    found = given.runs / "found"
    with progress() as update:
        find_translation(FindTranslation(pairs=ALL), found, update)
        asked = {
            "eleven conditions, 200 sentences": VerifyRemoval(
                heads=str(found), pairs=FEW, draws=9, controls=("random",)
            ),
            "default": VerifyRemoval(heads=str(found), pairs=ALL),
            f"{given.draws} draws": VerifyRemoval(heads=str(found), pairs=FEW, draws=given.draws),
            "doses over k": VerifyRemoval(
                heads=str(found), k=("5", "14", "20", "30"), pairs=FEW, draws=5
            ),
            "doses over gates": VerifyRemoval(
                heads=str(found),
                pairs=FEW,
                gates=(0.0, 0.5, 1.5, 2.0, 3.0, 5.0),
                draws=5,
            ),
        }
        results = {
            name: encode(removal.run(config, given.runs / name.replace(" ", "-"), update))
            for name, config in asked.items()
        }
    told = {
        "command": "bench/removal.py",
        "machine": before,
        "runs": {name: _brief(result) for name, result in results.items()},
    }
    tell(told, given.out)


def _brief(result: dict[str, Any]) -> dict[str, Any]:
    """A run's rows of the mean over directions."""
    details = result["details"]
    return {
        **{name: result[name] for name in ("signature", "seconds", "model")},
        **{name: details[name] for name in ("heads", "leakage")},
        "identifier": details["removed"]["measuring"]["identifier"],
        **table(result, [""]),
    }


if __name__ == "__main__":
    main()
