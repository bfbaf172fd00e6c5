"""A pipeline in this process, or in several of this machine."""

from __future__ import annotations

import os
import signal
import threading
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headscope.errors import InputError
from headscope.use.corpus.execution import Execution, run_task, silence


def run_local(pipeline: Sequence[Any], how: Execution, logs: Path) -> None:
    """Run a task for each worker and wait for all; one worker is this process itself.

    InputError if a worker is killed, and what a worker raises if it fails. The others are then
    ended.
    """
    from multiprocessing import get_context
    from multiprocessing.connection import wait

    from datatrove.executor.local import LocalPipelineExecutor

    executor = LocalPipelineExecutor(
        list(pipeline), tasks=how.workers, logging_dir=str(logs), skip_completed=False
    )
    if how.workers == 1:
        run_task(executor, 0)
        return
    spawn = get_context("spawn")
    waiting: dict[Any, int] = {}
    processes = []
    try:
        for rank in range(how.workers):
            ours, theirs = spawn.Pipe(duplex=False)
            process = spawn.Process(target=_work, args=(executor, rank, how, theirs), daemon=True)
            process.start()
            theirs.close()  # so that the pipe ends when the worker does
            waiting[ours] = rank
            processes.append(process)
        while waiting:
            for ended in wait(list(waiting)):
                rank = waiting.pop(ended)
                _check_ended(ended, processes[rank])
    finally:  # what the others have done stands; they need not go on after an error
        for process in processes:
            process.terminate()
            process.join()


def _check_ended(pipe: Any, process: Any) -> None:
    """Raise what a worker ended with, if it did not end well."""
    try:
        error = pipe.recv()
    except EOFError:
        process.join()
        raise InputError(
            f"a worker process was killed (exit code {process.exitcode}), perhaps for want of "
            "memory; what is done stands: run the same command again, with fewer --workers if it "
            "happens again"
        ) from None
    if error is not None:
        raise error


def _work(executor: Any, rank: int, how: Execution, pipe: Any) -> None:
    """One worker process: its task, then None or the error through the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is interrupted too, and ends this
    try:
        _begin_worker(rank, how)
        run_task(executor, rank)
    except InputError as error:
        pipe.send(InputError(str(error)))
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:
            pipe.send(OSError(error.errno, error.strerror, error.filename))
        else:  # not every exception can be sent as it is, its words can
            pipe.send(RuntimeError(traceback.format_exc()))
    else:
        pipe.send(None)


def _begin_worker(rank: int, how: Execution) -> None:
    """Give a local worker its GPU and its share of the cores; let it end with its parent."""
    from multiprocessing import parent_process

    import torch

    cards = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(
        map(str, range(torch.cuda.device_count()))
    )
    if cards and how.share_gpus:  # read when CUDA starts, which is when the model is loaded
        os.environ["CUDA_VISIBLE_DEVICES"] = cards.split(",")[rank % len(cards.split(","))]
    torch.set_num_threads(max(1, min(torch.get_num_threads(), _cores() // how.workers)))
    parent = parent_process()
    if parent is not None:

        def end_with(other: Any) -> None:
            other.join()
            os._exit(1)

        threading.Thread(target=end_with, args=(parent,), daemon=True).start()
    silence()


def _cores() -> int:
    usable = getattr(os, "sched_getaffinity", None)
    return len(usable(0)) if usable else os.cpu_count() or 1
