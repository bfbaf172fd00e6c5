"""A LoRA adapter is the gated model, at every scale and whatever the architecture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from small_models import ARCHITECTURES, build
from torch import nn

from headscope.errors import InputError
from headscope.heads import Gate, HeadSet
from headscope.lm.model import LanguageModel
from headscope.use.exporting import lora_adapter
from headscope.use.exporting.lora import heads_within
from headscope.use.exporting.proof import ProofReference, compare, lora_loaded
from lm_helpers import logits, sample_batch, tokenizer, wrapped

peft = pytest.importorskip("peft", reason="adapters are read by PEFT")


def drawn(lm: LanguageModel, values: tuple[float, ...] = (0.0, 0.3, 1.0, 1.7)) -> Gate:
    numbers = np.random.default_rng(0).choice(values, lm.geometry.shape)
    numbers[:, 0] = values[0]
    return Gate(lm.geometry, np.where(lm.geometry.mask(), numbers, 1))


def adapter(folder: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    config = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    return config, load_file(folder / "adapter_model.safetensors")


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_an_adapter_is_the_gated_model_and_touches_w_o_alone(name: str, tmp_path: Path) -> None:
    lm = wrapped(name)
    gate, batch = drawn(lm), sample_batch()
    seen = batch.attention_mask.bool()
    done = lora_adapter(lm, gate, tmp_path / "adapter")
    plain = logits(lm.model, batch)[seen]
    with lm.gated(gate):
        wanted = logits(lm.model, batch)[seen]
    assert (wanted - plain).abs().max() > 0.05
    before = {key: value.clone() for key, value in lm.model.state_dict().items()}
    model = peft.PeftModel.from_pretrained(lm.model, tmp_path / "adapter").eval()
    most = 1e-5 * float(wanted.abs().max())
    assert (logits(model, batch)[seen] - wanted).abs().max() <= most
    # Merged, it is the checkpoint with the gate folded in: W_O's slices, and nothing else.
    after = model.merge_and_unload().state_dict()
    assert after.keys() == before.keys()
    changed = {key for key in before if not torch.equal(before[key], after[key])}
    assert changed == {f"{projection}.weight" for projection in done.changed}
    assert changed == {f"{site.projection_name}.weight" for site in lm.sites}


def test_the_matrices_are_columns_of_w_o_and_selections_of_one_rank(tmp_path: Path) -> None:
    lm = wrapped("llama")
    values = np.ones(lm.geometry.shape)
    values[0, 1], values[1, 0], values[1, 3] = 0.25, 0.0, 2.0
    done = lora_adapter(lm, Gate(lm.geometry, values), tmp_path / "adapter")
    config, tensors = adapter(tmp_path / "adapter")
    width = lm.sites[0].head_width
    assert config["r"] == config["lora_alpha"] == done.lora_rank == 2 * width
    assert config["target_modules"] == [site.projection_name for site in lm.sites]
    assert "rank_pattern" not in config and not config.get("use_rslora")
    assert config["bias"] == "none" and config["fan_in_fan_out"] is False
    for site in lm.sites:
        stem = f"base_model.model.{site.projection_name}.lora_"
        down, up = tensors[f"{stem}A.weight"], tensors[f"{stem}B.weight"]
        assert down.shape == (2 * width, 64) and up.shape == (48, 2 * width)
        factors = torch.tensor(values[site.layer], dtype=torch.float32).repeat_interleave(width)
        assert torch.equal(up @ down, site.projection.weight * (factors - 1))
    assert (
        tensors[f"base_model.model.{lm.sites[0].projection_name}.lora_B.weight"][:, width:] == 0
    ).all()


def test_layers_without_a_changed_head_have_no_part(tmp_path: Path) -> None:
    lm = wrapped("llama")
    done = lora_adapter(lm, HeadSet.parse("1.2", lm.geometry).removed(), tmp_path / "adapter")
    assert done.changed == ("model.layers.1.self_attn.o_proj",)
    assert done.lora_rank == lm.sites[0].head_width


@pytest.mark.parametrize("scale", [0.0, 0.5, 1.0, 1.5])
@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_at_a_scale_it_is_the_gate_that_much_nearer_to_one(
    name: str, scale: float, tmp_path: Path
) -> None:
    lm = wrapped(name)
    gate, batch = drawn(lm), sample_batch()
    lora_adapter(lm, gate, tmp_path / "adapter")
    with lm.gated(Gate(lm.geometry, 1 + scale * (gate.values - 1))):
        wanted = logits(lm.model, batch)
    model = peft.PeftModel.from_pretrained(lm.model, tmp_path / "adapter").eval()
    for module in model.modules():
        if hasattr(module, "lora_A"):
            assert module.scaling["default"] == 1
            module.set_scale("default", scale)
    assert (logits(model, batch) - wanted).abs().max() <= 2e-5


def test_adapters_of_single_heads_add_up_to_the_gate(tmp_path: Path) -> None:
    lm = wrapped("llama")
    batch = sample_batch()
    for name in ("0.1", "0.2", "1.3"):
        gate = HeadSet.parse(name, lm.geometry).removed()
        lora_adapter(lm, gate, tmp_path / name.replace(".", "-"))
    with lm.gated(HeadSet.parse("0.1,0.2,1.3", lm.geometry).removed()):
        wanted = logits(lm.model, batch)
    model = peft.PeftModel.from_pretrained(lm.model, tmp_path / "0-1", adapter_name="0-1")
    for name in ("0-2", "1-3"):
        model.load_adapter(tmp_path / name, adapter_name=name)
    model.base_model.set_adapter(["0-1", "0-2", "1-3"])
    assert (logits(model.eval(), batch) - wanted).abs().max() <= 2e-5


def test_the_rank_is_counted_and_refused_with_the_way_out(tmp_path: Path) -> None:
    lm = wrapped("llama")
    gate = HeadSet.parse("0.1,0.2,1.3", lm.geometry).removed()
    width = lm.sites[0].head_width
    assert heads_within(lm, 2 * width + 1) == 2 and heads_within(lm) == 4
    with pytest.raises(InputError, match=rf"rank is {2 * width}, more than {width} .* 1 heads .*"
                       r"--as checkpoint"):  # fmt: skip
        lora_adapter(lm, gate, tmp_path / "adapter", rank_limit=width)
    assert not list(tmp_path.iterdir())
    assert lora_adapter(lm, gate, tmp_path / "adapter", rank_limit=2 * width).lora_rank == 2 * width


class Mixing(nn.Module):
    """A linear map that is neither a Linear nor a Conv1D."""

    def __init__(self, inner: nn.Linear) -> None:
        super().__init__()
        self.weight, self.bias = inner.weight, inner.bias
        self.in_features, self.out_features = inner.in_features, inner.out_features

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(states, self.weight, self.bias)


def test_a_projection_of_another_kind_is_refused_with_the_reason(tmp_path: Path) -> None:
    model = build("llama")
    model.model.layers[1].self_attn.o_proj = Mixing(model.model.layers[1].self_attn.o_proj)
    lm = LanguageModel.wrap(model, tokenizer(), check=False)
    gates = [HeadSet.parse(name, lm.geometry).removed() for name in ("0.1", "1.1")]
    lora_adapter(lm, gates[0], tmp_path / "adapter")
    with pytest.raises(InputError, match=r"o_proj is a Mixing, neither a Linear nor a Conv1D"):
        lora_adapter(lm, gates[1], tmp_path / "other")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_proof_measures_rounding_and_sees_a_wrong_adapter(
    dtype: torch.dtype, tmp_path: Path
) -> None:
    lm = LanguageModel.wrap(build("llama").to(dtype), tokenizer(), check=False)
    gate = drawn(lm)
    lora_adapter(lm, gate, tmp_path / "adapter")
    reference = ProofReference.of(lm, gate, low_rank=True)
    with lora_loaded(lm.model, tmp_path / "adapter", gate, lm.sites) as model:
        proof = compare(reference, model, dtype)
    assert proof.noise is not None and proof.noise > 0
    assert proof.largest_difference <= proof.allowed < 0.2 * proof.untouched_difference
    if dtype == torch.float32:
        assert proof.allowed <= 2e-5 * proof.largest_logit
    # By its logits: the same adapter at another scale.
    with (
        pytest.raises(InputError, match="differs from the gated one by up to"),
        lora_loaded(lm.model, tmp_path / "adapter", gate, lm.sites) as model,
    ):
        for module in model.modules():
            if hasattr(module, "lora_A"):
                module.set_scale("default", 0.7)
        compare(reference, model, dtype)
    # By its numbers, where its logits differ by less than rounding: one head a little stronger.
    values = gate.values.copy()
    values[1, 1] += 0.001
    lora_adapter(lm, Gate(lm.geometry, values), tmp_path / "wrong")
    with (
        pytest.raises(InputError, match=r"changes model\.layers\.1\.self_attn\.o_proj by up to"),
        lora_loaded(lm.model, tmp_path / "wrong", gate, lm.sites),
    ):
        pass
    # The model is as it was.
    assert not any(hasattr(module, "lora_A") for module in lm.model.modules())


def test_the_proof_sees_an_adapter_on_other_modules_and_a_base_that_changed(
    tmp_path: Path,
) -> None:
    lm = wrapped("gpt2")
    gate = drawn(lm)
    lora_adapter(lm, gate, tmp_path / "adapter")
    config, _ = adapter(tmp_path / "adapter")
    assert config["fan_in_fan_out"] is True
    with lora_loaded(lm.model, tmp_path / "adapter", gate, lm.sites):
        pass
    with (
        pytest.raises(InputError, match="weights of the base model were changed"),
        lora_loaded(lm.model, tmp_path / "adapter", gate, lm.sites),
        torch.no_grad(),
    ):
        lm.model.transformer.h[0].mlp.c_fc.weight.mul_(1)
    # By its last name alone it would be on the feed-forward part too.
    config["target_modules"] = ["c_proj"]
    (tmp_path / "adapter" / "adapter_config.json").write_text(json.dumps(config))
    with (
        pytest.raises(InputError, match=r"on other modules than the gated ones \(.*mlp.c_proj\)"),
        lora_loaded(lm.model, tmp_path / "adapter", gate, lm.sites),
    ):
        pass


def test_weights_of_a_folder_are_read_one_layer_at_a_time(tmp_path: Path) -> None:
    from transformers import AutoConfig

    from headscope.use.exporting import hollow_model

    build("gpt2").to(torch.bfloat16).save_pretrained(tmp_path / "model")
    config = AutoConfig.from_pretrained(tmp_path / "model")
    hollow = hollow_model("model", tmp_path / "model", config, tokenizer())
    lm = LanguageModel.wrap(build("gpt2").to(torch.bfloat16), check=False)
    gate = drawn(lm)
    lora_adapter(hollow, gate, tmp_path / "hollow")
    lora_adapter(lm, gate, tmp_path / "loaded")
    one, other = (adapter(tmp_path / name)[1] for name in ("hollow", "loaded"))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[key], other[key]) for key in one)


def test_a_file_for_llama_cpp_has_its_names_and_the_same_numbers(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    lm = wrapped("mistral")
    done = lora_adapter(lm, drawn(lm), tmp_path / "adapter", gguf=True)
    assert done.files[-1] == "adapter.gguf"
    reader = gguf.GGUFReader(tmp_path / "adapter" / "adapter.gguf")
    entries = {
        name: reader.get_field(name).contents()
        for name in ("general.type", "general.architecture", "adapter.type", "adapter.lora.alpha")
    }
    assert entries == {
        "general.type": "adapter",
        "general.architecture": "llama",
        "adapter.type": "lora",
        "adapter.lora.alpha": done.lora_rank,
    }
    _, tensors = adapter(tmp_path / "adapter")
    stored = {tensor.name: tensor for tensor in reader.tensors}
    assert len(stored) == len(tensors) == 4
    for layer in (0, 1):
        for letter in "AB":
            own = tensors[
                f"base_model.model.model.layers.{layer}.self_attn.o_proj.lora_{letter}.weight"
            ]
            other = stored[f"blk.{layer}.attn_output.weight.lora_{letter.lower()}"]
            assert other.tensor_type.name == "F32"
            assert np.array_equal(other.data, own.numpy())
    with pytest.raises(
        InputError, match=r"not known what llama\.cpp calls the architecture 'bitnet2'"
    ):
        lm.model.config.model_type = "bitnet2"
        lora_adapter(lm, drawn(lm), tmp_path / "other", gguf=True)
    assert not (tmp_path / "other").exists()
