"""`headscope align`: files in, files out, and nothing lost."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import find_helpers
from conftest import json_of
from headscope.data.pairs import PairSource, read_pairs, write_pairs
from headscope.errors import Caution, InputError
from headscope.pocket.sample import sample_pairs

Command = Callable[..., Any]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Ten sentence pairs with links."""
    file = tmp_path / "pairs.tsv"
    write_pairs(file, sample_pairs("en-de", "dev", 10, 0).pairs)
    return file


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """The same sentences without links, under other names of columns."""
    file = tmp_path / "plain.tsv"
    rows = [f"{p.source}\t{p.target}" for p in sample_pairs("en-de", "dev", 10, 0).pairs]
    file.write_text("\n".join(["english\tgerman", *rows]) + "\n")
    return file


def test_links_of_the_data_are_taken_over(command: Command, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "links.tsv"
    arguments = ("--data", data, "--pair", "en-de", "--out", out, "--json")
    code, said, err = command("align", *arguments)
    assert (code, err) == (0, "")
    told = json_of(said)
    links = [pair.links or frozenset() for pair in read_pairs(PairSource(str(data), "en-de")).pairs]
    assert told["aligner"] == "links"
    assert (told["pairs"], told["skipped"]) == (10, 0)
    assert told["links"] == sum(map(len, links))
    assert told["run"] == str(out)
    assert out.read_bytes() == data.read_bytes()


def test_columns_and_languages_may_be_named(command: Command, plain: Path, tmp_path: Path) -> None:
    pytest.importorskip("eflomal")
    out = tmp_path / "links.tsv"
    code, said, _ = command(
        "align", "--data", plain, "--extra", plain, "--source-language", "en",
        "--target-language", "de", "--source-column", "english", "--target-column", "german",
        "--limit", 6, "--out", out, "--json",
    )  # fmt: skip
    assert code == 0
    told = json_of(said)
    assert told["aligner"] == "eflomal"
    assert told["pairs"] == 6
    assert told["fitted_on"] == 20
    assert len(read_pairs(PairSource(str(out), "en-de")).pairs) == 6


def test_the_same_command_again_computes_nothing(
    command: Command, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "links.tsv"
    arguments = ("align", "--data", data, "--pair", "en-de", "--out", out, "--json")
    first = json_of(command(*arguments).out)

    def fail(*_: object) -> None:
        raise AssertionError("links were computed again")

    monkeypatch.setattr("headscope.data.align.align_words", fail)
    second = json_of(command(*arguments).out)
    del first["seconds"], second["seconds"]
    assert first == second


def test_another_result_is_not_overwritten_unasked(
    command: Command, data: Path, tmp_path: Path
) -> None:
    out = tmp_path / "links.tsv"
    out.write_text("mine\n")
    arguments = ("align", "--data", data, "--pair", "en-de", "--out", out)
    code, said, err = command(*arguments)
    assert (code, said) == (2, "")
    assert str(out) in err
    assert "--overwrite" in err
    assert out.read_text() == "mine\n"
    assert command(*arguments, "--overwrite").code == 0
    assert out.read_bytes() == data.read_bytes()
    # A result changed by hand is no longer the command's own.
    out.write_text("mine again\n")
    assert command(*arguments).code == 2
    assert out.read_text() == "mine again\n"


def test_the_text_stays_and_the_aligner_is_named(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, stand_in in find_helpers.ALIGNER.items():
        monkeypatch.setattr(name, stand_in)
    data, out = tmp_path / "zh.tsv", tmp_path / "linked.tsv"
    rows = ["我们在家。\tWe are at home.", " 他去了 New York。\t He went there. "]
    data.write_text("source\ttarget\n" + "".join(f"{row}\n" for row in rows), "utf-8")
    told = json_of(command("align", "--data", data, "--pair", "zh-en", "--out", out, "--json").out)
    assert (told["aligner"], told["units"], told["fitted_on"]) == ("eflomal", "words", 2)
    header, *lines = out.read_text("utf-8").splitlines()
    assert header == "source\ttarget\tlinks\tunits\taligner"
    assert ["\t".join(line.split("\t")[:2]) for line in lines] == rows
    assert [line.split("\t")[4] for line in lines] == ["eflomal"] * 2
    assert lines[0].split("\t")[3] == "0:1 1:2 2:3 3:4 4:5 | 0:2 3:6 7:9 10:14 14:15"
    # Aligned once more, by its own links, it stays the same.
    again = tmp_path / "again.tsv"
    assert command("align", "--data", out, "--pair", "zh-en", "--out", again).code == 0
    assert again.read_bytes() == out.read_bytes()


def earlier_file(folder: Path, aligner: str) -> Path:
    """What the command wrote when it put spaces between characters, with its note."""
    file = folder / "earlier.tsv"
    file.write_text("source\ttarget\tlinks\n我 们 在 家 。\tWe are home.\t0-0 3-2\n", "utf-8")
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    result = {"aligner": aligner, "units": "words", "pairs": 1, "links": 2, "skipped": 0}
    note = {"signature": "headscope-0.2.0|align|0123456789ab", "sha256": digest, "result": result}
    file.with_name("earlier.tsv.json").write_text(json.dumps(note))
    return file


def test_a_file_of_an_earlier_version_is_refused(tmp_path: Path) -> None:
    file = earlier_file(tmp_path, "eflomal")
    with pytest.raises(InputError, match="run headscope align again on the original file"):
        read_pairs(PairSource(str(file), "zh-en"))
    # One that a user has changed since is the user's own; so is one with given links.
    with pytest.warns(Caution, match="original file"):
        read_pairs(PairSource(str(earlier_file(tmp_path, "links")), "zh-en"))
    file.write_text(file.read_text("utf-8").replace("We", "We all"), "utf-8")
    with pytest.warns(Caution, match="original file"):
        assert len(read_pairs(PairSource(str(file), "zh-en")).pairs) == 1


@pytest.mark.parametrize("source", ["我们 在 家里 。", "We are at home .", "家"])
def test_words_that_a_user_has_cut_are_no_reason_to_warn(source: str, tmp_path: Path) -> None:
    file = tmp_path / "own.tsv"
    file.write_text(f"source\ttarget\tlinks\n{source}\tWe are home.\t0-0\n", "utf-8")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_pairs(PairSource(str(file), "zh-en"))


def test_who_made_the_links_is_told_of_a_file_as_of_an_aligner(
    command: Command, plain: Path, tmp_path: Path, loaded: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, stand_in in find_helpers.ALIGNER.items():
        monkeypatch.setattr(name, stand_in)
    columns = ("--source-column", "english", "--target-column", "german")
    linked = tmp_path / "linked.tsv"
    assert command("align", "--data", plain, "--pair", "en-de", *columns, "--out", linked).code == 0
    find = ("find", "translation-score", "--pair", "en-de", "--model", "pocket")
    inline = command(*find, "--data", plain, *columns, "--out", tmp_path / "inline")
    read = command(*find, "--data", linked, "--out", tmp_path / "read")
    for said in (inline, read):
        assert said.code == 0
        assert "made by eflomal, whose errors lower scores" in " ".join(said.out.split())
    results = [json_of((tmp_path / n / "result.json").read_text()) for n in ("inline", "read")]
    assert [result["aligner"] for result in results] == ["eflomal"] * 2
    assert "given with the data" not in read.out


def test_the_signature_tells_options_and_data_apart(
    command: Command, data: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy.tsv"
    copy.write_bytes(data.read_bytes())

    def signature(*arguments: object) -> str:
        out = tmp_path / f"out{len(list(tmp_path.iterdir()))}.tsv"
        said = command("align", "--pair", "en-de", *arguments, "--out", out, "--json").out
        return str(json_of(said)["signature"])

    assert signature("--data", data) == signature("--data", copy)
    assert signature("--data", data) != signature("--data", data, "--limit", 5)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--pair", "en-german"), "'german'"),
        ((), "add --pair en-de"),
        (("--pair", "en-de", "--aligner", "llm"), "add --llm-model NAME"),
    ],
)
def test_bad_options_leave_an_earlier_result(
    arguments: tuple[str, ...], said: str, command: Command, data: Path, tmp_path: Path
) -> None:
    out = tmp_path / "links.tsv"
    out.write_text("earlier\n")
    code, _, err = command("align", "--data", data, "--out", out, *arguments)
    assert code == 2
    assert said in err
    assert out.read_text() == "earlier\n"
