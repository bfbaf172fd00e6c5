"""Knockouts: the regression against one that is written out, known effects, and a naive loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import find_helpers
import headscope
import process_helpers
from conftest import Said, json_of
from headscope.data.prompts import translation_prompts
from headscope.errors import InputError
from headscope.evidence.rows import Statistic
from headscope.find.knockouts_regression import PENALTIES, fitted, random_gates, ridge, told_apart
from headscope.heads import Geometry, read_scores, resolve_heads
from headscope.lm import load
from headscope.measure.metrics import chrf
from headscope.measure.statistics import counted
from headscope.results.removal import KnockoutsResult
from headscope.studies.find.knockouts import FindKnockouts, find_knockouts
from headscope.studies.models import ModelChoice
from headscope.studies.pairs import PairsChoice, read_directions
from headscope.studies.registry import study_of
from headscope.studies.study import shown_of
from headscope.verify.removal_translations import Removal
from lm_helpers import folded
from loss_helpers import TEMPLATE, data, of_sentence

Floats = np.ndarray[Any, np.dtype[np.float64]]
LOSS, SCORE = Statistic("loss", "lower"), Statistic("score", "higher")


def naive_ridge(features: Floats, numbers: Floats) -> tuple[Floats, float]:
    """Coefficients and the sum of squared errors at rows left out, each of which is refitted, at
    the penalty with the least."""

    def solved(x: Floats, y: Floats, penalty: float) -> Floats:
        """The constant and the coefficients by the normal equations, the constant unpenalised."""
        ones = np.column_stack([np.ones(len(x)), x])
        return np.linalg.solve(
            ones.T @ ones + penalty * np.diag([0, *np.ones(x.shape[1])]), ones.T @ y
        )

    rows, found = range(len(numbers)), []
    s = np.linalg.svd(features - features.mean(axis=0), compute_uv=False)
    for penalty in PENALTIES * np.mean(s[s > 1e-9 * s[0]] ** 2):
        errors = []
        for row in rows:
            rest = [other for other in rows if other != row]
            constant, *slopes = solved(features[rest], numbers[rest], penalty)
            errors.append(numbers[row] - constant - features[row] @ np.array(slopes))
        found.append((float(np.square(errors).sum()), penalty))
    error, penalty = min(found)
    return solved(features, numbers, penalty)[1:], error


def drawn(rows: int, heads: int, seed: int) -> tuple[Any, Floats]:
    generator = np.random.default_rng(seed)
    return generator, (generator.random((rows, heads)) < 0.4).astype(float)


@pytest.mark.parametrize(("rows", "heads", "noise"), [(14, 4, 0.3), (14, 4, 3.0), (7, 12, 0.5)])
def test_the_regression_is_that_of_the_normal_equations(
    rows: int, heads: int, noise: float
) -> None:
    for seed in range(3):
        generator, features = drawn(rows, heads, seed)
        numbers = features @ generator.normal(size=heads) + noise * generator.normal(size=rows) + 5
        linear, errors = ridge(features, numbers)
        wanted, error = naive_ridge(features, numbers)
        assert linear @ numbers == pytest.approx(wanted, abs=1e-6)
        assert errors @ errors == pytest.approx(error, rel=1e-6)


@pytest.mark.parametrize("statistic", [LOSS, SCORE])
def test_effects_that_add_up_are_recovered(statistic: Statistic) -> None:
    """A head removed does the harm that is known, whichever way the statistic tells harm."""
    generator, features = drawn(40, 6, 1)
    effects, removed = np.array([2.0, -0.5, 0, 0, 1.0, 0.25]), features > 0
    numbers = 3 + statistic.sign * features @ effects
    noise = generator.normal(size=20)  # of examples, alike under every gate
    parts = [counted(number + noise) for number in numbers]
    scores, low, high, explained = fitted(removed, parts, statistic)
    assert scores == pytest.approx(effects, abs=1e-6)
    assert explained == pytest.approx(1)
    # Examples that all gates change alike leave no doubt of the effects.
    assert np.nanmax(np.abs(high - low)) < 1e-5


def test_intervals_hold_the_doubt_of_examples_and_of_gates() -> None:
    held, wide, narrow = 0, [], []
    for seed in range(10):
        generator, features = drawn(120, 8, seed)
        effects = generator.normal(size=8)
        pairs = features[:, 0] * features[:, 1] * 2  # what does not add up
        own = generator.normal(size=(30, 8)) + effects  # effects differ by example
        numbers = features @ own.T + (pairs + generator.normal(size=120))[:, None]
        _, low, high, explained = fitted(features > 0, [*map(counted, numbers)], LOSS, seed)
        held += int(((low < effects) & (effects < high))[2:].sum())
        assert 0.1 < explained < 0.99
        wide.append(high - low)
        more = fitted(features > 0, [*map(counted, np.tile(numbers, 4))], LOSS, seed)
        narrow.append(more[2] - more[1])
    assert held >= 50  # of 60; 57 are expected
    assert 0.4 < np.mean(narrow) / np.mean(wide) < 0.95  # gates stay as few


def test_a_statistic_that_does_not_vary_says_nothing() -> None:
    _, features = drawn(12, 3, 0)
    scores, low, _, explained = fitted(features > 0, [counted(np.ones(4))] * 12, LOSS)
    assert scores == pytest.approx(0) and np.isnan(low).all() and np.isnan(explained)


@given(st.integers(0, 99), st.integers(4, 30))
def test_gates_follow_from_the_seed_and_their_place(seed: int, gates: int) -> None:
    geometry = Geometry((4, 0, 6))
    for remove in (3, "30%"):
        made = random_gates(geometry, gates, remove, seed)
        assert random_gates(geometry, gates + 5, remove, seed)[:gates] == made
        assert random_gates(geometry, gates, remove, seed + 1) != made
        assert all(set(own) <= set(geometry.heads()) for own in made)
        assert remove != 3 or all(len(own) == 3 for own in made)


def test_a_share_removes_every_head_equally_often() -> None:
    geometry = Geometry.uniform(4, 5)
    made = random_gates(geometry, 4000, 0.2, 0)
    often = [sum(head in own for own in made) / 4000 for head in geometry.heads()]
    assert min(often) > 0.17 and max(often) < 0.23
    assert len({len(own) for own in made}) > 5  # each head by itself
    assert len(random_gates(geometry, 4000, 1, 0)) == 20  # no more sets of one head
    for remove in ("100%", 20):
        with pytest.raises(InputError, match="3 different gates"):
            random_gates(geometry, 100, remove, 0)
    with pytest.raises(InputError):
        random_gates(geometry, 100, 21, 0)


def model(folder: Path) -> ModelChoice:
    """A model with grouped keys and values."""
    find_helpers.model("qwen3").save_pretrained(folder / "model")
    find_helpers.tokenizer().save_pretrained(folder / "model")
    return ModelChoice(str(folder / "model"))


@pytest.fixture
def config(tmp_path: Path) -> FindKnockouts:
    files = tuple(f"{pair}={data(tmp_path, pair, 12)}" for pair in ("en-de", "de-en"))
    pairs = PairsChoice(("en-de", "de-en"), files, limit=4)
    removal = Removal(template=TEMPLATE, measure=("loss",), seed=2)
    return FindKnockouts(model(tmp_path), pairs, 14, 0.3, removal)


def test_scores_are_those_of_a_naive_loop(config: FindKnockouts, tmp_path: Path) -> None:
    result = find_knockouts(config, tmp_path / "run")
    lm = load(config.model.model)
    heads = list(lm.geometry.heads())
    directions = read_directions(config.pairs, config.model.model, "dev", seed=2)
    scores, means = read_scores(tmp_path / "run"), []
    for name, pairs in directions.items():
        removed = scores[name].statistics["removed"][:, lm.geometry.mask()]
        rows = list(zip(translation_prompts(pairs, TEMPLATE), pairs.pairs, strict=True))
        losses = []
        for row in removed:
            gate = torch.ones(lm.geometry.shape)
            for head, gone in zip(heads, row, strict=True):
                gate[head.layer, head.head] = float(not gone)
            without = folded(lm, gate)
            losses.append(fmean(fmean(chain(*of_sentence(lm, without, *own))) for own in rows))
        wanted, error = naive_ridge(removed.astype(float), np.array(losses))
        found = scores[name].values[lm.geometry.mask()]
        assert found == pytest.approx(wanted, abs=1e-4 * np.abs(wanted).max())
        left = np.array([losses[at] - fmean([*losses[:at], *losses[at + 1 :]]) for at in range(14)])
        assert result.explained[name] == pytest.approx(1 - error / float(left @ left), abs=1e-3)
        means.append(found)
    assert scores["mean"].values[lm.geometry.mask()] == pytest.approx(np.mean(means, axis=0))
    best = resolve_heads(tmp_path / "run", 2, lm.geometry)
    assert [head.place for head in result.scored[:2]] == list(best)
    assert result.gates == 14 and result.baseline_works is not None


def length(outputs: Sequence[str], references: Sequence[str]) -> list[float]:
    """Characters of each output."""
    return [len(output) for output in outputs]


def test_texts_and_functions_are_measured(tmp_path: Path) -> None:
    lm = load(model(tmp_path).model)
    asked: dict[str, Any] = {
        "data": str(data(tmp_path, "en-de", 12)), "pair": "en-de", "limit": 4, "random_gates": 8,
        "remove": 2, "template": TEMPLATE.text, "max_new_tokens": 6, "progress": False,
    }  # fmt: skip
    pairs = read_directions(
        PairsChoice(("en-de",), (asked["data"],), limit=4), "tiny", "dev"
    )["en-de"]  # fmt: skip
    prompts = [prompt.text for prompt in translation_prompts(pairs, TEMPLATE)]
    references = [pair.target for pair in pairs.pairs]
    for measure, sign in (("text", -1), (length, -1)):
        out = tmp_path / f"run-{measure if measure == 'text' else 'own'}"
        result = headscope.find.knockouts(lm, measure=measure, out=out, **asked)
        removed = result.scores.statistics["removed"]
        numbers = []
        for row in removed:
            with lm.gated(torch.from_numpy(1.0 - row)):
                made = lm.generate(prompts, max_new_tokens=6)
            texts = [each.text for each in made]
            own = length(texts, references)
            numbers.append(chrf(texts, references).value if measure == "text" else fmean(own))
        wanted, _ = naive_ridge(removed[:, lm.geometry.mask()].astype(float), np.array(numbers))
        assert np.ptp(numbers) > 0
        found = result.scores.values[lm.geometry.mask()]
        assert sign * found == pytest.approx(wanted, abs=1e-6 + 1e-4 * np.abs(wanted).max())
        assert result.statistic.words == ("chrF++" if measure == "text" else "length")


@pytest.mark.parametrize("ablate", ["mean", "resample"])
def test_what_replaces_heads_counts(ablate: Any, tmp_path: Path) -> None:
    pairs = PairsChoice(("en-de",), (str(data(tmp_path, "en-de", 12)),), limit=4)
    choice, made = model(tmp_path), {}
    for kind in ("zero", ablate):
        removal = Removal(template=TEMPLATE, measure=("loss",), ablate=(kind,))
        own = FindKnockouts(choice, pairs, 8, 0.3, removal)
        made[kind] = find_knockouts(own, tmp_path / kind)
    assert made[ablate].reference_text is not None and made["zero"].reference_text is None
    assert made[ablate].scores != made["zero"].scores
    shown = shown_of(study_of("find knockouts"), made[ablate], tmp_path / ablate)
    assert any(name == "removed heads give" for name, _ in shown.facts)


def test_a_killed_run_goes_on(config: FindKnockouts, tmp_path: Path) -> None:
    result, kept = process_helpers.resumed(
        find_knockouts, config, tmp_path, 5, titles=("reading references",)
    )
    assert isinstance(result, KnockoutsResult)
    assert any("reference-losses" in name for name in kept)


def test_what_cannot_be_regressed_is_refused(tmp_path: Path, command: Callable[..., Said]) -> None:
    words = ("find", "knockouts", "--pair", "en-de", "--out", tmp_path / "run")
    for wrong in (
        ("--measure", "text", "--measure", "loss"),
        ("--remove", 96),
        ("--remove", "0%"),
        ("--random-gates", 3),
    ):
        said = command(*words, *wrong)
        assert said.code == 2 and not said.out, wrong
        assert not (tmp_path / "run").exists()
    with pytest.raises(InputError):
        FindKnockouts(removal=Removal(measure=("loss",), ablate=("zero", "mean")))


def test_one_sentence_has_no_interval(tmp_path: Path, command: Callable[..., Said]) -> None:
    said = command(
        *("find", "knockouts", "--pair", "en-de", "--limit", 1, "--random-gates", 6, "--json"),
        *("--out", tmp_path / "run"),
    )
    assert said.code == 0
    assert all(head["low"] is None for head in json_of(said.out)["scores"])


@pytest.mark.parametrize("remove", [1, "2%"])
def test_more_gates_are_advised_where_there_are_more(
    remove: int | str, tmp_path: Path, command: Callable[..., Said]
) -> None:
    said = command(
        *("find", "knockouts", "--pair", "en-de", "--limit", 1, "--random-gates", 100),
        *("--remove", remove, "--out", tmp_path / "run"),
    )
    assert said.code == 0
    assert ("--random-gates" in said.out) == (remove != 1)  # of 96 heads each was removed once


def test_a_run_whose_statistic_does_not_vary_can_be_read_again(
    tmp_path: Path, command: Callable[..., Said]
) -> None:
    def same(outputs: Sequence[str], references: Sequence[str]) -> list[float]:
        return [1.0] * len(outputs)

    asked: dict[str, Any] = {
        "pair": "en-de",
        "limit": 1,
        "random_gates": 4,
        "out": tmp_path / "run",
    }
    asked |= {"measure": same, "progress": False}
    for _ in "made", "read":
        assert headscope.find.knockouts("pocket", **asked).explained == {"en-de": None}
    assert command("report", tmp_path / "run", "--out", tmp_path / "page.html").code == 0


def test_heads_that_no_gate_tells_apart_say_nothing() -> None:
    """Never removed, always removed, and two that are always removed together."""
    removed = np.array([[0, 1, 1, 1, 0], [0, 1, 0, 0, 1], [0, 1, 1, 1, 1]], dtype=bool)
    assert told_apart(removed).tolist() == [False, False, False, False, True]
