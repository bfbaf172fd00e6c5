"""The figures of the demo and of a quick survey of the bundled model, as JSON.

    python bench/demo.py --out bench/results/demo-pocket.json

What `make demo` and `headscope survey pocket --quick` compute, in brief. The runs are kept in
--runs and go on where they were; of a run that is there already the seconds are those it took.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from machine import machine, table, tell

from headscope.heads.store import with_details
from headscope.runs import encode
from headscope.studies.atlas import Atlas, atlas
from headscope.studies.bars import progress
from headscope.studies.survey import Survey, survey


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=Path, default=Path("runs/bench-demo"))
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    before = machine("cpu")
    with progress() as update:
        made = atlas(Atlas(), given.runs / "atlas", update)
        surveyed = survey(Survey(quick=True), given.runs / "survey", update)
    result = {
        "command": "bench/demo.py",
        "machine": before,
        "atlas": _atlas(with_details(encode(made))),
        "survey": _survey(with_details(encode(surveyed))),
        "induction": _induction(given.runs / "survey" / "runs" / "induction"),
    }
    tell(result, given.out)


def _atlas(made: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **{
            name: made[name]
            for name in ("signature", "seconds", "model", "rank", "counts", "counts_above_chance")
        },
        "directions": len(made["directions"]),
        "best": [
            f"{head['layer']}.{head['head']}"
            for head in sorted(made["scores"], key=lambda head: head["rank"])[:10]
        ],
        **table(made, [""]),
    }


def _survey(made: Mapping[str, Any]) -> dict[str, Any]:
    names = ("signature", "seconds", "k", "runs", "shared", "agreement", "pairs")
    return {name: made[name] for name in names}


def _induction(run: Path) -> dict[str, Any]:
    """The two heads that most often look at what followed the same token before."""
    result = json.loads((run / "result.json").read_text(encoding="utf-8"))
    heads = sorted(result["scores"], key=lambda head: head["score"], reverse=True)
    return {"signature": result["signature"], "highest": heads[:2]}


if __name__ == "__main__":
    main()
