"""What a worker asks a cluster for, from a small TOML file."""

from __future__ import annotations

import dataclasses
import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headscope.errors import InputError


@dataclass(frozen=True)
class ClusterOptions:
    """What each worker gets on a cluster; the fields are the names in the file.

    `cpus`, `gpus` and `memory_gb` (GiB a CPU; None: 4 with Slurm, not asked for with Ray) are for
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

    def check_slurm(self) -> None:
        """InputError unless what Slurm cannot do without is there."""
        for name, example in (("partition", "cpu"), ("time", "12:00:00")):
            if not getattr(self, name):
                raise InputError(
                    f"the Slurm executor needs {name} = {example!r} or the like; write it into a "
                    "file and name that with --executor-options"
                )


def read_cluster_options(path: str | Path) -> ClusterOptions:
    """The options in a TOML file; InputError naming what is wrong there."""
    try:
        found = tomllib.loads(Path(path).read_text("utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); name a TOML file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: is not TOML ({error}); write lines like cpus = 4") from error
    known = {one.name: one for one in dataclasses.fields(ClusterOptions)}
    for name, value in found.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise InputError(
                f"{path}: {name} is no executor option; {hint}There are: {', '.join(known)}"
            )
        _check(path, name, value)
    return ClusterOptions(**found)


def _check(path: str | Path, name: str, value: Any) -> None:
    """InputError if an option is not of its kind."""
    if name == "sbatch":
        wanted, right = "a table of words and numbers", _plain_table(value)
    elif name in ("cpus", "gpus", "memory_gb", "max_array_size"):
        least = 0 if name == "gpus" else 1
        wanted = f"a whole number, at least {least}"
        right = isinstance(value, int) and not isinstance(value, bool) and value >= least
    else:
        wanted, right = "words in quotation marks", isinstance(value, str) and bool(value.strip())
    if not right:
        raise InputError(f"{path}: {name} = {value!r} is not {wanted}")


def _plain_table(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(one, (str, int)) and "\n" not in str(one) for one in value.values()
    )
