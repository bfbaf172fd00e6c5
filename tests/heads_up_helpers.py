"""Settings and made-up results for the tests of Heads Up! as a recipe."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from headscope.heads import Geometry
from headscope.papers.claims import claims_of, judged
from headscope.papers.heads_up import PAPER
from headscope.papers.paper import PaperData, Setting
from headscope.papers.plan import make_plan
from headscope.shown.blocks import Cell, Findings, Table
from headscope.studies.inputs import ModelChoice

POCKET_HEADS = Geometry.uniform(6, 16)
LLAMA_HEADS = Geometry.uniform(32, 32)
LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
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


def pocket_setting(folder: Path) -> Setting:
    """The bundled model with its own data."""
    return Setting(ModelChoice(), POCKET_HEADS, "digest", PaperData(), folder)


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
    return Setting(ModelChoice(LLAMA), LLAMA_HEADS, "digest", data, folder / "run")


def put(setting: Setting, step: str, result: Mapping[str, Any]) -> None:
    """A finished run with this result."""
    place = setting.at(step)
    place.mkdir(parents=True)
    (place / "result.json").write_text(json.dumps(result), encoding="utf-8")
    (place / "DONE.json").write_text("{}", encoding="utf-8")


def difference(at: float, half: float) -> dict[str, float]:
    return {"value": at, "low": at - half, "high": at + half}


def row(name: str, measure: str, at: float, half: float = 0.01, **more: Any) -> dict[str, Any]:
    """A condition with one measure and its interval."""
    interval = {measure: {"low": at - half, "high": at + half}}
    return {
        "name": name,
        "kind": name,
        "of": None,
        "draw": None,
        measure: at,
        "intervals": interval,
        **more,
    }


def beside_random(measure: str, kind: str, p_draws: float, p_examples: float) -> dict[str, Any]:
    """The tests of a condition beside 19 random masks of a kind."""
    return {
        f"p_draws_{kind}": {measure: p_draws},
        f"p_examples_{kind}": {measure: p_examples},
        f"least_p_{kind}": 0.05,
        f"distinct_draws_{kind}": 19,
    }


def proof(
    task: str,
    measure: str,
    values: tuple[float, float, float, float],
    half: float,
    p_draws: float = 0.05,
    p_examples: float = 0.0001,
) -> Any:
    """A result of `verify mask`: as is, instructed, masked, and two random masks around a mean."""
    plain, told, masked, random = values
    shuffled = [
        {**row(f"shuffled {at}", measure, random + shift, kind="shuffled"), "draw": at}
        for at, shift in enumerate((-0.1, 0.1))
    ]
    own = row(
        "masked",
        measure,
        masked,
        change={measure: difference(masked - plain, half)},
        against_shuffled={measure: difference(masked - random, half)},
        against_instructed={measure: difference(masked - told, half)},
        **beside_random(measure, "shuffled", p_draws, p_examples),
    )
    conditions = [row("as is", measure, plain), row("instructed", measure, told), own, *shuffled]
    return {"tasks": {task: {"conditions": conditions, "examples": 100}}}


def verdicts(told: Findings) -> dict[str, bool | None]:
    """Whether each claim that was told holds after Holm, by its name."""
    return {one.name: one.holds for one in judged(claims_of({"told": told}))}


def figures(told: Findings) -> str:
    """What its claims rest on."""
    return "; ".join(one.by for one in claims_of({"told": told}))


def cells(table: Table, name: str) -> tuple[Cell, ...]:
    """The cells of the row of this name, which there is once."""
    (found,) = [one.cells for one in table.rows if one.name == name]
    return found


def table_of(told: Findings, title: str) -> Table:
    (found,) = [one for one in told.tables if one.title.startswith(title)]
    return found


def configs_of(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, module: Any, recipe: str
) -> dict[str, Any]:
    """What every step gives a recipe, by the name of the step."""
    seen: dict[str, Any] = {}

    def keep(config: Any, place: Path, progress: object = None) -> dict[str, Any]:
        seen[place.name] = config
        return {}

    monkeypatch.setattr(module, recipe, keep)
    for one in make_plan(PAPER.experiments, setting).steps:
        trains = one.step.name.startswith("mask-")
        made_in = getattr(one.step.run, "func", one.step.run).__module__
        if made_in == module.__name__ and not trains:
            one.step.run(setting, setting.at(one.step.name), None)
    return seen
