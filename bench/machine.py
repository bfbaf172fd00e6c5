"""What a benchmark ran on, and how it tells its figures."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from argparse import Namespace
from collections.abc import Collection, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from headscope.heads.store import installed_version


def machine(device: str) -> dict[str, Any]:
    """What the figures were measured on; ``load_before`` tells who else was busy."""
    names = [
        line.split(":", 1)[1].strip()
        for line in _text(Path("/proc/cpuinfo")).splitlines()
        if line.startswith("model name")
    ]
    gpu = None
    if device.startswith("cuda"):
        found = torch.cuda.get_device_properties(torch.device(device))
        gpu = {"name": found.name, "bytes": found.total_memory, "cuda": torch.version.cuda}
    usable = getattr(os, "sched_getaffinity", None)
    return {
        "cpu": names[0] if names else platform.processor(),
        "cores": os.cpu_count(),
        "usable_cores": len(usable(0)) if usable else os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load_before": list(os.getloadavg()) if hasattr(os, "getloadavg") else None,
        "gpu": gpu,
        "platform": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": version("transformers"),
        "headscope": installed_version(),
        "commit": _git("rev-parse", "HEAD"),
        "changed_since_commit": bool(_git("status", "--porcelain", "--", ":/src")),
    }


def asked(given: Namespace) -> dict[str, Any]:
    """The options of a command, without folders of a machine, and without where results go."""

    def named(value: Any) -> Any:
        if isinstance(value, list):
            return [named(item) for item in value]
        if not isinstance(value, str | Path):
            return value
        language, same, place = str(value).rpartition("=")
        return language + same + Path(place).name

    return {
        name: named(value) for name, value in vars(given).items() if name not in ("runs", "out")
    }


def tell(result: dict[str, Any], out: Path | None) -> None:
    """Print figures as JSON, and write them to `out` if that is given."""
    print(json.dumps(result, indent=1, ensure_ascii=False))
    if out:
        write(result, out)


def write(result: dict[str, Any], out: Path) -> None:
    """Write figures as JSON."""
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def table(result: Mapping[str, Any], parts: Collection[str] | None = None) -> dict[str, Any]:
    """The rows of a comparison as its JSON has them, of some parts or all, and its verdict.

    Of random draws only the statistics that are tested.
    """
    tested = {row["statistic"] for row in result["tests"]}
    drawn = {condition["id"] for condition in result["conditions"] if condition["draw"] is not None}
    names = ("verdict", "cautions", "statistics", "controls", "conditions")
    return {name: result[name] for name in names} | {
        kind: [
            row
            for row in result[kind]
            if (parts is None or row["part"] in parts)
            and (row["condition"] not in drawn or row["statistic"] in tested)
        ]
        for kind in ("levels", "tests")
    }


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def _git(*words: str) -> str | None:
    """What git says of this checkout; None where there is none."""
    command = ["git", "-C", str(Path(__file__).parent), *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
