"""What people name to be compared: runs, saved scores, sets and gates, lists of heads."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from headscope.errors import InputError
from headscope.heads import (
    Amount,
    Gate,
    Geometry,
    GroupedGeometry,
    HeadScores,
    HeadSet,
    Rank,
    default_amount,
    read_scores,
    resolve_heads,
)
from headscope.heads.files import HeadsFile, read_heads_file, split_part
from headscope.heads.geometry import LIST
from headscope.heads.published import geometry_of, heads_of, unknown_geometry
from headscope.heads.resolve import MEAN
from headscope.heads.store import Origin, check_finished, held
from headscope.settings import Option

GEOMETRY = Option(
    "The model's layers, query heads and key-value heads a layer, such as 28x16 or 28x16:8, where "
    "no run or scores of all heads are named.",
    metavar="LAYERSxHEADS[:KV]",
    typed=str,
    read=GroupedGeometry.parse,
)


@dataclass(frozen=True)
class Artifact:
    """One thing to compare: scores of all heads, a set of heads, or both.

    `name` is what results call it, unlike any other in the comparison; `place` is where it was
    read from; `direction` such as `en-de`, where it belongs to a single one.
    """

    name: str
    place: str
    geometry: Geometry
    scores: HeadScores | None = None
    heads: HeadSet | None = None
    direction: str | None = None

    @property
    def origin(self) -> Origin:
        """What made it."""
        if self.heads is not None and self.heads.origin != Origin():
            return self.heads.origin
        return self.scores.origin if self.scores is not None else Origin()

    @property
    def digest(self) -> str:
        """SHA-256 of the geometry, heads and scores, with what is kept of each example: all that a
        comparison reads."""
        total = hashlib.sha256(repr(self.geometry.counts).encode())
        if self.scores is not None:
            scores = self.scores
            bounds = {"values": scores.values, "low": scores.low, "high": scores.high}
            for of, arrays in (("", bounds), ("extra", scores.extra), ("of", scores.statistics)):
                for name, array in sorted(arrays.items()):
                    if array is not None:
                        total.update(f"|{of} {name} {array.dtype} {array.shape}|".encode())
                        total.update(array.tobytes())
            total.update(f"|{scores.config.get('average')}".encode())
        heads = None if self.heads is None else ",".join(self.heads.keys)
        total.update(f"|{heads}|{self.origin.method}|{self.direction}".encode())
        return total.hexdigest()

    def top(
        self,
        k: Amount | None = None,
        threshold: float | None = None,
        rank: Rank = "above-chance",
    ) -> HeadSet:
        """The heads that are compared.

        A set without `k` is taken whole, with `k` its first k. Of scores the top `k` by `rank`
        (default 20 heads, or 15 % of them below 256), or with `threshold` all heads above it.
        Where there are both a set and scores, `k` and `threshold` take the scores.
        """
        if self.scores is not None and threshold is not None:
            return self.scores.select(threshold)
        if self.heads is not None and (k is None or self.scores is None):
            return self.heads if k is None else self.heads.top(k)
        if self.scores is None:
            raise InputError(f"{self.place}: holds neither scores nor heads; name what found heads")
        return self.scores.top(default_amount(self.geometry) if k is None else k, rank)


def read_artifacts(
    specs: Sequence[str],
    mean_only: bool = False,
    geometry: Geometry | GroupedGeometry | None = None,
) -> list[Artifact]:
    """What `specs` name, in that order, under names of their own.

    A spec is the folder of a finished run, a folder of saved scores, heads or a gate (the heads
    whose gate is not 1), a file of heads or scores (see `read_heads_file`), or a list such as
    `5.3,7.11`. A run of several directions gives one artifact a direction, with `mean_only` their
    mean alone; `RUN:en-de` picks one, `RUN:mean` the mean. Lists, and files without a score for
    every query head, do not say how many heads their model has: they take `geometry`, or that of
    the others. Raises `InputError` if a spec names nothing that can be compared, a list comes
    without any artifact that tells a geometry, or an artifact tells another than `geometry`.
    """
    items: list[Artifact | HeadsFile | str] = []
    for spec in specs:
        if LIST.fullmatch(spec):
            items.append(spec)
        elif split_part(spec)[0].is_file():
            file = read_heads_file(spec)
            items.append(_of_file(file) if geometry_of(file) else file)
        else:
            items += _read_folder(spec, mean_only)
    geometries = [(item.place, item.geometry) for item in items if isinstance(item, Artifact)]
    if geometry is not None:
        given = geometry.geometry if isinstance(geometry, GroupedGeometry) else geometry
        check_one_geometry(
            [("--geometry", given), *geometries], "correct --geometry or leave it out"
        )
    known = geometry or next((named_geometry for _, named_geometry in geometries), None)
    read: list[Artifact] = []
    for item in items:
        if isinstance(item, Artifact):
            read.append(item)
        elif isinstance(item, HeadsFile):
            read.append(_of_file(item, known))
        elif known is None:
            raise unknown_geometry(item)
        else:
            own = known.geometry if isinstance(known, GroupedGeometry) else known
            listed = resolve_heads(item, None, own)
            read.append(Artifact(item, item, own, heads=listed))
    return _with_own_names(read, by_direction=not mean_only)


def _of_file(file: HeadsFile, known: Geometry | GroupedGeometry | None = None) -> Artifact:
    path, part = split_part(file.place)
    name = f"{path.stem}#{part}" if part else path.stem
    named = heads_of(file, known)
    if isinstance(named, HeadScores):
        return Artifact(name, file.place, named.geometry, named, None, _direction(named))
    return Artifact(name, file.place, named.geometry, heads=named)


def check_one_geometry(
    models: Iterable[tuple[str, Geometry]],
    hint: str = "heads can be compared between models of one geometry, shares of classes between "
    "any: use `headscope compare classes`",
) -> Geometry:
    """The geometry that all models share, told by place; InputError naming two that differ."""
    (first, geometry), *others = models
    for place, shape in others:
        if shape != geometry:
            raise InputError(
                f"{first} is of a model of {geometry}, but {place} of one of {shape}; {hint}"
            )
    return geometry


def _read_folder(spec: str, mean_only: bool) -> list[Artifact]:
    path, wanted = Path(spec), None
    if not path.exists() and ":" in spec:
        place, _, wanted = spec.rpartition(":")
        path = Path(place)
    if not path.is_dir():
        raise InputError(
            f"{spec!r} names nothing to compare: it is neither a folder nor a file that "
            "exists nor a list such as 5.3,7.11"
        )
    check_finished(path)
    name = path.resolve().name
    scores = read_scores(path)
    if wanted is not None:
        return [_picked(path, name, scores, wanted)]
    several = [direction for direction in scores if direction != MEAN]
    if len(scores) > 1 and several:
        if mean_only:
            return [replace(_picked(path, name, scores, MEAN), name=name)]
        return [_picked(path, name, scores, direction) for direction in several]
    heads = saved_heads(path)
    if scores:
        (only,) = scores.values()
        return [Artifact(name, str(path), only.geometry, only, heads, _direction(only))]
    if heads is None:
        raise InputError(
            f"{path}: holds no scores, no heads and no gate; name a run that found heads"
        )
    return [Artifact(name, str(path), heads.geometry, heads=heads)]


def _picked(path: Path, name: str, scores: dict[str, HeadScores], wanted: str) -> Artifact:
    part = scores.get(wanted)
    if part is None and len(scores) == 1 and _direction(scores.get(MEAN)) == wanted:
        part = scores[MEAN]
    if part is None:
        known = ", ".join(_direction(s) or n for n, s in scores.items()) or "none"
        raise InputError(f"{path}: holds no scores named {wanted!r}; known: {known}")
    shown = MEAN if wanted == MEAN and len(scores) > 1 else _direction(part) or wanted
    direction = None if shown == MEAN else shown
    # Written as on the command line.
    return Artifact(f"{name}:{wanted}", f"{path}:{wanted}", part.geometry, part, None, direction)


def saved_heads(path: Path) -> HeadSet | None:
    """The set that a run saved, or else the heads of its gate that are not 1."""
    if (place := held(path, "heads")) is not None:
        return HeadSet.from_pretrained(place)
    if (place := held(path, "gate")) is None:
        return None
    gate = Gate.from_pretrained(place)
    return replace(gate.changed_heads(), origin=gate.origin)


def _direction(scores: HeadScores | None) -> str | None:
    pair = None if scores is None else scores.config.get("pair")
    return pair if isinstance(pair, str) else None


def _with_own_names(artifacts: Sequence[Artifact], by_direction: bool) -> list[Artifact]:
    """The shortest names that differ: a direction alone, a folder, its place, then a number."""
    candidates = [
        [*([item.direction or item.name] if by_direction else []), item.name, item.place]
        for item in artifacts
    ]
    levels = range(len(candidates[0]) if candidates else 0)
    own = (n for n in levels if len({names[n] for names in candidates}) == len(candidates))
    level = next(own, -1)
    named: list[Artifact] = []
    taken: dict[str, int] = {}
    for artifact, names in zip(artifacts, candidates, strict=True):
        name = names[level]
        taken[name] = taken.get(name, 0) + 1
        numbered = name if taken[name] == 1 else f"{name} ({taken[name]})"
        named.append(replace(artifact, name=numbered))
    return named
