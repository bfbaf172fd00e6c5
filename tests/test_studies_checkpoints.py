"""A series of checkpoints: what is named, in training order."""

from __future__ import annotations

from pathlib import Path

import pytest

from headscope.errors import InputError
from headscope.studies.compare.checkpoints import checkpoint_series, step_of
from headscope.studies.inputs import ModelChoice


def folders(root: Path, *names: str) -> None:
    for name in names:
        (root / name).mkdir(parents=True)
        (root / name / "config.json").write_text("{}")


def test_pocket_is_all_its_checkpoints_and_the_end_comes_last() -> None:
    series = checkpoint_series(["pocket"], model=ModelChoice(dtype="bfloat16"))
    assert series[0].name == "step-00032" and series[-1].name == "final"
    steps = [one.step for one in series[:-1]]
    assert steps == sorted(step for step in steps if step is not None) and series[-1].step is None
    assert all(one.bundled and one.model.dtype == "bfloat16" for one in series)
    two = checkpoint_series(["pocket:final", "pocket:step-00320"])
    assert [one.name for one in two] == ["step-00320", "final"]
    with pytest.raises(InputError, match="no checkpoint 'step-9'; known: step-00032"):
        checkpoint_series(["pocket:step-9", "pocket"])


def test_folders_patterns_and_a_folder_of_folders_sort_by_step(tmp_path: Path) -> None:
    folders(tmp_path, "step-2000", "step-300", "step-10000", "main")
    (tmp_path / "README.md").write_text("no checkpoint")
    expected = ["step-300", "step-2000", "step-10000", "main"]
    shuffled = [str(tmp_path / name) for name in ("main", "step-10000", "step-300", "step-2000")]
    for named in (shuffled, [str(tmp_path)], [str(tmp_path / "[sm]*")]):
        assert [one.name for one in checkpoint_series(named)] == expected
    assert [one.step for one in checkpoint_series(shuffled)] == [300, 2000, 10000, None]


def test_a_folder_that_lost_its_configuration_is_still_a_checkpoint(tmp_path: Path) -> None:
    folders(tmp_path, "step-1", "step-2", "step-3")
    (tmp_path / "step-2" / "config.json").unlink()
    assert [one.step for one in checkpoint_series([str(tmp_path)])] == [1, 2, 3]
    assert [one.step for one in checkpoint_series([str(tmp_path / "step-*")])] == [1, 2, 3]


def test_names_without_steps_stay_as_given(tmp_path: Path) -> None:
    folders(tmp_path, "warm", "step-5", "cold")
    named = [str(tmp_path / name) for name in ("warm", "step-5", "cold")]
    assert [one.name for one in checkpoint_series(named)] == ["warm", "step-5", "cold"]


@pytest.mark.parametrize(
    ("name", "stage", "step"),
    [
        ("EleutherAI/pythia-70m@step143000", None, 143000),
        ("allenai/OLMo-7B-hf@step1000-tokens4B", None, 1000),
        ("allenai/OLMo-2-1124-7B@stage2-ingredient3-step12000-tokens26B", 2, 12000),
        ("allenai/Olmo-3-1125-32B@stage1-step10000", 1, 10000),
        ("runs/step-9/checkpoint-500", None, 500),
        ("global_step100/", None, 100),
        ("allenai/OLMo-2-1124-7B", None, None),
        ("allenai/OLMo-2-1124-7B@main", None, None),
    ],
)
def test_steps_are_read_from_revisions(name: str, stage: int | None, step: int | None) -> None:
    assert step_of(name) == (stage, step)


def test_revisions_of_the_hub_in_training_order() -> None:
    revisions = ("main", "stage2-step500-tokens2B", "stage1-step20000", "stage1-step3000")
    series = checkpoint_series(
        [], revisions, ModelChoice("allenai/OLMo-2-1124-7B", dtype="float16")
    )
    assert [one.name for one in series] == [revisions[i] for i in (3, 2, 1, 0)]
    assert {one.model.model for one in series} == {"allenai/OLMo-2-1124-7B"}
    assert [one.model.revision for one in series] == [one.name for one in series]
    assert all(one.model.dtype == "float16" and not one.bundled for one in series)
    same = checkpoint_series([f"allenai/OLMo-2-1124-7B@{one}" for one in revisions])
    assert [(one.name, one.model.revision) for one in same] == [
        (one.name, one.model.revision) for one in series
    ]
    both = checkpoint_series(["a/m@step1", "b/m@step1"])
    assert [one.name for one in both] == ["a/m@step1", "b/m@step1"]


def test_series_that_are_none(tmp_path: Path) -> None:
    folders(tmp_path, "step-1")
    for names, said in (
        ([], "no checkpoints are named"),
        ([str(tmp_path / "step-1")], "single checkpoint"),
        ([str(tmp_path / "step-1")] * 2, "named twice"),
        ([str(tmp_path / "nothing-*")], "matches no folder"),
    ):
        with pytest.raises(InputError, match=said):
            checkpoint_series(names)
    with pytest.raises(InputError, match="--revision step1 needs --model with the name of a Hub"):
        checkpoint_series([], ["step1"])
