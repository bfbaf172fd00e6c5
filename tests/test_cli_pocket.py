"""`headscope pocket`: samples of the bundled model's world, and its training."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conftest import json_of
from headscope.data.pairs import PairSource, read_pairs
from headscope.pocket.sample import TASKS, sample_pairs
from headscope.pocket.train import PocketTraining
from headscope.pocket.world.languages import CODES, DIRECTIONS
from headscope.runs import file_digest


def test_a_sample_is_a_file_of_sentence_pairs_with_links(
    command: Callable[..., Any], tmp_path: Path
) -> None:
    file = tmp_path / "new" / "sample.tsv"
    arguments = ("--pair", "en-de", "--split", "test", "--n", 12, "--seed", 7, "--out", file)
    code, out, err = command("pocket", "sample", *arguments, "--json")
    assert (code, err) == (0, "")
    told = json_of(out)
    assert told["run"] == str(file)
    assert told["pairs"] == 12
    assert told["signature"].startswith("headscope-")
    assert told["seconds"] > 0
    expected = sample_pairs("en-de", "test", 12, 7)
    assert told["sha256"] == expected.digest == file_digest(file)
    read = read_pairs(PairSource(str(file), "en-de"))
    assert read.pairs == expected.pairs
    assert file.read_text().splitlines()[0] == "source\ttarget\tlinks"


def test_the_same_command_writes_the_same_file_and_another_seed_another(
    command: Callable[..., Any], tmp_path: Path
) -> None:
    def sample(name: str, seed: int) -> tuple[str, bytes]:
        file = tmp_path / name
        arguments = ("--pair", "ru-tr", "--n", 5, "--seed", seed, "--out", file, "--json")
        told = json_of(command("pocket", "sample", *arguments).out)
        return told["signature"], file.read_bytes()

    assert sample("one.tsv", 1) == sample("two.tsv", 1)
    assert sample("one.tsv", 1)[0] != sample("two.tsv", 2)[0]
    assert sample("one.tsv", 1)[1] != sample("two.tsv", 2)[1]


def test_the_list_names_what_there_is(command: Callable[..., Any]) -> None:
    told = json_of(command("pocket", "sample", "--list", "--json").out)
    assert told["languages"] == list(CODES)
    assert told["directions"] == list(DIRECTIONS)
    assert told["splits"] == ["train", "dev", "test"]
    assert told["tasks"] == list(TASKS)
    assert told["run"] is None
    text = command("pocket", "sample", "--list").out
    assert text.splitlines()[0] == "languages: en, de, es, ru, tr"


@pytest.mark.parametrize("name", ["final", "state"])
def test_training_hands_its_settings_on_and_tells_where_the_weights_are(
    name: str, command: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, Any] = {}

    def train(out: Path, config: PocketTraining, device: str, stop_after: int | None) -> Path:
        seen.update(out=out, config=config, device=device, stop_after=stop_after)
        return out / name

    monkeypatch.setattr("headscope.studies.pocket.train.train_pocket", train)
    arguments = ("--out", tmp_path, "--steps", 9, "--seed", 4, "--stop-after", 2, "--json")
    told = json_of(command("pocket", "train", *arguments).out)
    assert seen["config"] == PocketTraining(steps=9, seed=4)
    assert (seen["out"], seen["device"], seen["stop_after"]) == (tmp_path, "cpu", 2)
    assert told["finished"] is (name == "final")
    assert told["weights"] == (str(tmp_path / "final") if name == "final" else None)
    assert told["run"] == str(tmp_path)


def test_a_sample_replaces_samples_alone(command: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "mine.txt"
    file.write_text("mine")
    code, said, err = command("pocket", "sample", "--pair", "en-de", "--out", file)
    assert (code, said, file.read_text()) == (2, "", "mine")
    assert f"{file} exists and holds no sample" in err
    code, _, err = command("pocket", "sample", "--pair", "en-de", "--out", tmp_path)
    assert code == 2
    assert f"{tmp_path} is a folder" in err
    assert command("pocket", "sample", "--pair", "en-de", "--seed", -1).code == 2


@pytest.mark.parametrize("what", [("--pair", "en-de"), ("--bilingual", "0.5")])
def test_a_sample_takes_no_pipes_place_and_has_an_end(
    command: Callable[..., Any], tmp_path: Path, what: tuple[str, str]
) -> None:
    os.mkfifo(tmp_path / "pipe")
    said = command("pocket", "sample", *what, "--n", 2, "--out", tmp_path / "pipe")
    assert said.code == 2 and "is no ordinary file" in said.err and said.err.count("\n") == 1
    assert (tmp_path / "pipe").is_fifo() and len(list(tmp_path.iterdir())) == 1
    said = command("pocket", "sample", *what, "--n", "9" * 20, "--out", tmp_path / "new")
    assert said.code == 2 and "'--n'" in said.err and said.err.count("\n") == 1


def test_a_corpus_is_written_with_labels_and_the_same_for_the_same_seed(
    command: Callable[..., Any], tmp_path: Path
) -> None:
    file, again = tmp_path / "corpus.jsonl", tmp_path / "again.jsonl"
    wanted = ("pocket", "sample", "--bilingual", "0.2", "--n", 60, "--seed", 3, "--split", "test")
    told = json_of(command(*wanted, "--out", file, "--json").out)
    records = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert len(records) == told["documents"] == 60 and told["run"] == str(file)
    assert told["bilingual"] == sum(one["kind"] == "bilingual" for one in records) > 3
    assert {one["language"] for one in records} == set(CODES)
    command(*wanted, "--out", again)
    assert again.read_bytes() == file.read_bytes()
    assert command(*wanted, "--out", file).code == 0
    pairs = tmp_path / "pairs.tsv"
    command("pocket", "sample", "--pair", "en-de", "--n", 3, "--out", pairs)
    before = pairs.read_bytes()
    assert command(*wanted, "--out", pairs).code == 2 and pairs.read_bytes() == before
    assert command(*wanted, "--pair", "en-de").code == 2
    assert command("pocket", "sample", "--bilingual", "1.5").code == 2
