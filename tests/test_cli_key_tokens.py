"""`headscope find key-tokens` from a prompt to a run folder, with a tiny model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

from conftest import json_of

Command = Callable[..., Any]
PROMPT = "The cat sees a cat and a dog"


def test_own_answer_prompt_file_table_and_heads_of_a_run(
    command: Command, model: Path, tmp_path: Path
) -> None:
    file = tmp_path / "prompt.txt"
    file.write_text(f"{PROMPT}\n", encoding="utf-8")
    one, two = tmp_path / "one", tmp_path / "two"
    common = ("find", "key-tokens", "--model", model, "--word", "cat#2", "--max-new-tokens", 4)
    first = command(*common, "--prompt-file", file, "--heads", "1.1,0.2", "--out", one)
    assert (first.code, first.err) == (0, "")
    assert "cat#2" in first.out and f"run: {one}" in first.out
    second = command(*common, "--prompt", PROMPT, "--heads", one, "--k", 1, "--out", two, "--json")
    told = json_of(second.out)
    stored = json.loads((one / "result.json").read_text())
    assert told["details"]["generated"]
    assert told["details"]["prompt"] == stored["details"]["prompt"] == PROMPT
    assert [head["score"] for head in told["scores"]] == [stored["scores"][0]["score"]]
    last = json.loads(
        command(
            *common, "--prompt", PROMPT, "--heads", "1.1", "--steps", "last", "--draws", 0,
            "--out", tmp_path / "three", "--json",
        ).out
    )  # fmt: skip
    assert (last["details"]["tokens"], last["details"]["answer"], last["tests"]) == (1, "", [])
    assert last["scores"][0]["words"][0]["token"] is None
    # The last token of the prompt predicts the first of the answer.
    steps = load_file(one / "steps.safetensors")["mass"]
    at = [(h["layer"], h["head"]) for h in stored["scores"]].index((1, 1))
    assert last["scores"][0]["score"] == pytest.approx(float(steps[0, at]), abs=1e-6)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--prompt", PROMPT, "--word", "cats"), "'cats' is not in the prompt"),
        (("--prompt", PROMPT, "--word", "Cat"), "nearest there: cat"),
        (("--word", "cat"), "--prompt TEXT or as --prompt-file FILE"),
        (("--prompt", PROMPT, "--prompt-file", "x", "--word", "cat"), "one of both"),
        (("--prompt-file", "missing.txt", "--word", "cat"), "missing.txt does not exist"),
        (("--prompt", PROMPT, "--word", "cat", "--answer", " "), "answer is empty"),
        (("--prompt", PROMPT, "--word", "cat", "--heads", "7.0"), "L7.H0"),
        (("--prompt", PROMPT, "--word", "cat", "--k", "5"), "only 1"),
        (("--prompt", PROMPT), "--word"),
    ],
)
def test_bad_input_is_one_sentence(
    command: Command, model: Path, tmp_path: Path, more: tuple[str, ...], message: str
) -> None:
    out = tmp_path / "run"
    heads = () if "--heads" in more else ("--heads", "0.0")
    code, said, err = command(
        "find", "key-tokens", "--model", model, *heads, "--out", out, "--json", *more
    )
    assert (code, said) == (2, "")
    assert message in err and len(err.splitlines()) == 1
    assert not out.exists()
