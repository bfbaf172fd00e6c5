"""Learned masks beside each other: their heads, their layers, and the key groups they drop.

After Heads Up! (ICML 2025): tables 5 and 37 (how similar the masks of an instruction model and its
base model are, beside the expectation for random masks, equation 4), figure 7 (maps over
translation directions) and what its section C.2 asks of that figure: are groups of query heads that
share keys and values dropped as a whole?
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscope.compare.artifacts import Artifact, read_artifacts
from headscope.compare.overlap_sets import overlaps
from headscope.errors import InputError
from headscope.heads import Geometry, HeadScores, HeadSet, check_geometry
from headscope.heads.adaptation import read_object
from headscope.heads.store import with_details
from headscope.results.masks import KeyGroups
from headscope.results.overlap import PairOverlap


@dataclass(frozen=True, eq=False)
class LearnedMask:
    """A learned mask as a run of `find mask` left it, in the folder `place`.

    Attributes:
        start: `positive` or `negative`, the sign of the weights at the beginning.
        heads: the heads it keeps, by falling weight.
        weights: M, a weight for every head; it keeps a head where σ(M) ≥ 0.5.
        key_heads: heads of keys and values of each layer, or None where the run does not say.
        digest: of geometry, weights and heads.
    """

    name: str
    place: str
    task: str | None
    start: str | None
    heads: HeadSet
    weights: HeadScores
    model: str | None
    key_heads: tuple[int, ...] | None
    digest: str

    @property
    def geometry(self) -> Geometry:
        """The geometry of the model."""
        return self.heads.geometry

    @property
    def open(self) -> NDArray[np.float64]:
        """σ(M), float64 (L, W); NaN where the model has no head."""
        return np.asarray(1 / (1 + np.exp(-self.weights.values)), dtype=np.float64)


def read_masks(specs: Sequence[str]) -> list[LearnedMask]:
    """The masks of finished runs of `find mask`, under names of their own.

    A mask is called by its task where no other has the same one, else by its folder. Raises
    `InputError` if a spec is no finished run of a learned mask.
    """
    artifacts = read_artifacts(specs, mean_only=True)
    read = [_read(artifact) for artifact in artifacts]
    tasks = [mask.task for mask in read]
    if len(set(tasks)) == len(tasks):
        names = [task or mask.name for task, mask in zip(tasks, read, strict=True)]
        return [replace(mask, name=name) for mask, name in zip(read, names, strict=True)]
    return read


def _read(artifact: Artifact) -> LearnedMask:
    result = with_details(read_object(Path(artifact.place) / "result.json"))
    if artifact.scores is None or artifact.heads is None or "selected" not in result:
        raise InputError(
            f"{artifact.place}: holds no learned mask; name runs of `headscope find mask` (sets of "
            "heads are compared by `headscope compare overlap`)"
        )
    check_geometry(artifact.heads, artifact.scores.geometry, artifact.place)
    named = result.get("model")
    model = named if isinstance(named, Mapping) else {"name": named}
    groups = model.get("key_value_heads")
    known = isinstance(groups, list) and all(isinstance(group, int) for group in groups)
    return LearnedMask(
        artifact.name,
        artifact.place,
        _text(result.get("task")),
        _text(result.get("start")),
        artifact.heads,
        artifact.scores,
        _text(model.get("name")),
        tuple(groups) if isinstance(groups, list) and known else None,
        artifact.digest,
    )


def _text(value: Any) -> str | None:
    """A name, or the name of what is told about."""
    if isinstance(value, Mapping):
        value = value.get("name")
    return value if isinstance(value, str) else None


def against(
    masks: Sequence[LearnedMask], bases: Sequence[LearnedMask]
) -> list[tuple[LearnedMask, LearnedMask, PairOverlap]]:
    """Each mask beside the base model's mask of the same task (Heads Up!, table 37).

    One single base is the reference of every mask, whatever its task. Raises `InputError` if a mask
    has no base of its task, or several.
    """
    rows = []
    for mask in masks:
        same = [base for base in bases if base.task == mask.task]
        if len(bases) == 1:
            same = list(bases)
        if len(same) != 1:
            known = ", ".join(sorted({base.task or base.name for base in bases}))
            raise InputError(
                f"{mask.place}: was trained on the task {mask.task!r}, for which "
                f"{len(same) or 'no'} --base runs are given (their tasks: {known}); give one for "
                "each task, or a single one for all"
            )
        pair = overlaps(
            {"a": mask.heads, "b": same[0].heads}, {"a": mask.weights, "b": same[0].weights}
        )[0]
        rows.append((mask, same[0], pair))
    return rows


def kept_in_groups(mask: HeadSet, key_heads: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """For each layer and each head of keys and values, how many of its query heads are kept.

    Raises `InputError` if the groups are not those of this geometry.
    """
    sizes = _sizes(mask.geometry, key_heads)
    kept = mask.mask()
    return tuple(
        tuple(int(kept[layer, start : start + size].sum()) for start in range(0, heads, size or 1))
        for layer, (heads, size) in enumerate(zip(mask.geometry.counts, sizes, strict=True))
    )


def dropped_groups(mask: HeadSet, key_heads: Sequence[int]) -> KeyGroups:
    """Count groups without a kept head, and what random masks of this size would drop.

    All three figures of chance are exact. With N heads of which K are kept, a given group of s is
    dropped with probability C(N − s, K) / C(N, K); the p-value sums over how many groups can be
    empty together (inclusion and exclusion).
    """
    geometry = mask.geometry
    sizes = _sizes(geometry, key_heads)
    counts = kept_in_groups(mask, key_heads)
    groups = [(n, size) for row, size in zip(counts, sizes, strict=True) for n in row]
    dropped = sum(n == 0 for n, _ in groups)
    whole = [size for _, size in groups]
    by_layer = sum(
        len(row) * _empty(heads, sum(row), size)
        for row, heads, size in zip(counts, geometry.counts, sizes, strict=True)
        if row
    )
    return KeyGroups(
        len(groups),
        dropped,
        sum(n == size for n, size in groups),
        sum(_empty(geometry.total, len(mask), size) for size in whole),
        by_layer,
        _at_least(whole, len(mask), dropped),
        counts,
    )


def _empty(total: int, kept: int, size: int) -> float:
    return comb(total - size, kept) / comb(total, kept)


def _at_least(sizes: Sequence[int], kept: int, dropped: int) -> float:
    """Probability that `dropped` or more groups hold none of `kept` heads drawn from all."""
    if dropped == 0:
        return 1.0
    total = sum(sizes)
    # How many ways there are to name j groups that hold t heads together.
    ways = {(0, 0): 1}
    for size, number in sorted(Counter(sizes).items()):
        more: dict[tuple[int, int], int] = {}
        for (j, t), count in ways.items():
            for i in range(number + 1):
                if total - t - i * size >= kept:
                    at = (j + i, t + i * size)
                    more[at] = more.get(at, 0) + count * comb(number, i)
        ways = more
    favourable = 0
    for (j, t), count in ways.items():
        if j >= dropped:
            sign = -1 if (j - dropped) % 2 else 1
            favourable += sign * comb(j - 1, dropped - 1) * count * comb(total - t, kept)
    return favourable / comb(total, kept)


def _sizes(geometry: Geometry, key_heads: Sequence[int]) -> list[int]:
    """Query heads of a group, by layer; 0 where a layer has no heads."""
    fitting = len(key_heads) == geometry.layers and all(
        (not heads and not groups) or (groups and heads % groups == 0)
        for heads, groups in zip(geometry.counts, key_heads, strict=False)
    )
    if not fitting:
        raise InputError(
            f"key heads {list(key_heads)} do not belong to a model of {geometry}; name the model "
            "that the masks were learned for"
        )
    pairs = zip(geometry.counts, key_heads, strict=True)
    return [heads // groups if groups else 0 for heads, groups in pairs]
