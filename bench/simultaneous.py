"""Simultaneous translation by the bundled model and of talks by real ones: heads beside wait-k.

    python bench/simultaneous.py FOLDER --models DIR --data DIR --out FILE [--only NAME ...]

DIR of --models holds gemma3.gguf, qwen-0.5b.gguf and qwen-1.5b.gguf; --data is the folder `data`
that `replication.py` makes: talks of IWSLT 2017, with sentences to find heads on and others to
test. Every step is one command in a run folder of its own: what was killed goes on.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from machine import machine, tell
from real_models import Step, run

#: By model the sentences to find and to test on, and options of both.
MODELS = {
    "gemma3": (80, 10, "--shots 3", "--draws 9"),
    "qwen-0.5b": (200, 8, "", "--draws 9"),
    "qwen-1.5b": (200, 8, "", "--draws 9"),
}
PAIRS = ("en-de", "en-zh")
#: Directions of the bundled model, and sentences to find and to test on.
POCKET, FIND, TEST = ("en-de", "en-tr"), 200, 60


def steps() -> Iterator[Step]:
    """Heads, then policies, of each model and direction."""
    for pair in POCKET:
        heads = f"pocket-ts-{pair}"
        yield Step(heads, "", f"find translation-score --pair {pair} --limit {FIND}")
        policies = f"use simultaneous --heads {{runs}}/{heads} --pair {pair} --limit {TEST}"
        yield Step(f"pocket-{pair}", "", policies)
    for model, (find, test, shots, draws) in MODELS.items():
        short = model.removeprefix("qwen-")
        for pair in PAIRS:
            heads, data = f"{short}-ts-{pair}", f"--pair {pair} --data {{data}}/{pair}"
            score = f"find translation-score {data}.find.tsv --limit {find} {shots}"
            yield Step(heads, model, score)
            policies = (
                f"use simultaneous --heads {{runs}}/{heads} {data}.test.tsv --shots 3 "
                f"--limit {test} --agreement 2 --baseline-examples 4 {draws}"
            )
            yield Step(f"{short}-{pair}", model, policies)


def main() -> None:
    """Runs what is left and tells all that is finished."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    for name in ("models", "data"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=[], help="names of steps")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    runs = given.folder / "runs"
    runs.mkdir(parents=True, exist_ok=True)
    result: dict[str, Any] = {"command": "bench/simultaneous.py", "machine": machine("cpu")}
    result["steps"] = {
        step.name: run(step, given.models, given.data, runs, given.data, "bfloat16")
        for step in steps()
        if not given.only or step.name in given.only
    }
    # Where the runs lie says nothing.
    result["steps"] = json.loads(json.dumps(result["steps"]).replace(str(given.folder), "RUNS"))
    if given.out is not None and given.out.exists():
        result["steps"] = json.loads(given.out.read_text())["steps"] | result["steps"]
    tell(result, given.out)


if __name__ == "__main__":
    main()
