"""Heads Up! as a recipe: every table and figure, what is run for it, and what it tells."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from heads_up_helpers import (
    EXPERIMENTS,
    LLAMA,
    LLAMA_HEADS,
    WORDS,
    cells,
    configs_of,
    llama_setting,
    pocket_setting,
    proof,
    table_of,
)
from headscope.errors import InputError
from headscope.papers.claims import judged
from headscope.papers.heads_up import (
    PAPER,
    asked,
    families,
    scaling,
    similarity,
    steps,
    walks,
)
from headscope.papers.heads_up.verdict import without_instruction, words_of
from headscope.papers.paper import Missing, PaperData, Setting
from headscope.papers.plan import make_plan
from headscope.papers.published import published, value
from headscope.shown.blocks import Cell
from headscope.shown.words import fixed
from headscope.studies.inputs import ModelChoice


@pytest.fixture
def pocket(tmp_path: Path) -> Setting:
    return pocket_setting(tmp_path)


@pytest.fixture
def llama(tmp_path: Path) -> Setting:
    return llama_setting(tmp_path)


def test_every_table_and_figure_belongs_to_one_experiment() -> None:
    wanted = {f"Table {n}" for n in range(1, 45)} | {f"Figure {n}" for n in range(1, 10)}
    elements = [element for one in PAPER.experiments for element in one.elements]
    assert len(wanted) == 53
    assert sorted(elements) == sorted(wanted)


def test_experiments_are_named_after_their_first_element() -> None:
    for one in PAPER.experiments:
        assert one.name == one.elements[0].lower().replace(" ", "-")
    assert len(EXPERIMENTS) == len(PAPER.experiments)


def test_every_published_table_and_figure_is_covered() -> None:
    elements = {element for one in PAPER.experiments for element in one.elements}
    places = {one.table for one in published("heads-up")}
    assert {one for one in places if not one.startswith("Section")} <= elements


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


def test_pocket_directions_share_sources_and_targets_and_one_is_without_english() -> None:
    ways = [tuple(name.split("-")) for name in asked.POCKET_DIRECTIONS]
    sources, targets = zip(*ways, strict=True)
    assert sorted(map(sources.count, set(sources))) == [2, 2]
    assert max(map(targets.count, set(targets))) == 2
    assert any((b, a) in ways for a, b in ways)
    assert sum("en" not in way for way in ways) == 1


def test_every_step_has_work_unless_it_only_compares(pocket: Setting, llama: Setting) -> None:
    for setting in (pocket, llama):
        for one in make_plan(PAPER.experiments, setting).steps:
            work = one.step.work
            if one.step.name.startswith("masks-"):
                assert work.tokens == 0
            else:
                assert work.tokens > 0 and work.calls > 0 and work.length > 0, one.step.name
            assert bool(work.backward) == one.step.name.startswith("mask-"), one.step.name


def test_work_of_a_training_is_steps_times_batch_times_tokens(
    pocket: Setting, llama: Setting
) -> None:
    (task, *_), (other, *_) = asked.directions(pocket), asked.directions(llama)
    assert steps.training_work(pocket, task).backward == pytest.approx(600 * 16 * (18 + 13.7))
    assert steps.training_work(llama, other).backward == pytest.approx(6190 * 16 * (30 + 28))
    word = asked.word_tasks(llama)[0]
    assert steps.training_work(llama, word).backward == pytest.approx(6250 * 16 * (8 + 4))


def test_training_follows_the_size_of_the_model(
    pocket: Setting, llama: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    def keep(config: Any, place: Path, progress: object) -> dict[str, Any]:
        seen.append((config, place))
        return {}

    monkeypatch.setattr(steps, "find_mask", keep)
    for setting in (pocket, llama):
        for one in make_plan(PAPER.experiments, setting).steps:
            if one.step.name.startswith("mask-"):
                one.step.run(setting, setting.at(one.step.name), None)
    changes = {place.name: dict(config.changes) for config, place in seen}
    assert changes["mask-en-ru"] == {}
    assert changes["mask-en-es-negative"] == {"start": "negative"}
    assert changes["mask-en-de-of-Llama-3.1-8B"] == {"steps": 6190}
    assert changes["mask-antonym"] == {"steps": 6250}
    assert changes["mask-antonym-shots"] == {"steps": 6250}
    assert changes["mask-de-en-feed-forward"] == {"steps": 6190, "feed_forward": True}
    configs = {place.name: config for config, place in seen}
    assert configs["mask-en-de-query"].changes["on"] == "query"
    assert configs["mask-antonym-shots"].task.shots == 5
    assert configs["mask-en-de-of-Llama-3.1-8B"].model.model == "meta-llama/Llama-3.1-8B"
    hybrid = configs["mask-hybrid-shots"].task
    assert hybrid.shots == 5
    # The one that Table 3 shows as unseen stays unseen.
    names = {Path(one).stem for one in hybrid.task}
    assert names == {*WORDS} - {"product-company"}


def test_the_hybrid_is_of_the_paper_s_tasks_without_the_unseen_one(llama: Setting) -> None:
    (folder,) = llama.data.tasks
    for name in ("alphabetically_first_3", "color_v_animal_3"):  # none of the paper's 35
        (Path(folder) / f"{name}.json").write_text("[]", encoding="utf-8")
    hybrid = asked.as_hybrid(asked.word_tasks(llama))
    assert hybrid is not None
    assert {Path(one).stem for one in hybrid.choice.task} == {*WORDS} - {"product-company"}


def test_settings_of_a_large_model_are_those_of_table_11(llama: Setting) -> None:
    told = EXPERIMENTS["table-9"].tell(llama)
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


def test_settings_of_a_small_model_are_a_tenth_of_the_steps(pocket: Setting) -> None:
    told = EXPERIMENTS["table-9"].tell(pocket)
    training = table_of(told, "The training")
    assert [one.value for one in cells(training, "steps")] == [600, 600]
    assert [one.published for one in cells(training, "steps")] == [6190, 6250]
    assert [one.value for one in cells(training, "first learning rate")] == [0.1, 0.1]
    assert "96 heads" in told.found
    assert training.reference is not None and not training.reference.comparable


def test_missing_data_is_named_with_flags_that_exist(tmp_path: Path) -> None:
    bare = Setting(ModelChoice(LLAMA), LLAMA_HEADS, "digest", PaperData(), tmp_path)
    flags = {f"--{field.name}" for field in dataclasses.fields(PaperData)} | {"--model"}
    missing = {}
    for one in PAPER.experiments:
        found = one.steps(bare)
        if isinstance(found, Missing):
            missing[one.name] = found
    assert set(missing) == set(EXPERIMENTS) - {"table-9"}
    for found in missing.values():
        assert found.why and set(re.findall(r"--[a-z-]+", found.give)) <= flags
        assert "--" in found.give
    assert "XNLI" in missing["table-1"].why and "--pairs" in missing["table-1"].give
    assert "Todd" in missing["table-2"].why and "--tasks" in missing["table-2"].give
    assert "IWSLT2017" in missing["figure-6"].why
    assert "--others" in missing["table-4"].give
    assert "--model" in missing["table-43"].give


def test_what_pocket_cannot_be_asked(pocket: Setting) -> None:
    missing = {one.name for one in PAPER.experiments if isinstance(one.steps(pocket), Missing)}
    assert missing == {"table-5", "table-7", "table-43"}


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
    assert [one.name for one in asked.directions(setting)] == ["en-de", "de-en"]
    assert all(one.default for one in asked.directions(setting))
    assert asked.directions(setting)[0].choice.data == ("en-de=a.tsv",)
    assert asked.check_file(setting, "en-de") == "iwslt.tsv"
    assert asked.check_file(setting, "de-en") is None


def test_a_folder_of_many_languages_stands_for_42_directions(llama: Setting) -> None:
    setting = dataclasses.replace(llama, data=PaperData(pairs=("flores/",)))
    found = asked.directions(setting)
    assert len(found) == 42 and len({one.name for one in found}) == 42
    assert [one.name for one in asked.chosen(found)] == [
        f"en-{code}" for code in ("zh", "fr", "es", "de", "ru", "ar")
    ]


def test_task_folders_train_the_tasks_of_table_2(llama: Setting, tmp_path: Path) -> None:
    found = asked.word_tasks(llama)
    assert [one.name for one in asked.chosen(found)] == list(WORDS[:6])
    assert {one.name for one in found} == set(WORDS)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(InputError, match="no task files"):
        asked.word_tasks(dataclasses.replace(llama, data=PaperData(tasks=(str(empty),))))


def conditions(*values: float, measure: str = "nll", half: float = 0.1) -> dict[str, Any]:
    """A task's conditions by the paper's names: as is, instructed, masked, random."""
    made = proof("x", measure, values, half)["tasks"]["x"]["conditions"]  # type: ignore[arg-type]
    by = {one["name"]: one for one in made}
    keys = {"original": "as is", "instructed": "instructed", "mask": "masked"}
    return {
        **{key: by[name] for key, name in keys.items()},
        "random mask": made[3:],
        "examples": 100,
    }


def test_what_masks_did_by_hand() -> None:
    rows = {
        "a": conditions(2.0, 1.0, 1.5, 3.0),  # half of the way
        "b": conditions(2.0, 1.0, 0.9, 3.0),  # beyond the instruction
        "c": conditions(2.0, 1.0, 2.5, 2.0),  # worse than both
        "d": conditions(2.0, 1.0, 1.9, 1.95),
        "e": {"original": None, "instructed": None, "mask": None, "random mask": []},
    }
    told = words_of(rows, "nll", "task")
    assert "in 3 of 4 tasks" in told and "helps (4 of 4)" in told and "as well in 1." in told
    masked, random = (1.5 + 0.9 + 2.5 + 1.9) / 4, (3 + 3 + 2 + 1.95) / 4
    claim = without_instruction(rows, ("nll",), "it", "task")[0]
    assert f"2.000 as is, {random:.3f} under" in claim.by and f"{masked:.3f} masked" in claim.by
    assert claim.by.startswith("loss ") and "; 4 tasks of 100 examples; " in claim.by
    assert f"{(0.5 + 1.1 - 0.5 + 0.1) / 4:.0%} of its way" in told
    assert words_of({"e": rows["e"]}, "nll", "task") == ""


def test_what_masks_did_to_a_measure_that_shall_rise() -> None:
    rows = {"a": conditions(0.1, 0.8, 0.45, 0.2, measure="accuracy")}
    told = words_of(rows, "accuracy", "task")
    assert "in 1 of 1 tasks" in told and "50% of its way" in told and "as well in 0." in told


def test_where_an_instruction_helps_in_some_tasks_or_in_none() -> None:
    helps, harms = conditions(2.0, 1.0, 1.5, 3.0), conditions(2.0, 3.0, 1.9, 3.0)
    told = words_of({"a": helps, "b": harms}, "nll", "task")
    assert "helps (1 of 2), masks go 50% of its way, and do at least as well in 0." in told
    same = {"a": conditions(0.2, 0.2, 0.2, 0.2, measure="accuracy")}
    assert "nothing to reach" in words_of(same, "accuracy", "task")
    # An instruction that hardly helps would make a way of 50,000 %.
    told = words_of({"a": conditions(1.0, 0.999, 0.5, 1.2)}, "nll", "task")
    assert "more than twice its way" in told and "in 1." in told
    del helps["instructed"]
    assert "not asked" in words_of({"a": helps}, "nll", "task")


def judged_of(rows: Any) -> dict[str, bool | None]:
    """Of the claims of masks without an instruction: out or reached, and whether each holds."""
    claims = judged(without_instruction(rows, ("nll",), "it", "task"))
    return {"out" if "out" in one.name else "reached": one.holds for one in claims}


def test_masks_bring_a_task_out_only_by_all_tests() -> None:
    good = conditions(2.0, 1.0, 0.5, 3.0)
    assert judged_of({"a": good, "b": good}) == {"out": True, "reached": True}
    # Every test of every task has to hold.
    for name, p in (("p_draws_shuffled", 1 / 6), ("p_examples_shuffled", 0.06)):
        weak = conditions(2.0, 1.0, 0.5, 3.0)
        weak["mask"][name]["nll"] = p
        assert judged_of({"a": good, "b": weak})["out"] is None, name
    few = conditions(2.0, 1.0, 0.5, 3.0)
    del few["mask"]["p_examples_shuffled"]
    assert judged_of({"a": good, "b": few})["out"] is None
    for numbers, out, reached in (
        ((2.0, 1.0, 1.5, 3.0), True, False),  # worse than the instruction
        ((2.0, 1.0, 1.05, 3.0), True, None),  # not told apart from it
        ((2.0, 1.0, 1.95, 3.0), None, False),  # nor from the model as it is
        ((2.0, 1.0, 1.5, 1.2), False, False),  # worse than random masks
        ((2.0, 3.0, 2.5, 4.0), False, True),  # worse than the model as it is
    ):
        rows = {"a": good, "b": conditions(*numbers)}
        assert judged_of(rows) == {"out": out, "reached": reached}, numbers


def test_the_tests_told_are_those_of_the_weakest_task() -> None:
    """Naive twin: every task judged by itself, and the worst of them taken."""
    random = np.random.default_rng(0)
    for _ in range(50):
        rows = {}
        for name in "abc":
            rows[name] = conditions(2.0, 1.0, *random.uniform((1.7, 1.6), 2.3))
            rows[name]["mask"]["p_draws_shuffled"]["nll"] = random.choice([0.05, 0.1])
        alone = [judged_of({name: own})["out"] for name, own in rows.items()]
        worst = False if False in alone else None if None in alone else True
        assert judged_of(rows)["out"] is worst


def test_proofs_ask_under_the_own_mask_and_others_beside(
    llama: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = (*llama.data.others, "meta-llama/Llama-3.1-70B-Instruct")
    llama = dataclasses.replace(llama, data=dataclasses.replace(llama.data, others=sizes))
    found = configs_of(llama, monkeypatch, steps, "verify_mask")
    own = found["proof-en-de"]
    assert own.masks == (str(llama.at("mask-en-de")),)
    assert (own.draws, own.foreign, own.model.model) == (39, (), LLAMA)
    swapped = found["swap-antonym-of-Llama-3.1-8B"]
    assert swapped.foreign == (str(llama.at("mask-antonym-of-Llama-3.1-8B")),)
    assert swapped.model.model == LLAMA and swapped.draws == 0
    other = found["proof-en-de-of-Llama-3.1-70B-Instruct"]
    assert other.model.model == "meta-llama/Llama-3.1-70B-Instruct"
    assert other.masks == (str(llama.at("mask-en-de-of-Llama-3.1-70B-Instruct")),)
    hybrid = found["shots-antonym-masked"]
    assert hybrid.hybrid == str(llama.at("mask-hybrid-shots")) and hybrid.tasks.shots == 5
    assert found["shots-antonym"].masks == (str(llama.at("mask-antonym")),)


def test_walks_take_the_paper_s_number_of_heads_or_that_share(
    pocket: Setting, llama: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = configs_of(pocket, monkeypatch, walks, "verify_one_by_one")
    large = configs_of(llama, monkeypatch, walks, "verify_one_by_one")
    assert (small["walk"].order, small["walk"].steps, small["walk"].examples) == (
        "ascending",
        None,
        10,
    )
    assert (small["walk-influential"].order, small["walk-influential"].reorder) == ("pass", 30)
    assert (large["walk-influential"].reorder, large["walk-influential"].steps) == (320, 320)
    assert large["walk"].examples == 1
    assert small["walk-negative"].heads == str(pocket.at("mask-en-de-negative"))
    assert {one.rank for one in (*small.values(), *large.values())} == {"score"}


def test_families_allow_what_parallel_files_share_and_count_languages(
    pocket: Setting, llama: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = configs_of(pocket, monkeypatch, families, "verify_families")
    # All 20 directions have their masks in, from both starts; four are tested.
    assert set(every) == {"families", "families-every", "families-negative"}
    for name, kind in (("every", ""), ("negative", "-negative")):
        found = every[f"families-{name}"]
        assert len(found.masks) == 20 and found.tasks.pair == asked.POCKET_DIRECTIONS
        assert f"tr-en={pocket.at(f'mask-tr-en{kind}')}" in found.masks
    own = every["families"]
    assert own.masks == tuple(
        f"{name}={pocket.at(f'mask-{name}')}" for name in asked.POCKET_DIRECTIONS
    )
    assert own.tasks.pair == asked.POCKET_DIRECTIONS and own.tasks.data == ()
    assert not own.allow_overlap
    given = configs_of(llama, monkeypatch, families, "verify_families")["families-negative"]
    assert given.allow_overlap
    assert given.tasks.data == ("en-de=xnli/en-de.tsv", "de-en=xnli/de-en.tsv")
    assert given.masks[0] == f"en-de={llama.at('mask-en-de-negative')}"


def test_scaling_measures_on_the_second_file(
    llama: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = dataclasses.replace(llama.data, pairs=("en-de=a.tsv", "en-de=b.tsv", "de-en=c.tsv"))
    setting = dataclasses.replace(llama, data=data)
    found = configs_of(setting, monkeypatch, scaling, "verify_scaling")
    assert found["scaling-en-de"].check_data == "b.tsv"
    assert found["scaling-de-en"].check_data is None
    # Where it is tested there are draws enough for a p of 0.05, on the grid for a picture.
    assert (found["scaling-de-en"].draws, found["scaling-de-en"].grid_draws) == (39, 2)
    assert found["scaling-en-de"].asking.paragraphs


def test_one_base_run_for_every_task(llama: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    found = configs_of(llama, monkeypatch, similarity, "compare_masks")
    both = found["masks-of-Llama-3.1-8B"]
    assert len(both.masks) == len(both.base) == 2 + 6
    for own, base in zip(both.masks, both.base, strict=True):
        assert base == f"{own}-of-Llama-3.1-8B"
    assert found["masks-compared"].base == ()
    # The default masks are compared without --full, all of them with it; Figure 7 is of directions.
    assert len(found["masks-compared"].masks) == 2 and "masks-compared-every" not in found
    assert len(found["masks-of-Llama-3.1-8B-every"].base) == 2 + len(WORDS)


def test_the_largest_model_is_trained_in_smaller_batches_on_directions(llama: Setting) -> None:
    large = dataclasses.replace(llama, model=ModelChoice("Qwen/Qwen2.5-14B-Instruct"))
    asked = steps.training_changes(large, translation=True, kind="query")
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
    assert steps.training_changes(large, translation=False) == {"steps": 6250}
    # As another model it is trained so, too, and others beside it are not.
    other = "Qwen/Qwen2.5-14B-Instruct"
    assert steps.training_changes(llama, True, other=other)["batch"] == 8
    assert steps.training_changes(large, True, other="Qwen/Qwen2.5-7B") == {"steps": 6190}
