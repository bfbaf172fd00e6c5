"""Today's numbers, kept while names and shapes change; deleted with the result types it reads.

`python tests/frozen.py make [COMMAND …]` carries out the runs of `command_runs` and writes
`data/frozen`: per-example numbers of every comparison, and the levels and tests that the code
computes from them. `tests/test_frozen.py` says what the files hold, and computes them again.

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
#: Keys whose values tell about the machine or the moment, or repeat numbers as text.
PASSING = {"seconds", "seconds_a_step", "tokens_per_second", "software", "terminal", "page"}


def numbers(value: Any, place: str = "") -> Iterator[tuple[str, float]]:
    """Every number of a JSON value with its place, such as `conditions[3].change.low`."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            if key not in PASSING:
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
    total = sum(1 for _ in numbers(before))
    print(
        f"{total} numbers before, {sum(1 for _ in numbers(after))} now; {len(lost)} different ones "
        f"are held nowhere, {len(rows) - len(lost)} less often"
    )
    return 1 if lost else 0


# ---- tables of per-example numbers -------------------------------------------------------------
REPLACED = {"zero": "zero", "mean": "mean"}
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

    def condition(
        self,
        kind: str,
        heads: Iterable[Any] = (),
        *,
        of: str = "",
        k: int = 0,
        gate: float = 1.0,
        replacement: str = "zero",
        draw: int | None = None,
        **more: Any,
    ) -> int:
        """The place of a condition, which is added where it is new."""
        row = {
            "kind": KINDS.get(kind, kind),
            "of": of,
            "k": k,
            "gate": _plain(float(gate)),
            "replacement": replacement,
            "draw": draw,
            "heads": sorted(map(str, heads)),
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
        self.levels.append(row | {key: _plain(value) for key, value in numbers.items()
                                  if value is not None})  # fmt: skip

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
        self.tests.append(row | {key: _plain(value) for key, value in numbers.items()
                                 if value is not None})  # fmt: skip

    def holds(self, other: Table) -> bool:
        """Whether a statistic of a part is in both."""
        return any(
            statistic in self.parts.get(part, {})
            for part, held in other.parts.items()
            for statistic in held
        )

    def add(self, other: Table) -> None:
        """Take over what another table of the same run holds."""
        assert (self.seed, self.by_size) == (other.seed, other.by_size)
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
                by_place = dict(zip(places, rows, strict=True))
                self.parts.setdefault(part, {})[statistic] = [
                    by_place.get(at) for at in range(len(self.conditions))
                ]
        self.levels += [{**row, "condition": moved(row["condition"])} for row in other.levels]
        self.tests += [
            {**row, "condition": moved(row["condition"]), "against": moved(row["against"])}
            for row in other.tests
        ]

    def as_dict(self, command: str, run: str) -> dict[str, Any]:
        """As a file holds it."""
        several = len(self.conditions)
        parts = {
            part: {key: [*rows, *[None] * (several - len(rows))] for key, rows in held.items()}
            for part, held in self.parts.items()
        }
        return {"command": command, "run": run, **vars(self), "parts": parts}


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
            table = adapter(bound.arguments, result)
            for held in self.tables:
                if not held.holds(table) and (held.seed, held.by_size) == (
                    table.seed, table.by_size
                ):  # fmt: skip
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


def make() -> None:
    """Carry out all runs and write what they compared."""
    import contextlib
    import io
    import os
    import tempfile

    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from command_runs import CommandRun, pocket_runs, tiny_runs
    from conftest import Said
    from headscope.cli import main

    captured = Captured()
    captured.patch()

    def run(*arguments: object) -> Said:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main([str(one) for one in arguments])
        return Said(code, out.getvalue(), err.getvalue())

    def runs() -> Iterator[tuple[str, CommandRun]]:
        for kind, made in (("tiny", tiny_runs), ("pocket", pocket_runs)):
            Path(kind).mkdir()
            for each in made(Path(kind), run):
                yield kind, each

    FROZEN.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for kind, made in runs():
            for number, table in enumerate(captured.take()):
                ending = f"-{number + 1}" if number else ""
                name = f"{made.folder.name}-{kind}{ending}.json"
                write(table, FROZEN / name, made.command, " ".join(made.arguments))
                levels, tests = len(table.levels), len(table.tests)
                print(f"{name}: {levels} levels, {tests} tests", flush=True)


def _main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="what", required=True)
    commands.add_parser("make")
    compare = commands.add_parser("compare")
    compare.add_argument("old")
    compare.add_argument("new")
    compare.add_argument("--within", type=float, default=1e-5)
    given = parser.parse_args()
    if given.what == "compare":
        return _compare(given.old, given.new, given.within)
    make()
    return 0


if __name__ == "__main__":
    sys.exit(_main())
