"""An export that was killed leaves nothing that looks whole, and ends as if it never had been."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import process_helpers
from headscope.errors import InputError
from headscope.studies.inputs import ModelChoice
from headscope.studies.use.export import UseExport, use_export
from headscope.studies.use.gates import GateChoice
from lm_helpers import saved


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> UseExport:
    """Small weight files, so that there are several."""
    model = saved(tmp_path_factory.mktemp("inputs") / "model", "llama")
    return UseExport(GateChoice(heads="0.1,1.2"), ModelChoice(str(model)), max_shard_size="60KB")


# While the first file is written, after several, and while the logits are compared.
@pytest.mark.parametrize(("step", "calls", "files"), [("writing", 2, 0), ("writing", 19, 2),
                                                      ("comparing", 2, 4)])  # fmt: skip
def test_a_killed_export_is_finished_by_the_same_command(
    config: UseExport, step: str, calls: int, files: int, tmp_path: Path
) -> None:
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    process_helpers.killed_at(calls, use_export, config, killed, titles=(step,))
    assert not (killed / "DONE.json").exists() and not (killed / "checkpoint").exists()
    staged = killed / "parts" / "checkpoint"
    kept = {file: file.stat().st_mtime_ns for file in staged.glob("model*.safetensors")}
    assert len(kept) == files
    results = [use_export(config, out) for out in (killed, whole)]
    assert not staged.exists()
    for file, written in kept.items():
        assert (killed / "checkpoint" / file.name).stat().st_mtime_ns == written
    names = sorted(path.name for path in (whole / "checkpoint").iterdir())
    assert sorted(path.name for path in (killed / "checkpoint").iterdir()) == names
    for name in names:
        files = [out / "checkpoint" / name for out in (killed, whole)]
        assert files[0].read_bytes() == files[1].read_bytes(), name
    one, other = (replace(result, run=None, path="", seconds=0) for result in results)
    assert one == other


def test_what_stands_under_its_name_is_not_written_again(config: UseExport, tmp_path: Path) -> None:
    first = use_export(config, tmp_path / "run")
    (tmp_path / "run" / "DONE.json").unlink()  # as if killed right before the end
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "run" / "checkpoint").iterdir()}
    again = use_export(config, tmp_path / "run")
    assert {path: path.stat().st_mtime_ns for path in times} == times
    assert replace(again, seconds=0) == replace(first, seconds=0)
    for name in ("DONE.json", "parts/written.jsonl"):
        (tmp_path / "run" / name).unlink()
    with pytest.raises(InputError, match="the note of what was written there is gone"):
        use_export(config, tmp_path / "run")
