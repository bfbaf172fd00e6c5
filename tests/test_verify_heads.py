"""Single removal: every head by itself, against a naive loop and a model of one needed head."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
import torch

import find_helpers
from headscope.data.pairs import PairFile
from headscope.data.prompts import translation_prompts
from headscope.heads import Head, HeadScores, HeadSet, read_scores, resolve_heads, save_scores
from headscope.lm import LanguageModel, head_means, load
from headscope.lm.prompting import Answered, encode_answer
from headscope.measure.ranking import rank_correlations
from headscope.results.head_scores import RemovedHeads
from headscope.runs import open_run
from headscope.shown.blocks import Table
from headscope.studies.models import ModelChoice
from headscope.studies.pairs import PairsChoice, read_directions
from headscope.studies.registry import study_of
from headscope.studies.study import shown_of
from headscope.studies.verify.heads import VerifyHeads, verify_heads
from headscope.verify.removal_translations import Removal
from lm_helpers import folded
from loss_helpers import TEMPLATE, data, of_sentence
from test_lm_ablation import naively

NEEDED = Head(1, 2)


def needing(folder: Path) -> LanguageModel:
    """A model whose heads write nothing but one, which learned to make references likelier."""
    lm = find_helpers.wrapped("pocket-like")
    site = lm.sites[1]
    weight = lm.model.get_submodule(site.projection_name).weight
    with torch.no_grad():
        for one in lm.sites:
            lm.model.get_submodule(one.projection_name).weight.zero_()
    pairs = find_helpers.pairs("en-de", 8)
    texts = [
        prompt.with_target(pair.target).text
        for prompt, pair in zip(translation_prompts(pairs, TEMPLATE), pairs.pairs, strict=True)
    ]
    ids = [torch.tensor([lm.encode(text)]) for text in texts]
    for _ in range(6):
        for row in ids:
            loss = lm.model(input_ids=row, labels=row).loss
            (gradient,) = torch.autograd.grad(loss, weight)
            step = torch.zeros_like(weight)
            channels = slice(NEEDED.head * site.head_width, (NEEDED.head + 1) * site.head_width)
            step[:, channels] = gradient[:, channels]
            with torch.no_grad():
                weight -= step / step.norm()
    lm.model.save_pretrained(folder)
    lm.tokenizer.save_pretrained(folder)
    return lm


def run_of(lm: LanguageModel, folder: Path, method: str, values: Any, **extra: Any) -> Path:
    """A finished run that gave heads these scores."""
    with open_run(folder, "find x", {"method": method}, {}) as run:
        about = {"weights": lm.digest}
        save_scores(folder, HeadScores(lm.geometry, values, method, extra=extra, provenance=about))
        run.finish({"run": str(folder)})
    return folder


@pytest.fixture(scope="module")
def crafted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RemovedHeads]:
    folder = tmp_path_factory.mktemp("crafted")
    needing(folder / "model")
    lm = load(str(folder / "model"))
    same = np.zeros(lm.geometry.shape)
    same[NEEDED.layer, NEEDED.head] = 1
    depth = np.repeat(np.arange(2.0)[:, None], lm.geometry.width, axis=1)
    beside = (
        run_of(lm, folder / "same", "translation-score", same, chance=same / 2),
        run_of(lm, folder / "depth", "induction", depth, previous_token=same),
    )
    config = VerifyHeads(
        ModelChoice(str(folder / "model")),
        PairsChoice(("en-de",), (str(data(folder, "en-de", 12)),)),
        Removal(template=TEMPLATE),
        tuple(map(str, beside)),
    )
    return folder, verify_heads(config, folder / "run")


def test_the_one_head_that_is_needed_is_found_and_the_others_cost_nothing(
    crafted: tuple[Path, RemovedHeads],
) -> None:
    folder, result = crafted
    first, *others = result.scored
    assert first.place == NEEDED and first.low is not None
    assert (first.score or 0) > 0.05 and first.low > 0
    assert all(
        abs(head.number(name) or 0) < 1e-6 for head in others for name in ("score", "mean_ablation")
    )
    rows = {(each.ablate, each.other): each for each in result.correlations}
    same = rows["zero", "translation_score"]
    assert same.all.value == rows["zero", "previous_token"].all.value
    assert {name for _, name in rows} == {
        *("translation_score", "translation_score_chance", "translation_score_above_chance"),
        *("induction", "previous_token"),
    }
    assert np.isnan(rows["zero", "induction"].within_layers.value)
    (lm,) = [load(str(folder / "model"))]
    assert resolve_heads(folder / "run", 1, lm.geometry) == HeadSet(lm.geometry, (NEEDED,))
    shown = shown_of(study_of("verify heads"), result, folder / "run")
    tables = [block for part in shown.sections for block in part.blocks if isinstance(block, Table)]
    cells = {row.name: row.cells for table in tables for row in table.rows}
    assert cells["translation score, zero ablation"][0].value == same.all.value


def answered(lm: LanguageModel, pairs: PairFile) -> list[Answered]:
    """Prompt and translation of each pair as one row of tokens."""
    full = [
        prompt.with_target(pair.target)
        for prompt, pair in zip(translation_prompts(pairs, TEMPLATE), pairs.pairs, strict=True)
    ]
    return [encode_answer(lm, one.text, one.target_start, one.special) for one in full]


def test_changes_are_those_of_a_naive_loop(tmp_path: Path) -> None:
    lm = find_helpers.wrapped("qwen3")
    lm.model.save_pretrained(tmp_path / "model")
    lm.tokenizer.save_pretrained(tmp_path / "model")
    files = tuple(f"{pair}={data(tmp_path, pair, 12)}" for pair in ("en-de", "de-en"))
    pairs = PairsChoice(("en-de", "de-en"), files, limit=4, shots=1)
    config = VerifyHeads(ModelChoice(str(tmp_path / "model")), pairs, Removal(template=TEMPLATE))
    result = verify_heads(config, tmp_path / "run")
    lm = load(str(tmp_path / "model"))
    directions = read_directions(pairs, config.model.model, "test", reference=50)
    scores = read_scores(tmp_path / "run")

    def losses(model: Any, direction: str) -> list[list[Any]]:
        one = directions[direction]
        prompts = translation_prompts(one, TEMPLATE)
        return [of_sentence(lm, model, *row) for row in zip(prompts, one.pairs, strict=True)]

    apart = [replace(one, pairs=one.reference) for one in directions.values()]
    answers = [row for one in apart for row in answered(lm, one)]
    means = torch.from_numpy(
        head_means(lm, [row.ids for row in answers], [row.start for row in answers])
    )

    def with_means(direction: str, head: Head) -> list[float]:
        """The mean loss of each reference with a head's mean output in the place of its own."""
        one, found = directions[direction], []
        prompts = translation_prompts(one, TEMPLATE)
        for prompt, pair, row in zip(prompts, one.pairs, answered(lm, one), strict=True):

            def change(layer: int, parts: torch.Tensor, start: int = row.start) -> torch.Tensor:
                parts = parts.clone()
                if layer == head.layer:
                    classes = [0] + [1] * (start - 1) + [2] * (len(parts) - start)
                    parts[:, head.head] = means[classes, layer, head.head]
                return parts

            with naively(lm, change):
                kinds = of_sentence(lm, lm.model, prompt, pair)
            found.append(fmean([*kinds[0], *kinds[1], *kinds[2]]))
        return found

    original = {name: losses(lm.model, name) for name in directions}
    for head in lm.geometry.heads():
        for name in directions:
            instead = [
                there - fmean([*here[0], *here[1], *here[2]])
                for there, here in zip(with_means(name, head), original[name], strict=True)
            ]
            found = scores[name].extra["mean_ablation"][head.layer, head.head]
            assert found == pytest.approx(fmean(instead), abs=1e-5)
            own = scores[name].statistics["change_mean"][:, head.layer, head.head]
            assert own == pytest.approx(instead, abs=1e-5)
        gate = torch.ones(lm.geometry.shape)
        gate[head.layer, head.head] = 0
        model, changes = folded(lm, gate), []
        for name in directions:
            removed = losses(model, name)
            for kind in (None, 0):
                change = [
                    fmean([*a[0], *a[1], *a[2]] if kind is None else a[kind])
                    - fmean([*b[0], *b[1], *b[2]] if kind is None else b[kind])
                    for a, b in zip(removed, original[name], strict=True)
                ]
                found = scores[name].values if kind is None else scores[name].extra["linked"]
                assert found[head.layer, head.head] == pytest.approx(fmean(change), abs=1e-5)
                if kind is None:
                    own = scores[name].statistics["change"][:, head.layer, head.head]
                    assert own == pytest.approx(change, abs=1e-5)
                    changes.append(fmean(change))
        assert scores["mean"][head] == pytest.approx(fmean(changes), abs=1e-5)
    assert len(result.scored) == lm.geometry.total
    assert all("links:" in scores[name].signature for name in directions)
    zero, mean = (scores["en-de"].values, scores["en-de"].extra["mean_ablation"])
    assert np.abs(zero - mean).max() > 1e-4


def test_rank_correlations_over_all_heads_and_within_layers() -> None:
    generator = np.random.default_rng(0)
    layers = np.repeat(np.arange(6), 8)
    depth = layers + 0.0
    noise = generator.normal(size=48)
    drawn = noise + 0.01 * generator.normal(size=(200, 48))
    # Depth alone explains all of the agreement.
    apart = rank_correlations(
        100 * depth + noise, 100 * depth + generator.normal(size=48), layers, 100 * depth + drawn
    )
    assert apart["all"]["value"] > 0.9 and abs(apart["within_layers"]["value"]) < 0.4
    assert apart["p_within_layers"] > 0.02
    # A relation inside of layers that depth hides.
    inside = rank_correlations(noise, -100 * depth + noise, layers, drawn)
    assert inside["within_layers"]["value"] > 0.7 and inside["p_within_layers"] < 0.001
    assert inside["all"]["value"] < 0.5
    same = rank_correlations(noise, np.exp(noise), layers, drawn)
    assert same["all"]["value"] == pytest.approx(1) and same["all"]["low"] > 0.9
    ranks = np.argsort(np.argsort(noise)), np.argsort(np.argsort(depth * 3 - noise))
    found = rank_correlations(noise, depth * 3 - noise, layers, drawn)
    assert found["all"]["value"] == pytest.approx(np.corrcoef(*ranks)[0, 1])
    flat = rank_correlations(noise, np.zeros(48), layers, drawn)
    assert flat["all"]["value"] is None and flat["p_within_layers"] is None


def test_intervals_of_correlations_are_about_what_another_sample_gives() -> None:
    generator = np.random.default_rng(2)
    layers, truth = np.repeat(np.arange(6), 8), generator.normal(size=48)

    def sample() -> tuple[Any, Any]:
        sentences = truth + 3 * generator.normal(size=(20, 48))
        some = generator.integers(20, size=(200, 20))
        return sentences.mean(axis=0), sentences[some].mean(axis=1)

    inside = 0
    for _ in range(60):
        scores, drawn = sample()
        same = rank_correlations(scores, scores, layers, drawn, 9)
        assert same["all"]["low"] < same["all"]["value"] <= same["all"]["high"] + 1e-12
        found = rank_correlations(scores, truth, layers, drawn, 9)["all"]
        other = rank_correlations(sample()[0], truth, layers, drawn, 9)["all"]["value"]
        inside += found["low"] <= other <= found["high"]
    assert inside >= 42


def test_intervals_of_correlations_count_the_examples_of_both_scores() -> None:
    generator = np.random.default_rng(3)
    layers, truth = np.repeat(np.arange(6), 8), generator.normal(size=48)
    sentences = truth + 3 * generator.normal(size=(30, 48))
    others = truth + 3 * generator.normal(size=(30, 48))
    some = generator.integers(30, size=(300, 30))
    drawn, drawn_others = (one[some].mean(axis=1) for one in (sentences, others))
    scores = sentences.mean(axis=0), others.mean(axis=0)
    one = rank_correlations(*scores, layers, drawn, 9)["all"]
    both = rank_correlations(*scores, layers, drawn, 9, resampled_others=drawn_others)["all"]
    assert both["value"] == one["value"]
    assert both["high"] - both["low"] > one["high"] - one["low"]
    same = rank_correlations(scores[0], scores[0], layers, drawn, 9, resampled_others=drawn)
    assert (same["all"]["low"], same["all"]["high"]) == pytest.approx((1, 1))
    with pytest.raises(ValueError, match="other heads"):
        rank_correlations(*scores, layers, drawn, 9, resampled_others=drawn_others[:9])


def test_p_of_the_permutation_inside_layers_is_uniform_without_a_relation() -> None:
    generator = np.random.default_rng(1)
    layers = np.repeat(np.arange(4), 4)
    ps = []
    for _ in range(150):
        one, other = (layers + generator.normal(size=16) for _ in range(2))
        ps.append(rank_correlations(one, other, layers, one[None], 199)["p_within_layers"])
    assert 0.4 < fmean(ps) < 0.6 and sum(p <= 0.05 for p in ps) <= 15
