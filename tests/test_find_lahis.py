"""LAHIS against one document at a time, against the published procedure, and its head sets."""

from __future__ import annotations

import copy
import math
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import lm_helpers
from headscope.data.documents import Document, DocumentFile, digest_of
from headscope.errors import InputError
from headscope.find import gate_gradients as module
from headscope.find.first_order_scores import FirstOrder, first_order
from headscope.find.gate_gradients import texts_of
from headscope.find.lahis_scores import (
    Lahis,
    expected_general,
    importance,
    lahis,
    language_sets,
)
from headscope.heads import Geometry, Head, HeadScores
from headscope.lm.model import LanguageModel
from headscope.runs import open_run
from lm_helpers import wrapped

#: Grouped keys, Conv1D, layers without heads, experts, latent values, dropout in the layer itself.
MODELS = ("llama", "gpt2", "qwen3_next", "olmoe", "deepseek_v3", "opt", "xglm", "gemma2", "bloom")
TEXTS = ("The red dog", "ab", "Nobody saw it, did they?", "x y z x y z x y", "A cat sleeps here.")


def documents(texts: tuple[str, ...] = TEXTS, language: str = "en") -> DocumentFile:
    rows = tuple(Document(str(n), text, language, n) for n, text in enumerate(texts, 1))
    return DocumentFile(rows, language, "texts.txt", digest_of(texts))


def uneven(name: str, seed: int = 0) -> LanguageModel:
    """A tiny model whose weights are large enough that heads differ, in training mode."""
    lm = wrapped(name, seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for one in lm.model.parameters():
            if one.dim() > 1:
                one.add_(0.15 * torch.randn(one.shape, generator=generator))
    lm.model.train()  # whoever forgets to leave it wakes dropout
    return lm


def naive_products(lm: LanguageModel, file: DocumentFile) -> NDArray[np.float64]:
    """One document at a time, and the gradient through W_O: ∂L/∂g = Σ W · ∂L/∂W over a head."""
    model = copy.deepcopy(lm.model).eval()
    weights = [model.get_submodule(site.projection_name).weight for site in lm.sites]
    for one in model.parameters():
        one.requires_grad_(False)
    for one in weights:
        one.requires_grad_(True)
    found = np.zeros((len(file.documents), *lm.geometry.shape))
    for at, document in enumerate(file.documents):
        ids = torch.tensor([lm.encode(document.text)])
        logits = model(input_ids=ids, use_cache=False).logits[0].double()
        total = -logits.log_softmax(-1)[range(ids.shape[1] - 1), ids[0, 1:]].sum()
        slopes = torch.autograd.grad(total / (ids.shape[1] - 1), weights)
        for site, slope in zip(lm.sites, slopes, strict=True):
            projection = model.get_submodule(site.projection_name)
            products = projection.weight * slope
            for head in range(site.heads):
                part = _slice(projection, products, head, site.head_width)
                found[at, site.layer, head] = float(part.detach().sum())
    return found


def _slice(kind: torch.nn.Module, values: torch.Tensor, head: int, width: int) -> torch.Tensor:
    channels = slice(head * width, (head + 1) * width)
    return values[:, channels] if isinstance(kind, torch.nn.Linear) else values[channels]


#: Its layers without heads sum up in chunks that fall elsewhere where rows are padded.
TOLERANCE = {"qwen3_next": 1e-3}


@pytest.mark.parametrize("name", MODELS)
def test_batches_give_what_one_document_at_a_time_gives(name: str) -> None:
    lm, file = uneven(name), documents()
    before = [one.clone() for one in lm.model.parameters()]
    naive = naive_products(lm, file)
    scores = lahis(lm, file, Lahis(batch_tokens=40, bootstrap_draws=20))
    products = scores.statistics["products"]
    scale = np.abs(naive).max()
    near = TOLERANCE.get(name, 1e-5)
    assert scale > 1e-4
    np.testing.assert_allclose(products, naive, rtol=near, atol=near * scale)
    # The definition, written out: mean of the absolute value, times the share below zero.
    for layer, head in product(*map(range, lm.geometry.shape)):
        if not lm.geometry.mask()[layer, head]:
            assert math.isnan(scores.values[layer, head])
            continue
        column = naive[:, layer, head]
        wanted = np.mean(np.abs(column)) * (np.sum(column < 0) / len(column))
        assert scores.values[layer, head] == pytest.approx(wanted, rel=near, abs=near * scale)
    again = lahis(lm, file, Lahis(batch_tokens=1000, bootstrap_draws=20, checkpoint=True))
    np.testing.assert_allclose(again.statistics["products"], naive, rtol=near, atol=near * scale)
    assert lm.model.training
    for one, kept in zip(lm.model.parameters(), before, strict=True):
        assert one.grad is None and one.requires_grad and torch.equal(one, kept)


def published(
    lm: LanguageModel, file: DocumentFile, rate: float, decay: float
) -> tuple[NDArray[np.float64], list[NDArray[np.float64]]]:
    """The published procedure as a plain loop: AdamW written out (Loshchilov and Hutter 2019)."""
    mask = torch.ones(lm.geometry.shape)
    first, second = torch.zeros_like(mask), torch.zeros_like(mask)
    size, below = torch.zeros_like(mask, dtype=torch.float64), torch.zeros_like(mask)
    masks = []
    lm.model.eval()
    for step, document in enumerate(file.documents, 1):
        ids = torch.tensor([lm.encode(document.text)])
        leaf = mask.clone().requires_grad_(True)
        with lm.gated(leaf):
            logits = lm.model(input_ids=ids, use_cache=False).logits[0, :-1]
            loss = torch.nn.functional.cross_entropy(logits, ids[0, 1:])
            (slope,) = torch.autograd.grad(loss, leaf)
        masks.append(mask.double().numpy().copy())
        size += (mask * slope).abs().double()
        below += (mask * slope < 0).float()
        first = 0.9 * first + 0.1 * slope
        second = 0.999 * second + 0.001 * slope**2
        mask = mask * (1 - rate * decay)
        corrected = (second / (1 - 0.999**step)).sqrt() + 1e-8
        mask = mask - rate * (first / (1 - 0.9**step)) / corrected
    count = len(file.documents)
    return (size / count * below.double() / count).numpy(), masks


@pytest.mark.parametrize("name", ["llama", "qwen3_next", "gpt2"])
def test_the_moving_gate_is_the_published_procedure(name: str) -> None:
    lm, file = uneven(name), documents((*TEXTS, *(text[::-1] for text in TEXTS)))
    config = Lahis(update_gate=True, learning_rate=0.05, weight_decay=0.1, bootstrap_draws=20)
    own = lahis(lm, file, config)
    wanted, masks = published(lm, file, 0.05, 0.1)
    mask = lm.geometry.mask()
    assert np.abs(masks[-1] - 1)[mask].max() > 0.1  # it does move
    np.testing.assert_allclose(own.values[mask], wanted[mask], rtol=1e-4)
    still = lahis(lm, file, Lahis(bootstrap_draws=20))
    assert np.abs(own.values - still.values)[mask].max() > 1e-3 * own.values[mask].max()
    # The first document is scored before any step, so there both are the same.
    np.testing.assert_allclose(
        own.statistics["products"][0], still.statistics["products"][0], rtol=1e-3, atol=1e-6
    )


def test_first_order_is_the_mean_of_absolute_gradients() -> None:
    lm, file = uneven("llama"), documents()
    naive = naive_products(lm, file)
    scores = first_order(lm, file, FirstOrder(bootstrap_draws=50))
    np.testing.assert_allclose(scores.values, np.abs(naive).mean(axis=0), rtol=1e-5)
    assert scores.low is not None and scores.high is not None
    assert (scores.low <= scores.values).all() and (scores.values <= scores.high).all()
    other = lahis(lm, file, Lahis(bootstrap_draws=50))
    np.testing.assert_array_equal(other.extra["magnitude"], scores.values)
    np.testing.assert_allclose(other.values, scores.values * scores.extra["raising"], rtol=1e-12)


def test_sums_of_sixteen_bits_drop_what_is_small_beside_them() -> None:
    # 257 lies between 256 and 258, and the even one of both is 256; 3 more are kept as 4.
    products = -np.array([256.0, 1.0, 1.0, 3.0]).reshape(-1, 1, 1).astype(np.float32)
    assert importance(products).item() == 261 / 4
    assert importance(products, "bfloat16").item() == 260 / 4
    assert importance(products[::-1], "bfloat16").item() == 260 / 4


def test_intervals_are_those_of_resampled_documents() -> None:
    lm, file = uneven("llama"), documents()
    scores = lahis(lm, file, Lahis(bootstrap_draws=400, seed=3))
    assert scores.low is not None and scores.high is not None
    products = scores.statistics["products"]
    draw = np.random.default_rng(0)
    estimates = [
        importance(products[draw.integers(0, len(products), len(products))]) for _ in range(2000)
    ]
    low, high = np.quantile(estimates, [0.025, 0.975], axis=0)
    width = (high - low).max()
    np.testing.assert_allclose(scores.low, low, atol=0.15 * width)
    np.testing.assert_allclose(scores.high, high, atol=0.15 * width)
    assert scores.config["examples"] == 5 and scores.config["left_out"] == 0


def test_documents_of_one_token_are_left_out_and_long_ones_cut() -> None:
    lm = uneven("llama")
    long = "abc " * 2000
    file = documents(("a", "a longer text", long))
    texts = texts_of(lm, file)
    assert [len(text.ids) for text in texts] == [13, min(2048, lm.context_length)]
    assert texts[0].name == "texts.txt, line 2"
    scores = lahis(lm, documents(("a", "one two")), Lahis(bootstrap_draws=5))
    assert (scores.config["examples"], scores.config["left_out"]) == (1, 1)
    with pytest.raises(InputError, match=r"no document of texts\.txt has two tokens"):
        lahis(lm, documents(("a", "b")))


@pytest.mark.parametrize("update", [False, True])
def test_a_loss_that_is_no_number_is_named_and_the_rest_is_kept(
    update: bool, tmp_path: Path
) -> None:
    lm, file = uneven("llama"), documents()
    clean = lahis(lm, file, Lahis(update_gate=update, batch_tokens=30, bootstrap_draws=5))
    rows = lm.model.get_input_embeddings().weight
    place = lm.encode("?")[0]
    kept = rows[place].clone()
    with torch.no_grad():
        rows[place] = float("nan")  # only the third document has a question mark
    config = Lahis(update_gate=update, batch_tokens=30, bootstrap_draws=5)
    calls: list[int] = []
    with (
        open_run(tmp_path / "run", "test", {}, {}) as run,
        pytest.raises(InputError, match=r"texts\.txt, line 3: .* on this document in float32"),
    ):
        lahis(lm, file, config, run, lambda done, total: calls.append(done))
    with torch.no_grad():
        rows[place] = kept
    before = len(list((tmp_path / "run" / "parts").rglob("*.safetensors")))
    assert before == (1 if update else 0) or not update
    with open_run(tmp_path / "run", "test", {}, {}) as run:
        again = lahis(lm, file, config, run)
    np.testing.assert_array_equal(again.statistics["products"], clean.statistics["products"])


def test_the_good_documents_of_a_bad_batch_are_kept(tmp_path: Path) -> None:
    lm, file = uneven("llama"), documents()
    with torch.no_grad():
        lm.model.get_input_embeddings().weight[lm.encode("?")[0]] = float("inf")
    with open_run(tmp_path / "run", "test", {}, {}) as run:
        with pytest.raises(InputError, match="line 3"):
            lahis(lm, file, Lahis(batch_tokens=1000), run)
        (shard,) = run.read_tensors("en/gradients").values()
    assert sorted(shard["index"].tolist()) == [0, 1, 3, 4]


@pytest.mark.parametrize("update", [False, True])
def test_a_document_too_large_for_memory_is_checkpointed(
    update: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    lm, file = uneven("llama"), documents()
    config = Lahis(update_gate=update, batch_tokens=1000, bootstrap_draws=5)
    wanted = lahis(lm, file, config).statistics["products"]
    own, tried = module.batch_gradients, []

    def small_memory(lm: Any, rows: Any, gate: Any, checkpoint: bool) -> Any:
        tried.append((len(rows), checkpoint))
        if len(rows) > 2 or (max(map(len, rows)) > 20 and not checkpoint):
            lm_helpers.no_memory("cpu")
        return own(lm, rows, gate, checkpoint)

    monkeypatch.setattr(module, "batch_gradients", small_memory)
    found = lahis(lm, file, config).statistics["products"]
    assert tried[0] == (1 if update else 5, False) and (1, True) in tried
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6)


GEOMETRY = Geometry((4, 0, 6))


def made(order: list[tuple[int, int]]) -> HeadScores:
    """Scores 10, 9, 8 … for these heads, in this order, and nothing for the others."""
    values = np.zeros(GEOMETRY.shape)
    for at, (layer, head) in enumerate(order):
        values[layer, head] = 10 - at
    return HeadScores(GEOMETRY, values, "lahis")


def test_sets_are_above_the_quantile_and_general_in_most_languages() -> None:
    shared = [(0, 1), (2, 5)]
    scores = {
        "a": made([*shared, (2, 0)]),
        "b": made([(2, 0), *reversed(shared)]),
        "c": made([(0, 1), (0, 2), (0, 3)]),
    }
    sets = language_sets(scores, quantile=0.7)
    assert {code: len(one) for code, one in sets.important.items()} == {"a": 3, "b": 3, "c": 3}
    assert [head.key for head in sets.general] == ["0.1", "2.0", "2.5"]
    assert sets.general_in == 2 and sets.languages_of[Head(0, 1)] == 3
    assert {code: [h.key for h in one] for code, one in sets.specific.items()} == {
        "a": [],
        "b": [],
        "c": ["0.2", "0.3"],
    }
    strict = language_sets(scores, quantile=0.7, general_in=3)
    assert [head.key for head in strict.general] == ["0.1"]
    assert [head.key for head in strict.specific["b"]] == ["2.0", "2.5"]


def test_a_head_at_the_quantile_is_not_above_it() -> None:
    values = np.zeros(GEOMETRY.shape)
    values[GEOMETRY.mask()] = np.arange(1, 11)
    scores = {"a": HeadScores(GEOMETRY, values, "lahis")}
    sets = language_sets(scores, quantile=8 / 9)  # exactly the ninth of ten values
    assert sets.thresholds["a"] == pytest.approx(9)
    assert [scores["a"][head] for head in sets.important["a"]] == [10]
    flat = HeadScores(GEOMETRY, np.ones(GEOMETRY.shape), "lahis")
    assert len(language_sets({"a": flat, "b": flat}).important["a"]) == 0


def test_one_language_has_no_general_heads() -> None:
    scores = {"a": made([(0, 1), (2, 5)])}
    sets = language_sets(scores, 0.7)
    assert not sets.general.heads and sets.specific["a"] == sets.important["a"]
    for languages, general_in, message in (
        (scores, 2, "there is one language"),
        (scores | {"b": made([])}, 3, "in 3 of 2 languages"),
        (scores | {"b": made([])}, 1, "from 2 to 2"),
    ):
        with pytest.raises(InputError, match=message):
            language_sets(languages, 0.7, general_in)
    with pytest.raises(InputError, match=r"quantile is 1\.0"):
        language_sets(scores, 1.0)


def test_the_default_quantile_depends_on_the_number_of_heads() -> None:
    for layers, quantile in ((15, 0.9), (16, 0.96)):
        scores = HeadScores(Geometry((16,) * layers), np.ones((layers, 16)), "lahis")
        assert language_sets({"a": scores}).quantile == quantile


def test_general_heads_expected_by_chance_are_those_of_drawn_sets() -> None:
    draw = np.random.default_rng(1)
    sizes, heads, needed = [3, 5, 4], 12, 2
    counts = np.zeros((4000, heads))
    for row in counts:
        for size in sizes:
            row[draw.choice(heads, size, replace=False)] += 1
    drawn = (counts >= needed).sum(axis=1).mean()
    assert expected_general(sizes, heads, needed) == pytest.approx(drawn, rel=0.03)
