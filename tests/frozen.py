"""Today's numbers, kept while names and shapes change; deleted with the result types it reads.

`python tests/frozen.py make [COMMAND …]` carries out the runs of `command_runs` and writes
`data/frozen`: per-example numbers of every comparison, and the levels and tests that the code
computes from them. `tests/test_frozen.py` says what the files hold, and computes them again.

`python tests/frozen.py figures RUN/result.json` prints what a paper's run shows in numbers:
`data/frozen/papers` has those of `reproduce PAPER --model pocket --limit 6 --draws 3`, of heads-up
with `--only figure-2 --only figure-3 --only figure-4 --only figure-6 --only figure-8`.

`python tests/frozen.py check [NAME …]` carries out the runs again and lists the numbers of
`levels`, `tests` and `overlaps` in `data/frozen` that their results do not hold; of files whose
names begin so. It reads numbers alone, and so outlives the names of results.

`python tests/frozen.py compare OLD.json NEW.json` lists the numbers of an old golden, or result,
that a new result does not hold, wherever they stand. OLD may be `COMMIT:tests/data/goldens/….json`.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import math
import subprocess
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

FROZEN = Path(__file__).parent / "data" / "frozen"

# ---- numbers of goldens ------------------------------------------------------------------------
#: Keys whose values tell about the machine or the moment; and what a golden has beside the result.
PASSING = {"seconds", "seconds_a_step", "tokens_per_second", "software"}
BESIDE = {"rows", "terminal", "page"}


def numbers(value: Any, place: str = "") -> Iterator[tuple[str, float]]:
    """Every number of a JSON value with its place, such as `conditions[3].change.low`."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            if key not in PASSING and (place or key not in BESIDE):
                yield from numbers(part, f"{place}.{key}" if place else str(key))
    elif isinstance(value, list):
        for at, part in enumerate(value):
            yield from numbers(part, f"{place}[{at}]")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield place, float(value)


@dataclass(frozen=True)
class Missing:
    """A number of an old result: where it stands, and how often in the old and the new one."""

    number: float
    old: tuple[str, ...]
    new: int


def missing_numbers(old: Any, new: Any, within: float = 1e-5) -> list[Missing]:
    """The numbers of an old result that a new one holds less often, first those that it lacks.

    Numbers are equal within that share of themselves, or of 1e-3 where they are smaller. A number
    that stands in several places of the old result and is held once is no loss: see `new`.
    """
    there = sorted(number for _, number in numbers(new))
    places: dict[float, list[str]] = {}
    for place, number in numbers(old):
        places.setdefault(number, []).append(place)
    rows = []
    for number, where in places.items():
        reach = within * max(abs(number), 1e-3)
        held = bisect_left(there, math.nextafter(number + reach, math.inf)) - bisect_left(
            there, number - reach
        )
        if held < len(where):
            rows.append(Missing(number, tuple(where), held))
    return sorted(rows, key=lambda row: (row.new > 0, row.old))


def figures(result: Mapping[str, Any]) -> dict[str, Any]:
    """What a paper's run shows in numbers, by experiment: cells of tables (value, and where there
    are such its ends, the published value and the difference), figures, and what is claimed."""

    def cell(of: Mapping[str, Any]) -> Any:
        ends = [of.get(key) for key in ("value", "low", "high")]
        theirs = [of.get(key) for key in ("published", "difference")]
        known = ends if any(end is not None for end in ends[1:]) else ends[:1]
        return [*known, *theirs] if any(part is not None for part in theirs) else known

    shown: dict[str, Any] = {}
    for each in result["experiments"]:
        tables = {
            table["title"]: {row["name"]: [cell(of) for of in row["cells"]]
                             for row in table["rows"]}
            for table in each["tables"]
        }  # fmt: skip
        drawn = {
            figure.get("title") or str(at): {
                key: value for key, value in figure.items() if any(numbers(value, key))
            }
            for at, figure in enumerate(each["figures"])
        }
        claims = [
            {key: claim[key] for key in ("name", "holds", "p", "by")}
            for claim in each["more"].get("claims", ())
        ]
        shown[each["name"]] = {"tables": tables, "figures": drawn, "claims": claims}
    return {"paper": result["paper"]["name"], "command": result["command"], "experiments": shown,
            "answer": result["answer"]}  # fmt: skip


def _claims(result: Mapping[str, Any]) -> dict[str, Any]:
    """What is claimed in a paper's result, or in its `figures`, and whether it holds."""
    each = result.get("experiments", ())
    several = each.values() if isinstance(each, Mapping) else each
    claims = (own.get("claims") or own.get("more", {}).get("claims", ()) for own in several)
    return {claim["name"]: (claim["holds"], claim["by"]) for own in claims for claim in own}


def _compare(old: str, new: str, within: float) -> int:
    """Print what is lost; the exit code is 1 if a number is held nowhere."""
    if ":" in old and not Path(old).exists():
        text = subprocess.run(["git", "show", old], check=True, capture_output=True).stdout
    else:
        text = Path(old).read_bytes()
    before, after = json.loads(text), json.loads(Path(new).read_text("utf-8"))
    rows = missing_numbers(before, after, within)
    lost = [row for row in rows if not row.new]
    for row in lost:
        more = f" and {len(row.old) - 3} more" if len(row.old) > 3 else ""
        print(f"lost   {row.number:<14.9g} {', '.join(row.old[:3])}{more}")
    for row in rows[len(lost) :]:
        print(f"fewer  {row.number:<14.9g} {len(row.old)} before, {row.new} now: {row.old[0]}")
    claimed, claims = _claims(before), _claims(after)
    for name in claimed.keys() | claims.keys():
        if claimed.get(name) != claims.get(name):
            print(f"claim  {name}: {claimed.get(name)} before, {claims.get(name)} now")
    total = sum(1 for _ in numbers(before))
    print(
        f"{total} numbers before, {sum(1 for _ in numbers(after))} now; {len(lost)} different ones "
        f"are held nowhere, {len(rows) - len(lost)} less often"
    )
    return 1 if lost else 0


# ---- tables of per-example numbers -------------------------------------------------------------
KINDS = {"baseline": "original", "top": "selected", "random-layer-matched": "same layers"}


def _plain(value: Any) -> Any:
    """As JSON has it: null for what is not a finite number, whole numbers as such."""
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return int(value) if value.is_integer() and abs(value) < 2**53 else value
    return value


def _estimate(of: Any) -> dict[str, Any]:
    return {"value": _plain(of.value), "low": _plain(of.low), "high": _plain(of.high)}


@dataclass
class Table:
    """What a file holds: see `test_frozen`."""

    seed: int
    by_size: bool = True
    statistics: dict[str, dict[str, Any]] = field(default_factory=dict)
    conditions: list[dict[str, Any]] = field(default_factory=list)
    parts: dict[str, dict[str, list[Any]]] = field(default_factory=dict)
    levels: list[dict[str, Any]] = field(default_factory=list)
    tests: list[dict[str, Any]] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)
    overlaps: list[dict[str, Any]] = field(default_factory=list)

    def condition(
        self,
        kind: str,
        heads: Iterable[Any] | dict[str, list[str]] = (),
        *,
        of: str = "",
        k: int | None = 0,
        gate: float | None = 1.0,
        replacement: str = "zero",
        draw: int | None = None,
        **more: Any,
    ) -> int:
        """The place of a condition, which is added where it is new."""
        row = {
            "kind": KINDS.get(kind, kind),
            "of": of,
            "k": k,
            "gate": None if gate is None else _plain(float(gate)),
            "replacement": replacement,
            "draw": draw,
            "heads": heads if isinstance(heads, dict) else sorted(map(str, heads)),
            **more,
        }
        if row not in self.conditions:
            self.conditions.append(row)
        return self.conditions.index(row)

    def count(
        self,
        part: str,
        statistic: str,
        score: str,
        better: str,
        values: Mapping[int, Any],
        given: Mapping[int, float] | None = None,
    ) -> None:
        """The numbers of every example under each condition; None where there are none."""
        about = {"score": score, "better": better}
        assert self.statistics.setdefault(statistic, about) == about, statistic
        rows = [_plain(values.get(at)) for at in range(len(self.conditions))]
        held = self.parts.setdefault(part, {})
        assert statistic not in held, (part, statistic)
        held[statistic] = rows
        if given is not None:
            held[f"{statistic} given"] = [given.get(at) for at in range(len(self.conditions))]

    def level(self, part: str, condition: int, statistic: str, **numbers: Any) -> None:
        """A level as far as today's code computes it."""
        row = {"part": part, "condition": condition, "statistic": statistic}
        known = {key: _plain(value) for key, value in numbers.items() if value is not None}
        self._row(self.levels, row | known)

    def test(
        self,
        part: str,
        condition: int | Sequence[int],
        statistic: str,
        control: str,
        side: str,
        against: Sequence[int],
        **numbers: Any,
    ) -> None:
        """A test as far as today's code computes it."""
        row = {"part": part, "condition": condition, "statistic": statistic, "control": control,
               "side": side, "against": list(against)}  # fmt: skip
        known = {key: _plain(value) for key, value in numbers.items() if value is not None}
        self._row(self.tests, row | known)

    def clashes(self, other: Table) -> bool:
        """Whether a statistic of a part has other numbers in the other table, or another seed."""
        if not (self.parts and other.parts):
            return False
        own = {
            (part, statistic, json.dumps(row)): numbers
            for part, statistic, row, numbers in self._entries()
        }
        return (self.seed, self.by_size) != (other.seed, other.by_size) or any(
            own.get((part, statistic, json.dumps(row)), numbers) != numbers
            for part, statistic, row, numbers in other._entries()
        )

    def _entries(self) -> Iterator[tuple[str, str, dict[str, Any], Any]]:
        for part, held in self.parts.items():
            for statistic, rows in held.items():
                for at, numbers in enumerate(rows):
                    if numbers is not None:
                        yield part, statistic, self.conditions[at], numbers

    def add(self, other: Table) -> None:
        """Take over what another table of the same run holds."""
        self.overlaps += [row for row in other.overlaps if row not in self.overlaps]
        if not other.parts:
            self.details |= other.details
            return
        if not self.parts:
            self.seed, self.by_size, self.conditions = other.seed, other.by_size, []
            self.condition("original")
            self.conditions[0] = other.conditions[0]
        assert self.conditions[0] == other.conditions[0]
        places = []
        for row in other.conditions:
            if row not in self.conditions:
                self.conditions.append(row)
            places.append(self.conditions.index(row))

        def moved(at: int | list[int]) -> int | list[int]:
            return places[at] if isinstance(at, int) else [places[each] for each in at]

        self.statistics |= other.statistics
        for part, held in other.parts.items():
            for statistic, rows in held.items():
                own = self.parts.setdefault(part, {}).setdefault(statistic, [])
                own += [None] * (len(self.conditions) - len(own))
                for at, numbers in zip(places, rows, strict=False):
                    own[at] = own[at] if numbers is None else numbers
        for row in other.levels:
            self._row(self.levels, {**row, "condition": moved(row["condition"])})
        for row in other.tests:
            at, against = moved(row["condition"]), moved(row["against"])
            self._row(self.tests, {**row, "condition": at, "against": against})
        for key, value in other.details.items():
            assert self.details.setdefault(key, value) == value

    def _row(self, rows: list[dict[str, Any]], row: dict[str, Any]) -> None:
        """Add a row, or its numbers to the row that is there for the same."""
        names = ("part", "condition", "statistic", "control", "side", "against")
        for other in rows:
            if all(other.get(name) == row.get(name) for name in names):
                assert all(other.get(key, value) == value for key, value in row.items()), (
                    other,
                    row,
                )
                other |= row
                return
        rows.append(row)

    def as_dict(self, command: str, run: str) -> dict[str, Any]:
        """As a file holds it."""
        several = len(self.conditions)
        parts = {
            part: {key: [*rows, *[None] * (several - len(rows))] for key, rows in held.items()}
            for part, held in self.parts.items()
        }
        return {"command": command, "run": run, **vars(self), "parts": parts}


def _three(draws: Any) -> list[float]:
    return [draws.mean, draws.low, draws.high]


def _against(of: Any) -> dict[str, Any]:
    """An `Against` as numbers of a test."""
    draws = of.draws
    return {
        "difference": _estimate(of.difference),
        "p_examples": of.p_examples,
        "p_draws": of.p_draws,
        "draws": of.distinct,
        "least_p": of.least_p,
        **({"mean_of_draws": draws.mean, "range_of_draws": [draws.low, draws.high]}
           if draws.each else {}),
    }  # fmt: skip


# ---- one adapter for each function that compares -----------------------------------------------
#: From the arguments of a call, its caller's names (`caller`) and its result.
Adapter = Callable[[Mapping[str, Any], Any], Table]
ADAPTERS: dict[str, Adapter] = {}


def adapts(function: str) -> Callable[[Adapter], Adapter]:
    """Registers how arguments and result of `module:function` become a table."""

    def register(adapter: Adapter) -> Adapter:
        ADAPTERS[function] = adapter
        return adapter

    return register


def _labelled(table: Table, labels: Sequence[Any], sets: Sequence[Iterable[Any]]) -> list[int]:
    """The places of conditions that have labels of a removal."""
    return [
        table.condition(label.kind, heads, k=label.k, gate=label.gate,
                        replacement=label.ablate, draw=label.draw)
        for label, heads in zip(labels, sets, strict=True)
    ]  # fmt: skip


def _draws(table: Table, at: int, kind: str) -> list[int]:
    """The random draws of one kind for a condition of a removal."""
    alike = ("of", "k", "gate", "replacement")
    own = table.conditions[at]
    return [
        place
        for place, other in enumerate(table.conditions)
        if other["kind"] == kind and all(other[name] == own[name] for name in alike)
    ]


CONTROLS = {"random": "random", "random-layer-matched": "same layers"}


@adapts("headscope.verify.translation.evidence:evidence")
def removal_texts(given: Mapping[str, Any], shown: Any) -> Table:
    """`verify removal` by texts."""
    table = Table(given["seed"])
    labels, measures = given["labels"], given["measures"]
    places = _labelled(table, labels, given["sets"])
    better = {"chrf": "higher", "bleu": "higher", "comet": "higher", "bleurt": "higher"}
    for part, measured in measures.directions.items():
        for name, array in vars(measured).items():
            if array is not None:
                score = name if name in ("chrf", "bleu") else "mean"
                table.count(part, name, score, better.get(name, "lower"),
                            dict(zip(places, array, strict=True)))  # fmt: skip
    at_of = dict(zip(labels, places, strict=True))
    for part, of in _with_mean(shown):
        for name, value in vars(of.baseline.text).items():
            if name not in ("low", "high") and value is not None:
                ends = ({"low": of.baseline.text.low, "high": of.baseline.text.high}
                        if name == "chrf" else {})  # fmt: skip
                table.level(part, 0, name, value=value, **ends)
        for row in of.conditions:
            at = at_of[row.label]
            for name, value in vars(row.text).items():
                if value is not None:
                    change = _estimate(row.change.chrf) if name == "chrf" else None
                    table.level(part, at, name, value=value, change=change)
            for control, against in (("random", row.free), ("same layers", row.matched)):
                if against is not None and against.distinct:
                    table.test(part, at, "chrf", control, "lower", _draws(table, at, control),
                               **_against(against))  # fmt: skip
    return table


def _with_mean(shown: Any) -> Iterator[tuple[str, Any]]:
    """The parts of a removal, the mean first where there are several."""
    if len(shown.directions) > 1:
        yield "", shown
    yield from shown.directions.items()


KINDS_OF_TOKENS = ("linked", "linked_later", "unlinked")


@adapts("headscope.verify.translation.evidence:loss_evidence")
def removal_losses(given: Mapping[str, Any], shown: Any) -> Table:
    """`verify removal` by losses of references."""
    table = Table(given["seed"])
    labels = given["labels"]
    places = _labelled(table, labels, given["sets"])
    for part, losses in given["directions"].items():
        columns = [
            ("nll", losses.sums.sum(axis=2), losses.tokens.sum(axis=1)),
            *((f"nll_{kind}", losses.sums[..., at], losses.tokens[:, at])
              for at, kind in enumerate(KINDS_OF_TOKENS)),
        ]  # fmt: skip
        means = {}
        for name, sums, tokens in columns:
            rows = [[value / n if n else None for value, n in zip(own.tolist(), tokens.tolist(),
                                                                  strict=True)]
                    for own in sums]  # fmt: skip
            means[name] = rows
            table.count(part, name, "mean", "lower", dict(zip(places, rows, strict=True)))
            both = [[[value, n] for value, n in zip(own.tolist(), tokens.tolist(), strict=True)]
                    for own in sums]  # fmt: skip
            table.count(part, f"{name}_micro", "ratio", "lower",
                        dict(zip(places, both, strict=True)))  # fmt: skip
        both_kinds = zip(means["nll_linked"], means["nll_unlinked"], strict=True)
        gaps = [list(map(list, zip(first, other, strict=True))) for first, other in both_kinds]
        table.count(part, "nll_linked_minus_unlinked", "difference of means", "lower",
                    dict(zip(places, gaps, strict=True)))  # fmt: skip
    at_of = dict(zip(labels, places, strict=True))
    for part, of in _with_mean(shown):
        for name, value in vars(of.baseline.loss).items():
            if name not in ("nll_low", "nll_high") and value is not None:
                ends = ({"low": of.baseline.loss.nll_low, "high": of.baseline.loss.nll_high}
                        if name == "nll" else {})  # fmt: skip
                table.level(part, 0, name, value=value, **ends)
        for row in of.conditions:
            at = at_of[row.label]
            for name, value in vars(row.loss).items():
                if value is not None:
                    change = _estimate(row.change.nll) if name == "nll" else None
                    table.level(part, at, name, value=value, change=change)
            for control, against, kinds in (
                ("random", row.free, row.classes),
                ("same layers", row.matched, row.classes_layer_matched),
            ):
                if against is not None:
                    draws = _draws(table, at, control)
                    table.test(part, at, "nll", control, "higher", draws, **_against(against))
                    for name, tested in vars(kinds).items():
                        if name != "unknown":
                            table.test(part, at, f"nll_{name}", control, "higher", draws,
                                       difference=_estimate(tested), p_examples=tested.p_sentences,
                                       p_draws=tested.p_draws)  # fmt: skip
    return table


# ---- text of languages -------------------------------------------------------------------------
def _texts(planned: Sequence[Any], trials: Mapping[str, Any]) -> tuple[Table, list[int]]:
    """Losses of documents under the conditions of `verify perplexity` and `verify layers`."""
    table = Table(next(iter(trials.values())).nll.groups[0].seed)
    kinds = {"removed": "selected"}
    places = [
        table.condition(kinds.get(each.kind, each.kind), each.heads, of=each.of, k=each.k,
                        gate=float(each.kind == "baseline"), draw=each.draw, role=each.role)
        for each in planned
    ]  # fmt: skip
    for part, trial in trials.items():
        read = dict(zip(places, trial.nll.groups[0].statistics, strict=True))
        table.count(part, "nll", "ratio", "lower", read)
        table.count(part, "perplexity", "exp of ratio", "lower", read)
        own = {at: None if rows is None else rows[:, 0] for at, rows in
               zip(places, trial.published.groups[0].statistics, strict=True)}  # fmt: skip
        table.count(part, "published_perplexity", "mean", "lower", own)
    return table, places


def _text_level(table: Table, part: str, at: int, row: Any, change: Any = None) -> None:
    for name in ("nll", "perplexity", "published_perplexity"):
        interval = "exp" if name == "perplexity" else None
        changed = None if change is None or name != "nll" else _estimate(change)
        table.level(part, at, name, **_estimate(getattr(row, name)), interval=interval,
                    change=changed)  # fmt: skip


@adapts("headscope.verify.languages.evidence:describe_languages")
def language_texts(given: Mapping[str, Any], shown: Any) -> Table:
    """`verify perplexity`."""
    table, places = _texts(given["planned"], given["trials"])
    for part, text in shown.items():
        _text_level(table, part, 0, text.baseline)
        about = [
            at for at, each in zip(places, given["planned"], strict=True)
            if at and part in each.texts and (each.of == part or each.of not in shown)
        ]  # fmt: skip
        for at, row in zip(about, text.conditions, strict=True):
            _text_level(table, part, at, row, row.change)
            for control, changes, against in (
                ("random", row.random, row.against_random),
                ("same layers", row.random_layer_matched, row.against_layer_matched),
            ):
                if against is not None:
                    draws = _text_draws(table, given["planned"], at, control, part)
                    table.test(part, at, "nll", control, "higher", draws, **_against(against),
                               changes_of_draws=_three(changes))  # fmt: skip
    return table


def _text_draws(
    table: Table, planned: Sequence[Any], at: int, control: str, part: str
) -> list[int]:
    """The draws of one kind for a condition that a language's text was read under."""
    own = table.conditions[at]
    return [
        place
        for place, (other, each) in enumerate(zip(table.conditions, planned, strict=True))
        if (other["of"], other["role"], other["k"]) == (own["of"], own["role"], own["k"])
        and other["kind"] == control
        and part in each.texts
    ]


@adapts("headscope.verify.languages.evidence:matrices")
def language_matrices(given: Mapping[str, Any], shown: Any) -> Table:
    """The cells of `verify perplexity`: heads of one language, text of another."""
    planned = given["planned"]
    table, _ = _texts(planned, given["trials"])
    own = []
    for matrix in shown:
        for of, *rows in zip(matrix.heads_of, matrix.change, strict=True):
            at = next(
                place for place, row in enumerate(table.conditions)
                if (row["of"], row["role"], row["k"], row["kind"])
                == (of, matrix.role, matrix.k, "selected")
            )  # fmt: skip
            for part, change in zip(matrix.text_of, rows[0], strict=True):
                table.level(part, at, "nll", change=_estimate(change))
            number = matrix.heads_of.index(of)
            for control, random, above in (
                ("random", matrix.random, matrix.above_random),
                ("same layers", matrix.random_layer_matched, matrix.above_random_layer_matched),
            ):
                for part, change, more in zip(matrix.text_of, random[number], above[number],
                                              strict=True):  # fmt: skip
                    if change is not None:
                        draws = _text_draws(table, planned, at, control, part)
                        table.test(part, draws, "nll", "original", "higher", [0],
                                   difference=_estimate(change))  # fmt: skip
                        table.test(part, at, "nll", control, "higher", draws,
                                   difference=_estimate(more))  # fmt: skip
            if of in matrix.own:
                text = matrix.own[of]
                row = {"part": of, "condition": at, "statistic": "nll",
                       "value": text.own_minus_largest_other.value,
                       "low": text.own_minus_largest_other.low,
                       "high": text.own_minus_largest_other.high,
                       "largest": text.largest_other.language}  # fmt: skip
                for control, each, p in (
                    ("random", text.random, text.p_draws),
                    ("same layers", text.random_layer_matched, text.p_draws_layer_matched),
                ):
                    if each is not None:
                        row[control] = {"draws": list(each), "p_draws": p}
                own.append(row)
    answers = [vars(matrix.answer) for matrix in shown if matrix.answer]
    table.details = {"own": own, "answers": [
        {key: value for key, value in answer.items() if value is not None and key != "unknown"}
        for answer in answers
    ]}  # fmt: skip
    return table


@adapts("headscope.verify.languages.evidence:describe_layers")
def language_layers(given: Mapping[str, Any], shown: Any) -> Table:
    """`verify layers`."""
    table, _ = _texts(given["planned"], given["trials"])
    for part, text in shown.items():
        _text_level(table, part, 0, text.baseline)
        selected = [at for at, row in enumerate(table.conditions) if row["kind"] == "selected"]
        drawn = [at for at, row in enumerate(table.conditions) if row["kind"] == "random"]
        for at, row in zip(selected, text.layers, strict=True):
            _text_level(table, part, at, row, row.change)
            draws = [each for each in drawn if table.conditions[each]["k"] == row.heads]
            table.test(part, at, "nll", "random", "higher", draws, **_against(row.against_random),
                       changes_of_draws=_three(row.random))  # fmt: skip
        for size, changes in text.draws.items():
            draws = [each for each in drawn if table.conditions[each]["k"] == int(size)]
            for at, change in zip(draws, changes, strict=True):
                table.level(part, at, "nll", change={"value": change})
    return table


# ---- what models write -------------------------------------------------------------------------
@adapts("headscope.verify.writing.measures:evidence")
def writing(given: Mapping[str, Any], result: Any) -> Table:
    """`verify off-target`, `verify summaries`, `verify transfer`, and steering."""
    whole, parts = result
    groups, measures, controls = given["groups"], given["measures"], given["controls"]
    table = Table(given["seed"])
    names = list(dict.fromkeys(arm.name for group in groups.values() for arm in group.arms))
    places = {}
    for name in names:
        arms = {part: group.arms[group.places[name]] for part, group in groups.items()
                if name in group.places}  # fmt: skip
        heads: Any = {part: sorted(map(str, arm.heads)) for part, arm in arms.items()}
        sizes = {len(own) for own in heads.values()}
        kind, role = name.kind, ""
        if kind in controls:
            kind, role = "selected", name.kind
        for prefix in controls.values():
            if prefix and kind.startswith(prefix):
                kind, role = kind.removeprefix(prefix), prefix.removesuffix("-")
        places[name] = table.condition(
            kind, heads[next(iter(heads))] if len(groups) == 1 else heads,
            k=sizes.pop() if len(sizes) == 1 else None, gate=next(iter(arms.values())).gate,
            draw=name.draw, role=role,
        )  # fmt: skip
    sides = {True: "higher", False: "lower"}
    for part, group in groups.items():
        for name, measure in measures.items():
            values = group.values.get(name)
            if values is not None:
                score = "mean" if values.shape[-1] == 2 else name
                rows = values[..., 0] if score == "mean" else values
                by_place = {places[each]: rows[at] for each, at in group.places.items()}
                table.count(part, name, score, sides[not measure.raises], by_place)

    def measured(part: str, name: str, kind: Any) -> bool:
        rows = table.parts[part].get(name)
        return rows is not None and rows[places[kind]] is not None

    shown = {**({"": whole} if len(groups) > 1 else {}), **parts}
    for part, effects in shown.items():
        for name, value in effects.baseline.items():
            if value is not None:
                table.level(part, 0, name, value=value)
        for row in effects.conditions:
            at = next(at for each, at in places.items() if (each.kind, each.draw)
                      == (row.kind, row.draw))  # fmt: skip
            for name, value in row.scores.items():
                if value is not None:
                    table.level(part, at, name, value=value)
        for kind, by_measure in effects.effects.items():
            chosen = next(each for each in places if each.kind == kind)
            for name, effect in by_measure.items():
                at, side = places[chosen], sides[measures[name].raises]
                own = [one for one in table.parts if part in ("", one)
                       and measured(one, name, chosen)]  # fmt: skip
                table.level(part, at, name, value=effect.value, change=_estimate(effect.change))
                for random, control in (("random", effect.free),
                                        ("random-layer-matched", effect.matched)):  # fmt: skip
                    if control is not None:
                        draws = [
                            place for each, place in places.items()
                            if each.kind == controls[kind] + random
                            and all(measured(one, name, each) for one in own)
                        ]  # fmt: skip
                        table.test(part, at, name, CONTROLS[random], side, draws,
                                   **_against(control.against))  # fmt: skip
                if effect.p_change is not None:
                    change = _estimate(effect.change)
                    table.test(part, at, name, "original", "two-sided", [0], difference=change,
                               p_examples=effect.p_change)  # fmt: skip
    return table


# ---- tasks -------------------------------------------------------------------------------------
@adapts("headscope.studies.verify.tasks:_describe")
def tasks(given: Mapping[str, Any], shown: Any) -> Table:
    """`verify tasks`."""
    from headscope.verify.other_tasks.evaluate import _singles

    table = Table(given["seed"], by_size=False)
    planned = given["planned"]
    labels = [each.label for each in planned]
    places = _labelled(table, labels, [each.heads for each in planned])
    at_of = dict(zip(labels, places, strict=True))
    for part, task in shown.items():
        outcomes = given["outcomes"][part]
        for name, metric in {task.metric: task, **task.other_metrics}.items():
            better, side = ("higher", "lower") if metric.higher_is_better else ("lower", "higher")
            singles = [_singles(outcome, name) for outcome in outcomes]
            values = [outcome.metrics[name] for outcome in outcomes]
            score = "given" if any(each is None for each in singles) else "mean"
            table.count(part, name, score, better, dict(zip(places, singles, strict=True)),
                        dict(zip(places, values, strict=True)))  # fmt: skip
            for at, row in [(0, metric.baseline), *((at_of[row.label], row)
                                                    for row in metric.conditions)]:  # fmt: skip
                single = singles[places.index(at)]
                shares = single is not None and bool(np.isin(single, (0, 1)).all())
                table.level(
                    part, at, name, value=row.value,
                    low=row.low, high=row.high, interval="wilson" if shares else None,
                    change=_estimate(row.change) if at else None,
                )  # fmt: skip
                for control in ("free", "matched") if at else ():
                    against = getattr(row, control)
                    kind = "random" if control == "free" else "same layers"
                    if against is not None:
                        table.test(part, at, name, kind, side, _draws(table, at, kind),
                                   **_against(against))  # fmt: skip
            rest = [
                {key: getattr(row, key) for key in ("stderr", "above_chance")}
                for row in (metric.baseline, *metric.conditions)
            ]
            table.details[f"{part} {name}"] = {"chance": metric.chance, "conditions": rest}
    return table


# ---- masks -------------------------------------------------------------------------------------
SHUFFLED = {"shuffled-layer-matched": "shuffled, same layers",
            "random-layer-matched": "same layers"}  # fmt: skip
MASKED = ("masked", "scaled", "removed", "hybrid")


@adapts("headscope.verify.masks.evidence:describe")
def masks(given: Mapping[str, Any], outcomes: Any) -> Table:
    """`verify mask`, `verify scaling` and `verify families`; parts are tasks."""
    from headscope.heads import HeadSet
    from headscope.verify.masks.evidence import MEASURES

    table, part = Table(given["seed"]), given["caller"]["name"]
    if any("\u03b1" in name for name in given["beside"]):
        part = f"{part}, chosen on"
    planned, numbers = given["conditions"], given["numbers"]
    places = []
    for number, each in enumerate(planned):
        kind = "original" if not number else SHUFFLED.get(each.kind, each.kind)
        heads, gate, role = (), 1.0, each.kind
        if each.mask is not None:
            values = each.mask.gate.values
            there = each.mask.kept.geometry.mask()
            changed = there & (values != 1)
            heads = tuple(HeadSet.from_mask(each.mask.kept.geometry, changed))
            several = set(values[changed].tolist())
            gate = several.pop() if len(several) == 1 else None if several else 1.0
        if kind in MASKED:
            kind = "selected"
        of = (each.of or "") if each.draw is not None else each.name if number else ""
        places.append(
            table.condition(kind, heads, of=of, k=len(heads), gate=gate, draw=each.draw, role=role,
                            instructed=each.instructed)
        )  # fmt: skip
    for name, scoring in MEASURES.items():
        if name in numbers[0]:
            example = next(own[name] for own in numbers if name in own)
            score = {"nll_tokens": "ratio", "perplexity": "exp of ratio", "chrf": "chrf",
                     "bleu": "bleu"}.get(name, "mean")  # fmt: skip
            assert score != "mean" or example.shape[1] == 2
            table.count(
                part, name, score, "higher" if scoring.higher else "lower",
                {at: (own[name][:, 0] if score == "mean" else own[name])
                 for at, own in zip(places, numbers, strict=True) if name in own},
            )  # fmt: skip
    known = {each.name: at for at, each in zip(places, planned, strict=True)}
    for at, each, outcome in zip(places, planned, outcomes, strict=True):
        for name, scoring in MEASURES.items():
            interval = (outcome.intervals or {}).get(name)
            if interval is not None:
                change = (outcome.change or {}).get(name)
                table.level(
                    part, at, name, value=_nan(outcome.value(name)), low=interval.low,
                    high=interval.high, interval="wilson" if scoring.share else "seed alone",
                    change=None if change is None else _estimate(change),
                )  # fmt: skip
        for other in given["beside"]:
            compared = getattr(outcome, "against_" + _field(other), None) or {}
            for name, difference in compared.items():
                table.test(part, at, name, other, "two-sided", [known[other]],
                           difference=_estimate(difference))  # fmt: skip
        for kind in ("shuffled", "shuffled-layer-matched", "random", "random-layer-matched"):
            drawn = getattr(outcome, kind.replace("-", "_") + "_draws")
            if drawn is None:
                continue
            draws = [
                place for place, row in zip(places, planned, strict=True)
                if row.kind == kind and row.instructed == each.instructed
                and row.of in (None, each.name)
            ]  # fmt: skip
            for name, difference in drawn.against.items():
                higher = MEASURES[name].higher
                table.test(
                    part, at, name, SHUFFLED.get(kind, kind),
                    "lower" if higher == each.harmful else "higher", draws,
                    difference=_estimate(difference), p_draws=drawn.p_draws[name],
                    p_examples=drawn.p_examples.get(name), draws=drawn.distinct_draws,
                    least_p=drawn.least_p,
                )  # fmt: skip
    return table


@adapts("headscope.verify.masks.evidence:together")
def tasks_together(given: Mapping[str, Any], outcomes: Any) -> Table:
    """The plain means over tasks, whose masks differ; nothing of a single task."""
    from headscope.verify.masks.evidence import MEASURES

    table = Table(given["caller"]["config"].seed)
    table.condition("original")
    if len(given["tasks"]) > 1:
        table.details["mean over tasks"] = {
            each.name: {name: _plain(each.value(name)) for name in MEASURES
                        if each.value(name) is not None}
            for each in outcomes
        }  # fmt: skip
    return table


@adapts("headscope.studies.verify.tasks:_groups")
def groups_of_tasks(given: Mapping[str, Any], groups: Any) -> Table:
    """The plain means over tasks of a group, condition by condition, the original model first."""
    table = Table(given["caller"]["config"].removal.seed, by_size=False)
    table.condition("original")
    for name, group in groups.items():
        values = [group.baseline.value, *(row.value for row in group.conditions)]
        table.details[f"group {name}"] = {"tasks": list(group.tasks), "values": values}
    return table


def _nan(value: float | None) -> float:
    return math.nan if value is None else value


def _field(name: str) -> str:
    return name.replace("-", "_").replace(" ", "_").replace("\u03b1", "alpha")


# ---- gates -------------------------------------------------------------------------------------
TRAINED = {"untouched": ("original", ""), "trained": ("selected", "trained"),
           "removed": ("selected", "removed"), "random": ("random", "trained"),
           "random-layer-matched": ("same layers", "trained"),
           "random-removed": ("random", "removed")}  # fmt: skip


@adapts("headscope.studies.find.soft_gate:effects")
def soft_gates(given: Mapping[str, Any], result: Any) -> Table:
    """`find soft-gate`: examples are groups of questions; each seed, and their mean."""
    from headscope.studies.find.soft_gate import group_sums

    shown, differences = result
    values, groups = given["values"], given["groups"]
    table = Table(given["seed"])
    places = {}
    for name, measured in values.items():
        kind, role = TRAINED[name]
        seeds = range(len(next(iter(measured.values()))))
        places[name] = (
            table.condition(kind, role=role),
            [table.condition(kind, role=role, draw=at) for at in seeds],
        )
    for measure in ("accuracy", "normalized", "nll"):
        rows: dict[int, Any] = {}
        for name, measured in values.items():
            mean, seeds = places[name]
            rows[mean] = group_sums(measured[measure].mean(axis=0), groups)
            rows |= {at: group_sums(own, groups)
                     for at, own in zip(seeds, measured[measure], strict=True)}  # fmt: skip
        table.count("questions", measure, "ratio", "lower" if measure == "nll" else "higher", rows)
        for name, measures in shown.items():
            mean, seeds = places[name]
            of = getattr(measures, measure)
            table.level("questions", mean, measure, value=of.mean, low=of.low, high=of.high,
                        interval="seed alone")  # fmt: skip
            for at, value in zip(seeds, of.by_seed, strict=True):
                table.level("questions", at, measure, value=value)
            table.details[f"sd of {measure}, {name}"] = of.sd
        for difference in differences:
            of = getattr(difference, measure)
            (at, seeds), (other, others) = places[difference.condition], places[difference.minus]
            control = table.conditions[other]["kind"]
            table.test("questions", at, measure, control, "two-sided", [other],
                       difference=_estimate(of))  # fmt: skip
            for own, against, value in zip(seeds, others, of.by_seed, strict=True):
                table.test("questions", own, measure, control, "two-sided", [against],
                           difference={"value": value})  # fmt: skip
            names = f"{difference.condition} minus {difference.minus}"
            table.details[f"sd of {measure}, {names}"] = of.sd
    return table


@adapts("headscope.studies.find.causal_gating:conditions")
def causal_gates(given: Mapping[str, Any], shown: Any) -> Table:
    """The check of `find causal-gating`: the mean over gates or draws, and each of them."""
    table = Table(given["seed"])
    removed = given["caller"].get("removed", {})
    rows: dict[int, Any] = {}
    for name, losses in given["losses"].items():
        role = name.rpartition(" ")[2]
        kind = {"untouched": "original", "gates": "fitted gates", "without": "selected",
                "random": "random"}[name.partition(" ")[0]]  # fmt: skip
        heads = removed.get(role, ()) if kind == "selected" else ()
        about = {"of": "" if kind == "original" else role, "k": len(removed.get(role, ())),
                 "gate": None if kind == "fitted gates" else float(kind == "original")}  # fmt: skip
        mean = table.condition(kind, heads, **about)
        rows[mean] = losses.mean(axis=0)
        of = shown[name]
        change = None if kind == "original" else _estimate(of.change)
        table.level("held out", mean, "nll", **_estimate(of.nll), interval="seed alone",
                    change=change)  # fmt: skip
        if len(losses) > 1:
            for number, own in enumerate(losses):
                at = table.condition(kind, **about, draw=number)
                rows[at] = own
                table.level("held out", at, "nll", value=of.each[number])
    table.count("held out", "nll", "mean", "lower", rows)
    return table


# ---- states, attention, heads one by one -------------------------------------------------------
def _mean_level(table: Table, part: str, at: int, name: str, mean: Any) -> None:
    """A mean with the bootstrap interval of its own examples."""
    table.level(part, at, name, value=_nan(mean.mean), low=mean.low, high=mean.high,
                interval="seed alone")  # fmt: skip


@adapts("headscope.compare.hidden_states:describe")
def states(given: Mapping[str, Any], shown: Any) -> Table:
    """`compare states`: conditions are pairs of models whose states are compared, by layer."""
    from headscope.compare.hidden_states import _SHARED, CONDITIONS, CONTROLS, PAIRS, PLACES, _later

    table = Table(0)
    tensors = given["tensors"]
    cosines = tensors["cosines"].astype(np.float64)
    of_pair = {pair: cosines[at] for at, pair in enumerate(PAIRS)}
    masked = of_pair["instructed", "masked"]
    kinds = {"shuffled": "shuffled", "shuffled_by_layer": "shuffled, same layers"}
    values: dict[str, dict[int, Any]] = {}
    means: list[tuple[int, str, Any]] = []

    def by_place(at: int, array: Any, rows: Any, prefix: str = "cosine") -> None:
        for number, place in enumerate(PLACES):
            for layer, mean in enumerate(getattr(rows, place.replace(" ", "_"))):
                name = f"{prefix} {place}, layer {layer}"
                values.setdefault(name, {})[at] = array[:, number, layer]
                means.append((at, name, mean))

    places = {}
    for row in shown.pairs:
        at = table.condition("pair" if places else "original", of=f"{row.a}, {row.b}")
        places[row.a, row.b] = at
        by_place(at, of_pair[row.a, row.b], row)
        values.setdefault("later half", {})[at] = _later(of_pair[row.a, row.b])
    own = places["instructed", "masked"]
    drawn = {}
    for control in shown.controls:
        kind = kinds.get(control.kind, control.kind)
        arrays = tensors[control.kind].astype(np.float64)
        at = table.condition(kind, of="instructed, masked")
        by_place(at, arrays.mean(axis=0), control)
        drawn[control.kind] = []
        for number, array in enumerate(arrays):
            place = table.condition(kind, [f"{control.kind} {number}"], of="instructed, masked",
                                    draw=number)  # fmt: skip
            values["later half"][place] = _later(array)
            drawn[control.kind].append(place)
    assert set(shown.nearer) <= {"as is", *CONTROLS}
    for name, nearer in shown.nearer.items():
        other = (of_pair["as is", "instructed"] if name == "as is"
                 else tensors[name].astype(np.float64).mean(axis=0))  # fmt: skip
        at = table.condition("nearer", of=name)
        by_place(at, masked - other, nearer)
        values["later half"][at] = _later(masked - other)
        means.append((at, "later half", nearer.later_half))
    table.conditions[own]["heads"] = ["masked"]
    at_of = {name: number for number, name in enumerate(CONDITIONS)}
    for row, (a, b) in zip(shown.shared_top, _SHARED, strict=True):
        first, other = tensors["lens_tokens"][at_of[a]], tensors["lens_tokens"][at_of[b]]
        same = (first[..., :, None] == other[..., None, :]).any(axis=-1).mean(axis=-1)
        at = table.condition("likeliest tokens", of=f"{a}, {b}")
        for layer, mean in enumerate(row.layers):
            values.setdefault(f"shared, layer {layer}", {})[at] = same[:, layer]
            means.append((at, f"shared, layer {layer}", mean))
    ranks: dict[str, dict[int, Any]] = {}
    for name, rows in shown.target_ranks.items():
        at = table.condition("rank of the target", of=name)
        for layer, rank in enumerate(rows):
            own_ranks = tensors["ranks"][at_of[name]][:, layer]
            ranks.setdefault(f"rank, layer {layer}", {})[at] = np.log(own_ranks.astype(np.float64))
            value, low, high = (getattr(rank, key) for key in ("geometric_mean", "low", "high"))
            table.level("samples", at, f"rank, layer {layer}", value=value, low=low, high=high,
                        interval="exp, seed alone")  # fmt: skip
            table.details[f"median rank, {name}, layer {layer}"] = _plain(rank.median)
    for name, rows in values.items():
        table.count("samples", name, "mean", "higher", rows)
    for name, rows in ranks.items():
        table.count("samples", name, "exp of mean", "lower", rows)
    for at, name, mean in means:
        _mean_level(table, "samples", at, name, mean)
    for control in shown.controls:
        draws = drawn[control.kind]
        for at, value in zip(draws, control.later_half_of_draws, strict=True):
            table.level("samples", at, "later half", value=value)
        nearer = shown.nearer[control.kind]
        table.test("samples", own, "later half", kinds.get(control.kind, control.kind), "higher",
                   draws, p_draws=nearer.p_draws, p_examples=nearer.p_examples,
                   draws=control.distinct_draws, least_p=control.least_p)  # fmt: skip
    return table


@adapts("headscope.verify.looking:describe")
def attention(given: Mapping[str, Any], shown: Any) -> Table:
    """`verify attention`: shares of attention on the right candidate, of heads in and out."""
    from headscope.heads.scores import mean_of_defined

    caller = given["caller"]
    condition, part = caller["condition"], caller["name"]
    table = Table(0)
    kind = {"as-is": "original", "masked": "selected"}.get(condition.kind, condition.kind)
    at = table.condition("original")
    if kind != "original":
        name = "" if condition.draw is not None else condition.name
        at = table.condition(kind, of=name, draw=condition.draw)
    share, mass = given["share"].astype(np.float64), given["mass"]
    there = ~np.isnan(mass[0])
    members = {"all": there, "in": there & given["kept"], "out": there & ~given["kept"]}
    by_sample = {
        group: mean_of_defined(share[:, heads], axis=1) for group, heads in members.items()
    }
    even = np.asarray(given["uniform"], dtype=np.float64)
    rows = {f"share {group}": own for group, own in by_sample.items()}
    rows |= {"even share": even, "above even": by_sample["all"] - even,
             "in minus out": by_sample["in"] - by_sample["out"]}  # fmt: skip
    for name, own in rows.items():
        table.count(part, name, "mean", "higher", {at: own})
    for group, of in shown.heads.items():
        bounds = of.bounds
        table.level(part, at, f"share {group}", value=_nan(of.mean), low=bounds.low,
                    high=bounds.high, interval="seed alone")  # fmt: skip
    for name, mean in (("even share", shown.uniform), ("above even", shown.above_uniform),
                       ("in minus out", shown.in_minus_out)):  # fmt: skip
        _mean_level(table, part, at, name, mean)
    about = {group: {"count": of.count, "attention": of.attention}
             for group, of in shown.heads.items()}  # fmt: skip
    random = {key: value for key, value in vars(shown.random).items() if key != "unknown"}
    table.details[f"{part}, {condition.name}"] = _tidy(
        {"heads": about, "random": random, "undefined": shown.undefined,
         "mean share of each head": mean_of_defined(share[:, there].T, axis=1),
         "kept": given["kept"][there]}
    )  # fmt: skip
    return table


def _tidy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _tidy(part) for key, part in value.items()}
    return _plain(value)


@adapts("headscope.verify.successive:describe")
def one_by_one(given: Mapping[str, Any], shown: Any) -> Table:
    """`verify one-by-one`: a condition is the first k heads removed; an example is a prompt."""
    from headscope.measure.metrics import chrf

    table = Table(0)
    order = given["order"]
    places = [table.condition("original")] + [
        table.condition("selected", order[:k], k=k, gate=given["caller"]["config"].gate)
        for k in range(1, len(order) + 1)
    ]
    groups = given["groups"]
    for part, many in groups.items():
        rows: dict[str, dict[int, Any]] = {}
        for step, at in enumerate(places):
            now = [seen.steps[step] for seen in many]
            rows.setdefault("target rank", {})[at] = [row.target_rank for row in now]
            for place in range(len(now[0].top5_ranks)):
                rows.setdefault(f"rank of token {place + 1}", {})[at] = [
                    row.top5_ranks[place] for row in now
                ]
            for layer in range(len(now[0].similarity)):
                rows.setdefault(f"similarity, layer {layer}", {})[at] = [
                    row.similarity[layer] for row in now
                ]
        for name, own in rows.items():
            better = "higher" if name.startswith("similarity") else "lower"
            table.count(part, name, "mean", better, own)
        texts = [[seen.steps[step].text for seen in many] for step in range(len(places))]
        if all(text is not None for row in texts for text in row):
            targets = [seen.prepared.subject.target for seen in many]
            counts = [chrf(row, targets).statistics for row in texts]
            table.count(part, "chrf", "chrf", "higher", dict(zip(places, counts, strict=True)))
    parts = {next(iter(groups)): shown} if len(groups) == 1 else {"": shown, **shown.directions}
    for part, walked in parts.items():
        for at, state in zip(places, (walked.baseline, *walked.steps), strict=True):
            table.level(part, at, "target rank", value=float(state.target_rank))
            table.level(part, at, "chrf", value=state.chrf)
            for place, rank in enumerate(state.top5_ranks):
                table.level(part, at, f"rank of token {place + 1}", value=float(rank))
            for layer, value in enumerate(state.similarity):
                table.level(part, at, f"similarity, layer {layer}", value=value)
            table.details[f"{part}, {table.conditions[at]['k']} removed"] = {
                "median": state.target_rank_median, "texts changed": state.texts_changed
            }  # fmt: skip
    return table


@adapts("headscope.verify.translation.single:single_removal")
def single(given: Mapping[str, Any], scores: Any) -> Table:
    """`verify heads`: of each head the change of every sentence's NLL, by kind of ablation."""
    table = Table(given["config"].seed)
    at = table.condition("original")
    for part, of in scores.items():
        levels = []
        for replacement, name, values in (
            ("zero", "change", of.values), ("mean", "change_mean", of.extra["mean_ablation"])
        ):  # fmt: skip
            for head in of.geometry.heads():
                own = table.condition("selected", [head], k=1, gate=0.0, replacement=replacement)
                ends = {}
                if replacement == "zero":
                    ends = {"low": of.low[head.layer, head.head],
                            "high": of.high[head.layer, head.head],
                            "interval": "seed alone"}  # fmt: skip
                levels.append((own, values[head.layer, head.head], ends,
                               of.statistics[name][:, head.layer, head.head]))  # fmt: skip
        rows = {own: numbers for own, _, _, numbers in levels}
        table.count(part, "change of nll", "mean", "lower",
                    {at: np.zeros(len(levels[0][3])), **rows})  # fmt: skip
        for own, value, ends, _ in levels:
            table.level(part, own, "change of nll", value=value, **ends)
        mask = of.geometry.mask()
        for kind in KINDS_OF_TOKENS:
            table.details[f"{part}, {kind}"] = _plain(of.extra[kind][mask])
    return table


@adapts("headscope.studies.compare.formation:quality")
def formation(given: Mapping[str, Any], shown: Any) -> Table:
    """chrF++ of one checkpoint of `compare formation`."""
    from headscope.measure.metrics import chrf

    table = Table(given["score"].seed)
    at = table.condition("original")
    row = given["caller"]["row"]
    checkpoint = row.opened.checkpoint.name
    for pairs, made in zip(given["directions"], given["outputs"], strict=True):
        part = f"{pairs.source_language}-{pairs.target_language}, {checkpoint}"
        counts = chrf(made, [pair.target for pair in pairs.pairs]).statistics
        table.count(part, "chrf", "chrf", "higher", {at: counts})
    parts = list(table.parts)
    if len(parts) == 1:
        table.level(parts[0], at, "chrf", **_estimate(shown))
    else:
        table.details[checkpoint] = _estimate(shown)
    return table


# ---- failures, and experiments beside the papers -----------------------------------------------
@adapts("headscope.studies.verify.failures:_sorted")
def failures(given: Mapping[str, Any], shown: Any) -> Table:
    """`verify failures`: of each kind the share of the cases; "all" counts cases of all parts."""
    cases = [case for case in given["cases"] if case.selected or not given["selected_only"]]
    of_all = len(given["cases"]) == len(given["caller"]["cases"])
    name = given["caller"].get("name")
    part = "all" if of_all and name is None else name or "no direction"
    table = Table(0)
    table.condition("original")
    read = given["caller"]["read"]
    label = read.label
    at = table.condition(
        "selected", (read.subject.heads or ()) if read.subject else (), k=label.k, gate=label.gate,
        replacement=label.ablate, draw=label.draw,
    ) if label is not None else 0  # fmt: skip
    for kind, share in shown.shares.items():
        table.count(part, kind, "mean", "lower", {at: [float(case.kind == kind) for case in cases]})
        if share is not None:
            table.level(part, at, kind, value=share)
    table.details[part] = {"rows": shown.rows, "selected": shown.selected,
                           "counts": dict(shown.counts)}  # fmt: skip
    return table


def _told(against: Mapping[str, Any]) -> dict[str, Any]:
    """A comparison as experiments beside the papers write it."""
    ends = {key: against[key] for key in ("value", "low", "high")}
    names = {"p_sentences": "p_examples", "p_draws": "p_draws", "least_p": "least_p"}
    return {"difference": ends, **{new: against[old] for old, new in names.items()}}


@adapts("headscope.studies.verify.loss_experiments:tests")
def copying(given: Mapping[str, Any], rows: Any) -> Table:
    """The loss of copies and of references without heads."""
    planned, trials = given["planned"], given["measures"]
    table = Table(next(iter(trials.values())).groups[0].seed)
    places = _labelled(table, [each.label for each in planned], [each.heads for each in planned])
    names = list(given["caller"]["directions"])
    whole = "" if len(names) > 1 else names[0]
    better = {"preference": "higher"}
    for name, trial in trials.items():
        for part, group in zip(names, trial.groups, strict=True):
            own = dict(zip(places, (array[:, 0] for array in group.statistics), strict=True))
            table.count(part, name, "mean", better.get(name, "lower"), own)
        for number, at in enumerate(places):
            table.level(whole, at, name, value=float(trial.scores[number]))
    selected = [at for at, each in zip(places, planned, strict=True) if each.label.kind == "top"]
    for at, row in zip(selected, rows, strict=True):
        for name in trials:
            own = row[name]
            table.level(whole, 0, name, value=own["as_is"])
            table.level(whole, at, name, value=own["without"], change=own["change"])
            for ending, control in (("", "random"), ("_layer_matched", "same layers")):
                against = own.get(f"against_random{ending}")
                if against is not None:
                    random = own["random"] if control == "random" else None
                    side = "lower" if name == "preference" else "higher"
                    table.test(whole, at, name, control, side, _draws(table, at, control),
                               **_told(against), mean_of_draws=random)  # fmt: skip
    return table


@adapts("headscope.studies.verify.loss_experiments:copies_written")
def copies(given: Mapping[str, Any], rows: Any) -> Table:
    """Whether copies of the source are written without heads."""
    from headscope.studies.verify.loss_experiments import TextsWithout
    from safetensors.numpy import load_file

    from headscope.results.removal import BASELINE
    from headscope.runs import decode

    folder = given["folder"]
    result = decode(TextsWithout, json.loads((folder / "result.json").read_bytes()))
    kept = load_file(folder / "statistics.safetensors")
    table = Table(given["seed"])
    labels = [BASELINE, *(condition.label for condition in result.conditions)]
    sets = [(), *(condition.heads for condition in result.conditions)]
    places = _labelled(table, labels, sets)
    names = list(result.directions)
    for part in names:
        array = kept[f"{part}.source_copy"]
        table.count(part, "source_copy", "mean", "lower", dict(zip(places, array, strict=True)))
    whole = "" if len(names) > 1 else names[0]
    selected = [at for at in places if table.conditions[at]["kind"] == "selected"]
    selected = [at for at in selected if table.conditions[at]["gate"] == 0]
    for at, row in zip(selected, rows, strict=True):
        table.level(whole, 0, "source_copy", value=row["as_is"])
        table.level(whole, at, "source_copy", value=row["without"])
        table.test(whole, at, "source_copy", "random", "higher", _draws(table, at, "random"),
                   **_told(row["against_random"]), mean_of_draws=row["random"])  # fmt: skip
    return table


@adapts("headscope.verify.translation.single:interactions")
def interactions(given: Mapping[str, Any], result: Any) -> Table:
    """What two heads cost together less the sum of what each costs alone."""
    table = Table(given["seed"])
    original = table.condition("original")
    pairs = {table.condition("selected", pair, k=2, gate=0.0): pair for pair in given["chosen"]}
    drawn = {table.condition("random", pair, k=2, gate=0.0, draw=draw): pair
             for draw, pair in enumerate(given["random"])}  # fmt: skip
    places = {frozenset(own): at for at, own in enumerate(given["sets"])}
    for part, losses in given["directions"].items():
        mean = losses.sums.sum(axis=2) / losses.tokens.sum(axis=1)
        rows = {original: np.zeros_like(mean[0])}
        for at, (a, b) in {**pairs, **drawn}.items():
            alone = mean[places[frozenset([a])]] + mean[places[frozenset([b])]]
            rows[at] = mean[places[frozenset([a, b])]] + mean[0] - alone
        table.count(part, "interaction", "mean", "lower", rows)
    whole = "" if len(given["directions"]) > 1 else next(iter(given["directions"]))
    for at, row in zip(pairs, result["pairs"], strict=True):
        table.test(whole, at, "interaction", "original", "two-sided", [original],
                   difference=row["interaction"], p_examples=row["p_sentences"])  # fmt: skip
        table.test(whole, at, "interaction", "random", "two-sided", list(drawn),
                   p_draws=row["p_draws"], least_p=result["least_p"])  # fmt: skip
        table.details[" ".join(row["heads"])] = {
            key: row[key] for key in ("harms", "together", "p_holm")
        }  # fmt: skip
    for at, row in zip(drawn, result["random"], strict=True):
        table.level(whole, at, "interaction", value=row["interaction"])
    table.test(whole, list(pairs), "interaction", "random", "two-sided", list(drawn),
               difference=result["difference"])  # fmt: skip
    return table


@adapts("headscope.papers.trater.evidence:_differences")
def trained_on_mixtures(given: Mapping[str, Any], shown: Any) -> Table:
    """`pocket trater`: models trained on one mixture and on another, seed by seed."""
    from headscope.papers.trater.evidence import ANSWERED, _answered

    table, caller = Table(0), given["caller"]
    table.condition("original")
    mixtures = {id(own): mixture for own, mixture in
                zip(caller["measured"], caller["mixtures"], strict=True)}  # fmt: skip

    def place(mixture: Any) -> int:
        kind, _, drawn = mixture.kind.partition(" ")
        if kind == "baseline":
            return 0
        return table.condition("random" if drawn else "selected", of=kind, gate=None,
                               role=str(mixture.share))  # fmt: skip

    pairs = [[(place(mixtures[id(one)]), one) for one in pair] for pair in given["pairs"]]
    for pair in pairs:
        seed = f"seed {mixtures[id(pair[0][1])].seed}"
        for way in pair[0][1]["prompt"]["statistics"]:
            table.count(f"{seed}, {way}", "chrf_prompt", "chrf", "higher",
                        {at: one["prompt"]["statistics"][way] for at, one in pair})  # fmt: skip
        languages = list(pair[0][1]["document"]["shares"])
        for name, key in (("chrf_document", "scores"), ("gain", "per_text")):
            texts = {at: np.asarray(one["document"][key]).reshape(len(languages), -1)
                     for at, one in pair}  # fmt: skip
            for number, language in enumerate(languages):
                table.count(f"{seed}, {language}", name, "mean", "higher",
                            {at: own[number] for at, own in texts.items()})  # fmt: skip
        for name, tasks in ANSWERED.items():
            table.count(seed, name, "mean", "higher",
                        {at: [100.0 * right for right in _answered(one, tasks)[0]]
                         for at, one in pair})  # fmt: skip
    (at, _), (other, _) = pairs[0]
    for name in ("chrf_prompt", "chrf_document", "gain", *ANSWERED):
        ends = {key: shown[name][key] for key in ("value", "low", "high")}
        table.test("", at, name, table.conditions[other]["kind"], "two-sided", [other],
                   difference=ends)  # fmt: skip
        both = " minus ".join(mixtures[id(one)].kind for _, one in pairs[0])
        table.details[f"{name} by seed, {both}"] = _plain(shown[name]["by_seed"])
    return table


# ---- sets of heads -----------------------------------------------------------------------------
@adapts("headscope.measure.statistics:overlap")
def overlaps(given: Mapping[str, Any], shown: Any) -> Table:
    """How far two sets are the same, in every command that says so."""
    table = Table(0)
    table.overlaps = [
        {"a": sorted(map(str, given["a"])), "b": sorted(map(str, given["b"])),
         "total": given["total"], **{key: _plain(value) for key, value in vars(shown).items()}}
    ]  # fmt: skip
    return table


@adapts("headscope.studies.compare.masks:_base")
def base_masks(given: Mapping[str, Any], shown: Any) -> Table:
    """`compare masks --base`: an example is a task, and the overlap of its mask with its base's."""
    table = Table(0)
    at = table.condition("original")
    rows = {
        "jaccard": [pair.jaccard for pair in shown.pairs],
        "expected": [pair.expected for pair in shown.pairs],
        "expected_exact": [pair.expected_exact for pair in shown.pairs],
        "above_chance": [pair.jaccard - pair.expected_exact for pair in shown.pairs],
    }
    for name, own in rows.items():
        table.count("tasks", name, "mean", "higher", {at: own})
        mean = shown.above_chance if name == "above_chance" else shown.mean[name]
        _mean_level(table, "tasks", at, name, mean)
    return table


# ---- runs --------------------------------------------------------------------------------------
class Captured:
    """Calls of the functions that adapters know, as tables by run."""

    def __init__(self) -> None:
        self.tables: list[Table] = []

    def patch(self) -> None:
        """Put a recorder in the place of every function, wherever it was imported."""
        for place, adapter in ADAPTERS.items():
            module, _, name = place.partition(":")
            original = getattr(importlib.import_module(module), name)
            recorder = self._recorder(original, adapter)
            setattr(sys.modules[module], name, recorder)
            for other in list(sys.modules.values()):
                if getattr(other, "__name__", "").startswith("headscope"):
                    for key, value in list(vars(other).items()):
                        if value is original:
                            setattr(other, key, recorder)

    def _recorder(self, original: Callable[..., Any], adapter: Adapter) -> Callable[..., Any]:
        signature = inspect.signature(original)

        def recorder(*arguments: Any, **named: Any) -> Any:
            bound = signature.bind(*arguments, **named)
            bound.apply_defaults()
            result = original(*arguments, **named)
            frame = inspect.currentframe()
            assert frame is not None and frame.f_back is not None
            # A comprehension has a frame of its own.
            outer = frame.f_back.f_back.f_locals if frame.f_back.f_back else {}
            caller = {**outer, **frame.f_back.f_locals}
            table = adapter({**bound.arguments, "caller": caller}, result)
            if not (table.parts or table.details or table.overlaps):
                return result
            for held in self.tables:
                if not held.clashes(table):
                    held.add(table)
                    break
            else:
                self.tables.append(table)
            return result

        return recorder

    def take(self) -> list[Table]:
        """The tables since the last time."""
        taken, self.tables = self.tables, []
        return taken


def write(table: Table, file: Path, command: str, run: str) -> None:
    """A file with a line for each entry of what is long."""
    whole = table.as_dict(command, run)
    lines = []
    for key, value in whole.items():
        if isinstance(value, list) and value:
            inside = ",\n".join(json.dumps(row, ensure_ascii=False) for row in value)
            lines.append(f"{json.dumps(key)}: [\n{inside}\n]")
        elif key == "parts":
            inside = ",\n".join(
                f"{json.dumps(part)}: {{\n" + ",\n".join(
                    f"{json.dumps(name)}: {json.dumps(rows, separators=(',', ':'))}"
                    for name, rows in held.items()
                ) + "\n}"
                for part, held in value.items()
            )  # fmt: skip
            lines.append(f"{json.dumps(key)}: {{\n{inside}\n}}")
        else:
            lines.append(f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}")
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


def more_runs(run: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """What the runs of `command_runs` have not: doses, mean ablation, several tasks and pairs."""
    import find_helpers
    from command_runs import CommandRun, write_jsonl
    from loss_helpers import data

    tiny, pocket = Path("tiny"), Path("pocket")

    def made(folder: Path, to: str, name: str, *arguments: object) -> tuple[str, CommandRun]:
        said = run(*name.split(), *arguments, "--out", folder / to)
        assert said.code == 0, f"{to}: {said.err}"
        return folder.name, CommandRun(name, folder / to, said.out, tuple(map(str, arguments)))

    few = ("--draws", 2)
    yield made(pocket, "verify-removal-doses", "verify removal", "--pair", "en-de", "--heads",
               pocket / "find-translation-score", "--k", 2, "--k", 4, "--gate", 0, "--gate", 0.5,
               "--ablate", "zero", "--ablate", "mean", *few, "--limit", 3)  # fmt: skip
    group = pocket / "tasks" / "pocket_one_language.yaml"
    yield made(pocket, "verify-tasks-group", "verify tasks", "--task", group, "--heads", "5.3,5.1",
               *few)  # fmt: skip
    yield made(pocket, "verify-perplexity-named", "verify perplexity", "--heads", "5.3,5.1,4.3",
               "--ablate", "mean", "--limit", 2, *few)  # fmt: skip
    own = ("--model", tiny / "model")
    told = ("--held-out", 4, "--instruction", "Add three to {input}:")
    both = ("--heads", f"next={tiny / 'find-mask'}", "--heads", f"more={tiny / 'other'}",
            "--task", tiny / "next.json", "--task", tiny / "more.json", *told, *few,
            "--allow-overlap")  # fmt: skip
    yield made(tiny, "verify-mask-tasks", "verify mask", *own, *both, "--max-new-tokens", 3)
    yield made(tiny, "verify-families-tasks", "verify families", *own, *both)
    yield made(tiny, "verify-attention-tasks", "verify attention", *own, *both)
    statements = [
        {"a": a, "b": b, "prompt": f"It is {answer}. Is it?", "answers_a": answer,
         "answers_b": other, "id": str(at)}
        for at, (a, b, answer, other) in enumerate([
            ("de", "en", "red", "blue"), ("en", "de", "green", "red"), ("de", "en", "a", "b"),
        ])
    ]  # fmt: skip
    write_jsonl(tiny / "both.jsonl", statements)
    yield made(tiny, "verify-transfer-pairs", "verify transfer", *own, "--heads",
               tiny / "find-lahis", "--data", tiny / "both.jsonl", "--k", 1, *few,
               "--max-new-tokens", 3)  # fmt: skip
    yield made(tiny, "verify-one-by-one-pairs", "verify one-by-one", *own, "--heads", "0.1,1.2",
               "--data", tiny / "pairs.tsv", "--pair", "en-de", "--examples", 2,
               "--max-new-tokens", 3)  # fmt: skip
    yield made(pocket, "atlas-pairs", "atlas", "pocket", "--pair", "en-de", "--pair", "de-tr",
               "--limit", 6, "--check", 3, "--draws", 3)  # fmt: skip
    yield made(pocket, "verify-removal-single", "verify removal", "--pair", "en-de", "--heads",
               "5.3,5.1", "--measure", "text", "--measure", "loss", *few, "--limit", 1)  # fmt: skip
    yield made(pocket, "verify-layers", "verify layers", "--heads", pocket / "find-lahis",
               "--limit", 2, *few)  # fmt: skip
    text = (pocket / "tasks" / "pocket_repeat_generated.yaml").read_text("utf-8")
    text = text.replace("task: pocket_repeat_generated", "task: repeat_bleu")
    (pocket / "tasks" / "repeat_bleu.yaml").write_text(
        text.replace("  - metric: exact_match\n    aggregation: mean\n",
                     "  - metric: bleu\n    aggregation: bleu\n"), "utf-8"
    )  # fmt: skip
    yield made(pocket, "verify-tasks-bleu", "verify tasks", "--task",
               pocket / "tasks" / "repeat_bleu.yaml", "--heads", "5.3,5.1", *few)  # fmt: skip
    yield made(tiny, "compare-masks-base", "compare masks", tiny / "find-mask", tiny / "other",
               "--base", tiny / "other")  # fmt: skip
    lm = find_helpers.wrapped("pocket-like")
    lm.model.save_pretrained(tiny / "pocket-like")
    lm.tokenizer.save_pretrained(tiny / "pocket-like")
    files = [f"{way}={data(tiny, way, 14)}" for way in ("en-de", "de-en")]
    yield made(tiny, "beside", "reproduce", "beside", "--model", tiny / "pocket-like", "--pairs",
               files[0], "--pairs", files[1], "--draws", 3, "--only", "pairs", "--only",
               "copying")  # fmt: skip


def all_runs() -> Iterator[tuple[str, Any]]:
    """All runs, in a folder that is removed, each with its kind."""
    import contextlib
    import io
    import os
    import tempfile

    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from command_runs import pocket_runs, tiny_runs
    from conftest import Said
    from headscope.cli import main

    def run(*arguments: object) -> Said:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main([str(one) for one in arguments])
        return Said(code, out.getvalue(), err.getvalue())

    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for kind, made in (("tiny", tiny_runs), ("pocket", pocket_runs)):
            Path(kind).mkdir()
            for each in made(Path(kind), run):
                yield kind, each
        yield from more_runs(run)


def make() -> None:
    """Carry out all runs and write what they compared."""
    captured = Captured()
    captured.patch()
    FROZEN.mkdir(exist_ok=True)
    for kind, made in all_runs():
        for number, table in enumerate(captured.take()):
            ending = f"-{number + 1}" if number else ""
            name = f"{made.folder.name}-{kind}{ending}.json"
            if made.folder.name == "beside":  # its overlaps are of fits of eflomal, without a seed
                table.overlaps.clear()
            write(table, FROZEN / name, made.command, " ".join(made.arguments))
            several = {"levels": table.levels, "tests": table.tests, "overlaps": table.overlaps}
            about = ", ".join(f"{len(rows)} {what}" for what, rows in several.items())
            print(f"{name}: {about}", flush=True)


#: Of rows, what is no result or follows from others.
FOLLOWS = ("condition", "against", "total", "mean_of_draws", "range_of_draws", "changes_of_draws")


def check(names: Sequence[str]) -> int:
    """Carry out the runs and print what their results lack; the exit code is 1 if any does."""
    from test_frozen import CHANGED

    worst = 0
    for kind, made in all_runs():
        for file in sorted(FROZEN.glob(f"{made.folder.name}-{kind}*.json")):
            if names and not file.name.startswith(tuple(names)):
                continue
            held = json.loads(file.read_text("utf-8"))
            rows = {
                what: [
                    {key: value for key, value in row.items() if key not in (*FOLLOWS, *CHANGED)}
                    for row in held[what]
                ]
                for what in ("levels", "tests", "overlaps")
            }
            # A paper's steps are runs of their own.
            results = [json.loads(path.read_text("utf-8"))
                       for path in sorted(made.folder.glob("**/result.json"))]  # fmt: skip
            lost = [row for row in missing_numbers(rows, results) if not row.new]
            print(f"{file.stem}: {len(lost)} of {sum(1 for _ in numbers(rows))} numbers lost")
            for row in lost:
                what, _, at = row.old[0].partition("[")
                about = held[what][int(at.partition("]")[0])]
                words = [about.get("part"), about.get("statistic"), about.get("control")]
                condition = about.get("condition")
                if isinstance(condition, int):
                    of = held["conditions"][condition]
                    words.append(" ".join(str(of[key]) for key in ("kind", "of", "k", "draw")))
                print(f"  {row.number:<14.9g} {row.old[0]}: {', '.join(filter(None, words))}")
            worst = max(worst, int(bool(lost)))
    return worst


def _main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="what", required=True)
    commands.add_parser("make")
    commands.add_parser("figures").add_argument("result")
    compare = commands.add_parser("compare")
    compare.add_argument("old")
    compare.add_argument("new")
    compare.add_argument("--within", type=float, default=1e-5)
    commands.add_parser("check").add_argument("name", nargs="*")
    given = parser.parse_args()
    if given.what == "check":
        return check(given.name)
    if given.what == "compare":
        return _compare(given.old, given.new, given.within)
    if given.what == "figures":
        shown = figures(json.loads(Path(given.result).read_text("utf-8")))
        of = shown.pop("experiments")
        lines = [
            f"{json.dumps(key)}: {json.dumps(shown[key], ensure_ascii=False)}" for key in shown
        ]
        rows = ",\n".join(
            f"{json.dumps(name)}: {json.dumps(own, ensure_ascii=False, separators=(',', ':'))}"
            for name, own in of.items()
        )
        print("{\n" + ",\n".join([*lines, f'"experiments": {{\n{rows}\n}}']) + "\n}")
    else:
        make()
    return 0


if __name__ == "__main__":
    sys.exit(_main())
