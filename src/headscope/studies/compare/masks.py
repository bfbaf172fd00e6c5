"""Learned masks beside each other, in a run folder."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np

from headscope.compare.masks import LearnedMask, against, dropped_groups, kept_in_groups, read_masks
from headscope.compare.overlap import group_overlaps, overlaps
from headscope.errors import InputError
from headscope.estimates import known
from headscope.heads import Geometry
from headscope.measure import bootstrap_mean
from headscope.results.masks import (
    BaseComparison,
    BasePair,
    ComparedMask,
    HeadCount,
    KeyGroup,
    LayerShare,
    MasksResult,
    MeanOverTasks,
)
from headscope.results.overlap import PairOverlap
from headscope.runs import Run, carry_out
from headscope.settings import MadeBy, Option, Settings
from headscope.studies.inputs import ModelChoice

__all__ = ["COMMAND", "CompareMasks", "compare_masks"]

COMMAND = "compare masks"


def _model(
    model: Annotated[
        str | None,
        Option(
            "A model of that geometry, to learn which heads share keys where runs do not say.",
            metavar="MODEL",
        ),
    ] = None,
) -> ModelChoice | None:
    return None if model is None else ModelChoice(model)


@dataclass(frozen=True)
class CompareMasks(Settings):
    """Compare learned masks: shared heads beside chance, maps, layers, groups that share keys."""

    masks: Annotated[
        tuple[str, ...],
        Option("Runs of find mask, of one geometry.", metavar="RUN...", argument=True),
    ]
    base: Annotated[
        tuple[str, ...],
        Option(
            "The base model's mask of the same task, as the reference; repeatable, one a task, or "
            "a single one for all.",
            metavar="RUN",
        ),
    ] = ()
    model: Annotated[ModelChoice | None, MadeBy(_model)] = None
    # The language whose directions are also grouped apart.
    pivot: str = "en"


def compare_masks(config: CompareMasks, out: Path | None = None) -> MasksResult:
    """Similarity of masks, layers, maps and key groups; writes `masks.safetensors` beside it.

    Raises:
        InputError: for fewer than two masks, other runs, or differing geometries.
    """
    began = time.monotonic()
    masks, bases = _read(config)
    geometry = masks[0].geometry
    key_heads = _key_heads(config, [*masks, *bases], geometry)
    everyone = [*masks, *bases]
    inputs = {f"{place} {mask.name}": mask.digest for place, mask in enumerate(everyone)}
    settings = {
        "masks": [mask.name for mask in masks],
        "base": [mask.name for mask in bases],
        "key_value_heads": key_heads,
        "pivot": config.pivot,
    }

    def compute(run: Run) -> MasksResult:
        pairs = _pairs(masks)
        ways = {mask.name: mask.task for mask in masks}
        run.write_tensors(
            "masks.safetensors",
            {
                "weights": np.stack([mask.weights.values for mask in everyone]),
                "selected": np.stack([mask.heads.mask() for mask in everyone]).astype(np.uint8),
            },
        )
        return MasksResult(
            geometry=geometry.as_dict(),
            key_value_heads=key_heads,
            masks=tuple(_about(mask, mask in bases, key_heads) for mask in everyone),
            pairs=tuple(pairs),
            groups=tuple(group_overlaps(pairs, ways, config.pivot)),
            base=_base(masks, bases) if bases else None,
            maps={
                mask.name: tuple(tuple(map(known, row)) for row in mask.open.tolist())
                for mask in everyone
            },
            kept_by=_kept_by(masks, geometry),
            always_dropped_groups=None
            if key_heads is None
            else _always_dropped([kept_in_groups(mask.heads, key_heads) for mask in masks]),
        )

    return carry_out(COMMAND, out, settings, inputs, compute, began, kind=MasksResult)


def _read(config: CompareMasks) -> tuple[list[LearnedMask], list[LearnedMask]]:
    """The masks and the base model's, of one geometry, all under names of their own."""
    masks = read_masks(config.masks)
    bases = read_masks(config.base) if config.base else []
    if len(masks) + len(bases) < 2:
        raise InputError("there is only one mask; name a second run, or a --base run beside it")
    first = masks[0]
    for other in [*masks[1:], *bases]:
        if other.geometry != first.geometry:
            raise InputError(
                f"{first.place} is of a model of {first.geometry}, but {other.place} of one of "
                f"{other.geometry}; masks are compared between models of one geometry"
            )
    taken = {mask.name for mask in masks}
    named = [
        replace(base, name=f"{base.name} (base)") if base.name in taken else base for base in bases
    ]
    return masks, named


def _key_heads(
    config: CompareMasks, masks: Sequence[LearnedMask], geometry: Geometry
) -> tuple[int, ...] | None:
    """Heads of keys and values by layer: of the model named, else as the runs tell, if they do."""
    if config.model is not None:
        from headscope.lm.groups import key_value_heads

        lm = config.model.load()
        if lm.geometry != geometry:
            raise InputError(
                f"--model {config.model.model} has {lm.geometry}, but the masks are of a model of "
                f"{geometry}; name the model that they were learned for"
            )
        return key_value_heads(lm)
    told = {mask.key_heads for mask in masks if mask.key_heads is not None}
    if len(told) > 1:
        raise InputError(
            "the masks are of models whose query heads share keys in different groups; compare "
            "those of one model"
        )
    return told.pop() if told else None


def _pairs(masks: Sequence[LearnedMask]) -> list[PairOverlap]:
    sets = {mask.name: mask.heads for mask in masks}
    scores = {mask.name: mask.weights for mask in masks}
    return overlaps(sets, scores, {mask.name: mask.task for mask in masks})


def _about(mask: LearnedMask, base: bool, key_heads: Sequence[int] | None) -> ComparedMask:
    kept = mask.heads.mask().sum(axis=1).tolist()
    return ComparedMask(
        name=mask.name,
        place=mask.place,
        model=mask.model,
        task=mask.task,
        start=mask.start,
        base=base,
        selected=len(mask.heads),
        kept_share=len(mask.heads) / mask.geometry.total,
        layers=tuple(
            LayerShare(layer, n, n / heads if heads else None)
            for layer, (n, heads) in enumerate(zip(kept, mask.geometry.counts, strict=True))
        ),
        groups=None if key_heads is None else dropped_groups(mask.heads, key_heads),
    )


def _base(masks: Sequence[LearnedMask], bases: Sequence[LearnedMask]) -> BaseComparison:
    """Each mask beside its base model's, and the means over tasks with intervals."""
    pairs = tuple(
        BasePair(**vars(pair) | {"a": mask.name, "b": base.name}, task=mask.task)
        for mask, base, pair in against(masks, bases)
    )
    return BaseComparison(
        pairs,
        mean={
            name: _mean([getattr(pair, name) for pair in pairs])
            for name in ("jaccard", "expected", "expected_exact")
        },
        above_chance=_mean([pair.jaccard - pair.expected_exact for pair in pairs]),
    )


def _mean(values: Sequence[float]) -> MeanOverTasks:
    mean = bootstrap_mean(values)
    return MeanOverTasks(mean.value, mean.low, mean.high)


def _kept_by(masks: Sequence[LearnedMask], geometry: Geometry) -> tuple[HeadCount, ...]:
    """For every head how many masks keep it, most first, ties by layer, then head."""
    counts = np.sum([mask.heads.mask() for mask in masks], axis=0)
    places = ((head.layer, head.head) for head in geometry.heads())
    kept = (HeadCount(*place, int(counts[place])) for place in places)
    return tuple(sorted(kept, key=lambda head: -head.masks))


def _always_dropped(kept: Sequence[Sequence[Sequence[int]]]) -> tuple[KeyGroup, ...]:
    """Groups of which no mask keeps a head: what a task on unused keys would look like.

    `kept` counts kept heads by mask, layer and group.
    """
    return tuple(
        KeyGroup(layer, group)
        for layer, groups in enumerate(kept[0])
        for group in range(len(groups))
        if not any(mask[layer][group] for mask in kept)
    )
