"""Small models of whatever transformers registers, and what is said of each."""

from __future__ import annotations

import pytest
import torch

from headscope.lm.attention.peaks import PeakRequest
from headscope.lm.attention.weights import WeightRequest
from headscope.lm.inputs import forward_inputs
from headscope.lm.model import LanguageModel
from headscope.lm.registered import (
    Trial,
    build_registered,
    registered,
    trials_markdown,
    try_all,
    try_one,
)
from lm_helpers import sample_batch


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


def test_every_registered_name_is_told_once():
    names = registered()
    assert len(set(names)) == len(names) > 100
    trials = [
        Trial("a", "passes", (2,)),
        Trial("b", "passes", (2,), "but"),
        Trial("c", "refused", reason="x | y"),
    ]
    page = trials_markdown(trials, "0")
    assert "registers 3 architectures" in page and "**2 pass**: a, b." in page
    assert page.splitlines()[-2:] == ["| b | passes | but |", "| c | refused | x \\| y |"]


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
