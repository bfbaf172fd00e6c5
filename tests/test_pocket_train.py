"""Training the pocket model: what is learned of a document, and that a killed run goes on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import pocket_train_script as script
import process_helpers
from conftest import json_of
from headscope.errors import InputError
from headscope.heads import Geometry
from headscope.pocket import train
from headscope.pocket.mixture import SHARES, documents
from headscope.pocket.train import PocketTraining, step_batches, train_pocket, train_tokenizer


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    """A tokenizer as the model's, trained on few documents."""
    return train_tokenizer(texts=400)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """The number of threads decides in which order sums are taken."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def folder(path: Path, tokenizer: Any) -> Path:
    """A run's folder with its tokenizer made already."""
    tokenizer.save_pretrained(path / "tokenizer")
    return path


def weights(path: Path) -> dict[str, torch.Tensor]:
    """Every tensor under a run's folder, by file and name."""
    return {
        f"{file.relative_to(path)} {name}": tensor
        for file in sorted(path.rglob("*.safetensors"))
        for name, tensor in load_file(file).items()
    }


def test_a_killed_run_ends_with_the_same_weights_bit_for_bit(
    tokenizer: Any, tmp_path: Path, one_thread: None
) -> None:
    whole = folder(tmp_path / "whole", tokenizer)
    killed = folder(tmp_path / "killed", tokenizer)
    process_helpers.killed(script, killed, 4)
    assert not (killed / "final").exists()

    stopped = train_pocket(killed, script.CONFIG, save_every=script.SAVE_EVERY, stop_after=5)
    assert stopped == killed / "state"  # at step 14, not at a multiple of SAVE_EVERY
    train_pocket(killed, script.CONFIG, save_every=script.SAVE_EVERY, stop_after=8)
    assert not (killed / "final").exists()  # at step 22, among those with head dropout
    assert train_pocket(killed, script.CONFIG) == killed / "final"
    assert train_pocket(whole, script.CONFIG) == whole / "final"

    one, other = weights(killed), weights(whole)
    assert one.keys() == other.keys()
    assert {name.split(" ")[0] for name in one} == {
        "final/model.safetensors",
        "state/state.safetensors",
        "step-00008/model.safetensors",
        "step-00013/model.safetensors",
    }
    assert [name for name in one if not torch.equal(one[name], other[name])] == []
    # It learned something: the checks above would hold of a model that never moved, too.
    early, late = (load_file(whole / n / "model.safetensors") for n in ("step-00008", "final"))
    assert any(not torch.equal(early[name], late[name]) for name in early)


def test_a_folder_of_other_settings_is_refused_and_left_alone(tmp_path: Path) -> None:
    config = PocketTraining(steps=20)
    train._own_folder(tmp_path, config)
    told = (tmp_path / "training.json").read_bytes()
    train._own_folder(tmp_path, config)
    with pytest.raises(InputError, match="other settings"):
        train_pocket(tmp_path, replace(config, batch_tokens=256))
    assert (tmp_path / "training.json").read_bytes() == told
    assert [one.name for one in tmp_path.iterdir()] == ["training.json"]
    assert json_of(told)["steps"] == 20


def test_prompt_and_target_apart_are_the_tokens_of_the_whole(tokenizer: Any) -> None:
    some = list(islice(documents("train", "encoding"), 300))
    assert {one.kind for one in some} == set(SHARES)
    for one, (ids, start) in zip(some, train._encode(tokenizer, some), strict=True):
        text = f"{one.prompt} {one.target}" if one.prompt else one.target
        assert ids == [*tokenizer(text)["input_ids"], tokenizer.eos_token_id]
        assert tokenizer.decode(ids[1 : start + 1]) == one.prompt


def test_the_target_and_its_end_are_learned_and_nothing_else(tokenizer: Any) -> None:
    some = list(islice(documents("train", "learning"), 60))
    encoded = list(train._encode(tokenizer, some))
    batch = train._collate(tokenizer, encoded)
    assert batch.input_ids.shape == batch.learned.shape
    for row, one in enumerate(some):
        following = batch.input_ids[row, 1:][batch.learned[row, :-1]]
        assert not batch.learned[row, -1]
        target = f" {one.target}" if one.prompt else one.target
        assert tokenizer.decode(following) == target + tokenizer.eos_token


@pytest.mark.parametrize("first", [1, 15, 16, 17, 33])
def test_batches_depend_on_the_step_alone(tokenizer: Any, first: int) -> None:
    config = PocketTraining(batch_tokens=256)
    every = list(islice(step_batches(tokenizer, config), first + 2))
    later = list(islice(step_batches(tokenizer, config, first), 2))
    for one, other in zip(every[first:], later, strict=True):
        assert torch.equal(one.input_ids, other.input_ids)
        assert torch.equal(one.learned, other.learned)
        assert one.input_ids.numel() <= config.batch_tokens


def test_rates_warm_up_and_end_near_nought() -> None:
    config = PocketTraining(steps=1000, warmup=10, decay_share=0.5)
    rates = [train._rate(step, config) for step in range(1000)]
    assert rates[:10] == pytest.approx([(n + 1) / 10 for n in range(10)])
    assert set(rates[10:500]) == {1.0}
    assert rates[500:] == pytest.approx([1 - n / 500 for n in range(500)])
    config = replace(config, dropout_steps=100, dropout_rate=0.1, dropout_warmup=5)
    rates = [train._rate(1000 + step, config) for step in range(100)]
    assert rates[:5] == pytest.approx([0.1 * (n + 1) / 5 for n in range(5)])
    assert rates[20] == pytest.approx(0.1) and rates[60] == pytest.approx(0.05)
    assert rates[99] == pytest.approx(0.1 / 80)


def test_heads_are_dropped_document_by_document_in_the_last_steps_alone() -> None:
    config = PocketTraining(steps=10, head_dropout=0.25)
    geometry = Geometry.uniform(6, 16)
    assert train.head_gate(geometry, config, 9, 4) is None
    gate = train.head_gate(geometry, config, 10, 200)
    assert gate is not None and gate.shape == (200, 6, 16) and gate.dtype == torch.float32
    assert set(gate.unique().tolist()) == {0.0, 1.0}
    # 19,200 independent removals: the share has a standard deviation of 0.003.
    assert float(1 - gate.mean()) == pytest.approx(0.25, abs=0.015)
    assert not torch.equal(gate[0], gate[1])
    again, later = (train.head_gate(geometry, config, step, 200) for step in (10, 11))
    assert again is not None and torch.equal(gate, again)
    assert later is not None and not torch.equal(gate, later)
