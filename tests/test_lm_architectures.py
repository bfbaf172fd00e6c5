"""Architectures: small models of every kind, and every registered name."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from architectures import (
    Checked,
    Trial,
    checked,
    checked_table,
    try_all,
    try_one,
)
from small_models import ARCHITECTURES, build, build_registered

from headscope.errors import InputError
from headscope.lm.attention.peaks import PeakRequest
from headscope.lm.attention.recording import capture_way
from headscope.lm.attention.weights import WeightRequest
from headscope.lm.check import CheckReport, check_model
from headscope.lm.inputs import forward_inputs
from headscope.lm.model import LanguageModel
from lm_helpers import sample_batch


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_gates_and_peaks_are_exact(name):
    architecture = checked(name)
    report = architecture.report
    assert architecture.name == name
    assert report.gate_difference == 0.0
    # Experts gather tokens of all rows, so rows of one batch may be rounded differently.
    assert report.row_gate_difference <= 1e-5
    assert report.peaks > 100 and report.wrong == 0
    assert report.dynamic[0] > 100 and report.dynamic[1] == 0
    assert report.static[0] > 100 and report.static[1] == 0
    assert report.same_outputs
    assert architecture.passed


@pytest.mark.parametrize("name", ["llama", "gemma2", "gpt_oss", "mixtral", "opt"])
def test_weights_follow_from_the_seed_alone(name):
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first = build(name, seed=3).state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(6)
    second = build(name, seed=3, attn_implementation="eager").state_dict()
    assert first.keys() == second.keys()
    assert all(torch.equal(first[key], second[key]) for key in first)
    other = build(name, seed=4).state_dict()
    assert any(not torch.equal(first[key], other[key]) for key in first)


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(InputError, match="did you mean 'llama'"):
        build("lama")


def test_fields_of_the_configuration_can_be_set():
    model = build("llama", layers=3, overrides={"num_key_value_heads": 1})
    assert model.config.num_hidden_layers == 3
    assert model.config.num_key_value_heads == 1


def test_falcon_under_sdpa_hides_its_peaks_and_the_advice_helps():
    lm = LanguageModel.wrap(build("falcon", attn_implementation="sdpa"), check=False)
    with pytest.raises(InputError, match='attn_implementation="eager", then wrap'):
        capture_way(lm)
    lm = LanguageModel.wrap(build("falcon", attn_implementation="eager"), check=False)
    assert capture_way(lm) == "weights"


REPORT = CheckReport(
    "tiny", "sdpa", (2, 0), "function", 0.0, 0.0, 10, 0, (5, 0), (6, 0), True, "a note"
)


@pytest.mark.parametrize(
    "change",
    [
        {"gate_difference": 1e-7},
        {"row_gate_difference": 0.1},
        {"wrong": 1},
        {"dynamic": (5, 1)},
        {"static": (6, 1)},
        {"peaks": 0},
        {"same_outputs": False},
        {},
    ],
)
def test_a_report_fails_on_any_fault_and_the_table_says_so(change):
    right = Checked("tiny", REPORT, 1e-7)
    faulty = Checked("tiny", dataclasses.replace(REPORT, **change), 1e-7 if change else 0.1)
    assert right.passed and not faulty.passed
    lines = checked_table([right, faulty])
    assert len(lines) == 4 and {line.count("|") for line in lines} == {12}
    assert lines[2].startswith("| tiny | 2, 0 | sdpa | function | 0 |")
    assert lines[2].endswith("| passes; a note |") and lines[3].endswith("| **fails**; a note |")


@pytest.mark.parametrize(("size", "passes"), [(1e-4, True), (0.0, False), (1e-4, False)])
def test_differences_are_held_to_the_noise_of_plain_passes(
    size: float, passes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = build("llama")
    generator = torch.Generator().manual_seed(0)
    model.model.norm.register_forward_hook(
        lambda _, __, output: output + size * torch.randn(output.shape, generator=generator)
    )
    lm = LanguageModel.wrap(model, name="llama")
    if not passes:  # gates of 0 that leave a tenth of a head
        gated = LanguageModel.gated

        def leaking(self: LanguageModel, gate: Any) -> Any:
            values = gate if isinstance(gate, torch.Tensor) else torch.tensor(gate.values)
            return gated(self, values.clamp(min=0.1))

        monkeypatch.setattr(LanguageModel, "gated", leaking)
    report = check_model(lm)
    assert (report.noise > 0) == (size > 0)
    assert report.passed == passes


def test_small_models_have_one_layer_of_each_kind_and_share_keys():
    config = build_registered("qwen3_next").config
    assert config.layer_types == ["linear_attention", "full_attention"]
    assert (config.num_attention_heads, config.num_key_value_heads) == (4, 2)
    shared = build_registered("gemma4_text").config
    assert shared.layer_types == ["sliding_attention", "full_attention"] * 2
    assert shared.num_kv_shared_layers == 2
    # Registered under the configuration of a model that also reads images.
    assert build_registered("qwen3_5").config.model_type == "qwen3_5_text"
    assert sum(parameter.numel() for parameter in build_registered("mixtral").parameters()) < 2e5


@pytest.mark.parametrize(
    ("name", "outcome", "heads"),
    [
        ("glm4_moe_lite", "passes", (4, 4)),  # latent attention
        ("bamba", "passes", (0, 4)),
        ("openai-gpt", "gates", (4, 4)),  # returns no weights
        ("mamba", "refused", ()),
        ("git", "refused", ()),  # its cache forgets the padding
        ("nothing", "not built", ()),
    ],
)
def test_each_outcome(name, outcome, heads):
    trial = try_one(name)
    assert (trial.outcome, trial.heads) == (outcome, heads)
    assert bool(trial.reason) == (outcome != "passes")


def test_a_trial_comes_back_from_its_process():
    assert list(try_all(["gpt2"])) == [Trial("gpt2", "passes", (4, 4))]


def test_local_layers_see_their_window_alone():
    """GPT-Neo returns its weights: even shares and missing keys are those of its local layers."""
    model = build_registered("gpt_neo", "eager")
    lm = LanguageModel.wrap(model)
    window = model.config.window_size
    assert model.config.attention_layers == ["global", "local"]
    batch = sample_batch((11, 8))
    keys = torch.tensor([[0, 4, 9]] * 2)
    with torch.no_grad(), lm.attention_weights(WeightRequest(keys)) as weights:
        model(**forward_inputs(model, batch))
    limit = torch.tensor([[False] * 3 + [True] * 2] * 2)
    with torch.no_grad(), lm.attention_peaks(PeakRequest(keys=limit)) as peaks:
        model(**forward_inputs(model, batch))
    compared = 0
    for at, (row, place) in enumerate(weights.rows.tolist()):
        first = int((batch.attention_mask[row] == 0).sum())
        for layer, start in enumerate((first, max(first, place - window + 1))):
            seen = range(start, place + 1)
            for number, key in enumerate(keys[row].tolist()):
                share = 1 / len(seen) if key in seen else 0.0
                assert weights.uniform[at, 4 * layer, number] == pytest.approx(share)
                compared += key not in seen and key <= place and key >= first
            within = [key for key in (3, 4) if key in seen]
            assert int(peaks.keys[at, layer, 0]) in (within or [-1])
    assert compared  # some keys lie before a window
