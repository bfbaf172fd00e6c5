"""Texts under many gates: one pool of rows beside zeroed weights and ``generate``, as JSON.

    python bench/generation.py --threads 1 --out bench/results/generation-pocket.json
    python bench/generation.py FOLDER --data FILE.tsv --pair en-es --shots 3 --threads 1

Every round translates the same sentences under the same conditions (the original model, and random
sets of heads removed) twice, in an order that changes: once as `headscope verify removal` does it,
once with the columns of W_O set to zero and the ``generate`` of transformers, in batches of so many
rows by length. Ratios are taken within rounds. Where two texts differ, the model reads what they
have in common: `widest_gap` is the largest difference between the logits of the two next tokens.
Without --data the sentences of the bundled model are taken. With --only one way alone runs once,
for the peak of its memory.
"""

from __future__ import annotations

import argparse
import contextlib
import resource
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
from machine import machine, tell
from timing import CLOCKS, load, moment, say, spread

import headscope
from headscope.heads import HeadSet
from headscope.heads.draws import draw_heads
from headscope.lm.generation import Generation, generate_batch
from headscope.lm.generation.texts import generation_of
from headscope.lm.model import LanguageModel
from headscope.studies.pairs import PairsChoice, read_directions
from headscope.verify.translation.conditions import Removal, prompts_with_limits

WAYS = ("pool", "generate")


@contextlib.contextmanager
def zeroed_heads(lm: LanguageModel, heads: HeadSet) -> Iterator[None]:
    """The columns of W_O that read these heads set to zero."""
    before = []
    for head in heads:
        (site,) = [site for site in lm.sites if site.layer == head.layer]
        start = head.head * site.head_width
        columns = site.projection.weight.data[:, start : start + site.head_width]
        before.append((columns, columns.clone()))
        columns.zero_()
    try:
        yield
    finally:
        for columns, values in before:
            columns.copy_(values)


class Work:
    """Sentences to be translated with sets of heads removed."""

    def __init__(self, lm: LanguageModel, given: argparse.Namespace) -> None:
        pairs = PairsChoice(
            pair=(given.pair,), data=given.data, limit=given.sentences, shots=given.shots
        )
        directions = read_directions(pairs, given.model, "test", given.sentences)
        settings = Removal(batch_tokens=given.batch_tokens)
        self.lm, self.rows = lm, given.rows
        self.prompts, self.limits, self.config, self.special = prompts_with_limits(
            lm, [*directions.values()], settings
        )
        every = tuple(lm.geometry.heads())
        size = HeadSet(lm.geometry, every[: max(1, round(0.15 * len(every)))])
        drawn = draw_heads(size, max(1, given.conditions - 1), 0)
        self.removed = [HeadSet(lm.geometry, ()), *(draw.heads for draw in drawn)]
        self.removed = self.removed[: given.conditions]

    def pool(self) -> list[Generation]:
        """As headscope writes them."""
        gates = [heads.removed() for heads in self.removed for _ in self.prompts]
        return self.lm.generate(
            list(self.prompts) * len(self.removed),
            self.config,
            list(self.limits) * len(self.removed),
            special=self.special,
            gates=gates,
        )

    def generate(self) -> list[Generation]:
        """By zeroed weights, batch by batch."""
        lm, newline = self.lm, self.config.stop_at_newline
        ids = [lm.encode(prompt, self.special) for prompt in self.prompts]
        order = sorted(range(len(ids)), key=lambda at: len(ids[at]) + self.limits[at])
        batches = [order[at : at + self.rows] for at in range(0, len(order), self.rows)]
        made: list[Generation] = []
        for heads in self.removed:
            texts: dict[int, Generation] = {}
            with zeroed_heads(lm, heads):
                for batch in batches:
                    limits = [self.limits[at] for at in batch]
                    new = generate_batch(lm, lm.collate([ids[at] for at in batch]), limits, newline)
                    for at, tokens in zip(batch, new, strict=True):
                        texts[at] = generation_of(lm, ids[at], tokens, newline)
            made += [texts[at] for at in range(len(ids))]
        return made


def widest_gap(work: Work, ours: Sequence[Generation], theirs: Sequence[Generation]) -> float:
    """The largest difference between the logits of the first tokens that differ; 0 for none."""
    gap = 0.0
    for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        if one.output_ids == other.output_ids:
            continue
        pairs = zip(one.output_ids, other.output_ids, strict=False)
        alike = next((at for at, (a, b) in enumerate(pairs) if a != b), None)
        if alike is None:
            # One ended where the other went on; what ends a text may be any of several tokens.
            alike = min(len(one.output_ids), len(other.output_ids))
        heads = work.removed[number // len(work.prompts)]
        with work.lm.gated(heads.removed()):
            logits = work.lm.next_logits([[*one.prompt_ids, *one.output_ids[:alike]]])[0]
        ends = logits[list(work.lm.eos_token_ids)].max()
        values = [
            logits[made.output_ids[alike]] if len(made.output_ids) > alike else ends
            for made in (one, other)
        ]
        gap = max(gap, float((values[0] - values[1]).abs()))
    return gap


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default="pocket")
    parser.add_argument("--data", action="append", default=[])
    parser.add_argument("--pair", default="en-de")
    parser.add_argument("--shots", type=int, default=0)
    parser.add_argument("--sentences", type=int, default=100)
    parser.add_argument("--conditions", type=int, default=12)
    parser.add_argument("--rows", type=int, default=32, help="of a batch of generate")
    parser.add_argument("--batch-tokens", type=int, default=8192)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--clock", choices=CLOCKS, default="process")
    parser.add_argument("--only", choices=WAYS)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if given.threads:
        torch.set_num_threads(given.threads)
    lm = headscope.load(given.model, device=given.device, dtype=given.dtype)
    work = Work(lm, given)
    result: dict[str, Any] = {
        "machine": machine(given.device),
        "model": {"name": Path(lm.name).name, "layers": lm.geometry.layers, "dtype": given.dtype},
        "work": {
            name: getattr(given, name)
            for name in ("pair", "shots", "conditions", "rows", "batch_tokens", "clock")
        }
        | {"sentences": len(work.prompts), "chat": not work.special},
    }
    if given.only:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        getattr(work, given.only)()
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        result["peak_bytes"] = {"way": given.only, "loaded": before * 1024, "all": after * 1024}
        tell(result, given.out)
        return
    clock = CLOCKS[given.clock]
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    made: dict[str, list[Generation]] = {}
    rounds = []
    for number in range(given.rounds):
        began = moment()
        for way in WAYS if number % 2 else WAYS[::-1]:
            start = clock()
            made[way] = getattr(work, way)()
            seconds[way].append(clock() - start)
            say(f"round {number}: {way} {seconds[way][-1]:.2f} s")
        rounds.append({"began": began, "load": load()})
    differ = sum(
        ours.output_ids != theirs.output_ids for ours, theirs in zip(*made.values(), strict=True)
    )
    ratios = [theirs / ours for ours, theirs in zip(*seconds.values(), strict=True)]
    result |= {
        "rounds": rounds,
        "tokens": sum(len(text.output_ids) + (text.stop == "eos") for text in made["pool"]),
        "seconds": {way: spread(values) for way, values in seconds.items()},
        "ratio": {"median": median(ratios), "min": min(ratios), "max": max(ratios)},
        "texts": {
            "all": len(made["pool"]),
            "differ": differ,
            "widest_gap": widest_gap(work, made["pool"], made["generate"]),
        },
    }
    tell(result, given.out)


if __name__ == "__main__":
    main()
