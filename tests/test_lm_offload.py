"""Models whose layers lie partly in memory and partly on disk compute what they do in memory.

Offload to memory and disk is what can be tried without a GPU; ``accelerate`` places hooks around
every module in the same way for several GPUs.
"""

from __future__ import annotations

import contextlib
import gc
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from shards import ROWS, values

from conftest import json_of
from fake_devices import PLACES, two_devices
from fake_devices import spread as spread_over_two
from headscope.errors import InputError
from headscope.heads import HeadSet
from headscope.lm import LanguageModel
from headscope.lm.batching import Batch, collate
from headscope.lm.checkpoints import digest_of_state
from headscope.lm.feed_forward import feed_forward_gated
from headscope.lm.generation import GenerateConfig
from headscope.lm.inputs import forward_inputs
from headscope.lm.lens import lens
from headscope.lm.loading import load
from headscope.lm.losses import checkpointed, row_losses, token_losses
from headscope.lm.patching import Patch, head_outputs, patched
from headscope.lm.prefix import can_share, last_token, record_prefix, replay_prefix
from headscope.lm.states import states
from headscope.lm.weights import (
    computes_on_cpu,
    dequantised_weight,
    input_device,
    memory_limits,
    stored_tensor,
)
from headscope.use.rating import rate_texts
from lm_helpers import build, logits, sample_batch, saved, tokenizer, wrapped

pytest.importorskip("accelerate", reason="device maps need accelerate")

TEXTS = ("The small dog sees a cat.", "Der Hund", "el gato ve un perro y un gato")
#: The pocket has 8.9 MB in float32.
SOME = {"cpu": "5MB"}


@pytest.fixture(scope="module")
def spread() -> LanguageModel:
    """The pocket with layer 0 in memory and all others on disk."""
    return load("pocket", device_map="auto", max_memory=SOME)


@pytest.fixture(scope="module")
def batch(pocket: LanguageModel) -> Batch:
    return collate([pocket.encode(text) for text in TEXTS], pocket.pad_token_id)


def gate_of(lm: LanguageModel, *shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    return torch.rand(*shape, lm.geometry.layers, lm.geometry.width, generator=generator)


def gradient(lm: LanguageModel, batch: Batch, twice: bool = False) -> torch.Tensor:
    gate = gate_of(lm, len(batch.input_ids)).requires_grad_()
    learned = batch.attention_mask.bool()
    for row, padding in enumerate(batch.padding):
        learned[row, : padding + 1] = False
    with lm.gated(gate), checkpointed(lm) if twice else contextlib.nullcontext():
        row_losses(lm, batch, learned).sum().backward()
    assert gate.grad is not None
    return gate.grad


def test_layers_really_lie_on_disk(spread: LanguageModel) -> None:
    places = spread.model.hf_device_map
    assert places["model.layers.0"] == "cpu" and places["model.layers.5"] == "disk"
    assert spread.sites[5].projection.weight.device.type == "meta"
    assert spread.sites[0].projection.weight.device.type == "cpu"
    assert spread.device.type == "cpu" and spread.dtype == torch.float32


def test_gates_of_the_model_and_of_rows(
    pocket: LanguageModel, spread: LanguageModel, batch: Batch
) -> None:
    plain = logits(pocket.model, batch)
    assert torch.equal(logits(spread.model, batch), plain)
    for gate in (gate_of(pocket), gate_of(pocket, 3)):
        with pocket.gated(gate):
            wanted = logits(pocket.model, batch)
        with spread.gated(gate):
            assert torch.equal(logits(spread.model, batch), wanted)
        assert not torch.equal(wanted, plain)


def test_peaks_losses_states_and_generation(
    pocket: LanguageModel, spread: LanguageModel, batch: Batch
) -> None:
    found = []
    for lm in (pocket, spread):
        with lm.attention_peaks() as peaks:
            logits(lm.model, batch)
        found.append(peaks.keys)
    assert torch.equal(*found)
    rows = [pocket.encode(text) for text in TEXTS]
    for one, other in zip(token_losses(pocket, rows), token_losses(spread, rows), strict=True):
        assert np.array_equal(one, other)
    here, there = states(pocket, rows), states(spread, rows)
    assert torch.equal(here.after_attention, there.after_attention)
    assert torch.equal(
        lens(spread, there.after_layer).tokens, lens(pocket, here.after_layer).tokens
    )
    config = GenerateConfig(max_new_tokens=4)
    assert spread.generate(TEXTS, config) == pocket.generate(TEXTS, config)


@pytest.mark.parametrize("twice", [False, True], ids=["kept", "checkpointed"])
def test_gradients_reach_gates_of_layers_on_disk(
    pocket: LanguageModel, spread: LanguageModel, batch: Batch, twice: bool
) -> None:
    found = gradient(spread, batch, twice)
    assert torch.equal(found, gradient(pocket, batch))
    assert bool((found[:, 5] != 0).any())


def test_shared_layers_are_replayed(
    pocket: LanguageModel, spread: LanguageModel, batch: Batch
) -> None:
    assert can_share(spread)
    gate = torch.ones(pocket.geometry.layers, pocket.geometry.width)
    gate[3:] = gate_of(pocket)[3:]
    with pocket.gated(gate):
        wanted = logits(pocket.model, batch)
    with torch.no_grad(), record_prefix(spread, 3) as recording:
        spread.model(**forward_inputs(spread.model, batch))
    with replay_prefix(spread, recording.prefix()), spread.gated(gate):
        assert torch.equal(logits(spread.model, batch), wanted)
    assert torch.equal(logits(spread.model, batch), logits(pocket.model, batch))


def test_texts_are_rated_alike(pocket: LanguageModel, spread: LanguageModel) -> None:
    gate = HeadSet(pocket.geometry, [(2, 1), (4, 3)]).removed()
    assert rate_texts(spread, TEXTS, gate) == rate_texts(pocket, TEXTS, gate)


def test_digests_and_weights_are_of_what_waits_on_disk(
    pocket: LanguageModel, spread: LanguageModel
) -> None:
    assert spread.digest == pocket.digest
    assert digest_of_state(spread.model) == digest_of_state(pocket.model)
    for one, other in zip(spread.sites, pocket.sites, strict=True):
        assert torch.equal(dequantised_weight(one.projection), other.projection.weight.float())


def test_weights_stored_otherwise_go_to_a_folder_that_is_removed(tmp_path: Path) -> None:
    """Experts are stored one by one and computed as one, so they are written anew."""
    saved(tmp_path / "model", "mixtral")
    aside = tmp_path / "aside"
    aside.mkdir()
    lm = load(
        tmp_path / "model", device_map="auto", max_memory={"cpu": "20KB"}, offload_folder=aside
    )
    assert any(path.suffix == ".safetensors" for path in aside.rglob("*"))
    batch = sample_batch()
    assert torch.equal(logits(lm.model, batch), logits(build("mixtral"), batch))
    del lm
    gc.collect()
    assert not list(aside.iterdir())


def test_a_load_that_fails_leaves_no_folder(tmp_path: Path) -> None:
    saved(tmp_path / "model")
    weights = tmp_path / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    aside = tmp_path / "aside"
    aside.mkdir()
    with pytest.raises(InputError, match="damaged"):
        load(tmp_path / "model", device_map="auto", offload_folder=aside)
    assert not list(aside.iterdir())
    with pytest.raises(InputError, match="There is no folder"):
        load(tmp_path / "model", device_map="auto", offload_folder=tmp_path / "nowhere")
    with pytest.raises(InputError, match="give a device_map with them"):
        load(tmp_path / "model", max_memory={"cpu": "1GB"})
    assert Path(tempfile.gettempdir()).is_dir()


def test_the_command_line_finds_the_same_heads(command, tmp_path: Path) -> None:
    asked = ("find", "translation-score", "--limit", 2, "--pair", "en-de", "--json")
    placed = ("--device-map", "auto", "--max-memory", "cpu=5MB")
    results = []
    for name, options in (("memory", ("--device", "cpu")), ("disk", placed)):
        said = command(*asked, *options, "--out", tmp_path / name)
        assert said.code == 0, said.err
        result = json_of(said.out)
        results.append({key: result[key] for key in result if key not in ("run", "seconds")})
    assert results[0] == results[1]
    said = command(*asked, "--device-map", "auto", "--max-memory", "cpu=5", "--out", tmp_path / "x")
    assert said.code == 2 and "is not DEVICE=SIZE" in said.err
    said = command(*asked, "--offload-folder", tmp_path, "--out", tmp_path / "x")
    assert said.code == 2 and "give a device_map" in said.err


def everything(lm: LanguageModel) -> dict[str, Any]:
    parts = torch.linspace(0.2, 1, lm.geometry.layers)
    with feed_forward_gated(lm, parts):
        silenced = np.concatenate(token_losses(lm, ROWS))
    gates = gate_of(lm, 3)
    last = last_token(lm, ROWS[0], gates)
    with torch.no_grad(), head_outputs(lm) as outputs:
        lm.forward(lm.collate(ROWS))
    layers = torch.tensor([0, 1, -1])
    patch = Patch(layers, torch.tensor([1, 2, 0]), outputs.values[torch.arange(3), layers, 1])
    with torch.no_grad(), patched(lm, patch):
        after = lm.forward(lm.collate(ROWS)).logits[:, -1]
    found = states(lm, ROWS)
    return values(lm) | {
        "parts": silenced,
        "last": last.logits.cpu().numpy(),
        "layers": last.states.cpu().numpy(),
        "patched": after.cpu().numpy(),
        "states": found.after_attention.cpu().numpy(),
        "lens": lens(lm, found.after_layer).tokens.cpu().numpy(),
        "texts": [made.text for made in lm.generate(["abc", "hello you"], max_new_tokens=9)],
    }


@pytest.mark.parametrize("name", ["llama", "gemma2"])
def test_layers_on_two_devices_give_the_numbers_of_one(name: str) -> None:
    wanted = everything(wrapped(name, attn_implementation="eager"))
    model = build(name, attn_implementation="eager")
    with two_devices():
        here, there = (torch.ones(2).to(place) for place in PLACES)
        with pytest.raises(RuntimeError, match="met tensors on"):
            here + there
        lm = LanguageModel.wrap(spread_over_two(model), tokenizer())
        assert {str(site.projection.weight.device) for site in lm.sites} == {*PLACES}
        found = everything(lm)
    for what, value in wanted.items():
        assert np.array_equal(value, found[what]), what


def test_memory_limits_are_read() -> None:
    assert memory_limits(["0=20GiB", "cuda:1=1.5 GB", "cpu=64gib"]) == {
        0: "20GiB",
        1: "1.5 GB",
        "cpu": "64gib",
    }
    for wrong in ("cpu", "cpu=", "=2GiB", "cpu=2", "tpu=2GiB", "0=-2GiB", "cpu=2GiB,0=1GiB"):
        with pytest.raises(InputError, match="is not DEVICE=SIZE"):
            memory_limits([wrong])
    with pytest.raises(InputError, match="names cuda:0 twice"):
        memory_limits(["0=1GiB", "cuda:0=2GiB"])


def test_where_models_compute() -> None:
    assert computes_on_cpu({"": "cpu"}) and computes_on_cpu({"a": "cpu", "b": "disk"})
    assert not computes_on_cpu({"a": "cuda:0", "b": "disk"}) and not computes_on_cpu({"": 0})
    assert computes_on_cpu("auto", {"cpu": "1GB"}) and not computes_on_cpu("auto", {0: "1GB"})
    with torch.device("meta"):
        hollow = torch.nn.Linear(2, 2)
    with pytest.raises(InputError, match="holds no data"):
        stored_tensor(hollow, "weight", hollow.weight)
    model = build("llama")
    assert input_device(model).type == "cpu"
    with pytest.raises(InputError, match="hold no data"):
        input_device(model.to("meta"))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU beside the memory")
def test_gpu_memory_and_disk_together(pocket: LanguageModel, batch: Batch) -> None:
    lm = load("pocket", dtype="float32", device_map="auto", max_memory={0: "4MB", "cpu": "3MB"})
    assert {str(place) for place in lm.model.hf_device_map.values()} == {"0", "cpu", "disk"}
    gate = gate_of(pocket)
    with pocket.gated(gate):
        wanted = logits(pocket.model, batch)
    with lm.gated(gate):
        found = logits(lm.model, batch).cpu()
    seen = batch.attention_mask.bool()
    assert float((found - wanted)[seen].abs().max()) < 1e-3
    assert float((gradient(lm, batch) - gradient(pocket, batch)).abs().max()) < 1e-3
