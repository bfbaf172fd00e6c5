"""Which heads look at the name of the language that is asked for, as JSON.

    python bench/language_name.py FILE.gguf [FILE.gguf ...] --data en-de.find.tsv \\
        --out bench/results/language-name.json

Of each head: its attention to the language's name in the instruction, in the row that predicts the
first token of the answer, mean over sentences (a column `source`). Nothing is removed here; what
the model writes without such a head says `headscope verify off-target --heads HEAD`.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from machine import machine, tell
from numpy.typing import NDArray

import headscope
from headscope.data.prompts import DEFAULT_TEMPLATE
from headscope.lm.prompting import wrap_prompts

LANGUAGES = ("German", "Spanish", "Chinese", "Russian")
LISTED = 5


def attention_to_name(lm: Any, sentence: str, language: str) -> tuple[NDArray[np.float32], float]:
    """Attention of every head to the name, (layers, heads), and an even head's."""
    prompt = DEFAULT_TEMPLATE.render(sentence, "English", language).text
    seen = lm.attention(wrap_prompts(lm, prompt)[0])
    place = [token.strip() for token in seen.tokens].index(language)
    return seen.weights[:, :, -1, place], 1 / len(seen.tokens)


def measure(model: Path, sentences: list[str], dtype: str) -> dict[str, Any]:
    """By language the heads that look at its name most, and the mean over languages of each."""
    lm = headscope.load(str(model), dtype=dtype)
    seen = {
        language: [attention_to_name(lm, sentence, language) for sentence in sentences]
        for language in LANGUAGES
    }
    means = {language: np.mean([own for own, _ in rows], axis=0) for language, rows in seen.items()}
    least = {language: np.min([own for own, _ in rows], axis=0) for language, rows in seen.items()}
    every = np.mean(list(means.values()), axis=0)
    heads = sorted(lm.geometry.heads(), key=lambda head: -every[head.layer, head.head])[:LISTED]
    return {
        "heads": lm.geometry.total,
        "sentences": len(sentences),
        "even attention": round(float(np.mean([row[1] for row in seen[LANGUAGES[0]]])), 4),
        "heads above a half": int((every > 0.5).sum()),
        "highest": {
            str(head): {
                language: [
                    round(float(each[language][head.layer, head.head]), 4)
                    for each in (means, least)
                ]
                for language in LANGUAGES
            }
            for head in heads
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sentences", type=int, default=40)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    before = machine("cpu")
    names, *rows = (line.split("\t") for line in given.data.read_text("utf-8").splitlines())
    sentences = [row[names.index("source")] for row in rows[: given.sentences]]
    found = {model.stem: measure(model, sentences, given.dtype) for model in given.models}
    tell({"command": "bench/language_name.py", "machine": before, "models": found}, given.out)


if __name__ == "__main__":
    main()
