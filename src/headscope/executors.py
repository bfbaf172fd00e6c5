"""Where the steps of a datatrove pipeline run: in this process, in several, on Slurm, on Ray.

The work is cut into as many tasks as there are workers. A task does its share of the units (chunks
of a corpus, parts of a run) and leaves out those that are kept already, so whatever ends early is
continued by running the same thing again. datatrove's own completion markers are not used: they say
that a task ran once, not that its files are there.

datatrove makes the executors, runs each task (`_run_for_rank`), keeps its log and statistics and
submits to Slurm. Only the loops that wait for local processes and for Ray are our own: datatrove's
wait for ever when a worker is killed.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import threading
import tomllib
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from headscope.errors import (
    InputError,
    OptionalPart,
    check_parts,
    nearest,
    need,
    refuse_pipes,
)
from headscope.settings import Option, Settings

RETRIES = 3
"""How often Ray begins a task again whose worker died."""
JOB = "slurm_job"
"""The file beside the logs that names the last job submitted to Slurm."""


@dataclass(frozen=True)
class ClusterOptions:
    """What each worker gets on a cluster; the fields are the names in the file.

    `cpus`, `gpus` and `memory_gb` (GiB a CPU; None: 4 with Slurm, not requested with Ray) are for
    Slurm and Ray. The rest is for Slurm alone: `partition` and `time` (as `12:00:00`) are needed,
    `qos` may be, `setup` is a line of shell run before the work, such as `module load cuda`,
    `max_array_size` is the cluster's limit of tasks in an array, and the table `sbatch` holds any
    further options by their long names, as `account = "nlp"`.
    """

    cpus: int = 1
    gpus: int = 0
    memory_gb: int | None = None
    partition: str | None = None
    time: str | None = None
    qos: str | None = None
    setup: str | None = None
    max_array_size: int = 1001
    sbatch: Mapping[str, str | int] = field(default_factory=dict)


def read_cluster_options(path: str | Path) -> ClusterOptions:
    """The options in a TOML file; InputError naming what is wrong there."""
    refuse_pipes(path)
    try:
        values = tomllib.loads(Path(path).read_text("utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); name a TOML file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: is not TOML ({error}); write lines like cpus = 4") from error
    known = [option.name for option in dataclasses.fields(ClusterOptions)]
    for name, value in values.items():
        if name not in known:
            raise InputError(
                f"{path}: {name} is no executor option; {nearest(name, known)}There are: "
                f"{', '.join(known)}"
            )
        wanted, fits = _check(name, value)
        if not fits:
            raise InputError(f"{path}: {name} = {value!r} is not {wanted}")
    return ClusterOptions(**values)


def _check(name: str, value: Any) -> tuple[str, bool]:
    """What an option has to be, and whether it is."""
    if name == "sbatch":
        return "a table of words and numbers", isinstance(value, dict) and all(
            isinstance(entry, (str, int)) and "\n" not in str(entry) for entry in value.values()
        )
    if name in ("cpus", "gpus", "memory_gb", "max_array_size"):
        least = 0 if name == "gpus" else 1
        whole = isinstance(value, int) and not isinstance(value, bool)
        return f"a whole number, at least {least}", whole and value >= least
    return "words in quotation marks", isinstance(value, str) and bool(value.strip())


@dataclass(frozen=True)
class Execution(Settings):
    """How many workers, and where they run. None of it changes what is computed.

    `workers` is the number of processes (local, Ray) or array tasks (Slurm). Each loads the model
    once. Several local workers share the cores evenly and, unless `share_gpus` is off (since a
    device was named, or the model is spread over several), each sees one of the GPUs there are.
    """

    executor: Annotated[
        Literal["local", "slurm", "ray"], Option("Where workers run.", panel="Expert")
    ] = "local"
    workers: Annotated[int, Option("Processes that share the work.", min=1, panel="Running")] = 1
    cluster: Annotated[
        ClusterOptions,
        Option(
            "TOML file: what a worker gets on a cluster, such as partition, time, cpus, gpus.",
            flag="--executor-options",
            metavar="FILE",
            typed=Path,
            read=read_cluster_options,
            panel="Expert",
        ),
    ] = field(default_factory=ClusterOptions)
    share_gpus: bool = True

    @property
    def elsewhere(self) -> bool:
        """Whether other processes than this one work."""
        return self.executor != "local" or self.workers > 1

    def parts(self) -> Iterator[OptionalPart]:
        """What the workers run on."""
        if self.elsewhere:
            yield WORKERS
        if self.executor == "ray":
            yield RAY

    def check(self) -> None:
        """InputError if workers cannot run there, before anything is loaded."""
        check_parts(self.parts())
        if self.executor != "slurm":
            return
        for name, example in (("partition", "cpu"), ("time", "12:00:00")):
            if not getattr(self.cluster, name):
                raise InputError(
                    f"the Slurm executor needs {name} = {example!r} or the like; write it into a "
                    "file and name that with --executor-options"
                )
        if shutil.which("sbatch") is None:
            raise InputError(
                "the Slurm executor needs the program sbatch, which is not on the path; run it "
                "on a login node of the cluster, or take --executor local"
            )
        if "SLURM_ARRAY_TASK_ID" in os.environ:  # datatrove would take this for a task of its own
            raise InputError(
                "this is a task of a Slurm array, from which no jobs are submitted; run the "
                "command on a login node, or take --executor local"
            )


WORKERS = OptionalPart("work in several processes", "corpus", ("datatrove",))
RAY = OptionalPart("the Ray executor", "ray", ("ray",))


def import_ray() -> Any:
    # Ray reports its use to its makers unless told not to; who wants that can set it.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    return need("ray", RAY.purpose, RAY.extra)


@dataclass(frozen=True)
class Launched:
    """What is left to others: the Slurm job that works on, and where it writes its logs.

    `new` is False if the job had been submitted before and has not ended.
    """

    job: str
    logs: Path
    new: bool


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
    one for a worker that was killed: what is done stands, and the same call goes on.
    """
    how.check()
    if how.executor == "slurm":
        return _submit(pipeline, how, logs)
    run = _run_ray if how.executor == "ray" else _run_local
    with _watched(watch), _quiet():
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


@contextmanager
def _quiet() -> Iterator[None]:
    """datatrove says nothing on stderr while the block runs; errors come as exceptions."""
    from loguru import logger

    logger.disable("datatrove")
    try:
        yield
    finally:
        logger.enable("datatrove")


def _run_task(executor: Any, rank: int) -> None:
    """One task of a datatrove executor in this process, its log beside the others.

    (Ray's executor would write the log to a folder that all users of a machine share.)
    """
    from datatrove.executor.base import PipelineExecutor

    PipelineExecutor._run_for_rank(executor, rank, local_rank=1)


# ---- this machine --------------------------------------------------------------------------------
def _run_local(pipeline: Sequence[Any], how: Execution, logs: Path) -> None:
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
        _run_task(executor, 0)
        return
    spawn = get_context("spawn")
    waiting: dict[Any, Any] = {}
    processes = []
    try:
        for rank in range(how.workers):
            ours, theirs = spawn.Pipe(duplex=False)
            process = spawn.Process(target=_work, args=(executor, rank, how, theirs), daemon=True)
            with _uninterrupted():
                process.start()
            theirs.close()  # so that the pipe ends when the worker does
            waiting[ours] = process
            processes.append(process)
        while waiting:
            for pipe in wait(list(waiting)):
                _check_ended(pipe, waiting.pop(pipe))
    finally:  # what the others have done stands; they need not go on after an error
        for process in processes:
            process.terminate()
            process.join()


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Processes that are started inside the block ignore interrupts from their first step on."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _check_ended(pipe: Any, process: Any) -> None:
    try:
        error = pipe.recv()
    except EOFError:
        process.join()
        if process.exitcode is not None and process.exitcode >= 0:
            raise InputError(
                f"a worker process ended before its work began (exit code {process.exitcode}); its "
                "own error stands above. A Python script must be a file and call this below "
                'if __name__ == "__main__":, since workers import it'
            ) from None
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
        with _quiet():
            _run_task(executor, rank)
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
    usable = getattr(os, "sched_getaffinity", None)
    cores = len(usable(0)) if usable else os.cpu_count() or 1
    torch.set_num_threads(max(1, min(torch.get_num_threads(), cores // how.workers)))
    parent = parent_process()
    if parent is not None:

        def end_with(other: Any) -> None:
            other.join()
            os._exit(1)

        threading.Thread(target=end_with, args=(parent,), daemon=True).start()


# ---- Ray: a cluster named by RAY_ADDRESS, or workers of this machine -----------------------------
def _run_ray(pipeline: Sequence[Any], how: Execution, logs: Path) -> None:
    """Run a task for each worker and wait for all; a task whose worker dies is begun again.

    InputError if Ray does not start or a task's worker dies again and again, and what a task
    raises if it fails. The others are then ended.
    """
    ray = import_ray()
    from datatrove.executor.ray import RayPipelineExecutor

    want = how.cluster
    executor = RayPipelineExecutor(
        list(pipeline), tasks=how.workers, logging_dir=str(logs), skip_completed=False
    )
    # What Ray tells of its workers it prints; standard output is the command's own.
    with redirect_stdout(sys.stderr):
        started = not ray.is_initialized()
        if started:
            _start_ray(ray, how)
        options: dict[str, Any] = {
            "num_cpus": want.cpus,
            "num_gpus": want.gpus,
            "max_retries": RETRIES,
            "memory": want.memory_gb * want.cpus * 2**30 if want.memory_gb else None,
        }
        tasks: list[Any] = []
        try:
            work = ray.remote(_run_task).options(**options)
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


def _start_ray(ray: Any, how: Execution) -> None:
    # Ray lets its workers stand back behind all other programs unless told not to.
    os.environ.setdefault("RAY_worker_niceness", "0")
    # A cluster named by RAY_ADDRESS has its own resources; one of our own gets what it needs.
    own = not os.environ.get("RAY_ADDRESS")
    size = {"num_cpus": how.workers * how.cluster.cpus} if own else {}
    try:
        ray.init(include_dashboard=False, log_to_driver=False, configure_logging=False, **size)
    except Exception as error:  # Ray raises Exception itself when it takes too long to start
        said = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(
            f"Ray did not start ({said}); run the same command again, or take --executor local"
        ) from error


# ---- Slurm: an array of tasks, which go on when this process has ended ---------------------------
def _submit(pipeline: Sequence[Any], how: Execution, logs: Path) -> Launched:
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
    note, slurm_logs = logs / JOB, logs / "slurm_logs"
    if note.exists() and _in_queue(job := note.read_text("utf-8").strip()):
        return Launched(job, slurm_logs, new=False)
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
        job_name="headscope",
        qos=want.qos,
        env_command="\n".join(line for line in setup if line),
        sbatch_args=dict(want.sbatch),
        max_array_size=want.max_array_size,
        logging_dir=str(logs),
        slurm_logs_folder=str(slurm_logs),
        skip_completed=False,
    )
    with _quiet():
        try:
            executor.run()
        except subprocess.CalledProcessError as error:
            said = (error.output or b"").decode("utf-8", "replace").strip()
            raise InputError(
                f"sbatch ended with status {error.returncode} ({said or 'see above'}); put the "
                f"executor options right; the script is {logs / 'launch_script.slurm'}"
            ) from error
    note.write_text(f"{executor.job_id}\n", "utf-8")
    return Launched(str(executor.job_id), slurm_logs, new=True)


def _in_queue(job: str) -> bool:
    """Whether Slurm still has tasks of the job; a job long ended is unknown to it."""
    try:
        said = subprocess.run(
            ["squeue", "--noheader", "--jobs", job], capture_output=True, text=True, check=False
        )
    except OSError:  # no squeue: nobody can tell, and units may be made twice but not doubled
        return False
    return said.returncode == 0 and bool(said.stdout.strip())
