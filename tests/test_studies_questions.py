"""Sides of questions: no context on two of them, and each seed draws anew."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headscope.errors import InputError
from headscope.studies.questions import QuestionsChoice, read_sides


def written(path: Path, contexts: int, each: int = 3, name: str = "text") -> str:
    rows = [
        {"context": f"{name} {at}", "question": f"Which {number}?", "answers": [f"a{at}"]}
        for at in range(contexts)
        for number in range(each)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return str(path)


def test_a_file_is_split_by_context(tmp_path: Path) -> None:
    file = written(tmp_path / "q.jsonl", 40)
    choice = QuestionsChoice(file, train=30, stop=12, test=50, language="de")
    sides = read_sides(choice, "any-model")
    assert len(sides.test) == 50 and {one.language for one in sides.test} == {"de"}
    tested = {one.context for one in sides.test}
    drawn = [sides.draw(choice, seed) for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]
    for learned, stopped in drawn:
        assert (len(learned), len(stopped)) == (30, 12)
        groups = [{one.context for one in part} for part in (learned, stopped)]
        assert not groups[0] & groups[1] and not (groups[0] | groups[1]) & tested
    assert sides.digests == {"questions": sides.digests["questions"]}
    assert read_sides(choice, "any-model").test == sides.test
    assert read_sides(choice, "any-model", 1).test != sides.test


@pytest.mark.parametrize("contexts", [3, 4, 7])
def test_of_a_small_file_every_side_has_some(tmp_path: Path, contexts: int) -> None:
    file = written(tmp_path / "q.jsonl", contexts, 2)
    choice = QuestionsChoice(file)
    sides = read_sides(choice, "any-model")
    learned, stopped = sides.draw(choice, 0)
    parts = [{one.context for one in part} for part in (learned, stopped, sides.test)]
    assert all(parts) and sum(map(len, parts)) == len(set.union(*parts))
    assert len(sides.test) <= contexts


def test_another_file_to_test_on_shares_no_context(tmp_path: Path) -> None:
    file = written(tmp_path / "a.jsonl", 10)
    other = tmp_path / "b.jsonl"
    other.write_text(
        (tmp_path / "a.jsonl").read_text("utf-8").splitlines(keepends=True)[0]
        + Path(written(tmp_path / "c.jsonl", 4, name="more")).read_text("utf-8"),
        "utf-8",
    )
    choice = QuestionsChoice(file, str(other))
    sides = read_sides(choice, "any-model")
    assert len(sides.test) == 13 and sides.shared == 3 and len(sides.rest) == 27
    assert set(sides.digests) == {"questions", "test questions"}


def test_pocket_learns_from_dev_and_is_tested_on_test() -> None:
    choice = QuestionsChoice(train=20, stop=10, test=15, kind="two-languages")
    sides = read_sides(choice, "pocket")
    learned, stopped = sides.draw(choice, 0)
    assert (len(learned), len(stopped), len(sides.test)) == (20, 10, 15)
    groups = [{one.group for one in part} for part in (learned, stopped, sides.test)]
    assert sum(map(len, groups)) == len(set.union(*groups))
    assert (sides.path, sides.test_path) == ("pocket:dev", "pocket:test")


def test_pocket_asks_in_one_language_where_it_is_named() -> None:
    for code, spoken in ((None, {"en", "de", "es", "ru", "tr"}), ("ru", {"ru"})):
        sides = read_sides(QuestionsChoice(language=code, test=60), "pocket")
        assert {one.language for one in (*sides.rest, *sides.test)} == spoken
    with pytest.raises(InputError, match="fr"):
        read_sides(QuestionsChoice(language="fr"), "pocket")


def test_what_cannot_be_split_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no data given for the model other"):
        read_sides(QuestionsChoice(), "other")
    with pytest.raises(InputError, match="--test-data without --data"):
        read_sides(QuestionsChoice(test_data="x"), "pocket")
    file = written(tmp_path / "q.jsonl", 2, 9)
    with pytest.raises(InputError, match="fewer than 3 different contexts"):
        read_sides(QuestionsChoice(file), "pocket")
    with pytest.raises(InputError, match="--kind is for"):
        read_sides(QuestionsChoice(file, kind="one-language"), "pocket")
    with pytest.raises(InputError, match="unknown language code 'qq'"):
        read_sides(QuestionsChoice(file, language="qq"), "any-model")
    with pytest.raises(InputError, match="fewer than 2 contexts"):
        read_sides(QuestionsChoice(file, file), "pocket")
    with pytest.raises(InputError, match="train is 0"):
        QuestionsChoice(train=0)
