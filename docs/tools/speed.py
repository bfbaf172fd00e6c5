"""The table of `docs/speed.md`, from the stored result of `bench/peers.py`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parents[2] / "bench" / "results"
_PEERS = re.compile(r"^<!-- peers (\S+) -->$", re.MULTILINE)
#: What models and jobs are called.
MODELS = {
    "small": "4.3 M parameters",
    "smollm2": "SmolLM2-135M",
    "gemma3": "Gemma 3 270M",
    "qwen": "Qwen2.5 0.5B",
}
JOBS = {
    "translation-score": "Translation Score",
    "removal-by-loss": "removal by loss",
    "removal": "removal",
    "lahis": "LAHIS",
    "mask": "a step of a mask",
    "rating": "rating",
}


def expanded(text: str) -> str:
    """The page with the table of every stored result that it asks for."""
    return _PEERS.sub(
        lambda found: page(json.loads((RESULTS / found[1]).read_text(encoding="utf-8"))), text
    )


def page(result: dict[str, Any]) -> str:
    """What was run and on what, the table of ratios, and what was left out."""
    machine = result["machine"]
    versions = [
        f"{name} {found[name]} (torch {found['torch']}, transformers {found['transformers']})"
        for name, found in result["packages"].items()
    ]
    busy = machine["load_before"]
    # A benchmark that goes on is of several processes.
    commits = dict.fromkeys(
        f"`{one['commit'][:7]}`" + " with changes" * one["changed_since_commit"]
        for one in [machine, *result.get("processes", ())]
    )
    peaks = [
        f"{MODELS.get(name, name)} {found['operations_a_second'] / 1e9:.0f} GFLOP/s"
        for name, found in result["models"].items()
        if "operations_a_second" in found
    ]
    about = [
        f"{machine['cpu']}, {machine['threads']} thread; torch {machine['torch']}, transformers "
        f"{machine['transformers']}; commit {', '.join(commits)}"
        + f"; {result['started'][:10]}; load before {busy[0]:.1f}; {result['dtype']}; seconds of "
        f"the {result['clock']}.",
        f"Packages: {'; '.join(versions) or 'none'}.",
        *([f"Fastest large matrix product: {', '.join(peaks)}."] * bool(peaks)),
    ]
    if result["quick"]:
        about.insert(0, "**A trial of the command at its smallest size: no measurement.**")
    head = (
        "| job | model | against | ratio (least–most) | aim | seconds: headscope, other | "
        "tokens/s | share of the limit | same |"
    )
    rows = [head, "|---|---|---|---|---|---|---|---|---|", *map(row, result["rows"])]
    left_out = [f"* {one['model']}, {one['what']}: {one['why']}" for one in result["left_out"]]
    return "\n\n".join(
        ["\n".join(about), "\n".join(rows), *(["Left out:", "\n".join(left_out)] * bool(left_out))]
    )


def row(of: dict[str, Any]) -> str:
    """A comparison as a row of the table; a ratio below 1, and an aim that is missed, stand out."""
    ratio, aim = of["ratio"], of["aim"]
    shown = f"{ratio['median']:.2f}"
    if ratio["median"] < 1:
        shown = f"**{shown}**"
    seconds = [of["seconds"][name]["process"] for name in (of["headscope"], of["against"])]
    cells = [
        f"{JOBS[of['job']]}, {work(of)}",
        MODELS.get(of["model"], of["model"]),
        of["against"] + of["headscope"].replace("headscope", "").replace(", ", "; headscope with "),
        f"{shown} ({ratio['min']:.2f}–{ratio['max']:.2f})",
        "–" if aim is None else f"≥ {aim}" + (", **missed**" if ratio["median"] < aim else ""),
        " ".join(f"{value:.3g}" for value in seconds),
        both(of, "tokens_per_second", "{:,.0f}"),
        both(of, "share_of_roofline", "{:.2f}"),
        same(of["outcome"]),
    ]
    return f"| {' | '.join(cells)} |"


def both(of: dict[str, Any], name: str, form: str) -> str:
    """A figure of headscope and of the other; results of earlier versions lack it."""
    if name not in of:
        return "–"
    return " ".join(form.format(of[name][way]) for way in (of["headscope"], of["against"]))


def work(of: dict[str, Any]) -> str:
    """How much was done."""
    size = of["work"]
    match of["job"]:
        case "translation-score":
            batch = size["batch_tokens"]
            how = f"batches of {batch:,} tokens" if batch else "one batch"
            return f"{size['sentences']} pairs, {how}"
        case "removal-by-loss":
            heads = size["heads_removed"]
            return f"{size['conditions']} conditions × {size['sentences']} sentences, {heads} heads"
        case "removal":
            shots = f", {size['shots']} shots" if size["shots"] else ""
            chat = ", chat template" if size["chat"] else ""
            return f"{size['conditions']} conditions × {size['sentences']} sentences{shots}{chat}"
        case "mask":
            return f"{size['samples']} samples"
        case "lahis":
            return f"{size['documents']} documents of {size['tokens']['max']} tokens at most"
    return f"{size['documents']} documents"


def same(outcome: dict[str, Any]) -> str:
    """How far the outcomes are the same."""
    if outcome["equal"] is None:
        return "no outcome"
    count = next((key for key in ("texts", "peaks") if key in outcome), None)
    word = "yes" if outcome["equal"] else "**no**"
    if count is None:
        return word
    return f"{word}; {outcome[f'{count}_that_differ']:,} of {outcome[count]:,} {count} differ"
