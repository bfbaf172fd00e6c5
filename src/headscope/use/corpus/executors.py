"""Where the steps of a datatrove pipeline run: in this process, in several, on Slurm, on Ray.

The work is cut into as many tasks as there are workers. A task does its share of the chunks and
leaves out those whose files stand already, so whatever ends early is continued by running the same
thing again. datatrove's own completion markers are not asked: they say that a task ran once, not
that its files are there.

datatrove makes the executors, runs each task (`_run_for_rank`), keeps its log and statistics and
submits to Slurm. Only the loops that wait for local processes and for Ray are our own: datatrove's
wait for ever when a worker is killed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headscope.use.corpus.execution import Execution, Launched, quiet
from headscope.use.corpus.in_processes import run_local
from headscope.use.corpus.on_ray import run_ray
from headscope.use.corpus.on_slurm import submit


def execute(
    pipeline: Sequence[Any],
    how: Execution,
    logs: Path,
    watch: Callable[[], None] | None = None,
) -> Launched | None:
    """Run a pipeline; None when all its tasks have ended, what was submitted with Slurm.

    `pipeline` holds datatrove steps that can be pickled; a step is called with the task's number
    and the number of tasks, and leaves out what is done. `logs` is an absolute path that belongs
    to this configuration alone. `watch` is called in a thread of this process about twice a second
    while there is work, and once at the end. InputError from a step comes back as it is, as does
    one for a worker that was killed: chunks that are done stand, and the same call goes on.
    """
    how.check()
    if how.executor == "slurm":
        return submit(pipeline, how, logs)
    run = run_ray if how.executor == "ray" else run_local
    with _watched(watch), quiet():
        run(pipeline, how, logs)
    return None


@contextmanager
def _watched(watch: Callable[[], None] | None, seconds: float = 0.5) -> Iterator[None]:
    """Call `watch` every so often from a thread while the block runs, and after it."""
    if watch is None:
        yield
        return
    over = threading.Event()

    def look() -> None:
        while not over.wait(seconds):
            watch()

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    watch()
