"""What all tests share: no network, no surprises from the machine they run on."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from headscope.lm import LanguageModel

# Set before any test imports a library that reads them.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

# Time tells about the machine, not about the code.
settings.register_profile("headscope", deadline=None)
settings.load_profile("headscope")


class Said(NamedTuple):
    """What a command said and how it ended."""

    code: int
    out: str
    err: str


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
def pocket() -> LanguageModel:
    """The bundled model, loaded once; tests leave it as it is."""
    import headscope

    return headscope.load("pocket", device="cpu")


@pytest.fixture
def loaded(pocket: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run takes the model that is loaded already."""
    from headscope.recipes.inputs import ModelChoice

    monkeypatch.setattr(ModelChoice, "load", lambda self: pocket)


@pytest.fixture
def bench(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., dict[str, Any]]]:
    """Run a benchmark in this process and read what it prints: `bench("peaks", "--quick")`."""
    import torch

    threads = torch.get_num_threads()
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "bench"))

    def run(name: str, *arguments: object) -> dict[str, Any]:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *map(str, arguments)])
        importlib.import_module(name).main()
        result: dict[str, Any] = json.loads(capsys.readouterr().out)
        return result

    yield run
    torch.set_num_threads(threads)
