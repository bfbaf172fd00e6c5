"""Task files of the pocket world: held out, answerable, and in the harness's format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headscope.errors import InputError
from headscope.pocket.mixture import items_of
from headscope.pocket.sample import sample_pairs
from headscope.pocket.tasks import TASKS, write_tasks


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tasks")
    write_tasks(made, "test", 12, seed=3)
    return made


def rows(folder: Path, task: str) -> list[dict[str, Any]]:
    text = (folder / f"{task}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("task", [task for task in TASKS if not task.generated])
def test_every_item_has_four_different_choices_and_one_answer(folder: Path, task: Any) -> None:
    found = rows(folder, task.name)
    assert len(found) == 12
    for row in found:
        assert len(set(row["choices"])) == 4
        assert 0 <= row["answer"] < 4
    # Naming one place all the time does not pay.
    assert len({row["answer"] for row in found}) > 1


def test_sentences_are_those_of_the_split_and_their_translations_right(folder: Path) -> None:
    for row in rows(folder, "pocket_translate_sentences")[:3]:
        direction = f"{row['language']}-{row['to']}"
        known = {p.source: p.target for p in sample_pairs(direction, "test", 25, 3).pairs}
        right = row["choices"][row["answer"]]
        assert known[row["source"]] == right
        assert row["source"] in row["prompt"]


@pytest.mark.parametrize(
    ("task", "of"),
    [("pocket_plurals", "plural"), ("pocket_past_forms", "past")],
)
def test_word_answers_are_held_out_items(folder: Path, task: str, of: str) -> None:
    known = {(item.language, item.output) for item in items_of("test")[of]}
    for row in rows(folder, task):
        assert (row["language"], row["choices"][row["answer"]]) in known


def test_the_same_seed_writes_the_same_files_and_another_one_others(
    folder: Path, tmp_path: Path
) -> None:
    write_tasks(tmp_path / "same", "test", 12, seed=3)
    write_tasks(tmp_path / "other", "test", 2, seed=4)
    for file in sorted(folder.iterdir()):
        assert (tmp_path / "same" / file.name).read_bytes() == file.read_bytes()
    name = "pocket_translate_sentences.jsonl"
    assert (tmp_path / "other" / name).read_text() not in (folder / name).read_text()


def test_a_folder_with_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="no task file of pocket"):
        write_tasks(tmp_path)
    assert [one.name for one in tmp_path.iterdir()] == ["notes.txt"]
    with pytest.raises(InputError, match="at least one item"):
        write_tasks(tmp_path / "new", n=0)
    with pytest.raises(InputError, match="at most 1000000 items"):
        write_tasks(tmp_path / "new", n=10**22)


def test_the_command_writes_the_tasks(command: Any, tmp_path: Path) -> None:
    done = command("pocket", "tasks", "--out", str(tmp_path / "t"), "--n", "2", "--json")
    assert done.code == 0
    result = json.loads(done.out)
    assert result["tasks"] == {task.name: 2 for task in TASKS}
    assert {"signature", "run", "seconds"} <= result.keys()
