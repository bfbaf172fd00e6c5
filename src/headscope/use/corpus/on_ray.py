"""A pipeline on Ray: a cluster named by RAY_ADDRESS, or workers of this machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from headscope.errors import InputError
from headscope.use.corpus.execution import Execution, import_ray, run_task

RETRIES = 3
"""How often Ray begins a task again whose worker died."""


def run_ray(pipeline: Sequence[Any], how: Execution, logs: Path) -> None:
    """Run a task for each worker and wait for all; a task whose worker dies is begun again.

    InputError if Ray does not start or a task's worker dies again and again, and what a task
    raises if it fails. The others are then ended.
    """
    # What Ray tells of its workers it prints; standard output is the command's own.
    with redirect_stdout(sys.stderr):
        _run(import_ray(), pipeline, how, logs)


def _run(ray: Any, pipeline: Sequence[Any], how: Execution, logs: Path) -> None:
    from datatrove.executor.ray import RayPipelineExecutor

    want = how.cluster
    executor = RayPipelineExecutor(
        list(pipeline), tasks=how.workers, logging_dir=str(logs), skip_completed=False
    )
    started = not ray.is_initialized()
    if started:
        # A cluster named by RAY_ADDRESS has its own resources; one of our own gets what it needs.
        # Ray lets its workers stand back behind all other programs unless told not to.
        os.environ.setdefault("RAY_worker_niceness", "0")
        size = {} if os.environ.get("RAY_ADDRESS") else {"num_cpus": how.workers * want.cpus}
        try:
            ray.init(include_dashboard=False, log_to_driver=False, configure_logging=False, **size)
        except Exception as error:  # Ray raises Exception itself when it takes too long to start
            said = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise InputError(
                f"Ray did not start ({said}); run the same command again, or take --executor local"
            ) from error
    options: dict[str, Any] = {
        "num_cpus": want.cpus,
        "num_gpus": want.gpus,
        "max_retries": RETRIES,
        "memory": want.memory_gb * want.cpus * 2**30 if want.memory_gb else None,
    }
    tasks: list[Any] = []
    try:
        work = ray.remote(run_task).options(**options)
        whole = ray.put(executor)
        tasks = [work.remote(whole, rank) for rank in range(how.workers)]
        while tasks:
            ended, tasks = ray.wait(tasks)
            ray.get(ended)
    except ray.exceptions.RayTaskError as error:
        raise (error.cause if isinstance(error.cause, Exception) else error) from None
    except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError) as error:
        raise InputError(
            f"a Ray worker was killed {1 + RETRIES} times, perhaps for want of memory; what is "
            "done stands: run the same command again, with fewer --workers or more memory_gb"
        ) from error
    finally:
        for task in tasks:  # of another's cluster; they need not go on after an error
            ray.cancel(task, force=True)
        if started:
            ray.shutdown()
