"""What `find translation-score` returns, and of it what other commands return that score heads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headscope.heads import Head
from headscope.results.classes import Classes
from headscope.results.common import ModelResult, Ranking
from headscope.results.head_scores import Scored, ScoredHeads
from headscope.runs import Record, decode, entry
from headscope.runs.reading import naming, read_rows
from headscope.shown.blocks import PeakSentence

#: The folder in a run of the best sentences of the best heads, a file of JSON Lines a direction.
SENTENCES = "sentences"


@dataclass(frozen=True, kw_only=True)
class TranslationScores(Ranking, ScoredHeads):
    """The scores of one direction, or the mean over `counted_over` directions.

    `counts` are the heads of each class by score, cut at `threshold` and `inactive`, and
    `counts_above_chance` by score − chance, None where chance is not known at every head; of
    several directions the means of their counts. `left_out` sentences have no aligned token.
    `fitted_on` is the number of sentence pairs that eflomal was fitted on in this run.
    """

    signature: str = ""
    threshold: float = 0.1
    inactive: float = 0.0
    counted_over: int = 1
    counts: Classes
    counts_above_chance: Classes | None
    units: str | None = entry(absent=True)
    aligner: str | None = entry(absent=True)
    links_digest: str | None = entry(absent=True)
    fitted_on: int | None = entry(absent=True)


@dataclass(frozen=True, kw_only=True)
class TranslationResult(TranslationScores, ModelResult, Scored):
    """The result of the command; of several directions the mean, and each of them."""

    directions: Mapping[str, TranslationScores] | None = entry(absent=True)


@dataclass(frozen=True, kw_only=True)
class BestSentence(Record, PeakSentence):
    """One of the sentences on which a head, such as `5.3`, has the highest share of hits."""

    head: str


def best_sentences(run: str | Path, head: str) -> list[BestSentence]:
    """The best sentences of a head, such as `L5.H3` or `5.3`, of a finished run: at most ten of
    each direction, best first.

    Empty where the run holds none: of all but the best heads of a direction. Raises `InputError`
    naming the file if it is damaged.
    """
    kept, key = list[BestSentence](), Head.parse(head).key
    for path in sorted((Path(run) / SENTENCES).glob("*.jsonl")):
        for number, row in read_rows(path):
            if row.get("head") == key:
                with naming(path, "translation scores"):
                    kept.append(decode(BestSentence, row, f"line {number}"))
    return kept
