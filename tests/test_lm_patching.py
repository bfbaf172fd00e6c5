"""Patching single heads: the identity, a naive twin, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import lm_helpers as helpers
from headscope.errors import InputError
from headscope.lm.model import LanguageModel
from headscope.lm.patching import Patch, head_outputs, patched


def every_head(lm: LanguageModel) -> tuple[torch.Tensor, torch.Tensor]:
    heads = list(lm.geometry.heads())
    return torch.tensor([h.layer for h in heads]), torch.tensor([h.head for h in heads])


def rows_of(lm: LanguageModel, length: int, seed: int, count: int) -> Any:
    return helpers.sample_batch((length,) * count, seed)


@pytest.mark.parametrize("name", helpers.VARIED)
def test_a_head_patched_with_its_own_output_changes_no_bit(name: str) -> None:
    lm = helpers.wrapped(name)
    layers, heads = every_head(lm)
    batch = rows_of(lm, 6, 0, len(layers))
    plain = helpers.logits(lm.model, batch)
    with head_outputs(lm) as seen:
        helpers.logits(lm.model, batch)
    own = seen.values[torch.arange(len(layers)), layers, heads]
    with patched(lm, Patch(layers, heads, own)):
        same = helpers.logits(lm.model, batch)
    assert torch.equal(plain, same)
    assert torch.equal(plain, helpers.logits(lm.model, batch))  # the hooks are gone


@pytest.mark.parametrize("name", ["llama", "gpt2", "bitnet", "qwen3_next", "deepseek_v3"])
def test_many_heads_in_one_batch_equal_one_head_edited_at_a_time(name: str) -> None:
    """Twin: the last token's input of W_O is overwritten by hand, in one row, for one head."""
    lm = helpers.wrapped(name)
    clean, other = (helpers.sample_batch((7,), seed) for seed in (1, 2))
    layers, heads = every_head(lm)
    inputs: dict[int, torch.Tensor] = {}
    handles = [
        site.projection.register_forward_pre_hook(
            lambda _, args, layer=site.layer: inputs.update({layer: args[0].clone()})
        )
        for site in lm.sites
    ]
    helpers.logits(lm.model, other)
    for handle in handles:
        handle.remove()

    with head_outputs(lm) as seen:
        helpers.logits(lm.model, other)
    batch = helpers.sample_batch((7,) * 1, 1)
    many = type(batch)(*(getattr(batch, field).repeat(len(layers), 1) for field in (
        "input_ids", "attention_mask", "position_ids")))  # fmt: skip
    with patched(lm, Patch(layers, heads, seen.values[0, layers, heads])):
        together = helpers.logits(lm.model, many)

    plain = helpers.logits(lm.model, clean)
    sites = {site.layer: site for site in lm.sites}
    for row, (layer, head) in enumerate(zip(layers.tolist(), heads.tolist(), strict=True)):
        site = sites[layer]
        channels = slice(head * site.head_width, (head + 1) * site.head_width)

        def edit(_: Any, args: Any, layer: int = layer, channels: slice = channels) -> Any:
            x = args[0].clone()
            x[0, -1, channels] = inputs[layer][0, -1, channels]
            return (x, *args[1:])

        handle = site.projection.register_forward_pre_hook(edit)
        alone = helpers.logits(lm.model, clean)
        handle.remove()
        torch.testing.assert_close(together[row], alone[0], rtol=1e-4, atol=1e-4)
        # Only the last token is touched.
        torch.testing.assert_close(alone[0, :-1], plain[0, :-1], rtol=1e-4, atol=1e-4)


def test_rows_without_a_patch_and_shorter_rows_stay_as_they_are() -> None:
    lm = helpers.wrapped("llama")
    batch = helpers.sample_batch((5, 8, 6))
    plain = helpers.logits(lm.model, batch)
    values = torch.ones(3, lm.sites[0].head_width)
    layers, heads = torch.tensor([-1, 1, -1]), torch.tensor([0, 2, 0])
    with patched(lm, Patch(layers, heads, values)):
        now = helpers.logits(lm.model, batch)
    assert torch.equal(now[0], plain[0]) and torch.equal(now[2], plain[2])
    assert not torch.equal(now[1, -1], plain[1, -1])
    assert torch.equal(now[1, :-1], plain[1, :-1])


def test_an_error_inside_takes_the_patch_away() -> None:
    lm = helpers.wrapped("gpt2")
    batch = helpers.sample_batch((4,))
    plain = helpers.logits(lm.model, batch)
    patch = Patch(torch.tensor([0]), torch.tensor([0]), torch.ones(1, lm.sites[0].head_width))
    with pytest.raises(RuntimeError, match="mine"), patched(lm, patch), head_outputs(lm):
        raise RuntimeError("mine")
    assert torch.equal(plain, helpers.logits(lm.model, batch))


def test_what_cannot_be_patched_is_refused() -> None:
    lm = helpers.wrapped("llama")
    width = lm.sites[0].head_width
    one = torch.tensor([0])
    with (
        pytest.raises(InputError, match=r"no head L0\.H99"),
        patched(lm, Patch(one, torch.tensor([99]), torch.ones(1, width))),
    ):
        pass
    with (
        pytest.raises(InputError, match="at most 3 channels"),
        patched(lm, Patch(one, one, torch.ones(1, 3))),
    ):
        pass
    with (
        pytest.raises(InputError, match="give one of each"),
        patched(lm, Patch(one, torch.tensor([0, 1]), torch.ones(1, width))),
    ):
        pass
    with (
        pytest.raises(InputError, match="met a batch of shape"),
        patched(lm, Patch(one, one, torch.ones(1, width))),
    ):
        helpers.logits(lm.model, helpers.sample_batch((4, 4)))
