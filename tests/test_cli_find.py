"""`headscope find translation-score` from files to a run folder, with a tiny model."""

from __future__ import annotations

import json
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


def test_several_pairs_are_a_mean_and_each_its_own(
    command: Command, model: Path, data: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.tsv"
    other.write_text("source\ttarget\tlinks\nder Hund\tthe dog\t0-0 1-1\nja klar\tsure\t1-0\n")
    said = command(
        "find", "translation-score", "--model", model, "--pair", "en-de", "--pair", "de-en",
        "--data", f"en-de={data}", "--data", f"de-en={other}", "--out", tmp_path / "run", "--json",
    )  # fmt: skip
    told = json.loads(said.out)
    assert set(told["directions"]) == {"en-de", "de-en"}

    def table(heads: list[dict[str, Any]]) -> dict[tuple[int, int], float]:
        return {(one["layer"], one["head"]): one["score"] for one in heads}

    parts = [table(one["heads"]) for one in told["directions"].values()]
    for head, score in table(told["heads"]).items():
        assert score == pytest.approx((parts[0][head] + parts[1][head]) / 2, abs=1e-12)


def test_a_folder_with_another_run_is_left_untouched(
    command: Command, model: Path, data: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    arguments = ("find", "translation-score", "--model", model, "--data", data, "--pair", "en-de")
    assert command(*arguments, "--out", out).code == 0

    def content() -> dict[str, bytes]:
        files = (one for one in out.rglob("*") if one.is_file())
        return {str(one.relative_to(out)): one.read_bytes() for one in files}

    before = content()
    code, said, err = command(*arguments, "--out", out, "--scope", "source")
    assert (code, said) == (2, "")
    assert err.startswith(f"error: {out}: holds a run of another configuration")
    assert "scope" in err
    assert content() == before


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
