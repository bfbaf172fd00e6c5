"""Causal gating: the roles' scores, the pushes, the same as plain steps, and going on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headscope.errors import InputError
from headscope.find import causal_gating_scores as causal_gating
from headscope.find.causal_gating_scores import ROLES, CausalGating, fit_causal_gates, role_scores
from headscope.lm.model import LanguageModel
from headscope.lm.prompting import Answered
from headscope.runs import open_run
from lm_helpers import wrapped

SAMPLES = [
    Answered(tuple(np.random.default_rng(at).integers(3, 96, 6).tolist()), 4, f"row {at}")
    for at in range(5)
]
SHORT = CausalGating(steps=3, pushed_steps=4, batch_size=2)


@pytest.fixture(scope="module")
def lm() -> LanguageModel:
    return wrapped("llama")


@given(st.floats(0, 1), st.floats(0, 1))
def test_the_scores_of_the_roles_are_those_of_the_table(keep: float, remove: float) -> None:
    scores = role_scores(np.array([keep]), np.array([remove]))
    assert tuple(scores) == ROLES
    assert scores["facilitating"][0] == remove
    assert scores["interfering"][0] == 1 - keep
    assert scores["irrelevant"][0] == keep * (1 - remove)
    assert all(0 <= one[0] <= 1 for one in scores.values())


def test_high_in_both_low_in_both_and_different() -> None:
    scores = role_scores(np.array([0.99, 0.02, 0.98]), np.array([0.97, 0.01, 0.03]))
    highest = [max(ROLES, key=lambda role: scores[role][at]) for at in range(3)]
    assert highest == list(ROLES)


def naive(
    lm: LanguageModel,
    logits: torch.Tensor,
    rows: list[list[int]],
    weight: float,
    rates: tuple[float, float],
) -> tuple[torch.Tensor, list[float]]:
    """The published steps: torch's Adam and LinearLR, clipped gradients, whole logits."""
    numbers = torch.nn.Parameter(logits.clone())
    adam = torch.optim.Adam([numbers], lr=rates[0])
    schedule = torch.optim.lr_scheduler.LinearLR(
        adam, start_factor=1.0, end_factor=rates[1] / rates[0], total_iters=len(rows)
    )
    losses = []
    for some in rows:
        terms = []
        for at in some:
            ids = torch.tensor([SAMPLES[at].ids])
            with lm.gated(numbers.sigmoid().view(lm.geometry.shape)):
                found = lm.model(input_ids=ids, use_cache=False).logits[0].log_softmax(-1)
            terms.append(-(found[3, ids[0, 4]] + found[4, ids[0, 5]]) / 2)
        nll = torch.stack(terms).mean()
        losses.append(nll.item())
        adam.zero_grad()
        (nll - weight * numbers.clamp(-4, 4).mean()).backward()
        torch.nn.utils.clip_grad_norm_([numbers], 1.0)
        adam.step()
        schedule.step()
    return numbers.detach(), losses


def test_the_fits_are_the_published_steps(lm: LanguageModel) -> None:
    fitted = fit_causal_gates(lm, SAMPLES, SHORT, 7)
    start = torch.from_numpy(causal_gating._begin(lm.geometry, 7))
    rows = {
        name: causal_gating._batches(5, steps, 2, f"7 {name}")
        for name, steps in (("none", 3), ("keep", 4), ("remove", 4))
    }
    free, losses = naive(lm, start, rows["none"], 0.0, (0.1, 0.01))
    keep, _ = naive(lm, free, rows["keep"], 0.1, (0.5, 0.1))
    remove, _ = naive(lm, free, rows["remove"], -0.1, (0.5, 0.1))
    np.testing.assert_allclose(fitted.losses["none"], losses, rtol=1e-5)
    for one, logits in ((fitted.free, free), (fitted.keep, keep), (fitted.remove, remove)):
        expected = logits.sigmoid().view(lm.geometry.shape).numpy()
        np.testing.assert_allclose(one, expected, atol=2e-3)


def test_gates_begin_anywhere_and_follow_a_push_that_nothing_resists(lm: LanguageModel) -> None:
    begin = causal_gating._begin(lm.geometry, 0)
    assert begin.shape == (lm.geometry.total,) and begin.std() > 0.5
    assert not np.array_equal(begin, causal_gating._begin(lm.geometry, 1))
    # So strong a push leaves the loss no say.
    config = CausalGating(steps=1, pushed_steps=30, batch_size=5, weight=1000.0)
    fitted = fit_causal_gates(lm, SAMPLES, config, 0)
    assert fitted.keep.min() > 0.9 and fitted.remove.max() < 0.1
    roles = role_scores(fitted.keep, fitted.remove)
    assert roles["irrelevant"].min() > 0.8


def test_every_sample_is_learned_from_in_turn() -> None:
    batches = causal_gating._batches(5, 10, 2, "x")
    rows = [row for batch in batches for row in batch]
    assert all(len(batch) == 2 for batch in batches)
    assert all(sorted(rows[at : at + 5]) == list(range(5)) for at in range(0, 20, 5))
    assert all(len(batch) == 3 for batch in causal_gating._batches(3, 4, 64, "x"))


def test_a_fit_goes_on_where_it_was(
    lm: LanguageModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = fit_causal_gates(lm, SAMPLES, SHORT, 2, every=2)
    original, counted = causal_gating.descend, []

    def limited(*given: Any) -> Any:
        counted.append(1)
        if len(counted) == 4:
            raise InputError("row 1: the loss of its answer is nan")
        return original(*given)

    run = open_run(tmp_path / "run", "test", {}, {})
    monkeypatch.setattr(causal_gating, "descend", limited)
    with pytest.raises(InputError, match="is nan"):
        fit_causal_gates(lm, SAMPLES, SHORT, 2, run, every=2)
    done = fit_causal_gates(lm, SAMPLES, SHORT, 2, run, every=2)
    assert len(counted) == 4 + 3  # 2 + 2 + 2 goes, of which three were kept
    for name in ("free", "keep", "remove"):
        np.testing.assert_array_equal(getattr(done, name), getattr(whole, name))
