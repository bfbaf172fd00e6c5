"""How much faster `headscope verify removal` is than the loop one writes instead. Prints JSON.

    python bench/removal_loop.py --out bench/results/removal-loop.json
    python bench/removal_loop.py --limit 1 --rounds 1                 # a small version

The whole command on the bundled model, with all it measures and tests, against: zero the columns of
W_O that read the heads, write batches of prompts in their order with transformers' `generate`, and
measure chrF. Both load the model, by turns in this process, whose processor seconds are told;
conditions, prompts, limits and ends are the same, and so have to be the texts. Imports are not
timed: each runs once before, on few sentences.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import sacrebleu
import torch
from machine import asked, machine, tell
from timing import load, moment, say, spread
from transformers import AutoModelForCausalLM, AutoTokenizer, StoppingCriteriaList

from headscope.cli import main as headscope
from headscope.data.languages import language_name
from headscope.data.prompts import DEFAULT_TEMPLATE
from headscope.pocket import weights
from headscope.runs.reading import read_rows

HEADS = "5.1,4.3,5.3,5.11,5.0,5.2,4.2,5.12,5.15,5.8,5.14,4.6,5.9,4.1"  # of removal-pocket.json


def command(given: argparse.Namespace, limit: int, out: Path) -> None:
    """`headscope verify removal`, from its options to its run."""
    words = ["verify", "removal", "--heads", given.heads, "--pair", "all", "--limit", limit]
    words += ["--draws", given.draws, "--device", "cpu", "--out", out, "--json"]
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()) as err,
    ):
        if headscope([*map(str, words)]):
            raise RuntimeError(err.getvalue())


def told_by(run: Path) -> tuple[list[dict[str, Any]], dict[str, list[str]], dict[str, list[str]]]:
    """A run's sentences with their prompts, the heads of its conditions, and their outputs."""
    texts: dict[str, list[str]] = {}
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for _, row in read_rows(run / "outputs.jsonl"):
        texts.setdefault(row["condition"], []).append(row["output"])
        names = map(language_name, row["direction"].split("-"))
        prompt = DEFAULT_TEMPLATE.render(row["source"], *names).text
        rows.setdefault((row["direction"], row["id"]), {**row, "prompt": prompt})
    conditions = json.loads((run / "result.json").read_text("utf-8"))["conditions"]
    return [*rows.values()], {one["id"]: one["heads"] for one in conditions}, texts


def loop(rows: Sequence[dict[str, Any]], heads: dict[str, list[str]], batch: int) -> Any:
    """Outputs by condition, and the chrF++ of each condition in every direction."""
    tokenizer = AutoTokenizer.from_pretrained(weights.path(), padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(weights.path(), dtype=torch.float32).eval()
    width = model.config.head_dim
    newline = torch.tensor(["\n" in tokenizer.decode([i]) for i in range(len(tokenizer))])
    prompts = [row["prompt"] for row in rows]
    limits = [2 * len(tokenizer(row["source"], add_special_tokens=False).input_ids) + 32
              for row in rows]  # fmt: skip
    texts: dict[str, list[str]] = {}
    for condition, removed in heads.items():
        before = {}
        for layer, head in (map(int, name.split(".")) for name in removed):
            weight = model.model.layers[layer].self_attn.o_proj.weight.data
            before.setdefault(layer, weight.clone())
            weight[:, head * width : (head + 1) * width] = 0
        made = texts.setdefault(condition, [])
        for start in range(0, len(prompts), batch):
            own = limits[start : start + batch]
            inputs = tokenizer(prompts[start : start + batch], return_tensors="pt", padding=True)
            ends = StoppingCriteriaList([lambda ids, _: newline[ids[:, -1]]])
            with torch.no_grad():
                ids = model.generate(
                    **inputs, do_sample=False, max_new_tokens=max(own), stopping_criteria=ends
                )
            new = ids[:, inputs.input_ids.shape[1] :].tolist()
            cut = [row[:limit] for row, limit in zip(new, own, strict=True)]
            outputs = tokenizer.batch_decode(cut, skip_special_tokens=True)
            made += [text.lstrip().split("\n", 1)[0] for text in outputs]
        for layer, weight in before.items():
            model.model.layers[layer].self_attn.o_proj.weight.data = weight
    measure = sacrebleu.CHRF(word_order=2)
    places: dict[str, list[int]] = {}
    for at, row in enumerate(rows):
        places.setdefault(row["direction"], []).append(at)
    return texts, {
        (condition, direction): measure.corpus_score(
            [made[at] for at in own], [[rows[at]["reference"] for at in own]]
        ).score
        for condition, made in texts.items()
        for direction, own in places.items()
    }


def timed(work: Callable[[], Any]) -> tuple[dict[str, float], Any]:
    process, wall = time.process_time(), time.perf_counter()
    made = work()
    return {"process": time.process_time() - process, "wall": time.perf_counter() - wall}, made


def main() -> None:
    """Measures and prints; progress goes to stderr."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--heads", default=HEADS, help="what is removed")
    parser.add_argument("--limit", type=int, default=9, help="sentences of each of 20 directions")
    parser.add_argument("--draws", type=int, default=5, help="of each of two controls")
    parser.add_argument(
        "--batch", type=int, default=50, help="prompts that the loop reads together"
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, help="also write the JSON there")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    before, began, loads = machine("cpu"), moment(), [load()]
    rounds: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        command(given, 1, Path(folder, "warm"))
        command(given, given.limit, Path(folder, "texts"))
        rows, heads, texts = told_by(Path(folder, "texts"))
        loop(rows[:1], {"original": []}, 1)
        for at in range(given.rounds):
            out = Path(folder, str(at))
            ours, _ = timed(lambda out=out: command(given, given.limit, out))
            theirs, (written, _) = timed(lambda: loop(rows, heads, given.batch))
            if not texts == written == told_by(out)[2]:
                raise RuntimeError("the texts differ")
            ratio = {name: theirs[name] / ours[name] for name in ours}
            rounds.append({"headscope": ours, "loop": theirs, "ratio": ratio})
            loads.append(load())
            say(str(rounds[-1]))
    result = {
        "bench": "removal_loop",
        "started": began,
        "ended": moment(),
        "machine": before,
        "loads": loads,
        **asked(given),
        "conditions": len(heads),
        "sentences": len(rows),
        "texts_equal": len(rows) * len(heads),
        **{
            name: {
                clock: spread([one[name][clock] for one in rounds]) for clock in ("process", "wall")
            }
            for name in ("headscope", "loop", "ratio")
        },
    }
    tell(result, given.out)


if __name__ == "__main__":
    main()
