"""How far masks of the bundled model do a task that nobody tells it, as JSON.

    python bench/masks.py --out bench/results/masks-pocket.json

For each translation direction and word task a mask is trained by the default preset on examples of
the train split, with a prompt that leaves the instruction out, and tested on held-out ones: the
model as it is, instructed, masked, and under shuffled masks of the same size, as a table of
evidence. The runs are kept in --runs and go on where they were; `seconds` and `cpu_seconds` of a
training that was not interrupted are told beside its figures.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from machine import machine, tell

from headscope.runs import encode
from headscope.studies.bars import progress
from headscope.studies.find.mask import FindMask, find_mask
from headscope.studies.tasks import TaskChoice
from headscope.studies.verify.mask import VerifyMask, comparison

PAIRS = ("en-de", "de-en", "en-es", "en-ru", "tr-en")
WORDS = ("plural-en", "plural-de", "past-en", "first_letter-en", "capital", "translate-en-de")
#: The instructed prompt of word tasks without its first line, which is the instruction.
WORD = "Word: {input}\nAnswer:"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", nargs="*", default=list(PAIRS))
    parser.add_argument("--words", nargs="*", default=list(WORDS))
    parser.add_argument("--start", choices=("positive", "negative"), default="positive")
    parser.add_argument("--draws", type=int, default=5, help="shuffled masks of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, help="instead of the preset's")
    parser.add_argument("--runs", type=Path, default=Path("runs/bench-masks"))
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    before = machine("cpu")
    tasks = {
        **{pair: TaskChoice(pair=(pair,)) for pair in given.pairs},
        **{name: TaskChoice(task=(name,), bare=WORD) for name in given.words},
    }
    changes: dict[str, Any] = {"start": given.start}
    if given.steps is not None:
        changes["steps"] = given.steps
    results: dict[str, Any] = {}
    with progress() as update:
        for name, task in tasks.items():
            place = given.runs / f"{name}-{given.start}-{given.steps or 'preset'}-{given.seed}"
            cpu = time.process_time()
            config = FindMask(task=task, changes=changes, seed=given.seed)
            known = (place / "mask" / "DONE.json").exists()
            found = find_mask(config, place / "mask", update)
            spent = None if known else time.process_time() - cpu
            checked = comparison.run(
                VerifyMask(
                    masks=(str(place / "mask"),), tasks=task, draws=given.draws, seed=given.seed
                ),
                place / "proof",
                update,
            )
            results[name] = {
                "prompt": found.prompt,
                "examples": found.examples,
                "kept": found.selected,
                "kept_share": found.kept_share,
                "training": found.training,
                "seconds": found.seconds,
                "cpu_seconds": spent,
                "signature": checked.signature,
                "verdict": checked.verdict,
                **encode(checked.evidence),
            }
    tell(
        {
            "command": "bench/masks.py",
            "machine": before,
            "draws": given.draws,
            "seed": given.seed,
            "tasks": results,
        },
        given.out,
    )


if __name__ == "__main__":
    main()
