"""`headscope find translation-score` from files to a run folder, with a tiny model."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headscope.heads import HeadScores
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


def test_the_json_has_the_agreed_names(
    command: Command, model: Path, data: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    arguments = ("--model", model, "--data", data, "--pair", "en-de", "--out", out, "--json")
    code, said, err = command("find", "translation-score", *arguments)
    # An untrained model is warned of, in one line and nothing else.
    assert code == 0 and re.fullmatch(r"warning: the model does not do this task [^\n]*\n", err)
    told = json.loads(said)
    assert {"signature", "run", "seconds", "heads", "examples", "tokens", "counts"} <= set(told)
    assert (told["run"], told["examples"]) == (str(out), 3)
    assert len(told["heads"]) == 8
    assert all({"layer", "head", "score", "low", "high", "chance"} <= set(h) for h in told["heads"])
    order = [(-one["score"], one["layer"], one["head"]) for one in told["heads"]]
    assert order == sorted(order)
    assert sum(told["counts"].values()) == 8
    assert set(told["counts"]) == {"token_alignment", "low_activity", "inactive"}
    # What the folder holds is what was printed.
    scores = HeadScores.from_pretrained(out / "scores")
    assert [one["score"] for one in told["heads"]] == [score for _, score in scores.ranked("score")]


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


def test_the_same_command_again_gives_the_same_result(
    command: Command, model: Path, data: Path, tmp_path: Path
) -> None:
    arguments = ("--model", model, "--data", data, "--pair", "en-de", "--out", tmp_path / "run")
    first = command("find", "translation-score", *arguments, "--json").out
    assert command("find", "translation-score", *arguments, "--json").out == first
    text = command("find", "translation-score", *arguments).out
    assert json.loads(first)["rank"] == "above-chance"
    by_score = command("find", "translation-score", *arguments[:-1], tmp_path / "other",
                       "--rank", "score", "--json").out  # fmt: skip
    told = json.loads(by_score)
    assert told["rank"] == "score" and told["rank_note"] is None
    assert [one["rank"] for one in told["heads"]] == [*range(1, len(told["heads"]) + 1)]
    assert text.splitlines()[-1] == f"run: {tmp_path / 'run'}"


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


def test_check_says_whether_a_model_can_be_used(command: Command, model: Path) -> None:
    code, said, _ = command("check", model, "--json")
    told = json.loads(said)
    assert code == 0
    assert told["passed"] is True
    assert told["report"]["wrong"] == 0
    assert (told["layers"], told["total_heads"]) == (2, 8)
    assert "8 query heads in 2 layers; runs as it should" in command("check", model).out
