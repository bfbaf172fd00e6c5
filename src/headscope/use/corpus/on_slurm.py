"""A pipeline on Slurm: submitted as an array of tasks, which go on when this process has ended."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headscope.errors import InputError
from headscope.use.corpus.execution import Execution, Launched, quiet

JOB = "slurm_job"
"""The file beside the logs that names the last job submitted."""


def submit(pipeline: Sequence[Any], how: Execution, logs: Path) -> Launched:
    """Submit an array with a task for each worker, unless one submitted before has not ended.

    InputError if the folder cannot be named in a script, or if `sbatch` fails.
    """
    from datatrove.executor.slurm import SlurmPipelineExecutor

    if any(letter.isspace() for letter in str(logs)):
        raise InputError(
            f"{logs}: datatrove's Slurm scripts cannot take white space in a path; name another "
            "--out"
        )
    logs.mkdir(parents=True, exist_ok=True)
    note = logs / JOB
    if note.exists() and _in_queue(job := note.read_text("utf-8").strip()):
        return Launched(job, logs / "slurm_logs", new=False)
    want = how.cluster
    # The programs of this environment are found first, whatever kind of environment it is.
    setup = [
        f'export PATH="{Path(sys.executable).parent}:$PATH"',
        f"export OMP_NUM_THREADS={want.cpus}",
        want.setup or "",
    ]
    executor = SlurmPipelineExecutor(
        list(pipeline),
        tasks=how.workers,
        time=str(want.time),
        partition=str(want.partition),
        cpus_per_task=want.cpus,
        mem_per_cpu_gb=want.memory_gb or 4,
        gpus_per_task=want.gpus,
        job_name="headscope-rate",
        qos=want.qos,
        env_command="\n".join(line for line in setup if line),
        sbatch_args=dict(want.sbatch),
        max_array_size=want.max_array_size,
        logging_dir=str(logs),
        slurm_logs_folder=str(logs / "slurm_logs"),
        skip_completed=False,
    )
    with quiet():
        try:
            executor.run()
        except subprocess.CalledProcessError as error:
            said = (error.output or b"").decode("utf-8", "replace").strip()
            raise InputError(
                f"sbatch ended with status {error.returncode} ({said or 'see above'}); put the "
                f"executor options right; the script is {logs / 'launch_script.slurm'}"
            ) from error
    note.write_text(f"{executor.job_id}\n", "utf-8")
    return Launched(str(executor.job_id), logs / "slurm_logs", new=True)


def _in_queue(job: str) -> bool:
    """Whether Slurm still has tasks of the job; a job long ended is unknown to it."""
    try:
        said = subprocess.run(
            ["squeue", "--noheader", "--jobs", job], capture_output=True, text=True, check=False
        )
    except OSError:  # no squeue: nobody can tell, and chunks may be made twice but not doubled
        return False
    return said.returncode == 0 and bool(said.stdout.strip())
