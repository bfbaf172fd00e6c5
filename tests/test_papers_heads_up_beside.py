"""What of Heads Up!'s published figures stands beside ours, and where a difference may be told."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from heads_up_helpers import (
    EXPERIMENTS,
    LLAMA,
    cells,
    llama_setting,
    pocket_setting,
    proof,
    put,
    row,
    table_of,
)
from headscope.recipes.inputs import ModelChoice
from headscope.recipes.papers.heads_up import beside as beside_module
from headscope.recipes.papers.heads_up.asked import Asked, word_tasks
from headscope.recipes.papers.heads_up.beside import beside, partner
from headscope.recipes.papers.heads_up.verdict import (
    published_reached,
    reached,
    summary,
    verdict,
    way,
)
from headscope.recipes.papers.heads_up.walks import target_first
from headscope.recipes.papers.heads_up.words import ACCURACY, same_task
from headscope.recipes.papers.paper import Setting, Steering
from headscope.recipes.papers.published import PaperTask, inputs_digest, paper_tasks

BASE, QWEN = "meta-llama/Llama-3.1-8B", "Qwen/Qwen2.5-7B"
FIGURES = Path(__file__).parents[1] / "src/headscope/recipes/papers/data/heads-up.tsv"


@pytest.fixture
def llama(tmp_path: Path) -> Setting:
    return llama_setting(tmp_path)


def with_(setting: Setting, *, model: str = LLAMA, **data: tuple[str, ...]) -> Setting:
    """The setting of another model or with other data."""
    more = replace(setting.data, **data)
    return replace(setting, model=ModelChoice(model), data=more)


def test_the_partner_of_an_instructed_model_is_its_base_and_the_reverse(llama: Setting) -> None:
    place = beside(llama, "Table 2")
    assert partner(place, None) == partner(place, BASE) == "mask of Llama-3.1-8B"
    assert partner(place, QWEN) is None and partner(place, LLAMA) is None
    assert partner(place, "/models/my-own") is None
    base = beside(with_(llama, model=BASE), "Table 2")
    assert partner(base, LLAMA) == "mask of Llama-3.1-8B-Instruct"
    assert partner(base, BASE) is None


def swapped(setting: Setting, other: str, accuracy: float) -> None:
    told = {"tasks": {"antonym": {"conditions": [row("foreign 1", "accuracy", accuracy)]}}}
    put(setting, f"swap-antonym-of-{other}", told)


OTHER = "accuracy, mask of another model"


@pytest.mark.parametrize(
    ("model", "other", "table_2", "every"),
    [
        (LLAMA, BASE, 0.75, 0.75),
        (BASE, LLAMA, 0.11, 0.11),
        ("Qwen/Qwen2.5-7B-Instruct", QWEN, None, 0.63),
        (QWEN, "Qwen/Qwen2.5-7B-Instruct", None, 0.07),
        (LLAMA, QWEN, None, None),
        (LLAMA, "/models/my-own", None, None),
    ],
)
def test_word_tasks_under_the_mask_of_another_model(
    llama: Setting, model: str, other: str, table_2: float | None, every: float | None
) -> None:
    setting = with_(llama, model=model, others=(other,))
    swapped(setting, other.rpartition("/")[2], 0.5)
    told = EXPERIMENTS["table-2"].tell(setting)
    main = table_of(told, "Masks of word tasks")
    found = cells(main, OTHER)[main.columns.index("antonym")]
    assert (found.value, found.published) == (0.5, table_2)
    line = cells(table_of(told, "Accuracy of every word task"), "antonym")
    assert (line[4].value, line[4].published) == (0.5, every)
    # What is asked of this model alone stands beside whatever the other one is.
    assert line[3].published is not None


@pytest.mark.parametrize(
    ("other", "theirs"), [(BASE, (726, 0.707, 0.610)), (QWEN, (None, None, None))]
)
def test_masks_beside_those_of_another_model(
    llama: Setting, other: str, theirs: tuple[float | None, ...]
) -> None:
    setting = with_(llama, others=(other,))
    told = EXPERIMENTS["table-5"].tell(setting)
    (table,) = told.tables
    own, *rest = cells(table, "antonym")
    assert own.published == 834
    assert tuple(cell.published for cell in rest[:3]) == theirs
    assert (rest[3].published is None) == (other == QWEN)


def test_translations_under_a_mask_that_the_paper_does_not_have(llama: Setting) -> None:
    for other, theirs in ((BASE, 1.612), (QWEN, None)):
        told = EXPERIMENTS["table-1"].tell(with_(llama, others=(other,)))
        main = table_of(told, "Masks of directions")
        assert cells(main, "NLL, mask of another model")[0].published == theirs
        assert cells(main, "NLL, mask")[0].published == 0.580


def test_a_name_does_not_make_data_the_papers(llama: Setting, tmp_path: Path) -> None:
    for place in ("data/my_xnli_lookalike.tsv", "data/iwslt2017/en-de.tsv"):
        setting = with_(llama, pairs=(f"en-de={place}",) * 2)
        for name in ("table-1", "figure-6"):
            assert "not known by content" in why(setting, name)
    # A word task is told by its inputs, in any order; not by the name of its file.
    task = tmp_path / "antonym.json"
    rows = [{"input": word, "output": "x"} for word in ("up", "left", "in ")]
    task.write_text(json.dumps(rows), "utf-8")
    setting = with_(llama, pairs=(), tasks=(str(task),))
    assert "other examples of antonym" in why(setting, "table-2")


def test_masks_of_directions_are_not_the_papers_by_word_tasks_alone(llama: Setting) -> None:
    setting = with_(llama, pairs=("en-zh=mine.tsv",), tasks=())
    for name in ("table-5", "figure-6"):
        for table in EXPERIMENTS[name].tell(setting).tables:
            assert table.reference is None or not table.reference.comparable


def test_word_tasks_of_the_papers_inputs_are_compared(
    llama: Setting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = tmp_path / "antonym.json"
    rows = [{"input": word, "output": "x"} for word in ("up", "left", "in ")]
    task.write_text(json.dumps(rows), "utf-8")
    known = PaperTask(3, inputs_digest(["in", "up", "left"]), "Name the antonym.")
    monkeypatch.setattr(beside_module, "paper_tasks", lambda: {"antonym": known})
    setting = with_(llama, pairs=(), tasks=(str(task),))
    (table,) = [one for one in EXPERIMENTS["table-2"].tell(setting).tables if one.reference][:1]
    assert table.reference is not None and table.reference.comparable
    steered = replace(setting, steering=Steering(limit=20))
    assert "limit 20" in why(steered, "table-2")


def test_the_papers_instructions_are_asked_of_its_tasks(llama: Setting, tmp_path: Path) -> None:
    tasks = paper_tasks()
    assert len(tasks) == 35
    for one in tasks.values():
        assert len(one.inputs) == 64 and one.prompt.count("{input}") == 1
    for name in ("antonym", "mine"):
        (tmp_path / f"{name}.json").write_text('[{"input": "a", "output": "b"}]', "utf-8")
    places = tuple(str(tmp_path / f"{name}.json") for name in ("antonym", "mine"))
    theirs, mine = word_tasks(with_(llama, pairs=(), tasks=places))
    assert theirs.choice.instruction == tasks["antonym"].prompt and mine.choice.instruction is None


def why(setting: Setting, experiment: str, at: int = 0) -> str:
    """Why the experiment's table, the first with a reference or a later one, is not compared."""
    tables = EXPERIMENTS[experiment].tell(setting).tables
    reference = [table.reference for table in tables if table.reference is not None][at]
    assert not reference.comparable
    return reference.why


def test_another_quantity_is_never_compared(llama: Setting) -> None:
    # The paper's Table 6 is of masks begun with hardly any head, of all 42 directions.
    assert "hardly any head" in why(llama, "table-6")
    assert "shared by 2 masks, in the paper by 42" in why(llama, "table-6", 1)
    walk = {
        "heads": ["0.0", "0.1"],
        "baseline": {"target_rank_median": 2, "top5_ranks": [1], "similarity": [0.1, 0.2]},
        "steps": [{"target_rank_median": 1, "top5_ranks": [2], "similarity": [0.1, 0.2]}] * 2,
        "mask": {"cut_step": 1},
        "sentences": 1,
        "target_first": {"first_steps": [1], "share": [0.0, 1.0, 1.0], "never": 0, "median": 1},
        "random_orders": [],
        "example": {"prompt": "p", "target": "t", "texts": [{"step": 0, "text": "a"}]},
    }
    for one in (walk["baseline"], *walk["steps"]):
        one["chrf"] = 1.0
    put(llama, "walk", walk)
    put(llama, "walk-influential", walk)
    for experiment in ("figure-2", "figure-4", "figure-8", "figure-9"):
        assert "one prompt of its own" in why(llama, experiment), experiment
        assert "other examples" not in why(llama, experiment), "no word task was walked"


def test_prompts_that_begin_with_the_target_have_no_switch() -> None:
    def first(*steps: int | None) -> tuple[int, int, float | None]:
        return target_first({"target_first": {"first_steps": list(steps)}})

    assert first(0, 0, 0, 20, 30) == (0, 5, 25.0)
    assert first(0, 20, None, None) == (2, 4, None)
    assert first(0, 20, 30, None) == (1, 4, 30.0)
    assert first(0, 0) == (0, 2, None)


def test_where_an_instruction_helps_in_some_tasks_alone() -> None:
    def conditions(*values: float) -> dict[str, Any]:
        (own,) = proof("x", "nll", (*values, 3.0), 0.1)["tasks"].values()
        named = {one["name"]: one for one in own["conditions"]}
        keys = {"original": "as is", "instructed": "instructed", "mask": "masked"}
        return {key: named[name] for key, name in keys.items()}

    helps, harms = conditions(2.0, 1.0, 1.5), conditions(2.0, 3.0, 1.9)
    one = verdict({"a": helps, "b": harms}, "nll", higher=False)
    assert (one.helped, one.reached, one.way) == (("a",), (), 0.5)
    assert way(one) == ", 50% of the way that the instruction goes where it helps (1 of 2)"
    assert reached(one, "task", "loss") == (
        "In no task does the mask reach the instructed loss where it helps (1 of 2)."
    )
    # A mask that does harm on the mean goes no part of the way.
    worse = verdict({"a": conditions(2.0, 1.0, 3.5), "b": helps}, "nll", higher=False)
    assert worse.way == pytest.approx(-0.5)
    assert "%" not in summary(worse, "translation", "task", "loss")


def test_answers_where_random_masks_do_as_much_and_instructions_nothing(tmp_path: Path) -> None:
    def answer(name: str, *values: float) -> str:
        own = pocket_setting(tmp_path / name)
        for task in ("en-de", "en-es"):
            put(own, f"proof-{task}", proof(task, "nll", values, 0.05))
        return str(EXPERIMENTS["table-1"].tell(own).more["answer"])

    assert answer("random", 1.0, 0.5, 0.4, 0.3) == (
        "Without an instruction masks have as good a loss as the instructed model in both "
        "directions, and surely better than under random masks in no direction."
    )
    assert answer("harmful", 1.0, 2.0, 0.5, 1.2) == (
        "Without an instruction, which helps this model in no direction, the loss is surely "
        "better in both directions, under masks."
    )
    assert "more than twice the way" in EXPERIMENTS["table-1"].tell(tiny(tmp_path / "tiny")).found


def tiny(folder: Path) -> Setting:
    """An instruction that hardly helps, which one task alone would make a way of 50,000 %."""
    own = pocket_setting(folder)
    put(own, "proof-en-de", proof("en-de", "nll", (1.0, 0.999, 0.5, 1.2), 0.05))
    return own


def test_averages_of_a_published_table_are_no_tasks(llama: Setting) -> None:
    by: dict[tuple[str, str], float] = {}
    for line in FIGURES.read_text("utf-8").splitlines():
        table, _, condition, column, _, number = line.split("\t")
        if table == "Table 32" and column != "Average":
            by[condition, column] = float(number)
    tasks = {column for _, column in by}
    helped = [one for one in tasks if by["instructed", one] > by["original", one]]
    good = sum(by["mask", one] >= by["instructed", one] for one in helped)
    assert (len(tasks), len(helped)) == (36, 32)
    told = published_reached(beside(llama, ACCURACY), "accuracy", True)
    assert told == f" (in the paper, Llama-3.1-8B-Instruct: {good} of 32)"


def test_the_bundled_tasks_alone_have_other_names_in_the_paper(
    llama: Setting, tmp_path: Path
) -> None:
    own = pocket_setting(tmp_path)
    assert same_task(own, replace(first_word(own), name="capital")) == "country-capital"
    assert same_task(llama, replace(first_word(llama), name="capital")) == "capital"


def first_word(setting: Setting) -> Asked:
    return word_tasks(setting)[0]
