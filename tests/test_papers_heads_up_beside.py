"""What of Heads Up!'s published figures stands beside ours, and where a difference may be told."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from heads_up_helpers import (
    EXPERIMENTS,
    LLAMA,
    cells,
    llama_setting,
    pocket_setting,
    put,
    row,
    table_of,
)
from headscope.papers.heads_up import beside as beside_module
from headscope.papers.heads_up import scaling
from headscope.papers.heads_up.asked import Asked, directions, word_tasks
from headscope.papers.heads_up.beside import beside, partner
from headscope.papers.heads_up.verdict import (
    published_reached,
)
from headscope.papers.heads_up.walks import target_first
from headscope.papers.heads_up.words import ACCURACY, same_task
from headscope.papers.paper import Setting, Steering
from headscope.papers.published import PaperTask, examples_digest, paper_tasks
from headscope.papers.results import _table
from headscope.studies.inputs import ModelChoice

BASE, QWEN = "meta-llama/Llama-3.1-8B", "Qwen/Qwen2.5-7B"
FIGURES = Path(__file__).parents[1] / "src/headscope/papers/data/heads-up.tsv"


@pytest.fixture
def llama(tmp_path: Path) -> Setting:
    return llama_setting(tmp_path)


def with_(setting: Setting, *, model: str = LLAMA, **data: tuple[str, ...]) -> Setting:
    """The setting of another model or with other data."""
    more = replace(setting.data, **data)
    return replace(setting, model=ModelChoice(model), data=more)


def test_other_weights_of_the_same_name_are_another_model(llama: Setting) -> None:
    for more in ({"quantise": "4bit"}, {"revision": "step-1000"}):
        one = replace(llama, model=replace(llama.model, **more))
        assert " ".join(*more.items()) in beside(one, "Table 2").reference.why


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
    known = PaperTask(
        3, examples_digest([("in", "x"), ("up", "x"), ("left", "x")]), "Name the antonym."
    )
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
        assert len(one.digest) == 64 and one.prompt.count("{input}") == 1
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


def test_word_tasks_are_known_by_their_outputs_too(
    llama: Setting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = PaperTask(1, examples_digest([("up", "down")]), "Name the antonym.")
    monkeypatch.setattr(beside_module, "paper_tasks", lambda: {"antonym": known, "synonym": known})
    places = []
    for name, output in (("antonym", "down"), ("synonym", "over"), ("mine", "x")):
        places.append(str(tmp_path / f"{name}.json"))
        Path(places[-1]).write_text(json.dumps([{"input": "up", "output": output}]), "utf-8")
    setting = with_(llama, pairs=(), tasks=tuple(places))
    # Of Table 2 is the antonym alone; of Table 32 the synonym, whose outputs are others, too.
    assert beside(setting, "Table 2").reference.comparable
    assert "other examples of synonym" in beside(setting, ACCURACY).reference.why
    assert "mine" not in beside(setting, ACCURACY).reference.why


def test_no_difference_to_the_paper_s_hybrid_is_told(
    llama: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beside_module, "_of_paper", lambda task: True)
    conditions = [row("masked", "accuracy", 0.7), row("hybrid", "accuracy", 0.5)]
    put(llama, "shots-antonym-masked", {"tasks": {"antonym": {"conditions": conditions}}})
    (table,) = EXPERIMENTS["table-3"].tell(llama).tables
    at = table.columns.index("antonym")
    by = {one["name"]: one["cells"][at] for one in _table(table)["rows"]}
    assert by["mask, 5-shot"]["difference"] == pytest.approx(0.7 - 0.73)
    hybrid = by["mask of hybrid, 5-shot"]
    assert (hybrid["published"], hybrid["difference"]) == ("0.69", None)


@pytest.mark.parametrize(
    ("model", "shape", "steps"),
    [
        ("microsoft/Phi-3.5-MoE-instruct", "Llama-3.1-8B-Instruct", (6190, 16)),
        ("Qwen/Qwen2.5-14B-Instruct", "Qwen2.5-14B-Instruct", (12370, 8)),
    ],
)
def test_settings_are_cited_where_they_are_printed(
    llama: Setting, model: str, shape: str, steps: tuple[int, int]
) -> None:
    told = EXPERIMENTS["table-9"].tell(with_(llama, model=model))
    table = table_of(told, "The model")
    assert table.reference is not None and table.reference.model == shape
    training = table_of(told, "The training")
    found = tuple(cells(training, name)[0].published for name in ("steps", "batch size"))
    assert found == steps
    data = table_of(told, "The data").reference
    assert data is not None and "appendix A" in data.why


def test_inputs_of_sizes_are_the_papers_from_english_alone(llama: Setting) -> None:
    setting = with_(llama, pairs=("en-de=a", "zh-en=b"))
    sample = {"condition": "as is", "input": "I", "reference": "R", "output": "O"}
    for step, task in (("printed-en-de", "en-de"), ("proof-zh-en", "zh-en")):
        put(setting, step, {})
        folder = setting.at(step) / "samples"
        folder.mkdir()
        (folder / f"{task}.jsonl").write_text(f"{json.dumps(sample)}\n" * 2, "utf-8")
    note = table_of(EXPERIMENTS["table-4"].tell(setting), "Outputs for one sentence").note
    assert "from English (Table 4)" in note and "zh-en: I" in note


def test_sentences_left_out_of_a_second_file_are_told(llama: Setting) -> None:
    setting = with_(llama, pairs=("zh-en=a", "en-de=b"))
    left_out = {"draws": 2, "tasks": {"en-de": {"left_out": 3}}}
    put(setting, "scaling-en-de", left_out)
    place = beside(setting, "Table 8", "IWSLT2017")
    both = scaling._bleu(setting, directions(setting), place)
    assert "3 sentences were left out" in both.note
    assert "left out" not in scaling._bleu(setting, directions(setting)[:1], place).note
