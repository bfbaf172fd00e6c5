"""What all tests share: no network, no surprises from the machine they run on."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

import pytest
from hypothesis import settings

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
