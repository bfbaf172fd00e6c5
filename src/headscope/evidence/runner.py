"""Runs a model under conditions, and keeps what it did on every example.

Work is divided into units, each a condition on some examples. A unit is kept as soon as it is
computed, so that a run that was stopped goes on there, and workers compute units side by side.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from headscope.data.prompts import Prompt, Template, translation_prompts
from headscope.evidence.rows import Condition
from headscope.heads import Gate, Geometry
from headscope.progress import Progress, further
from headscope.runs import Kept, Run

if TYPE_CHECKING:
    from headscope.data.pairs import PairFile
    from headscope.lm import LanguageModel
    from headscope.lm.generation import GenerateConfig
    from headscope.lm.replacement import Replacement

Made = TypeVar("Made")
Decides = TypeVar("Decides")
#: What stands in the place of removed heads, by the kind of ablation.
Replacements: TypeAlias = "Mapping[str, Replacement | None]"
ZERO: Replacements = MappingProxyType({"zero": None})

#: Texts that are written and kept together: what a killed run can lose.
KEPT_AT_ONCE = 512
#: Operations of a batch on a CPU, and of texts that are written together: some seconds of a core.
OF_BATCH, OF_TEXTS = 1e12, 3e12
#: Seconds after which rows of a unit are kept before all of it is computed.
KEPT_EVERY = 10.0
#: Characters of a token, for a guess at how long texts are.
SIGNS = 4


def prompts_of(
    lm: LanguageModel, pairs: PairFile, template: Template, chat: bool | None
) -> list[Prompt]:
    """The prompt of every pair as this model reads it, up to where the target begins."""
    from headscope.lm.prompting import chat_writer

    writer = chat_writer(lm, chat, template.text)
    return translation_prompts(pairs, template, writer, lm.tokenizer.bos_token or "")


def room_for(lm: LanguageModel, text: str) -> int:
    """The most new tokens of an answer as long as a text, such as a translation of it."""
    return 2 * len(lm.encode(text, special=False)) + 32


class Within:
    """What the computing of a unit says of how far it is, and keeps of it.

    Rows of a unit that are kept are there after a kill, so that less than a unit is computed again.

    Attributes:
        report: told how much of a unit is done, of its size.
        reached: the same, where what is done of a unit says how long the rest takes.
    """

    def __init__(
        self,
        run: Run,
        part: str,
        report: Callable[[float], None],
        reached: Callable[[float], None],
    ) -> None:
        self._run, self._part = run, f"{part}, begun"
        self.report, self.reached = report, reached
        self._rows: dict[str, dict[str, Any]] = {}
        for record in run.read_part(self._part).values():
            self._rows.setdefault(record["unit"], {}).update(record["rows"])
        self._waiting: dict[str, Any] = {}
        self._since = time.monotonic()

    def kept(self, unit: str) -> dict[str, Any]:
        """The rows of a unit that are there, by name."""
        return self._rows.get(unit, {})

    def keep(self, unit: str, rows: Mapping[str, Any]) -> None:
        """Keep these rows of a unit, unless the unit is done within seconds."""
        self._waiting.update(rows)
        if time.monotonic() - self._since > KEPT_EVERY:
            record = {"unit": unit, "rows": self._waiting}
            self._run.append_part(self._part, f"{unit} {next(iter(self._waiting))}", record)
            self.begin()

    def begin(self) -> None:
        """Nothing waits to be kept from here on."""
        self._waiting, self._since = {}, time.monotonic()


class KeptBatches:
    """What keeps batches of rows under gates of these names (`headscope.lm.batching.Batches`).

    `lengths` are those of the rows, by which they share the `size` that all have under one gate.
    """

    def __init__(
        self, within: Within, gates: Sequence[str], lengths: Sequence[int], size: float
    ) -> None:
        self.within, self.gates, self.lengths = within, gates, lengths
        self.share = size / max(1, sum(lengths))
        self.begin("")

    def begin(self, unit: str) -> None:
        """Batches are of this unit from here on."""
        self.unit, self.done = unit, 0.0

    def kept(self, rows: Sequence[tuple[int, int]]) -> list[Any] | None:
        """See `headscope.lm.batching.Batches`."""
        known, names = self.within.kept(self.unit), self._names(rows)
        if not known.keys() >= {*names}:
            return None
        self._read(rows)
        return [known[name] for name in names]

    def keep(self, rows: Sequence[tuple[int, int]], made: Sequence[Any]) -> None:
        """See `headscope.lm.batching.Batches`."""
        self.within.keep(self.unit, dict(zip(self._names(rows), made, strict=True)))
        self._read(rows)
        self.within.reached(self.done)

    def _read(self, rows: Sequence[tuple[int, int]]) -> None:
        self.done += self.share * sum(self.lengths[row] for _, row in rows)

    def _names(self, rows: Sequence[tuple[int, int]]) -> list[str]:
        return [f"{self.gates[gate]} {row}" for gate, row in rows]


def kept_units(
    run: Run,
    part: str,
    title: str,
    units: Mapping[str, int],
    compute: Callable[[Sequence[str], Within], Iterable[tuple[str, Any]]],
    progress: Progress | None = None,
    of: Callable[[str], Any] | None = None,
) -> Kept:
    """What `compute` makes of every unit, by name, kept in a part of the run.

    `units` are names with their sizes; equal names are equal work. `compute` gets the names that
    are left and what it tells within a unit, and gives each with its numbers as JSON. `of` says of
    a unit all that its numbers follow from beside the model, as JSON, so that they are taken from
    beside the runs where another run has left them there; None: they are this run's alone.
    """
    kept, digests = Kept(run, part), dict[str, str]()
    if run.beside is not None and of is not None:
        for name in units:
            if name not in kept and (run.share is None or (part, name) in run.share.units):
                digests[name] = run.beside.digest(part, of(name))
                if (numbers := run.beside.read(digests[name])) is not None:
                    kept.add(name, numbers)

    def left() -> list[str]:
        return [name for name in units if name not in kept]

    total = sum(units.values())
    done = total - sum(units[name] for name in left())

    def report(some: float) -> None:
        if progress:
            progress(title, round(done + some), total)

    def reached(some: float) -> None:
        report(some)
        if run.pace is not None:
            run.pace.reached(done + some)

    within = Within(run, part, report, reached)
    of_workers = further(progress, title, done, total)
    with run.units(part, left, kept.reread, of_workers, units.__getitem__) as mine:
        if mine:
            report(0)
            if run.pace is not None:
                run.pace.begin(title, done, total)
        for name, numbers in compute(mine, within):
            kept.add(name, numbers)
            if run.beside is not None and name in digests:
                run.beside.write(digests[name], numbers)
            done += units[name]
            within.begin()
            reached(0)
    return kept


def kept_here(run: Run, part: str, name: str, compute: Callable[[], Any], of: Any) -> Any:
    """What `compute` makes of one unit, kept as by `kept_units`; it is computed in this process,
    whatever workers there are. `of` says all that decides it beside the model; None: this run's
    alone."""
    kept, key = Kept(run, part), None
    if name in kept:
        return kept[name]
    if run.beside is not None and of is not None:
        key = run.beside.digest(part, of)
        if (numbers := run.beside.read(key)) is not None:
            kept.add(name, numbers)
            return numbers
    kept.add(name, compute())
    if run.beside is not None and key is not None:
        run.beside.write(key, kept[name])
    return kept[name]


def rows_at_once(lm: LanguageModel, tokens: float, most: int, operations: float = OF_BATCH) -> int:
    """How many rows of so many tokens are computed together, at most: on a CPU those of some
    seconds, so that no more is lost with a process."""
    if lm.device.type != "cpu":
        return most
    return max(1, min(most, int(operations / (2 * lm.parameters * max(1.0, tokens)))))


@dataclass(frozen=True, eq=False)
class Pass:
    """A gate, and the prompts to be continued under it by their place (see `kept_texts`).

    `replacement` stands in the place of what the gate removes; None: zero. Passes are computed with
    those that have the same `together` alone (see `Condition`).
    """

    gate: Gate
    rows: Sequence[int]
    replacement: Replacement | None = None
    together: str = ""

    def applied(self, lm: LanguageModel) -> AbstractContextManager[None]:
        """The model under the gate."""
        return lm.gated(self.gate, self.replacement)

    @property
    def decides(self) -> list[Any]:
        """What decides all that a model does in it beside the rows, as JSON."""
        values = np.ascontiguousarray(self.gate.values)
        replaced = self.replacement and self.replacement.digest
        return [hashlib.sha256(values.tobytes()).hexdigest(), values.shape, replaced]


def pass_of(
    condition: Condition,
    geometry: Geometry,
    rows: Sequence[int],
    replacements: Replacements = ZERO,
) -> Pass:
    """A condition on prompts by their place."""
    heads = condition.in_model(geometry)
    gate = heads.scaled(1.0 if condition.gate is None else condition.gate)
    return Pass(gate, rows, replacements[condition.replacement], condition.together)


def passes_of(
    conditions: Iterable[Condition],
    geometry: Geometry,
    rows: Sequence[int],
    replacements: Replacements = ZERO,
) -> dict[str, Pass]:
    """The different gates of conditions by key, each as of the first that has it, on prompts by
    their place."""
    first: dict[str, Condition] = {}
    for condition in conditions:
        first.setdefault(condition.key, condition)
    return {key: pass_of(each, geometry, rows, replacements) for key, each in first.items()}


def in_groups(passes: Mapping[str, Pass]) -> dict[str, list[str]]:
    """The keys of passes that may be computed together, in the order of their first ones."""
    groups: dict[str, list[str]] = {}
    for key, gated in passes.items():
        groups.setdefault(gated.together, []).append(key)
    return groups


def kept_texts(
    lm: LanguageModel,
    prompts: Sequence[str],
    limits: Sequence[int],
    passes: Mapping[str, Pass],
    settings: GenerateConfig,
    run: Run,
    title: str,
    progress: Progress | None = None,
    special: bool = True,
) -> dict[str, dict[int, str]]:
    """Greedy continuations of prompts in every pass: texts by pass and place of the prompt.

    Some hundred texts are written together, each under the gate of its pass; on a CPU as many as
    take some seconds. What is written together follows from the arguments and the kind of device.
    `limits` are the new tokens of each prompt. Keys of passes must say all that decides a pass.
    `special`: whether the tokenizer adds its special tokens.
    """
    # Most texts end at half of what they may have.
    tokens = sum(map(len, prompts)) / SIGNS + sum(limits) / 2
    most = rows_at_once(lm, tokens / max(1, len(prompts)), KEPT_AT_ONCE, OF_TEXTS)
    # Where a unit begins and its length are what is in it, also where others fit a device.
    units = {
        f"{sum(len(block.rows) for block in unit)} from {unit[0].name}": unit
        for unit in _units(_blocks(passes, most, lambda at: len(prompts[at])), most)
    }

    def write(mine: Sequence[str], within: Within) -> Iterator[tuple[str, list[str]]]:
        for name in mine:
            rows = [(block.gated.gate, at) for block in units[name] for at in block.rows]
            made = lm.generate(
                [prompts[at] for _, at in rows],
                settings,
                [limits[at] for _, at in rows],
                special=special,
                gates=[gate for gate, _ in rows],
                replacement=units[name][0].gated.replacement,
                progress=lambda ended, _: within.report(ended),
            )
            yield name, [generation.text for generation in made]

    def decides(name: str) -> Any:
        rows = [[prompts[at], limits[at]] for block in units[name] for at in block.rows]
        gates = [[block.gated.decides, len(block.rows)] for block in units[name]]
        return {"texts": rows, "gates": gates, "settings": settings, "special": special}

    sizes = {name: sum(len(block.rows) for block in unit) for name, unit in units.items()}
    kept = kept_units(run, "outputs", title, sizes, write, progress, alone(lm, decides))
    texts: dict[str, dict[int, str]] = {key: {} for key in passes}
    for name, unit in units.items():
        places = [(block.key, at) for block in unit for at in block.rows]
        for (key, at), text in zip(places, kept[name], strict=True):
            texts[key][at] = text
    return texts


def kept_rows(
    lm: LanguageModel,
    passes: Mapping[str, Pass],
    compute: Callable[[Sequence[int]], Sequence[Made]],
    run: Run,
    part: str,
    title: str,
    progress: Progress | None = None,
    of: Callable[[Sequence[int]], Any] | None = None,
) -> dict[str, dict[int, Made]]:
    """What `compute` makes of the rows of every pass, inside of it: by pass and row.

    `of` says of rows all that decides what is made of them beside the model and the gate.
    """
    blocks = {block.name: block for block in _blocks(passes)}

    def rows(mine: Sequence[str], within: Within) -> Iterator[tuple[str, Sequence[Made]]]:
        for name in mine:
            with blocks[name].gated.applied(lm):
                yield name, compute(blocks[name].rows)

    def decides(name: str) -> Any:
        assert of is not None
        return [of(blocks[name].rows), blocks[name].gated.decides]

    sizes = {name: len(block.rows) for name, block in blocks.items()}
    known = of and alone(lm, decides)
    kept = kept_units(run, part, title, sizes, rows, progress, known)
    made: dict[str, dict[int, Made]] = {key: {} for key in passes}
    for name, block in blocks.items():
        made[block.key].update(zip(block.rows, kept[name], strict=True))
    return made


def alone(lm: LanguageModel, decides: Decides) -> Decides | None:
    """What decides units, unless something else is put on the model, of which it does not tell."""
    from headscope.lm.owners import is_open

    return None if is_open(lm.model) else decides


@dataclass(frozen=True, eq=False)
class _Block:
    """Rows of a pass that are computed together, under a name."""

    key: str
    name: str
    gated: Pass
    rows: Sequence[int]


def _blocks(
    passes: Mapping[str, Pass],
    most: int = KEPT_AT_ONCE,
    size: Callable[[int], int] = lambda at: 0,
) -> Iterator[_Block]:
    """So many rows of a pass each at most, by their size; group by group."""
    for key in chain.from_iterable(in_groups(passes).values()):
        rows = sorted(passes[key].rows, key=lambda at: (size(at), at))
        for start in range(0, len(rows), most):
            yield _Block(key, f"{start} {key}", passes[key], rows[start : start + most])


def _units(blocks: Iterable[_Block], most: int = KEPT_AT_ONCE) -> Iterator[list[_Block]]:
    """Blocks that are computed together: as many of a group as fit, with the same in place of what
    gates remove."""
    unit: list[_Block] = []
    for block in blocks:
        size = sum(len(waiting.rows) for waiting in unit) + len(block.rows)
        other = bool(unit) and (
            unit[0].gated.replacement is not block.gated.replacement
            or unit[0].gated.together != block.gated.together
        )
        if unit and (size > most or other):
            yield unit
            unit = []
        unit.append(block)
    if unit:
        yield unit
