"""Which heads and rules link words best, on hand-made links of development sets, as JSON.

    python bench/head_links.py --model gemma3.gguf --shots 3 --out head-links-gemma3.json \\
        en-es.dev.tsv en-ru.dev.tsv en-nl.dev.tsv

Files are TSV without a header: source words, target words, links in the Pharaoh format; their names
begin with their languages. Heads are ranked by the links that eflomal finds in the same file, and
hand-made links only judge. The output holds what is done, so that a second call goes on.

    python bench/head_links.py --runs RUN RUN --out head-links-test.json

takes the figures of finished runs of `headscope verify alignment` together.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import numpy as np

from headscope.data.align import AlignWords, align_file
from headscope.data.pairs import PairFile, PairSource, read_pairs
from headscope.data.split import with_shots
from headscope.find.head_links import HeadLinker, links_of
from headscope.find.translation_score_config import HeadLinks, TranslationScore
from headscope.find.translation_scores import linked_parts, linking_scores
from headscope.lm import LanguageModel, load
from headscope.verify.alignment_evidence import F1, counted, measures

NUMBERS = (1, 3, 5, 8, 10, 15, 20)
WEIGHTS: tuple[Any, ...] = ("mass", "peak")
PROMPTS: tuple[Any, ...] = ("multiplied", "apart", "one")
JOINS: tuple[Any, ...] = ("intersection", "union", "grow-diag-final-and")


def read(path: str, shots: int, limit: int) -> PairFile:
    """The pairs of a file, some of them as shots, at most so many."""
    source = PairSource(
        path, "-".join(Path(path).name.split(".")[0].split("-")[:2]), source_column="0",
        target_column="1", links_column="2",
    )  # fmt: skip
    pairs = read_pairs(source)
    pairs = with_shots(pairs, shots) if shots else pairs
    return replace(pairs, pairs=pairs.pairs[:limit])


def scored(links: Any, pairs: PairFile) -> float:
    """F1 of the links of all pairs."""
    rows = zip(links, pairs.pairs, strict=True)
    counts = [counted(links, pair.links or frozenset(), frozenset()) for links, pair in rows]
    return round(float(measures(np.sum(counts, axis=0))[F1]), 4)


def measured(lm: LanguageModel, pairs: PairFile) -> dict[str, Any]:
    """F1 of eflomal, and of heads under every rule."""
    began = time.monotonic()
    beside = align_file(pairs, AlignWords("eflomal"))
    parts = linked_parts([pairs])
    words = list(zip(beside.source_words, beside.target_words, strict=True))
    heads: dict[str, list[str]] = {}
    found: dict[str, float] = {}
    rows: Literal["read", "predict"]
    for rows in ("read", "predict"):
        config = TranslationScore(aligner="heads", batch_tokens=1024)
        best = [*linking_scores(lm, parts, config, rows).top(max(NUMBERS))]
        heads[rows] = list(map(str, best))
        for weighed in WEIGHTS:
            how = HeadLinks(heads="0.0", rows=rows, weights=weighed, prompts="apart")
            linker = HeadLinker(lm, pairs, replace(config, head_links=how))
            every = range(len(pairs.pairs))
            read_ = {at: both for at, *both in linker.attention(words, best, every)}
            for k, prompt, join in product(NUMBERS, PROMPTS, JOINS):
                rule = replace(how, prompts=prompt, join=join)
                links = []
                for at in range(len(pairs.pairs)):
                    first, second = read_[at]
                    back = first if prompt == "one" else second
                    links.append(links_of(first[:k], back[:k], rule))
                found[f"{rows} {weighed} {prompt} {join} {k}"] = scored(links, pairs)
    return {
        "pairs": len(pairs.pairs),
        "eflomal": scored(beside.links, pairs),
        "heads": heads,
        "f1": found,
        "seconds": round(time.monotonic() - began, 1),
    }


def of_run(run: Path) -> dict[str, Any]:
    """The figures of a run of `verify alignment`: F1 and the like with intervals, heads, draws."""
    result = json.loads((run / "result.json").read_text("utf-8"))
    details = result["details"]
    known = ("value", "low", "high", "change")
    levels = {"selected": {}, "eflomal": {}}  # type: dict[str, dict[str, Any]]
    for row in result["levels"]:
        kind = "eflomal" if row["condition"] == "original eflomal" else row["condition"]
        if "#" not in kind:
            own = levels["eflomal" if kind == "eflomal" else "selected"]
            own[row["statistic"]] = {name: row.get(name) for name in known}
    drawn = [row["value"] for row in result["levels"]
             if row["statistic"] == "f1" and row["condition"].startswith("random")]  # fmt: skip
    return {
        "model": result["model"]["name"].rpartition("/")[2],
        "dtype": result["model"]["dtype"],
        "sentences": result["levels"][0]["examples"],
        "heads": details["heads"],
        "rows": details["links_by"]["rows"],
        "verdict": result["verdict"],
        **levels,
        "random": {"mean": fmean(drawn), "least": min(drawn), "most": max(drawn)},
        "tests": {row["control"]: {name: row[name] for name in ("difference", "p_draws", "draws")}
                  for row in result["tests"] if row["statistic"] == "f1"},
        "seconds": round(result["seconds"], 1),
    }  # fmt: skip


def main() -> None:
    """Measures every file that is not in the output yet, and names the best rules."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("gold", nargs="*", help="TSV of source, target, links")
    parser.add_argument("--model", default="")
    parser.add_argument("--runs", nargs="*", type=Path, default=[])
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--shots", type=int, default=0)
    parser.add_argument("--limit", type=int, default=60)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    if given.runs:
        made = {run.name: of_run(run) for run in given.runs}
        given.out.write_text(json.dumps(made, indent=1) + "\n", "utf-8")
        return
    result: dict[str, Any] = {"model": Path(given.model).name, "dtype": given.dtype,
                              "shots": given.shots, "files": {}}  # fmt: skip
    if given.out.exists():
        result = json.loads(given.out.read_text("utf-8"))
    lm = load(given.model, dtype=given.dtype)
    for path in given.gold:
        if Path(path).name not in result["files"]:
            pairs = read(path, given.shots, given.limit)
            result["files"][Path(path).name] = measured(lm, pairs)
        files = list(result["files"].values())
        means = {rule: fmean(file["f1"][rule] for file in files) for rule in files[0]["f1"]}
        best = sorted(means.items(), key=lambda scored: -scored[1])[:20]
        result["best"] = {rule: round(mean, 4) for rule, mean in best}
        given.out.write_text(json.dumps(result, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
