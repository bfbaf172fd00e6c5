"""A folded checkpoint and an adapter are the gated model, whatever the architecture."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from small_models import ARCHITECTURES, build

from headscope.errors import InputError
from headscope.heads import Gate, Geometry
from headscope.lm.feed_forward import feed_forward_gated, feed_forward_sites
from headscope.lm.model import LanguageModel
from headscope.use.exporting import fold_checkpoint, hollow_model, ia3_adapter
from headscope.use.exporting.checkpoint import bytes_of
from headscope.use.exporting.scaling import output_projections
from lm_helpers import folded, logits, sample_batch, saved, tokenizer, wrapped

#: Biases, Conv1D, a fused projection, soft caps and tied words, experts in two layouts, a hybrid,
#: latent values, a norm before W_O, a prefix of its own, sinks.
FOLDED = ("llama", "gpt2", "phi3", "gemma2", "mixtral", "qwen3_moe", "qwen3_next", "deepseek_v3",
          "bitnet", "opt")  # fmt: skip


def loaded(folder: Path, dtype: torch.dtype = torch.float32) -> Any:
    """As anybody loads a model."""
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()


def hollow(folder: Path) -> LanguageModel:
    from transformers import AutoConfig

    return hollow_model("model", folder, AutoConfig.from_pretrained(folder), tokenizer())


def gate_of(geometry: Geometry, values: tuple[float, ...], seed: int = 0) -> Gate:
    drawn = np.random.default_rng(seed).choice(values, geometry.shape)
    drawn[:, 0] = values[0]
    return Gate(geometry, np.where(geometry.mask(), drawn, 1))


def tensors(folder: Path) -> dict[str, torch.Tensor]:
    return {
        name: tensor
        for file in sorted(folder.glob("*.safetensors"))
        for name, tensor in load_file(file).items()
    }


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    folder = saved(tmp_path / "model", "llama")
    return folder


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_hollow_model_has_the_heads_of_the_real_one(name: str) -> None:
    real = LanguageModel.wrap(build(name), check=False)
    empty = hollow_model(name, Path("nowhere"), real.model.config)
    assert empty.geometry == real.geometry
    for one, other in zip(empty.sites, real.sites, strict=True):
        assert one.projection_name == other.projection_name
        assert (one.layer, one.heads, one.head_width) == (
            other.layer,
            other.heads,
            other.head_width,
        )
    shapes = {key: (value.shape, value.dtype) for key, value in real.model.state_dict().items()}
    assert shapes == {
        key: (value.shape, value.dtype) for key, value in empty.model.state_dict().items()
    }
    # All of its parameters together take less than one of the real ones.
    held = {one.untyped_storage().data_ptr(): one.untyped_storage().nbytes()
            for one in empty.model.parameters()}  # fmt: skip
    assert sum(held.values()) <= 4 * len(held)


@pytest.mark.parametrize("name", FOLDED)
def test_a_folded_checkpoint_and_an_adapter_are_the_gated_model(name: str, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft", reason="adapters are read by PEFT")
    build(name).save_pretrained(tmp_path / "model", max_shard_size="60KB")
    assert len(list((tmp_path / "model").glob("*.safetensors"))) > 1
    model = hollow(tmp_path / "model")
    real = LanguageModel.wrap(loaded(tmp_path / "model"), check=False)
    batch = sample_batch()
    plain = logits(real.model, batch)
    # A mere copy of a qwen3_next differs from it by that much: its sums of chunks depend on where
    # in memory the weights lie.
    exact = 1e-5 if name == "qwen3_next" else 0.0
    for place, values, most in (("whole", (0.0, 1.0), exact), ("part", (0.3, 1.0, 1.7), 2e-4)):
        gate = gate_of(model.geometry, values)
        fold_checkpoint(model, gate, tmp_path / place, max_shard_size="100KB")
        ia3_adapter(model, gate, tmp_path / f"{place}-adapter")
        with real.gated(gate):
            wanted = logits(real.model, batch)
        assert (wanted - plain).abs().max() > 0.05
        found = logits(loaded(tmp_path / place), batch)
        assert (found - wanted).abs().max() <= most
        adapted = peft.PeftModel.from_pretrained(
            loaded(tmp_path / "model"), tmp_path / f"{place}-adapter"
        ).eval()
        assert (logits(adapted, batch) - wanted).abs().max() <= most


def test_only_the_slices_of_gated_heads_change_and_dtypes_stay(tmp_path: Path) -> None:
    build("llama").to(torch.bfloat16).save_pretrained(tmp_path / "model", max_shard_size="50KB")
    model = hollow(tmp_path / "model")
    gate = gate_of(model.geometry, (0.0, 0.3, 1.0, -1.5), seed=3)
    done = fold_checkpoint(model, gate, tmp_path / "out")
    before, after = tensors(tmp_path / "model"), tensors(tmp_path / "out")
    real = LanguageModel.wrap(loaded(tmp_path / "model", torch.float32), check=False)
    twin = folded(real, torch.from_numpy(gate.values.copy())).state_dict()
    assert before.keys() == after.keys()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == set(done.changed)
    assert changed == {f"{site.projection_name}.weight" for site in model.sites}
    for name, tensor in after.items():
        assert tensor.dtype == torch.bfloat16
        assert torch.equal(tensor, twin[name].to(torch.bfloat16))


def test_a_checkpoint_of_the_base_model_alone_is_folded_under_its_own_names(tmp_path: Path) -> None:
    build("gpt2").transformer.save_pretrained(tmp_path / "model")
    names = tensors(tmp_path / "model")
    assert all(not name.startswith("transformer.") for name in names)
    model = hollow(tmp_path / "model")
    fold_checkpoint(model, gate_of(model.geometry, (0.0,)), tmp_path / "out")
    after = tensors(tmp_path / "out")
    assert after.keys() == names.keys()
    for layer in range(2):
        assert (after[f"h.{layer}.attn.c_proj.weight"] == 0).all()
        bias = f"h.{layer}.attn.c_proj.bias"
        assert torch.equal(after[bias], names[bias]) and (after[bias] != 0).any()


@pytest.mark.parametrize("name", ["llama", "gpt2", "granite", "cohere"])
def test_feed_forward_gates_are_folded_where_one_map_writes(name: str, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft", reason="adapters are read by PEFT")
    build(name).save_pretrained(tmp_path / "model")
    model = hollow(tmp_path / "model")
    real = LanguageModel.wrap(loaded(tmp_path / "model"), check=False)
    parts = np.array([0.0, 0.4], dtype=np.float32)
    gate = gate_of(model.geometry, (0.0, 1.0))
    fold_checkpoint(model, gate, tmp_path / "out", feed_forward=parts)
    ia3_adapter(model, gate, tmp_path / "adapter", feed_forward=parts)
    batch = sample_batch()
    with real.gated(gate), feed_forward_gated(real, torch.from_numpy(parts)):
        wanted = logits(real.model, batch)
    assert (logits(loaded(tmp_path / "out"), batch) - wanted).abs().max() < 2e-5
    adapted = peft.PeftModel.from_pretrained(loaded(tmp_path / "model"), tmp_path / "adapter")
    assert (logits(adapted.eval(), batch) - wanted).abs().max() < 2e-5


@pytest.mark.parametrize("name", ["gemma2", "olmo2", "mixtral", "qwen2_moe", "phimoe", "gpt_oss"])
def test_feed_forward_gates_behind_norms_or_of_experts_are_refused(name: str) -> None:
    model = hollow_model(name, Path("nowhere"), build(name).config)
    with pytest.raises(InputError, match=r"layer 1: no single linear map writes .* use adapt"):
        output_projections(model, [1])


def test_the_map_found_without_weights_lies_in_the_part_found_with_them() -> None:
    for name in ("llama", "gpt2", "falcon", "deepseek_v3"):
        real = LanguageModel.wrap(build(name), check=False)
        empty = hollow_model(name, Path("nowhere"), real.model.config)
        (site, *_) = feed_forward_sites(real)
        found = output_projections(empty, [0])[0]
        assert any(found == part or found.startswith(f"{part}.") for part in site.names)


def test_one_tensor_at_a_time_is_read_whole_and_only_if_it_changes(
    llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headscope.use.exporting.tensors import Stored

    read: list[str] = []
    plain = Stored.read

    def noted(self: Stored) -> bytearray:
        read.append(self.name)
        return plain(self)

    monkeypatch.setattr(Stored, "read", noted)
    model = hollow(llama)
    values = np.ones(model.geometry.shape)
    values[1, 2] = 0
    done = fold_checkpoint(model, Gate(model.geometry, values), tmp_path / "out")
    assert read == list(done.changed) == ["model.layers.1.self_attn.o_proj.weight"]


def test_shards_and_index_are_as_transformers_writes_them(llama: Path, tmp_path: Path) -> None:
    import json

    model = hollow(llama)
    done = fold_checkpoint(
        model, gate_of(model.geometry, (0.0,)), tmp_path / "out", max_shard_size="40KB"
    )
    assert len(done.files) > 2 and not (tmp_path / "out" / "model.safetensors").exists()
    index = json.loads((tmp_path / "out" / "model.safetensors.index.json").read_text())
    for name, file in index["weight_map"].items():
        with safe_open(tmp_path / "out" / file, framework="pt") as opened:
            assert name in opened.keys()  # noqa: SIM118 - no mapping, it has keys() alone
            assert opened.metadata() == {"format": "pt"}
    assert index["metadata"]["total_size"] == done.size
    assert set(index["weight_map"]) == set(tensors(llama))
    kept = {file.name for file in llama.glob("*.json")} | {"model.safetensors.index.json"}
    assert {file.name for file in (tmp_path / "out").glob("*.json")} == kept


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "generation_config.json"])
def test_what_belongs_to_the_model_goes_along_byte_by_byte(
    llama: Path, tmp_path: Path, name: str
) -> None:
    (llama / "LICENSE").write_text("Terms.")
    (llama / "chat_template.jinja").write_text("{{ messages }}")
    (llama / "modeling_own.py").write_text("print('never')")
    model = hollow(llama)
    fold_checkpoint(model, gate_of(model.geometry, (0.0,)), tmp_path / "out")
    for one in (name, "LICENSE", "chat_template.jinja"):
        assert (tmp_path / "out" / one).read_bytes() == (llama / one).read_bytes()
    assert not list((tmp_path / "out").glob("*.py"))


def test_sizes_are_read_as_people_write_them() -> None:
    assert [bytes_of(one) for one in ("5GB", "1.5 mb", "40KB", 7)] == [5 * 10**9, 1500000, 40000, 7]
    for wrong in ("five", "0GB", "-1MB", "GB", "infGB", "nan"):
        with pytest.raises(InputError, match="is not a size of a file"):
            bytes_of(wrong)


def test_a_product_that_no_longer_fits_its_dtype_is_refused(tmp_path: Path) -> None:
    build("llama").to(torch.float16).save_pretrained(tmp_path / "model")
    model = hollow(tmp_path / "model")
    gate = gate_of(model.geometry, (1e6,))
    with pytest.raises(InputError, match=r"o_proj.weight times the gate is not finite in F16"):
        fold_checkpoint(model, gate, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_w_o_that_is_missing_or_of_another_shape_is_refused(llama: Path, tmp_path: Path) -> None:
    model = hollow(llama)
    name = "model.layers.1.self_attn.o_proj.weight"
    whole = tensors(llama)
    for change, message in (
        ({}, rf"layer 1, W_O: 0 tensors of the checkpoint become {name}"),
        ({name: torch.zeros(4, 4)}, r"has the shape \(4, 4\), but config.json asks for \(48, 64\)"),
    ):
        rest = {key: value for key, value in whole.items() if key != name} | change
        save_file(rest, llama / "model.safetensors", {"format": "pt"})
        with pytest.raises(InputError, match=message):
            fold_checkpoint(model, gate_of(model.geometry, (0.0,)), tmp_path / "out")
        assert not (tmp_path / "out").exists()


def test_quantised_weights_are_refused_with_the_reason(llama: Path, tmp_path: Path) -> None:
    import json

    model = hollow(llama)
    config = json.loads((llama / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "gptq", "bits": 4}
    (llama / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match=r"quantised \(gptq\): one number scales a block of them"):
        fold_checkpoint(model, gate_of(model.geometry, (0.0,)), tmp_path / "out")
    # An adapter leaves the weights alone.
    ia3_adapter(model, gate_of(model.geometry, (0.0,)), tmp_path / "adapter")
    assert (tmp_path / "adapter" / "adapter_model.safetensors").is_file()


def test_a_configuration_that_makes_no_model_is_refused() -> None:
    config = copy.deepcopy(wrapped("llama").model.config)
    config.hidden_act = "none of them"
    with pytest.raises(InputError, match=r"no model can be built from its config\.json"):
        hollow_model("model", Path("nowhere"), config)
