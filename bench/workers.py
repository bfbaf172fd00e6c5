"""How much faster two workers remove heads than one, with the same bytes. Prints JSON.

    python bench/workers.py --out bench/results/workers.json
    python bench/workers.py --limit 20 --rounds 1                  # a small version

`headscope verify removal` of the bundled model by one worker and by two, in turn, in processes of
their own with one thread a worker. Seconds are those of the whole command: starting, loading and
the tests at its end, which one process does, are in them. On a busy machine the processor time
tells what workers add; the seconds of the wall then say little.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from machine import machine, tell
from timing import load, moment, say, spread

from headscope.runs import file_digest

WORKERS = (1, 2)
#: Final files of the run that hold all it says, but for the moment.
FILES = ("outputs.jsonl", "statistics.safetensors")


def removal(given: argparse.Namespace, workers: int, out: Path) -> dict[str, Any]:
    """One command from its start to its end: seconds, processor seconds, and the digest."""
    words = ["verify", "removal", "--heads", given.heads, "--limit", given.limit]
    words += ["--draws", given.draws, "--device", "cpu", "--workers", workers, "--out", out]
    words += [word for pair in given.pair for word in ("--pair", pair)]
    command = [sys.executable, "-m", "headscope", *map(str, words), "--json"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    log = out.with_suffix(".log")
    began = time.perf_counter()
    with log.open("wb") as said:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said, env=environment)
        # With what its own workers used, which it has waited for.
        _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(log.read_text("utf-8", "replace")[-4000:])
    digest = hashlib.sha256("".join(file_digest(out / name) for name in FILES).encode())
    return {
        "seconds": time.perf_counter() - began,
        "processor_seconds": used.ru_utime + used.ru_stime,
        "digest": digest.hexdigest(),
    }


def main() -> None:
    """Measures and prints; progress goes to stderr."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--heads", default="4.2,5.3", help="what is removed")
    parser.add_argument("--pair", nargs="+", default=["en-de", "de-en"])
    parser.add_argument("--limit", type=int, default=200, help="sentences of a direction")
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="also write the JSON there")
    given = parser.parse_args()
    before, began = machine("cpu"), moment()
    made: dict[int, list[dict[str, Any]]] = {number: [] for number in WORKERS}
    loads = [load()]
    with tempfile.TemporaryDirectory() as folder:
        for at in range(given.rounds):
            for number in WORKERS:
                made[number].append(removal(given, number, Path(folder, f"{number}-{at}")))
                loads.append(load())
                say(f"{number}: {made[number][-1]}")
    times = {
        name: {number: spread([row[name] for row in rows]) for number, rows in made.items()}
        for name in ("seconds", "processor_seconds")
    }
    seconds = times["seconds"]
    result = {
        "bench": "workers",
        "started": began,
        "ended": moment(),
        "machine": before,
        "loads": loads,
        **{name: getattr(given, name) for name in ("heads", "pair", "limit", "draws", "rounds")},
        **times,
        "faster": seconds[1]["median"] / seconds[2]["median"],
        "equal": len({row["digest"] for rows in made.values() for row in rows}) == 1,
    }
    tell(result, given.out)


if __name__ == "__main__":
    main()
