"""How long an answer takes on a model of one's own, and what is told of that before. Prints JSON.

    python bench/answer.py MODEL.gguf --found found.tsv --data more.tsv --pair en-es \\
        --out bench/results/answer-gemma3.json

As README shows it: heads are found on sentence pairs, and the loss of others is measured without
the best ones, beside draws in sequence; then the same with as many heads that come next, which
takes what was kept of the first. Each time `--plan` is asked first, and what it says of a condition
is held against what the conditions then took. Every command is a process of its own, with
`--threads` threads of torch.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from machine import asked, machine, tell
from timing import say


def run(given: argparse.Namespace, *words: object) -> tuple[dict[str, Any], float]:
    """The JSON of a command, and its seconds by the wall."""
    line = [sys.executable, "-m", "headscope", *map(str, words), "--json"]
    threads = {"OMP_NUM_THREADS": str(given.threads)}
    began = time.monotonic()
    done = subprocess.run(line, capture_output=True, text=True, env={**os.environ, **threads})
    if done.returncode:
        raise RuntimeError(done.stderr)
    result: dict[str, Any] = json.loads(done.stdout)
    return result, time.monotonic() - began


def answer(given: argparse.Namespace, folder: Path, name: str, heads: str) -> dict[str, Any]:
    """What a removal took, and what was told of it before."""
    words = ["verify", "removal", "--model", given.model, "--heads", heads, "--data", given.data,
             "--pair", given.pair, "--limit", given.limit, "--shots", given.shots, "--measure",
             given.measure, "--device", "cpu", "--kept", folder / "kept", "--out", folder / name,
             "--batch-tokens", given.batch_tokens, "--draws", given.draws]  # fmt: skip
    plan, first = run(given, *words, "--plan")
    result, second = run(given, *words)
    conditions = len(result["conditions"])
    told = plan["details"]["plan"][0] if "plan" in plan["details"] else None
    say(f"{name}: {first + second:.0f} s for {conditions} conditions, told: {told}")
    about: dict[str, Any] = {
        "heads": heads,
        "seconds": first + second,
        "conditions": conditions,
        "verdict": result["verdict"],
        "tests": [
            {key: test[key] for key in ("control", "draws", "ended", "p_draws")}
            for test in result["tests"]
            if test["statistic"] in ("nll", "chrf")
        ],
        "told": told,
    }
    if told is not None:
        each = told["seconds"][0] / told["conditions"][0]
        about["told_seconds"] = each * conditions
        about["told_over_taken"] = each * conditions / (first + second)
    return about


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--found", required=True, help="sentence pairs that heads are found on")
    parser.add_argument("--data", required=True, help="sentence pairs that they are tested on")
    parser.add_argument("--pair", default="en-es")
    parser.add_argument("--limit", type=int, default=100)
    parser.add_argument("--shots", type=int, default=3)
    parser.add_argument("--measure", default="loss")
    parser.add_argument("--draws", default="auto")
    parser.add_argument("--sets", nargs="*", default=["best", "next"], choices=["best", "next"])
    parser.add_argument("--batch-tokens", type=int, default=8192)
    parser.add_argument("--k", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    before = machine("cpu")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        found, seconds = run(given, "find", "translation-score", "--model", given.model, "--data",
                             given.found, "--pair", given.pair, "--shots", given.shots,
                             "--device", "cpu", "--out", folder / "found")  # fmt: skip
        say(f"found in {seconds:.0f} s")
        named = [f"{row['layer']}.{row['head']}" for row in found["scores"][: 2 * given.k]]
        sets = {"best": ",".join(named[: given.k]), "next": ",".join(named[given.k :])}
        answers = {name: answer(given, folder, name, sets[name]) for name in given.sets}
    seconds_of = [each["seconds"] for each in answers.values()]
    result = {
        "command": "bench/answer.py",
        "machine": {**before, "threads": given.threads},
        "asked": asked(given),
        "found_seconds": seconds,
        "answers": answers,
        "last_over_first": seconds_of[-1] / seconds_of[0],
    }
    tell(result, given.out)


if __name__ == "__main__":
    main()
