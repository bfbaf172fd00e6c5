"""One head says in which language the model answers: what it looks at, and what its output does.

    python bench/language_name.py FILE.gguf --heads 17.2 --data en-de.find.tsv --draws 19 \\
        --out bench/results/language-name-0.5b.json

Of each head its attention to the name of the language that is asked for, in the row that predicts
the first token of the answer, mean over sentences. Then the output of --heads is replaced by their
mean while other sentences are translated into another language: in which language does the model
write? Beside it as many random heads, of any layer and of the same ones, with their own means. What
is written without the heads says `headscope verify off-target --heads HEADS`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
from machine import machine, tell
from numpy.typing import NDArray

import headscope
from headscope.data.prompts import DEFAULT_TEMPLATE
from headscope.evidence.rows import SELECTED
from headscope.heads import HeadSet
from headscope.heads.draws import draw_sets
from headscope.lm.generation import GenerateConfig
from headscope.lm.prompting import wrap_prompts
from headscope.lm.replacement import Mean, head_means
from headscope.measure.identify import identifier_name, identify

LANGUAGES = {"de": "German", "es": "Spanish", "zh": "Chinese", "ru": "Russian"}
CONTROLS = ("random", "same layers")
#: Heads that are listed, tokens that are written, and words that a sentence has at most.
LISTED, WRITTEN, WORDS = 5, GenerateConfig(max_new_tokens=48), 24


def prompts(lm: Any, sentences: list[str], code: str) -> list[str]:
    asked = [
        DEFAULT_TEMPLATE.render(sentence, "English", LANGUAGES[code]).text for sentence in sentences
    ]
    return wrap_prompts(lm, asked)


def attention(lm: Any, sentences: list[str]) -> dict[str, Any]:
    """The heads that look at the name most: mean and least attention over sentences."""
    seen: dict[str, list[NDArray[np.float32]]] = {}
    for code, name in LANGUAGES.items():
        for prompt in prompts(lm, sentences, code):
            read = lm.attention(prompt)
            place = [token.strip() for token in read.tokens].index(name)
            seen.setdefault(code, []).append(read.weights[:, :, -1, place])
    every = np.mean([np.mean(scores, axis=0) for scores in seen.values()], axis=0)
    heads = sorted(lm.geometry.heads(), key=lambda head: -every[head.layer, head.head])
    return {
        "sentences": len(sentences),
        "heads above a half": int((every > 0.5).sum()),
        "highest": {
            head.key: {
                code: [
                    round(
                        float(value([row[head.layer, head.head] for row in scores])),
                        4,
                    )
                    for value in (np.mean, np.min)
                ]
                for code, scores in seen.items()
            }
            for head in heads[:LISTED]
        },
    }


def means(lm: Any, sentences: list[str], code: str) -> tuple[Mean, int]:
    """What every head writes in answers in a language, the mean over those that are in it; and how
    many these are."""
    asked = prompts(lm, sentences, code)
    made = [written.text for written in lm.generate(asked, WRITTEN, special=False)]
    pairs = [
        (lm.encode(prompt, special=False), lm.encode(text, special=False))
        for prompt, text, known in zip(asked, made, identify(made), strict=True)
        if known == code
    ]
    rows, starts = [before + after for before, after in pairs], [len(before) for before, _ in pairs]
    answer = head_means(lm, rows, starts)[-1]
    return Mean(np.stack([answer] * 3)), len(pairs)


def swaps(
    lm: Any, sets: dict[str, list[HeadSet]], found_on: list[str], sentences: list[str]
) -> dict[str, Any]:
    """By languages asked for and given: outputs in each of the two, of every set of heads; and of
    each kind of sets the share of all outputs that are in the language given."""
    given = {code: means(lm, found_on, code) for code in LANGUAGES}
    every = [(kind, heads) for kind, some in sets.items() for heads in some]
    pairs: dict[str, Any] = {}
    hits = np.zeros((len(every), len(sentences)))
    for asked in LANGUAGES:
        texts = prompts(lm, sentences, asked)
        plain = identify([written.text for written in lm.generate(texts, WRITTEN, special=False)])
        for code in [code for code in LANGUAGES if code != asked]:
            made = lm.generate(
                texts * len(every),
                WRITTEN,
                special=False,
                gates=[heads.removed() for _, heads in every for _ in texts],
                replacement=given[code][0],
            )
            known = np.array(identify([written.text for written in made]), dtype=object)
            known = known.reshape(hits.shape)
            pairs[f"{asked} as {code}"] = {"original": [plain.count(asked), plain.count(code)]} | {
                kind: [
                    [int((codes == asked).sum()), int((codes == code).sum())]
                    for codes, (its, _) in zip(known, every, strict=True)
                    if its == kind
                ]
                for kind in sets
            }
            hits += known == code
            print(asked, code, pairs[f"{asked} as {code}"][SELECTED], file=sys.stderr, flush=True)
    shares = hits / (len(LANGUAGES) * (len(LANGUAGES) - 1))
    own = shares[0]
    again = np.random.default_rng(0).integers(len(own), size=(10_000, len(own)))
    ends = np.quantile(own[again].mean(axis=1), (0.025, 0.975))
    drawn = {
        kind: shares[[at for at, (its, _) in enumerate(every) if its == kind]].mean(axis=1)
        for kind in sets
        if kind != SELECTED
    }
    return {
        "sentences": len(sentences),
        "answers that means are of": {code: number for code, (_, number) in given.items()},
        "in the language given": {
            SELECTED: [round(float(value), 4) for value in (own.mean(), *ends)],
            **{
                kind: {
                    "mean, least, most": [
                        round(float(value(drawn_shares)), 4) for value in (np.mean, np.min, np.max)
                    ],
                    "p over draws": (1 + int((drawn_shares >= own.mean()).sum()))
                    / (1 + len(drawn_shares)),
                }
                for kind, drawn_shares in drawn.items()
            },
        },
        "asked and given": pairs,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--heads", required=True)
    parser.add_argument("--data", type=Path, required=True, help="a TSV with a column source")
    parser.add_argument("--sentences", type=int, default=20)
    parser.add_argument("--draws", type=int, default=19)
    parser.add_argument("--control", action="append", choices=CONTROLS, help="repeatable; else all")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    before = machine("cpu")
    names, *rows = (line.split("\t") for line in given.data.read_text("utf-8").splitlines())
    every = [row[names.index("source")] for row in rows]
    short = [sentence for sentence in every if len(sentence.split()) <= WORDS]
    seen, tested, found_on = np.split(np.array(short), np.cumsum([given.sentences] * 2))
    lm = headscope.load(str(given.model), dtype=given.dtype)
    selected = HeadSet.of(lm.geometry, given.heads.split(","))
    drawn = {kind: draw_sets(selected, given.draws, 0, kind) for kind in given.control or CONTROLS}
    sets = {SELECTED: [selected], **drawn}
    result = {
        "command": "bench/language_name.py",
        "machine": before,
        "model": given.model.stem,
        "heads": given.heads,
        **{
            kind: [[head.key for head in heads.heads] for heads in some]
            for kind, some in drawn.items()
        },
        "identifier": identifier_name(),
        "attention": attention(lm, seen.tolist()),
        "swaps": swaps(lm, sets, found_on[: given.sentences].tolist(), tested.tolist()),
    }
    tell(result, given.out)


if __name__ == "__main__":
    main()
