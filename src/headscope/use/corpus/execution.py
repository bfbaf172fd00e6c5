"""How many workers there are, where they run, and what each gets on a cluster."""

from __future__ import annotations

import dataclasses
import difflib
import os
import shutil
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from headscope.errors import InputError, MissingExtra
from headscope.settings import Option, Settings


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
    try:
        values = tomllib.loads(Path(path).read_text("utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); name a TOML file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: is not TOML ({error}); write lines like cpus = 4") from error
    known = [option.name for option in dataclasses.fields(ClusterOptions)]
    for name, value in values.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise InputError(
                f"{path}: {name} is no executor option; {hint}There are: {', '.join(known)}"
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
        """InputError if workers cannot run there, before anything is loaded."""
        if self.executor == "ray":
            import_ray()
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


def import_ray() -> Any:
    # Ray reports its use to its makers unless told not to; who wants that can set it.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        raise MissingExtra.needed("the Ray executor", "ray", "ray") from error
    return ray
