"""Samples of the pocket world, its word tasks, and the folders of its bundled weights."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headscope.data.pairs import PairSource, read_pairs, write_pairs
from headscope.errors import InputError
from headscope.pocket import weights
from headscope.pocket.sample import TASKS, sample_pairs, task_items
from headscope.pocket.world.knowledge import word_items
from headscope.pocket.world.languages import CODES, DIRECTIONS
from headscope.pocket.world.sampling import SPLITS
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


def test_the_other_direction_has_the_same_sentences_and_links_turned_round() -> None:
    there = sample_pairs("de-ru", "dev", 30, 3)
    back = {pair.source: pair for pair in sample_pairs("ru-de", "dev", 30, 3).pairs}
    shared = [pair for pair in there.pairs if pair.target in back]
    assert len(shared) >= 25
    for pair in shared:
        other = back[pair.target]
        assert other.target == pair.source
        assert pair.links is not None
        assert other.links == {(j, i) for i, j in pair.links}


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


def test_checkpoints_come_in_the_order_of_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("final", "step-01000", "step-00032", "step-00250"):
        (tmp_path / "weights" / name).mkdir(parents=True)
        (tmp_path / "weights" / name / "config.json").write_text("{}")
    (tmp_path / "weights" / "notes").mkdir()
    monkeypatch.setattr(weights.resources, "files", lambda _: tmp_path)
    assert list(weights.checkpoints()) == ["step-00032", "step-00250", "step-01000", "final"]
    assert weights.path() == tmp_path / "weights" / "final"
    assert weights.path("step-00250") == tmp_path / "weights" / "step-00250"
    with pytest.raises(InputError, match="no checkpoint 'step-9'; known: step-00032, "):
        weights.path("step-9")


def test_without_weights_the_error_says_how_to_get_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights.resources, "files", lambda _: tmp_path)
    assert weights.checkpoints() == {}
    with pytest.raises(InputError, match="headscope pocket train --out DIR"):
        weights.path()
