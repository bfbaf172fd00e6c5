"""What several methods say about the heads of one model, head by head."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from headscope.compare.artifacts import Artifact, check_one_geometry, saved_heads
from headscope.errors import InputError
from headscope.heads import (
    Amount,
    Geometry,
    Head,
    HeadSet,
    Rank,
    read_scores,
)
from headscope.heads.adaptation import read_object
from headscope.heads.resolve import MEAN
from headscope.heads.store import Origin, check_finished, kind_of
from headscope.results.methods import Agreement, HeadVerdicts, Verdict

#: Of runs with several parts: what becomes a column. `parts`: the parts measure different things;
#: `both`: their mean and each of them. Of any other method the mean alone.
_PARTS = {"patching": "parts", "lahis": "both"}

#: The method of a run whose command is called otherwise.
_METHODS = {"atlas": "translation-score", "verify heads": "single-removal"}

#: Methods whose heads somebody else chose: how far those agree with another method is no finding.
_OF_GIVEN_HEADS = ("soft-gate", "key-tokens")


@dataclass(frozen=True)
class MethodColumn:
    """One thing that a method says of every head: a score, a set of its own, or both.

    `name` is unlike any other column's; `method` the method's name, or the run's where there are
    several runs of one method; `weights` a digest of the model's weights, where it is noted;
    `folder` the name of the run's.
    """

    name: str
    method: str
    artifact: Artifact
    weights: str | None
    signature: str
    folder: str

    @property
    def own(self) -> HeadSet | None:
        """The heads that the method itself chose (a mask, the specific heads of a language).

        None: the top of its scores is taken.
        """
        return self.artifact.heads

    def selected(self, k: Amount, rank: Rank = "above-chance") -> HeadSet:
        """The heads that the method selects: its own set, else the top `k` of its scores."""
        if self.own is not None:
            return self.own
        assert self.artifact.scores is not None  # `read_methods` makes none without either
        return self.artifact.scores.top(k, rank)


def read_methods(
    folders: Sequence[str], every_part: bool = False
) -> tuple[list[MethodColumn], Geometry]:
    """The columns of finished runs (or saved artifacts) of one model, in the order given.

    Of a run of several directions the mean is taken, of one with several languages or effects also
    or instead each of them; with `every_part` of any run all parts. Raises `InputError` for fewer
    than two methods, an unfinished run, a folder without heads, or another geometry or other
    weights than the first run's.
    """
    runs = [_read(Path(folder), every_part) for folder in folders]
    if len(runs) < 2:
        raise InputError("a comparison of methods needs at least two runs; name another one")
    firsts = [columns[0] for columns in runs]
    geometry = check_one_geometry(
        ((column.artifact.place, column.artifact.geometry) for column in firsts),
        "methods are compared on one model",
    )
    for first in firsts:
        other = next((c for cs in runs for c in cs if c.weights not in (None, first.weights)), None)
        if first.weights is not None and other is not None:
            raise InputError(
                f"{first.artifact.place} was found in weights {first.weights[:12]}…, but "
                f"{other.artifact.place} in {str(other.weights)[:12]}…; methods are compared on "
                "one model: run both on the same"
            )
    return _with_own_names(runs), geometry


def head_rows(
    columns: Sequence[MethodColumn], sets: Sequence[HeadSet], rank: Rank = "above-chance"
) -> list[HeadVerdicts]:
    """Every head: those selected by most methods first, then by layer and head.

    `rank`: what translation scores are ranked by.
    """
    geometry = columns[0].artifact.geometry
    ranks = [_ranks(column, rank) for column in columns]
    rows = []
    for head in geometry.heads():
        verdicts = {}
        chosen: dict[str, None] = {}
        for column, selected, places in zip(columns, sets, ranks, strict=True):
            scores = column.artifact.scores
            score = None if scores is None else scores[head]
            verdicts[column.name] = Verdict(score, places.get(head), head in selected)
            if head in selected:
                chosen[column.method] = None
        rows.append(HeadVerdicts(head.layer, head.head, tuple(chosen), verdicts))
    return sorted(rows, key=lambda row: (-len(row.selected_by), row.place))


def agreement(columns: Sequence[MethodColumn], sets: Sequence[HeadSet]) -> list[Agreement]:
    """How many heads 0, 1, 2 … methods select, beside independent random sets of their sizes."""
    geometry = columns[0].artifact.geometry
    unions = selections(columns, sets)
    counts = np.zeros(len(unions) + 1, dtype=np.int64)
    for head in geometry.heads():
        counts[sum(head in union for union in unions.values())] += 1
    chances = np.array([1.0])
    for union in unions.values():
        share = len(union) / geometry.total
        chances = np.convolve(chances, [1 - share, share])
    return [
        Agreement(number, int(count), float(chance) * geometry.total)
        for number, (count, chance) in enumerate(zip(counts, chances, strict=True))
    ]


def selections(columns: Sequence[MethodColumn], sets: Sequence[HeadSet]) -> dict[str, HeadSet]:
    """What each method selects in any of its columns, by method."""
    union: dict[str, HeadSet] = {}
    for column, heads in zip(columns, sets, strict=True):
        union[column.method] = union[column.method] | heads if column.method in union else heads
    return union


def _read(path: Path, every_part: bool) -> list[MethodColumn]:
    """The columns of one folder; their names are not yet made unlike others'."""
    if not path.is_dir():
        raise InputError(f"{path}: is no folder; name the folder of a finished run")
    check_finished(path)
    run = read_object(path / "run.json")
    provenance = read_object(path / "provenance.json")
    command = str(run.get("command") or "")
    name = path.resolve().name
    scores = read_scores(path)
    own = saved_heads(path)
    # A folder of saved scores or heads alone says itself what made them, not by its name.
    saved = next((part.origin for part in (scores.get(MEAN), own) if part is not None), Origin())
    method = _METHODS.get(command) or command.removeprefix("find ") or saved.method or name
    if method in _OF_GIVEN_HEADS:
        raise InputError(
            f"{path}: {method} looks at heads that were given to it and says nothing of the "
            "others; name the run that found them"
        )
    weights = provenance.get("weights")
    signature = str(run.get("signature") or "")
    columns = []

    def add(label: str, part: str | None, chosen: HeadSet | None) -> None:
        ranked = scores.get(part or MEAN)
        geometry = ranked.geometry if ranked is not None else chosen.geometry if chosen else None
        if geometry is None:
            raise InputError(
                f"{path}: holds no scores, no heads and no gate; name a run that found heads"
            )
        noted = weights
        for origin in (ranked, chosen):
            noted = noted or (None if origin is None else origin.origin.provenance.get("weights"))
        place = str(path) if part is None else f"{path}:{part}"
        artifact = Artifact(label, place, geometry, ranked, chosen)
        columns.append(MethodColumn(label, method, artifact, noted, signature, name))

    parts = [part for part in scores if part != MEAN]
    way = "both" if every_part else _PARTS.get(method, "mean")
    if not parts or way != "parts":
        add(method, None, own if not parts else None)
    if parts and way != "mean":
        for part in parts:
            specific = path / "specific" / part
            has = kind_of(specific) == "heads"
            add(f"{method} {part}", part, HeadSet.from_pretrained(specific) if has else None)
    return columns


def _with_own_names(runs: Sequence[Sequence[MethodColumn]]) -> list[MethodColumn]:
    """Columns with the run's folder in their names where two runs are of one method."""
    methods = [columns[0].method for columns in runs]
    named: list[MethodColumn] = []
    taken: dict[str, int] = {}
    for columns in runs:
        method = columns[0].method
        own = method
        if methods.count(method) > 1:
            own = f"{method} ({columns[0].folder})"
            taken[own] = taken.get(own, 0) + 1
            if taken[own] > 1:
                own = f"{own} {taken[own]}"
        for column in columns:
            name = own + column.name.removeprefix(method)
            artifact = replace(column.artifact, name=name)
            named.append(replace(column, name=name, method=own, artifact=artifact))
    return named


def _ranks(column: MethodColumn, by: Rank) -> dict[Head, int]:
    """The rank of every head; equal ones share the lowest rank."""
    scores = column.artifact.scores
    if scores is None:
        return {}
    ranks: dict[Head, int] = {}
    last, rank = None, 0
    for place, (head, score) in enumerate(scores.ranked(by), 1):
        if score != last:
            last, rank = score, place
        ranks[head] = rank
    return ranks
