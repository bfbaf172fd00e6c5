"""`headscope verify tasks` from task files to a run folder and its report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conftest import json_of
from headscope.pocket.tasks import write_tasks
from headscope.verify.tasks_evaluation import library as task_library

Command = Callable[..., Any]
CHOICE, WRITTEN = "pocket_capitals", "pocket_repeat_generated"
HEADS = "2.3,3.1,5.10"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tasks")
    write_tasks(made, "test", 4)
    return made


def asked(folder: Path, out: Path) -> tuple[Any, ...]:
    files = ("--task", folder / f"{CHOICE}.yaml", "--task", folder / f"{WRITTEN}.yaml")
    return ("verify", "tasks", *files, "--heads", HEADS, "--draws", "2", "--out", out)


def test_a_stopped_run_goes_on_where_it_was(
    command: Command, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headscope.studies.verify import tasks as verify_tasks

    whole = command(*asked(folder, tmp_path / "whole"), "--limit", "2", "--json")
    real, calls = verify_tasks.run_task, []

    def count(*given: Any, **named: Any) -> Any:
        if len(calls) == 3:
            raise KeyboardInterrupt
        calls.append(given)
        return real(*given, **named)

    monkeypatch.setattr(verify_tasks, "run_task", count)
    out = tmp_path / "stopped"
    assert command(*asked(folder, out), "--limit", "2", "--json").code == 130
    calls.clear()
    calls.extend([()] * 4)  # no longer stops, and counts on
    done = command(*asked(folder, out), "--limit", "2", "--json")
    assert len(calls) == 4 + 12 - 3
    first, second = json_of(whole.out), json_of(done.out)
    assert first["levels"] == second["levels"] and first["tests"] == second["tests"]
    again = command(*asked(folder, out), "--limit", "2", "--json")
    assert json_of(again.out)["levels"] == first["levels"] and len(calls) == 13


def test_mean_ablation_and_doses_run(command: Command, folder: Path, tmp_path: Path) -> None:
    more = ("--limit", "2", "--ablate", "mean", "--gate", "0", "--gate", "2", "--json")
    result = json_of(command(*asked(folder, tmp_path / "run"), *more).out)
    rows = [row for row in result["conditions"] if row["kind"] == "selected"]
    assert [(row["gate"], row["replacement"]) for row in rows] == [(0.0, "mean"), (2.0, "mean")]
    measured = {row["condition"] for row in result["levels"] if row["part"] == CHOICE}
    assert measured == {row["id"] for row in result["conditions"]}


def test_the_list_names_every_group(command: Command) -> None:
    code, said, _ = command("verify", "tasks", "--list", "--json")
    assert code == 0 and json_of(said)["groups"] == task_library.GROUPS


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ((), "no task is named"),
        (("--task", "", "--heads", "0.0"), "no task is named"),
        (("--task", "absent.yaml"), "no heads are given"),
        (("--task", "absent.yaml", "--heads", "1.1"), "absent.yaml: cannot be read"),
    ],
)
def test_what_is_missing_is_said(command: Command, more: tuple[str, ...], why: str) -> None:
    code, said, err = command("verify", "tasks", *more)
    assert (code, said) == (2, "") and why in err


TASK = """task: own
dataset_path: json
dataset_kwargs: {data_files: {test: own.jsonl}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{q}}"
doc_to_choice: "{{choices}}"
doc_to_target: answer
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
"""
ROW = b'{"q": "is it so", "choices": ["yes", "no"], "answer": 0}\n'


@pytest.mark.parametrize(
    ("text", "data", "said"),
    [
        ("x: &x [*x]\n" + TASK, ROW, "own.yaml: is nested without end"),
        ("x: " + "[" * 3000 + "]" * 3000 + "\n" + TASK, ROW, "own.yaml: is nested without end"),
        ("1: 2\n" + TASK, ROW, "own.yaml:1: 1 is no key of a task file"),
        (TASK.replace("mean", "sum"), ROW, "'sum' is no aggregation of the harness"),
        (TASK.replace("target: answer", "target: 9"), ROW, "the task own cannot be set up"),
        (
            TASK.replace("multiple_choice", "loglikelihood").replace("acc", "perplexity"),
            ROW,
            "the task own, item 0: 0 is no text",
        ),
        (TASK, ROW.replace(b'"yes", "no"', b""), "the task own cannot be set up"),
        (TASK, ROW.replace(b'"yes", "no"', b'"", ""'), "the task own cannot be set up"),
        (TASK, b"\xff\n", "own.jsonl:1: is not valid JSON"),
        (TASK, b"[" * 100_000, "own.jsonl:1: is not valid JSON"),
    ],
)
def test_a_broken_task_is_told_in_one_sentence(
    text: str, data: bytes, said: str, command: Command, tmp_path: Path
) -> None:
    (tmp_path / "own.yaml").write_text(text)
    (tmp_path / "own.jsonl").write_bytes(data)
    out = tmp_path / "run"
    code, printed, err = command(
        "verify", "tasks", "--task", tmp_path / "own.yaml", "--heads", "0.0", "--out", out
    )
    assert (code, printed) == (2, "") and err.count("\n") == 1
    assert said in err
    assert not out.exists()


def test_one_choice_alone_has_no_accuracy_above_chance(command: Command, tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(TASK)
    (tmp_path / "own.jsonl").write_bytes(ROW.replace(b'"yes", "no"', b'"yes"'))
    said = command(
        "verify", "tasks", "--task", tmp_path / "own.yaml", "--heads", "0.0", "--draws", 1,
        "--out", tmp_path / "run", "--json",
    )  # fmt: skip
    assert said.code == 0, said.err
    told = json_of(said.out)
    assert told["details"]["tasks"]["own"]["chance"] == 1
    assert {row["statistic"] for row in told["levels"]} == {"acc"}
