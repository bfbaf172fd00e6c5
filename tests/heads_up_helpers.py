"""Settings and made-up results for the tests of Heads Up! as a recipe."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import paper_helpers
from headscope.heads import Geometry
from headscope.papers.claims import claims_of
from headscope.papers.heads_up.paper import PAPER
from headscope.papers.paper import PaperData, Setting
from headscope.papers.plan import make_plan
from headscope.results.attention import AttentionResult
from headscope.results.mask import FoundMask
from headscope.results.mask_tests import FamilyTests, MaskTests, ScalingTests
from headscope.results.masks import MasksResult
from headscope.results.one_by_one import OneByOneResult
from headscope.results.states import ComparedStates
from headscope.runs import codec
from headscope.shown.blocks import Cell, Findings, Table

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
            elif how.flat is None and (field.name in made or _needed(field)):
                made[field.name] = whole(hint, made.get(field.name))
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
    """What models wrote in a run: condition, input, reference, output."""
    file = setting.at(step) / "samples" / f"{task}.jsonl"
    file.parent.mkdir(parents=True)
    names = ("condition", "input", "reference", "output")
    lines = (json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows)
    file.write_text("".join(lines), encoding="utf-8")
    return file


def difference(at: float, half: float) -> dict[str, float]:
    return {"value": at, "low": at - half, "high": at + half}


def row(name: str, measure: str, at: float, half: float = 0.01, **more: Any) -> dict[str, Any]:
    """A condition with one measure and its interval."""
    interval = {measure: {"low": at - half, "high": at + half}}
    return {"name": name, "kind": name, "draw": None, measure: at, "intervals": interval, **more}


def drawn(kind: str, measure: str, *values: float, of: str | None = None) -> list[dict[str, Any]]:
    """Random draws of a kind."""
    return [
        {"name": f"{kind} {at}", "kind": kind, "of": of, "draw": at, measure: value}
        for at, value in enumerate(values)
    ]


def beside_random(
    measure: str, kind: str, p_draws: float = 0.05, p_examples: float = 0.0001
) -> dict[str, Any]:
    """The tests of a condition beside 19 random masks of a kind."""
    return {
        f"p_draws_{kind}": {measure: p_draws},
        f"p_examples_{kind}": {measure: p_examples},
        f"least_p_{kind}": 0.05,
        f"distinct_draws_{kind}": 19,
    }


def conditions(
    measure: str,
    values: tuple[float, float, float, float],
    half: float = 0.1,
    p_draws: float = 0.05,
    p_examples: float = 0.0001,
) -> list[dict[str, Any]]:
    """As is, instructed, masked, and two random masks around a mean."""
    plain, asked, masked, random = values
    own = row(
        "masked",
        measure,
        masked,
        change={measure: difference(masked - plain, half)},
        against_shuffled={measure: difference(masked - random, half)},
        against_instructed={measure: difference(masked - asked, half)},
        **beside_random(measure, "shuffled", p_draws, p_examples),
    )
    draws = drawn("shuffled", measure, random - 0.1, random + 0.1)
    return [row("as is", measure, plain), row("instructed", measure, asked), own, *draws]


def proof(task: str, rows: list[dict[str, Any]], examples: int = 100) -> dict[str, Any]:
    """A result of `verify mask` with these conditions."""
    return {"tasks": {task: {"conditions": rows, "examples": examples}}}


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
