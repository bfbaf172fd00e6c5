"""What a GPU does with headscope: its tests, memory that does not suffice, speed; JSON by part.

    python bench/gpu.py --out FOLDER                                       # one GPU of 80 GB
    python bench/gpu.py --out FOLDER --model qwen-0.5b.gguf --model qwen-1.5b.gguf
    python bench/gpu.py --out FOLDER --device cpu --shape 128k-words --dtype float32 --quick

`tests` runs `tests/test_gpu.py`. `memory` does work in one batch that does not fit into 16 GiB
beside the weights, so that it is halved, and compares what comes out with small batches. `static`
writes the texts of `removal` by each way of decoding that there is on the device (`GenerateConfig`:
plain; static shapes; on a GPU a recorded step), compares them and names the fastest. Every other
part is a job of `peers.py` at this shape with random weights, by headscope and by plain
transformers; packages take part where --venvs has them and they read the model, else the part says
why not. Each --model, a folder or a GGUF file, does the jobs and `static` too, in parts that begin
with its name, on the sentences of --data or those of the bundled model. A part takes --minutes at
most (repeats end early) and is written when it ends; one whose file is there is left as it is, so
the same command goes on where it was interrupted.

`roofline_seconds` is the time of the work's operations at the rate of this card's fastest large
matrix product, for steps of generation at least the time to read weights and cache at the rate of a
large copy; `share_of_roofline` is that over the measured seconds.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, get_args
from xml.etree import ElementTree

import numpy as np
import torch
from machine import machine, tell
from peaks_models import SHAPES
from peaks_ways import Settings, random_rows
from peers import (
    JOBS,
    ROOT,
    SIZES,
    Case,
    Model,
    Peers,
    Sizes,
    Timed,
    Translations,
    cases,
    documents,
    here,
    made_model,
    measured,
    roofline,
    shares,
)
from timing import CLOCKS, moment, say, wait

import headscope
from headscope.find.capture import capture_reference
from headscope.find.gate_gradients import gate_gradients
from headscope.lm.generation import GenerateConfig
from headscope.lm.generation.pool import Decode
from headscope.lm.losses import token_losses
from headscope.lm.model import LanguageModel
from headscope.lm.prompting import Answered
from headscope.studies.costs.estimate import Machine, Work, peak_memory
from headscope.studies.costs.measuring import measure_machine
from headscope.studies.costs.shapes import shape_of

#: Parts of a model: of one that is read, and of that with random weights; and all.
OF_FILES = (*JOBS, "static")
PARTS = ("tests", "memory", *OF_FILES)
#: Rows and their tokens in `memory`: read for losses and peaks, for gradients, and as prompts.
MEMORY = {
    "gpu": {"read": (160, 1024), "differentiated": (16, 1024), "written": (256, 512)},
    "quick": {"read": (8, 16), "differentiated": (4, 16), "written": (6, 16)},
}
MEASURES = ("losses", "peaks", "gradients", "texts")
#: New tokens of a text; bytes beside the weights that `memory` may use; rounds that shall end with
#: the same bytes.
NEW, ABOVE, ROUNDS = 4, 16 << 30, 3


def tests() -> dict[str, Any]:
    """The tests that need a GPU, by their outcome; without one all are left out."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "tests/test_gpu.py",
            f"--junitxml={report}",
        ]
        done = subprocess.run(command, cwd=ROOT, stdout=sys.stderr)
        cases = list(ElementTree.parse(report).iter("testcase"))
    kinds = {
        kind: [case.get("name") for case in cases if case.find(kind) is not None]
        for kind in ("failure", "error", "skipped")
    }
    return {
        "exit_code": done.returncode,
        "run": len(cases),
        "passed": len(cases) - sum(map(len, kinds.values())),
        **kinds,
        "seconds": {case.get("name"): float(case.get("time", 0)) for case in cases},
    }


def memory(lm: LanguageModel, sizes: dict[str, tuple[int, int]]) -> dict[str, Any]:
    """Work in one batch, whatever its size, against work in batches of 8,192 tokens: seconds,
    bytes, allocations that failed, and how far the outcomes are equal."""
    read = random_rows(lm, *sizes["read"])
    prompts = [lm.tokenizer.decode(text.ids) for text in documents(lm, *sizes["written"])]
    differentiated = random_rows(lm, *sizes["differentiated"])
    texts = [Answered(tuple(row), 1, f"row {at}") for at, row in enumerate(differentiated)]
    places = [np.arange(len(row) - 8, len(row), dtype=np.intp) for row in read]

    def losses(tokens: int, rows: Sequence[list[int]] = read) -> Any:
        return np.concatenate(token_losses(lm, rows, batch_tokens=tokens))

    def peaks(tokens: int) -> Any:
        found = capture_reference(lm, read, places, None, Settings("predict", tokens))
        return np.stack([text.peaks for text in found])

    def gradients(tokens: int) -> Any:
        return np.stack(gate_gradients(lm, texts, batch_tokens=tokens).products)

    def outputs(tokens: int) -> Any:
        made = lm.generate(prompts, GenerateConfig(NEW, tokens, stop_at_newline=False))
        return np.array([[*text.output_ids, *[-1] * (NEW - len(text.output_ids))] for text in made])

    found: dict[str, Any] = {"weight_bytes": held(lm), "limit_bytes": limit(lm, held(lm) + ABOVE)}
    for name, work, kind, done in zip(
        MEASURES,
        (losses, peaks, gradients, outputs),
        ("read", "read", "differentiated", "written"),
        ("forward", "forward", "backward", "generated"),
        strict=True,
    ):
        rows, length = sizes[kind]
        small, usual = bytes_of(lm, partial(work, 8192))
        large, huge = bytes_of(lm, partial(work, 1 << 40))
        batch = Work(**{done: 1.0}, length=length, rows=min(rows, max(1, 8192 // length)))
        found[name] = {
            "rows": rows,
            "tokens": length,
            "batches": usual | {"predicted_bytes": peak_memory(batch, shape_of(lm)).total},
            "one_batch": huge,
            "equal_share": float((small == large).mean()),
            "relative_difference": float(
                np.linalg.norm(np.float64(small) - large) / np.linalg.norm(np.float64(small))
            ),
        }
        say(f"memory: {name}: {found[name]}")
    again = [bytes_of(lm, partial(losses, 8192, read[:16]))[1] for _ in range(ROUNDS)]
    return found | {"held_after_rounds": [round_["held_bytes"] for round_ in again]}


def limit(lm: LanguageModel, most: int) -> int | None:
    """Let this process have so many bytes of the GPU at most; None where there is no GPU."""
    if lm.device.type != "cuda":
        return None
    whole = torch.cuda.get_device_properties(lm.device).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, most / whole), lm.device)
    return min(whole, most)


def held(lm: LanguageModel) -> int:
    """Bytes of the device's tensors."""
    return torch.cuda.memory_allocated() if lm.device.type == "cuda" else 0


def bytes_of(lm: LanguageModel, work: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """What some work made, and its seconds, bytes and allocations that failed."""
    on_gpu = lm.device.type == "cuda"
    if on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_stats()["num_ooms"] if on_gpu else 0
    wait(lm)
    began = time.perf_counter()
    made = work()
    wait(lm)
    result = {"seconds": time.perf_counter() - began, "held_bytes": held(lm)}
    if on_gpu:
        result |= {
            "peak_bytes": torch.cuda.max_memory_allocated(),
            "failed_allocations": torch.cuda.memory_stats()["num_ooms"] - before,
        }
    return made, result


def static(model: Model, sentences: int, conditions: int) -> Case:
    """Removal by every way of decoding."""
    texts = Translations(model, sentences, conditions, 32)

    def way(decode: Any) -> Timed:
        texts.config = replace(texts.config, decode=decode)
        return here(model.lm, texts.pool)

    kinds = get_args(Decode)[: 3 if model.lm.device.type == "cuda" else 2]
    work = {"sentences": sentences, "conditions": conditions, "ways": kinds}
    ways = {kind: partial(way, kind) for kind in kinds}
    compared = [(kinds[0], kind, texts.check) for kind in kinds[1:]]
    return Case("static", work, ways, compared, texts.cost)


def job(
    model: Model, peers: Peers, name: str, sizes: Sizes, peak: Machine, given: argparse.Namespace
) -> dict[str, Any]:
    """A job of `peers.py`, or `static`, with tokens a second and the share of the roofline of each
    way, and the fastest."""
    clock, shape = clock_of(given.device), shape_of(model.lm)
    rows: list[dict[str, Any]] = []
    left_out: dict[str, str] = {}
    until = time.perf_counter() + 60 * given.minutes
    own = [(static(model, *sizes.removal), {})] if name == "static" else ()
    for case, missing in own or cases(model, peers, [name], sizes):
        for row in measured(case, given.repeats, clock, until):
            rows.append(row | shares(row, shape, peak, clock))
        left_out |= missing
    ways = {way: took[clock] for row in rows for way, took in row["seconds"].items()}
    fastest = {"fastest": min(ways, key=lambda way: ways[way])} if name == "static" else {}
    return {"clock": clock, **fastest, "rows": rows, "left_out": left_out}


def clock_of(device: str) -> str:
    return "process" if device == "cpu" else "wall"


def parts(
    names: Sequence[str], given: argparse.Namespace, scratch: Path
) -> Iterator[tuple[str, dict[str, Any]]]:
    """What each part found; a model is made or read once, for all that need it."""
    if "tests" in names:
        yield "tests", tests()
    own = [name for name in PARTS[1:] if name in names]
    if own:
        yield from of_model(random_model, own, given, scratch)
    for name, file in given.models.items():
        own = [part for part in named(name) if part in names]
        if own:
            yield from of_model(partial(read_model, name, file), own, given, scratch)


def random_model(given: argparse.Namespace, scratch: Path) -> Model:
    """The model of the shape."""
    lm, folder = made_model(given.shape, given.device, given.dtype, scratch)
    return Model(given.shape, lm, folder, "en-de", (), 0)


def read_model(name: str, file: Path, given: argparse.Namespace, scratch: Path) -> Model:
    """A model that was given, with the sentences for it."""
    lm = headscope.load(str(file), device=given.device, dtype=given.dtype)
    return Model(name, lm, file if file.is_dir() else None, given.pair, tuple(given.data), 0)


def named(model: str) -> list[str]:
    """The parts of a model that was given."""
    return [f"{model}-{part}" for part in OF_FILES]


def of_model(
    make: Callable[..., Model], names: Sequence[str], given: argparse.Namespace, scratch: Path
) -> Iterator[tuple[str, dict[str, Any]]]:
    """What each of a model's parts found."""
    began = time.perf_counter()
    model = make(given, scratch)
    lm = model.lm
    about = {
        "name": model.name,
        "layers": lm.geometry.layers,
        "heads": lm.geometry.total,
        "parameters": lm.parameters,
        "seconds_to_make": time.perf_counter() - began,
        "sentences": "given" if model.data else "of the bundled model",
    }
    peak = roofline(lm, CLOCKS[clock_of(given.device)])
    about |= {
        "operations_a_second": peak.forward.operations,
        "bytes_a_second": peak.bandwidth,
        "measured_machine": asdict(measure_machine(lm)),
    }
    size = "quick" if given.quick else "gpu"
    peers = Peers(given.venvs, scratch)
    try:
        for name in names:
            say(f"{name} begins")
            if name == "memory":
                found = memory(lm, MEMORY[size])
                limit(lm, 1 << 60)
            else:
                kind = name.removeprefix(f"{model.name}-")
                found = job(model, peers, kind, SIZES[size], peak, given)
            yield name, {"model": about, **found}
    finally:
        peers.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of the JSON of each part")
    parser.add_argument("--only", choices=PARTS, action="append", help="these parts alone")
    parser.add_argument("--model", type=Path, action="append", default=[], help="folder or file")
    parser.add_argument("--data", action="append", default=[], help="sentences for --model")
    parser.add_argument("--pair", default="en-de", help="their direction")
    parser.add_argument("--shape", choices=list(SHAPES), default="8b")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=9.0, help="a part takes at most")
    parser.add_argument("--venvs", type=Path, help="folder for the environments of packages")
    parser.add_argument("--quick", action="store_true", help="only see that everything runs")
    given = parser.parse_args()
    # The name of a folder may hold a dot.
    given.models = {
        folder.name if folder.is_dir() else folder.stem: folder for folder in given.model
    }
    if len(given.models) < len(given.model):
        parser.error("two of --model have the same name")
    chosen = given.only or PARTS
    wanted = [part for part in PARTS if part in chosen]
    for name in given.models:
        both = zip(OF_FILES, named(name), strict=True)
        wanted += [file_part for part, file_part in both if part in chosen]
    missing = [part for part in wanted if not file_of(given.out, part).is_file()]
    about = {
        "bench": "gpu",
        "machine": machine(given.device),
        **{key: getattr(given, key) for key in ("shape", "dtype", "quick")},
    }
    given.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        started, began = moment(), time.perf_counter()
        for part, numbers in parts(missing, given, Path(scratch)):
            seconds = time.perf_counter() - began
            whole = {**about, "part": part, "started": started, "seconds": seconds, **numbers}
            # Named when it is whole, since a file that is there is not made again.
            unfinished = given.out / f"{part}.unfinished"
            unfinished.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
            unfinished.rename(file_of(given.out, part))
            started, began = moment(), time.perf_counter()
    tell({part: summary(given.out, part) for part in dict.fromkeys([*PARTS, *wanted])}, None)


def file_of(folder: Path, part: str) -> Path:
    return folder / f"{part}.json"


def summary(folder: Path, part: str) -> Any:
    """What a part found, in a few numbers; None: it has not run."""
    if not file_of(folder, part).is_file():
        return None
    found = json.loads(file_of(folder, part).read_text(encoding="utf-8"))
    if "rows" not in found:
        keys = ("passed", "failure", "error", "skipped", *MEASURES)
        return {key: found[key] for key in keys if key in found}
    return [
        {
            "against": row["against"],
            "ratio": row["ratio"]["median"],
            "equal": row["outcome"]["equal"],
            "tokens_per_second": row["tokens_per_second"][row["headscope"]],
            "share_of_roofline": row["share_of_roofline"][row["headscope"]],
        }
        for row in found["rows"]
    ]


if __name__ == "__main__":
    main()
