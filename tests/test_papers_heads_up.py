"""Heads Up! as a recipe: every table and figure, what is run for it, and what it tells."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from heads_up_helpers import (
    EXPERIMENTS,
    LLAMA,
    WORDS,
    llama_setting,
    pocket_setting,
    settings_of,
    table_of,
)
from headscope.errors import InputError
from headscope.papers.heads_up import runs, tasks
from headscope.papers.heads_up.paper import PAPER
from headscope.papers.paper import Missing, PaperData, Setting
from headscope.papers.plan import make_plan
from headscope.papers.published import value
from headscope.shown.blocks import Cell, Table
from headscope.shown.words import fixed
from headscope.studies.models import ModelChoice


def cells(table: Table, name: str) -> tuple[Cell, ...]:
    """The cells of the row of this name, which there is once."""
    (found,) = [one.cells for one in table.rows if one.name == name]
    return found


@pytest.fixture
def pocket(tmp_path: Path) -> Setting:
    return pocket_setting(tmp_path)


@pytest.fixture
def llama(tmp_path: Path) -> Setting:
    return llama_setting(tmp_path)


def test_pocket_trains_six_masks_and_leaves_the_others_to_full(pocket: Setting) -> None:
    plan = make_plan(PAPER.experiments, pocket)
    masks = [one for one in plan.steps if one.step.name.startswith("mask-")]
    due = [one.step.name for one in masks if one.state == "due"]
    assert due == [
        "mask-en-de",
        "mask-en-es",
        "mask-de-en",
        "mask-de-es",
        "mask-plural-en",
        "mask-translate-en-de",
    ]
    assert all(one.state == "left out" for one in masks if one.step.name not in due)
    left = {one.step.name for one in masks} - set(due)
    assert {
        "mask-tr-en",
        "mask-past-en",
        "mask-en-de-negative",
        "mask-en-de-query",
        "mask-de-es-feed-forward",
        "mask-plural-en-shots",
        "mask-hybrid-shots",
    } <= left
    full = make_plan(PAPER.experiments, dataclasses.replace(pocket, full=True))
    assert {one.state for one in full.steps} == {"due"}
    # 20 directions and 6 words; 20 begun with few heads, 20 with gates of layers, 1 of queries; 2
    # and a hybrid behind examples.
    assert sum(one.step.name.startswith("mask-") for one in full.steps) == 26 + 41 + 3


def test_due_steps_need_no_step_that_is_left_out(pocket: Setting, llama: Setting) -> None:
    for setting in (pocket, llama):
        plan = make_plan(PAPER.experiments, setting)
        assert "due" in {one.state for one in plan.steps}
        blocked = {one.step.name for one in plan.steps if one.state == "blocked"}
        assert not blocked


def test_every_step_has_work_unless_it_only_compares(pocket: Setting, llama: Setting) -> None:
    for setting in (pocket, llama):
        for one in make_plan(PAPER.experiments, setting).steps:
            work = one.step.work
            if one.step.name.startswith("masks-"):
                assert work.tokens == 0
            else:
                assert work.tokens > 0 and work.calls > 0 and work.length > 0, one.step.name
            assert bool(work.backward) == one.step.name.startswith("mask-"), one.step.name


def test_training_follows_the_size_of_the_model(pocket: Setting, llama: Setting) -> None:
    configs = settings_of(pocket, "find mask") | settings_of(llama, "find mask")
    changes = {name: dict(config.changes) for name, config in configs.items()}
    assert changes["mask-en-ru"] == {}
    assert changes["mask-en-es-negative"] == {"start": "negative"}
    assert changes["mask-en-de-of-Llama-3.1-8B"] == {"steps": 6190}
    assert changes["mask-antonym"] == changes["mask-antonym-shots"] == {"steps": 6250}
    assert changes["mask-de-en-feed-forward"] == {"steps": 6190, "feed_forward": True}
    assert changes["mask-en-de-query"]["on"] == "query"
    assert configs["mask-antonym-shots"].task.shots == 5
    assert configs["mask-en-de-of-Llama-3.1-8B"].model.model == "meta-llama/Llama-3.1-8B"
    # The one that Table 3 shows as unseen stays unseen.
    hybrid = configs["mask-hybrid-shots"].task
    assert hybrid.shots == 5 and {Path(one).stem for one in hybrid.task} == {*WORDS} - {
        "product-company"
    }


def test_proofs_ask_under_the_own_mask_and_others_beside(llama: Setting) -> None:
    sizes = (*llama.data.others, "meta-llama/Llama-3.1-70B-Instruct")
    llama = dataclasses.replace(llama, data=dataclasses.replace(llama.data, others=sizes))
    configs = settings_of(llama, "verify mask")
    own = configs["proof-en-de"]
    assert own.masks == (str(llama.at("mask-en-de")),)
    assert (own.draws, own.foreign, own.model.model) == (39, (), LLAMA)
    swapped = configs["swap-antonym-of-Llama-3.1-8B"]
    assert swapped.foreign == (str(llama.at("mask-antonym-of-Llama-3.1-8B")),)
    assert swapped.model.model == LLAMA and swapped.draws == 0
    other = configs["proof-en-de-of-Llama-3.1-70B-Instruct"]
    assert other.model.model == "meta-llama/Llama-3.1-70B-Instruct"
    assert other.masks == (str(llama.at("mask-en-de-of-Llama-3.1-70B-Instruct")),)
    hybrid = configs["shots-antonym-masked"]
    assert hybrid.hybrid == str(llama.at("mask-hybrid-shots")) and hybrid.tasks.shots == 5
    assert configs["shots-antonym"].masks == (str(llama.at("mask-antonym")),)


def test_walks_take_the_paper_s_number_of_heads_or_that_share(
    pocket: Setting, llama: Setting
) -> None:
    small, large = (settings_of(one, "verify one-by-one") for one in (pocket, llama))
    walk, influential = small["walk"], large["walk-influential"]
    assert (walk.order, walk.steps, walk.examples) == ("ascending", None, 10)
    assert (small["walk-influential"].order, small["walk-influential"].reorder) == ("pass", 30)
    assert (influential.reorder, influential.steps) == (320, 320)
    assert large["walk"].examples == 1
    assert small["walk-negative"].heads == str(pocket.at("mask-en-de-negative"))
    assert {one.rank for one in (*small.values(), *large.values())} == {"score"}


def test_scaling_measures_on_the_second_file(llama: Setting) -> None:
    data = dataclasses.replace(llama.data, pairs=("en-de=a.tsv", "en-de=b.tsv", "de-en=c.tsv"))
    found = settings_of(dataclasses.replace(llama, data=data), "verify scaling")
    assert found["scaling-en-de"].check_data == "b.tsv"
    assert found["scaling-de-en"].check_data is None
    # Where it is tested there are draws enough for a p of 0.05, on the grid for a picture.
    assert (found["scaling-de-en"].draws, found["scaling-de-en"].grid_draws) == (19, 2)
    assert found["scaling-en-de"].paragraphs


def test_one_base_run_for_every_task(llama: Setting) -> None:
    found = settings_of(llama, "compare masks")
    both = found["masks-of-Llama-3.1-8B"]
    assert len(both.masks) == len(both.base) == 2 + 6
    for own, base in zip(both.masks, both.base, strict=True):
        assert base == f"{own}-of-Llama-3.1-8B"
    # The default masks are compared without --full, all of them with it; Figure 7 is of directions.
    assert found["masks-compared"].base == () and len(found["masks-compared"].masks) == 2
    assert "masks-compared-every" not in found
    assert len(found["masks-of-Llama-3.1-8B-every"].base) == 2 + len(WORDS)


def test_settings_of_a_large_model_are_those_of_table_11(llama: Setting, pocket: Setting) -> None:
    told = EXPERIMENTS["table-9"].show(llama)
    training = table_of(told, "The training")
    assert len(training.rows) == 10
    for line in training.rows:
        for one in line.cells:
            assert one.published is not None
            assert one.value == pytest.approx(one.published), line.name
            shown = fixed(one.published, one.digits)
            assert float(shown) == one.published and not shown.endswith(".0"), line.name
    assert {one.digits for one in cells(training, "steps")} == {0}
    model = table_of(told, "The model")
    assert cells(model, "heads") == (Cell(1024, published=1024.0, digits=0),)
    assert cells(model, "parameters")[0].why == "known once a mask was tested"
    assert "paper's settings" in told.found
    told = EXPERIMENTS["table-9"].show(pocket)
    training = table_of(told, "The training")
    assert [one.value for one in cells(training, "steps")] == [600, 600]
    assert [one.published for one in cells(training, "steps")] == [6190, 6250]
    assert [one.value for one in cells(training, "first learning rate")] == [0.1, 0.1]
    assert "96 heads" in told.found


def test_a_model_with_experts_is_told_by_its_name(llama: Setting) -> None:
    experiment = EXPERIMENTS["table-43"]
    for name, known in (
        ("microsoft/Phi-3.5-MoE-instruct", True),
        ("Qwen/Qwen3-30B-A3B", True),
        ("mistralai/Mixtral-8x7B-v0.1", True),
        ("Qwen/Qwen2.5-7B-Instruct", False),
        (LLAMA, False),
    ):
        setting = dataclasses.replace(llama, model=ModelChoice(name))
        assert isinstance(experiment.steps(setting), Missing) is not known


def test_files_name_directions_and_a_second_one_is_measured_on(llama: Setting) -> None:
    data = PaperData(pairs=("en-de=a.tsv", "en-de=iwslt.tsv", "de-en=b.tsv"))
    setting = dataclasses.replace(llama, data=data)
    assert [one.name for one in tasks.directions(setting)] == ["en-de", "de-en"]
    assert all(one.default for one in tasks.directions(setting))
    assert tasks.directions(setting)[0].choice.data == ("en-de=a.tsv",)
    assert tasks.check_file(setting, "en-de") == "iwslt.tsv"
    assert tasks.check_file(setting, "de-en") is None


def test_a_folder_of_many_languages_stands_for_42_directions(llama: Setting) -> None:
    setting = dataclasses.replace(llama, data=PaperData(pairs=("flores/",)))
    found = tasks.directions(setting)
    assert len(found) == 42 and len({one.name for one in found}) == 42
    assert [one.name for one in tasks.defaults(found)] == [
        f"en-{code}" for code in ("zh", "fr", "es", "de", "ru", "ar")
    ]


def test_task_folders_train_the_tasks_of_table_2(llama: Setting, tmp_path: Path) -> None:
    found = tasks.word_tasks(llama)
    assert [one.name for one in tasks.defaults(found)] == list(WORDS[:6])
    assert {one.name for one in found} == set(WORDS)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(InputError, match="no task files"):
        tasks.word_tasks(dataclasses.replace(llama, data=PaperData(tasks=(str(empty),))))


def test_the_largest_model_is_trained_in_smaller_batches_on_directions(llama: Setting) -> None:
    large = dataclasses.replace(llama, model=ModelChoice("Qwen/Qwen2.5-14B-Instruct"))
    asked = runs.training_changes(large, translation=True, kind="query")
    assert asked == {"steps": 12370, "batch": 8, "on": "query"}
    assert (
        value(
            "heads-up",
            "Section B",
            model="Qwen2.5-14B-Instruct",
            row="translation",
            column="steps",
            measure="setting",
        )
        == asked["steps"]
    )
    assert runs.training_changes(large, translation=False) == {"steps": 6250}
    # As another model it is trained so, too, and others beside it are not.
    other = "Qwen/Qwen2.5-14B-Instruct"
    assert runs.training_changes(llama, True, other=other)["batch"] == 8
    assert runs.training_changes(large, True, other="Qwen/Qwen2.5-7B") == {"steps": 6190}
