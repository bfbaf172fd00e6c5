"""A model whose heads are divided among processes gives every one of them the numbers of one."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from shards import ROWS, values

from headscope.errors import InputError
from headscope.lm import LanguageModel
from headscope.lm.batching import memory_errors
from headscope.lm.checkpoints import digest_of_state
from headscope.lm.feed_forward import feed_forward_gated
from headscope.lm.loading import load
from headscope.lm.losses import token_losses
from headscope.lm.proofs import proven
from headscope.lm.states import states
from headscope.lm.weights import changeable_weights, dequantised_weight
from lm_helpers import saved
from process_helpers import together

#: Shared keys; queries and keys with norms; all heads in every process; experts; a hybrid.
NAMES = ("llama", "qwen3", "olmo2", "mixtral", "qwen3_5")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("models")
    return {name: saved(place / name, name) for name in (*NAMES, "gpt2")}


def all_values(lm: LanguageModel) -> dict[str, Any]:
    """Everything that is asked of heads."""
    parts = torch.linspace(0.2, 1, lm.geometry.layers)
    with feed_forward_gated(lm, parts):
        silenced = np.concatenate(token_losses(lm, ROWS))
    return values(lm) | {
        "geometry": (lm.geometry, lm.key_value_heads, lm.parameters, lm.digest),
        "state": digest_of_state(lm.model),
        "parts": silenced,
        "states": states(lm, ROWS).after_attention.numpy(),
        "projection": dequantised_weight(lm.sites[-1].projection).numpy(),
        "texts": [made.text for made in lm.generate(["abc", "hello you"], max_new_tokens=9)],
    }


def divided(folders: dict[str, Path]) -> tuple[dict[str, Any], list[str]]:
    made: dict[str, Any] = {}
    for name in NAMES:
        lm = load(folders[name], tp_plan="auto")
        shares = lm.sites[0].mesh is not None
        assert shares == (name != "olmo2")
        made[name] = all_values(lm)
        # The verdict that was kept is found by all.
        again = proven(lm, "once", {"distributed_config": None})
        assert again == proven(lm, "once", {"distributed_config": None})
    return made, list(refusals(folders))


def refusals(folders: dict[str, Path]) -> Iterator[str]:
    def short() -> None:
        with memory_errors():
            raise torch.OutOfMemoryError("out of memory")

    def change() -> None:
        with changeable_weights(load(folders["llama"], tp_plan="auto", check="never")):
            pass

    for wrong in (
        lambda: load(folders["gpt2"], tp_plan="auto"),
        lambda: load(folders["llama"], tp_plan="auto", device="cpu"),
        short,
        change,
    ):
        with pytest.raises(InputError) as told:
            wrong()
        yield str(told.value)


def test_two_processes_have_the_numbers_of_one(folders: dict[str, Path]) -> None:
    made = together(divided, folders)
    for name in NAMES:
        one = all_values(load(folders[name], device="cpu", check="never"))
        # The recurrence over tokens of linear attention lets roundings grow.
        allowed = 2e-4 if name == "qwen3_5" else 1e-5
        for found in (process[0][name] for process in made):
            for what, value in one.items():
                if isinstance(value, np.ndarray):
                    assert value.shape == found[what].shape, (name, what)
                    assert np.abs(value.astype(float) - found[what]).max() <= allowed, (name, what)
                else:
                    assert value == found[what], (name, what)
        assert (one["peaks"] > 0).any() and np.abs(one["gradient"]).max() > 1e-2
    for _, told in made:
        parts = ("no tp_plan", "leave", "in one of", "be changed")
        assert all(part in said for said, part in zip(told, parts, strict=True)), told


def test_heads_that_cannot_be_shared_evenly(folders: dict[str, Path]) -> None:
    with pytest.raises(InputError, match="torchrun"):
        load(folders["llama"], tp_plan="auto")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RANK", "0")
        patch.setenv("WORLD_SIZE", "4")
        with pytest.raises(InputError, match="divides 2"):  # two heads of keys
            load(folders["llama"], tp_plan="auto")


COMMANDS = {
    "scores": ("find", "translation-score", "--pair", "en-de", "--limit", 3),
    "removal": ("verify", "removal", "--pair", "en-de", "--heads", "0.1,3.2", "--limit", 3,
                "--measure", "text", "--measure", "loss", "--draws", 2, "--max-new-tokens", 4),
    "lahis": ("find", "lahis", "--limit", 3, "--quantile", 0.5),
}  # fmt: skip


def command_lines(place: Path) -> list[tuple[int, str, str]]:
    from headscope.cli import main

    said = []
    for name, words in COMMANDS.items():
        for out in (f"{name}-2", f"{name}-begun"):
            asked = [*map(str, words), "--tp-plan", "auto", "--json", "--out", str(place / out)]
            out, err = io.StringIO(), io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = main(asked)
            said.append((code, out.getvalue(), err.getvalue()))
    return said


def test_commands_write_once_and_go_on(command: Any, tmp_path: Path) -> None:
    for name, words in COMMANDS.items():
        for out in (f"{name}-1", f"{name}-begun"):
            assert command(*words, "--device", "cpu", "--json", "--out", tmp_path / out).code == 0
        begun = tmp_path / f"{name}-begun"
        (begun / "DONE.json").unlink()
        parts = [file for file in (begun / "parts").rglob("*.*") if file.is_file()]
        for file in parts[::2]:
            file.unlink()
    first, second = together(command_lines, tmp_path)
    assert [code for code, *_ in first + second] == [0] * (2 * len(first)), first
    assert all(out for _, out, _ in first) and not any(out + err for _, out, err in second)
    for name in COMMANDS:
        one, *others = (
            json.loads((tmp_path / f"{name}-{kind}" / "result.json").read_text())
            for kind in ("1", "2", "begun")
        )
        for other in others:
            alike(one, other)


def alike(one: Any, other: Any) -> None:
    """Two results are the same but for the last digits and what tells of the moment."""
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one.keys() - {"run", "seconds", "report"}:
            alike(one[key], other[key])
    elif isinstance(one, list):
        assert len(one) == len(other)
        for pair in zip(one, other, strict=True):
            alike(*pair)
    elif isinstance(one, float):
        assert one == pytest.approx(other, abs=1e-5)
    else:
        assert one == other
