"""Heads removed one by one: rows of a few batches against a plain loop over steps, as JSON.

    python bench/one_by_one.py --threads 2 --out bench/results/one_by_one.json

Every round takes another test sentence of the bundled model, another random order of all its
heads, and does the same work twice, in an order that changes: once as `headscope verify one-by-one`
does it (`verify.one_by_one`), once as a plain loop, one forward pass for ranks and hidden
states and one generation a step, with nothing but the model, its gate and its `generate`. Ratios
are taken within rounds, and the median over rounds counts; smallest and largest are given too.

Ranks are compared step by step. Both ways compute the same in another order of additions, so two
tokens whose logits agree to the last digits may change places: ``ranks`` counts them all.
"""

from __future__ import annotations

import argparse
import itertools
import random
from functools import partial
from pathlib import Path
from typing import Any

import torch
from machine import machine, tell
from timing import CLOCKS, load, moment, say, spread

import headscope
from headscope.data.prompts import DEFAULT_TEMPLATE
from headscope.heads import Head
from headscope.lm.generation import GenerateConfig
from headscope.lm.model import LanguageModel
from headscope.lm.prefix import can_share
from headscope.pocket.sample import sample_pairs
from headscope.verify.one_by_one_steps import (
    Prepared,
    Step,
    Subject,
    Walk,
    order_gates,
    prepare,
    walk,
)

#: What seconds are: of the wall, or of this process on all its cores (for a busy machine).


def plain_loop(lm: LanguageModel, prepared: Prepared, order: list[Head], text: bool) -> list[Step]:
    """One forward pass and one generation for each step."""
    ids = torch.tensor([prepared.ids], device=lm.device)
    tokens = [prepared.target_token, *prepared.top]
    values = torch.ones(lm.geometry.shape)
    limit = GenerateConfig(prepared.subject.max_new_tokens)
    steps = []
    for step in range(len(order) + 1):
        if step:
            values[order[step - 1].layer, order[step - 1].head] = 0.0
        with lm.gated(values), torch.no_grad():
            output = lm.model(input_ids=ids, use_cache=False, output_hidden_states=True)
            logits = output.logits[0, -1]
            states = torch.stack([layer[0, -1] for layer in output.hidden_states[1:]])
            cosine = torch.cosine_similarity(states, prepared.reference, dim=-1).tolist()
            ranks = [1 + int((logits > logits[token]).sum()) for token in tokens]
            made = lm.generate([prepared.subject.prompt], limit)[0].text if text else None
        steps.append(Step(ranks[0], tuple(ranks[1:]), tuple(cosine), made))
    return steps


def batched(
    lm: LanguageModel, prepared: Prepared, order: list[Head], text: bool, share: bool
) -> list[Step]:
    """The same as rows of a few batches."""
    gates = partial(order_gates, lm.geometry, order, 0.0)
    found: dict[int, Step] = {}
    steps = range(len(order) + 1)
    walk(lm, prepared, gates, steps, Walk(text=text, share=share), found.update)
    return [found[step] for step in steps]


def rounds(
    lm: LanguageModel, number: int, clock: str, text: bool, pair: str, steps: int | None
) -> dict[str, Any]:
    """Both ways in every round, each with a sentence and an order of its own."""
    now = CLOCKS[clock]
    share = can_share(lm)
    shuffle = random.Random(0)
    heads = list(lm.geometry.heads())
    names = pair.split("-")
    languages = [{"en": "English", "de": "German"}[name] for name in names]
    ways = {
        "plain_loop": partial(plain_loop, lm, text=text),
        "batched": partial(batched, lm, text=text, share=share),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    compared = equal = furthest = texts = same_texts = changes = 0
    for place, sentence_pair in enumerate(sample_pairs(pair, "test", number + 1, 0).pairs):
        order = shuffle.sample(heads, steps or len(heads))
        prompt = DEFAULT_TEMPLATE.render(sentence_pair.source, *languages).text
        limit = (
            2 * len(lm.tokenizer(sentence_pair.source, add_special_tokens=False)["input_ids"]) + 32
        )
        prepared = prepare(lm, Subject(sentence_pair.id, prompt, sentence_pair.target, None, limit))
        found: dict[str, list[Step]] = {}
        turn = list(ways)
        shuffle.shuffle(turn)
        for name in turn:
            start = now()
            found[name] = ways[name](prepared=prepared, order=order)
            if place:  # the first round only warms up
                seconds[name].append(now() - start)
        for plain, ours in zip(found["plain_loop"], found["batched"], strict=True):
            pairs = zip(
                (plain.target_rank, *plain.top5_ranks),
                (ours.target_rank, *ours.top5_ranks),
                strict=True,
            )
            gaps = [abs(a - b) for a, b in pairs]
            compared += len(gaps)
            equal += gaps.count(0)
            furthest = max(furthest, *gaps)
            texts += text
            same_texts += text and plain.text == ours.text
        made = [step.text for step in found["plain_loop"]]
        changes += sum(a != b for a, b in itertools.pairwise(made))
        say(f"round {place}: " + ", ".join(f"{n} {s[-1]:.2f} s" for n, s in seconds.items() if s))
    ratio = [a / b for a, b in zip(seconds["plain_loop"], seconds["batched"], strict=True)]
    return {
        "texts_generated": text,
        "steps": (steps or len(heads)) + 1,
        "layers_shared": share,
        "seconds": {name: spread(values) for name, values in seconds.items()},
        "speedup": spread(ratio),
        "ranks": {"compared": compared, "equal": equal, "largest_difference": furthest},
        "texts": {"compared": texts, "equal": int(same_texts), "changes_along_the_way": changes},
    }


def main() -> None:
    """Measures and prints; progress goes to stderr."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, help="of torch; by default its own choice")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--clock", default="wall", choices=list(CLOCKS))
    parser.add_argument("--out", type=Path, help="also write the JSON there")
    parser.add_argument("--quick", action="store_true", help="only see that everything runs")
    given = parser.parse_args()
    if given.threads:
        torch.set_num_threads(given.threads)
    lm = headscope.load("pocket", device=given.device)
    number, steps = (1, 4) if given.quick else (given.rounds, None)
    result: dict[str, Any] = {
        "bench": "one_by_one",
        "started": moment(),
        "machine": machine(given.device),
        "clock": given.clock,
        "quick": given.quick,
        "model": "pocket",
        "heads": lm.geometry.total,
        "aim": 8.0,
        "with_texts": rounds(lm, number, given.clock, True, "en-de", steps),
        "ranks_alone": rounds(lm, number, given.clock, False, "en-de", steps),
        "load_after": load(),
    }
    result["ended"] = moment()
    tell(result, given.out)


if __name__ == "__main__":
    main()
