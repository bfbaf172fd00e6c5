"""Losses of answers under many gates equal those of one sentence, one gate at a time."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from small_models import build

import headscope.lm.shared_losses as answers
import lm_helpers
from headscope.errors import InputError
from headscope.heads import Gate, HeadSet
from headscope.lm.batching import Batch
from headscope.lm.generation.pool import Requests, SharedPrefix
from headscope.lm.geometry import AttentionSite
from headscope.lm.model import LanguageModel
from headscope.lm.replacement import Mean
from headscope.lm.shared_losses import AnswerRow, answer_losses
from lm_helpers import CHANGING, changing, folded, fresh, tokenizer, wrapped

#: Grouped keys, learned and linear positions, sliding windows, recurrent layers, latent values.
MODELS = ("llama", "gpt2", "bloom", "mistral", "gemma3", "qwen3_next", "deepseek_v3")


def rows(begin: int, seed: int = 0) -> list[AnswerRow]:
    """Rows of unlike lengths that begin alike; the wanted places have gaps."""
    generator = np.random.default_rng(seed)
    common = generator.integers(3, 96, begin)
    found = []
    for length in (14, 6, 9, 14):
        ids = [*common.tolist(), *generator.integers(3, 96, length).tolist()]
        places = np.array([at for at in range(begin + 3, begin + length) if at % 4])
        found.append(AnswerRow(tuple(ids), places))
    return found


def gates(lm: LanguageModel) -> list[Gate]:
    """Gates that change a last layer, the first, nothing, several layers, and the last again."""
    heads = list(lm.geometry.heads())
    sets = (heads[-1:], [heads[0], heads[-2]], [], heads[len(heads) // 2 :: 3], heads[-2:])
    return [HeadSet(lm.geometry, tuple(one)).removed() for one in sets]


def naive(lm: LanguageModel, row: AnswerRow, gate: Gate) -> NDArray[np.float32]:
    """One row, alone, by a model whose slices of W_O are multiplied by the gate."""
    return plain(folded(lm, torch.from_numpy(np.array(gate.values))), row)


def plain(model: Any, row: AnswerRow) -> NDArray[np.float32]:
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([row.ids]), use_cache=False).logits[0].float()
    found = torch.nn.functional.cross_entropy(
        logits[row.places - 1], torch.tensor(row.ids)[row.places], reduction="none"
    )
    return found.numpy()


@pytest.mark.parametrize("begin", [0, 9])
@pytest.mark.parametrize("name", MODELS)
def test_losses_are_those_of_a_naive_loop(name: str, begin: int) -> None:
    lm = LanguageModel.wrap(build(name, layers=4), tokenizer(), name=name, check=False)
    wanted, put = rows(begin), gates(lm)
    found = dict(answer_losses(lm, wanted, put, batch_tokens=40))
    assert max(map(len, answers.together(wanted, put))) > 1
    assert sorted(found) == [0, 1, 2, 3, 4]
    for number, gate in enumerate(put):
        for row, losses in zip(wanted, found[number], strict=True):
            assert losses == pytest.approx(naive(lm, row, gate), rel=3e-6, abs=1e-5), number
    assert max(abs(a - b).max() for a, b in zip(found[1], found[2], strict=True)) > 1e-3


@pytest.mark.parametrize("begin", [0, 9])
@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_means_take_the_place_of_heads_by_position(name: str, begin: int) -> None:
    """Head by head and token by token: the first, the rest of the prompt, the answer."""
    lm = LanguageModel.wrap(build(name, layers=4), tokenizer(), name=name, check=False)
    means = np.random.default_rng(0).normal(size=(3, *lm.geometry.shape, lm.sites[0].head_width))
    heads = [head for head in lm.geometry.heads() if head.layer in (1, 3)][1:6]
    gate = HeadSet(lm.geometry, tuple(heads)).removed()
    # Zero ablation of the same gate stands beside, and must not be touched by the means.
    found = dict(
        answer_losses(lm, rows(begin), [gate, gate], [Mean(means.astype(np.float32)), None])
    )
    for row, losses, zero in zip(rows(begin), found[0], found[1], strict=True):

        def put(site: AttentionSite, x: torch.Tensor, first: int) -> torch.Tensor:
            x = x.clone()
            for head in heads:
                if head.layer == site.layer:
                    channels = slice(head.head * site.head_width, (head.head + 1) * site.head_width)
                    for at in range(x.shape[1]):
                        kind = 0 if at == 0 else 1 if at < first else 2
                        x[0, at, channels] = torch.tensor(means[kind, head.layer, head.head])
            return x

        model = copy.deepcopy(lm.model)
        for site in lm.sites:
            model.get_submodule(site.projection_name).register_forward_pre_hook(
                lambda _, x, site=site, first=row.places[0]: (put(site, x[0], first),)
            )
        assert losses == pytest.approx(plain(model, row), rel=3e-6, abs=1e-5)
        assert zero == pytest.approx(naive(lm, row, gate), rel=3e-6, abs=1e-5)


@pytest.mark.parametrize("name", ["llama", "gemma3", "mistral", "gpt2"])
def test_what_passes_have_in_common_is_computed_once(name: str) -> None:
    """The beginning is read once a gate, and what no gate changes once in all; gates together."""
    lm = LanguageModel.wrap(build(name, layers=4), tokenizer(), name=name, check=False)
    with torch.no_grad():
        passes = answers._Passes(lm, rows(9), 8192)
    seen: list[tuple[int, ...]] = []
    handle = lm.sites[1].projection.register_forward_pre_hook(
        lambda _, args: seen.append(tuple(args[0].shape[:2]))
    )
    single = [HeadSet(lm.geometry, (head,)).removed() for head in list(lm.geometry.heads())[-4:]]
    with torch.no_grad():
        for gate in single:
            passes.losses([gate])
        assert sorted(seen) == [(1, 9)] * 4 + [(4, 14)]
        seen.clear()
        passes.losses(single)
    handle.remove()
    # Sixteen rows in one batch, of four different ones below the last layer.
    assert seen == [(4, 14), (4, 9)]


def test_gates_are_read_together_by_first_layer_and_groups_stay_what_they_are() -> None:
    lm = LanguageModel.wrap(build("llama", layers=4), tokenizer(), check=False)
    wanted, heads = rows(0), list(lm.geometry.heads())
    put = [
        HeadSet(lm.geometry, (heads[at % 16], heads[(at + 5) % 16])).removed() for at in range(39)
    ]
    means: list[Any] = [Mean(np.zeros((3, *lm.geometry.shape, 1), np.float32)), None]
    placed = [means[at % 3 == 0] for at in range(39)]
    groups = answers.together(wanted, put, placed)
    assert sorted(at for group in groups for at in group) == [*range(39)]
    firsts = [{answers.first_changed_layer(put[at]) for at in group} for group in groups]
    assert all(len(own) == 1 for own in firsts) and firsts == sorted(firsts, key=min)
    assert all(len({id(placed[at]) for at in group}) == 1 for group in groups)
    assert 1 < max(map(len, groups)) <= 8
    for left in (groups[1::2], groups[1:], groups[2:]):
        some = sorted(at for group in left for at in group)
        own = [put[at] for at in some], [placed[at] for at in some]
        again = answers.together(wanted, *own)
        assert [[some[at] for at in group] for group in again] == left


@pytest.mark.parametrize(("most", "begin"), [(14 * 23, 9), (14 * 23 - 1, 0)])
def test_a_beginning_is_not_kept_where_the_mask_behind_it_is_large(
    most: int, begin: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lm = wrapped("llama")
    longest = max(len(row.ids) for row in rows(9))
    assert (longest - 9) * longest == 14 * 23
    monkeypatch.setattr(answers, "MOST_MASKED", most)
    monkeypatch.setattr("headscope.lm.generation.pool.MOST_MASKED", most)
    with torch.no_grad():
        assert answers._Passes(lm, rows(9), 8192).begin == begin
    ids = [row.ids for row in rows(9)] * 12
    requests = Requests(ids, [1] * len(ids), None, np.zeros(len(ids), np.intp), None, False)
    assert SharedPrefix(lm, requests).tokens == begin


def test_a_cache_that_does_not_continue_a_text_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    lm = wrapped("llama")
    monkeypatch.setattr(answers, "_SAME", {torch.float32: -1.0})
    with torch.no_grad():
        assert answers._Passes(lm, rows(9), 8192).begin == 0
    gate = Gate.identity(lm.geometry)
    ((_, found),) = answer_losses(lm, rows(9), [gate])
    for row, losses in zip(rows(9), found, strict=True):
        assert losses == pytest.approx(naive(lm, row, gate), abs=1e-5)


@pytest.mark.parametrize("where", lm_helpers.SCARCE)
def test_memory_that_does_not_suffice_halves_the_batches(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lm = wrapped("llama")
    sizes = []
    plain = answers.losses_at

    def small(lm: LanguageModel, batch: Batch, wanted: torch.Tensor) -> torch.Tensor:
        sizes.append(len(batch.input_ids))
        if sizes[-1] > 3:
            lm_helpers.no_memory(where)
        return plain(lm, batch, wanted)

    expected = dict(answer_losses(lm, rows(0), gates(lm)))
    monkeypatch.setattr(answers, "losses_at", small)
    found = dict(answer_losses(lm, rows(0), gates(lm), batch_tokens=64))
    assert max(sizes) == 4 and sizes[-1] < 4
    for number, losses in expected.items():
        for one, other in zip(losses, found[number], strict=True):
            assert one == pytest.approx(other, abs=1e-5)


def test_rows_without_an_answer_or_beyond_the_context_are_refused() -> None:
    lm = wrapped("gpt2")
    gate = Gate.identity(lm.geometry)
    for row, said in (
        (AnswerRow((5, 6), np.array([0])), "no answer"),
        (AnswerRow((5, 6), np.array([], dtype=int)), "no answer"),
        (AnswerRow((5,) * (lm.context_length + 1), np.array([1])), "context"),
    ):
        with pytest.raises(InputError, match=said):
            next(answer_losses(lm, [row], [gate]))


@pytest.mark.parametrize("kind", CHANGING)
def test_rows_that_change_with_their_length_share_no_beginning(kind: str) -> None:
    lm, generator = changing(kind), np.random.default_rng(0)
    common = generator.integers(3, 96, 14)
    kept = []
    for length in (4, 26, 9, 26, 17):
        ids = [*common.tolist(), *generator.integers(3, 96, length).tolist()]
        kept.append(AnswerRow(tuple(ids), np.arange(16, len(ids))))
    for at, found in answer_losses(lm, kept, gates(lm)):
        values = torch.from_numpy(np.array(gates(lm)[at].values))
        for row, loss in zip(kept, found, strict=True):
            single = LanguageModel.wrap(fresh(lm), lm.tokenizer, check=False)
            np.testing.assert_allclose(loss, plain(folded(single, values), row), atol=2e-5)
