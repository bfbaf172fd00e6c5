"""Folders of passing use: gone at the end, and found again when their process was killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headscope import scratch

_HOLDS = (
    "import sys, time\n"
    "from headscope.scratch import scratch\n"
    "with scratch('test', sys.argv[1]) as folder:\n"
    "    (folder / 'weights').write_bytes(bytes(1000))\n"
    "    print(folder, flush=True)\n"
    "    time.sleep(600)\n"
)


def test_what_a_block_made_is_gone_after_it(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), scratch.scratch("test", tmp_path) as folder:
        assert list(folder.iterdir()) == []
        (folder / "file").write_text("text")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_is_found_and_what_is_in_use_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch, "_BEING_MADE", 0.0)
    (tmp_path / "headscope-of-the-user").mkdir()
    (tmp_path / "headscope-of-the-user" / "file").write_text("text")
    command = [sys.executable, "-c", _HOLDS, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        place = Path(process.stdout.readline().strip())
        assert scratch.left_over([tmp_path]) == {}
        process.kill()
    left = scratch.left_over([tmp_path])
    assert left == {place.parent: 1000}
    scratch.sweep(left)
    assert not place.parent.exists()
    assert [each.name for each in tmp_path.iterdir()] == ["headscope-of-the-user"]


def test_what_is_being_made_is_not_left_over(tmp_path: Path) -> None:
    (tmp_path / "headscope-test-1").mkdir()
    (tmp_path / "headscope-test-1" / "in use").touch()
    (tmp_path / ".tmp-abc.json").write_text("{")
    assert scratch.left_over([tmp_path, tmp_path / "none"]) == {}
