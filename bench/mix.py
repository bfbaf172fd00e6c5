"""How much memory and time mixing takes, by the number of rated documents, as JSON.

    python bench/mix.py                             500,000 made-up documents
    python bench/mix.py --documents 2000000 --kind enhance --by tokens
    python bench/mix.py --small                     50,000 too, to see what grows

The corpus is made up (word-like noise in five languages, a score and a number of tokens each),
written to a temporary folder as gzip files of 50,000 records, and deleted again.  Each mixture is
made by the command line in a process of its own; memory is that process's peak resident set, which
holds Python and numpy too: `import` is the peak of a process that only imports them.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from machine import machine, tell

LANGUAGES = {"en": 0.5, "de": 0.2, "fr": 0.15, "es": 0.1, "is": 0.05}
PER_FILE = 50_000
IMPORT = "import headscope.cli.app, headscope.studies.use.mix, numpy"


def write_corpus(folder: Path, documents: int, seed: int = 0) -> int:
    """Write the corpus; its size in bytes of JSON."""
    chance = random.Random(seed)
    words = ["".join(chance.choices("abcdefghijklmnoprstuvw", k=k % 9 + 2)) for k in range(5000)]
    size = 0
    for start in range(0, documents, PER_FILE):
        with gzip.open(folder / f"{start:09d}.jsonl.gz", "wt", compresslevel=1) as file:
            for number in range(start, min(start + PER_FILE, documents)):
                tokens = int(chance.lognormvariate(4.2, 0.7)) + 1
                (language,) = chance.choices(tuple(LANGUAGES), tuple(LANGUAGES.values()))
                record = {
                    "id": f"{language}-{number}",
                    "text": " ".join(chance.choices(words, k=tokens)),
                    "language": language,
                    "score": chance.gauss(0.01, 0.02) + (chance.random() < 0.013) * 0.3,
                    "tokens": tokens,
                }
                line = json.dumps(record) + "\n"
                size += file.write(line)
    return size


def measured(*words: str) -> tuple[float, int, str]:
    """Seconds, peak resident set in bytes, and output of a process."""
    code = (
        "import resource, subprocess, sys; done = subprocess.run(sys.argv[1:], check=True, "
        "stdout=subprocess.PIPE, text=True); print(done.stdout, "
        "resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, sep='\\n')"
    )
    began = time.perf_counter()
    said = subprocess.run(
        [sys.executable, "-c", code, *words], check=True, stdout=subprocess.PIPE, text=True
    ).stdout.rstrip("\n")
    seconds = time.perf_counter() - began
    output, _, peak = said.rpartition("\n")
    return seconds, int(peak) * 1024, output


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=500_000)
    parser.add_argument("--kind", default="remove", choices=("remove", "enhance", "baseline"))
    parser.add_argument("--by", default="documents", choices=("documents", "tokens"))
    parser.add_argument("--size", default="80%")
    parser.add_argument("--quantile", default="exact", choices=("exact", "streaming"))
    parser.add_argument("--small", action="store_true", help="also a tenth of the documents")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    sizes = [options.documents // 10] * options.small + [options.documents]
    _, bare, _ = measured(sys.executable, "-c", IMPORT)
    rows: list[dict[str, Any]] = []
    for documents in sizes:
        with tempfile.TemporaryDirectory() as name:
            corpus = Path(name) / "rated"
            corpus.mkdir()
            size = write_corpus(corpus, documents)
            command = [sys.executable, "-m", "headscope", "use", "mix", str(corpus), "--json"]
            for flag in ("kind", "by", "size", "quantile"):
                command += [f"--{flag}", getattr(options, flag)]
            seconds, peak, output = measured(*command, "--out", str(Path(name) / "mixed"))
            result = json.loads(output)["details"]
        rows.append(
            {
                "documents": documents,
                "bytes_of_json": size,
                "written": result["documents"],
                "seconds": seconds,
                "documents_per_second": documents / seconds,
                "peak_bytes": peak,
                "peak_beyond_import": peak - bare,
                "largest_difference": result["largest_difference"],
                "factor": result["factor"],
            }
        )
    asked = {name: value for name, value in vars(options).items() if name != "out"}
    tell({"machine": machine("cpu"), **asked, "import_bytes": bare, "runs": rows}, options.out)


if __name__ == "__main__":
    main()
