"""Whether two versions of headscope give the same results: every command's run, value by value.

Run in each version's checkout, then compare; the results, every row that a run keeps, the words of
its page and of the terminal are those of the golden tests, here to the last digit.

    python bench/same_results.py make BEFORE.json
    python bench/same_results.py compare BEFORE.json AFTER.json
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
os.environ.setdefault("HF_HUB_OFFLINE", "1")


def make() -> dict[str, Any]:
    """The golden of every command's small run, by model and folder."""
    from command_runs import pocket_runs, tiny_runs
    from conftest import Said
    from headscope.cli import main
    from test_goldens import golden

    def run(*arguments: object) -> Said:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main([str(argument) for argument in arguments])
        return Said(code, out.getvalue(), err.getvalue())

    made = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.chdir(folder),
        mock.patch.dict(os.environ, COLUMNS="100"),
    ):
        for model, runs in (("tiny", tiny_runs), ("pocket", pocket_runs)):
            Path(model).mkdir()
            for made_run in runs(Path(model), run):
                made[f"{model}/{made_run.folder.name}"] = golden(
                    made_run._replace(folder=made_run.folder.resolve())
                )
                print(f"{model}/{made_run.folder.name}", file=sys.stderr)
    return made


def compare(before: Path, after: Path) -> int:
    """Print every difference; 1 if there is any."""
    from test_goldens import differences

    was, now = (json.loads(file.read_text("utf-8")) for file in (before, after))
    found = list(differences(was, now, within=0.0))
    numbers = sum(map(_numbers, was.values()))
    print("\n".join(found), f"{len(found)} differences, {numbers:,} numbers compared", sep="\n")
    return int(bool(found))


def _numbers(value: Any) -> int:
    if isinstance(value, dict | list):
        return sum(map(_numbers, value.values() if isinstance(value, dict) else value))
    return isinstance(value, float | int) and not isinstance(value, bool)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=("make", "compare"))
    parser.add_argument("files", nargs="+", type=Path)
    given = parser.parse_args()
    if given.what == "compare":
        sys.exit(compare(*given.files))
    given.files[0].write_text(json.dumps(make()), "utf-8")
