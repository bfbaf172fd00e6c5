"""Exact gates of single attention heads in vLLM, a request at a time.

vLLM loads this in each of its processes by the entry point `vllm.general_plugins`. What requests
ask for is read where they come in (`gates`), and multiplied with what heads write where the model
runs (`rows`); `engine` and `proof` are all that touches vLLM.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

if find_spec("headscope") is None:
    # The wheel holds the part of it that reads heads; one that is installed comes first.
    sys.path.append(str(Path(__file__).parent / "reading"))


def register() -> None:
    """Give vLLM its gates; in a process where that was done already, nothing.

    Raises `RuntimeError`, which names what is missing, in an engine that lacks what this needs.
    """
    from headscope_vllm.engine import install

    install()
