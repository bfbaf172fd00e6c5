"""What of Heads Up!'s tables is planned, of which data, and by which of the paper's settings."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from heads_up_helpers import (
    EXPERIMENTS,
    LLAMA,
    llama_setting,
    pocket_setting,
    settings_of,
)
from headscope.errors import InputError
from headscope.papers.heads_up import runs
from headscope.papers.heads_up.cells import place_of
from headscope.papers.heads_up.masks import TABLE_8
from headscope.papers.heads_up.paper import PAPER
from headscope.papers.heads_up.prompts import place_of_order
from headscope.papers.heads_up.tasks import TABLE_1, check_file, default_tasks, directions
from headscope.papers.paper import Missing, Setting, Steering, Step
from headscope.papers.plan import Coverage, make_plan
from headscope.studies.leakage import check_task_leakage
from headscope.studies.models import ModelChoice
from headscope.studies.tasks import TaskChoice, found_on, read_tasks
from headscope.studies.verify.scaling import VerifyScaling, _parts
from headscope.verify.masked_tasks import asked


@pytest.fixture
def llama(tmp_path: Path) -> Setting:
    return llama_setting(tmp_path)


def with_pairs(setting: Setting, *places: str) -> Setting:
    return replace(setting, data=replace(setting.data, pairs=places))


def words(setting: Setting, full: bool = False) -> dict[str, tuple[Coverage, Missing | None]]:
    """What becomes of each table and figure."""
    plan = make_plan(PAPER.experiments, replace(setting, full=full))
    return {name: word for one in plan.experiments for name, word in one.coverage.items()}


def steps(setting: Setting, experiment: str) -> tuple[Step, ...]:
    found = EXPERIMENTS[experiment].steps(setting)
    assert isinstance(found, tuple)
    return found


def test_families_are_tested_on_what_their_masks_hold_out(llama: Setting) -> None:
    steered = replace(
        llama, steering=Steering(limit=40, shots=2, chat=False, instruction="{input}!")
    )
    tested = settings_of(steered, "verify families")["families"].tasks
    (trained, *_) = (one.choice for one in directions(steered))
    # All but the directions and their files is what the masks were trained by.
    assert replace(tested, pair=trained.pair, data=trained.data) == trained
    assert (tested.limit, tested.held_out, tested.shots) == (40, 20, 2)


def test_beside_a_folder_the_first_file_is_measured_on(llama: Setting) -> None:
    places = tuple(f"{name}=iwslt/{name}.tsv" for name in TABLE_8)
    folder = with_pairs(llama, "xnli", *places)
    assert {one.choice.data for one in directions(folder)} == {("xnli",)}
    assert check_file(folder, "zh-en") == "iwslt/zh-en.tsv" and check_file(folder, "en-es") is None
    assert check_file(with_pairs(llama, *places), "zh-en") is None
    word, missing = words(folder, full=True)["Table 8"]
    assert word == "measured", missing
    scaled = {one.name for one in steps(folder, "figure-6") if one.name.startswith("scaling-")}
    # Those of Figure 6, from English, and the three into it that Table 8 has besides.
    assert {f"scaling-{name}" for name in (*TABLE_1, *TABLE_8)} == scaled
    # A direction without sentences to measure on is no part of the table.
    assert words(with_pairs(llama, "xnli", *places[1:]), full=True)["Table 8"][0] == "needs DATA"
    assert words(folder)["Figure 6"][0] == words(folder)["Table 8"][0] == "--full"


def test_a_part_of_a_table_is_not_called_the_table(llama: Setting, tmp_path: Path) -> None:
    (folder,) = llama.data.tasks
    one = replace(llama.data, pairs=("en-zh=a",), tasks=(f"{folder}/sentiment.json",))
    few = words(replace(llama, data=one))
    for name in (*(f"Table {number}" for number in (1, 2, 3, 5)), "Figure 6"):
        word, missing = few[name]
        assert word == "needs DATA" and missing is not None, name
    _, missing = few["Table 2"]
    assert missing is not None and "6 word tasks, of which 1 are given" in missing.why
    _, missing = words(replace(llama, data=replace(one, others=())))["Table 5"]
    assert missing is not None and "--pairs and --tasks" in missing.give
    # Of the four that choose one of several words two are given.
    assert words(llama, full=True)["Table 7"][0] == "needs DATA"
    six = replace(one, pairs=tuple(f"{name}=a" for name in TABLE_1), tasks=llama.data.tasks)
    enough = words(replace(llama, data=six))
    assert {enough[f"Table {number}"][0] for number in (1, 2, 5)} == {"measured"}
    assert words(replace(llama, data=replace(six, tasks=())))["Table 5"][0] == "needs DATA"


def test_directions_are_asked_for_in_the_paper_s_words(llama: Setting, tmp_path: Path) -> None:
    file = tmp_path / "pairs.tsv"
    file.write_text("source\ttarget\nHello.\t\u4f60\u597d\u3002\n", "utf-8")
    (way, *_) = directions(with_pairs(llama, f"en-zh={file}"))
    (read,) = read_tasks(way.choice, LLAMA).values()
    (instructed,) = asked(read.test).prompts(instructed=True)
    assert instructed == "Hello.\n\nTranslate into Chinese:"
    assert way.choice.answer_end and way.choice.hold_out_last and read.test.answer_end
    own = replace(llama, steering=Steering(protocol="own"))
    (way, *_) = directions(with_pairs(own, f"en-zh={file}"))
    (read,) = read_tasks(way.choice, LLAMA).values()
    (instructed,) = asked(read.test).prompts(instructed=True)
    assert instructed.startswith("Translate into Chinese:") and "Hello." in instructed
    assert way.choice.answer_end is way.choice.hold_out_last is None
    steered = replace(llama, steering=Steering(instruction="Say in {target}: {input}"))
    (way, *_) = directions(with_pairs(steered, f"en-zh={file}"))
    (read,) = read_tasks(way.choice, LLAMA).values()
    assert [*asked(read.test).prompts(instructed=True)] == ["Say in Chinese: Hello."]
    # The bundled model keeps the prompt that it was trained on.
    assert {one.choice.instruction for one in directions(pocket_setting(tmp_path))} == {None}


def test_the_published_protocol_is_followed_unless_it_is_the_bundled_model(
    llama: Setting, tmp_path: Path
) -> None:
    bundled = pocket_setting(tmp_path)
    own = replace(llama, steering=Steering(protocol="own"))
    for setting, theirs in ((llama, True), (own, False), (bundled, False)):
        for command in ("verify families", "verify mask", "verify scaling", "compare states"):
            made = settings_of(setting, command)
            assert made, command
            assert {one.model.system for one in made.values()} == {"none" if theirs else None}
        said = place_of(setting, "Table 1", "XNLI").reference.why
        assert ("our protocol" in said) is not theirs


def test_the_walk_of_english_to_chinese_is_over_the_paper_s_sentence(llama: Setting) -> None:
    own = with_pairs(llama, "en-de=a", "en-zh=b")
    steered = replace(own, steering=Steering(limit=2))
    for setting in (own, steered):
        walk = settings_of(setting, "verify one-by-one")["walk"]
        assert walk.heads == str(setting.at("mask-en-zh")) and walk.examples == 1
        (read,) = read_tasks(walk.tasks, LLAMA).values()
        first = read.test.examples[0]
        assert first.input == "I see a llama sleeping in my backyard."
        assert first.output.startswith("\u6211") and read.train is None
    assert "one prompt of its own" not in place_of_order(own, "Figure 2").reference.why
    other = with_pairs(llama, "en-de=a")
    assert settings_of(other, "verify one-by-one")["walk"].tasks.data == ("en-de=a",)


def test_draws_reach_every_control(llama: Setting, tmp_path: Path) -> None:
    steered = replace(llama, steering=Steering(draws=107))
    for command in ("verify families", "verify attention", "verify scaling", "compare states"):
        found = settings_of(steered, command)
        assert found and {one.draws for one in found.values()} == {107}, command
    for name in ("table-6", "table-7", "figure-6", "figure-4"):
        work = {one.name: one.work for one in steps(llama, name)}
        changed = [
            one.name for one in steps(steered, name) if one.work.tokens > work[one.name].tokens
        ]
        assert any(not one.startswith("mask-") for one in changed), name
    given = replace(pocket_setting(tmp_path), steering=Steering(draws=19))
    for setting, draws, ended in (
        (pocket_setting(tmp_path), runs.DRAWS, ("all",)),
        (given, 19, None),
        (llama, 39, None),
    ):
        # Tests of one task that a claim pools have draws of one number.
        tested = settings_of(setting, "verify mask")
        own = [f"proof-{task.name}" for task in default_tasks(setting)]
        assert own and {(tested[name].draws, tested[name].claims) for name in own} == {
            (draws, None)
        }
        assert all(one.draws in (0, 19) for name, one in tested.items() if name not in own)
        shared = settings_of(setting, "verify families").values()
        most = 99 if setting is llama else draws
        assert {(one.draws, one.claims) for one in shared} == {(most, ended)}
        assert {one.k for one in shared} == {177 if setting is llama else 17}
        for command in ("verify scaling", "compare states"):  # no claim rests on these
            assert {one.draws for one in settings_of(setting, command).values()} == {19}
    assert "mean of 107 draws" in EXPERIMENTS["table-6"].show(steered).tables[0].note


def test_too_few_steps_are_told_before_anything_is_run(llama: Setting, tmp_path: Path) -> None:
    for setting in (llama, pocket_setting(tmp_path), with_pairs(llama)):
        few = replace(setting, steering=Steering(steps=50))
        with pytest.raises(InputError, match="50 steps"):
            make_plan(PAPER.experiments, few)  # as `reproduce` does before it opens a folder
        make_plan(PAPER.experiments, replace(setting, steering=Steering(steps=6000)))


def test_sizes_are_compared_on_the_paper_s_sentence_and_into_english(llama: Setting) -> None:
    large = "meta-llama/Llama-3.1-70B-Instruct"
    llama = replace(llama, data=replace(llama.data, others=(large,)))
    folder = with_pairs(llama, "xnli")
    asked = settings_of(folder, "verify mask")
    for name, model in (("", LLAMA), ("-of-Llama-3.1-70B-Instruct", large)):
        own = asked[f"printed-en-fr{name}"]
        assert own.model.model == model and own.masks == (str(folder.at(f"mask-en-fr{name}")),)
        (read,) = read_tasks(own.tasks, LLAMA).values()
        assert read.test.examples[1].input == "I have never seen such a beautiful sunset."
        assert f"proof-zh-en{name}" in asked  # Table 36
    # The first tokens are those of English to German, whatever direction comes first.
    probed = settings_of(folder, "compare states")
    assert probed["states-en-de"].heads == str(folder.at("mask-en-de"))
    assert probed["states"].heads == str(folder.at("mask-en-zh"))
    # On Table 4's own sentence; those of Figure 4 are of held-out ones.
    own = probed["states-en-de"]
    (read,) = read_tasks(own.tasks, LLAMA).values()
    (shown,) = [one.input for one in read.test.examples if one.id == own.example]
    assert shown == "I have never seen such a beautiful sunset."
    assert (probed["states"].tasks.data, probed["states"].example) == (("xnli",), None)
    found = words(folder)
    assert found["Table 4"][0] == "measured" and found["Table 36"][0] == "--full"
    few = words(with_pairs(llama, "en-zh=a", "en-de=a"))
    assert few["Table 4"][0] == few["Table 36"][0] == "needs DATA"


def leaks(place: Path, trained: TaskChoice, tested: TaskChoice) -> int | None:
    """How many examples of one choice a mask of another one has seen; InputError if any."""
    place.mkdir()
    found = found_on(read_tasks(trained, LLAMA))
    (place / "found_on.json").write_text(json.dumps(found), "utf-8")
    (place / "run.json").write_text("{}", "utf-8")
    tests = [one.test for one in read_tasks(tested, LLAMA).values()]
    return check_task_leakage(str(place), tests).overlap


def test_the_hybrid_is_not_trained_on_what_one_of_its_tasks_holds_out(tmp_path: Path) -> None:
    rows = [{"input": f"word {at}", "output": f"answer {at}"} for at in range(60)]
    files = [tmp_path / f"{name}.json" for name in ("antonym", "synonym")]
    for file, own in zip(files, (rows, rows[:20]), strict=True):
        file.write_text(json.dumps(own), "utf-8")
    each = [TaskChoice((str(file),), held_out=10) for file in files]
    hybrid = TaskChoice(tuple(map(str, files)), held_out=10)
    for name, tested in zip(("a", "b"), each, strict=True):
        assert leaks(tmp_path / name, hybrid, tested) == 0
    first, second = read_tasks(hybrid, LLAMA).values()
    assert len(first.test.examples) == len(second.test.examples) == 10
    assert first.train is not None  # no more than what the other one holds out is missing
    assert 40 <= len(first.train.examples) < 50


def test_a_direction_is_not_trained_on_the_targets_it_holds_out(tmp_path: Path) -> None:
    file = tmp_path / "pairs.tsv"
    lines = [f"Sentence number {at}.\tSatz {at // 2}." for at in range(60)]
    file.write_text("source\ttarget\n" + "\n".join(lines), "utf-8")
    choice = TaskChoice(
        pair=("en-de",), data=(f"en-de={file}",), held_out=10, instruction="{input}",
        answer_only=True,
    )  # fmt: skip
    assert leaks(tmp_path / "run", choice, choice) == 0
    (sides,) = read_tasks(choice, LLAMA).values()
    assert sides.train is not None and len(sides.test.examples) == 10
    assert sides.train.answer_only and sides.test.answer_only
    # Sentences of a second file that the mask or α knows are left out and counted.
    check = tmp_path / "check.tsv"
    known = (sides.train.examples[0], sides.test.examples[0])
    both = [f"{known[0].input}\tNeu.", f"New.\t{known[1].output}", "Other.\tAnderer."]
    check.write_text("source\ttarget\n" + "\n".join(both), "utf-8")
    config = VerifyScaling(masks=(), tasks=choice, model=ModelChoice(LLAMA), check_data=str(check))
    chosen, measured, left_out = _parts(sides, {"en-de": sides}, config)
    assert chosen is sides.test and left_out == 2 and measured.answer_only
    assert [one.input for one in measured.examples] == ["Other."]
    check.write_text("source\ttarget\n" + "\n".join(lines), "utf-8")
    with pytest.raises(InputError, match="α is chosen on"):
        _parts(sides, {"en-de": sides}, config)
