"""Rating what is left of a corpus, wherever its workers run."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from headscope.errors import need
from headscope.executors import Execution, Launched, execute
from headscope.use.corpus.plan import Plan, inside_chunk

#: Called with documents done, how many there are, and predicted tokens so far.
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

    return execute(steps(plan), how, logs, _Progress(plan, how, watch) if watch else None)


class _Progress:
    """Looks which chunks stand and tells how far the corpus is, in whatever process it is rated."""

    def __init__(self, plan: Plan, how: Execution, watch: Watch) -> None:
        self._plan = plan
        self._sizes = plan.chunks()
        self._here = how.executor == "local" and how.workers == 1
        self._watch = watch
        self._tokens: dict[str, int] = {}
        self._next = 0.0

    def __call__(self) -> None:
        began = time.monotonic()
        if began < self._next:
            return
        done = self._plan.done()
        for chunk in done - self._tokens.keys():
            self._tokens[chunk] = self._plan.counts(chunk)["tokens"]
        records = sum(self._sizes.get(chunk, 0) for chunk in done)
        inside = inside_chunk() if self._here else 0
        total = sum(self._sizes.values())
        self._watch(min(total, records + inside), total, sum(self._tokens.values()))
        # A folder of very many chunks takes its time: look less often then.
        self._next = time.monotonic() + 10 * (time.monotonic() - began)
