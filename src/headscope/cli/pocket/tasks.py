"""`headscope pocket tasks`: task files of the bundled model's world."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

from typer import Option

from headscope.cli import old_options as options
from headscope.cli.output import emit


def tasks(
    out: Annotated[Path, Option("--out", metavar="DIR", help="Where the task files go.")],
    split: Annotated[options.WorldSplit, Option("--split", help="Of the items.")] = "test",
    n: Annotated[int, Option("--n", min=1, help="Most items of a task.")] = 200,
    seed: options.Seed = 0,
    as_json: options.AsJson = False,
) -> None:
    """Write tasks in the format of lm-evaluation-harness, for `headscope verify tasks --task DIR`.

    Some need a mapping from one language to another, some do not.
    """
    started = time.monotonic()
    from headscope.pocket.tasks import write_tasks
    from headscope.runs import Signature

    counts = write_tasks(out, split, n, seed)
    key = Signature.of("pocket tasks", {"split": split, "n": n, "seed": seed}, {})
    result = {
        "signature": str(key),
        "run": out,
        "seconds": time.monotonic() - started,
        "tasks": counts,
    }
    lines = [f"{name}: {count} items" for name, count in counts.items()]
    emit(result, as_json, "\n".join([*lines, f"task files: {out}"]))


command = tasks
