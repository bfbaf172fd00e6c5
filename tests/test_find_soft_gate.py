"""Soft gates: only the chosen heads move, the best look is kept, questions fit and are scored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headscope.data.questions import Question, QuestionTemplate
from headscope.errors import InputError
from headscope.find import soft_gate_training as soft_gate
from headscope.find.gate_descent import mean_losses
from headscope.find.soft_gate_training import SoftGate, answer, ask, scored, train_soft_gate
from headscope.heads import Gate, HeadSet
from headscope.lm.generation import GenerateConfig
from headscope.lm.model import LanguageModel
from headscope.lm.prompting import Answered
from headscope.runs import open_run
from lm_helpers import wrapped

TEMPLATE = QuestionTemplate("{context}|{question}=")


@pytest.fixture(scope="module")
def lm() -> LanguageModel:
    lm = wrapped("llama")
    lm.model.config.max_position_embeddings = 64
    return lm


@pytest.fixture(scope="module")
def samples() -> list[Answered]:
    rng = np.random.default_rng(3)
    return [
        Answered(tuple(rng.integers(3, 96, 8).tolist()), 5, f"question {at}") for at in range(12)
    ]


def heads(lm: LanguageModel) -> HeadSet:
    return HeadSet.parse("1.2,0.1", lm.geometry)


def test_only_the_chosen_gates_move_and_the_best_look_is_kept(
    lm: LanguageModel, samples: list[Answered]
) -> None:
    config = SoftGate(learning_rate=0.1, epochs=3, check_every=4, patience=100)
    seen = []
    done = train_soft_gate(
        lm, heads(lm), samples[:8], samples[8:], config, 1, progress=lambda a, b: seen.append(a)
    )
    assert set(done.gate.changed_heads()) <= set(heads(lm))
    assert len(done.losses) == 24 and not done.stopped and seen == [4, 8, 12, 16, 20, 24]
    assert [step for step, _ in done.checks] == [0, *seen]
    identity = mean_losses(lm, samples[8:], Gate.identity(lm.geometry)).mean()
    assert done.checks[0][1] == pytest.approx(identity)
    lowest = min(done.checks, key=lambda check: check[1])
    assert done.step == lowest[0]
    assert mean_losses(lm, samples[8:], done.gate).mean() == pytest.approx(lowest[1])
    # What is learned is learned: the pairs learned from lose more than they did.
    after = mean_losses(lm, samples[:8], done.gate).mean()
    assert after < mean_losses(lm, samples[:8], Gate.identity(lm.geometry)).mean()


def test_the_seed_decides_the_order_and_training_stops_early(
    lm: LanguageModel, samples: list[Answered], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = SoftGate(learning_rate=0.05, epochs=2, check_every=2, patience=3)
    orders = [soft_gate._batches(8, config, seed) for seed in (0, 0, 1)]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(row for step in orders[0][:8] for row in step) == list(range(8))
    losses = iter([1.0, 0.9, 0.95, 0.9, 0.93, 0.1])
    monkeypatch.setattr(soft_gate, "mean_losses", lambda *a: np.array([next(losses)]))
    done = train_soft_gate(lm, heads(lm), samples[:8], samples[8:], config, 0)
    assert done.stopped and [loss for _, loss in done.checks] == [1.0, 0.9, 0.95, 0.9, 0.93]
    assert done.step == 2


def test_a_training_goes_on_where_it_was(
    lm: LanguageModel, samples: list[Answered], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = SoftGate(learning_rate=0.1, check_every=3, epochs=1)
    arguments: Any = (lm, heads(lm), samples[:8], samples[8:], config, 4)
    whole = train_soft_gate(*arguments)
    original = soft_gate.descend

    def broken(*given: Any, **named: Any) -> Any:
        raise InputError("question 3: the loss of its answer is nan")

    run = open_run(tmp_path / "run", "test", {}, {})
    calls = iter([original, broken])
    monkeypatch.setattr(soft_gate, "descend", lambda *a, **k: next(calls)(*a, **k))
    with pytest.raises(InputError, match="is nan"):
        train_soft_gate(*arguments, run)
    counted = []
    monkeypatch.setattr(
        soft_gate, "descend", lambda *a, **k: counted.append(1) or original(*a, **k)
    )
    done = train_soft_gate(*arguments, run)
    assert len(counted) == 2  # of three: the first was kept
    assert done.gate == whole.gate and done.checks == whole.checks
    np.testing.assert_array_equal(done.losses, whole.losses)
    again = train_soft_gate(*arguments, run)
    assert len(counted) == 2 and again.gate == whole.gate


def test_what_cannot_be_trained_is_refused(lm: LanguageModel, samples: list[Answered]) -> None:
    nobody = HeadSet(lm.geometry, ())
    with pytest.raises(InputError, match="0 heads, 8 pairs"):
        train_soft_gate(lm, nobody, samples[:8], samples[8:], SoftGate(), 0)
    with pytest.raises(InputError, match="0 to stop on"):
        train_soft_gate(lm, heads(lm), samples, [], SoftGate(), 0)
    for name in ("epochs", "batch_size", "check_every", "patience", "max_new_tokens"):
        with pytest.raises(InputError, match=name):
            SoftGate(**{name: 0})


def question(context: str, answer: str, at: int = 1) -> Question:
    return Question(str(at), context, "Where?", (answer,), at, f"line {at}")


def test_a_context_that_is_too_long_is_cut_around_the_answer(lm: LanguageModel) -> None:
    words = " ".join(f"w{at}" for at in range(60))
    for at, where in enumerate(("w3", "w30", "w57")):
        (asked,) = ask(lm, [question(words, where, at)], TEMPLATE, "q.json", 10)
        assert asked.cut and asked.prompt.endswith("|Where?=")
        kept = asked.prompt.removesuffix("|Where?=")
        # Whole words of the context, the answer among them, and as many as fit.
        assert f" {kept} " in f" {words} " and where in kept.split()
        assert 40 <= len(lm.encode(asked.prompt)) <= 64 - 10
        assert len(asked.sample.ids) <= 64 and asked.sample.name == f"q.json, line {at}"
    (short,) = ask(lm, [question("w1 w2", "w2")], TEMPLATE, "q.json", 10)
    assert not short.cut and short.prompt == "w1 w2|Where?="
    (elsewhere,) = ask(lm, [question(words, "zz")], TEMPLATE, "q.json", 10)
    assert elsewhere.cut and elsewhere.prompt.startswith("w0 w1 ")


def test_where_the_answer_lies_in_what_is_kept_tells_nothing(lm: LanguageModel) -> None:
    words = " ".join("abcdefghij"[at % 10] for at in range(100)) + " XX " + "z " * 100
    places = []
    for at in range(12):
        (asked,) = ask(lm, [question(words, "XX", at)], TEMPLATE, "q.json", 10)
        places.append(asked.prompt.index("XX"))
    assert max(places) - min(places) > 15


def test_an_answer_longer_than_the_context_is_refused(lm: LanguageModel) -> None:
    long = "y" * 80
    with pytest.raises(InputError, match=r"q.json, line 1: question and answer alone have more"):
        ask(lm, [question(f"x {long} x", long)], TEMPLATE, "q.json", 10)


def test_answers_are_generated_under_the_gate(lm: LanguageModel) -> None:
    asked = ask(lm, [question("w1 w2", "w2"), question("w3", "w3", 2)], TEMPLATE, "q.json", 4)
    gate = heads(lm).removed()
    config = SoftGate(max_new_tokens=4)
    found = answer(lm, asked, gate, config)
    with lm.gated(gate):
        said = lm.generate([one.prompt for one in asked], GenerateConfig(4, stop_at_newline=False))
    assert found.texts == tuple(one.text for one in said)
    np.testing.assert_allclose(found.losses, mean_losses(lm, [one.sample for one in asked], gate))
    scores = scored(["It is w2.", "W3"], found.losses, asked)
    assert scores.right.tolist() == [True, False]
    assert scores.normalized.tolist() == [True, True]
