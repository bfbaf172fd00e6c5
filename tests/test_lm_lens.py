"""Hidden states layer by layer and the logit lens, on every architecture of the matrix."""

from __future__ import annotations

import copy
import functools
from typing import Any

import pytest
import torch
from small_models import ARCHITECTURES

from headscope.errors import InputError
from headscope.lm.batching import collate
from headscope.lm.geometry import hidden_states_of
from headscope.lm.inputs import forward_inputs
from headscope.lm.lens import lens, token_ranks
from headscope.lm.model import LanguageModel
from headscope.lm.states import reading_places, states
from lm_helpers import VARIED, folded, wrapped

ROWS = [[5, 9, 20, 33, 7], [8, 40, 41], [11, 12, 13, 14, 15, 16, 17, 18, 19]]

#: Norms of the attention's output that stand before the addition.
NORMS = {
    "gemma2": "post_attention_layernorm",
    "gemma3": "post_attention_layernorm",
    "gemma4": "post_attention_layernorm",
    "olmo2": "post_attention_layernorm",
    "olmo3": "post_attention_layernorm",
    "glm4": "post_self_attn_layernorm",
}
#: Gemma 3n has several states a token.
ONE_STREAM = [name for name in ARCHITECTURES if name != "gemma3n"]
PARALLEL = {"cohere", "cohere2", "gpt_neox", "falcon"}


def naive(lm: LanguageModel, row: list[int], name: str) -> tuple[Any, list[Any], list[Any]]:
    """Of one row alone, all tokens: embedding, after attention, after layers; by the layers' own
    formula, from what their attention modules return."""
    layers = lm.decoder_layers
    entered: dict[int, torch.Tensor] = {}
    left: dict[int, torch.Tensor] = {}
    wrote: dict[int, torch.Tensor] = {}
    handles = []

    def entering(number: int) -> Any:
        def keep(_: Any, args: Any, kwargs: Any) -> None:
            entered[number] = (args[0] if args else kwargs["hidden_states"]).clone()

        return keep

    def leaving(into: dict[int, torch.Tensor], number: int) -> Any:
        def keep(_: Any, args: Any, output: Any) -> None:
            into[number] = hidden_states_of(output).clone()

        return keep

    mixers = {site.layer: site.attention for site in lm.sites}
    for number, layer in enumerate(layers):
        module = mixers.get(number) or getattr(layer, "linear_attn", None) or layer.conv
        assert module is not None
        handles += [
            layer.register_forward_pre_hook(entering(number), with_kwargs=True),
            layer.register_forward_hook(leaving(left, number)),
            module.register_forward_hook(leaving(wrote, number)),
        ]
    batch = collate([row], 0)
    with torch.no_grad():
        lm.model(**forward_inputs(lm.model, batch))
    for handle in handles:
        handle.remove()
    after = []
    for number, layer in enumerate(layers):
        written = wrote[number].reshape(entered[number].shape)
        if name in NORMS:
            with torch.no_grad():
                written = layer.get_submodule(NORMS[name])(written)
        written = written * getattr(lm.model.config, "residual_multiplier", 1.0)
        # Bloom's attention adds the layer's input itself.
        after.append(written if name == "bloom" else entered[number] + written)
    return entered[0][0], [one[0] for one in after], [left[n][0] for n in range(len(layers))]


@pytest.mark.parametrize("name", ONE_STREAM)
def test_states_and_lens_are_those_of_the_model(name: str) -> None:
    lm = wrapped(name)
    found = states(lm, ROWS)
    shape = (len(ROWS), lm.geometry.layers, found.embedding.shape[-1])
    assert found.after_attention.shape == found.after_layer.shape == shape
    logits = []
    for number, row in enumerate(ROWS):
        embedding, after, left = naive(lm, row, name)
        torch.testing.assert_close(found.embedding[number], embedding[-1], atol=1e-5, rtol=1e-4)
        for layer in range(lm.geometry.layers):
            own = found.after_attention[number, layer], found.after_layer[number, layer]
            scale = float(left[layer].abs().max())
            torch.testing.assert_close(own[0], after[layer][-1], atol=1e-4 * scale, rtol=1e-4)
            torch.testing.assert_close(own[1], left[layer][-1], atol=1e-4 * scale, rtol=1e-4)
        with torch.no_grad():
            logits.append(
                lm.model(**forward_inputs(lm.model, collate([row], 0))).logits[0, -1].float()
            )
    wanted = torch.stack(logits)
    top = lens(lm, found.after_layer[:, -1], 4)
    torch.testing.assert_close(top.logits, wanted.sort(descending=True).values[:, :4], atol=1e-3,
                               rtol=1e-3)  # fmt: skip
    ranks = token_ranks(lm, found.after_layer[:, -1], top.tokens)
    assert ranks.tolist() == [[1, 2, 3, 4]] * len(ROWS)


def test_attention_and_feed_forward_side_by_side_are_told_apart() -> None:
    for name in ONE_STREAM:
        places = set(reading_places(wrapped(name)))
        assert (places == {None}) == (name in PARALLEL), name


def test_several_states_a_token_are_refused() -> None:
    lm = wrapped("gemma3n")
    with pytest.raises(InputError, match="no one residual stream"):
        states(lm, ROWS)
    with pytest.raises(InputError, match="given its own last hidden states again"):
        lens(lm, torch.ones(1, 48), 1)


@pytest.mark.parametrize("name", VARIED)
def test_batches_and_gates(name: str) -> None:
    lm = wrapped(name)
    gate = torch.ones(lm.geometry.layers, lm.geometry.width)
    gate[lm.sites[0].layer, 1] = 0.0
    gate[lm.sites[-1].layer, 0] = 0.5
    plain = states(lm, ROWS)
    with lm.gated(gate):
        found = states(lm, ROWS, batch_tokens=9)
    other = LanguageModel.wrap(folded(lm, gate), lm.tokenizer, check=False)
    cut = states(other, ROWS)
    for one, same in (
        (found.after_attention, cut.after_attention),
        (found.after_layer, cut.after_layer),
        (found.embedding, cut.embedding),
    ):
        torch.testing.assert_close(one, same, atol=2e-4, rtol=2e-3)
    assert not torch.equal(plain.after_layer, found.after_layer)


def test_nothing_of_the_model_stays_changed() -> None:
    lm = wrapped("llama")
    before = copy.deepcopy(lm.model.state_dict())
    own = lm.decoder_layers[0].forward
    lm.model.train()
    found = states(lm, ROWS)
    lens(lm, found.after_layer)
    assert lm.model.training and all(layer.training for layer in lm.decoder_layers)
    assert lm.decoder_layers[0].forward == own
    assert "forward" not in lm.decoder_layers[0].__dict__
    assert not any(module._forward_hooks for module in lm.model.modules())
    assert not any(module._forward_pre_hooks for module in lm.model.modules())
    after = lm.model.state_dict()
    assert all(torch.equal(before[key], after[key]) for key in before)


def test_the_lens_breaks_ties_by_id_and_counts_ranks() -> None:
    lm = wrapped("llama")
    with torch.no_grad():
        head = lm.model.get_output_embeddings()
        head.weight[50] = head.weight[7]
    some = torch.randn(2, 3, 48, generator=torch.Generator().manual_seed(0))
    top = lens(lm, some, 96)
    assert top.tokens.shape == (2, 3, 96)
    for row in top.tokens.reshape(-1, 96).tolist():
        assert row.index(50) == row.index(7) + 1
        assert sorted(row) == list(range(96))
    ranks = token_ranks(lm, some, [7, 50, 3])
    assert ranks.shape == (2, 3, 3)
    assert torch.equal(ranks[..., 0], ranks[..., 1])
    logits = top.logits.gather(-1, top.tokens.argsort(dim=-1))
    naive_ranks = 1 + (logits > logits[..., [3]]).sum(dim=-1)
    assert torch.equal(ranks[..., 2], naive_ranks)
    own = torch.tensor([[[1, 2], [3, 4], [5, 6]]] * 2)
    every = token_ranks(lm, some, list(range(96)))
    assert torch.equal(token_ranks(lm, some, own), every.gather(-1, own))


def test_a_model_whose_head_sees_more_than_the_last_state_is_refused() -> None:
    lm = wrapped("llama")
    plain = lm.model.forward

    @functools.wraps(plain)
    def shifted(*args: Any, **kwargs: Any) -> Any:
        output = plain(*args, **kwargs)
        output.logits = output.logits + kwargs["input_ids"].shape[1]
        return output

    lm.model.forward = shifted
    with pytest.raises(InputError, match="its own last hidden states again"):
        lens(lm, torch.zeros(1, 48))


def test_a_layer_that_adds_its_parts_otherwise_is_refused() -> None:
    lm = wrapped("gpt_neox")
    layer: Any = lm.decoder_layers[1]
    plain = layer.forward

    def doubled(*args: Any, **kwargs: Any) -> Any:
        output = plain(*args, **kwargs)
        return output * 2 if isinstance(output, torch.Tensor) else (output[0] * 2, *output[1:])

    layer.forward = doubled
    with pytest.raises(InputError, match="layer 1"):
        states(lm, ROWS)


@pytest.mark.parametrize(
    ("rows", "said"),
    [([], "no rows"), ([[1, 2], []], "no token"), ([[5] * 300], "at most 256")],
)
def test_bad_rows_are_refused(rows: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        states(wrapped("gpt2"), rows)


def test_bad_states_and_tokens_are_told() -> None:
    lm = wrapped("llama")
    with pytest.raises(InputError, match="48"):
        lens(lm, torch.zeros(2, 47))
    with pytest.raises(InputError, match="k is 0"):
        lens(lm, torch.zeros(2, 48), 0)
    with pytest.raises(InputError, match="96 tokens"):
        token_ranks(lm, torch.zeros(2, 48), [96])
    with pytest.raises(InputError, match="do not fit"):
        token_ranks(lm, torch.zeros(2, 48), torch.zeros(3, 1, dtype=torch.long))


def test_too_little_memory_halves_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    lm = wrapped("llama")
    wanted = states(lm, ROWS)
    sizes = []
    from headscope.lm import states as module

    plain = module._read

    def tight(lm: Any, rows: Any) -> Any:
        sizes.append(len(rows))
        if len(rows) > 1:
            raise torch.OutOfMemoryError("no room")
        return plain(lm, rows)

    monkeypatch.setattr(module, "_read", tight)
    found = states(lm, ROWS)
    assert max(sizes) > 1
    torch.testing.assert_close(found.after_layer, wanted.after_layer, atol=1e-5, rtol=1e-4)
