"""Whole layers: what each language loses without all heads of one, and where its heads lie.

LAHIS (Liu et al. 2025, arXiv 2511.07498) removes the heads of one layer at a time, and counts the
heads that are important for a language by layer. Beside a layer stand as many random heads, spread
over all layers: the same draws for all layers of one size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from headscope.errors import InputError
from headscope.heads import Geometry, Head, HeadSet
from headscope.heads.draws import Choices, distinct_sets
from headscope.results.language_texts import LanguageLayers, LayerCount, Profile, WithoutLayer
from headscope.verify.languages.conditions import Condition
from headscope.verify.languages.evidence import TextTrial, beside_random


def layer_heads(geometry: Geometry, layer: int) -> HeadSet:
    """All heads of a layer; none where the layer has no attention heads."""
    return HeadSet(geometry, tuple(Head(layer, head) for head in range(geometry.counts[layer])))


def spread_draws(geometry: Geometry, size: int, draws: int, seed: int = 0) -> list[HeadSet]:
    """Different random sets of `size` heads from the whole model, none of them a whole layer.

    Draw i is the same however many draws there are; where fewer sets are possible than asked for,
    each of them is drawn once. InputError unless there are more heads than
    `size`, so that there is something to choose.
    """
    every = list(geometry.heads())
    whole = {
        frozenset(layer_heads(geometry, layer))
        for layer, count in enumerate(geometry.counts)
        if count == size
    }
    choices = Choices([every], [(size,)])
    if not 0 < size < len(every) or choices.count == len(whole):
        raise InputError(
            f"{size} of {len(every)} heads are a layer, which leaves no choice for random heads; "
            "removing whole layers needs a model with several layers of heads"
        )
    found = distinct_sets(
        choices,
        lambda stream: stream.sample(every, size),
        draws,
        f"heads of all layers {seed} {size}",
        without=whole,
    )
    return [HeadSet(geometry, heads) for heads in found]


def plan_layers(
    geometry: Geometry, languages: Sequence[str], draws: int, seed: int = 0
) -> list[Condition]:
    """The model as it is, every layer that has heads, and random draws of each layer size."""
    every = tuple(languages)
    planned = [Condition("", "chosen", "baseline", 0, None, HeadSet(geometry, ()), 0, every)]
    for layer, size in enumerate(geometry.counts):
        if size:
            heads = layer_heads(geometry, layer)
            planned.append(Condition(str(layer), "chosen", "removed", size, None, heads, 0, every))
    for size in sorted({count for count in geometry.counts if count}):
        planned += [
            Condition("", "chosen", "random", size, number, heads, 0, every)
            for number, heads in enumerate(spread_draws(geometry, size, draws, seed))
        ]
    return planned


def describe_layers(
    planned: Sequence[Condition], trials: Mapping[str, TextTrial]
) -> dict[str, LanguageLayers]:
    """For each language its text as it is and without each layer, beside as many random heads."""
    sizes = sorted({one.k for one in planned if one.kind == "random"})
    rows = {
        size: [at for at, one in enumerate(planned) if (one.kind, one.k) == ("random", size)]
        for size in sizes
    }
    return {
        name: LanguageLayers(
            **trial.about(),
            layers=tuple(
                WithoutLayer(
                    layer=int(one.of),
                    heads=len(one.heads),
                    **trial.levels(at),
                    change=trial.nll.difference(at),
                    **beside_random(at, rows[one.k], trial.nll),
                )
                for at, one in enumerate(planned)
                if one.kind == "removed"
            ),
            draws={str(size): trial.nll.changes(places).each for size, places in rows.items()},
        )
        for name, trial in trials.items()
    }


def profile(heads: HeadSet) -> Profile:
    """How many of a set's heads lie in each layer."""
    counts = Counter(head.layer for head in heads)
    total = max(1, len(heads))
    return Profile(
        len(heads),
        tuple(
            LayerCount(
                layer, size, counts[layer], counts[layer] / total, size / heads.geometry.total
            )
            for layer, size in enumerate(heads.geometry.counts)
        ),
    )
