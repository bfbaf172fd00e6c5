"""Stands in for a Slurm cluster: programs that run the tasks of a submitted array here, at once."""

from __future__ import annotations

from pathlib import Path

import pytest

PROGRAMS = {
    # Runs every task of the array before it tells the job's number, as a real one never would;
    # a job that waits for another is only counted.
    "sbatch": """
cp "${@: -1}" "$FAKE_SLURM/script.$(ls "$FAKE_SLURM" | grep -c script)"
for word in "$@"; do case $word in --export=ALL,*) export "${word#--export=ALL,}";; esac; done
if ! grep -q "#SBATCH --dependency" "${@: -1}" && [ ! -e "$FAKE_SLURM/busy" ]; then
  last=$(sed -n 's/^#SBATCH --array=0-\\([0-9]*\\).*/\\1/p' "${@: -1}")
  for task in $(seq 0 "$last"); do
    SLURM_ARRAY_TASK_ID=$task SLURM_NODELIST=here bash "${@: -1}" >>"$FAKE_SLURM/said" 2>&1
  done
fi
echo "Submitted batch job 4242"
""",
    "srun": 'while [[ $1 == -* ]]; do [[ $1 == -n ]] && shift; shift; done\nexec "$@"',
    "scontrol": "echo localhost",
    "squeue": '[ -e "$FAKE_SLURM/busy" ] && echo "4242 cpu RUNNING" || exit 1',
}


def install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put the programs first on the path; the folder where they keep scripts and what was said.

    While a file `busy` is in it, submitted jobs stay in the queue and do nothing.
    """
    programs, kept = folder / "bin", folder / "slurm"
    programs.mkdir()
    kept.mkdir()
    for name, script in PROGRAMS.items():
        file = programs / name
        file.write_text(f"#!/bin/bash\n{script}\n")
        file.chmod(0o755)
    monkeypatch.setenv("FAKE_SLURM", str(kept))
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    return kept
