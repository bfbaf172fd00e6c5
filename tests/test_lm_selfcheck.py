"""The self-check passes what can be trusted and catches what cannot."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import pytest
import torch
from small_models import build
from torch import nn

from headscope.errors import InputError
from headscope.lm.gates import gated
from headscope.lm.model import LanguageModel
from headscope.lm.selfcheck import selfcheck
from headscope.studies.models import model_provenance
from lm_helpers import VARIED, tokenizer


def unchecked(name: str = "llama") -> LanguageModel:
    return LanguageModel.wrap(build(name), tokenizer(), name=name, check=False)


@pytest.mark.parametrize("name", VARIED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sound_models_pass(name: str, dtype: torch.dtype) -> None:
    lm = LanguageModel.wrap(build(name).to(dtype), check=False)
    selfcheck(lm)


def test_a_projection_that_is_not_the_heads_way_out() -> None:
    lm = unchecked()
    astray = nn.Linear(64, 48)
    wrong = dataclasses.replace(lm.sites[1], projection=astray, projection_name="astray")
    lm = dataclasses.replace(lm, sites=(lm.sites[0], wrong))
    with pytest.raises(InputError, match="'astray' ran 0 times in one forward pass"):
        selfcheck(lm)


def test_a_projection_that_runs_twice() -> None:
    lm = unchecked()
    projection = lm.sites[0].projection

    def again(*_: object) -> None:
        projection(torch.zeros(1, 1, 64))

    lm.model.model.register_forward_hook(again)
    with pytest.raises(InputError, match="ran 2 times"):
        selfcheck(lm)


def test_a_projection_that_is_not_linear() -> None:
    class Normed(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x / x.norm(dim=-1, keepdim=True).clamp_min(1e-6))

    model = build("llama")
    for layer in model.model.layers:
        layer.self_attn.o_proj.__class__ = Normed
    with pytest.raises(InputError, match="heads of layer 0 do not sum"):
        LanguageModel.wrap(model)


def noisy(size: float, seldom: int = 1) -> LanguageModel:
    """A model whose forward adds noise of its own to every ``seldom``-th pass."""
    lm = unchecked()
    generator = torch.Generator().manual_seed(0)
    calls = itertools.count(1)

    def shake(_: nn.Module, __: object, output: torch.Tensor) -> torch.Tensor:
        noise = size * torch.randn(output.shape, generator=generator)
        return output + noise if next(calls) % seldom == 0 else output

    lm.model.model.embed_tokens.register_forward_hook(shake)
    return lm


def test_noise_is_measured_and_a_model_without_it_has_none() -> None:
    quiet = selfcheck(unchecked())
    assert quiet.typical == quiet.largest == 0
    found = [selfcheck(noisy(size)) for size in (1e-4, 1e-3)]
    for noise in found:
        assert 0 < noise.typical < noise.largest
    # Small noise goes through a model in proportion.
    assert 5 < found[1].typical / found[0].typical < 20


@pytest.mark.parametrize("seldom", [4, 5])
def test_noise_that_the_first_passes_missed_is_no_fault(seldom: int) -> None:
    # Three quiet passes at first; the one under the gate, or one after it, is the first with noise.
    selfcheck(noisy(1e-3, seldom))


def test_noise_in_which_nothing_could_be_seen() -> None:
    with pytest.raises(InputError, match="not deterministic"):
        selfcheck(noisy(1.0))


@pytest.mark.parametrize("size", [0.0, 1e-4, 1e-3])
def test_a_gate_of_ones_that_changes_the_result(
    size: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(lm: Any, gate: torch.Tensor, **options: Any) -> Any:
        return gated(lm, 0.9 * gate, **options)

    monkeypatch.setattr("headscope.lm.selfcheck.gated", wrong)
    with pytest.raises(InputError, match="a gate of ones changes the logits"):
        selfcheck(noisy(size))


def test_without_noise_a_single_bit_is_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(lm: Any, gate: torch.Tensor, **options: Any) -> Any:
        return gated(lm, (1 + 1e-6) * gate, **options)

    monkeypatch.setattr("headscope.lm.selfcheck.gated", wrong)
    with pytest.raises(InputError, match="a gate of ones changes the logits"):
        selfcheck(unchecked())
    selfcheck(noisy(1e-3))


def test_the_noise_is_told_with_the_model() -> None:
    lm = noisy(1e-3)
    assert lm.noise is None
    known = model_provenance(LanguageModel.wrap(lm.model, tokenizer()))
    assert 0 < known["noise"] < 1
    assert model_provenance(LanguageModel.wrap(build("llama"), tokenizer()))["noise"] == 0


@pytest.mark.parametrize("size", [0.0, 1e-3])
def test_heads_that_reach_nothing(size: float) -> None:
    lm = noisy(size)
    attention = lm.model.model.layers[1].self_attn
    attention.register_forward_hook(lambda _, __, out: (torch.zeros_like(out[0]), *out[1:]))
    with pytest.raises(InputError, match="removing all heads of layer 1 changes no logit"):
        selfcheck(lm)


@pytest.mark.parametrize("heads", [1, 4])
def test_heads_that_write_nothing_are_no_fault(heads: int) -> None:
    model = build("llama")
    with torch.no_grad():
        model.model.layers[0].self_attn.o_proj.weight[:, : heads * 16] = 0
    LanguageModel.wrap(model)


def test_an_encoder_is_not_causal() -> None:
    from transformers import BertConfig, BertLMHeadModel

    torch.manual_seed(0)
    config = BertConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=32,
        vocab_size=96,
        initializer_range=0.3,
    )
    with pytest.raises(InputError, match="not a causal decoder"):
        LanguageModel.wrap(BertLMHeadModel(config))
    config.is_decoder = True
    LanguageModel.wrap(BertLMHeadModel(config))


def test_a_kernel_that_forgets_padding() -> None:
    from transformers import AttentionInterface

    def kernel(module, query, key, value, attention_mask, scaling=1.0, **_):
        out = nn.functional.scaled_dot_product_attention(
            query, key, value, is_causal=True, scale=scaling, enable_gqa=True
        )
        return out.transpose(1, 2).contiguous(), None

    AttentionInterface.register("headscope_forgets", kernel)
    try:
        with pytest.raises(InputError, match="padding on the left changes the logits"):
            LanguageModel.wrap(build("llama", attn_implementation="headscope_forgets"))
    finally:
        del AttentionInterface._global_mapping["headscope_forgets"]


def test_weights_that_overflow() -> None:
    lm = unchecked()
    with torch.no_grad():
        lm.model.lm_head.weight.fill_(float("inf"))
    with pytest.raises(InputError, match="not finite"):
        selfcheck(lm)


def test_a_cache_that_forgets_where_a_row_is() -> None:
    lm = unchecked()

    def shift(_: nn.Module, args: tuple[torch.Tensor, ...], output: torch.Tensor) -> torch.Tensor:
        # Wrong in steps of one token, which only a cache makes.
        return output if args[0].shape[1] > 1 else output.roll(1, dims=-1)

    lm.model.model.embed_tokens.register_forward_hook(shift)
    with pytest.raises(InputError, match="its own cache changes the logits of a padded row"):
        selfcheck(lm)
