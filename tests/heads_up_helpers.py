"""Settings and made-up results for the tests of Heads Up! as a recipe."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass, replace
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import paper_helpers
from headscope.evidence.rows import Condition, Level
from headscope.heads import Geometry
from headscope.papers.claims import claims_of
from headscope.papers.heads_up.paper import PAPER
from headscope.papers.paper import PaperData, Setting
from headscope.papers.plan import make_plan
from headscope.results.attention import AttentionResult
from headscope.results.mask import FoundMask
from headscope.results.masked_tasks import FamilyTests, MaskTests, ScalingTests
from headscope.results.masks import MasksResult
from headscope.results.one_by_one import OneByOneResult
from headscope.results.states import ComparedStates
from headscope.runs import codec, encode
from headscope.shown.blocks import Cell, Findings, Table
from headscope.verify.masked_tasks.evidence import STATISTICS
from paper_helpers import INSTRUCTED, Row, around, evidence

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
LLAMA_HEADS = Geometry.uniform(32, 32)
EXPERIMENTS = {one.name: one for one in PAPER.experiments}
WORDS = (
    "sentiment",
    "antonym",
    "capitalize_first_letter",
    "product-company",
    "conll2003_location",
    "fruit_v_animal_3",
    "synonym",
    "adjective_v_verb_3",
)
#: The results of steps, by how their names begin.
KINDS: Mapping[str, Any] = {
    "masks": MasksResult,
    "mask": FoundMask,
    "families": FamilyTests,
    "states": ComparedStates,
    "walk": OneByOneResult,
    "attention": AttentionResult,
    "scaling": ScalingTests,
}


def pocket_setting(folder: Path) -> Setting:
    """The bundled model with its own data."""
    return paper_helpers.setting_of(folder)


def llama_setting(folder: Path) -> Setting:
    """The paper's model, with sentence pairs, task files and another model."""
    tasks = folder / "tasks"
    tasks.mkdir()
    for name in WORDS:
        (tasks / f"{name}.json").write_text("[]", encoding="utf-8")
    data = PaperData(
        pairs=("en-de=xnli/en-de.tsv", "de-en=xnli/de-en.tsv"),
        tasks=(str(tasks),),
        others=("meta-llama/Llama-3.1-8B",),
    )
    return paper_helpers.setting_of(folder / "run", LLAMA, data=data)


def whole(kind: Any, given: Any = None) -> Any:
    """What is given, with something for every field that a result of this kind must have."""
    origin, parts = get_origin(kind), get_args(kind)
    if NoneType in parts:
        return None if given is None else whole(parts[0], given)
    if is_dataclass(kind) and (given is None or isinstance(given, Mapping)):
        made, hints = dict(given or {}), get_type_hints(kind)
        for field in fields(kind):
            hint, how = hints[field.name], codec._how(field)
            if how.flat == "" and NoneType not in get_args(hint):
                made |= whole(hint, made)
            elif how.flat is None and ((name := how.name or field.name) in made or _needed(field)):
                made[name] = whole(hint, made.get(name))
        return made
    if origin is tuple and parts[1:] == (...,):
        return [whole(parts[0], each) for each in given or ()]
    if isinstance(given, Mapping) and len(parts) == 2:
        return {name: whole(parts[1], each) for name, each in given.items()}
    if given is not None:
        return given
    return parts[0] if origin is Literal else {} if origin else kind()


def _needed(field: Any) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def put(setting: Setting, step: str, result: Mapping[str, Any]) -> Path:
    """A finished run with this result; its folder."""
    kind = next((KINDS[name] for name in KINDS if step.startswith(name)), MaskTests)
    return paper_helpers.put(setting, step, whole(kind, result))


def put_samples(
    setting: Setting, step: str, task: str, rows: list[tuple[str, str, str, str]]
) -> Path:
    """What models wrote in a run: kind of condition, input, reference, output."""
    file = setting.at(step) / "samples" / f"{task}.jsonl"
    file.parent.mkdir(parents=True)
    names = ("kind", "input", "reference", "output")
    lines = (json.dumps({**dict(zip(names, row, strict=True)), "of": ""}) + "\n" for row in rows)
    file.write_text("".join(lines), encoding="utf-8")
    return file


OWN = Condition("selected", "own mask", 3, 0.0, heads=("0.0", "0.1", "0.2"))
FOREIGN = replace(OWN, kind="foreign", draw=0)


def made(
    original: float | None = None,
    selected: float | None = None,
    random: float | None = None,
    reference: float | None = None,
    half: float = 0.1,
    p_draws: float = 0.01,
    least_p: float = 0.01,
    side: Literal["higher", "lower"] = "lower",
    own: Condition = OWN,
) -> Row:
    """A measure of a task in the original model, with heads removed, under random masks, and in
    what the heads are compared with besides."""
    return Row("", own, "", original, selected, half, random, p_draws=p_draws, p_same=p_draws,
               side=side, reference=reference, least_p=least_p)  # fmt: skip


def table(
    task: str,
    measures: Mapping[str, Sequence[Row]],
    controls: tuple[str, str] = ("shuffled", "shuffled same layers"),
    reference: Condition = INSTRUCTED,
    examples: int = 100,
    draws: Mapping[str, Sequence[float]] | None = None,
) -> dict[str, Any]:
    """A table of evidence of one task, as JSON; `draws`: a measure under each draw of either
    control, without it under one."""
    rows = [
        row._replace(part=task, statistic=name, examples=examples)
        for name, own in measures.items()
        for row in own
    ]
    known = {name: STATISTICS[name] for name in measures if name in STATISTICS}
    found = evidence(known, rows, controls, reference)
    halves = {(row.part, row.statistic): row.half for row in rows}
    kinds = {condition.id: condition.kind for condition in found.conditions}

    def changed(level: Level) -> Level:
        """What is compared with besides has a change from the original model, too."""
        base = found.level(level.statistic, None, level.part)
        if base is None or kinds[level.condition] != reference.kind:
            return level
        half = halves[level.part, level.statistic]
        return replace(level, change=around(level.value - base.value, half))

    levels = {(row.condition, row.statistic): changed(row) for row in found.levels}
    conditions = {condition.id: condition for condition in found.conditions}
    for name, values in (draws or {}).items():
        for control in controls:
            for at, value in enumerate(values):
                drawn = replace(found.main, kind=control, draw=at)
                conditions[drawn.id] = drawn
                levels[drawn.id, name] = Level(
                    **vars(around(value)), part=task, condition=drawn.id, statistic=name,
                    examples=examples,
                )  # fmt: skip
    return encode(
        replace(found, levels=tuple(levels.values()), conditions=tuple(conditions.values()))
    )


def conditions(
    measure: str,
    values: tuple[float, float, float, float],
    half: float = 0.1,
    p_draws: float = 0.01,
) -> dict[str, list[Row]]:
    """As is, instructed, masked, and two random masks around a mean."""
    plain, asked, masked, random = values
    side: Literal["higher", "lower"] = "lower" if measure == "nll" else "higher"
    return {measure: [made(plain, masked, random, asked, half, p_draws, side=side)]}


def proof(
    task: str, measures: Mapping[str, Sequence[Row]], examples: int = 100, **more: Any
) -> dict[str, Any]:
    """A result of `verify mask` with these conditions."""
    tasks = {task: {"examples": examples}}
    return {**table(task, measures, examples=examples, **more), "details": {"tasks": tasks}}


def verdicts(found: Findings) -> dict[str, bool | None]:
    """Whether each claim holds after Holm, by its name."""
    return paper_helpers.verdicts(found=found)


def grounds(found: Findings) -> str:
    """What its claims rest on."""
    return "; ".join(one.by for one in claims_of({"found": found}))


def cell(table: Table, row: str, column: str) -> Cell:
    """The cell of the row and column of these names."""
    (cells,) = [one.cells for one in table.rows if one.name == row]
    return cells[table.columns.index(column)]


def table_of(found: Findings, title: str) -> Table:
    (one,) = [one for one in found.tables if one.title.startswith(title)]
    return one


def settings_of(setting: Setting, command: str) -> dict[str, Any]:
    """What every step that runs this command gives it, by the step's name."""
    steps = (each.step for each in make_plan(PAPER.experiments, setting).steps)
    own = (step for step in steps if getattr(step.run, "study", None) == command)
    return paper_helpers.asked(setting, own)
