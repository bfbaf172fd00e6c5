"""`headscope find translation-score` from files to a run folder, with a tiny model."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lm_helpers import saved

Command = Callable[..., Any]
ROWS = ("the cat sees a dog\tder Kater sieht einen Hund\t0-0 1-1 2-2 3-3 4-4",
        "we sing\twir singen\t0-0 1-1",
        "no dog sings\tkein Hund singt\t0-0 1-1 2-2")  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("model"))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    file = tmp_path / "pairs.tsv"
    file.write_text("\n".join(["source\ttarget\tlinks", *ROWS]) + "\n")
    return file


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--template", "Translate:"), "{source}"),
        (("--decode", "greedy", "--aligner", "links"), "--aligner"),
        (("--pair", "de-en"), "is one file for 2 directions"),
        (("--aligner", "llm"), "--llm-model"),
        (("--device", "abacus"), "abacus"),
        (("--source-column", "english"), "no column 'english'"),
    ],
)
def test_bad_options_are_code_2_and_leave_no_run(
    arguments: tuple[str, ...],
    said: str,
    command: Command,
    model: Path,
    data: Path,
    tmp_path: Path,
) -> None:
    out = tmp_path / "run"
    fixed = ("--model", model, "--data", data, "--pair", "en-de", "--out", out)
    code, printed, err = command("find", "translation-score", *fixed, *arguments)
    assert (code, printed) == (2, "")
    assert said in err
    assert err.count("\n") == 1
    assert not out.exists()


def test_a_model_without_weights_and_an_encoder_are_refused(
    command: Command, model: Path, data: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(model, broken)
    (broken / "model.safetensors").unlink()
    arguments = ("--data", data, "--pair", "en-de", "--out", tmp_path / "run")
    code, _, err = command("find", "translation-score", "--model", broken, *arguments)
    assert code == 2
    assert f"{broken} holds no weights" in err
    (broken / "config.json").write_text('{"model_type": "bert"}')
    code, _, err = command("find", "translation-score", "--model", broken, *arguments)
    assert code == 2
    assert "is not a decoder language model" in err
    assert err.count("\n") == 1
