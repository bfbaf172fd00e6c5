"""Benchmarks run on a little, tell what they promise, and agree with themselves; no figure is
judged."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from headscope.heads import HeadScores
from headscope.lm import LanguageModel
from lm_helpers import saved

Bench = Callable[..., dict[str, Any]]

#: By benchmark: its arguments, and what its result holds at places of names.
QUICK: dict[str, tuple[tuple[object, ...], dict[str, Any]]] = {
    "peaks": (
        ("--quick", "--threads", 1),
        {
            "machine threads": 1,
            "reference 0 equal_peaks": {"eager_attentions": 1.0, "token_by_token": 1.0},
            "greedy 0 equal_tokens": 1.0,
        },
    ),
    "peers": (
        ("--quick", "--repeats", 1),
        {
            "packages": {},
            "rows 2 outcome equal": True,
            "rows 6 against": "zeroed W_O",
            "rows 6 outcome equal": True,
            "rows 7 outcome equal": True,
            "rows 8 against": "zeroed W_O and generate",
            "rows 8 outcome equal": True,
            "left_out 0 what": "the model",
        },
    ),
    "mask": (("--quick",), {"equal_losses": True, "device": "cpu"}),
    "one_by_one": (
        ("--quick", "--threads", 1),
        {
            "with_texts ranks compared": 60,
            "with_texts texts compared": 10,
            "ranks_alone ranks compared": 60,
            "ranks_alone texts compared": 0,
        },
    ),
    "identify": (
        ("DATA", "--sentences", 4, "--only", "headscope.measure.identify"),
        {
            "texts pocket tr": 4,
            "texts xl-wa nl": 2,
            "candidates headscope.measure.identify again": True,
            "candidates headscope.measure.identify right xl-wa all texts": 4,
        },
    ),
}


def at(value: Any, path: str) -> Any:
    """What stands in a result at names and numbers; a name may hold a space."""
    while path and isinstance(value, list | dict):
        if isinstance(value, list):
            name, _, path = path.partition(" ")
            value = value[int(name)]
        else:
            name = max((key for key in value if f"{path} ".startswith(f"{key} ")), key=len)
            value, path = value[name], path[len(name) + 1 :]
    return value


# Memory over time stands in /proc alone; other systems have nothing like it to read.
@pytest.mark.skipif(sys.platform != "linux", reason="reads memory from Linux's /proc")
@pytest.mark.parametrize("name", QUICK)
def test_a_quick_run_prints_and_writes_one_object(name: str, bench: Bench, tmp_path: Path) -> None:
    folder = tmp_path / "data" / "xl-wa"
    folder.mkdir(parents=True)
    (folder / "en-nl.dev.tsv").write_text(
        "The dog sleeps under the table .\tDe hond slaapt onder de tafel .\t0-0\n"
        "We bought bread and cheese .\tWij kochten brood en kaas .\t0-0\n",
        encoding="utf-8",
    )
    arguments, expected = QUICK[name]
    given = [folder.parent if word == "DATA" else word for word in arguments]
    out = tmp_path / "results" / "here.json"
    result = bench(name, *given, "--out", out)
    assert json.loads(out.read_text(encoding="utf-8")) == result
    assert str(tmp_path) not in out.read_text(encoding="utf-8")
    assert {"cpu", "cores", "commit"} <= set(result["machine"])
    assert {path: at(result, path) for path in expected} == expected


def test_rankers_see_translations_and_nothing_is_computed_twice(
    pocket: LanguageModel, bench: Bench, tmp_path: Path
) -> None:
    values = np.arange(pocket.geometry.total, dtype=float).reshape(pocket.geometry.shape)
    HeadScores(pocket.geometry, values, "counted").save_pretrained(tmp_path / "scores")
    size = ("--documents", 8, "--share", 0.25, "--languages", "de", "--draws", 1)
    few = ("--k", 5, "--bootstrap", 9, "--runs", tmp_path, "--heads", tmp_path / "scores")
    result = bench("trater", *size, *few)
    german = result["languages"]["de"]
    assert (german["bilingual"], german["monolingual"]) == (2, 6)
    # A line break tells translations from the corpus, and nothing from the variants.
    assert german["rankers"]["line break"]["auc"] == 1
    for kind in ("first", "repeated", "unrelated", "lines"):
        assert german["variants"]["line break"][kind]["auc of bilingual over it"] == 0.5
    times = {file: file.stat().st_mtime_ns for file in (tmp_path / "losses").iterdir()}
    assert bench("trater", *size, *few)["languages"] == result["languages"]
    assert {file: file.stat().st_mtime_ns for file in (tmp_path / "losses").iterdir()} == times


def test_peers_runs_at_the_shape_of_a_gpu_and_says_who_takes_no_part(bench: Bench) -> None:
    """With weights made in memory, and more words than the tokenizer knows."""
    shape = ("--quick", "--repeats", 1, "--shape", "128k-words", "--dtype", "bfloat16")
    result = bench("peers", *shape, "--only", "removal", "--only", "mask", "--only", "lahis")
    assert [row["job"] for row in result["rows"]] == ["removal", "lahis", "lahis", "mask"]
    assert {row["model"] for row in result["rows"]} == {"128k-words"}
    assert result["left_out"][-1]["what"] == "mask: nam-causal-head-gating"


def test_the_parts_of_a_gpu_run_on_a_cpu_and_are_not_made_twice(
    bench: Bench, tmp_path: Path
) -> None:
    shape = ("--device", "cpu", "--shape", "128k-words", "--quick", "--repeats", 1)
    only = ("--only", "memory", "--only", "mask", "--only", "static")
    read = saved(tmp_path / "tiny-0.5b", overrides={"vocab_size": 128})
    given = ("--out", tmp_path / "found", *shape, *only, "--model", read)
    result = bench("gpu", *given)
    parts = {"memory", "mask", "static", "tiny-0.5b-mask", "tiny-0.5b-static"}
    assert {part for part, told in result.items() if told} == parts
    made = {file.name: json.loads(file.read_text("utf-8")) for file in tmp_path.glob("found/*")}
    assert set(made) == {f"{part}.json" for part in parts}
    for part in ("static.json", "tiny-0.5b-static.json"):
        (row,) = made[part]["rows"]
        assert (row["against"], row["headscope"]) == ("plain", "static")
        assert made[part]["fastest"] in ("plain", "static") and row["outcome"]["texts"] == 4
    for name in ("losses", "peaks", "gradients", "texts"):
        assert made["memory.json"][name]["equal_share"] == 1.0
    (row,) = made["mask.json"]["rows"]
    cost, model = row["cost"]["work"], made["mask.json"]["model"]
    # Both ways through layers and logits of 2 samples, at the rate of a large product.
    hidden, inner, heads, shared, width, layers, words = 64, 128, 4, 2, 16, 2, 128000
    maps = hidden * (2 * (heads + shared) * width + 3 * inner)
    attention = 4 * heads * width * cost["length"]
    lowest = 2 * hidden * (heads + 2 * shared) * width + 2 * attention
    each = layers * (4 * maps + 3 * attention) - lowest
    operations = cost["backward"] * (each + 4 * hidden * words * row["cost"]["logits"])
    assert row["roofline_seconds"] == pytest.approx(operations / model["operations_a_second"])
    assert row["share_of_roofline"]["headscope"] == pytest.approx(
        row["roofline_seconds"] / row["seconds"]["headscope"]["process"]
    )
    assert bench("gpu", *given) == result
    again = {file.name: json.loads(file.read_text("utf-8")) for file in tmp_path.glob("found/*")}
    assert again == made


def test_knockouts_of_each_head_alone_rank_as_single_removal(bench: Bench, tmp_path: Path) -> None:
    given = ("--sentences", 2, "--gates", 96, "--remove", 1, "--runs", tmp_path / "runs")
    result = bench("knockouts", *given)
    *_, every = result["knockouts"]["1"]["sizes"]
    assert (every["gates"], every["hits"]) == (96, 10)
    assert len(result["single_removal"]["top"]) == 10 and result["single_removal"]["passes"] == 97


def test_planted_heads_learn_alone_and_the_others_keep_their_random_values() -> None:
    import planted

    task, lm = planted.Task("translation", 0), planted.new_model(0)
    gate = torch.zeros(planted.LAYERS, planted.HEADS)
    gate[1, 2] = 1

    def parts(layer: int, head: int) -> list[torch.Tensor]:
        own, place = lm.model.model.layers[layer].self_attn, slice(8 * head, 8 * head + 8)
        inputs = [getattr(own, f"{name}_proj").weight[place] for name in "qkv"]
        return [part.detach().clone() for part in (*inputs, own.o_proj.weight[:, place])]

    def changed(before: list[torch.Tensor], layer: int, head: int) -> list[bool]:
        return [not a.equal(b) for a, b in zip(before, parts(layer, head), strict=True)]

    for fixed in (False, True):
        values = planted.random_others(lm, gate) if fixed else None
        before = {place: parts(*place) for place in ((1, 2), (1, 3), (0, 2))}
        planted.train(lm, task, gate, 2, "seed", values)
        assert {place: any(changed(own, *place)) for place, own in before.items()} == {
            (1, 2): True, (1, 3): False, (0, 2): False
        }  # fmt: skip
    words = {task.pair(random.Random(seed)) for seed in range(20)}
    assert len(words) == 20 and all(
        task.table[int(a[1:])] == int(b[1:])
        for source, target in words
        for a, b in zip(source.split(), target.split(), strict=True)
    )


def test_average_precision_is_the_mean_of_precisions_at_what_is_looked_for() -> None:
    import planted

    values = np.array([0.1, 0.9, 0.4, 0.8, 0.0])
    wanted = np.array([False, True, True, False, False])
    assert planted.average_precision(values, wanted) == pytest.approx((1 + 2 / 3) / 2)
    alike = planted.average_precision(np.zeros(5), wanted, 20_000)
    every = [  # all places of two in five
        (1 / (a + 1) + 2 / (b + 1)) / 2 for a in range(5) for b in range(a + 1, 5)
    ]
    assert alike == pytest.approx(np.mean(every), abs=0.01)
