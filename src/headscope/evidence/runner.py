"""Runs a model under conditions, and keeps what it did on every example.

Work is divided into units, each a condition on some examples. A unit is kept as soon as it is
computed, so that a run that was stopped goes on there, and workers compute units side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

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
#: What stands in the place of removed heads, by the kind of ablation.
Replacements: TypeAlias = "Mapping[str, Replacement | None]"
ZERO: Replacements = MappingProxyType({"zero": None})
#: Told how much of the unit that is being computed is done, of its size.
Within = Callable[[float], None]

#: Texts that are written and kept together: what a killed run can lose.
KEPT_AT_ONCE = 512


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


def kept_units(
    run: Run,
    part: str,
    title: str,
    units: Mapping[str, int],
    compute: Callable[[Sequence[str], Within], Iterable[tuple[str, Any]]],
    progress: Progress | None = None,
) -> Kept:
    """What `compute` makes of every unit, by name, kept in a part of the run.

    `units` are names with their sizes; equal names are equal work. `compute` gets the names that
    are left and what it tells within a unit, and gives each with its numbers as JSON.
    """
    kept = Kept(run, part)

    def left() -> list[str]:
        return [name for name in units if name not in kept]

    total = sum(units.values())
    done = total - sum(units[name] for name in left())

    def within(some: float) -> None:
        if progress:
            progress(title, round(done + some), total)

    report = further(progress, title, done, total)
    with run.units(part, left, kept.reread, report, units.__getitem__) as mine:
        for name, numbers in compute(mine, within):
            kept.add(name, numbers)
            done += units[name]
            within(0)
    return kept


@dataclass(frozen=True, eq=False)
class Pass:
    """A gate, and the prompts to be continued under it by their place (see `kept_texts`).

    `replacement` stands in the place of what the gate removes; None: zero. Passes of several rounds
    (see `Condition`) are not computed together.
    """

    gate: Gate
    rows: Sequence[int]
    replacement: Replacement | None = None
    round: int = 0

    def applied(self, lm: LanguageModel) -> AbstractContextManager[None]:
        """The model under the gate."""
        return lm.gated(self.gate, self.replacement)


def pass_of(
    condition: Condition,
    geometry: Geometry,
    rows: Sequence[int],
    replacements: Replacements = ZERO,
) -> Pass:
    """A condition on prompts by their place."""
    heads = condition.in_model(geometry)
    gate = heads.scaled(1.0 if condition.gate is None else condition.gate)
    return Pass(gate, rows, replacements[condition.replacement], condition.round)


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

    Some hundred texts are written together, each under the gate of its pass. What is written
    together follows from the arguments alone. `limits` are the new tokens of each prompt. Keys of
    passes must say all that decides a pass. `special`: whether the tokenizer adds its special
    tokens.
    """
    units = {unit[0].name: unit for unit in _units(_blocks(passes, lambda at: len(prompts[at])))}

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
                progress=lambda ended, _: within(ended),
            )
            yield name, [generation.text for generation in made]

    sizes = {name: sum(len(block.rows) for block in unit) for name, unit in units.items()}
    kept = kept_units(run, "outputs", title, sizes, write, progress)
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
) -> dict[str, dict[int, Made]]:
    """What `compute` makes of the rows of every pass, inside of it: by pass and row."""
    blocks = {block.name: block for block in _blocks(passes)}

    def rows(mine: Sequence[str], within: Within) -> Iterator[tuple[str, Sequence[Made]]]:
        for name in mine:
            with blocks[name].gated.applied(lm):
                yield name, compute(blocks[name].rows)

    sizes = {name: len(block.rows) for name, block in blocks.items()}
    kept = kept_units(run, part, title, sizes, rows, progress)
    made: dict[str, dict[int, Made]] = {key: {} for key in passes}
    for name, block in blocks.items():
        made[block.key].update(zip(block.rows, kept[name], strict=True))
    return made


@dataclass(frozen=True, eq=False)
class _Block:
    """Rows of a pass that are computed together, under a name."""

    key: str
    name: str
    gated: Pass
    rows: Sequence[int]


def _blocks(
    passes: Mapping[str, Pass], size: Callable[[int], int] = lambda at: 0
) -> Iterator[_Block]:
    """Some hundred rows of a pass each, by their size; round by round."""
    for key, gated in sorted(passes.items(), key=lambda item: item[1].round):
        rows = sorted(gated.rows, key=lambda at: (size(at), at))
        for place, start in enumerate(range(0, len(rows), KEPT_AT_ONCE)):
            yield _Block(key, f"{place} {key}", gated, rows[start : start + KEPT_AT_ONCE])


def _units(blocks: Iterable[_Block]) -> Iterator[list[_Block]]:
    """Blocks that are computed together: as many of a round as fit, with the same in place of what
    gates remove."""
    unit: list[_Block] = []
    for block in blocks:
        size = sum(len(waiting.rows) for waiting in unit) + len(block.rows)
        other = bool(unit) and (
            unit[0].gated.replacement is not block.gated.replacement
            or unit[0].gated.round != block.gated.round
        )
        if unit and (size > KEPT_AT_ONCE or other):
            yield unit
            unit = []
        unit.append(block)
    if unit:
        yield unit
