"""`headscope find soft-gate`: its run folder, its page, going on when killed, bad input."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import process_helpers
from headscope.errors import InputError
from headscope.find.trained_gates import SoftGate
from headscope.heads import Gate, HeadScores, HeadSet
from headscope.lm import losses
from headscope.studies.find.soft_gate import FindSoftGate, find_soft_gate
from headscope.studies.models import ModelChoice
from headscope.studies.questions import QuestionsChoice
from lm_helpers import saved

Command = Callable[..., Any]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "questions.jsonl"
    rows = [
        {"context": f"The {at} is at {at + 7}.", "question": "Where?", "answers": [str(at + 7)]}
        for at in range(18)
    ]
    rows.append({"context": "It is.", "question": "Where?", "answers": []})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def asked(model: Path, data: Path, out: Path) -> tuple[object, ...]:
    return (
        "find", "soft-gate", "--model", model, "--data", data, "--heads", "1.2,0.1",
        "--train", 8, "--stop", 3, "--test", 6, "--seeds", 2, "--learning-rate", 0.1,
        "--epochs", 1, "--max-new-tokens", 2, "--out", out,
    )  # fmt: skip


def settings(model: Path, data: Path) -> FindSoftGate:
    """Two seeds, looks at every second step, two new tokens."""
    return FindSoftGate(
        "1.2,0.1",
        model=ModelChoice(str(model)),
        questions=QuestionsChoice(str(data), train=6, stop=3, test=6),
        training=SoftGate(learning_rate=0.1, check_every=2, max_new_tokens=2, patience=9),
        seeds=2,
    )


@pytest.fixture(scope="module")
def run(model: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from headscope.cli import main

    out = tmp_path_factory.mktemp("runs") / "run"
    assert main([str(one) for one in asked(model, data, out)]) == 0
    return out


def test_the_run_holds_gates_heads_scores_and_answers(run: Path) -> None:
    told = json.loads((run / "result.json").read_text("utf-8"))
    gates = [Gate.from_pretrained(run / "seeds" / str(seed) / "gate") for seed in (0, 1)]
    assert Gate.from_pretrained(run / "gate") == gates[told["gate_seed"]]
    heads = HeadSet.from_pretrained(run / "heads")
    assert str(heads) == "1.2,0.1" and all(set(one.changed_heads()) <= set(heads) for one in gates)
    scores = HeadScores.from_pretrained(run / "scores")
    stacked = np.abs(np.array([one.values for one in gates], dtype=np.float64) - 1)
    np.testing.assert_allclose(scores.values, stacked.mean(axis=0))
    kept = load_file(run / "statistics.safetensors")
    assert kept["accuracy.trained"].shape == kept["nll.random"].shape == (2, 6)
    means = told["accuracy"]["trained"]["accuracy"]["by_seed"]
    np.testing.assert_allclose(kept["accuracy.trained"].mean(axis=1), means)
    rows = [json.loads(line) for line in (run / "outputs" / "trained-1.jsonl").open()]
    assert [row["right"] for row in rows] == (kept["accuracy.trained"][1] == 1).tolist()
    assert all(row["right"] == (row["answers"][0] in row["text"]) for row in rows)


def test_a_killed_run_ends_with_the_same_numbers(model: Path, data: Path, tmp_path: Path) -> None:
    # In the second of the first seed's three trainings.
    _, kept = process_helpers.resumed(
        find_soft_gate, settings(model, data), tmp_path, 9, titles=("",), states=True
    )
    assert any(name.endswith(".safetensors") for name in kept)


def test_a_loss_that_is_no_number_stops_and_what_is_done_is_kept(
    model: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = settings(model, data)
    original, calls = losses.row_losses, []

    def spoilt(*given: Any) -> Any:
        calls.append(1)
        found = original(*given)
        return found * float("nan") if len(calls) == 5 else found

    monkeypatch.setattr(losses, "row_losses", spoilt)
    out = tmp_path / "run"
    with pytest.raises(InputError, match=r"questions.jsonl, line \d+: the loss .* is nan"):
        find_soft_gate(config, out)
    assert (out / "parts" / "training" / "trained-0.safetensors").exists()
    result = find_soft_gate(config, out)
    monkeypatch.setattr(losses, "row_losses", original)
    whole = find_soft_gate(config, tmp_path / "whole")
    assert result.accuracy == whole.accuracy and result.seeds == whole.seeds


def test_heads_found_on_the_tested_contexts_are_refused(
    command: Command, model: Path, data: Path, run: Path, tmp_path: Path
) -> None:
    # With another seed what was learned from there is tested on here.
    again = [run if one == "1.2,0.1" else one for one in asked(model, data, tmp_path / "again")]
    code, _, err = command(*again, "--seed", 1)
    assert code == 2 and "are on a context that these heads were found on" in err
    code, said, _ = command(*again, "--seed", 1, "--allow-overlap", "--json")
    assert code == 0 and json.loads(said)["leakage"]["overlap"] > 0
