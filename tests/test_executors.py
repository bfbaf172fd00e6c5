"""Workers on this machine, on Slurm and on Ray do the same; one that dies loses nothing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("datatrove", reason="datatrove, the engine for corpora, is not installed")

import fake_slurm
import process_helpers
from executor_steps import WriteNumbers
from headscope import executors
from headscope.errors import InputError
from headscope.executors import (
    ClusterOptions,
    Execution,
    Launched,
    execute,
    read_cluster_options,
)
from lm_helpers import saved

SLURM = ClusterOptions(partition="cpu", time="1:00:00")


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the steps write; workers find the steps, and torch takes one thread."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    (folder := tmp_path / "out").mkdir()
    return folder


def numbers(out: Path) -> list[str]:
    return sorted(one.read_text() for one in out.iterdir() if one.name.isdigit())


def complete(out: Path, number: int) -> bool:
    return numbers(out) == sorted(str(one) for one in range(number))


# ---- this machine --------------------------------------------------------------------------------
def test_one_worker_is_this_process_and_is_watched(out: Path, tmp_path: Path) -> None:
    seen: list[int] = []
    step = WriteNumbers(out, 60)
    logs = tmp_path / "logs"
    assert execute([step], Execution(), logs, lambda: seen.append(len(numbers(out)))) is None
    assert complete(out, 60) and seen[-1] == 60 and seen == sorted(seen)
    # datatrove's marker says that the task ran; what is missing is done all the same.
    assert (logs / "completions" / "00000").exists()
    (out / "007").unlink()
    execute([step], Execution(), logs)
    assert complete(out, 60)


def test_a_killed_local_worker_is_told_and_the_same_call_goes_on(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Workers that need not import torch again; what they are given is pickled all the same.
    monkeypatch.setattr("multiprocessing.get_context", lambda way: process_helpers.FORKS)
    step, two = WriteNumbers(out, 20, dies=9), Execution(workers=2)
    with pytest.raises(InputError, match=r"killed \(exit code -9\).*run the same command again"):
        execute([step], two, tmp_path / "logs")
    assert (out / "007").exists() and not (out / "009").exists()
    with pytest.raises(InputError, match=r"^11 cannot be written; take another$"):
        execute([WriteNumbers(out, 20, fails=11)], two, tmp_path / "logs")
    execute([step], Execution(), tmp_path / "logs")
    assert complete(out, 20)


@pytest.mark.parametrize(
    ("given", "share", "found"),
    [(None, True, "1"), ("7,GPU-b,9", True, "GPU-b"), ("5", True, "5"), ("5,6", False, "5,6")],
)
def test_each_local_worker_sees_one_gpu(
    monkeypatch: pytest.MonkeyPatch, given: str | None, share: bool, found: str
) -> None:
    # Which one it sees is settled before CUDA starts; no GPU is needed to see that it is.
    monkeypatch.setattr("torch.cuda.device_count", lambda: 4)
    monkeypatch.setattr("torch.set_num_threads", lambda number: None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given or "")
    executors._begin_worker(1, Execution(workers=4, share_gpus=share))
    assert os.environ["CUDA_VISIBLE_DEVICES"] == found


# ---- Ray -----------------------------------------------------------------------------------------
def test_ray_with_a_worker_killed_half_way_ends_complete(
    out: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ray = pytest.importorskip("ray", reason="ray is not installed")
    execute([WriteNumbers(out, 20, dies=9)], Execution("ray", 2), tmp_path / "logs")
    assert complete(out, 20) and int((out / "died").read_text()) != os.getpid()
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0" and not ray.is_initialized()
    assert not capfd.readouterr().out  # Ray tells of the death, but not there


# ---- Slurm ---------------------------------------------------------------------------------------
def test_slurm_tasks_are_fresh_processes_and_the_same_command_adds_up(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Callable[..., Any]
) -> None:
    kept = fake_slurm.install(tmp_path, monkeypatch)
    model = saved(tmp_path / "model")
    texts = "".join(f'{{"text": "a dog and {one} cats", "id": {one}}}\n' for one in range(12))
    (tmp_path / "d.jsonl").write_text(texts)
    (tmp_path / "options.toml").write_text(
        'partition = "gpu"\ntime = "2:00:00"\ncpus = 3\ngpus = 1\nsetup = "export MARK=1"\n'
        '[sbatch]\naccount = "us"\n'
    )
    rate = ("use", "rate", "--model", model, "--data", tmp_path / "d.jsonl", "--heads", "0.1",
            "--chunk", 4)  # fmt: skip
    slurm = ("--executor", "slurm", "--executor-options", tmp_path / "options.toml")

    (kept / "busy").touch()  # submitted, and waiting in the queue
    assert "4242" in (first := command(*rate, *slurm, "--out", tmp_path / "run")).out, first.err
    assert len(list(kept.glob("script.*"))) == 2  # the array and datatrove's own sum
    assert not (tmp_path / "run" / "DONE.json").exists()
    (kept / "busy").unlink()  # it was thrown out of the queue without having done anything

    assert "4242" in command(*rate, *slurm, "--out", tmp_path / "run").out
    script = (kept / "script.2").read_text()
    asked = dict(re.findall(r"^#SBATCH --(\S+?)=(\S+)$", script, re.MULTILINE))
    assert {"partition": "gpu", "time": "2:00:00", "cpus-per-task": "3", "gpus": "1",
            "account": "us", "array": "0-0"}.items() <= asked.items()  # fmt: skip
    assert "qos" not in asked and "mail-type" not in asked
    assert f'export PATH="{Path(sys.executable).parent}:$PATH"' in script
    assert "export OMP_NUM_THREADS=3\nexport MARK=1\n" in script
    assert "srun" in script and "launch_pickled_pipeline" in script
    assert len(list((tmp_path / "run" / "documents").iterdir())) == 3, (kept / "said").read_text()

    # All chunks stand: nothing is submitted, the command finishes the run.
    done = command(*rate, *slurm, "--out", tmp_path / "run", "--json")
    assert done.code == 0 and '"documents": 12' in done.out
    assert len(list(kept.glob("script.*"))) == 4
    assert command(*rate, "--out", tmp_path / "here").code == 0
    for name in ("documents/d-000001.jsonl", "rejects.jsonl"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "here" / name).read_bytes()


def test_what_slurm_lacks_or_refuses_is_told(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, logs = [WriteNumbers(out, 3)], tmp_path / "logs"
    with pytest.raises(InputError, match=r"needs partition = 'cpu' or the like"):
        execute(step, Execution("slurm", cluster=ClusterOptions(time="1:00:00")), logs)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match=r"needs the program sbatch"):
        execute(step, Execution("slurm", cluster=SLURM), logs)
    monkeypatch.undo()
    fake_slurm.install(tmp_path, monkeypatch)
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "3")
    with pytest.raises(InputError, match=r"is a task of a Slurm array"):
        execute(step, Execution("slurm", cluster=SLURM), logs)
    monkeypatch.delenv("SLURM_ARRAY_TASK_ID")
    with pytest.raises(InputError, match=r"white space"):
        execute(step, Execution("slurm", cluster=SLURM), tmp_path / "my logs")
    (tmp_path / "bin" / "sbatch").write_text("#!/bin/bash\necho no such partition; exit 3\n")
    with pytest.raises(InputError, match=r"status 3 \(no such partition\)"):
        execute(step, Execution("slurm", cluster=SLURM), logs)
    assert not (logs / "slurm_job").exists()
    (tmp_path / "bin" / "sbatch").write_text("#!/bin/bash\necho Submitted batch job 7\n")
    (tmp_path / "bin" / "squeue").write_text("#!/bin/bash\necho 7 pending\n")
    first = execute(step, Execution("slurm", 5, SLURM), logs)
    assert first == Launched("7", logs / "slurm_logs", new=True)
    second = execute(step, Execution("slurm", 5, SLURM), logs)
    assert second == Launched("7", logs / "slurm_logs", new=False)


# ---- what is asked for ---------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cpu = 3", r"cpu is no executor option; did you mean cpus\? There are: cpus, gpus"),
        ("cpus = 0", r"cpus = 0 is not a whole number, at least 1"),
        ("gpus = true", r"gpus = True is not a whole number, at least 0"),
        ("time = 10", r"time = 10 is not words in quotation marks"),
        ("sbatch = 1", r"sbatch = 1 is not a table"),
        ('[sbatch]\naccount = "a\\nb"', r"sbatch = .* is not a table of words and numbers"),
        ("cpus 3", r"is not TOML \("),
    ],
)
def test_options_that_cannot_be_are_named(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "options.toml"
    file.write_text(text)
    with pytest.raises(InputError, match=f"options.toml: {said}"):
        read_cluster_options(file)


def test_options_are_read_as_they_stand(tmp_path: Path) -> None:
    file = tmp_path / "options.toml"
    file.write_text('gpus = 0\nmemory_gb = 8\nqos = "long"\n[sbatch]\nnice = 100\n')
    assert read_cluster_options(file) == ClusterOptions(
        gpus=0, memory_gb=8, qos="long", sbatch={"nice": 100}
    )
    with pytest.raises(InputError, match="cannot be read"):
        read_cluster_options(tmp_path / "none.toml")


def test_a_script_without_a_guard_is_told_of_it(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from pathlib import Path\n"
        "from headscope.executors import Execution, execute\n"
        "execute([print], Execution(workers=2), Path('logs').resolve())\n"
    )
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "ended before its work began (exit code 1)" in done.stderr
    assert "for want of memory" not in done.stderr
