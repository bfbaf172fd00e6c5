"""`headscope use export` on the bundled model and on a small one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from small_models import build

from conftest import Said, json_of
from headscope.heads import Gate, Geometry, HeadSet, Origin
from headscope.lm import LanguageModel
from headscope.results.export import ExportedModel
from headscope.runs.reading import result_of
from lm_helpers import saved, tokenizer

Command = Callable[..., Said]


def test_the_bundled_model_without_two_heads_is_an_ordinary_model(
    command: Command, loaded: None, pocket: LanguageModel, tmp_path: Path
) -> None:
    from transformers import pipeline

    out = tmp_path / "run"
    arguments = ("use", "export", "--heads", "2.1,3.3", "--out", out, "--json")
    said = command(*arguments)
    assert said.code == 0, said.err
    told = json_of(said.out)
    assert told["path"] == str(out / "checkpoint") and told["as"] == "checkpoint"
    assert [(one["layer"], one["head"], one["gate"]) for one in told["heads"]] == [
        (2, 1, 0.0),
        (3, 3, 0.0),
    ]
    assert told["check"]["largest_difference"] == 0 < 1 < told["check"]["untouched_difference"]
    assert told["base"]["license"] == "apache-2.0"
    assert told["model"]["digest"] == pocket.digest
    again = json_of(command(*arguments).out)
    assert again == told

    # The folder is a model for others, and for headscope itself.
    write: Any = pipeline("text-generation", model=told["path"], dtype=torch.float32)
    prompt = "A sentence of"
    with pocket.gated(HeadSet.parse("2.1,3.3", pocket.geometry).removed()):
        (expected,) = pocket.generate([prompt])
    (found,) = write(prompt, max_new_tokens=8, do_sample=False, return_full_text=False)
    wanted = expected.text[: len(found["generated_text"])]
    assert found["generated_text"][: len(wanted)] == wanted
    said = command("use", "export", "--model", told["path"], "--heads", "0.0", "--no-prove",
                   "--out", tmp_path / "second", "--json")  # fmt: skip
    second = json_of(said.out)
    assert second["check"] is None and second["check_note"] == "not asked for"
    assert second["base"]["license"] == "apache-2.0"  # from the card that the first one wrote


def test_an_adapter_is_written_and_compared(command: Command, model: Path, tmp_path: Path) -> None:
    pytest.importorskip("peft", reason="adapters are read by PEFT")
    said = command("use", "export", "--model", model, "--heads", "1.1,0.2,0.0", "--k", 2,
                   "--scale", 0.5, "--as", "ia3", "--out", tmp_path / "run", "--json")  # fmt: skip
    assert said.code == 0, said.err
    told = json_of(said.out)
    adapter = Path(told["path"])
    config = json.loads((adapter / "adapter_config.json").read_text())
    assert config["target_modules"] == config["feedforward_modules"] == ["o_proj"]
    assert config["base_model_name_or_path"] == str(model)
    assert told["check"]["largest_difference"] < 1e-5 < told["check"]["untouched_difference"]
    assert [one["gate"] for one in told["heads"]] == [0.5, 0.5]


def test_lora_adapters_are_written_and_compared(
    command: Command, model: Path, tmp_path: Path
) -> None:
    peft = pytest.importorskip("peft", reason="adapters are read by PEFT")
    arguments = ("use", "export", "--model", model, "--heads", "1.1,0.2,0.0", "--as", "lora")
    said = command(*arguments, "--scale", 0.5, "--out", tmp_path / "run", "--json")
    assert said.code == 0, said.err
    told = json_of(said.out)
    assert told["path"] == str(tmp_path / "run" / "adapter") and told["as"] == "lora"
    assert (told["lora_rank"], told["heads_in_rank_512"], told["rank"]) == (32, 4, None)
    check = told["check"]
    assert check["largest_difference"] <= check["allowed"] < 1e-4 < check["untouched_difference"]
    card = (tmp_path / "run" / "adapter" / "README.md").read_text(encoding="utf-8")
    assert "Rank and alpha are 32" in card and "1 + s (g - 1)" in card and "lora" in card

    said = command(*arguments, "--one-a-head", "--out", tmp_path / "each", "--json")
    told = json_of(said.out)
    names = ["head-0-0", "head-0-2", "head-1-1"]
    assert [one["name"] for one in told["adapters"]] == names
    assert [one["heads"] for one in told["adapters"]] == [["0.0"], ["0.2"], ["1.1"]]
    assert {one["lora_rank"] for one in told["adapters"]} == {16}
    checks = [one["check"] for one in told["adapters"]]
    assert all(check["largest_difference"] <= check["allowed"] for check in checks)
    assert told["path"] == str(tmp_path / "each" / "adapters")
    assert sorted(path.name for path in Path(told["path"]).iterdir()) == names
    assert "head-0-2" in command("report", tmp_path / "each", "--json").out or (
        "head-0-2" in (tmp_path / "each" / "report.html").read_text(encoding="utf-8")
    )
    for name in names:
        peft.PeftConfig.from_pretrained(Path(told["path"]) / name)


def test_every_set_has_an_adapter_of_its_name(
    command: Command, model: Path, tmp_path: Path
) -> None:
    pytest.importorskip("peft", reason="adapters are read by PEFT")
    soft = run_of_gate(tmp_path / "soft", [[1, 1, 1, 1.5], [1, 0.25, 1, 1]])
    arguments = ("use", "export", "--model", model, "--as", "lora", "--json")
    sets = ("--set", "es=0.1,0.2", "--set", f"soft={soft}")
    said = command(*arguments, *sets, "--out", tmp_path / "run")
    assert said.code == 0, said.err
    told = json_of(said.out)
    assert [(one["name"], one["heads"], one["lora_rank"]) for one in told["adapters"]] == [
        ("es", ["0.1", "0.2"], 32),
        ("soft", ["0.3", "1.1"], 16),
    ]
    # What a server with both of them does.
    assert {(one["layer"], one["head"]): one["gate"] for one in told["heads"]} == {
        (0, 1): 0.0,
        (0, 2): 0.0,
        (0, 3): 1.5,
        (1, 1): 0.25,
    }
    assert "soft" in (tmp_path / "run/adapters/soft/README.md").read_text(encoding="utf-8")
    again = json_of(command(*arguments, *sets, "--out", tmp_path / "run").out)
    assert again == told
    # Another division of the same heads is another run.
    said = command(*arguments, "--set", "a=0.1", "--out", tmp_path / "run")
    assert said.code == 2


def test_what_no_lora_adapter_can_hold_is_one_sentence_and_leaves_nothing(
    command: Command, model: Path, tmp_path: Path
) -> None:
    mask = run_of_gate(tmp_path / "mask", np.eye(2, 4), on="output")
    save_file({"mask": np.array([1, 0], dtype=np.float32)}, mask / "feed_forward.safetensors")
    lora = ("--as", "lora")
    for arguments, message in (
        ((*lora, "--gate", mask), "multiplies feed-forward parts too"),
        ((*lora, "--heads", "0.1,0.2", "--rank-limit", 16), "its rank is 32, more than 16"),
        ((*lora, "--heads", "0.1", "--set", "a=0.1"), "leave out --heads, --gate and --one-a-head"),
        ((*lora, "--set", "a/b=0.1"), "is not NAME=HEADS"),
        ((*lora, "--set", "a=0.1", "--set", "a=0.2"), "names 'a' twice"),
        (("--heads", "0.1", "--one-a-head"), "--one-a-head is for LoRA adapters"),
        (("--heads", "0.1", "--rank-limit", 16), "--rank-limit is for LoRA adapters"),
    ):
        said = command("use", "export", "--model", model, *arguments, "--out", tmp_path / "run")
        assert said.code == 2 and message in said.err and said.err.count("\n") == 1, said.err
        assert not (tmp_path / "run").exists()


def test_a_lora_adapter_of_a_quantised_base_is_made_from_its_dequantised_weights(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gguf = pytest.importorskip("gguf")
    pytest.importorskip("peft", reason="adapters are read by PEFT")
    from gguf_helpers import rounded, tiny, write

    monkeypatch.chdir(tmp_path)
    base = tiny()
    write(tmp_path / "tiny.gguf", base, "Q8_0")
    said = command("use", "export", "--model", "tiny.gguf", "--heads", "0.1,1.3", "--as", "lora",
                   "--out", "run", "--json")  # fmt: skip
    assert said.code == 0, said.err
    told = json_of(said.out)
    assert told["check"]["largest_difference"] <= told["check"]["allowed"] < 1e-4
    adapter = tmp_path / "run" / "adapter"
    stored = {one.name: one.data for one in gguf.GGUFReader(adapter / "adapter.gguf").tensors}
    weight = rounded(base.state_dict()["model.layers.1.self_attn.o_proj.weight"], "Q8_0")
    assert np.array_equal(stored["blk.1.attn_output.weight.lora_b"], -weight[:, 48:64].numpy())
    card = (adapter / "README.md").read_text(encoding="utf-8")
    assert "Q8_0" in card and "dequantised weights" in card and "tiny.gguf" in card


def test_a_lora_adapter_of_weights_quantised_while_loading(
    command: Command, tmp_path: Path
) -> None:
    pytest.importorskip("bitsandbytes")
    pytest.importorskip("peft", reason="adapters are read by PEFT")
    model = saved(tmp_path / "model", "llama", overrides={"hidden_size": 64})
    said = command("use", "export", "--model", model, "--heads", "0.1,1.3", "--as", "lora",
                   "--quantise", "4bit", "--out", tmp_path / "run", "--json")  # fmt: skip
    assert said.code == 0, said.err
    check = json_of(said.out)["check"]
    assert check["largest_difference"] <= check["allowed"] < 0.1 * check["untouched_difference"]
    card = (tmp_path / "run" / "adapter" / "README.md").read_text(encoding="utf-8")
    assert "bitsandbytes 4 bits" in card


def run_of_gate(folder: Path, values: Any, origin: Origin | None = None, **result: Any) -> Path:
    """A finished run that holds a gate."""
    folder.mkdir()
    gate = Gate(Geometry.uniform(2, 4), values, origin or Origin())
    gate.save_pretrained(folder / "gate")
    for name, content in (("run", {}), ("DONE", {"format": 2}), ("result", result)):
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def test_masks_soft_gates_and_their_feed_forward_gates_are_exported(
    command: Command, model: Path, tmp_path: Path
) -> None:
    mask = np.ones((2, 4))
    mask[0, 1:3] = 0
    origin = Origin("mask", "headscope-0|find mask|abc", {}, {"weights": "of another model"})
    run = run_of_gate(tmp_path / "mask", mask, origin, on="output")
    save_file({"mask": np.array([1, 0], dtype=np.float32)}, run / "feed_forward.safetensors")
    said = command("use", "export", "--model", model, "--gate", run, "--outside", 0.25,
                   "--out", tmp_path / "one", "--json")  # fmt: skip
    assert said.code == 0, said.err
    told = json_of(said.out)
    assert {(one["layer"], one["head"]): one["gate"] for one in told["heads"]} == {
        (0, 1): 0.25,
        (0, 2): 0.25,
    }
    assert told["gate"]["feed_forward"] == 1
    assert told["changed"][-1] == "model.layers.1.mlp.down_proj.weight"
    assert told["found_by"] == origin.signature and told["found_on_same_weights"] is False
    assert told["check"]["largest_difference"] < 1e-4
    card = (tmp_path / "one" / "checkpoint" / "README.md").read_text()
    assert origin.signature in card and "other weights" in card and "1 (× 0.25)" in card

    soft = run_of_gate(tmp_path / "soft", np.linspace(0.1, 2, 8).reshape(2, 4))
    said = command("use", "export", "--model", model, "--gate", soft, "--out", tmp_path / "two",
                   "--json")  # fmt: skip
    told = json_of(said.out)
    assert len(told["heads"]) == 8 and told["check"]["largest_difference"] < 1e-4
    assert Gate.from_pretrained(tmp_path / "two" / "gate") == Gate.from_pretrained(soft / "gate")


def test_what_cannot_be_exported_is_one_sentence_and_leaves_nothing(
    command: Command, model: Path, tmp_path: Path
) -> None:
    query = run_of_gate(tmp_path / "query", np.eye(2, 4), on="query")
    ones = run_of_gate(tmp_path / "ones", np.ones((2, 4)))
    binary = tmp_path / "binary"
    binary.mkdir()
    (binary / "config.json").write_bytes((model / "config.json").read_bytes())
    (binary / "pytorch_model.bin").write_bytes(b"x")
    out = ("--out", tmp_path / "run")
    for arguments, message in (
        (("--gate", query), "its gates multiply queries"),
        (("--gate", ones), "multiplies everything by 1"),
        ((), "what is to be applied is not clear"),
        (("--heads", "9.9"), "there is no head L9.H9"),
        (("--heads", "0.1", "--max-shard-size", "big"), "is not a size of a file"),
        (("--heads", "0.1", "--dequantise"), "--dequantise is for writing quantised weights"),
        (("--heads", "0.1", "--model", binary), "pickled weights (pytorch_model.bin)"),
    ):
        own = () if "--model" in arguments else ("--model", model)
        said = command("use", "export", *own, *arguments, *out)
        assert said.code == 2 and message in said.err and said.err.count("\n") == 1, said.err
        assert not (tmp_path / "run").exists()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine.txt").write_text("mine")
    said = command("use", "export", "--model", model, "--heads", "0.1", *out)
    assert said.code == 2 and "holds other files (mine.txt)" in said.err
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["mine.txt"]


def test_rounding_to_half_of_the_bits_is_no_excuse_for_a_wrong_export(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A head times 0.95 does less than bfloat16 may round, and is seen all the same."""
    from headscope.use.exporting import checkpoint

    build("llama").to(torch.bfloat16).save_pretrained(tmp_path / "model")
    tokenizer().save_pretrained(tmp_path / "model")
    arguments = ("use", "export", "--model", tmp_path / "model", "--heads", "0.1", "--scale", 0.95)
    said = command(*arguments, "--out", tmp_path / "right", "--json")
    assert said.code == 0, said.err
    check = json_of(said.out)["check"]
    assert check["allowed"] < check["untouched_difference"] < 0.1 * check["largest_logit"]
    monkeypatch.setattr(checkpoint, "scaled_blocks", lambda one, factors: one.blocks())
    out = tmp_path / "wrong"
    said = command(*arguments, "--out", out)
    assert said.code == 2 and "differs from the gated one by up to" in said.err
    assert not (out / "checkpoint").exists() and not (out / "DONE.json").exists()


def test_a_gate_that_does_no_more_than_rounding_proves_nothing(
    command: Command, model: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    said = command("use", "export", "--model", model, "--heads", "0.1", "--scale", 1.000001,
                   "--out", run)  # fmt: skip
    assert said.code == 0, said.err
    assert command("report", run).code == 0
    assert "This proves nothing" in (run / "report.html").read_text()


def test_an_export_that_is_gone_is_told(command: Command, model: Path, tmp_path: Path) -> None:
    import shutil

    out = tmp_path / "run"
    arguments = ("use", "export", "--model", model, "--heads", "0.1", "--no-prove", "--out", out)
    assert command(*arguments).code == 0
    result = result_of(out, ExportedModel, "an export")
    assert result.check is None and result.check_note == "not asked for"
    assert command("report", out).code == 0
    assert "Not compared with the gated model" in (out / "report.html").read_text()
    shutil.rmtree(out / "checkpoint")
    said = command(*arguments)
    assert said.code == 2 and "checkpoint: is gone" in said.err


def test_a_gguf_file_is_written_dequantised(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("gguf")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from gguf_helpers import rounded, tiny, write

    monkeypatch.chdir(tmp_path)
    base = tiny()
    write(tmp_path / "tiny.gguf", base, "Q8_0")
    arguments = ("use", "export", "--model", "tiny.gguf", "--heads", "0.1,1.3")
    said = command(*arguments, "--out", "run", "--json")
    assert said.code == 0, said.err
    told = json_of(said.out)
    assert told["check"]["largest_difference"] == 0 < told["check"]["untouched_difference"]
    assert (told["model"]["dequantised"], told["model"]["quantised"]) == ("Q8_0", None)
    assert (told["base"]["name"], told["base"]["license"]) == ("tiny.gguf", "mit")
    card = (tmp_path / "run/checkpoint/README.md").read_text(encoding="utf-8")
    assert "Q8_0" in card and str(tmp_path) not in card
    provenance = (tmp_path / "run/provenance.json").read_text(encoding="utf-8")
    digest = hashlib.sha256((tmp_path / "tiny.gguf").read_bytes()).hexdigest()
    assert digest in provenance and digest == told["model"]["digest"]

    # Anybody loads it: the file's weights, but for what the two heads hand on.
    model = AutoModelForCausalLM.from_pretrained("run/checkpoint")
    assert model.dtype == torch.float32 and not hasattr(model.config, "quantization_config")
    for name, tensor in model.state_dict().items():
        wanted = rounded(base.state_dict()[name], "Q8_0")
        for layer, head in ((0, 1), (1, 3)):
            if name == f"model.layers.{layer}.self_attn.o_proj.weight":
                wanted[:, head * 16 : head * 16 + 16] = 0
        assert torch.equal(tensor, wanted), name
    reading = AutoTokenizer.from_pretrained("run/checkpoint")
    assert reading.convert_ids_to_tokens(reading(" the 12")["input_ids"]) == ["Ġthe", "Ġ", "12"]

    for extra, why in ((("--as", "ia3"), "--as lora"), (("--dtype", "bfloat16"), "float32")):
        refused = command(*arguments, *extra, "--out", "other")
        assert refused.code == 2 and why in refused.err and not Path("other").exists()


def test_heads_are_taken_out_for_good(command: Command, loaded: None, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    # Of every layer two of four groups, others of odd ones than of even ones, and a head more.
    groups = {layer: (0, 2) if layer % 2 else (1, 3) for layer in range(6)}
    heads = [f"{layer}.{4 * group + at}" for layer, own in groups.items() for group in own
             for at in range(4)]  # fmt: skip
    out = tmp_path / "run"
    arguments = ("use", "export", "--heads", ",".join([*heads, "2.0"]), "--as", "pruned")
    said = command(*arguments, "--out", out, "--json")
    assert said.code == 0, said.err
    told = json_of(said.out)
    assert told["path"] == str(out / "checkpoint") and told["as"] == "pruned"
    check, pruned = told["check"], told["pruned"]
    assert check["largest_difference"] <= check["allowed"] < 0.01 < check["untouched_difference"]
    assert check["same_choice"] == 1
    assert (pruned["groups_dropped"], pruned["heads_before"]) == (2, 16)
    assert pruned["kept"]["0"] == [0, 2] and pruned["kept"]["1"] == [1, 3]
    model = AutoModelForCausalLM.from_pretrained(told["path"])
    assert model.num_parameters() == pruned["parameters"] < pruned["parameters_before"]
    assert (model.config.num_attention_heads, model.config.num_key_value_heads) == (8, 2)
    assert told["model"]["parameters"] == pruned["parameters_before"]
    card = (out / "checkpoint" / "README.md").read_text(encoding="utf-8")
    assert "2 of 4 key-value groups" in card and "- layer 1: 1, 3\n" in card
    assert f"{pruned['parameters']:,} are left" in card
    assert json_of(command(*arguments, "--out", out, "--json").out) == told
    assert command("report", out).code == 0
    assert "2 of 4, with 4 heads each" in (out / "report.html").read_text(encoding="utf-8")

    # The smaller model is one for headscope, too: its heads have their new numbers.
    again = command("use", "export", "--model", told["path"], "--heads", "0.7", "--no-prove",
                    "--out", tmp_path / "again", "--json")  # fmt: skip
    assert json_of(again.out)["model"]["heads"] == 6 * 8


def test_a_pruned_export_that_differs_is_not_named(
    command: Command, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of a wrong group are seen, though config and shapes are right."""
    from headscope.use.exporting import pruning

    slices = pruning._slices

    def other_keys(*arguments: Any) -> Any:
        found = dict(slices(*arguments))
        name = "model.layers.1.self_attn.k_proj.weight"
        axis, kept = found[name]
        found[name] = (axis, tuple((channel + 16) % 32 for channel in kept))
        return found

    monkeypatch.setattr(pruning, "_slices", other_keys)
    out = tmp_path / "run"
    arguments = ("use", "export", "--model", model, "--heads", "0.0,0.1,1.2,1.3")
    said = command(*arguments, "--as", "pruned", "--out", out)
    assert said.code == 2 and "differs from the gated one by up to" in said.err
    assert not (out / "checkpoint").exists() and not (out / "DONE.json").exists()
