"""Exports as files: indexes, cards, full disks, proofs, quantised weights, and kills."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from small_models import build

import headscope
import process_helpers
from conftest import Said, json_of
from headscope.errors import InputError
from headscope.heads import Gate, Geometry, HeadSet, Origin
from headscope.lm.checkpoints import weight_files
from headscope.lm.model import LanguageModel
from headscope.studies.models import ModelChoice
from headscope.studies.use.export import UseExport, use_export
from headscope.studies.use.gates import GateChoice
from headscope.use.exporting import checkpoint, fold_checkpoint, proof
from headscope.use.exporting.card import Export, export_card, read_base
from headscope.use.exporting.proof import ProofReference, compare, room_for
from headscope.use.exporting.tensors import (
    dequantised_tensors,
    stored_tensors,
    write_tensors,
)
from lm_helpers import logits, sample_batch, saved, tokenizer
from test_use_exporting import gate_of, hollow, loaded, tensors


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    build("llama").save_pretrained(tmp_path / "model", max_shard_size="60KB")
    return tmp_path / "model"


def removed(model: LanguageModel) -> Gate:
    return gate_of(model.geometry, (0.0, 1.0))


def test_pickled_weights_are_refused_with_the_fix(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"anything")
    with pytest.raises(InputError, match=r"pickled weights \(pytorch_model.bin\).*save_pretrained"):
        weight_files(tmp_path)
    (tmp_path / "pytorch_model.bin").unlink()
    with pytest.raises(InputError, match="holds no weights"):
        weight_files(tmp_path)
    save_file({"a": torch.zeros(1)}, tmp_path / "model-00001-of-00002.safetensors")
    with pytest.raises(InputError, match=r"neither model\.safetensors nor"):
        weight_files(tmp_path)


def test_files_and_index_must_agree(sharded: Path) -> None:
    whole = stored_tensors(sharded)
    assert {one.name for one in whole} == set(tensors(sharded))
    index = sharded / "model.safetensors.index.json"
    told = json.loads(index.read_text())
    first, second = sorted(set(told["weight_map"].values()))[:2]
    for change, message in (
        ({"gone": first}, f"says that {first} holds the tensor gone, but it does not"),
        ({whole[0].name: second}, f"says that {second} holds the tensor"),
        ({"other": "../elsewhere"}, "names the file '../elsewhere' outside its folder"),
        ({"other": "model-x.safetensors"}, "model-x.safetensors: is missing, but"),
    ):
        index.write_text(json.dumps({"weight_map": told["weight_map"] | change}))
        with pytest.raises(InputError, match=message):
            stored_tensors(sharded)
    index.write_text("{}")
    with pytest.raises(InputError, match="has no weight_map"):
        stored_tensors(sharded)
    index.write_text(json.dumps(told))
    copied = load_file(sharded / second) | {whole[0].name: torch.zeros(1)}
    save_file(copied, sharded / second)
    with pytest.raises(InputError, match=f"which lies in {first} too"):
        stored_tensors(sharded)
    data = (sharded / second).read_bytes()
    (sharded / second).write_bytes(data[: len(data) // 2])
    with pytest.raises(InputError, match=rf"{second}: is damaged"):
        stored_tensors(sharded)


@given(
    st.dictionaries(
        st.text(min_size=1, max_size=8).filter(lambda name: name != "__metadata__"),
        st.tuples(
            st.sampled_from([torch.float32, torch.bfloat16, torch.int64, torch.uint8]),
            st.lists(st.integers(0, 4), max_size=3),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_files_written_tensor_by_tensor_hold_what_others_read(contents: dict[str, Any]) -> None:
    import tempfile

    generator = torch.Generator().manual_seed(0)
    held = {
        name: torch.randint(0, 99, shape, generator=generator).to(dtype)
        for name, (dtype, shape) in contents.items()
    }
    with tempfile.TemporaryDirectory() as place:
        one, other = Path(place) / "model.safetensors", Path(place) / "written.safetensors"
        save_file(held, one)
        write_tensors(other, stored_tensors(Path(place)))
        found = load_file(other)
        assert found.keys() == held.keys()
        assert all(torch.equal(found[name], held[name]) for name in held)
        assert all(found[name].dtype == held[name].dtype for name in held)
        assert sorted(os.listdir(place)) == [one.name, other.name]


def test_a_folder_that_is_there_is_left_alone(sharded: Path, tmp_path: Path) -> None:
    model = hollow(sharded)
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine.txt").write_text("mine")
    with pytest.raises(InputError, match="exists already and is left untouched"):
        fold_checkpoint(model, removed(model), out)
    assert [path.name for path in out.iterdir()] == ["mine.txt"]
    (out / "mine.txt").unlink()
    fold_checkpoint(model, removed(model), out)
    assert (out / "config.json").is_file()
    staged = tmp_path / "other.unfinished"
    staged.mkdir()
    (staged / "mine.txt").write_text("mine")
    for note in ("", "[]", '{"plan"'):
        (staged / "unfinished.json").write_text(note)
        with pytest.raises(InputError, match="holds other files"):
            fold_checkpoint(model, removed(model), tmp_path / "other")
    assert (staged / "mine.txt").read_text() == "mine"


def test_a_full_disk_is_one_sentence_and_what_is_written_is_kept(
    sharded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, out = hollow(sharded), tmp_path / "out"
    real = os.fsync
    calls: list[int] = []

    def full(handle: int) -> None:
        calls.append(handle)
        if len(calls) == 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(handle)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as raised:
        fold_checkpoint(model, removed(model), out, max_shard_size="60KB")
    assert str(raised.value.filename).endswith(".safetensors")
    monkeypatch.setattr(os, "fsync", real)
    staged = tmp_path / "out.unfinished"
    kept = {path: path.stat().st_mtime_ns for path in staged.glob("model*.safetensors")}
    assert len(kept) == 1 and not out.exists() and not list(staged.glob(".tmp-*"))
    done = fold_checkpoint(model, removed(model), out, max_shard_size="60KB")
    assert not staged.exists() and len(done.files) > 3
    (first,) = kept
    assert (out / first.name).stat().st_mtime_ns == kept[first]  # not written twice


def test_room_is_looked_for_before_anything_is_written(
    sharded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Usage:
        free = 1000

    monkeypatch.setattr(checkpoint.shutil, "disk_usage", lambda place: Usage)
    model = hollow(sharded)
    with pytest.raises(InputError, match=r"needs 0.0 GB, but 0.0 GB are free"):
        fold_checkpoint(model, removed(model), tmp_path / "out")
    assert not list(tmp_path.rglob("*.unfinished/model*.safetensors"))


def test_an_unfinished_export_of_another_gate_is_not_continued(
    sharded: Path, tmp_path: Path
) -> None:
    model, out = hollow(sharded), tmp_path / "out"
    staged = tmp_path / "out.unfinished"
    other = gate_of(model.geometry, (0.5,))
    fold_checkpoint(model, other, out, staged=staged)
    fold_checkpoint(model, removed(model), out)
    fold_checkpoint(model, removed(model), tmp_path / "again")
    one, two = tensors(out), tensors(tmp_path / "again")
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_a_card_carries_licence_and_base_over_and_never_invents_one(tmp_path: Path) -> None:
    card = tmp_path / "README.md"
    card.write_text(
        "---\nlicense: other\nlicense_name: own-terms\nlicense_link: LICENSE\n"
        "language:\n- de\nbase_model: them/older\ntags:\n- theirs\n---\n# Model\n"
    )
    base = read_base(str(tmp_path), tmp_path)
    assert (base.hub, base.licence, base.base_models) == (None, "own-terms", ("them/older",))
    assert base.name == tmp_path.name and str(tmp_path) not in base.name
    geometry = Geometry.uniform(2, 3)
    origin = Origin(method="lahis", signature="headscope-0|find lahis|abc")
    gate = Gate(geometry, np.array([[0, 1, 1], [1, 0.5, 1]]), origin)
    text = export_card(Export("ia3", base, gate, "signature-of-export", "run", "Stored so.",
                            same_weights=False))  # fmt: skip
    front = front_matter(text)
    assert front["license"] == "other" and front["license_name"] == "own-terms"
    assert front["base_model"] == ["them/older"] and front["base_model_relation"] == "adapter"
    assert front["language"] == ["de"] and front["library_name"] == "peft"
    for part in ("removed (× 0): L0.H0", "× 0.5: L1.H1", origin.signature, "signature-of-export",
                 "`own-terms`", "other weights"):  # fmt: skip
        assert part in text

    for content, why in ((None, "it has no card"), ("no front matter", "no front matter"),
                         ("---\nlicense: [\n---\n", "cannot be read")):  # fmt: skip
        if content is None:
            card.unlink()
        else:
            card.write_text(content)
        bare = read_base(str(tmp_path), tmp_path)
        assert bare.licence is None and why in str(bare.unread)
        text = export_card(Export("checkpoint", bare, gate, "s", "run", "Stored so."))
        assert "license" not in front_matter(text) and "base_model" not in front_matter(text)
        assert "No licence of" in text and why in text


def test_a_hub_model_is_the_base_model_of_its_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub

    asked: list[Any] = []

    def fetched(name: str, **how: Any) -> str:
        asked.append((name, how["revision"], how["allow_patterns"][0]))
        (tmp_path / "README.md").write_text("---\nlicense: mit\n---\n")
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetched)
    base = read_base("owner/name", tmp_path, "c0ffee")
    assert asked == [("owner/name", "c0ffee", "README.md")]
    assert (base.hub, base.licence, base.base_models) == ("owner/name", "mit", ("owner/name",))

    def unreachable(name: str, **how: Any) -> str:
        raise OSError("no network")

    (tmp_path / "README.md").unlink()
    monkeypatch.setattr(huggingface_hub, "snapshot_download", unreachable)
    base = read_base("owner/name", tmp_path, "c0ffee")
    assert base.licence is None and "could not be fetched (no network)" in str(base.unread)
    assert base.base_models == ("owner/name",)


def front_matter(text: str) -> dict[str, Any]:
    import yaml

    _, front, _ = text.split("---\n", 2)
    told: dict[str, Any] = yaml.safe_load(front)
    return told


def test_an_export_that_differs_by_more_than_rounding_is_no_proof(sharded: Path) -> None:
    real = LanguageModel.wrap(loaded(sharded), tokenizer(), check=False)
    gate = removed(real)
    reference = ProofReference.of(real, gate, texts=("a text", ""))
    with pytest.raises(InputError, match="differs from the gated one by up to"):
        compare(reference, real.model, torch.float32)  # without the gate
    with real.gated(gate):
        compared = compare(reference, real.model, torch.float32)
    assert compared.largest_difference == 0 and compared.same_choice == 1
    assert compared.untouched_difference > 0.1 and compared.positions == len("a text")


def test_factors_that_overflow_are_no_proof(sharded: Path) -> None:
    real = LanguageModel.wrap(loaded(sharded), tokenizer(), check=False)
    gate = HeadSet.parse("0.0", real.geometry).scaled(-1e30)  # a norm makes all logits 0
    reference = ProofReference.of(real, gate, texts=("a text",))
    with real.gated(gate), pytest.raises(InputError, match=r"reach .* too large for float32"):
        compare(reference, real.model, torch.float32)


@pytest.mark.parametrize("name", ["llama", "gpt2"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_a_checkpoint_has_to_be_is_known_before_it_is_read(
    name: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    build(name).to(torch.bfloat16).save_pretrained(tmp_path / "model")
    real = LanguageModel.wrap(loaded(tmp_path / "model", dtype), tokenizer(), check=False)
    before = {key: one.clone() for key, one in real.model.state_dict().items()}
    gate = gate_of(real.geometry, (0.9, 1.0, 0.97))
    reference = ProofReference.of(real, gate, texts=("a text",), rounded=torch.bfloat16)
    assert all(torch.equal(before[key], one) for key, one in real.model.state_dict().items())
    fold_checkpoint(hollow(tmp_path / "model"), gate, tmp_path / "out")
    compared = compare(reference, loaded(tmp_path / "out", dtype), torch.bfloat16)
    assert 0 < compared.largest_difference < compared.untouched_difference
    # Weights that were finer than they are said to be are not rounded a second time.
    fine = LanguageModel.wrap(build(name), tokenizer(), check=False)
    assert ProofReference.of(fine, gate, texts=("a text",), rounded=torch.bfloat16).folded is None


def test_a_model_that_does_not_fit_is_told_before_it_is_loaded(
    sharded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = hollow(sharded)
    assert room_for(model, "cpu") is None
    monkeypatch.setattr(proof, "_free_memory", lambda: 1000)
    assert "too large to load" in str(room_for(model, "cpu"))
    monkeypatch.setattr(proof, "_free_memory", lambda: None)
    assert room_for(model, "cpu") is None


class _Eighth(torch.nn.Linear):
    """A linear map whose weight is stored as whole numbers from −127 to 127 and one scale."""

    @classmethod
    def of(cls, plain: torch.nn.Linear) -> _Eighth:
        made = cls(plain.in_features, plain.out_features, plain.bias is not None)
        scale = plain.weight.abs().max() / 127
        stored = (plain.weight / scale).round().to(torch.int8)
        made.weight = torch.nn.Parameter(stored, requires_grad=False)
        made.bias = plain.bias
        made.scale = scale
        return made

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        weight = self.weight.to(input.dtype) * self.scale
        return torch.nn.functional.linear(input, weight, self.bias)


def test_a_quantised_model_is_written_as_the_ordinary_one_it_stands_for(tmp_path: Path) -> None:
    source = saved(tmp_path / "model", "llama")
    quantised = build("llama")
    for layer in quantised.model.layers:
        for owner, name in ((layer.self_attn, "o_proj"), (layer.mlp, "down_proj")):
            setattr(owner, name, _Eighth.of(getattr(owner, name)))
    config = json.loads((source / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "eighth"}
    (source / "config.json").write_text(json.dumps(config))
    lm = LanguageModel.wrap(quantised, tokenizer(), folder=source, check=False)
    model = hollow_of_plain(source)
    gate = gate_of(model.geometry, (0.0, 1.0))
    weights = dequantised_tensors(lm, model)
    fold_checkpoint(model, gate, tmp_path / "out", weights=weights)
    assert "quantization_config" not in json.loads((tmp_path / "out" / "config.json").read_text())
    batch = sample_batch()
    with lm.gated(gate):
        wanted = logits(lm.model, batch)
    assert (logits(loaded(tmp_path / "out"), batch) - wanted).abs().max() < 1e-4


@pytest.mark.parametrize("form", ["--dequantise", "--as=ia3"])
def test_four_bits_are_read_back_or_left_alone(
    form: str, tmp_path: Path, command: Callable[..., Said]
) -> None:
    pytest.importorskip("bitsandbytes", reason="it makes and reads 4-bit weights")
    pytest.importorskip("peft", reason="adapters are read by PEFT")
    plain = saved(tmp_path / "plain", "llama", overrides={"hidden_size": 64})
    lm = headscope.load(plain, device="cpu", quantise="4bit", check=False)
    lm.model.save_pretrained(tmp_path / "model")
    tokenizer().save_pretrained(tmp_path / "model")
    own = ("--model", tmp_path / "model", "--heads", "0.1,1.2", "--device", "cpu")
    said = command("use", "export", *own, "--out", tmp_path / "refused")
    assert said.code == 2 and "its weights are quantised (bitsandbytes)" in said.err
    said = command("use", "export", *own, form, "--out", tmp_path / "run", "--json")
    assert said.code == 0, said.err
    told = json_of(said.out)
    assert told["model"]["quantised"] == "bitsandbytes"
    # Without the gate the logits are far away; what is left is how kernels of 4 bits round.
    assert told["check"]["largest_difference"] < 0.1 * told["check"]["untouched_difference"]


def hollow_of_plain(source: Path) -> LanguageModel:
    from headscope.use.exporting import hollow_model

    return hollow_model("model", source, build("llama").config, tokenizer())


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> UseExport:
    """Small weight files, so that there are several."""
    model = saved(tmp_path_factory.mktemp("inputs") / "model", "llama")
    return UseExport(GateChoice(heads="0.1,1.2"), ModelChoice(str(model)), max_shard_size="60KB")


# While the first file is written, after several, and while the logits are compared.
@pytest.mark.parametrize(("step", "calls", "files"), [("writing", 2, 0), ("writing", 19, 2),
                                                      ("comparing", 2, 4)])  # fmt: skip
def test_a_killed_export_is_finished_by_the_same_command(
    config: UseExport, step: str, calls: int, files: int, tmp_path: Path
) -> None:
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    process_helpers.killed_at(calls, use_export, config, killed, titles=(step,))
    assert not (killed / "DONE.json").exists() and not (killed / "checkpoint").exists()
    staged = killed / "parts" / "checkpoint"
    kept = {file: file.stat().st_mtime_ns for file in staged.glob("model*.safetensors")}
    assert len(kept) == files
    results = [use_export(config, out) for out in (killed, whole)]
    assert not staged.exists()
    for file, written in kept.items():
        assert (killed / "checkpoint" / file.name).stat().st_mtime_ns == written
    names = sorted(path.name for path in (whole / "checkpoint").iterdir())
    assert sorted(path.name for path in (killed / "checkpoint").iterdir()) == names
    for name in names:
        files = [out / "checkpoint" / name for out in (killed, whole)]
        assert files[0].read_bytes() == files[1].read_bytes(), name
    one, other = (replace(result, run=None, path="", seconds=0) for result in results)
    assert one == other


def test_what_stands_under_its_name_is_not_written_again(config: UseExport, tmp_path: Path) -> None:
    first = use_export(config, tmp_path / "run")
    (tmp_path / "run" / "DONE.json").unlink()  # as if killed right before the end
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "run" / "checkpoint").iterdir()}
    again = use_export(config, tmp_path / "run")
    assert {path: path.stat().st_mtime_ns for path in times} == times
    assert replace(again, seconds=0) == replace(first, seconds=0)
    for name in ("DONE.json", "parts/written.jsonl"):
        (tmp_path / "run" / name).unlink()
    with pytest.raises(InputError, match="the note of what was written there is gone"):
        use_export(config, tmp_path / "run")
