"""Learned masks beside each other, in a run folder."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import isnan
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import numpy as np

from headscope.compare.artifacts import check_one_geometry
from headscope.compare.masks_similarity import (
    LearnedMask,
    against,
    dropped_groups,
    kept_in_groups,
    read_masks,
)
from headscope.compare.overlap_sets import group_overlaps, overlaps
from headscope.errors import InputError
from headscope.estimates import Mean, known
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
)
from headscope.results.overlap import PairOverlap
from headscope.runs import Run, carry_out
from headscope.settings import MadeBy, Option, Settings
from headscope.shown.blocks import (
    Block,
    Cell,
    Content,
    Forest,
    Gap,
    HeadMap,
    HeadMaps,
    HeadSets,
    Heatmap,
    Lines,
    NotMeasured,
    Section,
    Series,
    Shown,
    Table,
    p_cell,
    table_of,
)
from headscope.shown.words import arrow, confidence, count, fixed
from headscope.studies.models import ModelChoice
from headscope.studies.shows import alike, overlap_blocks
from headscope.studies.study import Study

COMMAND = "compare masks"
#: Masks that get a line each over layers; of more, the mean and the range are drawn.
LINES = 6


def _model(
    model: Annotated[
        str | None,
        Option(
            "A model of that geometry, to learn which heads share keys where runs do not say.",
            metavar="MODEL",
            held="model",
        ),
    ] = None,
) -> ModelChoice | None:
    return None if model is None else ModelChoice(model)


@dataclass(frozen=True)
class CompareMasks(Settings):
    """Compare learned masks: shared heads and chance, maps, layers, groups that share keys."""

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
    geometry, everyone = masks[0].geometry, [*masks, *bases]
    key_heads = _key_heads(config, everyone, geometry)
    inputs = {f"{place} {mask.name}": mask.digest for place, mask in enumerate(everyone)}
    settings = {
        "masks": [mask.name for mask in masks],
        "base": [mask.name for mask in bases],
        "key_value_heads": key_heads,
        "pivot": config.pivot,
    }

    def compute(run: Run) -> MasksResult:
        ways = {mask.name: mask.task for mask in masks}
        sets = {mask.name: mask.heads for mask in masks}
        pairs = overlaps(sets, {mask.name: mask.weights for mask in masks}, ways)
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
            removed=tuple(overlaps({mask.name: mask.heads.complement() for mask in masks})),
        )

    return carry_out(COMMAND, out, settings, inputs, compute, began, kind=MasksResult)


def _read(config: CompareMasks) -> tuple[list[LearnedMask], list[LearnedMask]]:
    """The masks and the base model's, of one geometry, all under names of their own."""
    masks = read_masks(config.masks)
    bases = read_masks(config.base) if config.base else []
    if len(masks) + len(bases) < 2:
        raise InputError("there is only one mask; name a second run, or a --base run beside it")
    check_one_geometry(
        ((mask.place, mask.geometry) for mask in [*masks, *bases]),
        "masks are compared between models of one geometry",
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
        lm = config.model.load_for()
        if lm.geometry != geometry:
            raise InputError(
                f"--model {config.model.model} has {lm.geometry}, but the masks are of a model of "
                f"{geometry}; name the model that they were learned for"
            )
        return lm.key_value_heads
    stated = {mask.key_heads for mask in masks if mask.key_heads is not None}
    if len(stated) > 1:
        raise InputError(
            "the masks are of models whose query heads share keys in different groups; compare "
            "those of one model"
        )
    return stated.pop() if stated else None


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


def _mean(values: Sequence[float]) -> Mean:
    mean = bootstrap_mean(values)
    return Mean(mean.value, mean.low, mean.high)


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


def _show(result: MasksResult, run: Path) -> Shown:
    own, geometry, base = result.own, Geometry.from_dict(result.geometry), result.base
    always = {
        "kept by every mask": tuple(
            (head.layer, head.head) for head in result.kept_by if head.masks == len(own)
        )
    }
    figures: list[Block] = [_beside_base(base)] if base is not None else []
    sections = [Section("Masks", [_masks(result, geometry)], brief=True)]
    if base is not None:
        sections.append(Section("Masks of the base model", [_base_pairs(base)], brief=True))
    if result.pairs:
        shared, *tables = overlap_blocks(result.pairs, result.groups)
        figures.append(shared)
        sections.append(Section("Every two masks", [*figures[1:], *tables], brief=True))
    if result.removed:
        sections.append(Section("What masks remove", [_removed(result.removed)], brief=True))
    sections += [
        Section(
            "Where heads are kept", [*_maps(result), _shares(own), HeadSets("Shared heads", always)]
        ),
        Section(
            "Groups of heads that share keys and values",
            [_groups(result, geometry)],
            brief=result.key_value_heads is None,
        ),
    ]
    return Shown(
        "Learned masks",
        "Do masks keep the same heads, more than random masks of their sizes?",
        _finding(result),
        "Each mask is one training run; another seed can keep other heads:",
        "headscope find mask --seed 1",
        [],
        [
            ("masks", str(len(own))),
            ("heads", f"{geometry.total} in {count(geometry.layers, 'layer')}"),
            *_removed_alike(result.removed),
        ],
        sections,
        figures[0],
    )


def _finding(result: MasksResult) -> list[str]:
    pairs, base = result.pairs, result.base
    if base is None:
        return [
            alike(pairs, "masks"),
            f"Jaccard index {fixed(fmean(pair.jaccard for pair in pairs), 2)} on average; random "
            f"masks of these sizes {fixed(fmean(pair.expected_exact for pair in pairs), 2)}.",
        ]
    above = base.above_chance
    shared = "share" if above.low > 0 else "are not shown to share"
    return [
        f"Masks {shared} more heads with the base model\u2019s masks than random masks.",
        f"Jaccard index {fixed(base.mean['jaccard'].mean, 2)} on average, "
        f"{fixed(above.mean, 2)} above random masks "
        f"({confidence(above.low, above.high, 2)}; {count(len(base.pairs), 'task')}).",
    ]


def _removed_alike(pairs: Sequence[PairOverlap]) -> Iterator[tuple[str, str]]:
    """How far masks agree by the heads that they remove: most keep most heads, also by chance."""
    if pairs:
        alike = fixed(fmean(pair.jaccard for pair in pairs), 2)
        chance = fixed(fmean(pair.expected_exact for pair in pairs), 2)
        yield "removed heads", f"Jaccard index {alike}, random {chance}"


def _removed(pairs: Sequence[PairOverlap]) -> Table:
    return table_of(
        "The heads that two masks remove, A and B",
        ((f"{arrow(pair.a)} and {arrow(pair.b)}", pair) for pair in pairs),
        {
            "Jaccard": lambda pair: pair.jaccard,
            "by chance": lambda pair: pair.expected_exact,
            "by chance within layers": lambda pair: pair.expected_within_layers,
            "removed by both": lambda pair: pair.intersection,
            "by A": lambda pair: pair.size_a,
            "by B": lambda pair: pair.size_b,
        },
        "Masks that keep most heads keep the same ones by chance, too; p is that of the kept heads",
    )


def _beside_base(base: BaseComparison) -> Forest:
    """What each mask shares with the base model's of its task beyond random masks."""
    above = base.above_chance
    ends = () if isnan(above.low) else (above.low, above.high)
    rows = [
        (f"mean of {len(base.pairs)}", (Gap("random", above.mean, *ends),)),
        *(
            (arrow(pair.task or pair.a), (Gap("random", pair.jaccard - pair.expected_exact),))
            for pair in base.pairs
        ),
    ]
    return Forest(
        "Heads shared with the base model\u2019s mask: Jaccard index minus that of random masks",
        tuple(rows if len(base.pairs) > 1 else rows[1:]),
        "Difference in the Jaccard index",
        ("fewer shared", "more shared"),
        2,
        over="tasks",
    )


def _masks(result: MasksResult, geometry: Geometry) -> Table:
    known = _grouped(result, geometry)
    columns: dict[str, Callable[[Any], Content]] = {
        "heads kept": lambda mask: mask.selected,
        "share kept": lambda mask: Cell.share(mask.kept_share),
    }
    if known:
        columns |= {
            "groups dropped whole": lambda mask: mask.groups.dropped,
            "by chance": lambda mask: mask.groups.expected,
            "by chance, layer by layer": lambda mask: mask.groups.expected_by_layer,
            "p": lambda mask: p_cell(mask.groups.p_value),
            "groups kept whole": lambda mask: mask.groups.kept,
        }
    note = "Of random masks of the same size, p drop at least as many groups whole" if known else ""
    return table_of("Masks", ((arrow(mask.name), mask) for mask in result.masks), columns, note)


def _grouped(result: MasksResult, geometry: Geometry) -> bool:
    """Whether some heads share keys, and it is known which."""
    key_heads = result.key_value_heads
    return key_heads is not None and sum(key_heads) < geometry.total


def _base_pairs(base: BaseComparison) -> Table:
    return table_of(
        "Each mask and the base model's of its task",
        ((arrow(pair.task or pair.a), pair) for pair in base.pairs),
        {
            "heads kept": lambda pair: pair.size_a,
            "by the base model": lambda pair: pair.size_b,
            "recall": lambda pair: pair.recall,
            "Jaccard": lambda pair: pair.jaccard,
            "by chance": lambda pair: pair.expected_exact,
            "by chance, as a ratio": lambda pair: pair.expected,
            "p": lambda pair: p_cell(pair.p_value),
        },
        "Recall: the share of the base model's heads that the mask keeps too",
    )


def _maps(result: MasksResult) -> list[HeadMaps]:
    made = []
    for title, base in (("Weights of the masks", False), ("Weights of the base model's", True)):
        maps = tuple(
            HeadMap(mask.name, result.maps[mask.name]) for mask in result.masks if mask.base is base
        )
        if maps:
            made.append(
                HeadMaps(
                    title,
                    maps,
                    "\u03c3(M)",
                    high=1.0,
                    digits=2,
                    note="A head is kept where its weight \u03c3(M) is 0.5 or above",
                    tick=(0.5, "kept"),
                )
            )
    return made


def _shares(own: Sequence[ComparedMask]) -> Lines:
    by_mask = {
        arrow(mask.name): {
            float(row.layer): row.share for row in mask.layers if row.share is not None
        }
        for mask in own
    }
    if len(own) <= LINES:
        series = [Series(name, tuple(shares.items())) for name, shares in by_mask.items()]
    else:
        layers = {
            layer: [shares[layer] for shares in by_mask.values()]
            for layer in next(iter(by_mask.values()))
        }
        series = [
            Series(
                f"mean of {len(own)} masks",
                tuple((layer, fmean(shares)) for layer, shares in layers.items()),
                tuple(map(min, layers.values())),
                tuple(map(max, layers.values())),
            )
        ]
    note = "Random masks keep the same share in every layer on average"
    return Lines("Share of each layer's heads that a mask keeps", tuple(series), "layer",
                 "share of heads kept", note=note, band="the range over masks")  # fmt: skip


def _groups(result: MasksResult, geometry: Geometry) -> Heatmap | NotMeasured:
    key_heads, always = result.key_value_heads, result.always_dropped_groups
    title = "Groups of heads that share keys and values"
    if key_heads is None or always is None:
        return NotMeasured(title, "the runs do not say which query heads share keys; add --model")
    if not _grouped(result, geometry):
        return NotMeasured(title, "there are none, every query head has its own")
    own = [mask.groups.kept_in_groups for mask in result.own if mask.groups is not None]
    columns = range(max(key_heads))
    values = tuple(
        tuple(fmean(kept[layer][group] for kept in own) if group < groups else None
              for group in columns)
        for layer, groups in enumerate(key_heads)
    )  # fmt: skip
    return Heatmap(
        "Heads kept in each group, mean over masks",
        tuple(map(str, range(len(key_heads)))),
        tuple(map(str, columns)),
        values,
        "heads",
        "layer",
        "group",
        low=0.0,
        high=max(heads / groups for heads, groups in zip(geometry.counts, key_heads, strict=True)),
        digits=1,
        note=f"{count(len(always), 'group')} of {sum(key_heads)} dropped whole by every mask",
    )


command = Study(
    CompareMasks,
    compare_masks,
    result=MasksResult,
    show=_show,
    usage="runs/plural runs/past --base runs/plural",
)
