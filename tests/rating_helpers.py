"""A finished `use rate` run with made-up numbers, in five languages and three scripts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from headscope.runs import open_run

TEXTS = {
    "de": "Der alte Lehrer sieht drei kleine Vögel. The old teacher sees three small birds.",
    "ru": "Мира не открыла красную дверь. Mira did not open the red door.",
    "ar": "رأى المعلم ثلاثة طيور صغيرة. The teacher saw three small birds.",
    "ja": "先生は小さな鳥を三羽見た。The teacher saw three small birds.",
    "": "A text whose language nobody told.",
}


def write_rating(path: Path, text: str = "", **changes: Any) -> Path:
    """Write a finished run; `text` is put into every name and text, `changes` into the result."""
    rng = np.random.default_rng(2)
    edges = np.linspace(-0.5, 2.5, 41)
    languages = {}
    for place, (code, words) in enumerate(TEXTS.items()):
        scores = rng.gamma(1.2 + 0.3 * place, 0.15, 400 - 60 * place) - 0.1
        counts, _ = np.histogram(scores, edges)
        best = np.sort(scores)[::-1][: 3 if code == "ja" else 20]
        languages[code + (text if code else "")] = {
            "documents": len(scores),
            "tokens": 60 * len(scores),
            "mean": float(scores.mean()),
            "histogram": {"edges": edges.tolist(), "counts": counts.tolist()},
            "top": [
                {"id": f"{code}-{at}{text}", "score": float(score), "text": f"{words} " * 4 + text}
                for at, score in enumerate(best)
            ],
        }
    documents = sum(one["documents"] for one in languages.values())
    reasons = {f"too short: no predicted token{text}": 7, "the loss is not a number": 1}
    figures = {
        "documents": documents,
        "rejected": 8,
        "tokens": 60 * documents,
        "tokens_per_second": 5123.4,
        "reasons": reasons,
    }
    with open_run(path, "use rate", {"k": 10}, {"model": "ab" * 32}) as run:
        run.write_json("summary.json", {"languages": languages, **figures})
        run.finish(
            {
                "signature": run.signature,
                "run": str(path),
                "seconds": 12.0,
                "model": {"name": "pocket" + text},
                **figures,
                "workers": 2,
                "executor": "local",
                "heads": ["3.4", "5.1"],
                **changes,
            }
        )
    return path
