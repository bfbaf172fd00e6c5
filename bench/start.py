"""What the start with a GGUF file costs: weights alone, and a second command's first result.

    python bench/start.py MODEL.gguf --dtype float32 --data en-es.tsv --pair en-es --out FILE

Each way runs in a process of its own, in turn, `--repeats` times: `transformers` loads the model
with nothing else, headscope loads it without its self-check, and `find translation-score` scores
`--limit` pairs with the verdict of the self-check kept from a run before; with --kept the last two
once more, from a kept conversion (`headscope cache`). Told are process CPU seconds, and the largest
resident set (VmHWM) beside that before the weights were read and the bytes of the parameters. With
--out a bench that was broken off goes on, and other models and dtypes are written beside.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from machine import machine, tell
from timing import moment, say, spread

_PEAK = """
import json, resource, sys
def peak():
    lines = open("/proc/self/status").read().split("\\n")
    return 1024 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])
def end(**more):
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = used.ru_utime + used.ru_stime
    print(json.dumps({"cpu_seconds": seconds, "peak": peak(), **more}))
import torch, transformers
from transformers import AutoModelForCausalLM, GgufConfig
"""
_WEIGHTS = "sum(one.nbytes for one in model.parameters())"
WAYS = {
    "transformers": f"""
before = peak()
model = AutoModelForCausalLM.from_pretrained({{folder!r}}, gguf_file={{file!r}},
    dtype=torch.{{dtype}}, quantization_config=GgufConfig(dequantize=True))
end(before=before, weights={_WEIGHTS})
""",
    "headscope": f"""
import headscope
from headscope.lm import load
before = peak()
model = load({{path!r}}, dtype={{dtype!r}}, check="never").model
end(before=before, weights={_WEIGHTS})
""",
    "find": """
from headscope.cli import main
from contextlib import redirect_stdout
import io
with redirect_stdout(io.StringIO()):
    code = main({command!r})
assert code == 0
end()
""",
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--data", required=True)
    parser.add_argument("--pair", required=True)
    parser.add_argument("--limit", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--kept", action="store_true", help="also with a kept conversion")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    known = json.loads(given.out.read_text()) if given.out and given.out.is_file() else {}
    named = f"{given.model.name} {given.dtype}"
    runs: dict[str, list[dict[str, Any]]] = known.get("models", {}).get(named, {}).get("runs", {})

    def told(finished: dict[str, Any]) -> None:
        measured = {"runs": runs, **finished, "measured": moment()}
        models = {**known.get("models", {}), named: measured}
        tell({"machine": machine("cpu"), "models": models}, given.out)

    way = ["find", "translation-score", "--model", str(given.model), "--pair", given.pair]
    way += ["--data", given.data, "--limit", str(given.limit), "--dtype", given.dtype]
    cache = ["cache", str(given.model), "--dtype", given.dtype]
    with tempfile.TemporaryDirectory() as folder:
        fields = {"folder": str(given.model.parent), "file": given.model.name}
        fields |= {"path": str(given.model), "dtype": given.dtype}

        def run(name: str, at: int) -> dict[str, Any]:
            command = [*way, "--out", f"{folder}/{name}-{at}"]
            return measured(WAYS[name].format(**fields, command=command))

        if not all(len(runs.get(name, ())) == given.repeats for name in WAYS):
            run("find", -1)  # the model proves itself
        for at in range(given.repeats):
            for name in WAYS:
                if len(runs.setdefault(name, [])) <= at:
                    runs[name].append(run(name, at))
                    say(f"{named} {name}: {runs[name][-1]}")
                    told({})
        if given.kept:
            measured(WAYS["find"].format(command=cache))
            for at in range(given.repeats):
                for name in ("headscope", "find"):
                    if len(runs.setdefault(f"{name}, kept", [])) <= at:
                        runs[f"{name}, kept"].append(run(name, given.repeats + at))
                        say(f"{named} {name}, kept: {runs[f'{name}, kept'][-1]}")
                        told({})
    spreads = {
        name: {
            what: spread([run_row[what] for run_row in run_rows])
            for what in ("cpu_seconds", "peak", "before", "weights")
            if what in run_rows[0]
        }
        for name, run_rows in runs.items()
    }
    beyond = {
        name: run_row["peak"]["median"] - run_row["before"]["median"] - run_row["weights"]["median"]
        for name, run_row in spreads.items()
        if "weights" in run_row
    }
    second = (
        spreads["find"]["cpu_seconds"]["median"] - spreads["transformers"]["cpu_seconds"]["median"]
    )
    told(
        {
            "command": " ".join(["headscope", *way]),
            "ways": spreads,
            "peak_beyond_weights": beyond,
            "second_command_minus_transformers": second,
        }
    )


def measured(code: str) -> dict[str, Any]:
    """What a process of this code says at its end."""
    done = subprocess.run(
        [sys.executable, "-c", _PEAK + code], capture_output=True, text=True, env=os.environ
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout.strip().split("\n")[-1])
    return found


if __name__ == "__main__":
    main()
