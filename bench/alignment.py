"""Precision and recall of the statistical aligner against hand-made word links, as JSON.

    python bench/alignment.py en-es.test.tsv --fit en-es.train.tsv en-es.dev.tsv --fits 5

Files are TSV without a header: source words, target words, and in the first file links in the
Pharaoh format. Of the files after ``--fit`` only the sentences are used. ``name`` and ``fit`` in
the result are file names, so that results of several machines can be compared.
"""

from __future__ import annotations

import argparse
import json
import time
from importlib.metadata import version
from pathlib import Path
from statistics import mean, stdev

from headscope.data.align import AlignWords, Eflomal, align_words
from headscope.data.pairs import PairSource, SentencePair, read_pairs


def read(path: str, linked: bool) -> tuple[SentencePair, ...]:
    """The pairs of a file without a header; which two languages they are plays no part here."""
    source = PairSource(
        path,
        source_language="en",
        target_language="de",
        source_column="0",
        target_column="1",
        links_column="2" if linked else None,
    )
    return read_pairs(source).pairs


def main() -> None:
    """Fits, compares and prints."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("gold", help="TSV of source, target, links")
    parser.add_argument("--fit", nargs="*", default=[], help="further TSV files to fit on")
    parser.add_argument("--fits", type=int, default=5)
    defaults = Eflomal()
    parser.add_argument("--prefix", type=int, default=defaults.prefix)
    parser.add_argument("--rare", type=int, default=defaults.rare)
    parser.add_argument("--symmetrise", default=defaults.symmetrise)
    arguments = parser.parse_args()

    gold = read(arguments.gold, linked=True)
    extra = tuple(pair for path in arguments.fit for pair in read(path, linked=False))
    options = Eflomal(symmetrise=arguments.symmetrise, prefix=arguments.prefix, rare=arguments.rare)
    runs = []
    for _ in range(arguments.fits):
        start = time.perf_counter()
        found = align_words(gold, AlignWords("eflomal", options), extra_pairs=extra).links
        seconds = time.perf_counter() - start
        pairs = [(links or frozenset(), pair.links or frozenset())
                 for links, pair in zip(found, gold, strict=True)]  # fmt: skip
        right = sum(len(links & wanted) for links, wanted in pairs)
        precision = right / sum(len(links) for links, _ in pairs)
        recall = right / sum(len(wanted) for _, wanted in pairs)
        runs.append({"precision": precision, "recall": recall, "seconds": seconds})
    spread = stdev if len(runs) > 1 else (lambda _: 0.0)
    result = {
        "name": Path(arguments.gold).name,
        "fit": [Path(path).name for path in arguments.fit],
        "pairs": len(gold),
        "fitted_on": len(gold) + len(extra),
        "eflomal": version("eflomal"),
        "options": vars(options),
        "precision": mean(run["precision"] for run in runs),
        "recall": mean(run["recall"] for run in runs),
        "precision_sd": spread([run["precision"] for run in runs]),
        "recall_sd": spread([run["recall"] for run in runs]),
        "fits": runs,
    }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
