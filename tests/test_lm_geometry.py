"""The probe finds heads and output projections, or says why it cannot."""

from __future__ import annotations

import copy

import pytest
import torch
from small_models import build
from torch import nn

from headscope.errors import InputError
from headscope.lm.geometry import is_linear, probe
from headscope.lm.inputs import evaluating, probe_batch
from headscope.lm.model import LanguageModel
from lm_helpers import VARIED, logits, multimodal, sample_batch, tokenizer

EXPECTED = {
    "llama": ((4, 4), 16, "model.layers.1.self_attn.o_proj"),
    "gpt2": ((4, 4), 12, "transformer.h.1.attn.c_proj"),
    "gpt_neox": ((4, 4), 12, "gpt_neox.layers.1.attention.dense"),
    "gemma2": ((4, 4), 16, "model.layers.1.self_attn.o_proj"),
    "qwen3_next": ((0, 4, 0, 4), 16, "model.layers.3.self_attn.o_proj"),
    "deepseek_v3": ((4, 4), 10, "model.layers.1.self_attn.o_proj"),
    "bitnet": ((4, 4), 12, "model.layers.1.self_attn.o_proj"),
}


@pytest.mark.parametrize("name", VARIED)
@pytest.mark.parametrize("implementation", [None, "eager"])
def test_heads_and_projections_are_found(name: str, implementation: str | None) -> None:
    model = build(name, attn_implementation=implementation)
    geometry, sites = probe(model)
    counts, width, last = EXPECTED[name]
    assert geometry.counts == counts
    assert {site.head_width for site in sites} == {width}
    assert sites[-1].projection_name == last
    for site in sites:
        assert site.projection is model.get_submodule(site.projection_name)
        assert site.attention.layer_idx == site.layer


def test_head_width_of_latent_attention_is_that_of_values() -> None:
    model = build("deepseek_v3")
    _, sites = probe(model)
    assert sites[0].head_width == model.config.v_head_dim
    assert sites[0].head_width != model.config.qk_nope_head_dim + model.config.qk_rope_head_dim


def test_the_model_is_left_as_it_was() -> None:
    model = build("qwen3_next").train()
    model.model.layers[0].eval()
    modes = [module.training for module in model.modules()]
    before = copy.deepcopy(model.state_dict())
    random = torch.get_rng_state()
    LanguageModel.wrap(model)
    assert [module.training for module in model.modules()] == modes
    assert all(not m._forward_hooks and not m._forward_pre_hooks for m in model.modules())
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random)


def test_evaluating_gives_every_module_its_mode_back_after_an_exception() -> None:
    model = nn.Sequential(nn.Dropout(), nn.Linear(2, 2))
    model[1].eval()
    with evaluating(model):
        assert not any(module.training for module in model.modules())
    assert [module.training for module in model.modules()] == [True, True, False]
    with pytest.raises(RuntimeError, match="on purpose"), evaluating(model):
        raise RuntimeError("on purpose")
    assert [module.training for module in model.modules()] == [True, True, False]


@pytest.mark.parametrize("rows", [2, 1])
def test_evaluating_hands_contiguous_states_to_the_output_embedding_and_leaves_no_hook(
    rows: int,
) -> None:
    model = build("llama").eval()
    embedding, tokens = model.get_output_embeddings(), torch.ones(rows, 4, dtype=torch.long)
    contiguous: list[bool] = []
    # By its strides: a single row of a slice counts as contiguous, and is copied for all the same.
    embedding.register_forward_hook(
        lambda _, states, __: contiguous.append(
            states[0].stride() == torch.empty(states[0].shape).stride()
        )
    )
    with pytest.raises(RuntimeError, match="on purpose"), evaluating(model):
        model(tokens, logits_to_keep=1)
        raise RuntimeError("on purpose")
    model(tokens, logits_to_keep=1)
    assert contiguous == [True, False]
    assert not embedding._forward_pre_hooks


def test_a_kernel_that_is_no_torch_function_is_seen_through_the_table() -> None:
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import eager_mask
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    def kernel(module, query, key, value, attention_mask, scaling=1.0, **_):
        groups = query.shape[1] // key.shape[1]
        key, value = (part.repeat_interleave(groups, dim=1) for part in (key, value))
        weights = torch.einsum("bhtd,bhsd->bhts", query, key) * scaling + attention_mask
        weights = (weights - weights.amax(-1, keepdim=True)).exp()
        out = torch.einsum("bhts,bhsd->bthd", weights / weights.sum(-1, keepdim=True), value)
        return out, None

    AttentionInterface.register("headscope_test", kernel)
    AttentionMaskInterface.register("headscope_test", eager_mask)
    try:
        model = build("llama", attn_implementation="headscope_test")
        lm = LanguageModel.wrap(model)
        batch = sample_batch()
        expected = logits(build("llama"), batch)
        real = batch.attention_mask.bool()
        torch.testing.assert_close(logits(model, batch)[real], expected[real], rtol=1e-3, atol=1e-4)
        assert lm.geometry.counts == (4, 4)
        assert ALL_ATTENTION_FUNCTIONS["headscope_test"] is kernel
        assert "headscope_test" not in ALL_ATTENTION_FUNCTIONS._local_mapping
    finally:
        del AttentionInterface._global_mapping["headscope_test"]
        del AttentionMaskInterface._global_mapping["headscope_test"]


def test_text_decoder_of_a_multimodal_model() -> None:
    lm = multimodal()
    assert lm.geometry.counts == (4, 4)
    assert all("vision" not in site.projection_name for site in lm.sites)
    assert not {90, 91, 92} & set(probe_batch(lm.model).input_ids.flatten().tolist())


class Wrapper(nn.Module):
    """An adapter around a layer, as PEFT makes them: no subclass of Linear."""

    def __init__(self, base: nn.Linear, rank: int = 2) -> None:
        super().__init__()
        self.base_layer = base
        self.in_features, self.out_features = base.in_features, base.out_features
        self.lora_a = nn.Linear(base.in_features, rank, bias=False)
        self.lora_b = nn.Linear(rank, base.out_features, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base_layer(x) + self.lora_b(self.lora_a(x))


def test_a_layer_with_an_adapter_is_gated_as_a_whole() -> None:
    model = build("llama")
    for layer in model.model.layers:
        layer.self_attn.o_proj = Wrapper(layer.self_attn.o_proj)
    lm = LanguageModel.wrap(model)
    assert isinstance(lm.sites[0].projection, Wrapper)
    gate = torch.ones(lm.geometry.shape)
    gate[0] = 0
    batch = sample_batch()
    with lm.gated(gate):
        gated = logits(model, batch)
    with torch.no_grad():
        first = model.model.layers[0].self_attn.o_proj
        first.base_layer.weight.zero_()
        first.lora_b.weight.zero_()
    assert torch.equal(gated, logits(model, batch))


def test_an_adapter_that_hides_its_layer_is_refused() -> None:
    class Hidden(Wrapper):
        def __init__(self, base: nn.Linear) -> None:
            super().__init__(base)
            del self.in_features, self.out_features

    model = build("llama")
    for layer in model.model.layers:
        layer.self_attn.o_proj = Hidden(layer.self_attn.o_proj)
    with pytest.raises(InputError, match="merge adapters"):
        LanguageModel.wrap(model)


def test_linear_maps_are_told_from_other_modules() -> None:
    from transformers.pytorch_utils import Conv1D

    assert is_linear(nn.Linear(2, 2))
    assert is_linear(Conv1D(2, 2))
    assert not is_linear(nn.LayerNorm(2))
    assert not is_linear(nn.Embedding(2, 2))


def small(kind: str, **fields):
    from transformers import AutoConfig, AutoModelForCausalLM

    shape = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 32,
        "vocab_size": 96,
        "pad_token_id": 0,
    }
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **{**shape, **fields}))


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (lambda: small("mamba"), "no softmax attention was seen"),
        (lambda: small("diffllama", num_key_value_heads=2), "computes attention twice"),
        (lambda: small("jetmoe", num_local_experts=2, kv_channels=8), "no output projection"),
    ],
)
def test_models_without_plain_heads_are_refused_with_advice(model, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        LanguageModel.wrap(model())
    assert "use " in str(caught.value) or "load " in str(caught.value)


def test_layers_that_share_their_attention_are_refused() -> None:
    model = build("llama")
    model.model.layers[1].self_attn = model.model.layers[0].self_attn
    with pytest.raises(InputError, match=r"ambiguous|twice"):
        LanguageModel.wrap(model)


def test_things_that_are_no_decoder_are_refused() -> None:
    from transformers import T5Config, T5ForConditionalGeneration

    shape = {"d_model": 16, "d_kv": 4, "d_ff": 16, "num_layers": 1, "num_heads": 4}
    with pytest.raises(InputError, match="encoder-decoder"):
        LanguageModel.wrap(T5ForConditionalGeneration(T5Config(vocab_size=96, **shape)))
    with pytest.raises(InputError, match=r"headscope\.load"):
        LanguageModel.wrap("llama")


def test_context_length_and_special_ids() -> None:
    lm = LanguageModel.wrap(build("gpt2"), tokenizer(pad=False), check=False)
    assert lm.context_length == lm.model.config.n_positions
    assert lm.eos_token_ids == (2,)
    assert lm.pad_token_id == 2
    assert lm.tokenizer.pad_token_id is None
    with pytest.raises(InputError, match="no tokenizer"):
        _ = LanguageModel.wrap(build("gpt2"), check=False).tokenizer
