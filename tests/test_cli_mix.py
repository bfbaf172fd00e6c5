"""`headscope use mix`: its result, its words, its page, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conftest import json_of
from headscope.errors import InputError
from headscope.studies.report import write_report
from headscope.use.mixing import verify_manifest
from mixing_helpers import corpus, write, written


def test_a_mixture_from_the_command_line(tmp_path: Path, command: Callable[..., Any]) -> None:
    source, out = write(tmp_path / "a.jsonl.gz", corpus(500)), tmp_path / "out"
    words = ("use", "mix", source, "--kind", "enhance", "--share", "4%", "--by", "tokens")
    sizes = ("--size", "en=4000", "--size", "de=50%", "--size", "is=800")
    said = command(*words, *sizes, "--out", out, "--json")
    assert said.code == 0 and said.err == ""
    result = json_of(said.out)
    assert {"signature", "run", "seconds", "documents", "tokens", "manifest"} <= set(result)
    assert set(result["languages"]) == {"de", "en", "is"}
    assert abs(result["languages"]["en"]["mixture"]["tokens"] - 4000) <= 60
    verify_manifest(out, [source])
    found = written(out)
    assert result["documents"] == len(found)
    assert result["tokens"] == sum(one["tokens"] for one in found)
    again = json_of(command(*words, *sizes, "--out", out, "--json").out)
    assert again == result


@pytest.mark.parametrize("file", ["manifest.json", "summary.json"])
def test_a_damaged_run_has_no_page(tmp_path: Path, command: Callable[..., Any], file: str) -> None:
    out = tmp_path / "out"
    command("use", "mix", write(tmp_path / "a.jsonl", corpus(80)), "--out", out)
    whole = json.loads((out / file).read_text("utf-8"))
    (out / file).write_text(json.dumps({**whole, "languages": {"en": 1}}), "utf-8")
    with pytest.raises(InputError, match=file):
        write_report(out)
