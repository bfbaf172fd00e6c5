"""`headscope find causal-gating`: its run folder, its test by removal, its page, bad input."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headscope.errors import InputError
from headscope.heads import Head, HeadScores
from headscope.lm import losses
from headscope.studies.find.causal_gating import FindCausalGating, find_causal_gating
from headscope.studies.models import ModelChoice
from headscope.studies.tasks import TaskChoice
from lm_helpers import saved

Command = Callable[..., Any]
ROLES = ("facilitating", "interfering", "irrelevant")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tasks") / "next.json"
    rows = [{"input": str(at), "output": str(at + 1)} for at in range(30)]
    path.write_text(json.dumps(rows), "utf-8")
    return path


def asked(model: Path, task: Path, out: Path) -> tuple[object, ...]:
    return (
        "find", "causal-gating", "--model", model, "--task", task, "--held-out", 8,
        "--steps", 4, "--seeds", 2, "--batch", 3, "--out", out,
    )  # fmt: skip


@pytest.fixture(scope="module")
def run(model: Path, task: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from headscope.cli import main

    out = tmp_path_factory.mktemp("runs") / "run"
    assert main([str(one) for one in asked(model, task, out)]) == 0
    return out


def test_heads_of_a_role_are_removed_beside_random_ones(run: Path) -> None:
    check = json.loads((run / "result.json").read_text("utf-8"))["check"]
    scores = HeadScores.from_pretrained(run / "scores")
    assert check["examples"] == 8
    base = check["conditions"]["untouched"]
    assert base["change"] == {"value": 0.0, "low": 0.0, "high": 0.0}
    for role in ROLES:
        heads = [Head.parse(one) for one in check["removed"][role]]
        best = [scores.extra[role][one.layer, one.head] for one in heads]
        assert all(value >= 0.5 for value in best) and best == sorted(best, reverse=True)
        assert (f"without {role}" in check["conditions"]) == bool(best)
        if best:
            # Draws are all different: ten, or as many sets of that size as the other heads have.
            others = scores.geometry.total - len(heads)
            draws = check["conditions"][f"random beside {role}"]["each"]
            assert len(draws) == min(10, math.comb(others, len(heads)))
    for one in check["conditions"].values():
        assert one["change"]["value"] == pytest.approx(one["nll"] - base["nll"], abs=1e-9)
        assert one["change"]["low"] <= one["change"]["value"] <= one["change"]["high"]
        assert one["nll"] == pytest.approx(np.mean(one["each"]))
    assert {f"gates {name}" for name in ("free", "keep", "remove")} <= set(check["conditions"])


def test_a_loss_that_is_no_number_stops_and_the_run_goes_on(
    model: Path, task: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = FindCausalGating(
        ModelChoice(str(model)),
        TaskChoice((str(task),), held_out=8),
        changes={"steps": 2, "pushed_steps": 2, "seeds": 1, "batch_size": 2},
    )
    original, calls = losses.row_losses, []

    def spoilt(*given: Any) -> Any:
        calls.append(1)
        found = original(*given)
        return found * float("nan") if len(calls) == 4 else found

    monkeypatch.setattr(losses, "row_losses", spoilt)
    with pytest.raises(InputError, match=r"next.json, example .* the loss of its answer is nan"):
        find_causal_gating(config, tmp_path / "run")
    done = find_causal_gating(config, tmp_path / "run")
    assert len(calls) == 4 + 4  # the first fit was kept
    whole = find_causal_gating(config, tmp_path / "whole")
    assert done.heads == whole.heads and done.check == whole.check
