"""`headscope find mask`: the run folder, resuming, its history and its page."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

import process_helpers
from headscope.errors import InputError
from headscope.find import mask_training as train
from headscope.find.mask_config import History, MaskTraining
from headscope.find.mask_training import seconds_a_step
from headscope.heads import Geometry
from headscope.lm import load
from headscope.lm.prompting import Answered
from headscope.runs import configuration, encode
from headscope.studies.find.mask import FindMask, find_mask
from headscope.studies.models import ModelChoice
from headscope.studies.report import write_report
from headscope.studies.tasks import TaskChoice
from lm_helpers import saved

Command = Callable[..., Any]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A model folder and a task file."""
    folder = tmp_path_factory.mktemp("inputs")
    words = ("cat", "dog", "house", "tree", "bird", "river", "stone", "cloud", "green", "open")
    items = [{"input": word, "output": word[::-1]} for word in words]
    (folder / "backwards.json").write_text(json.dumps(items, indent=1), "utf-8")
    return str(saved(folder / "model", "qwen3")), str(folder / "backwards.json")


def settings(model: str, task: str) -> FindMask:
    """A short training with feed-forward gates, so that every kind of weight is resumed."""
    changes = {"steps": 12, "learning_rate": 1.5, "batch": 3, "feed_forward": True}
    return FindMask(ModelChoice(model), TaskChoice((task,), held_out=2), "small", changes)


@pytest.fixture(scope="module")
def run(inputs: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run that was not interrupted."""
    out = tmp_path_factory.mktemp("whole") / "run"
    find_mask(settings(*inputs), out)
    return out


def test_a_killed_training_ends_with_the_same_weights_bit_for_bit(
    inputs: tuple[str, str], run: Path, tmp_path: Path
) -> None:
    killed = tmp_path / "killed"
    # The state is written more often than usual, so that there is something to go on from.
    changes = {"headscope.find.mask_training._EVERY": 4}
    asked = (find_mask, settings(*inputs), killed)
    process_helpers.killed_at(9, *asked, titles=("training",), changes=changes)
    written = sorted(path.stem for path in (killed / "parts" / "training").iterdir())
    assert written == ["00000004", "00000008"]
    seen: list[int] = []
    result = find_mask(settings(*inputs), killed, lambda _, done, total: seen.append(done))
    assert seen == [9, 10, 11, 12]
    whole = json.loads((run / "result.json").read_text())
    again = encode(result)
    for part, name in ((whole, "run"), (whole, "seconds"), (whole["details"], "seconds_a_step")):
        part[name] = (again if part is whole else again["details"])[name]
    assert again == whole
    for name in ("history", "feed_forward", "scores/scores", "gate/gate", "heads/heads"):
        one, other = (load_file(place / f"{name}.safetensors") for place in (killed, run))
        assert one.keys() == other.keys()
        assert all(one[key].tobytes() == other[key].tobytes() for key in one)


def test_minutes_choose_the_steps_once(
    inputs: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as fit by what a step takes when the run begins; a run that goes on keeps them."""
    changes = {"learning_rate": 1.5, "batch": 3}
    config = replace(settings(*inputs), changes=changes, minutes=1.0)
    monkeypatch.setattr(train, "seconds_a_step", lambda *_: 2.5)
    said: list[str] = []
    out = tmp_path / "run"

    def stopped(title: str, done: int, total: int) -> None:
        if title == "training" and done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        find_mask(config, out, stopped, said.append)
    assert "2.5 s fit into 1 minutes" in said[0]
    steps = int(said[0].split()[0])
    assert 2 < steps <= 60 / 2.5  # what was left of the minute when training began
    # Here steps take much longer by now, and the schedule is that of before.
    monkeypatch.setattr(train, "seconds_a_step", lambda *_: 1000.0)
    result = find_mask(config, out, None, said.append)
    assert (result.steps, result.minutes, result.seconds_a_step) == (steps, 1.0, 2.5)
    assert len(result.loss) == steps and len(said) == 1
    assert MaskTraining(**result.training).travel == result.travel
    # Minutes count in the signature, and without them signatures are as they were.
    with pytest.raises(InputError, match="another configuration"):
        find_mask(replace(config, minutes=2.0), out)
    assert "minutes" not in configuration(settings(*inputs))


def test_too_few_minutes_are_told(
    inputs: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tried where a weight might just get from 4 to 0, refused where none can."""
    config = replace(settings(*inputs), changes={"batch": 3}, minutes=100.0)
    said: list[str] = []

    def trained(*_: Any) -> None:
        raise KeyboardInterrupt

    def begun(seconds: float, name: str) -> None:
        monkeypatch.setattr(train, "seconds_a_step", lambda *_: seconds)
        with pytest.raises(KeyboardInterrupt):
            find_mask(config, tmp_path / name, None, said.append)

    monkeypatch.setattr(train, "train_mask", trained)
    begun(25.0, "few")  # less than 240 steps of 600
    assert "fit into 100 minutes" in said[0] and "15 is enough" in said[1]
    begun(0.01, "enough")
    assert said[2:] == ["600 steps × 0.01 s: about 0.1 minutes"]
    monkeypatch.setattr(train, "seconds_a_step", lambda *_: 1000.0)
    with pytest.raises(
        InputError, match=r"steps of 1e\+03 s fit into .*--minutes 11000 for all 600"
    ):
        find_mask(config, tmp_path / "none", None, said.append)
    with pytest.raises(InputError, match="give one of them"):
        replace(config, changes={"steps": 5})


def test_timing_steps_trains_nothing(inputs: tuple[str, str]) -> None:
    lm = load(inputs[0])
    rows = [Answered(tuple(range(5, 12)), 3)] * 4
    ticks = iter(range(100))
    before = [one.clone() for one in lm.model.parameters()]
    taken = seconds_a_step(lm, rows, MaskTraining(batch=2), clock=lambda: float(next(ticks)))
    assert taken == pytest.approx(1 / 3)  # one tick for three steps
    assert all(torch.equal(a, b) for a, b in zip(before, lm.model.parameters(), strict=True))


def test_a_loss_that_is_no_number_stops_the_run_which_can_go_on(
    inputs: tuple[str, str], run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = train.answer_losses, 0
    monkeypatch.setattr(train, "seconds_a_step", lambda *_: 1.0)

    def broken(lm: Any, samples: Any) -> torch.Tensor:
        nonlocal calls
        calls += 1
        losses = real(lm, samples)
        return losses * float("nan") if calls == 6 else losses

    with monkeypatch.context() as patch:
        patch.setattr(train, "answer_losses", broken)
        message = (
            r"backwards\.json, example \d+ \(line \d+\): the loss of its answer is nan; .* kept"
        )
        with pytest.raises(InputError, match=message):
            find_mask(settings(*inputs), tmp_path / "run")
    seen: list[int] = []
    result = find_mask(settings(*inputs), tmp_path / "run", lambda *now: seen.append(now[1]))
    assert seen == [6, 7, 8, 9, 10, 11, 12]
    assert encode(result)["scores"] == json.loads((run / "result.json").read_text())["scores"]


def test_parts_that_do_not_follow_one_another_are_an_error(
    inputs: tuple[str, str], run: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(run, broken)
    (broken / "DONE.json").unlink()
    (part,) = (broken / "parts" / "training").iterdir()
    arrays = load_file(part)
    save_file({**arrays, "losses": arrays["losses"][1:]}, part)
    with pytest.raises(InputError, match="do not follow one another; delete this folder"):
        find_mask(settings(*inputs), broken)


def test_bad_input_is_one_sentence(
    command: Command, inputs: tuple[str, str], tmp_path: Path
) -> None:
    model, task = inputs
    begin = ("find", "mask", "--model", model, "--out", tmp_path / "run")
    few = command(*begin, "--task", task, "--held-out", 2, "--steps", 3)
    assert few.code == 2 and "none can get from 4 to 0" in few.err
    held = command(*begin, "--task", task)
    assert held.code == 2 and "--held-out" in held.err
    long = tmp_path / "long.json"
    rows = [{"input": f"a{n}", "output": "b"} for n in range(4)]
    rows[2] = {"input": "long", "output": "word " * 9000}
    long.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]", "utf-8")
    too_long = command(*begin, "--task", long, "--held-out", 1, "--learning-rate", 1)
    assert too_long.code == 2 and "long.json" in too_long.err and "line 4" in too_long.err
    for said in (few, held, too_long):
        assert said.out == "" and len(said.err.strip().splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_fates_follow_from_the_sides_a_weight_was_on() -> None:
    """Six heads, one of each fate; a stretch of fewer steps than asked for is jitter."""
    ways = {
        "kept": (1, 1, 1, 1, 1, 1),
        "dropped": (1, 1, -1, -1, -1, -1),
        "tried": (1, -1, -1, 1, 1, -1),
        "regained": (1, 1, -1, -1, 1, 1),
        "added": (-1, -1, -1, 1, 1, 1),
        "never": (-1, -1, -1, -1, -1, -1),
    }
    weights = np.array(list(ways.values()), dtype=np.float32).T[:, None]
    history = History(np.arange(0, 60, 10), weights)
    courses = history.courses(Geometry((6,)))
    assert [one.fate for one in courses] == list(ways)
    assert courses[2].changes == (10, 30, 50) and courses[2].share == pytest.approx(3 / 5)
    assert courses[3].changes == (20, 40)
    jitter = history.courses(Geometry((6,)), least=25)
    assert [one.fate for one in jitter] == ["kept", "dropped", "dropped", "kept", "added", "never"]
    assert all(one.selected == (one.fate in ("kept", "added")) for one in jitter)


# What is shown


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("history", "history.safetensors: is damaged"),
        ("gone", "history.safetensors: cannot be read"),
        ("other", "are not of one run"),
    ],
)
def test_damaged_runs_are_named(damage: str, message: str, run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    file = copy / "history.safetensors"
    if damage == "history":
        file.write_bytes(file.read_bytes()[:40])
    elif damage == "gone":
        file.unlink()
    else:
        arrays = load_file(file)
        save_file({**arrays, "losses": arrays["losses"][:-1]}, file)
    with pytest.raises(InputError, match=message):
        write_report(copy)
