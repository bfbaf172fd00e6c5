"""Samples of the pocket world: sentences, documents, questions, word tasks and task files."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headscope.data.pairs import PairSource, read_pairs, write_pairs
from headscope.errors import InputError
from headscope.pocket import weights
from headscope.pocket.facts import KINDS, sample_questions
from headscope.pocket.mixture import (
    MONOLINGUAL_SENTENCES,
    fact_stated,
    fact_value,
    items_of,
    monolingual_sentences,
    person,
)
from headscope.pocket.sample import TASKS, sample_pairs, task_items
from headscope.pocket.tasks import TASKS as TASK_FILES
from headscope.pocket.tasks import write_tasks
from headscope.pocket.world.knowledge import CAPITALS, RELATIONS, item_split, spelled, word_items
from headscope.pocket.world.languages import CODES, DIRECTIONS
from headscope.pocket.world.sampling import SPLITS, split_of
from headscope.runs import file_digest

few = settings(max_examples=15)
directions = st.sampled_from(DIRECTIONS)
seeds = st.integers(0, 5)


@few
@given(directions, st.sampled_from(SPLITS), st.integers(1, 12), seeds)
def test_a_sample_is_so_many_distinct_sentences_with_links_inside_them(
    direction: str, split: str, n: int, seed: int
) -> None:
    sample = sample_pairs(direction, split, n, seed)
    assert len(sample.pairs) == n == len({pair.source for pair in sample.pairs})
    assert f"{sample.source_language}-{sample.target_language}" == direction
    for pair in sample.pairs:
        assert pair.links
        for i, j in pair.links:
            assert i < len(pair.source.split())
            assert j < len(pair.target.split())


@few
@given(directions, seeds, st.integers(1, 10), st.integers(0, 10))
def test_a_smaller_sample_is_the_beginning_of_a_larger_one(
    direction: str, seed: int, n: int, more: int
) -> None:
    larger = sample_pairs(direction, "dev", n + more, seed)
    assert larger.pairs[:n] == sample_pairs(direction, "dev", n, seed).pairs


def test_a_sample_is_the_same_data_as_the_file_written_of_it(tmp_path: Path) -> None:
    sample = sample_pairs("tr-es", "test", 20, 1)
    file = tmp_path / "sample.tsv"
    write_pairs(file, sample.pairs)
    read = read_pairs(PairSource(str(file), "tr-es"))
    assert read.pairs == sample.pairs
    assert read.digest == sample.digest == file_digest(file)


@pytest.mark.parametrize("code", CODES)
def test_splits_share_no_sentence(code: str) -> None:
    other = "de" if code == "en" else "en"
    sources = [
        {pair.source for pair in sample_pairs(f"{code}-{other}", split, 60, 0).pairs}
        for split in SPLITS
    ]
    assert len(set.union(*sources)) == 180


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("en-fr", "dev", 1, 0), "no direction 'en-fr'; known: en-de, "),
        (("en-en", "dev", 1, 0), "'en-en'"),
        (("ende", "dev", 1, 0), "'ende' is not of the form SOURCE-TARGET"),
        (("en-de", "tests", 1, 0), "no split 'tests'; did you mean test? known: train, dev, test"),
        (("en-de", "dev", 0, 0), "n is 0"),
    ],
)
def test_what_the_world_lacks_is_told(arguments: tuple[str, str, int, int], said: str) -> None:
    with pytest.raises(InputError) as caught:
        sample_pairs(*arguments)
    assert said in str(caught.value)


def test_word_tasks_fall_apart_into_languages_and_splits_without_a_rest() -> None:
    found = []
    for task in TASKS:
        for code in CODES:
            others = [to for to in CODES if to != code] if task == "translate" else [""]
            for to in others:
                for split in SPLITS:
                    found += task_items(task, code, split, to)
    assert len(found) == len(set(found))
    assert set(found) == set(word_items())
    assert all(task_items(task, "de", "test") for task in TASKS if task != "translate")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("plurals", "en", "dev"), "no word task 'plurals'; did you mean plural?"),
        (("plural", "fr", "dev"), "no language 'fr'"),
        (("plural", "en", "dev", "de"), "no other does"),
        (("translate", "en", "dev"), "needs the language to translate to"),
        (("translate", "en", "dev", "en"), "no language to translate to 'en'"),
    ],
)
def test_word_tasks_that_the_world_lacks_are_told(arguments: tuple[str, ...], said: str) -> None:
    with pytest.raises(InputError) as caught:
        task_items(*arguments)
    assert said in str(caught.value)


def test_without_weights_the_error_says_how_to_get_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights.resources, "files", lambda _: tmp_path)
    assert weights.checkpoints() == {}
    with pytest.raises(InputError, match="headscope pocket train --out DIR"):
        weights.path()


def test_every_sentence_is_of_the_split_and_documents_have_a_length() -> None:
    few, many = MONOLINGUAL_SENTENCES
    for split in SPLITS:
        for some in islice(monolingual_sentences(split, "x"), 5):
            assert few <= len(some) <= many
            assert {split_of(one) for one in some} == {split}


@pytest.mark.parametrize("split", ["dev", "test"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_fact_asked_for_is_told_once_and_is_of_the_split(split: str, kind: str) -> None:
    found = sample_questions(split, 60, 3, kind)
    assert len({(one.context, one.question) for one in found.questions}) == 60
    abroad = 0
    for one in found.questions:
        assert one.language in CODES
        relation, name, value = one.group.split()
        assert item_split(f"{relation} {name} {value}") == split
        asked = RELATIONS[relation][one.language].question.format(a=person(name, one.language))
        assert one.question == asked
        assert one.answers == (fact_value(relation, value, one.language),)
        told = [
            code
            for code in CODES
            if fact_stated(relation, code, person(name, code), fact_value(relation, value, code))
            in one.context
        ]
        assert told
        abroad += one.language not in told
    always = {"one-language": 0, "two-languages": 60, "translated": 60}
    assert abroad == always.get(kind, abroad)
    if kind == "translated":
        values = [*CAPITALS, *(spelled(name, "ru") for name in CAPITALS)]
        assert all(sum(one in q.context for one in values) <= 1 for q in found.questions)
    assert kind != "any" or 15 <= abroad <= 45


def test_a_seed_decides_and_fewer_are_the_first_ones() -> None:
    many, few = (sample_questions("dev", n, 5) for n in (20, 8))
    assert many.questions[:8] == few.questions and many.digest != few.digest
    assert many == sample_questions("dev", 20, 5)
    assert many.questions != sample_questions("dev", 20, 6).questions
    assert many.path == "pocket:dev" and many.unanswerable == 0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tasks")
    write_tasks(made, "test", 12, seed=3)
    return made


def rows(folder: Path, task: str) -> list[dict[str, Any]]:
    text = (folder / f"{task}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("task", [task for task in TASK_FILES if not task.generated])
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
