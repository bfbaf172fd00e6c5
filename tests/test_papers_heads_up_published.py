"""What of Heads Up!'s published figures stands beside ours, and where a difference may be told."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from heads_up_helpers import (
    EXPERIMENTS,
    FOREIGN,
    LLAMA,
    OWN,
    cell,
    llama_setting,
    made,
    proof,
    put,
    table_of,
    whole,
)
from headscope.papers.heads_up import cells as cells_module
from headscope.papers.heads_up.cells import partner, place_of
from headscope.papers.heads_up.masks import TABLES
from headscope.papers.heads_up.prompts import target_first
from headscope.papers.paper import Setting, Steering
from headscope.papers.published import PaperTask, examples_digest
from headscope.papers.reproduce import _table
from headscope.results.one_by_one import OneByOneDetails
from headscope.runs.codec import decode
from headscope.studies.models import ModelChoice
from headscope.verify.masked_tasks.conditions import HYBRID

BASE, QWEN = "meta-llama/Llama-3.1-8B", "Qwen/Qwen2.5-7B"


@pytest.fixture
def llama(tmp_path: Path) -> Setting:
    return llama_setting(tmp_path)


def with_(setting: Setting, *, model: str = LLAMA, **data: tuple[str, ...]) -> Setting:
    """The setting of another model or with other data."""
    more = replace(setting.data, **data)
    return replace(setting, model=ModelChoice(model), data=more)


def test_the_partner_of_an_instructed_model_is_its_base_and_the_reverse(llama: Setting) -> None:
    place = place_of(llama, "Table 2")
    assert partner(place, None) == partner(place, BASE) == "mask of Llama-3.1-8B"
    assert partner(place, QWEN) is None and partner(place, LLAMA) is None
    assert partner(place, "/models/my-own") is None
    base = place_of(with_(llama, model=BASE), "Table 2")
    assert partner(base, LLAMA) == "mask of Llama-3.1-8B-Instruct"
    assert partner(base, BASE) is None


def swapped(setting: Setting, other: str, accuracy: float) -> None:
    given = {"accuracy": [made(reference=accuracy)]}
    put(setting, f"swap-antonym-of-{other}", proof("antonym", given, reference=FOREIGN))


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
    told = EXPERIMENTS["table-2"].show(setting)
    main = table_of(told, "Masks of word tasks")
    found = cell(main, "antonym", OTHER)
    assert (found.value, found.published) == (0.5, table_2)
    whole_table = table_of(told, "accuracy of every word task")
    found = cell(whole_table, "antonym", OTHER)
    assert (found.value, found.published) == (0.5, every)
    # What is asked of this model alone stands beside whatever the other one is.
    assert cell(whole_table, "antonym", "accuracy, mask").published is not None


@pytest.mark.parametrize(
    ("other", "theirs"), [(BASE, (726, 0.707, 0.610)), (QWEN, (None, None, None))]
)
def test_masks_beside_those_of_another_model(
    llama: Setting, other: str, theirs: tuple[float | None, ...]
) -> None:
    setting = with_(llama, others=(other,))
    told = EXPERIMENTS["table-5"].show(setting)
    (table,) = told.tables
    (line,) = [one.cells for one in table.rows if one.name == "antonym"]
    assert line[0].published == 834
    assert tuple(one.published for one in line[1:4]) == theirs
    assert (line[4].published is None) == (other == QWEN)


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
        for table in EXPERIMENTS[name].show(setting).tables:
            assert table.reference is None or not table.reference.comparable


def test_word_tasks_of_the_papers_inputs_are_compared(
    llama: Setting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = tmp_path / "antonym.json"
    rows = [{"input": word, "output": "x"} for word in ("up", "left", "in ")]
    task.write_text(json.dumps(rows), "utf-8")
    known = PaperTask(
        3, examples_digest([("in", "x"), ("up", "x"), ("left", "x")]), "Name the antonym."
    )
    monkeypatch.setattr(cells_module, "paper_tasks", lambda: {"antonym": known})
    setting = with_(llama, pairs=(), tasks=(str(task),))
    (table,) = [one for one in EXPERIMENTS["table-2"].show(setting).tables if one.reference][:1]
    assert table.reference is not None and table.reference.comparable
    steered = replace(setting, steering=Steering(limit=20))
    assert "limit 20" in why(steered, "table-2")


def why(setting: Setting, experiment: str, at: int = 0) -> str:
    """Why the experiment's table, the first with a reference or a later one, is not compared."""
    tables = EXPERIMENTS[experiment].show(setting).tables
    reference = [table.reference for table in tables if table.reference is not None][at]
    assert not reference.comparable
    return reference.why


def test_another_quantity_is_never_compared(
    llama: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The paper's Table 6 is of masks begun with hardly any head, of all 42 directions.
    assert "hardly any head" in why(llama, "table-6")
    assert "shared by 2 masks, in the paper by 42" in why(llama, "table-6", 1)
    walk: dict[str, Any] = {"heads": ["0.0", "0.1"], "sentences": 1, "mask": {"cut_step": 1}}
    walk["target_first"] = {"first_steps": [1], "share": [0.0, 1.0, 1.0]}
    monkeypatch.setattr(Setting, "shown", lambda setting, step: None)
    put(llama, "walk", {"details": walk})
    put(llama, "walk-influential", {"details": walk})
    for experiment in ("figure-2", "figure-4", "figure-8", "figure-9"):
        assert "one prompt of its own" in why(llama, experiment), experiment
        assert "other examples" not in why(llama, experiment), "no word task was walked"


def test_prompts_that_begin_with_the_target_have_no_switch() -> None:
    def first(*steps: int | None) -> tuple[int, int, float | None]:
        given = whole(OneByOneDetails, {"target_first": {"first_steps": list(steps)}})
        return target_first(decode(OneByOneDetails, given))

    assert first(0, 0, 0, 20, 30) == (0, 5, 25.0)
    assert first(0, 20, None, None) == (2, 4, None)
    assert first(0, 20, 30, None) == (1, 4, 30.0)
    assert first(0, 0) == (0, 2, None)


def test_word_tasks_are_known_by_their_outputs_too(
    llama: Setting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = PaperTask(1, examples_digest([("up", "down")]), "Name the antonym.")
    monkeypatch.setattr(cells_module, "paper_tasks", lambda: {"antonym": known, "synonym": known})
    places = []
    for name, output in (("antonym", "down"), ("synonym", "over"), ("mine", "x")):
        places.append(str(tmp_path / f"{name}.json"))
        Path(places[-1]).write_text(json.dumps([{"input": "up", "output": output}]), "utf-8")
    setting = with_(llama, pairs=(), tasks=tuple(places))
    # Of Table 2 is the antonym alone; of Table 32 the synonym, whose outputs are others, too.
    assert place_of(setting, "Table 2").reference.comparable
    assert "other examples of synonym" in place_of(setting, TABLES["accuracy"]).reference.why
    assert "mine" not in place_of(setting, TABLES["accuracy"]).reference.why


def test_no_difference_to_the_paper_s_hybrid_is_told(
    llama: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cells_module, "_of_paper", lambda task: True)
    given = {"accuracy": [made(selected=0.7), made(selected=0.5, own=replace(OWN, of=HYBRID))]}
    put(llama, "shots-antonym-masked", proof("antonym", given))
    (table,) = EXPERIMENTS["table-3"].show(llama).tables
    at = table.columns.index("antonym")
    by = {one["name"]: one["cells"][at] for one in _table(table)["rows"]}
    assert by["mask, 5-shot"]["difference"] == pytest.approx(0.7 - 0.73)
    hybrid = by["mask of hybrid, 5-shot"]
    assert (hybrid["published"], hybrid["difference"]) == ("0.69", None)
