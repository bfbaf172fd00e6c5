"""Removal with controls: the model as it is, without chosen heads, without random ones."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from headscope.data.languages import language_name
from headscope.data.pairs import PairFile
from headscope.data.prompts import DEFAULT_TEMPLATE, Template
from headscope.errors import InputError
from headscope.heads import HeadSet

if TYPE_CHECKING:
    from headscope.lm import LanguageModel

Kind = Literal["baseline", "top", "random"]


@dataclass(frozen=True)
class Condition:
    """One way to run the model: `heads` are removed (gate 0). `draw` numbers random draws."""

    kind: Kind
    heads: HeadSet
    draw: int | None = None


def conditions(heads: HeadSet, avoid: HeadSet, draws: int, seed: int) -> list[Condition]:
    """The untouched model, `heads` removed, and `draws` times as many random heads removed.

    Random heads are drawn from all heads outside `heads` and `avoid` (the token alignment heads),
    filled up from outside `heads` alone where those are too few. Raises `InputError` if even that
    leaves fewer heads than are to be removed.
    """
    free = sorted((heads | avoid).complement())
    spare = sorted(heads.complement() - HeadSet(heads.geometry, tuple(free)))
    if len(free) + len(spare) < len(heads):
        raise InputError(
            f"{len(heads)} heads of {heads.geometry.total} are to be removed, which leaves fewer "
            "than that for a random control; choose a smaller k"
        )
    found = [Condition("baseline", HeadSet(heads.geometry, ())), Condition("top", heads)]
    for draw in range(draws):
        rng = random.Random(f"random heads {seed} {draw}")
        chosen = rng.sample(free, min(len(heads), len(free)))
        chosen += rng.sample(spare, len(heads) - len(chosen))
        found.append(Condition("random", HeadSet(heads.geometry, tuple(sorted(chosen))), draw))
    return found


def translate(
    lm: LanguageModel,
    directions: Sequence[PairFile],
    heads: HeadSet,
    template: Template = DEFAULT_TEMPLATE,
    max_new_tokens: int | None = None,
    batch_tokens: int = 8192,
    progress: Callable[[int, int], None] | None = None,
) -> list[list[str]]:
    """Greedy translations of every sentence with `heads` removed, by direction.

    All directions go through the model together, so that batches are full. A sentence gets
    `max_new_tokens`, or twice its source tokens and 32.
    """
    from headscope.lm.generation import GenerateConfig

    prompts: list[str] = []
    limits: list[int] = []
    for pairs in directions:
        names = language_name(pairs.source_language), language_name(pairs.target_language)
        for pair in pairs.pairs:
            prompts.append(template.render(pair.source, *names).text)
            size = len(lm.tokenizer(pair.source, add_special_tokens=False)["input_ids"])
            limits.append(max_new_tokens or 2 * size + 32)
    with lm.gated(heads.removed()):
        made = iter(lm.generate(prompts, GenerateConfig(batch_tokens=batch_tokens), limits))
        outputs = [[next(made).text for _ in pairs.pairs] for pairs in directions]
    if progress:
        progress(len(prompts), len(prompts))
    return outputs
