"""Learned masks beside each other, in a run folder."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from headscope.compare.masks import LearnedMask, against, dropped_groups, kept_in_groups, read_masks
from headscope.compare.overlap import group_overlaps, overlaps
from headscope.errors import InputError
from headscope.heads import Geometry
from headscope.measure import bootstrap_mean
from headscope.recipes.inputs import ModelChoice
from headscope.results.overlap import PairOverlap
from headscope.runs import Run, carry_out, encode
from headscope.settings import MadeBy, Option, Settings

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


def compare_masks(config: CompareMasks, out: Path | None = None) -> dict[str, Any]:
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

    def compute(run: Run) -> dict[str, Any]:
        pairs = _pairs(masks)
        ways = {mask.name: mask.task for mask in masks}
        run.write_tensors(
            "masks.safetensors",
            {
                "weights": np.stack([mask.weights.values for mask in everyone]),
                "selected": np.stack([mask.heads.mask() for mask in everyone]).astype(np.uint8),
            },
        )
        return {
            "geometry": geometry.as_dict(),
            "key_value_heads": None if key_heads is None else list(key_heads),
            "masks": [_about(mask, False, key_heads) for mask in masks]
            + [_about(mask, True, key_heads) for mask in bases],
            "pairs": encode(pairs),
            "groups": encode(group_overlaps(pairs, ways, config.pivot)),
            "base": _base(masks, bases),
            "maps": {
                mask.name: [[_number(value) for value in row] for row in mask.open]
                for mask in everyone
            },
            "kept_by": _kept_by(masks, geometry),
            "always_dropped_groups": _always_dropped(masks, key_heads),
        }

    return carry_out(COMMAND, out, settings, inputs, compute, began)


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


def _about(mask: LearnedMask, base: bool, key_heads: Sequence[int] | None) -> dict[str, Any]:
    kept = mask.heads.mask().sum(axis=1).tolist()
    return {
        "name": mask.name,
        "place": mask.place,
        "model": mask.model,
        "task": mask.task,
        "start": mask.start,
        "base": base,
        "selected": len(mask.heads),
        "kept_share": len(mask.heads) / mask.geometry.total,
        "layers": [
            {"layer": layer, "kept": n, "share": n / heads if heads else None}
            for layer, (n, heads) in enumerate(zip(kept, mask.geometry.counts, strict=True))
        ],
        "groups": None
        if key_heads is None
        else {
            **asdict(dropped_groups(mask.heads, key_heads)),
            "kept_in_groups": kept_in_groups(mask.heads, key_heads),
        },
    }


def _base(masks: Sequence[LearnedMask], bases: Sequence[LearnedMask]) -> dict[str, Any] | None:
    """Each mask beside its base model's, and the means over tasks with intervals."""
    if not bases:
        return None
    rows = against(masks, bases)
    pairs = [
        {**asdict(pair), "task": mask.task, "a": mask.name, "b": base.name}
        for mask, base, pair in rows
    ]
    means = {
        name: bootstrap_mean([float(row[name]) for row in pairs]).record("mean")
        for name in ("jaccard", "expected", "expected_exact")
    }
    over = [float(row["jaccard"]) - float(row["expected_exact"]) for row in pairs]
    return {"pairs": pairs, "mean": means, "above_chance": bootstrap_mean(over).record("mean")}


def _kept_by(masks: Sequence[LearnedMask], geometry: Geometry) -> list[dict[str, Any]]:
    """For every head how many masks keep it, most first, ties by layer, then head."""
    counts = np.sum([mask.heads.mask() for mask in masks], axis=0)
    ranked = sorted(geometry.heads(), key=lambda head: -int(counts[head.layer, head.head]))
    return [
        {"layer": head.layer, "head": head.head, "masks": int(counts[head.layer, head.head])}
        for head in ranked
    ]


def _always_dropped(
    masks: Sequence[LearnedMask], key_heads: Sequence[int] | None
) -> list[dict[str, int]] | None:
    """Groups of which no mask keeps a head: what a task on unused keys would look like."""
    if key_heads is None:
        return None
    counts = [kept_in_groups(mask.heads, key_heads) for mask in masks]
    return [
        {"layer": layer, "group": group}
        for layer, groups in enumerate(counts[0])
        for group in range(len(groups))
        if all(kept[layer][group] == 0 for kept in counts)
    ]


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
