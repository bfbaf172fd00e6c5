"""What the report of `verify removal` reads: a finished run folder as frozen values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headscope.heads import Head
from headscope.report.records.atlas import Effect
from headscope.report.records.outputs import (
    BASELINE,
    MATCHED,
    RANDOM,
    TOP,
    Sentence,
    read_sentences,
)
from headscope.report.words import MEAN
from headscope.runs.reading import naming, read_object, read_result

__all__ = ["MEASURES", "Case", "Condition", "Gap", "Part", "RemovalRecord", "read_removal"]

ZERO = "zero"
MEASURES = ("chrf", "bleu", "off_target", "source_copy", "empty", "comet", "bleurt")


@dataclass(frozen=True)
class Gap:
    """A difference of chrF++ with the interval from resampling sentences, where computed."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Condition:
    """What some heads at some strength do: measures (None: not computed) and the tests of `top`.

    `tests` holds the p-values by their names in the result; `against` the chrF++ difference of
    `top` to the mean of the draws of each kind; `distinct` how many draws of each kind are
    different sets of heads.
    """

    kind: str
    k: int
    gate: float
    draw: int | None
    heads: tuple[str, ...]
    filled_up: int
    measures: Mapping[str, float | None]
    change: Gap | None
    tests: Mapping[str, float]
    against: Mapping[str, Gap]
    distinct: Mapping[str, int]

    @property
    def chrf(self) -> float | None:
        return self.measures["chrf"]


@dataclass(frozen=True)
class Case:
    """The chosen heads at one size and strength, and the random draws beside them."""

    top: Condition
    random: tuple[Condition, ...]
    matched: tuple[Condition, ...]

    def draws(self, kind: str) -> tuple[Condition, ...]:
        """The draws of one kind."""
        return self.matched if kind == MATCHED else self.random

    def counted(self, kind: str) -> int:
        """The draws that the p-value over draws counts: of layer-matched ones each set once."""
        draws = len(self.draws(kind))
        return self.top.distinct.get(kind, draws) if kind == MATCHED else draws


@dataclass(frozen=True)
class Part:
    """One direction, or the mean over all: the model as it is and every condition."""

    sentences: int | None
    baseline: Mapping[str, float | None]
    interval: tuple[float, float] | None
    conditions: tuple[Condition, ...]

    def case(self, k: int, gate: float) -> Case | None:
        """The conditions of one size and strength; None if the chosen heads are not among them."""
        found: dict[str, list[Condition]] = {TOP: [], RANDOM: [], MATCHED: []}
        for one in self.conditions:
            if one.k == k and one.gate == gate:
                found[one.kind].append(one)
        if not found[TOP]:
            return None
        return Case(found[TOP][0], tuple(found[RANDOM]), tuple(found[MATCHED]))

    def effect(self, k: int, gate: float) -> Effect | None:
        """chrF++ with and without, where all of it has been computed."""
        case, baseline = self.case(k, gate), self.baseline["chrf"]
        if case is None or baseline is None or case.top.chrf is None or not case.random:
            return None
        drawn = [[one.chrf for one in draws] for draws in (case.random, case.matched)]
        random, matched = (tuple(v for v in values if v is not None) for values in drawn)
        return Effect(baseline, case.top.chrf, random, matched) if random else None


@dataclass(frozen=True)
class RemovalRecord:
    """A run of `verify removal`. `mean` is over all directions, the only one if there is one.

    The page speaks of the first kind of ablation; `kinds` holds the mean of each.
    """

    path: Path
    result: Mapping[str, Any]
    provenance: Mapping[str, Any]
    k: tuple[int, ...]
    gates: tuple[float, ...]
    mean: Part
    kinds: Mapping[str, Part]
    directions: Mapping[str, Part]
    heads: tuple[str, ...]
    sentences: tuple[Sentence, ...]

    @property
    def main(self) -> tuple[int, float]:
        """The size and strength that the page speaks of: the largest k at its first gate."""
        return max(self.k), self.gates[0]

    @property
    def case(self) -> Case:
        case = self.mean.case(*self.main)
        if case is None:  # checked when the record was read
            raise KeyError("top")
        return case

    @property
    def measures(self) -> tuple[str, ...]:
        """What was measured: `text`, `loss`, or both."""
        return tuple(self.result.get("measures") or ("text",))

    @property
    def parts(self) -> dict[str, Part]:
        """The mean, where there are several directions, and every direction."""
        several = {MEAN: self.mean} if len(self.directions) > 1 else {}
        return {**several, **self.directions}


def read_removal(path: Path) -> RemovalRecord:
    """Read a finished run; InputError if the folder holds none of this kind or is damaged."""
    result = read_result(path)
    provenance = read_object(path / "provenance.json")
    with naming(path / "result.json", "a removal"):
        k = tuple(int(number) for number in result["k"])
        gates = tuple(float(number) for number in result["gates"])
        first = str(result.get("ablate") or ZERO)
        kinds = dict.fromkeys([first, *(_ablate(one, first) for one in result["conditions"])])
        parts = {ablate: _part(result, ablate, first) for ablate in kinds}
        mean = parts[first]
        record = RemovalRecord(
            path=path,
            result=result,
            provenance=provenance,
            k=k,
            gates=gates,
            mean=mean,
            kinds=parts,
            directions={
                name: _part(part, first, first) for name, part in result["directions"].items()
            },
            heads=tuple(str(Head.parse(str(head))) for head in result["heads"]),
            sentences=(),
        )
        largest, gate = record.main
        if mean.case(largest, gate) is None:
            raise KeyError("top")
        places = {BASELINE: 0}
        for place, entry in enumerate(_texts(result), 1):
            one = _condition(entry)
            if (one.k, one.gate, _ablate(entry, first)) == (largest, gate, first):
                places.setdefault(one.kind, place)
    sentences = read_sentences(path, largest, gate, places, first)
    return RemovalRecord(**{**vars(record), "sentences": sentences})


def _ablate(entry: Mapping[str, Any], first: str) -> str:
    """The kind of ablation of a condition; in an older run that of them all."""
    return str(entry.get("ablate") or first)


def _texts(entry: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The conditions with texts, which later draws lack where losses are measured too; else all."""
    return [one for one in entry["conditions"] if "chrf" in one] or entry["conditions"]


def _part(entry: Mapping[str, Any], ablate: str, first: str) -> Part:
    """What one kind of ablation shows."""
    baseline = entry["baseline"]
    low, high = _number(baseline.get("low")), _number(baseline.get("high"))
    sentences = entry.get("sentences")
    return Part(
        sentences=None if sentences is None else int(sentences),
        baseline=_measures(baseline),
        interval=None if low is None or high is None else (low, high),
        conditions=tuple(_condition(one) for one in _texts(entry) if _ablate(one, first) == ablate),
    )


def _condition(entry: Mapping[str, Any]) -> Condition:
    draw = entry.get("draw")
    against = {RANDOM: "against_random", MATCHED: "against_random_layer_matched"}
    gaps = {kind: _gap(entry.get(name)) for kind, name in against.items()}
    filled = entry.get("filled_up") or 0
    return Condition(
        kind=str(entry["kind"]),
        k=int(entry["k"]),
        gate=float(entry.get("gate", 0.0)),
        draw=None if draw is None else int(draw),
        heads=tuple(str(head) for head in entry.get("heads") or ()),
        filled_up=len(filled) if isinstance(filled, list) else int(filled),
        measures=_measures(entry),
        change=_gap((entry.get("change") or {}).get("chrf")),
        tests={
            name: float(value)
            for name, value in entry.items()
            if name.startswith("p_") and value is not None
        },
        against={kind: gap for kind, gap in gaps.items() if gap is not None},
        distinct={
            kind: int(entry[name])
            for kind, name in (
                (RANDOM, "distinct_draws"),
                (MATCHED, "distinct_draws_layer_matched"),
            )
            if entry.get(name) is not None
        },
    )


def _measures(entry: Mapping[str, Any]) -> dict[str, float | None]:
    return {name: _number(entry.get(name)) for name in MEASURES}


def _gap(entry: Any) -> Gap | None:
    if not entry or entry["value"] is None:
        return None
    return Gap(float(entry["value"]), _number(entry.get("low")), _number(entry.get("high")))


def _number(value: Any) -> float | None:
    return None if value is None else float(value)
