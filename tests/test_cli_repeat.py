"""A finished command that is given again is answered from its run folder, unless something it names
has changed."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conftest import json_of
from headscope.cli.repeat import REPEATS, fingerprint
from headscope.heads import store
from headscope.settings import build, options_in
from headscope.studies.models import ModelChoice
from headscope.studies.registry import study_of
from lm_helpers import saved

Command = Callable[..., Any]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    saved(tmp_path / "model")
    (tmp_path / "lines").write_text("one two three\nfour five\nsix seven\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[ModelChoice]:
    """Every time that a command goes its usual way."""
    seen: list[ModelChoice] = []
    load = ModelChoice.load_for

    def counted(self: ModelChoice, *given: Any) -> Any:
        seen.append(self)
        return load(self, *given)

    monkeypatch.setattr(ModelChoice, "load_for", counted)
    return seen


GIVEN = ("find", "lahis", "--model", "model", "--data", "en=lines", "--json")


@pytest.mark.parametrize("out", [(), ("--out", "run")])
def test_it_is_answered_from_its_folder(
    out: tuple[object, ...], place: Path, loads: list[ModelChoice], command: Command
) -> None:
    first = command(*GIVEN, *out)
    assert (first.code, len(loads)) == (0, 1)
    assert command(*GIVEN, *out) == first
    assert len(loads) == 1
    other = command(*GIVEN, *out, "--batch-tokens", 512)
    assert (other, len(loads)) == (first, 2)  # the usual way finds that it is the same run
    assert command(*GIVEN, *out, "--batch-tokens", 512) == first
    assert len(loads) == 2


def test_a_full_disk_at_the_end_costs_nothing(
    place: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = store.write_bytes

    def full(path: Path, content: bytes) -> None:
        if path.name == REPEATS:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        write(path, content)

    monkeypatch.setattr(store, "write_bytes", full)
    first = command(*GIVEN)
    assert first.code == 0 and not [*place.rglob(REPEATS)]
    assert command(*GIVEN) == first


def changed_data(place: Path) -> None:
    (place / "lines").write_text("one two four\nfour five\nsix seven\n", "utf-8")


def touched_model(place: Path) -> None:
    os.utime(place / "model" / "model.safetensors")


def another_file(place: Path) -> None:
    (place / "model" / "notes").write_text("", "utf-8")


def damaged(place: Path) -> None:
    next((place / "runs").glob("*/" + REPEATS)).write_text("[", "utf-8")


def unfinished(place: Path) -> None:
    next((place / "runs").glob("*/DONE.json")).unlink()


@pytest.mark.parametrize("change", [changed_data, touched_model, another_file, damaged, unfinished])
def test_what_has_changed_is_looked_at_again(
    change: Callable[[Path], None], place: Path, loads: list[ModelChoice], command: Command
) -> None:
    first = command(*GIVEN)
    change(place)
    again = command(*GIVEN)
    assert (again.code, len(loads)) == (0, 2)
    if change is changed_data:
        assert json_of(again.out)["signature"] != json_of(first.out)["signature"]
    assert command(*GIVEN) == again
    assert len(loads) == 2


def test_data_that_changes_meanwhile_is_not_what_was_read(
    place: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = ModelChoice.load_for

    def changing(self: ModelChoice, *given: Any) -> Any:
        changed_data(place)  # documents were read before
        return load(self, *given)

    monkeypatch.setattr(ModelChoice, "load_for", changing)
    first = command(*GIVEN)
    again = command(*GIVEN)
    assert json_of(again.out)["signature"] != json_of(first.out)["signature"]


def test_a_linked_folder_is_not_taken_for_unchanged(place: Path, command: Command) -> None:
    (place / "model").rename(place / "elsewhere")
    (place / "model").mkdir()
    (place / "model" / "part").symlink_to(place / "elsewhere", target_is_directory=True)
    study = study_of("find lahis")
    given = {each.name: None for each in options_in(study.settings)}
    values = {"model": "model", "data": ["en=lines"]}
    assert fingerprint(study, build(study.settings, given | values)) is None


def test_a_damaged_result_is_told(place: Path, command: Command) -> None:
    command(*GIVEN)
    file = next((place / "runs").glob("*/result.json"))
    file.write_text(file.read_text("utf-8").replace("0.", "1."), "utf-8")
    told = command(*GIVEN)
    assert (told.code, told.out) == (2, "")
    assert "result.json" in told.err


@pytest.mark.parametrize(
    ("name", "values", "known"),
    [
        ("find lahis", {"model": "pocket", "data": ["en=lines"]}, True),
        ("find lahis", {"model": "gpt2", "data": ["en=lines"]}, False),
        ("find lahis", {"model": "owner/name", "data": ["en=lines"]}, False),
        ("find lahis", {"model": "model", "data": ["en=wikitext"]}, False),
        ("find lahis", {"model": "model", "data": ["lines"], "tokenizer": "gpt2"}, False),
        ("verify removal", {"heads": "5.3,7.11", "pair": ["en-de"]}, True),
        ("verify removal", {"heads": "lines", "k": ["0.1"], "pair": ["en-de"]}, True),
        ("verify removal", {"heads": "hf://a/b", "pair": ["en-de"]}, False),
        ("verify removal", {"heads": "runs/x:en-de", "pair": ["en-de"]}, False),
        ("compare overlap", {"artifacts": ["lines", "runs/x:en-de"]}, False),
        ("compare overlap", {"artifacts": ["lines", "model"]}, True),
        ("align", {"data": "lines", "out": "x"}, False),
        ("methods", {}, False),
    ],
)
def test_only_files_that_are_here_stand_for_themselves(
    name: str, values: dict[str, Any], known: bool, place: Path
) -> None:
    study = study_of(name)
    given = {each.name: values.get(each.name) for each in options_in(study.settings)}
    assert (fingerprint(study, build(study.settings, given)) is not None) is known


def test_nothing_heavy_is_imported(place: Path, command: Command) -> None:
    said = command(*GIVEN)
    code = (
        "import sys; from headscope.cli import main; main(sys.argv[1:]); "
        "print([name for name in ('torch', 'transformers') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *GIVEN], capture_output=True, text=True, check=True
    )
    assert done.stdout == said.out + "[]\n"
