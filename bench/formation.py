"""How the token alignment heads of the bundled model form, beside its chrF++, as JSON.

    python bench/formation.py --out bench/results/formation-pocket.json

What `headscope compare formation pocket` computes, with the machine and the time it took; the run
is kept in --runs and goes on where it was.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from machine import machine, tell

from headscope.heads.store import with_details
from headscope.runs import encode
from headscope.studies.bars import progress
from headscope.studies.compare.checkpoints import checkpoint_series
from headscope.studies.compare.formation import Formation, formation


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=Path, default=Path("runs/bench-formation"))
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    before = machine("cpu")
    with progress() as update:
        made = formation(Formation(checkpoint_series(["pocket"])), given.runs, update)
    result = with_details(encode(made))
    figures = {
        "command": "bench/formation.py",
        "machine": before,
        **{name: result[name] for name in ("signature", "seconds", "geometry", "threshold", "k")},
        "sentences": {
            name: [data["found_on"], data["verified_on"]] for name, data in result["data"].items()
        },
        "checkpoints": [
            {name: value for name, value in checkpoint.items() if name != "directions"}
            for checkpoint in result["checkpoints"]
        ],
    }
    tell(figures, given.out)


if __name__ == "__main__":
    main()
