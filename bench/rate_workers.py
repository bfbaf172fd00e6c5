"""Whether rating a corpus survives its workers: kills, two workers, Ray. Prints JSON.

    python bench/rate_workers.py --out bench/results/rate-workers.json
    python bench/rate_workers.py --documents 400 --chunk 20        # a small version

Documents of the bundled model's world are rated by `headscope use rate`, in processes of its own
with one thread a worker:

* `whole`: one worker, left alone. What all others must equal, file by file.
* `kills`: the same run, its whole process group killed (SIGKILL) at random points, then finished.
* `two`: two workers on this machine; how much faster than one.
* `ray`: two Ray workers on this machine, one of them killed half-way.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from machine import machine, tell
from timing import load, moment, say

from headscope.pocket.mixture import corpus_documents
from headscope.runs import file_digest, folder_digest

PARTS = ("kills", "two", "ray")
STEP = 0.05
"""Seconds between two looks at a run."""


@dataclass(frozen=True)
class Work:
    """What is rated, and where."""

    folder: Path
    data: Path
    documents: int
    chunk: int
    heads: str

    @property
    def chunks(self) -> int:
        """Chunks of the corpus, each an output file."""
        return -(-self.documents // self.chunk)

    def out(self, name: str) -> Path:
        """The run folder of a part."""
        return self.folder / name

    def standing(self, name: str) -> int:
        """How many chunks are done."""
        return len(list((self.out(name) / "parts").rglob("[!.]*.jsonl")))


def write_documents(path: Path, number: int, seed: int) -> None:
    """So many documents, of which some carry their translation, as JSON Lines."""
    some = itertools.islice(corpus_documents("dev", seed), number)
    text = "".join(f"{json.dumps(document.record, ensure_ascii=False)}\n" for document in some)
    path.write_text(text, encoding="utf-8")


@contextmanager
def rating(work: Work, name: str, *options: object) -> Iterator[subprocess.Popen[bytes]]:
    """The command at work in a process group of its own, which ends with the block."""
    words = ["use", "rate", "--data", work.data, "--heads", work.heads, "--chunk", work.chunk]
    words += ["--out", work.out(name), "--device", "cpu", "--threads", 1, "--json", *options]
    command = [sys.executable, "-m", "headscope", *map(str, words)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    with (
        (work.folder / f"{name}.json").open("wb") as out,
        (work.folder / f"{name}.log").open("ab") as log,
    ):
        process = subprocess.Popen(
            command, stdout=out, stderr=log, env=environment, start_new_session=True
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def finished(work: Work, name: str, process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """Wait for the command; what it says. RuntimeError if it failed."""
    if process.wait():
        raise RuntimeError((work.folder / f"{name}.log").read_text("utf-8", "replace")[-4000:])
    said: dict[str, Any] = json.loads((work.folder / f"{name}.json").read_text("utf-8"))["details"]
    return said


def completed(work: Work, name: str, *options: object) -> dict[str, Any]:
    """Run the command to its end; its figures and the digest of its files."""
    began = time.perf_counter()
    with rating(work, name, *options) as process:
        said = finished(work, name, process)
    return figures(work, name, said, time.perf_counter() - began)


def figures(work: Work, name: str, said: dict[str, Any], seconds: float) -> dict[str, Any]:
    """What a part tells of a finished run."""
    return {
        "documents": said["documents"],
        "rejected": said["rejected"],
        "tokens": said["tokens"],
        "scored_tokens_per_second": said["tokens_per_second"],
        "seconds_of_the_last_command": seconds,
        "digest": digest(work.out(name)),
    }


def digest(run: Path) -> str:
    """SHA-256 of all that a run says of documents: the files, the rejects, the summary.

    Throughput, which no two runs share, is left out.
    """
    summary = json.loads((run / "summary.json").read_text("utf-8"))
    parts = [
        folder_digest(run / "documents"),
        file_digest(run / "rejects.jsonl"),
        json.dumps([summary["languages"], summary["reasons"]], sort_keys=True),
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def until(work: Work, name: str, chunks: int, process: subprocess.Popen[bytes]) -> bool:
    """Wait until so many chunks stand; False if the command ended before."""
    while work.standing(name) < chunks:
        if process.poll() is not None:
            return False
        time.sleep(STEP)
    return True


def kills(work: Work, whole: dict[str, Any], number: int, rng: random.Random) -> dict[str, Any]:
    """Kill the command's process group at random points, then let it finish."""
    # A point is a number of finished chunks, and a share of the time that one more takes.
    points = sorted(rng.sample(range(work.chunks), min(number, work.chunks)))
    pause = whole["seconds_of_the_last_command"] / work.chunks
    killed = []
    for point in points:
        with rating(work, "kills") as process:
            reached = until(work, "kills", point, process)
            time.sleep(rng.random() * pause)
            ended = process.poll() is not None
            if not ended:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        hidden = [file.name for file in work.out("kills").rglob(".tmp-*")]
        killed.append(
            {
                "aimed_at_chunk": point,
                "chunks_standing": work.standing("kills"),
                "unfinished_files": len(hidden),
                "was_killed": reached and not ended,
            }
        )
        say(f"killed: {killed[-1]}")
    return {"points": killed, **completed(work, "kills")}


def ray(work: Work) -> dict[str, Any]:
    """Two Ray workers; the one that has worked longest is killed when half of the chunks stand."""
    began = time.perf_counter()
    with rating(work, "ray", "--executor", "ray", "--workers", 2) as process:
        until(work, "ray", work.chunks // 2, process)
        workers = ray_workers(process.pid)
        standing = work.standing("ray")
        if workers:
            os.kill(workers[0], signal.SIGKILL)
            say(f"killed Ray worker {workers[0]} of {workers} at {standing} chunks")
        said = finished(work, "ray", process)
    told = figures(work, "ray", said, time.perf_counter() - began)
    killed = {"workers_seen": len(workers), "killed_at_chunk": standing if workers else None}
    return {**killed, **told}


def ray_workers(root: int) -> list[int]:
    """The processes below `root` in which Ray runs a task."""
    parents: dict[int, int] = {}
    names: dict[int, bytes] = {}
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                fields = (process / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
                names[int(process.name)] = (process / "cmdline").read_bytes()
            except OSError:  # it ended meanwhile
                continue
            parents[int(process.name)] = int(fields[1])

    def below(pid: int) -> bool:
        while pid in parents and pid != root:
            pid = parents[pid]
        return pid == root

    return sorted(pid for pid, name in names.items() if name.startswith(b"ray::run") and below(pid))


def main() -> None:
    """Measures and prints; progress goes to stderr."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--documents", type=int, default=20_000)
    parser.add_argument("--chunk", type=int, default=200)
    parser.add_argument("--heads", default="4.2,5.3", help="what is removed")
    parser.add_argument("--kills", type=int, default=4)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--seed", type=int, default=0, help="of documents and of kills")
    parser.add_argument("--folder", type=Path, help="an empty folder to keep the runs in")
    parser.add_argument("--out", type=Path, help="also write the JSON there")
    given = parser.parse_args()
    before = machine("cpu")
    began = moment()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (given.folder or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        data = folder / "documents.jsonl"
        write_documents(data, given.documents, given.seed)
        work = Work(folder, data, given.documents, given.chunk, given.heads)
        whole = completed(work, "whole")
        say(f"whole: {whole}")
        parts: dict[str, dict[str, Any]] = {}
        if "kills" in given.parts:
            parts["kills"] = kills(work, whole, given.kills, random.Random(given.seed))
        if "two" in given.parts:
            parts["two"] = completed(work, "two", "--workers", 2)
            for name in ("scored_tokens_per_second", "seconds_of_the_last_command"):
                parts["two"][f"{name}_over_one_worker"] = parts["two"][name] / whole[name]
        if "ray" in given.parts:
            parts["ray"] = ray(work)
    for part in parts.values():
        part["equal"] = part["digest"] == whole["digest"]
    result = {
        "bench": "rate_workers",
        "started": began,
        "ended": moment(),
        "machine": before,
        "load_after": load(),
        "documents": given.documents,
        "chunk": given.chunk,
        "chunks": work.chunks,
        "heads": given.heads,
        "seed": given.seed,
        "whole": whole,
        **parts,
        "all_equal": all(part["equal"] for part in parts.values()),
    }
    tell(result, given.out)


if __name__ == "__main__":
    main()
