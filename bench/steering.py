"""Whether turning a language's heads up leads the bundled model back to that language, as JSON.

    python bench/steering.py --gate runs/mask --out bench/results/steering-pocket.json

Two things make the pocket model answer in the wrong language when it is told to translate from
English: English documents before the instruction (`documents-1`, `documents-2`), and a mask that
was learned for another direction (`mask`, with --gate, a run of `headscope find mask`). In each the
heads specific to the language asked for, found by LAHIS on documents of the dev split, are
multiplied by factors; the heads of English are removed; and as many random heads are multiplied
alike: `headscope use adapt --steer`. All languages share one table, each with its own prompts, of
the test split. The runs are kept in --runs and go on where they were.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from machine import machine, table, tell

from headscope.pocket.sample import sample_documents, sample_pairs
from headscope.runs import encode
from headscope.studies.bars import progress
from headscope.studies.documents import DocumentsChoice
from headscope.studies.find.lahis import FindLahis, find_lahis
from headscope.studies.use.gates import GateChoice
from headscope.studies.use.steering import FACTORS, Steer, comparison, write_astray

SOURCE, TARGETS = "en", ("de", "es", "ru", "tr")
SETTINGS = {"documents-1": 1, "mask": 0, "documents-2": 2}
#: Answers of the pocket world have about a dozen tokens.
NEW_TOKENS = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--settings", nargs="+", default=list(SETTINGS), choices=SETTINGS)
    parser.add_argument("--gate", help="the run of a mask for another direction")
    parser.add_argument("--languages", nargs="+", default=TARGETS)
    parser.add_argument("--factors", nargs="+", type=float, default=FACTORS)
    parser.add_argument("--ranking", default="specific", choices=("specific", "importance"))
    parser.add_argument("--k", default="5%", help="heads of each language")
    parser.add_argument("--prompts", type=int, default=15, help="of each language")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0, help="of sentences and random draws")
    parser.add_argument("--documents", type=int, help="that LAHIS reads of each language")
    parser.add_argument("--runs", type=Path, default=Path("runs/bench-steering"))
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    before = machine("cpu")
    found: dict[str, Any] = {}
    with progress() as update:
        heads = given.runs / "found"
        find_lahis(FindLahis(documents=DocumentsChoice(limit=given.documents)), heads, update)
        for name in given.settings:
            if SETTINGS[name] == 0 and given.gate is None:
                continue
            config = Steer(
                languages=tuple(given.languages),
                heads=str(heads),
                k=given.k,
                ranking=given.ranking,
                factors=tuple(given.factors),
                away=SOURCE,
                gate=GateChoice(given.gate) if SETTINGS[name] == 0 else None,
                data=tuple(
                    f"{code}={write_prompts(given, name, code)}" for code in given.languages
                ),
                draws=given.draws,
                max_new_tokens=NEW_TOKENS,
                one_line=True,
                seed=given.seed,
                batch_tokens=32768,
            )
            parts = (given.ranking, given.k, *given.languages, given.prompts, given.draws)
            size = "-".join(map(str, (*parts, given.seed)))
            result = comparison.run(config, given.runs / f"{name}-{size}", update)
            found[name] = brief(encode(result))
    tell(
        {
            "command": "bench/steering.py",
            "machine": before,
            "prompts": given.prompts,
            "draws": given.draws,
            "seed": given.seed,
            "ranking": given.ranking,
            "k": given.k,
            "settings": found,
        },
        given.out,
    )


def write_prompts(given: argparse.Namespace, name: str, code: str) -> Path:
    """A file of translation prompts into one language, with references."""
    documents, number, seed = SETTINGS[name], given.prompts, given.seed
    longer = sample_documents(SOURCE, "test", number * (documents or 1), seed).documents
    before = [text.text for text in longer]
    told = ["\n".join(before[at : at + documents]) for at in range(0, len(before), documents or 1)]
    path = given.runs / "prompts" / f"{name}-{code}-{number}-{seed}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    pairs = sample_pairs(f"{SOURCE}-{code}", "test", number, seed)
    return write_astray(path, pairs, told if documents else ())


def brief(result: dict[str, Any]) -> dict[str, Any]:
    """What a run shows: its rows, and the languages that answers were written in."""
    details = result["details"]
    own = ("heads", "gate", "written")
    return {
        **{name: result[name] for name in ("signature", "seconds")},
        **{name: details[name] for name in own},
        **table(result),
    }


if __name__ == "__main__":
    main()
