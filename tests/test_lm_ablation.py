"""Mean ablation: means over tokens, and what removal puts in their place."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from headscope.errors import InputError
from headscope.heads import Head, HeadSet
from headscope.lm.ablation import head_means
from lm_helpers import VARIED, logits, sample_batch, wrapped

TEXTS = ["a first text", "", "and another, which is longer", "third"]


def naive_means(lm, texts) -> np.ndarray:
    """One text at a time, all vectors kept, averaged at the end."""
    kept = {site.layer: [] for site in lm.sites}
    for text in filter(None, texts):
        handles = [
            site.projection.register_forward_pre_hook(
                lambda _, args, layer=site.layer: kept[layer].append(args[0][0])
            )
            for site in lm.sites
        ]
        with torch.no_grad():
            lm.model(input_ids=torch.tensor([lm.encode(text)]))
        for handle in handles:
            handle.remove()
    width = max(site.head_width for site in lm.sites)
    means = np.zeros((*lm.geometry.shape, width))
    for site in lm.sites:
        mean = torch.cat(kept[site.layer]).double().mean(0).view(site.heads, -1)
        means[site.layer, : site.heads, : site.head_width] = mean.numpy()
    return means


@pytest.mark.parametrize("name", VARIED)
def test_means_equal_one_text_at_a_time(name: str) -> None:
    lm = wrapped(name)
    expected = naive_means(lm, TEXTS)
    assert float(np.abs(expected).max()) > 0.1
    for batch_tokens in (1, 64, 4096):
        means = head_means(lm, TEXTS, batch_tokens)
        assert means.dtype == np.float32
        np.testing.assert_allclose(means, expected, rtol=1e-3, atol=2e-5)


@pytest.mark.parametrize("name", ["llama", "gpt2", "bitnet"])
def test_removal_puts_the_mean_in_the_heads_place(name: str) -> None:
    lm = wrapped(name)
    batch = sample_batch()
    means = head_means(lm, TEXTS)
    heads = HeadSet(lm.geometry, (Head(0, 2), Head(1, 1)))

    def replace(site):
        def hook(_, args):
            parts = args[0].clone().unflatten(-1, (site.heads, site.head_width))
            for head in heads:
                if head.layer == site.layer:
                    parts[..., head.head, :] = torch.from_numpy(means[head.layer, head.head])
            return (parts.flatten(-2),)

        return hook

    handles = [site.projection.register_forward_pre_hook(replace(site)) for site in lm.sites]
    expected = logits(lm.model, batch)
    for handle in handles:
        handle.remove()
    with lm.gated(heads.removed(), ablate="mean", means=means):
        assert torch.equal(logits(lm.model, batch), expected)
    with lm.gated(heads.removed()):
        assert not torch.equal(logits(lm.model, batch), expected)


def test_half_a_gate_keeps_half_of_the_mean() -> None:
    lm = wrapped("llama")
    batch = sample_batch((5, 3))
    means = head_means(lm, TEXTS)
    gate = torch.ones(2, *lm.geometry.shape)
    gate[1, 1, 2] = 0.25
    site = lm.sites[1]
    seen = []
    with lm.gated(gate, ablate="mean", means=means):
        handle = site.projection.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
        logits(lm.model, batch)
        handle.remove()
    handle = site.projection.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    logits(lm.model, batch)
    handle.remove()
    gated, plain = (x.unflatten(-1, (site.heads, site.head_width)) for x in seen)
    expected = plain.clone()
    expected[1, :, 2] = 0.25 * plain[1, :, 2] + 0.75 * torch.from_numpy(means[1, 2])
    torch.testing.assert_close(gated, expected)


def test_what_does_not_fit_is_refused() -> None:
    lm = wrapped("llama")
    gate = torch.zeros(lm.geometry.shape)
    means = head_means(lm, TEXTS)
    for arguments, words in [
        ({"ablate": "mean"}, "head_means"),
        ({"ablate": "mean", "means": means[:1]}, "compute them with this model"),
        ({"ablate": "zero", "means": means}, "ablate='mean'"),
        ({"ablate": "median"}, "'zero' or 'mean'"),
    ]:
        with pytest.raises(InputError, match=words), lm.gated(gate, **arguments):
            pass
    with pytest.raises(InputError, match="at least one text"):
        head_means(lm, ["", ""])
