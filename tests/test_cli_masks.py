"""`verify mask`, `verify scaling` and `verify families` as commands, on the bundled model."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headscope
import mask_helpers
import process_helpers
from conftest import json_of
from family_helpers import equal_up_to_the_first
from headscope.errors import InputError
from headscope.heads import Geometry
from headscope.results.common import Leakage
from headscope.results.masked_tasks import MaskTests
from headscope.studies.masked_tasks import masks_by_task
from headscope.studies.report import write_report
from headscope.studies.tasks import TaskChoice, TaskSides, found_on, read_tasks, training_task
from headscope.studies.verify import families, mask, scaling
from headscope.studies.verify.families import VerifyFamilies
from headscope.studies.verify.mask import VerifyMask
from headscope.studies.verify.scaling import VerifyScaling, candidates
from headscope.verify.masked_tasks.conditions import losses_by_alpha


@pytest.fixture(scope="module")
def geometry() -> Geometry:
    return headscope.load("pocket").geometry


def make(path: Path, geometry: Geometry, seed: int, task: str, **more: Any) -> Path:
    """A run of `find mask` that keeps about half of the heads."""
    weights = np.random.default_rng(seed).normal(0.3, 1, geometry.shape)
    return mask_helpers.write_mask_run(path, geometry, weights, task, **more)


@pytest.fixture(scope="module")
def masks(tmp_path_factory: pytest.TempPathFactory, geometry: Geometry) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("masks")
    trained = found_on(read_tasks(TaskChoice(("plural-en",)), "pocket"))
    return {
        "plural-en": make(folder / "plural", geometry, 0, "plural-en", found_on=trained),
        "past-en": make(folder / "past", geometry, 1, "past-en", found_on={"past-en": {}}),
        "both": make(folder / "both", geometry, 2, "hybrid", found_on={"a": {}, "past-en": {}}),
    }


def found_by(command: Callable[..., Any], *arguments: object) -> dict[str, Any]:
    said = command(*arguments, "--json")
    assert said.code == 0, said.err
    return dict(json_of(said.out))


@pytest.fixture(scope="module")
def tested(masks: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> MaskTests:
    config = VerifyMask(
        masks=(str(masks["plural-en"]),),
        tasks=TaskChoice(("plural-en", "past-en"), shots=2, held_out=4),
        foreign=(str(masks["past-en"]),),
        hybrid=str(masks["both"]),
        draws=1,
    )
    return mask.comparison.run(config, tmp_path_factory.mktemp("tested") / "run")


def test_all_conditions_are_compared_and_shown(tested: MaskTests) -> None:
    evidence, tasks = tested.evidence, tested.details.tasks
    (task, *_), other = tasks.values(), tasks["plural-en"].hybrid
    assert other is not None
    own, both = task.mask.removed, other.mask.removed
    ids = ["original", "instructed", f"selected own mask {own}", f"shuffled own mask {own} #0",
           f"shuffled same layers own mask {own} #0", f"selected hybrid mask {both}",
           f"foreign own mask {own} #0"]  # fmt: skip
    assert [each.id for each in evidence.conditions] == ids
    assert task.leakage == Leakage(known=True, overlap=0, of=4)
    assert (task.unseen, tasks["past-en"].unseen) == (False, True)
    hybrid, (foreign,) = tasks["past-en"].hybrid, tasks["past-en"].foreign
    assert hybrid is not None and hybrid.unseen is False
    assert hybrid.leakage == foreign.leakage == Leakage(known=True, overlap=0, of=4)
    main, hybrid_mask = evidence.selected
    controls = ["shuffled", "shuffled same layers", "foreign", "instructed"]
    assert list(evidence.against("nll", main, "past-en")) == controls
    # Random masks have the size of the task's own mask alone.
    assert list(evidence.against("nll", hybrid_mask, "past-en")) == ["instructed"]
    assert evidence.against("nll", main, "past-en")["foreign"].p_draws is None
    assert tested.run is not None
    folder, values = Path(tested.run), []
    for name in tasks:
        file = folder / f"samples/{name}.jsonl"
        samples = [json.loads(line) for line in file.open(encoding="utf-8")]
        for each in evidence.conditions:
            rows = [sample for sample in samples if sample["condition"] == each.id]
            losses = [row["nll"] / row["tokens"] for row in rows]
            right = [row["reference"].strip() in row["output"] for row in rows]
            for measure, mean in (("nll", np.mean(losses)), ("accuracy", np.mean(right))):
                level = evidence.level(measure, each, name)
                assert level is not None and level.value == pytest.approx(mean)
                assert level.examples == len(rows) == 4
            values += [float(np.mean(losses))] if each.id == "original" else []
    whole = evidence.level("nll")
    assert whole is not None and whole.value == pytest.approx(np.mean(values))
    assert tested.verdict
    file.write_text('{"id": 1}\n', "utf-8")
    with pytest.raises(InputError, match=r"past-en.jsonl, line 1"):
        write_report(folder)


def test_a_hybrid_is_not_tested_on_what_it_was_trained_on(
    masks: dict[str, Path], geometry: Geometry, tmp_path: Path
) -> None:
    past = read_tasks(TaskChoice(("past-en",), held_out=2), "pocket")["past-en"].test
    seen = found_on({"x": TaskSides(past, past)})
    leaky = str(make(tmp_path / "leaky", geometry, 3, "hybrid", found_on=seen))
    config = VerifyMask(
        masks=(str(masks["past-en"]),),
        tasks=TaskChoice(("past-en",), held_out=2),
        hybrid=leaky,
        draws=1,
    )
    with pytest.raises(InputError, match="2 of 2 test examples are among those"):
        mask.comparison.run(config, tmp_path / "run")
    # A foreign mask is what the task's own is compared with: it is only told of.
    config = dataclasses.replace(config, hybrid=None, foreign=(leaky,), max_new_tokens=1)
    result = mask.comparison.run(config, tmp_path / "run")
    (other,) = result.details.tasks["past-en"].foreign
    assert other.leakage.overlap == 2
    assert any("foreign 0" in words.lower() and "trained on 2 of 2" in words
               for words in result.cautions)  # fmt: skip


def test_another_file_can_be_measured_on(masks: dict[str, Path], tmp_path: Path) -> None:
    file = tmp_path / "others.tsv"
    file.write_text("source\ttarget\nThe king sees.\tDer König sieht.\n", "utf-8")
    config = VerifyScaling(
        masks=(str(masks["plural-en"]),),
        tasks=TaskChoice(pair=("en-de",), held_out=2),
        check_data=str(file),
        grid=(0.0, 1.0),
        draws=0,
        max_new_tokens=2,
        grid_draws=1,
    )
    details = scaling.comparison.run(config, tmp_path / "run").details
    task = details.tasks["en-de"]
    assert (task.chosen_on, task.examples) == (2, 1)
    tried = details.tried
    (scaled,) = tried.selected
    assert len(tried.of_control(scaled, "shuffled")) == 1
    # The best alpha is that of the lowest loss in the table.
    losses = {alpha: row.value for alpha, row in losses_by_alpha(tried, "en-de").items()}
    assert list(losses) == [0.0, 1.0]
    assert task.best == min(losses, key=lambda alpha: losses[alpha])
    assert "Der König sieht." in (tmp_path / "run/samples/en-de.jsonl").read_text("utf-8")
    words = dataclasses.replace(config, tasks=TaskChoice(("plural-en",), held_out=2))
    with pytest.raises(InputError, match="is for one translation direction"):
        scaling.comparison.run(words, tmp_path / "other")


def test_candidates_are_the_fewest_values_that_most_resamples_choose() -> None:
    assert candidates({"0": 0.5, "0.5": 0.04, "1": 0.46}) == ["0", "1"]
    assert candidates({"0": 0.0, "0.3": 0.96, "1": 0.04}) == ["0.3"]


def test_families_of_masks_are_removed_beside_random_heads(
    command: Callable[..., Any], masks: dict[str, Path], tmp_path: Path
) -> None:
    out = tmp_path / "run"
    found = found_by(
        command, "verify", "families", "--heads", masks["plural-en"], "--heads", masks["past-en"],
        "--heads", f"third={masks['both']}", "--family", "two=plural-en,third",
        "--family", "again=third,plural-en",
        "--task", "past-en", "--held-out", 3, "--draws", 2, "--out", out,
    )  # fmt: skip
    families = found["details"]["families"]
    assert [one["name"] for one in families] == ["all", "two", "again", "unused"]
    sizes = {one["name"]: one["removed"] for one in families}
    assert sizes["all"] < sizes["two"]
    rows = found["conditions"]
    assert len(rows) == 1 + 4 * (1 + 4)
    drawn = {row["of"] for row in rows if row["kind"] == "random"}
    assert drawn == {"all", "two", "again", "unused"}
    # Heads that masks share are said to harm, those in no mask to help.
    sides = {(row["condition"].split()[1], row["side"]) for row in found["tests"]
             if row["statistic"] == "nll"}  # fmt: skip
    assert sides == {("all", "higher"), ("two", "higher"), ("again", "higher"), ("unused", "lower")}
    # The same heads are asked once.
    losses = {row["condition"]: row["value"] for row in found["levels"]
              if row["statistic"] == "nll"}  # fmt: skip
    made = {
        name: [losses[row["id"]] for row in rows if row["of"] == name]
        for name in ("all", "two", "again")
    }
    assert made["two"] == made["again"] != made["all"]
    lines = (out / "parts/nll.jsonl").read_text("utf-8").splitlines()
    assert sum("baseline check" not in line for line in lines) == 1 + 3 * (1 + 4)
    assert found["baseline_works"] is True


@pytest.mark.parametrize("shared", [False, True])
def test_random_masks_end_at_the_first_that_does_as_much(
    shared: bool, masks: dict[str, Path], tmp_path: Path
) -> None:
    """A mask beside masks of its size, and heads that masks share beside as many random ones."""
    tasks = TaskChoice(("plural-en",), held_out=3)
    given: dict[str, Any] = {"tasks": tasks, "draws": 9, "max_new_tokens": 2}
    config: Any = VerifyMask(masks=(str(masks["plural-en"]),), **given)
    command: Any = mask.comparison
    if shared:
        every = tuple(f"{name}={place}" for name, place in masks.items())
        config = VerifyFamilies(
            masks=every, **given | {"tasks": TaskChoice(("past-en",), held_out=3)}
        )
        command = families.comparison
    fixed = command.run(config, tmp_path / "fixed").evidence
    ended = command.run(dataclasses.replace(config, claims=()), tmp_path / "ended").evidence
    early = equal_up_to_the_first(ended, fixed)
    assert {test.draws for test in early} <= {4, 8} and early


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--task", "plurals-en"], "did you mean plural-en?"),
        (["--task", "plural-en", "--heads", "x=MASK"], "is for a task 'x' that is not tested"),
        ([], "no task given"),
        (["--task", "plural-en", "--instruction", "no place"], "put it once"),
        (["--task", "no/file.json"], "there is no task file no/file.json"),
        (["--task", "plural-en", "--control", "foreign"], "the control 'foreign' is not known"),
    ],
)
def test_slips_are_told_in_a_sentence(
    command: Callable[..., Any], masks: dict[str, Path], arguments: list[str], said: str
) -> None:
    place = str(masks["plural-en"])
    given = [one.replace("MASK", place) for one in arguments]
    done = command("verify", "mask", "--heads", place, *given)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert done.err.count("\n") == 1


def test_killed_at_any_point_it_goes_on_and_ends_the_same(
    masks: dict[str, Path], tmp_path: Path
) -> None:
    task = TaskChoice(("plural-en",), held_out=2)
    config = VerifyMask(masks=(str(masks["plural-en"]),), tasks=task, draws=1)
    # The check of the original model and the conditions begin, and four of their units end.
    titles = ("plural-en: nll",)
    _, kept = process_helpers.resumed("verify mask", config, tmp_path, 2 + 4, titles)
    assert kept["nll.jsonl"].count(b"\n") == 4


def test_tasks_are_found_by_name_in_a_folder_and_in_the_world(tmp_path: Path) -> None:
    folder = tmp_path / "tasks"
    folder.mkdir()
    items = [{"input": f"w{n}", "output": f"v{n}"} for n in range(9)]
    (folder / "antonym.json").write_text(json.dumps(items), "utf-8")
    choice = TaskChoice(("antonym", "past-tr"), data=(str(folder),), held_out=4)
    found = read_tasks(choice, "pocket")
    sides = found["antonym"]
    assert sides.train is not None
    assert (len(sides.train.examples), len(sides.test.examples)) == (5, 4)
    assert sides.test.instruction is not None
    assert sides.test.bare == "{input}\nAnswer:"
    world = found["past-tr"]
    assert world.train is not None
    assert not {e.input for e in world.train.examples} & {e.input for e in world.test.examples}
    assert len(training_task(TaskChoice(shots=2), found).examples) == 10
    alone = TaskChoice(("antonym",), data=(str(folder),), held_out=9)
    with pytest.raises(InputError, match="leaves none to train on"):
        training_task(alone, read_tasks(alone, "pocket"))
    everywhere = read_tasks(TaskChoice(("capital",)), "pocket")["capital"]
    assert everywhere.train is not None
    trained = {example.input for example in everywhere.train.examples}
    assert not trained & {example.input for example in everywhere.test.examples}


def test_each_task_has_its_mask() -> None:
    sides: dict[str, Any] = dict.fromkeys(("a", "b"), TaskSides)
    assert masks_by_task(["x"], sides) == {"a": Path("x"), "b": Path("x")}
    assert masks_by_task(["a=x", "b=y"], sides) == {"a": Path("x"), "b": Path("y")}
    with pytest.raises(InputError, match="task b has no mask"):
        masks_by_task(["a=x"], sides)


@pytest.mark.parametrize("limit", [3, 40])
def test_a_limit_holds_on_both_sides_of_tasks_of_the_pocket_model(limit: int) -> None:
    named = {"task": ("plural-de",), "pair": ("en-de",), "held_out": 20}
    every = read_tasks(TaskChoice(**named), "pocket")
    few = read_tasks(TaskChoice(**named, limit=limit), "pocket")
    for name, sides in few.items():
        assert sides.train is not None and len(sides.train.examples) <= limit
        assert len(sides.test.examples) == min(limit, 20)
        first = every[name].test.examples[: len(sides.test.examples)]
        assert [each.input for each in sides.test.examples] == [each.input for each in first]
