"""`headscope find soft-gate`: its run folder, its page, going on when killed, bad input."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import process_helpers
from conftest import json_of
from headscope.evidence.rows import Condition
from headscope.find.soft_gate_training import SoftGate
from headscope.heads import Gate, HeadScores, HeadSet
from headscope.studies.find.soft_gate import FindSoftGate, effects
from headscope.studies.models import ModelChoice
from headscope.studies.questions import QuestionsChoice
from headscope.studies.report import write_report

Command = Callable[..., Any]


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
        heads="1.2,0.1",
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
    assert write_report(run).exists()
    result = json.loads((run / "result.json").read_text("utf-8"))
    gates = [Gate.from_pretrained(run / "seeds" / str(seed) / "gate") for seed in (0, 1)]
    assert Gate.from_pretrained(run / "gate") == gates[result["details"]["gate_seed"]]
    heads = HeadSet.from_pretrained(run / "heads")
    assert heads.keys == ("1.2", "0.1") and all(
        set(one.changed_heads()) <= set(heads) for one in gates
    )
    scores = HeadScores.from_pretrained(run / "scores")
    stacked = np.abs(np.array([one.values for one in gates], dtype=np.float64) - 1)
    np.testing.assert_allclose(scores.values, stacked.mean(axis=0))
    kept = load_file(run / "statistics.safetensors")
    assert kept["accuracy.selected"].shape == kept["nll.random"].shape == (2, 6)
    levels = {(row["condition"], row["statistic"]): row["value"] for row in result["levels"]}
    for name in ("accuracy", "normalized", "nll"):
        means = kept[f"{name}.selected"].mean(axis=1)
        np.testing.assert_allclose(result["details"]["by_seed"][name], means)
        assert levels["selected 2 gated", name] == pytest.approx(means.mean())
        assert levels["selected 2", name] == pytest.approx(kept[f"{name}.selected-removed"].mean())
        for number, own in enumerate(kept[f"{name}.random"]):
            assert levels[f"random 2 gated #{number}", name] == pytest.approx(own.mean())
    rows = [json.loads(line) for line in (run / "outputs" / "selected-1.jsonl").open()]
    assert [row["right"] for row in rows] == (kept["accuracy.selected"][1] == 1).tolist()
    assert all(row["right"] == (row["answers"][0] in row["text"]) for row in rows)


def test_trained_heads_are_compared_with_trained_ones_and_removed_with_removed() -> None:
    """Means over seeds, question by question; questions on one context are one example."""
    generator = np.random.default_rng(0)
    heads = ("0.0", "0.1"), ("1.0", "1.1"), ("2.0", "2.1"), ("0.0", "1.2")
    selected = Condition("selected", k=2, gate=None, heads=heads[0])
    random = [
        replace(selected, kind="random", draw=at, heads=own) for at, own in enumerate(heads[1:])
    ]
    trained = [*(replace(selected, draw=at) for at in range(3)), *random]
    removed = [replace(each, gate=0.0) for each in (selected, *random)]
    values = {
        each: {name: generator.random(30) for name in ("accuracy", "normalized", "nll")}
        for each in (Condition(), *trained, *removed)
    }
    groups = [str(at // 2) for at in range(30)]
    table = effects(values, groups)
    (first, second) = table.selected
    assert (first.gate, second.gate, table.main) == (None, 0.0, first)
    for name, (sign, better) in {"accuracy": (1, "higher"), "nll": (-1, "lower")}.items():
        own = np.mean([values[each][name] for each in trained[:3]], axis=0)
        others = [values[each][name] for each in random]
        level = table.level(name, first)
        assert level is not None and level.change is not None
        assert (level.value, level.examples) == (pytest.approx(own.mean()), 15)
        assert level.change.value == pytest.approx(own.mean() - values[Condition()][name].mean())
        test = table.against(name, first)["random"]
        assert test.side == better and test.draws == 3
        assert test.difference.value == pytest.approx(own.mean() - np.mean(others))
        above = sum(sign * other.mean() >= sign * own.mean() for other in others)
        assert test.p_draws == pytest.approx((1 + above) / 4)
        without = table.against(name, second)["random"]
        gap = values[removed[0]][name].mean() - np.mean([values[e][name] for e in removed[1:]])
        assert without.difference.value == pytest.approx(gap) and without.side != better


def test_a_killed_run_ends_with_the_same_numbers(model: Path, data: Path, tmp_path: Path) -> None:
    # In the second of the first seed's three trainings.
    _, kept = process_helpers.resumed(
        "find soft-gate", settings(model, data), tmp_path, 9, titles=("",), states=True
    )
    assert any(name.endswith(".safetensors") for name in kept)


def test_heads_found_on_the_tested_contexts_are_refused(
    command: Command, model: Path, data: Path, run: Path, tmp_path: Path
) -> None:
    # With another seed what was learned from there is tested on here.
    again = [run if one == "1.2,0.1" else one for one in asked(model, data, tmp_path / "again")]
    code, _, err = command(*again, "--seed", 1)
    assert code == 2 and "are on a context that these heads were found on" in err
    code, said, _ = command(*again, "--seed", 1, "--allow-overlap", "--json")
    assert code == 0 and json_of(said)["details"]["leakage"]["overlap"] > 0
