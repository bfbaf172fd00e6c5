"""A run of `use rate` that is killed again and again comes out as one that was left alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from use_corpus_helpers import contents, documents, write_jsonl


def test_kills_at_any_point_change_no_file(tmp_path: Path) -> None:
    records = documents(300)
    for at in range(0, 300, 9):
        records[at]["text"] = "NAN"
    data = write_jsonl(tmp_path / "c.jsonl.gz", records)
    script = Path(__file__).with_name("corpus_kill_script.py")
    ended = subprocess.run(
        [sys.executable, script, data, tmp_path, "3"], capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout) >= 5
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole")
    assert len(contents(tmp_path / "whole")) == 16
    assert not list((tmp_path / "killed").rglob(".tmp-*"))
