"""Which architectures the plugin of vLLM gates exactly, as JSON: small untrained models of each.

    python bench/vllm_architectures.py --vllm ENV/bin/vllm --out FILE [NAME …]

Of every model 9 prompts, three without a gate and three under each of two, go to one engine in one
batch; their greedy tokens are compared with those of transformers here, gated by headscope; where
they differ first, the gap between the two largest logits is told. What the engine or the plugin
refuses is told in its words. `NAME:transformers` takes the model's code from transformers instead
of vLLM (`model_impl`), `NAME:tp2` divides the heads among two processes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

#: Heads of 32 channels, which the CPU kernel of vLLM takes.
NAMES = ("llama", "llama:transformers", "llama:tp2", "qwen2", "qwen3", "mistral", "mixtral",
         "olmo2", "phi3", "gemma2", "gemma3", "gpt_oss", "granite", "glm4", "cohere2",
         "starcoder2", "stablelm", "gpt2", "gpt_neox", "opt", "bloom", "falcon", "qwen3_moe",
         "qwen3_next", "deepseek_v3", "lfm2")  # fmt: skip
TOKENS, PROMPTS = 12, 3


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="*", default=NAMES, metavar="NAME")
    parser.add_argument("--vllm", type=Path, required=True, help="the command of its environment")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    from machine import machine, tell
    from timing import say
    from vllm_gates import SETTINGS, versions

    from headscope.errors import InputError

    rows = dict[str, Any]()
    for name in given.names:
        with TemporaryDirectory() as folder:
            try:
                requests = built(name.partition(":")[0], Path(folder))
            except InputError as error:
                rows[name] = {"not_made_here": str(error)}
                continue
            (Path(folder) / "requests.json").write_text(json.dumps(requests))
            command = [str(given.vllm.parent / "python"), __file__, "--inside", folder]
            command += [name.partition(":")[2] or "vllm"]
            done = subprocess.run(
                command, env={**os.environ, **SETTINGS, "VLLM_ENABLE_V1_MULTIPROCESSING": "0"},
                capture_output=True, text=True, check=False, timeout=600,
            )  # fmt: skip
            lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
            row = json.loads(lines[-1]) if lines else {"refused": why(done.stderr)}
        rows[name] = row
        say(f"{name}: {row}")
        if given.out:  # what is known so far
            tell(
                {"machine": machine("cpu"), "vllm": versions(given.vllm), "models": rows}, given.out
            )


def built(name: str, folder: Path) -> list[dict[str, Any]]:
    """A small model in a folder, and requests with the tokens that each must get."""
    import numpy as np
    import torch
    from small_models import build

    from headscope.heads import Gate
    from headscope.lm import LanguageModel

    wide: dict[str, Any] = {"hidden_size": 128, "intermediate_size": 128}
    if name == "gpt2":
        wide = {"n_embd": 128}
    if name == "falcon":
        wide = {"hidden_size": 128}
    if name.startswith(("qwen2", "qwen3")):
        wide |= {"use_sliding_window": False, "layer_types": None}
    try:
        model = build(name, overrides={**wide, "head_dim": 32})
    except (AttributeError, TypeError):
        model = build(name, overrides=wide)
    model.save_pretrained(folder)
    lm = LanguageModel.wrap(model, name=name, check=False)
    requests = []
    draw = np.random.default_rng(0)
    for at, text in enumerate(gates_of(lm.geometry.shape)):
        values = np.ones(lm.geometry.shape, dtype=np.float32)
        for part in filter(None, text.split(",")):
            head, _, factor = part.strip().partition("*")
            layer, number = map(int, head.strip("-").split("."))
            values[layer, number] = float(factor or 0)
        for _ in range(PROMPTS):
            prompt = draw.integers(3, 90, 6 + 3 * at).tolist()
            tokens, gaps = list(prompt), list[float]()
            for _ in range(TOKENS):
                with lm.gated(Gate(lm.geometry, values)), torch.no_grad():
                    logits = lm.model(input_ids=torch.tensor([tokens])).logits[0, -1]
                tokens.append(int(logits.argmax()))
                first, second = logits.topk(2).values.tolist()
                gaps.append(first - second)
            own = {"prompt": prompt, "gate": text, "tokens": tokens[len(prompt) :], "gaps": gaps}
            requests.append(own)
    return requests


def gates_of(shape: tuple[int, int]) -> list[str]:
    """No gate, and two of heads that the model has."""
    last, layer = shape[1] - 1, shape[0] - 1
    return ["", f"-{layer}.0, -{layer}.{last}", f"{layer}.1*0.5, {layer}.0*-1"]


def why(log: str) -> str:
    """The last error in a log."""
    lines = [line.strip() for line in log.splitlines() if "Error: " in line or "Error:" in line]
    return lines[-1][-300:] if lines else log[-300:]


def inside(folder: str, implementation: str) -> None:
    """What an engine writes; this part runs in its environment."""
    from vllm import LLM, SamplingParams

    requests = json.loads((Path(folder) / "requests.json").read_text())
    processes = 2 if implementation == "tp2" else 1
    how: Any = "vllm" if processes > 1 else implementation
    engine = LLM(
        folder, dtype="float32", max_model_len=64, max_num_seqs=16, enforce_eager=True,
        skip_tokenizer_init=True, model_impl=how, tensor_parallel_size=processes,
    )  # fmt: skip
    params = [
        SamplingParams(
            temperature=0, max_tokens=TOKENS, ignore_eos=True, detokenize=False,
            extra_args={"heads": each["gate"]} if each["gate"] else None,
        )
        for each in requests
    ]  # fmt: skip
    prompts: Any = [{"prompt_token_ids": each["prompt"]} for each in requests]
    outputs = engine.generate(prompts, params, use_tqdm=False)
    rows = list[float | None]()
    for output, each in zip(outputs, requests, strict=True):
        pairs = zip(output.outputs[0].token_ids, each["tokens"], each["gaps"], strict=True)
        rows.append(next((gap for theirs, ours, gap in pairs if theirs != ours), None))
    told = {
        "texts": len(rows), "equal": rows.count(None),
        "equal_without_a_gate": rows[:PROMPTS].count(None),
        "gaps_where_they_differ": [gap for gap in rows if gap is not None],
    }  # fmt: skip
    print(json.dumps(told))


if __name__ == "__main__":
    inside(*sys.argv[2:4]) if sys.argv[1:2] == ["--inside"] else main()
