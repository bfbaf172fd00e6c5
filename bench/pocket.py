"""What the bundled model can do on held-out sentences and items of its world, as JSON.

    python bench/pocket.py --sentences 50 --out bench/results/pocket.json

chrF++ over every direction and prompt wording, repetition, bare inputs, and word tasks; each on
the test split, of which training showed no word combination, frame or answered item.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any

from machine import machine, tell

import headscope
from headscope.data.prompts import Template
from headscope.heads import HeadSet
from headscope.lm import GenerateConfig, LanguageModel
from headscope.measure.metrics import chrf
from headscope.pocket.mixture import BARE, REPEAT, TEMPLATES, WORD, instruction, say
from headscope.pocket.sample import sample_pairs
from headscope.pocket.world.knowledge import word_items
from headscope.pocket.world.languages import CODES, DIRECTIONS
from headscope.pocket.world.sampling import sentences
from headscope.verify.removal_translations import translate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="pocket")
    parser.add_argument("--split", default="test", choices=("dev", "test"))
    parser.add_argument("--sentences", type=int, default=50, help="of each direction")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    lm = headscope.load(given.model)
    result: dict[str, Any] = {
        "command": "bench/pocket.py",
        "model": {"name": given.model, "digest": lm.digest},
        "split": given.split,
        "sentences": given.sentences,
        "seed": given.seed,
        "machine": machine("cpu"),
    }
    for name, template in zip(("default", "labelled", "say"), TEMPLATES, strict=True):
        result[f"translation, {name} prompt"] = _translation(lm, given, Template(template))
    result["repetition"] = _repetition(lm, given, REPEAT)
    result["bare input, share repeated"] = _repetition(lm, given, BARE)
    result["word tasks, accuracy"] = _words(lm, given)
    tell(result, given.out)


def _translation(lm: LanguageModel, given: Any, template: Template) -> dict[str, Any]:
    files = [sample_pairs(d, given.split, given.sentences, given.seed) for d in DIRECTIONS]
    made = translate(lm, files, HeadSet(lm.geometry, ()), template)
    scores = {
        direction: chrf(outputs, [pair.target for pair in file.pairs]).value
        for direction, file, outputs in zip(DIRECTIONS, files, made, strict=True)
    }
    exact = [
        output == pair.target
        for file, outputs in zip(files, made, strict=True)
        for pair, output in zip(file.pairs, outputs, strict=True)
    ]
    return {"mean chrF++": fmean(scores.values()), "exactly right": fmean(exact), "chrF++": scores}


def _repetition(lm: LanguageModel, given: Any, template: str) -> dict[str, float]:
    """Share of sentences given back letter by letter, by language."""
    shares = {}
    for code in CODES:
        drawn = islice(sentences(given.split, given.seed), given.sentences)
        texts = [say(sentence, code) for sentence in drawn]
        prompts = [template.format(source=text, input=text) for text in texts]
        made = lm.generate(prompts, GenerateConfig(max_new_tokens=96))
        shares[code] = fmean(
            written.text == text for written, text in zip(made, texts, strict=True)
        )
    return shares


def _words(lm: LanguageModel, given: Any) -> dict[str, dict[str, float]]:
    items = [item for item in word_items() if item.split == given.split]
    prompts = [WORD.format(instruction=instruction(item), input=item.input) for item in items]
    made = lm.generate(prompts, GenerateConfig(max_new_tokens=16))
    right: dict[str, list[bool]] = defaultdict(list)
    for item, written in zip(items, made, strict=True):
        right[item.task].append(written.text == item.output)
    return {task: {"accuracy": fmean(v), "items": len(v)} for task, v in right.items()}


if __name__ == "__main__":
    main()
