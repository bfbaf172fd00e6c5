"""How many workers there are and where they run, and one task of theirs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from headscope.errors import InputError, MissingExtra
from headscope.settings import Option, Settings
from headscope.use.corpus.cluster import ClusterOptions, read_cluster_options


@dataclass(frozen=True)
class Execution(Settings):
    """How many workers, and where they run. None of it changes what is computed.

    `workers` is the number of processes (local, Ray) or array tasks (Slurm). Each loads the model
    once. Several local workers share the cores evenly and, unless `share_gpus` is off (since a
    device was named, or the model is spread over several), each sees one of the GPUs there are.
    """

    executor: Annotated[Literal["local", "slurm", "ray"], Option("Where workers run.")] = "local"
    workers: Annotated[int, Option("Processes that rate; each loads the model once.", min=1)] = 1
    cluster: Annotated[
        ClusterOptions,
        Option(
            "TOML file: what a worker gets on a cluster, such as partition, time, cpus, gpus.",
            flag="--executor-options",
            metavar="FILE",
            typed=Path,
            read=read_cluster_options,
        ),
    ] = field(default_factory=ClusterOptions)
    share_gpus: bool = True

    def check(self) -> None:
        """InputError if this cannot be: said before anything is loaded."""
        if self.executor == "slurm":
            self.cluster.check_slurm()
            if shutil.which("sbatch") is None:
                raise InputError(
                    "the Slurm executor needs the program sbatch, which is not on the path; run it "
                    "on a login node of the cluster, or take --executor local"
                )
            if "SLURM_ARRAY_TASK_ID" in os.environ:  # datatrove would take this for a task of its
                raise InputError(
                    "this is a task of a Slurm array, from which no jobs are submitted; run the "
                    "command on a login node, or take --executor local"
                )
        if self.executor == "ray":
            import_ray()


@dataclass(frozen=True)
class Launched:
    """What is left to others: the Slurm job that works on, and where it writes its logs.

    `new` is False if the job had been submitted before and has not ended.
    """

    job: str
    logs: Path
    new: bool


def run_task(executor: Any, rank: int) -> None:
    """One task of a datatrove executor in this process, its log beside the others.

    (Ray's executor would write the log to a folder that all users of a machine share.)
    """
    from datatrove.executor.base import PipelineExecutor

    PipelineExecutor._run_for_rank(executor, rank, local_rank=1)


def import_ray() -> Any:
    # Ray reports its use to its makers unless told not to; who wants that can set it.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        raise MissingExtra.needed("the Ray executor", "ray", "ray") from error
    return ray


@contextmanager
def quiet() -> Iterator[None]:
    """datatrove says nothing on stderr while the block runs; errors come as exceptions."""
    from loguru import logger

    silence()
    try:
        yield
    finally:
        logger.enable("datatrove")


def silence() -> None:
    from loguru import logger

    logger.disable("datatrove")
