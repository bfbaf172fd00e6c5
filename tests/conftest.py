"""What all tests share: no network, no surprises from the machine they run on."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

import pytest
from filelock import FileLock
from hypothesis import settings

import headscope.runs.kept

if TYPE_CHECKING:
    from command_runs import CommandRun
    from headscope.lm import LanguageModel

# Set before any test imports a library that reads them.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
# What models proved is kept for the session, not for the user of this machine.
_ASSETS = tempfile.TemporaryDirectory(prefix="headscope-tests-")
os.environ["HF_ASSETS_CACHE"] = _ASSETS.name
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

# No test takes numbers from another's runs, unless it says where they are kept.
headscope.runs.kept.PLACE = None

# Time tells about the machine, not about the code.
settings.register_profile("headscope", deadline=None)
settings.load_profile("headscope")


class Said(NamedTuple):
    """What a command said and how it ended."""

    code: int
    out: str
    err: str


def json_of(text: str | bytes) -> dict[str, Any]:
    """The JSON of a result, what stands in its `details` beside all else."""
    from headscope.heads.store import with_details

    return with_details(json.loads(text))


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """Run the command line in this process: `command("align", "--data", path)`."""
    from headscope.cli import main

    def run(*arguments: object) -> Said:
        capsys.readouterr()
        code = main([str(one) for one in arguments])
        return Said(code, *capsys.readouterr())

    return run


@pytest.fixture(scope="session")
def command_runs(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> list[CommandRun]:
    """A small run of every command that has a result, made once for all workers of a session."""
    from command_runs import CommandRun, pocket_runs, tiny_runs
    from headscope.cli import main

    def run(*arguments: object) -> Said:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main([str(one) for one in arguments])
        return Said(code, out.getvalue(), err.getvalue())

    base = tmp_path_factory.getbasetemp()
    shared = base if worker_id == "master" else base.parent
    index = shared / "command-runs.json"
    with FileLock(shared / "command-runs.lock"):
        if not index.exists():
            made = []
            # Signatures hold the paths of data as they were given, so these are relative ones; a
            # table is cut by the width of the terminal.
            with contextlib.chdir(shared), mock.patch.dict(os.environ, COLUMNS="100"):
                for name, runs in (("tiny", tiny_runs), ("pocket", pocket_runs)):
                    Path(name).mkdir()
                    made += [(a, str(shared / b), *c) for a, b, *c in runs(Path(name), run)]
            index.write_text(json.dumps(made), "utf-8")
    found = json.loads(index.read_text("utf-8"))
    return [
        CommandRun(name, Path(path), said, tuple(arguments))
        for name, path, said, arguments in found
    ]


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny model: two layers of four heads over two pairs of keys and values."""
    from lm_helpers import saved

    return saved(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def pocket() -> LanguageModel:
    """The bundled model, loaded once; tests leave it as it is."""
    import headscope

    return headscope.load("pocket", device="cpu")


@pytest.fixture
def loaded(pocket: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run takes the model that is loaded already."""
    from headscope.studies.models import ModelChoice

    monkeypatch.setattr(ModelChoice, "load", lambda self: pocket)


@pytest.fixture
def bench(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., dict[str, Any]]]:
    """Run a benchmark in this process and read what it prints: `bench("peaks", "--quick")`."""
    import torch

    threads = torch.get_num_threads()

    def run(name: str, *arguments: object) -> dict[str, Any]:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *map(str, arguments)])
        importlib.import_module(name).main()
        result: dict[str, Any] = json.loads(capsys.readouterr().out)
        return result

    yield run
    torch.set_num_threads(threads)
