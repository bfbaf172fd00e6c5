"""Whether languages of the bundled model have heads of their own, as JSON.

    python bench/languages.py --out bench/results/languages-pocket.json

Heads are found by LAHIS on documents of the dev split and removed on documents of the test split,
both with default settings: of each language the first specific heads, at most 5 % of the model's.
The question is whether this raises the loss of the language's own text more than that of any other
language, and more than as many random heads do. Beside it stand as many heads by importance alone,
and the removal of whole layers. With several --seeds everything is repeated on other documents.
The runs are kept in --runs and go on where they were.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from machine import machine, table, tell

from headscope.find.lahis_scores import Lahis
from headscope.runs import encode
from headscope.studies.bars import progress
from headscope.studies.documents import DocumentsChoice
from headscope.studies.find.lahis import FindLahis, find_lahis
from headscope.studies.verify.layers import VerifyLayers
from headscope.studies.verify.layers import comparison as layers
from headscope.studies.verify.perplexity import VerifyPerplexity
from headscope.studies.verify.perplexity import comparison as perplexity


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--documents", type=int, help="of each language; without it as many as the commands take"
    )
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--layers", action="store_true", help="also remove whole layers")
    parser.add_argument("--runs", type=Path, default=Path("runs/bench-languages"))
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    before = machine("cpu")
    documents = DocumentsChoice(limit=given.documents)
    size = f"{given.documents or 'default'}-{given.draws}"
    runs: dict[str, Any] = {}
    with progress() as update:
        for seed in given.seeds:
            place = given.runs / f"seed-{seed}"
            find_lahis(FindLahis(score=Lahis(seed=seed)), place / "found", update)
            drawing = {"draws": given.draws, "seed": seed, "batch_tokens": 2048}
            config = VerifyPerplexity(heads=(str(place / "found"),), documents=documents, **drawing)
            name = f"perplexity-{size}"
            runs[f"seed {seed}"] = _brief(encode(perplexity.run(config, place / name, update)))
            if given.layers:
                whole = VerifyLayers(heads=str(place / "found"), documents=documents, **drawing)
                name = f"layers-{size}"
                result = encode(layers.run(whole, place / name, update))
                runs[f"seed {seed}"]["layers"] = {
                    **{key: result[key] for key in ("signature", "seconds")},
                    "profile": result["details"]["profile"],
                    **table(result),
                }
    tell(
        {
            "command": "bench/languages.py",
            "machine": before,
            "documents": given.documents,
            "draws": given.draws,
            "runs": runs,
        },
        given.out,
    )


def _brief(result: Mapping[str, Any]) -> dict[str, Any]:
    """A run's rows, and what only this command has."""
    details = result["details"]
    own = ("leakage", "ablate", "sets", "empty", "own", "data")
    return {
        **{name: result[name] for name in ("signature", "seconds", "model")},
        **{name: details[name] for name in own},
        **table(result),
    }


if __name__ == "__main__":
    main()
