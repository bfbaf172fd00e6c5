"""`headscope verify removal` and `headscope verify measure`, with a tiny model."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conftest import json_of
from verify_helpers import write_data

Command = Callable[..., Any]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("data") / "pairs.tsv", 5)


@pytest.fixture(scope="module")
def fixed(model: Path, data: Path) -> tuple[object, ...]:
    return (
        "verify", "removal", "--model", model, "--data", data, "--pair", "en-de", "--draws", 2,
        "--max-new-tokens", 3,
    )  # fmt: skip


def test_heads_of_a_run_know_what_they_were_found_on(
    command: Command, model: Path, data: Path, fixed: tuple[object, ...], tmp_path: Path
) -> None:
    found = tmp_path / "found"
    score = ("find", "translation-score", "--model", model, "--data", data, "--pair", "en-de")
    assert command(*score, "--limit", 2, "--out", found).code == 0
    out = tmp_path / "run"
    for heads in (found, found / "scores"):
        code, said, err = command(*fixed, "--heads", heads, "--out", out)
        assert (code, said) == (2, "")
        assert "2 of 5 test pairs hold a sentence that these heads were found on" in err
        assert "--allow-overlap" in err and str(found) in err
        assert not out.exists()
    told = command(*fixed, "--heads", found, "--allow-overlap", "--out", out, "--json").out
    assert json_of(told)["details"]["leakage"] == {"known": True, "overlap": 2, "of": 5}
    # A sentence counts whichever side it stands on.
    back = write_data(tmp_path / "back.tsv", 5, reverse=True)
    code, _, err = command(*fixed[:5], back, "--pair", "de-en", "--heads", found)
    assert code == 2
    assert "2 of 5 test pairs" in err
    # What early runs stored holds sources alone, by direction.
    stored = json.loads((found / "found_on.json").read_text())
    early = {pair: sides["source"] for pair, sides in stored.items()}
    (found / "found_on.json").write_text(json.dumps(early))
    assert "2 of 5 test pairs" in command(*fixed, "--heads", found).err
    (found / "found_on.json").write_text("{")
    code, _, err = command(*fixed, "--heads", found)
    assert code == 2
    assert f"{found / 'found_on.json'}: is damaged" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--heads", "7.0"), "there is no head L7.H0 in a model of 2 layers × 4 heads"),
        (("--heads", "1.0", "--k", "9"), "k = 9 asks for more heads than the 8"),
        (("--heads", "1.0", "--k", "2"), "this set has only 1"),
        (("--heads", "1.0", "--gate", "nan"), "the gate nan is not a finite number"),
        (("--heads", "1.0", "--gate", "1e308"), "the gate 1e+308 is not a finite number"),
        (("--heads", ""), "no heads are named"),
        (("--heads", "1.0", "--model", "~nobody-of-that-name/model"), "~nobody-of-that-name/model"),
        (("--heads", "1.0", "--gate", "much"), "Invalid value for '--gate'"),
        (("--heads", "1.0", "--gate", "2", "--gate", "2.0"), "given twice"),
        (("--heads", "1.0", "--draws", "0"), "--draws"),
        (("--heads", "nowhere"), "names no heads"),
        (("--heads", "1.0", "--pair", "de-en"), "is one file for 2 directions"),
        ((), "--heads"),
    ],
)
def test_bad_input_is_code_2_and_leaves_no_run(
    arguments: tuple[str, ...],
    said: str,
    command: Command,
    fixed: tuple[object, ...],
    tmp_path: Path,
) -> None:
    out = tmp_path / "run"
    code, printed, err = command(*fixed, *arguments, "--out", out)
    assert (code, printed) == (2, "")
    assert said in err
    assert err.count("\n") == 1
    assert not out.exists()


def test_measuring_what_is_no_removal_run(
    command: Command, model: Path, data: Path, fixed: tuple[object, ...], tmp_path: Path
) -> None:
    code, _, err = command("verify", "measure", tmp_path / "nothing")
    assert code == 2
    assert "is not the folder of a finished run" in err
    other = tmp_path / "other"
    score = ("find", "translation-score", "--model", model, "--data", data, "--pair", "en-de")
    assert command(*score, "--out", other).code == 0
    before = {file: file.read_bytes() for file in other.rglob("*") if file.is_file()}
    code, _, err = command("verify", "measure", other)
    assert code == 2
    assert "is a run of 'find translation-score'" in err
    assert {file: file.read_bytes() for file in other.rglob("*") if file.is_file()} == before
    run = tmp_path / "run"
    assert command(*fixed, "--heads", "1.0", "--out", run).code == 0
    for damage, told in ((b"{\n", "line 1: is damaged"), (b"", "holds other conditions")):
        copy = tmp_path / told[:4]
        shutil.copytree(run, copy)
        lines = (copy / "outputs.jsonl").read_bytes().splitlines(keepends=True)
        # Either the first row is cut, or the last condition is left out.
        (copy / "outputs.jsonl").write_bytes(
            damage + b"".join(lines[1:]) if damage else b"".join(lines[:-5])
        )
        code, _, err = command("verify", "measure", copy)
        assert code == 2
        assert told in err


def test_a_damaged_row_is_named_whatever_reads_it(
    command: Command, fixed: tuple[object, ...], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    assert command(*fixed, "--heads", "1.0", "--out", run).code == 0
    rows = (run / "outputs.jsonl").read_text().splitlines()
    null = json.dumps({**json.loads(rows[2]), "output": None})
    for damage in ("[" * 100_000, null):
        (run / "outputs.jsonl").write_text("\n".join([*rows[:2], damage, *rows[3:]]) + "\n")
        for reader in (("verify", "measure"), ("verify", "failures"), ("report",)):
            code, out, err = command(*reader, run)
            assert (code, out) == (2, "") and err.count("\n") == 1, reader
            assert "outputs.jsonl, line 3: is damaged" in err, (reader, err)


def test_languages_that_contradict_the_pocket_pair(command: Command) -> None:
    for languages, said in (
        (("--pair", "en-de", "--source-language", "de"), "contradicts the language de"),
        (("--source-language", "en"), "one language alone is given"),
    ):
        code, _, err = command("verify", "one-by-one", "--heads", "0.0", *languages)
        assert code == 2 and said in err
