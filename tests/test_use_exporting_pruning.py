"""A checkpoint without whole groups of heads computes what the gated model computes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_models import ARCHITECTURES, build

from headscope.errors import InputError
from headscope.heads import Gate
from headscope.lm.model import LanguageModel
from headscope.use.exporting.pruning import Pruning, plan_pruning, pruned_checkpoint
from headscope.use.exporting.tensors import stored_tensors
from lm_helpers import logits, sample_batch
from test_use_exporting import hollow, loaded

#: Biases, norms of single heads, soft caps and tied words, experts, a gate of the attention among
#: the queries, layers without heads.
PRUNED = ("llama", "cohere2", "olmo", "granite", "glm4", "mistral", "mixtral", "qwen2", "qwen2_moe",
          "qwen3", "qwen3_moe", "qwen3_next", "qwen3_5", "qwen3_5_moe", "phimoe", "smollm3",
          "gemma2", "gemma3", "lfm2", "starcoder2")  # fmt: skip
#: Fused projections, latent values, no or unlike numbers of groups, shared keys, sinks, norms or
#: rotations over all heads.
REFUSED = {
    **dict.fromkeys(("phi3", "deepseek_v3"), r"layer 0: .*q_proj is no linear map of its own"),
    **dict.fromkeys(
        ("gpt2", "gpt_neox", "opt", "bloom", "falcon", "mpt", "xglm"),
        "no plain num_attention_heads and num_key_value_heads",
    ),
    "gemma4": "its layers have different numbers of heads",
    "gemma3n": r"layer 2: .*k_proj is no linear map of its own",
    "gpt_oss": r"sinks has the shape \(4,\), and \(2,\) with 2 heads",
    "cohere": r"k_norm.weight has the shape \(2, 16\), and \(1, 16\) with 2 heads",
    **dict.fromkeys(
        ("olmo2", "olmo3"), r"k_norm.weight has the shape \(32,\), and \(16,\) with 2 heads"
    ),
    **dict.fromkeys(("olmoe", "stablelm", "bitnet"), "no model with fewer heads can be built"),
}
#: 8 query heads in 4 groups.
EIGHT = {"num_attention_heads": 8, "num_key_value_heads": 4}


def a_gate(lm: LanguageModel, *removed: tuple[int, ...], size: int = 2, seed: int = 0) -> Gate:
    """Groups of each layer with heads are removed; other heads have one of four factors."""
    drawn = np.random.default_rng(seed).choice([0.3, 1.0, 1.7, -1.0], lm.geometry.shape)
    for site, groups in zip(lm.sites, removed, strict=True):
        for group in groups:
            drawn[site.layer, group * size : (group + 1) * size] = 0
    return Gate(lm.geometry, np.where(lm.geometry.mask(), drawn, 1))


def gated(folder: Path, gate: Gate) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits of the ordinary model with and without the gate."""
    real = LanguageModel.wrap(loaded(folder), check=False)
    with real.gated(gate):
        with_gate = logits(real.model, sample_batch())
    return with_gate, logits(real.model, sample_batch())


@pytest.mark.parametrize("name", PRUNED)
def test_the_smaller_model_is_the_gated_one(name: str, tmp_path: Path) -> None:
    model = build(name, overrides=EIGHT)
    model.save_pretrained(tmp_path / "model", max_shard_size="60KB")
    lm = hollow(tmp_path / "model")
    # Layers lose other groups, and one more of them in the first layer than in the others.
    removed = [(1, 3), *((0,) if at % 2 else (2,) for at in range(len(lm.sites) - 1))]
    gate = a_gate(lm, *removed)
    plan = plan_pruning(lm, gate)
    dropped = min(map(len, removed))
    # A number of heads that divides the hidden size, 48: Llama and Gemma 3 take no others.
    assert plan.heads.groups_dropped == dropped and plan.heads.groups_removed == dropped
    done = pruned_checkpoint(plan, tmp_path / "out", max_shard_size="50KB")
    assert len(done.files) > 1 and not (tmp_path / "out.unfinished").exists()

    wanted, plain = gated(tmp_path / "model", gate)
    smaller = loaded(tmp_path / "out")
    assert (logits(smaller, sample_batch()) - wanted).abs().max() < 2e-5
    assert (wanted - plain).abs().max() > 0.05
    config = smaller.config
    width = lm.sites[0].head_width
    assert (config.num_attention_heads, config.num_key_value_heads, config.head_dim) == (
        8 - 2 * dropped,
        4 - dropped,
        width,
    )
    assert json.loads((tmp_path / "out" / "config.json").read_text())["head_dim"] == width
    count = sum(one.numel() for one in smaller.parameters())
    assert done.pruned is not None
    assert (done.pruned.parameters, done.pruned.parameters_before) == (
        count,
        sum(one.numel() for one in model.parameters()),
    )
    index = json.loads((tmp_path / "out" / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_parameters"] == count


def test_what_is_left_is_the_models_own_to_the_bit(tmp_path: Path) -> None:
    """In 16 bits, biases included; head h of the smaller model is the one that `kept` names."""
    model = build("qwen2", overrides=EIGHT).to(torch.bfloat16)
    model.save_pretrained(tmp_path / "model")
    lm = hollow(tmp_path / "model")
    values = np.ones(lm.geometry.shape)
    values[0, [0, 1, 6, 7]] = values[1, [2, 3, 4, 5]] = 0
    done = pruned_checkpoint(plan_pruning(lm, Gate(lm.geometry, values)), tmp_path / "out")
    assert done.pruned is not None and done.pruned.kept == {"0": (1, 2), "1": (0, 3)}
    before, after = (
        loaded(tmp_path / name, torch.bfloat16).state_dict() for name in ("model", "out")
    )
    cut = set()
    for name, tensor in after.items():
        if before[name].shape == tensor.shape:
            assert torch.equal(before[name], tensor)
            continue
        cut.add(name)
        layer, projection = int(name.split(".")[2]), name.split(".")[4]
        groups = done.pruned.kept[str(layer)]
        size = 1 if projection in ("k_proj", "v_proj") else 2
        blocks = before[name].split(16 * size, dim=1 if projection == "o_proj" else 0)
        kept = torch.cat([blocks[group] for group in groups], 1 if projection == "o_proj" else 0)
        assert torch.equal(kept, tensor)
    assert cut == set(done.changed) and len(cut) == 2 * 7


def plan(folder: Path, name: str, removed: int = 1, **overrides: Any) -> Pruning:
    """The first groups of every layer are removed."""
    build(name, overrides=overrides).save_pretrained(folder)
    lm = hollow(folder)
    values = np.ones(lm.geometry.shape)
    for site in lm.sites:
        size = site.heads // (overrides.get("num_key_value_heads") or min(2, site.heads))
        values[site.layer, : size * removed] = 0
    return plan_pruning(lm, Gate(lm.geometry, values))


def test_every_architecture_is_pruned_or_refused() -> None:
    assert {*PRUNED, *REFUSED} == set(ARCHITECTURES) and not set(PRUNED) & REFUSED.keys()


@pytest.mark.parametrize(("name", "message"), REFUSED.items())
def test_architectures_that_take_no_fewer_heads_are_refused(
    name: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=rf"(?s){message}.*export with --as checkpoint") as raised:
        plan(tmp_path / "model", name)
    assert "\n" not in str(raised.value)


def test_a_layer_with_no_whole_group_is_named(tmp_path: Path) -> None:
    build("llama", overrides=EIGHT).save_pretrained(tmp_path / "model")
    lm = hollow(tmp_path / "model")
    values = np.ones(lm.geometry.shape)
    values[0, 2:4] = values[1, 1:3] = 0  # of layer 1 a head each of two groups
    with pytest.raises(InputError, match=r"layer 1 has no key-value group whose 2 query heads are "
                       r"all removed, .*at least 1 of its 4 .*--as checkpoint"):  # fmt: skip
        plan_pruning(lm, Gate(lm.geometry, values))


def test_one_group_stays_where_all_are_removed(tmp_path: Path) -> None:
    found = plan(tmp_path / "model", "llama", removed=2)
    assert (found.heads.groups_removed, found.heads.groups_dropped) == (2, 1)
    assert not found.gate.values.any()  # the group that is left is removed by its factors
    pruned_checkpoint(found, tmp_path / "out")
    lm = hollow(tmp_path / "model")
    wanted, _ = gated(tmp_path / "model", Gate(lm.geometry, np.zeros(lm.geometry.shape)))
    assert (logits(loaded(tmp_path / "out"), sample_batch()) - wanted).abs().max() < 2e-5
    with pytest.raises(InputError, match="all heads of a layer share one key-value head"):
        plan(tmp_path / "single", "llama", num_key_value_heads=1)


def test_fewer_groups_are_dropped_where_the_architecture_takes_no_such_number(
    tmp_path: Path,
) -> None:
    """A Llama's heads have to divide its hidden size, a Qwen3's need not."""
    shape = {"num_attention_heads": 16, "num_key_value_heads": 16, "hidden_size": 64}
    for name, dropped in (("llama", 8), ("qwen3", 11)):
        found = plan(tmp_path / name, name, removed=11, **shape)
        assert (found.heads.groups_removed, found.heads.groups_dropped) == (11, dropped)
        # Those that stay for this reason are the ones that the gate is 0 on.
        assert [int((row == 0).sum()) for row in found.gate.values] == [11 - dropped] * 2
    with pytest.raises(InputError, match=r"hidden size \(64\) is not a multiple"):
        plan(tmp_path / "none", "llama", removed=1, **shape)


def test_a_start_that_was_cut_off_is_gone_on_with_and_other_groups_are_another_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headscope.use.exporting import checkpoint

    build("llama", overrides=EIGHT).save_pretrained(tmp_path / "model")
    lm = hollow(tmp_path / "model")
    plans = []
    for group in (0, 3):
        values = np.ones(lm.geometry.shape)
        values[:, 2 * group : 2 * group + 2] = 0
        values[:, 4:6] = 0
        plans.append(plan_pruning(lm, Gate(lm.geometry, values)))
    assert np.array_equal(plans[0].gate.values, plans[1].gate.values)  # of the heads left: all 1
    written: list[str] = []
    write = checkpoint.write_tensors

    def stopping(path: Path, *rest: Any) -> None:
        if len(written) == 2:
            raise KeyboardInterrupt
        write(path, *rest)
        written.append(path.name)

    monkeypatch.setattr(checkpoint, "write_tensors", stopping)
    with pytest.raises(KeyboardInterrupt):
        pruned_checkpoint(plans[0], tmp_path / "out", max_shard_size="40KB")
    assert not (tmp_path / "out").exists()
    times = {name: (tmp_path / "out.unfinished" / name).stat().st_mtime_ns for name in written}
    monkeypatch.setattr(checkpoint, "write_tensors", write)
    pruned_checkpoint(plans[0], tmp_path / "out", max_shard_size="40KB")
    assert times == {name: (tmp_path / "out" / name).stat().st_mtime_ns for name in written}

    written.clear()
    monkeypatch.setattr(checkpoint, "write_tensors", stopping)
    with pytest.raises(KeyboardInterrupt):
        pruned_checkpoint(plans[0], tmp_path / "other", max_shard_size="40KB")
    monkeypatch.setattr(checkpoint, "write_tensors", write)
    pruned_checkpoint(plans[1], tmp_path / "other", max_shard_size="40KB")
    pruned_checkpoint(plans[1], tmp_path / "fresh", max_shard_size="40KB")
    for one, other in zip(*map(stored_tensors, (tmp_path / "other", tmp_path / "fresh")),
                          strict=True):  # fmt: skip
        assert one.name == other.name and one.read() == other.read()


def test_quantised_weights_are_refused(tmp_path: Path) -> None:
    build("llama", overrides=EIGHT).save_pretrained(tmp_path / "model")
    lm = hollow(tmp_path / "model")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "gptq", "bits": 4}
    (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="not out of quantised weights or GGUF files"):
        plan_pruning(lm, Gate(lm.geometry, np.zeros(lm.geometry.shape)))
