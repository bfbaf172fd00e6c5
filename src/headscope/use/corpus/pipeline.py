"""Rating a corpus of any size: what is to be done, doing what is left of it, adding it up."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from headscope.data.extras import need
from headscope.heads.store import writing
from headscope.use.corpus.chunks import Chunk
from headscope.use.corpus.execution import Execution, Launched
from headscope.use.corpus.executors import execute
from headscope.use.corpus.tally import Tally
from headscope.use.corpus.worker import Plan, inside_chunk

if TYPE_CHECKING:
    from headscope.runs import Run

#: Told documents done, how many there are, and predicted tokens so far.
Watch = Callable[[int, int, int], None]


def rate_left(
    plan: Plan, how: Execution, logs: Path, watch: Watch | None = None
) -> Launched | None:
    """Rate the chunks that are not done, if there are any; what is done already is kept.

    Returns None when all are done, and what was submitted where others go on with it. An error
    leaves finished chunks as they are, and the same call goes on from there.
    """
    if next(plan.left(0, 1), None) is None:
        return None
    need("datatrove", "rating a corpus", "corpus")
    from headscope.use.corpus.steps import steps

    seen = _Progress(plan, how, watch) if watch else None
    return execute(steps(plan), how, logs, seen)


def add_up(plan: Plan, run: Run, progress: Callable[[int, int], None] | None = None) -> Tally:
    """Add up the finished chunks in the order of the corpus and write ``rejects.jsonl``."""
    tally = Tally()
    chunks = list(plan.shelf)
    with writing(run.path / "rejects.jsonl") as rejects:
        for number, chunk in enumerate(chunks):
            if progress:
                progress(number, len(chunks))
            tally.add(plan.shelf.counts(chunk))
            rejects.write(plan.shelf.rejects(chunk))
    if progress:
        progress(len(chunks), len(chunks))
    return tally


class _Progress:
    """Looks which chunks stand and tells how far the corpus is, in whatever process it is rated."""

    def __init__(self, plan: Plan, how: Execution, watch: Watch) -> None:
        self._shelf = plan.shelf
        self._sizes = {
            str(Chunk(file.name, number)): self._shelf.records_of(file, number)
            for file in plan.files
            for number in range(self._shelf.chunks_of(file))
        }
        self._here = how.executor == "local" and how.workers == 1
        self._watch = watch
        self._tokens: dict[str, int] = {}
        self._next = 0.0

    def __call__(self) -> None:
        began = time.monotonic()
        if began < self._next:
            return
        done = self._shelf.done()
        for name in done - self._tokens.keys():
            file, _, number = name.rpartition("-")
            self._tokens[name] = self._shelf.counts(Chunk(file, int(number)))["tokens"]
        records = sum(self._sizes.get(name, 0) for name in done)
        inside = inside_chunk() if self._here else 0
        total = sum(self._sizes.values())
        self._watch(min(total, records + inside), total, sum(self._tokens.values()))
        # A folder of very many chunks takes its time: look less often then.
        self._next = time.monotonic() + 10 * (time.monotonic() - began)
