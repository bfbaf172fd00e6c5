"""Quantised weights: gates and peaks stay exact, whatever the weights are stored as.

The measure is a twin: the same model with ordinary weights, set to the numbers that the quantised
ones stand for. With weights alone in 4 bits nothing may differ. LLM.int8 rounds what its layers
read, too, and a gate changes what is read; so there the twin is followed within that rounding.
"""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from conftest import json_of
from headscope.errors import InputError, MissingExtra
from headscope.heads import HeadSet
from headscope.lm import LanguageModel
from headscope.lm.batching import Batch
from headscope.lm.check import check_model
from headscope.lm.checkpoints import digest_of_state
from headscope.lm.generation import GenerateConfig
from headscope.lm.loading import load
from headscope.lm.losses import row_losses, token_losses
from headscope.lm.prefix import can_share
from headscope.lm.weights import dequantised_weight, is_plain, quantisation
from headscope.runs.signature import configuration
from headscope.studies.models import ModelChoice, about_model, model_inputs
from headscope.use.rating import rate_texts
from lm_helpers import build, logits, sample_batch, saved, tokenizer

needs_bitsandbytes = pytest.mark.skipif(
    importlib.util.find_spec("bitsandbytes") is None,
    reason="8- and 4-bit weights need bitsandbytes, which has no build for every platform",
)
KINDS = ("8bit", "4bit")
#: Grouped keys, and Conv1D with biases; widths are multiples of 64, as those of real models are.
WIDE = {"llama": {"hidden_size": 128}, "gpt2": {"n_embd": 64}}
#: The 16 numbers of NF4 (Dettmers et al., NeurIPS 2023, appendix E).
NF4 = torch.tensor(
    [
        *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
        *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
        *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
        *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
    ]
)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    return {name: saved(root / name, name, overrides=WIDE[name]) for name in WIDE}


@pytest.fixture(scope="module", params=[(name, kind) for name in WIDE for kind in KINDS], ids=str)
def quantised(request: pytest.FixtureRequest, folders: dict[str, Path]) -> LanguageModel:
    if importlib.util.find_spec("bitsandbytes") is None:
        pytest.skip("8- and 4-bit weights need bitsandbytes")
    name, kind = request.param
    return load(folders[name], device="cpu", quantise=kind)


@pytest.fixture(scope="module")
def twin(quantised: LanguageModel) -> LanguageModel:
    return twin_of(quantised)


def ordinary(lm: LanguageModel) -> Any:
    name = lm.model.config.model_type
    return build(name, overrides=WIDE[name])


def twin_of(lm: LanguageModel) -> LanguageModel:
    """The ordinary model with the numbers of the quantised one as its weights."""
    model = ordinary(lm)
    for name, module in lm.model.named_modules():
        if hasattr(module, "in_features") and not is_plain(module):
            own = model.get_submodule(name)
            weight = dequantised_weight(module)
            own.weight.data = (weight if isinstance(own, nn.Linear) else weight.T).clone()
    return LanguageModel.wrap(model, tokenizer(), check=False)


def rounds(lm: LanguageModel) -> bool:
    return str(lm.quantised).endswith("8 bits")


def gates(lm: LanguageModel) -> list[torch.Tensor]:
    """Fractions for the model, zeros and ones for the model, fractions by row."""
    generator = torch.Generator().manual_seed(1)
    drawn = torch.rand(5, lm.geometry.layers, lm.geometry.width, generator=generator)
    return [drawn[0], (drawn[1] > 0.5).float(), drawn[2:]]


def off(one: torch.Tensor, other: torch.Tensor, batch: Batch) -> float:
    """Largest difference, in standard deviations of the logits."""
    seen = batch.attention_mask.bool()
    return float((one - other)[seen].abs().max() / other[seen].std())


def gradient(lm: LanguageModel, batch: Batch) -> torch.Tensor:
    rows = len(batch.input_ids)
    gate = torch.ones(rows, lm.geometry.layers, lm.geometry.width, requires_grad=True)
    learned = batch.attention_mask.bool()
    for row, padding in enumerate(batch.padding):
        learned[row, : padding + 1] = False
    with lm.gated(gate):
        row_losses(lm, batch, learned).sum().backward()
    assert gate.grad is not None
    return gate.grad


def test_gates_do_what_they_do_to_the_twin(quantised: LanguageModel, twin: LanguageModel) -> None:
    batch = sample_batch()
    plain = logits(twin.model, batch)
    assert off(logits(quantised.model, batch), plain, batch) <= (0.4 if rounds(quantised) else 0)
    for gate in gates(quantised):
        with quantised.gated(gate):
            found = logits(quantised.model, batch)
        with twin.gated(gate):
            wanted = logits(twin.model, batch)
        assert off(found, wanted, batch) <= (0.4 if rounds(quantised) else 0)
        assert off(plain, wanted, batch) > 1  # a gate moves far more than rounding does


def test_peaks_losses_gradients_and_generation(
    quantised: LanguageModel, twin: LanguageModel
) -> None:
    batch, near = sample_batch(), rounds(quantised)
    found = []
    for lm in (quantised, twin):
        with lm.attention_peaks() as peaks:
            logits(lm.model, batch)
        found.append(peaks.keys)
    assert float((found[0] == found[1]).float().mean()) >= (0.95 if near else 1)
    ids = batch.input_ids.tolist()
    rows = [row[padding:] for row, padding in zip(ids, batch.padding, strict=True)]
    pairs = zip(token_losses(quantised, rows), token_losses(twin, rows), strict=True)
    assert max(float(np.abs(one - other).max()) for one, other in pairs) <= (0.2 if near else 0)
    one, other = gradient(quantised, batch), gradient(twin, batch)
    assert float((one - other).abs().max()) <= (0.1 if near else 0) * float(other.abs().max())
    config = GenerateConfig(max_new_tokens=4)
    texts = ["abc", "a dog"]
    with quantised.gated(gates(quantised)[1]):
        written = quantised.generate(texts, config)
        assert written == quantised.generate(texts, config)
    if not near:
        with twin.gated(gates(twin)[1]):
            assert written == twin.generate(texts, config)
    gate = HeadSet(quantised.geometry, [(1, 1)]).removed()
    for rated, wanted in zip(
        rate_texts(quantised, texts, gate), rate_texts(twin, texts, gate), strict=True
    ):
        assert abs(rated.nll_full - wanted.nll_full) <= (0.1 if near else 0)
        assert abs(rated.score - wanted.score) <= (0.1 if near else 0)
    assert can_share(quantised)


def test_the_slow_reference_agrees(quantised: LanguageModel) -> None:
    report = check_model(quantised)
    assert report.passed, report
    assert report.gate_difference == 0.0


def test_the_numbers_are_those_of_the_papers(quantised: LanguageModel) -> None:
    model = ordinary(quantised)
    site = quantised.sites[1]
    assert not is_plain(site.projection)
    own = model.get_submodule(site.projection_name)
    weight = own.weight if isinstance(own, nn.Linear) else own.weight.T
    weight = weight.detach().contiguous()
    if rounds(quantised):
        steps = weight.abs().amax(dim=1, keepdim=True) / 127
        wanted = torch.round(weight / steps) * steps
        # Done in 16 bits: figures are rounded there, and ties may go either way.
        close = wanted.abs() / 1024 + (weight / steps % 1 - 0.5).abs().lt(0.1) * steps
    else:
        blocks = weight.reshape(-1, 64)
        largest = blocks.abs().amax(dim=1, keepdim=True)
        nearest = (blocks / largest).unsqueeze(-1).sub(NF4).abs().argmin(dim=-1)
        wanted = (NF4[nearest] * largest).reshape(weight.shape)
        close = torch.tensor(1e-6)
    found = dequantised_weight(site.projection)
    assert found.dtype == torch.float32 and found.shape == weight.shape
    assert bool(((found - wanted).abs() <= close).all())


def test_signatures_tell_quantised_models_apart(
    quantised: LanguageModel, folders: dict[str, Path]
) -> None:
    name = quantised.model.config.model_type
    plain = load(folders[name], device="cpu", check=False)
    here, there = model_inputs(quantised), model_inputs(plain)
    assert here["model"] == there["model"]  # the files are the same
    assert here["model configuration"] != there["model configuration"]
    assert digest_of_state(quantised.model) != digest_of_state(plain.model)
    assert (plain.quantised, about_model(plain)["quantised"]) == (None, None)
    about = about_model(quantised)
    assert about["parameters"] == about_model(plain)["parameters"]
    assert about["quantised"] == quantised.quantised
    kinds = {json.dumps(configuration(ModelChoice(quantise=kind))) for kind in (None, *KINDS)}
    assert len(kinds) == 3


def test_a_quantised_checkpoint_is_loaded_as_it_is(
    quantised: LanguageModel, tmp_path: Path
) -> None:
    quantised.model.save_pretrained(tmp_path)
    tokenizer().save_pretrained(tmp_path)
    again = load(tmp_path, device="cpu")
    assert again.quantised == quantised.quantised
    batch = sample_batch()
    assert torch.equal(logits(again.model, batch), logits(quantised.model, batch))
    assert digest_of_state(again.model) == digest_of_state(quantised.model)
    with pytest.raises(InputError, match="is quantised already; leave quantise out"):
        load(tmp_path, quantise="4bit")


@needs_bitsandbytes
def test_what_does_not_fit_is_refused(folders: dict[str, Path]) -> None:
    with pytest.raises(InputError, match="cannot wait in memory or on disk"):
        load(folders["llama"], device_map="auto", max_memory={"cpu": "20KB"}, quantise="4bit")


@needs_bitsandbytes
def test_widths_that_are_read_wrongly_on_the_cpu_are_refused(tmp_path: Path) -> None:
    saved(tmp_path, "llama")  # 48 wide
    with pytest.raises(InputError, match=r"no multiple of 64 \(model.layers.0.*has 48\)"):
        load(tmp_path, device="cpu", quantise="4bit")
    assert load(tmp_path, device="cpu", quantise="8bit").geometry.total == 8


@needs_bitsandbytes
def test_the_command_line_quantises(command: Any, folders: dict[str, Path]) -> None:
    said = command("check", folders["llama"], "--quantise", "4bit", "--device", "cpu", "--json")
    assert said.code == 0, said.err
    quantised = json_of(said.out)
    said = command("check", folders["llama"], "--device", "cpu", "--json")
    assert quantised["passed"] and quantised["signature"] != json_of(said.out)["signature"]


def test_quantising_without_the_package(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"pip install 'headscope\[quantised\]'"):
        load(folders["llama"], quantise="8bit")
    with pytest.raises(InputError, match="must be 8bit or 4bit"):
        quantisation("2bit", torch.float32)


class Rounding(nn.Linear):
    """A layer that rounds what it reads, token by token, to so many bits."""

    bits = 8
    source: nn.Linear

    @classmethod
    def around(cls, source: nn.Linear) -> Rounding:
        made = cls(source.in_features, source.out_features, source.bias is not None)
        made.load_state_dict(source.state_dict())
        return made

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        step = x.abs().amax(dim=-1, keepdim=True).clamp_min(1e-30) / (2 ** (self.bits - 1) - 1)
        return functional.linear(torch.round(x / step) * step, self.weight, self.bias)


class Coarse(Rounding):
    bits = 4


class Deaf(nn.Linear):
    """A layer that computes, but not for gradients."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return super().forward(x)


def replaced(kind: type[nn.Linear]) -> Any:
    model = build("llama")
    for layer in model.model.layers:
        own = layer.self_attn.o_proj
        layer.self_attn.o_proj = kind(own.in_features, own.out_features, own.bias is not None)
        layer.self_attn.o_proj.load_state_dict(own.state_dict())
    return model


def test_the_self_check_grants_the_rounding_of_8_bits_and_no_more() -> None:
    lm = LanguageModel.wrap(replaced(Rounding), tokenizer())
    batch = sample_batch()
    whole = LanguageModel.wrap(build("llama"), tokenizer(), check=False)
    gate = gates(lm)[1]
    with lm.gated(gate), whole.gated(gate):
        assert 0 < off(logits(lm.model, batch), logits(whole.model, batch), batch) < 0.2
    # A single 1 needs no rounding, so the weight can be read through the layer.
    projection = lm.sites[0].projection
    weight = whole.sites[0].projection.weight
    assert torch.allclose(dequantised_weight(projection), weight, atol=1e-6)
    with pytest.raises(InputError, match="do not sum to the output"):
        LanguageModel.wrap(replaced(Coarse), tokenizer())


def test_a_gradient_that_is_lost_raises() -> None:
    lm = LanguageModel.wrap(replaced(Deaf), tokenizer())
    batch = sample_batch()
    logits(lm.model, batch)
    with pytest.raises(InputError, match=r"gate is lost in 'model\.layers\.0\.self_attn\.o_proj'"):
        gradient(lm, batch)
    with torch.no_grad(), lm.gated(torch.ones(2, 4, requires_grad=True)):
        lm.model(input_ids=batch.input_ids)


@pytest.mark.parametrize(
    "config", ["Int8WeightOnlyConfig", "Int8DynamicActivationInt8WeightConfig"]
)
def test_weights_that_are_tensors_of_their_own_kind(config: str, folders: dict[str, Path]) -> None:
    """torchao leaves the Linear and changes its weight; with rounded inputs it has no gradient."""
    quantization = pytest.importorskip(
        "torchao.quantization", reason="torchao is an alternative that headscope does not install"
    )
    from transformers import AutoModelForCausalLM, TorchAoConfig

    model = AutoModelForCausalLM.from_pretrained(
        folders["llama"], quantization_config=TorchAoConfig(getattr(quantization, config)())
    )
    lm = LanguageModel.wrap(model.requires_grad_(False), tokenizer())
    twin, batch = twin_of(lm), sample_batch()
    assert lm.quantised == "torchao" and re.fullmatch("[0-9a-f]{64}", lm.digest)
    for gate in gates(lm):
        with lm.gated(gate), twin.gated(gate):
            difference = off(logits(lm.model, batch), logits(twin.model, batch), batch)
        assert difference < (1e-4 if config == "Int8WeightOnlyConfig" else 0.4)
    if config == "Int8WeightOnlyConfig":
        one, other = gradient(lm, batch), gradient(twin, batch)
        assert torch.allclose(one, other, atol=1e-4)
    else:
        with pytest.raises(InputError, match="gradient of a gate is lost"):
            gradient(lm, batch)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@needs_bitsandbytes
@pytest.mark.parametrize("kind", KINDS)
def test_on_a_gpu(kind: str, folders: dict[str, Path]) -> None:
    lm = load(folders["llama"], device="cuda", dtype="bfloat16", quantise=kind)
    assert lm.device.type == "cuda" and check_model(lm).gate_difference == 0.0
    assert bool((gradient(lm, sample_batch()) != 0).all())
