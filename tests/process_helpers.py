"""Scripts in processes of their own, without the seconds in which those would import torch.

Every process is forked from one that has imported what all of them need and has done nothing else.
"""

from __future__ import annotations

import importlib
import inspect
import json
import multiprocessing
import os
import pickle
import runpy
import signal
import socket
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import headscope.runs.kept
from headscope.runs import encode
from headscope.studies.registry import study_of

# As in conftest, which other processes do not read.
headscope.runs.kept.PLACE = None

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    ["transformers.models.llama.modeling_llama", "transformers.models.qwen3.modeling_qwen3"]
)


def killed(script: ModuleType, *arguments: object) -> None:
    """Run a script as `python script.py ARGUMENTS…` would; it must end by killing itself."""
    with tempfile.TemporaryDirectory() as folder:
        said = Path(folder) / "said"
        words = [str(script.__file__), *map(str, arguments)]
        given = (words, dict(os.environ), torch.get_num_threads(), str(said))
        process = FORKS.Process(target=_run, args=given)
        process.start()
        process.join()
        told = said.read_text("utf-8", "replace") if said.exists() else "it never began"
    assert process.exitcode == -signal.SIGKILL, f"{words} ended by {process.exitcode}: {told}"


def killed_at(
    reports: int,
    function: Callable[..., Any],
    *arguments: Any,
    titles: tuple[str, ...] = (),
    changes: Mapping[str, Any] | None = None,
) -> None:
    """Call `function(*arguments, progress)` in a process that kills itself with SIGKILL at so many
    reports of progress: those whose title begins with one of `titles`, or those of steps that are
    done. `changes`: what "module.name" is to be in that process."""
    threads = torch.get_num_threads()
    given = (reports, function, arguments, titles, changes or {}, dict(os.environ), threads)
    process = FORKS.Process(target=_until, args=given)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL, f"{function} ended by {process.exitcode}"


def run_of(command: str, *arguments: Any) -> Any:
    """Run the study of a command; unlike the study's own function this can go to a process."""
    return study_of(command).run(*arguments)


def resumed(
    command: str | Callable[..., Any],
    config: Any,
    folder: Path,
    reports: int,
    titles: tuple[str, ...] = (),
    changes: Mapping[str, Any] | None = None,
    states: bool = False,
) -> tuple[Any, dict[str, bytes]]:
    """Kill a run of a command, or of a study's function, as `killed_at`, go on with it, and hold it
    against one that nobody stopped, in `folder`/killed and `folder`/whole. What was kept stays,
    results and files are the same, and a finished run is answered without work. `states`: what is
    kept is the state of a training, which later ones replace. The result, and what was kept by
    file."""
    study = partial(run_of, command) if isinstance(command, str) else command
    killed, whole = folder / "killed", folder / "whole"
    killed_at(reports, study, config, killed, titles=titles, changes=changes)
    assert not (killed / "DONE.json").exists()
    kept = {path: path.read_bytes() for path in (killed / "parts").rglob("*") if path.is_file()}
    assert kept
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (changes or {}).items():
            module, _, attribute = name.rpartition(".")
            patch.setattr(importlib.import_module(module), attribute, value)
        reported: list[list[str]] = [[], []]
        results = [
            study(config, out, lambda title, *_, calls=calls: calls.append(title))
            for out, calls in zip((killed, whole), reported, strict=True)
        ]
        assert len(reported[0]) <= len(reported[1])
        again = study(config, killed, lambda *_: pytest.fail("a finished run was computed again"))
    assert len({json.dumps(_steady(one), sort_keys=True) for one in (*results, again)}) == 1
    for path, data in kept.items():  # records are appended, arrays are not written again
        assert states or path.read_bytes().startswith(data)
    one, other = (
        {str(p.relative_to(out)): p.read_bytes() for end in ("jsonl", "safetensors")
         for p in out.rglob(f"*.{end}")} for out in (killed, whole)
    )  # fmt: skip
    assert one == other
    return results[0], {str(path.relative_to(killed / "parts")): kept[path] for path in kept}


def _steady(result: Any) -> dict[str, Any]:
    return {**encode(result), "run": None, "seconds": None}


def _until(
    reports: int,
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    titles: tuple[str, ...],
    changes: Mapping[str, Any],
    environment: dict[str, str],
    threads: int,
) -> None:
    os.environ.update(environment)
    torch.set_num_threads(threads)
    for path, value in changes.items():
        module, _, name = path.rpartition(".")
        setattr(importlib.import_module(module), name, value)
    counted = 0

    def progress(title: str, done: int, total: int) -> None:
        nonlocal counted
        counted += title.startswith(titles) if titles else done == total
        if counted == reports:
            os.kill(os.getpid(), signal.SIGKILL)

    function(*arguments, progress)


def _run(words: list[str], environment: dict[str, str], threads: int, said: str) -> None:
    file = os.open(said, os.O_WRONLY | os.O_CREAT)
    for stream in (1, 2):
        os.dup2(file, stream)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = words
    torch.set_num_threads(threads)
    runpy.run_path(words[0], run_name="__main__")


def together(function: Callable[..., Any], *arguments: Any, processes: int = 2) -> list[Any]:
    """What `function(*arguments)` gives in each of the processes that `torchrun` would start."""
    with socket.socket() as free, tempfile.TemporaryDirectory() as folder:
        free.bind(("127.0.0.1", 0))
        shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
        free.close()
        started = []
        for rank in range(processes):
            own = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(processes)}
            given = ({**os.environ, **shared, **own}, Path(folder) / own["RANK"])
            # By its file, since a test's module has no name that another process knows.
            place = (inspect.getfile(function), function.__name__)
            started.append(FORKS.Process(target=_as_one, args=(*given, *place, arguments)))
            started[-1].start()
        for process in started:
            process.join()
        made = [pickle.loads((Path(folder) / str(at)).read_bytes()) for at in range(processes)]
    assert not any(process.exitcode for process in started), "\n".join(map(str, made))
    return made


def _as_one(environment: dict[str, str], kept: Path, file: str, name: str, arguments: Any) -> None:
    os.environ.update(environment)
    torch.set_num_threads(1)
    try:
        function = runpy.run_path(file)[name]
        kept.write_bytes(pickle.dumps(function(*arguments)))
    except BaseException:
        kept.write_bytes(pickle.dumps(traceback.format_exc()))
        os._exit(1)  # the others wait for this one
