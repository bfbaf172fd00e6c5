"""Circuits: equal to a naive loop over kept heads; areas by MIB's definition; random rankings."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain, pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from conftest import Said, json_of
from headscope.data.prompts import translation_prompts
from headscope.data.tasks import prompt
from headscope.errors import InputError
from headscope.evidence.rows import CURVE, KEPT, SELECTED, Condition
from headscope.find.attribution_scores import contrasts, corrupted
from headscope.heads import Geometry, Head
from headscope.heads.geometry import keys_of
from headscope.lm import shared_losses
from headscope.lm.generation import GenerateConfig
from headscope.lm.prompting import encode_answers
from headscope.studies.models import ModelChoice
from headscope.studies.pairs import PairsChoice, read_test_directions
from headscope.studies.tasks import TaskChoice, counterfactuals, read_tasks
from headscope.studies.verify.circuit import VerifyCircuit, dropped
from headscope.studies.verify.circuit import comparison as circuit
from headscope.verify.circuit_faithfulness import (
    CMD,
    CPR,
    DROP,
    DROPPED,
    FAITHFULNESS,
    INCOMPLETE,
    PART,
    REST,
    SHARES,
    Size,
    areas,
    circuit_evidence,
    planned,
    random_rankings,
    sizes_of,
)
from headscope.verify.masked_tasks.asking import NEW_TOKENS
from headscope.verify.removal_translations.evidence import LOSSES
from lm_helpers import folded
from loss_helpers import of_sentence


def mib(shares: list[float], values: list[float]) -> tuple[float, float]:
    """MIB's two areas, as its paper says: trapezoids under the curve, and between it and 1."""
    under = over = 0.0
    for (a, f), (b, g) in pairwise(zip(shares, values, strict=True)):
        under += (b - a) * (f + g) / 2
        over += (b - a) * (abs(1 - f) + abs(1 - g)) / 2
    return under, over


@given(st.lists(st.floats(-3, 3), min_size=10, max_size=10))
def test_areas_are_those_of_mib(values: list[float]) -> None:
    assert areas(SHARES, np.array(values)) == pytest.approx(mib(list(SHARES), values), abs=1e-9)


def test_sizes_are_those_of_mib_or_as_named() -> None:
    geometry = Geometry.uniform(24, 14)
    assert [size.k for size in sizes_of((), geometry)] == [0, 0, 1, 3, 6, 16, 33, 67, 168, 336]
    assert sizes_of((20, 0.5), geometry) == (Size(20 / 336, 20), Size(0.5, 168), Size(1.0, 336))
    with pytest.raises(InputError):
        sizes_of((400,), geometry)


@given(st.integers(0, 99), st.permutations(range(12)), st.integers(1, 12))
def test_random_rankings_keep_what_they_are_matched_in(
    seed: int, order: list[int], length: int
) -> None:
    geometry = Geometry((4, 2, 6))
    every = list(geometry.heads())
    ranking = [every[place] for place in order[:length]]
    for way in ("random", "same layers"):
        drawn = random_rankings(ranking, geometry, 3, seed, way)
        assert all(len(set(own)) == length for own in drawn)
        assert random_rankings(ranking, geometry, 2, seed, way) == drawn[:2]
        if way == "same layers":  # place by place
            layers = [head.layer for head in ranking]
            assert all([head.layer for head in own] == layers for own in drawn)


def test_every_ranking_is_equally_likely() -> None:
    """So the selected one is one more draw: 6 rankings of two heads in three, 4 within layers."""
    geometry = Geometry((2, 1, 2))
    ranking = [Head(0, 0), Head(2, 1)]
    free = Counter(random_rankings(ranking, geometry, 6000, 1, "random"))
    matched = Counter(random_rankings(ranking, geometry, 6000, 1, "same layers"))
    assert len(free) == 20 and len(matched) == 4
    for counts in (free, matched):
        assert max(counts.values()) < 1.3 * min(counts.values())


def test_a_circuit_keeps_its_heads_and_removes_all_others() -> None:
    geometry = Geometry.uniform(2, 3)
    ranking = [Head(1, 2), Head(0, 1), Head(0, 0)]
    others = {"random": random_rankings(ranking, geometry, 2, 0, "random")}
    made = planned(ranking, others, (Size(0.5, 3), Size(1.0, 6)), geometry, "mean")
    kept = {
        condition.id: set(keys_of(geometry.heads())) - set(condition.heads)
        for condition in made
        if condition.of == KEPT
    }
    assert kept["nothing kept 6 mean"] == set()
    assert kept["selected kept 3 mean"] == {"1.2", "0.1", "0.0"}
    assert {len(heads) for name, heads in kept.items() if "#" in name} == {3}
    assert [each.draw for each in made if each.of == CURVE] == [None, 0, 1]


def asked(measure: Any = None, **removal: Any) -> VerifyCircuit:
    settings = {"draws": 3, "controls": ("random", "same layers"), **removal}
    heads = ",".join(keys_of(Geometry.uniform(6, 16).heads()))
    pairs = PairsChoice(("en-de", "de-en"), limit=3)
    return VerifyCircuit(heads=heads, k=(1, 20, 0.5), pairs=pairs, measure=measure, **settings)


def test_faithfulness_and_areas_equal_a_naive_loop(tmp_path: Path) -> None:
    config = asked()
    result = circuit.run(config, tmp_path / "run")
    lm = config.model.load()
    directions = read_test_directions(config.pairs, "pocket", 0)
    total = lm.geometry.total
    every = [*keys_of(lm.geometry.heads())]

    def loss(name: str, kept: set[str]) -> float:
        gate = torch.zeros(lm.geometry.shape)
        for head in map(Head.parse, kept):
            gate[head.layer, head.head] = 1
        model, pairs = folded(lm, gate), directions[name]
        prompts = translation_prompts(pairs, config.template, None, "")
        rows = zip(prompts, pairs.pairs, strict=True)
        return fmean(fmean(chain(*of_sentence(lm, model, *row))) for row in rows)

    def level(statistic: str, condition: Condition, part: str) -> float:
        found = result.evidence.level(statistic, condition, part)
        assert found is not None
        return found.value

    sizes = sizes_of(config.k, lm.geometry)
    curves = [each for each in result.evidence.conditions if each.of == CURVE]
    assert len(curves) == 7
    for name in directions:
        whole, without = loss(name, set(every)), loss(name, set())
        for curve in curves:
            values = []
            for size in sizes[:-1]:
                (one,) = (
                    each
                    for each in result.evidence.conditions
                    if (each.kind, each.draw, each.of, each.k)
                    == (curve.kind, curve.draw, KEPT, size.k)
                )
                kept = loss(name, set(every) - set(one.heads))
                values.append((kept - without) / (whole - without))
                assert level(FAITHFULNESS, one, name) == pytest.approx(values[-1], abs=1e-6)
            under, over = mib([size.share for size in sizes], [*values, 1.0])
            assert level(CPR, curve, name) == pytest.approx(under, abs=1e-6)
            assert level(CMD, curve, name) == pytest.approx(over, abs=1e-6)
    assert sizes[-1].k == total
    # The mean over directions is that of theirs.
    both = [level(CPR, curves[0], name) for name in ("", *directions)]
    assert both[0] == pytest.approx(fmean(both[1:]))
    (test,) = (
        row
        for row in result.tests
        if (row.part, row.condition, row.statistic) == ("", curves[0].id, CPR)
        and row.control == "random"
    )
    assert test.side == "higher" and test.draws == 3 and test.least_p == 0.25
    drawn = [level(CPR, each, "") for each in curves if each.kind == "random"]
    assert test.p_draws == (1 + sum(own >= both[0] for own in drawn)) / 4
    assert test.difference.value == pytest.approx(both[0] - fmean(drawn))


def test_a_text_measure_and_what_replaces_heads(tmp_path: Path) -> None:
    config = asked("text", ablate=("resample",), draws=1)
    evidence = circuit.run(config, tmp_path / "run").evidence
    assert {each.replacement for each in evidence.conditions[1:]} == {"resample"}
    for part in evidence.single:
        whole, without = (evidence.level("chrf", each, part) for each in evidence.conditions[:2])
        for condition in evidence.selected[:-1]:
            kept = evidence.level("chrf", condition, part)
            found = evidence.level(FAITHFULNESS, condition, part)
            assert whole and without and kept and found
            wanted = (kept.value - without.value) / (whole.value - without.value)
            assert found.value == pytest.approx(wanted, abs=1e-9)


def test_of_a_single_example_those_heads_are_idle_that_do_nothing_for_it(tmp_path: Path) -> None:
    config = VerifyCircuit(
        heads="5.3,5.1,4.3,0.0", k=(4,), pairs=PairsChoice(limit=1), measure="loss", inside=4,
        draws=1, controls=("random",), ablate=("zero",),
    )  # fmt: skip
    result = circuit.run(config, tmp_path)
    falls = {each.of: result.evidence.level(DROP, each) for each in dropped(result.evidence)}
    assert not any(fall is None or fall.bounded for fall in falls.values())
    assert set(result.details.idle) == {head for head, fall in falls.items() if fall.value <= 0}
    assert len(result.details.idle) < 4


def test_tasks_equal_a_naive_loop(tmp_path: Path) -> None:
    geometry = Geometry.uniform(6, 16)
    order = [*keys_of(geometry.heads())][::-1]
    tasks = TaskChoice(("plural-de",), held_out=5)
    made = {}
    for measure in ("loss", "difference", "accuracy"):
        config = VerifyCircuit(
            heads=",".join(order), k=(48,), tasks=tasks, measure=measure, inside=30,
            draws=1, controls=("random",),
        )  # fmt: skip
        made[measure] = circuit.run(config, tmp_path / measure)
    lm = config.model.load()
    read = read_tasks(tasks, "pocket")
    task = read["plural-de"].test
    others = counterfactuals(tasks, read, "pocket", 0, tested=True)["plural-de"]
    asked, instructed = corrupted(lm, task, others=others)
    parting = contrasts(lm, asked, "difference", instructed)[0]
    texts = [prompt(task, each, instructed) for each in task.examples]
    answered = encode_answers(lm, texts, [each.output for each in task.examples], False)
    assert made["difference"].details.left_out == 5 - len(parting) < 5
    told = [
        circuit.concluded(replace(own, details=replace(own.details, left_out=n))).cautions
        for own in [made["difference"]]
        for n in (0, 2)
    ]
    assert len(told[1]) == len(told[0]) + 1

    def naive(measure: str, removed: tuple[str, ...]) -> float:
        gate = torch.ones(geometry.shape)
        for head in map(Head.parse, removed):
            gate[head.layer, head.head] = 0
        model, values = folded(lm, gate), []
        with torch.no_grad():
            if measure == "difference":
                for row, _, (wrong, right) in parting:  # type: ignore[misc]
                    logits = model(torch.tensor([row.ids])).logits[0, -1]
                    values.append(float(logits[right] - logits[wrong]))
            elif measure == "loss":
                for row in answered:
                    scores = model(torch.tensor([row.ids])).logits[0].log_softmax(-1)
                    places = range(row.start, len(row.ids))
                    values.append(-fmean(float(scores[at - 1, row.ids[at]]) for at in places))
            else:
                for text, each in zip(texts, task.examples, strict=True):
                    ids = torch.tensor([lm.encode(text)])
                    own = model.generate(ids, max_new_tokens=10, do_sample=False)
                    values.append(float(each.output in lm.decode(own[0, ids.shape[1] :].tolist())))
        return fmean(values)

    for measure, result in made.items():
        evidence, name = result.evidence, result.details.measure
        measured = [each for each in evidence.conditions if each.of != CURVE]
        some = measured if measure != "accuracy" else [*measured[:4], measured[-1]]
        value = {each.id: naive(measure, each.heads) for each in some}
        whole, without = (value[each.id] for each in measured[:2])
        for each in some:
            level = evidence.level(name, each)
            assert level and level.value == pytest.approx(value[each.id], abs=2e-5)
            share = evidence.level(FAITHFULNESS, each)
            if share is not None:
                wanted = (value[each.id] - without) / (whole - without)
                assert share.value == pytest.approx(wanted, abs=1e-5)


def test_an_answer_after_a_line_break_is_right_as_everywhere(tmp_path: Path) -> None:
    bare, words = "{input}\nAnswer:", ("Bruder", "Gro\u00dfvater", "Hund", "Katze")
    made = (
        ModelChoice()
        .load()
        .generate(
            [bare.format(input=word) for word in words],
            GenerateConfig(NEW_TOKENS, stop_at_newline=False),
        )
    )
    later = {
        word: own.text.split("\n")[-1].split(":")[-1].strip()
        for word, own in zip(words, made, strict=True)
        if "\n" in own.text.strip()
    }
    assert later and all(later.values())
    file = tmp_path / "later.json"
    file.write_text(json.dumps([{"input": word, "output": own} for word, own in later.items()]))
    config = VerifyCircuit(
        heads="5.3,5.1", k=(2,), tasks=TaskChoice((str(file),), bare=bare), measure="accuracy",
        draws=1, controls=("random",),
    )  # fmt: skip
    evidence = circuit.run(config, tmp_path / "run").evidence
    assert (level := evidence.level("accuracy")) and level.value == 1


def test_losses_that_are_no_numbers_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer_losses = shared_losses.answer_losses

    def overflowing(*given: Any) -> Iterator[Any]:
        for at, losses in answer_losses(*given):
            yield at, [np.multiply(own, np.nan if at == 1 else 1).tolist() for own in losses]

    monkeypatch.setattr(shared_losses, "answer_losses", overflowing)
    with pytest.raises(InputError, match=r"no finite numbers.*--dtype float32"):
        circuit.run(asked("loss", draws=1), tmp_path / "run")


def test_the_inside_of_a_circuit() -> None:
    """One head less, and circuit and model without the same part, as sets and as numbers."""
    geometry, order = Geometry.uniform(2, 4), list(Geometry.uniform(2, 4).heads())[::-1]
    sizes = (Size(0.25, 2), Size(1.0, 8))
    others = {"random": random_rankings(order, geometry, 1, 3, "random")}
    made = planned(order, others, sizes, geometry, "mean", inside=3, seed=3)
    every, circuit = set(keys_of(order)), set(keys_of(order[:3]))
    assert [each.k for each in made if each.kind == SELECTED and each.of == KEPT] == [2, 3]
    dropped = [each for each in made if each.kind == DROPPED]
    assert [each.of for each in dropped] == [*keys_of(order[:3])]
    for each in dropped:
        assert every - set(each.heads) == circuit - {each.of}
    parts = {each.draw: set(each.heads) for each in made if each.kind == REST}
    assert parts[0] == circuit and len(parts) == len(set(map(frozenset, parts.values()))) == 7
    for each in made:
        if each.kind == PART:
            assert every - set(each.heads) == circuit - parts[each.draw]
    stream = np.random.default_rng(1)
    numbers = [
        np.stack([stream.random(6) + (at == 1), np.ones(6)], 1)
        for at, each in enumerate(made)
        if each.of != CURVE
    ]
    evidence = circuit_evidence(made, sizes, {"en-de": numbers}, ("nll", LOSSES["nll"]))

    def kept(condition: Condition) -> float:
        level = evidence.level(FAITHFULNESS, condition)
        return level.value if level else float(condition.heads == ())

    (whole,) = (each for each in made if (each.kind, each.k, each.of) == (SELECTED, 3, KEPT))
    rest = {each.draw: each for each in made if each.kind == REST}
    for each in made:
        if each.kind in (DROPPED, PART):
            name, more = (DROP, whole) if each.kind == DROPPED else (INCOMPLETE, rest[each.draw])
            level = evidence.level(name, each)
            assert level and level.low <= level.value <= level.high
            assert level.value == pytest.approx(kept(more) - kept(each))


def test_what_has_nothing_to_keep_is_refused() -> None:
    geometry, sizes = Geometry.uniform(2, 2), (Size(0.5, 2), Size(1.0, 4))
    order = [*geometry.heads()]
    conditions = planned(order, {"random": [order[::-1]]}, sizes, geometry, "zero")
    for without in (2.0, np.nan):
        numbers = [np.array([[1.0, 1], [2, 1]]) for each in conditions if each.of != CURVE]
        numbers[1][1, 0] = without
        with pytest.raises(InputError, match="no better than without any head"):
            circuit_evidence(conditions, sizes, {"en-de": numbers}, ("nll", LOSSES["nll"]))
    with pytest.raises(InputError, match="no measure"):
        asked("accuracy")
    with pytest.raises(InputError, match="draws no rankings"):
        asked(controls=("outside",))
    with pytest.raises(InputError, match="--ablate"):
        asked(ablate=("zero", "mean"))
    with pytest.raises(InputError, match="one of them"):
        VerifyCircuit(heads="0.1", pairs=PairsChoice(("en-de",)), tasks=TaskChoice(("ioi",)))
    with pytest.raises(InputError, match="--k"):  # a ranking of three has no first five
        circuit.run(VerifyCircuit(heads="0.1,0.2,0.3", k=(5,), tasks=TaskChoice(("plural-de",))))
    with pytest.raises(InputError, match="--k asks for 5"):  # though it has a first two
        circuit.run(VerifyCircuit(heads="0.1,0.2,0.3", k=(2, 5), tasks=TaskChoice(("plural-de",))))
    for inside in (96, 5):
        with pytest.raises(InputError, match="--inside"):
            circuit.run(VerifyCircuit(heads="0.1,0.2,0.3", tasks=TaskChoice(("plural-de",)),
                                         inside=inside))  # fmt: skip


def test_the_command_goes_on_where_it_was(tmp_path: Path, command: Callable[..., Said]) -> None:
    words = (
        *("verify", "circuit", "--heads", "5.1,4.3,5.3,3.2", "--k", 2, "--k", 4, "--pair", "en-de"),
        *("--limit", 4, "--draws", 2, "--out", tmp_path / "run", "--json"),
    )
    first = json_of(command(*words).out)
    (tmp_path / "run" / "DONE.json").unlink()
    again = json_of(command(*words).out)
    assert {**again, "seconds": 0} == {**first, "seconds": 0}
    assert [row["k"] for row in first["conditions"] if row["kind"] == SELECTED] == [2, 4, 0]
    assert first["details"]["heads"] == ["5.1", "4.3", "5.3", "3.2"]
    every = {*next(row["heads"] for row in first["conditions"] if row["kind"] == "nothing")}
    kept = {row["id"]: every - {*row["heads"]} for row in first["conditions"]}
    for test in first["tests"]:
        if test["statistic"] == "faithfulness":
            own, name = kept[test["condition"]], test["control"]
            drawn = [kept[row["id"]] for row in first["conditions"]
                     if row["kind"] == name and row["k"] == len(own)]  # fmt: skip
            assert test["shared"] == np.mean([len(own & each) / len(own) for each in drawn])
        else:  # of the circuits of 2 and 4 heads, not of no head and all
            assert test["shared"] in (0, 0.25, 0.5)
