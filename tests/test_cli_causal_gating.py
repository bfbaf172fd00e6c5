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
from headscope.studies.report import write_report
from headscope.studies.tasks import TaskChoice

Command = Callable[..., Any]
ROLES = ("facilitating", "interfering", "irrelevant")


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
    assert write_report(run).exists()  # what was written is read again
    result = json.loads((run / "result.json").read_text("utf-8"))
    scores = HeadScores.from_pretrained(run / "scores")
    assert result["details"]["held_out"] == 8
    levels = {row["condition"]: row for row in result["levels"]}
    tests = {(row["condition"], row["control"]): row for row in result["tests"]}
    base = levels["original"]["value"]
    removed = [row for row in result["conditions"] if row["kind"] == "selected"]
    assert [row["of"] for row in removed] == [
        role for role in ROLES if (scores.extra[role] >= 0.5).any()
    ]
    for row in removed:
        heads = [Head.parse(one) for one in row["heads"]]
        best = [scores.extra[row["of"]][one.layer, one.head] for one in heads]
        assert all(value >= 0.5 for value in best) and best == sorted(best, reverse=True)
        # Draws are all different: ten, or as many sets of that size as there are besides.
        sets = math.comb(scores.geometry.total, len(heads)) - 1
        draws = [levels[each["id"]]["value"] for each in result["conditions"]
                 if (each["kind"], each["of"]) == ("random", row["of"])]  # fmt: skip
        assert len(draws) == min(10, sets)
        own, test = levels[row["id"]]["value"], tests[row["id"], "random"]
        assert levels[row["id"]]["change"]["value"] == pytest.approx(own - base, abs=1e-9)
        assert test["difference"]["value"] == pytest.approx(own - np.mean(draws), abs=1e-9)
        sign = -1 if row["of"] == "interfering" else 1
        as_far = sum(sign * draw >= sign * own for draw in draws)
        assert test["p_draws"] == pytest.approx((1 + as_far) / (1 + len(draws)))
    for name in ("free", "keep", "remove"):
        each = [fit["held_out"][name] for fit in result["details"]["fits"]]
        (row,) = (row for row in result["conditions"] if row["of"] == name)
        assert len(each) == 2 and levels[row["id"]]["value"] == pytest.approx(np.mean(each))


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
    assert done.scored == whole.scored and done.evidence == whole.evidence
