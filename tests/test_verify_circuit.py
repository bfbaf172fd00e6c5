"""Circuits: equal to a naive loop over kept heads; areas by MIB's definition; random rankings."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from itertools import chain, pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from conftest import Said
from headscope.data.prompts import translation_prompts
from headscope.errors import InputError
from headscope.evidence.rows import KEPT, SELECTED, Condition
from headscope.heads import Geometry, Head
from headscope.studies.pairs import PairsChoice
from headscope.studies.verify.circuit import VerifyCircuit, verify_circuit
from headscope.studies.verify.removal import read_test_directions
from headscope.verify.faithfulness import (
    CMD,
    CPR,
    CURVE,
    FAITHFULNESS,
    SHARES,
    Size,
    areas,
    circuit_evidence,
    planned,
    random_rankings,
    sizes_of,
)
from headscope.verify.translation import Removal
from headscope.verify.translation.evidence import LOSSES
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
    made = planned(ranking, (Size(0.5, 3), Size(1.0, 6)), geometry, 2, ("random",), 0, "mean")
    kept = {
        condition.id: set(map(str, geometry.heads())) - set(condition.heads)
        for condition in made
        if condition.of == KEPT
    }
    assert kept["nothing kept 6 mean"] == set()
    assert kept["selected kept 3 mean"] == {"1.2", "0.1", "0.0"}
    assert {len(heads) for name, heads in kept.items() if "#" in name} == {3}
    assert [each.draw for each in made if each.of == CURVE] == [None, 0, 1]


def asked(measure: Any = None, **removal: Any) -> VerifyCircuit:
    settings = Removal(**{"draws": 3, "controls": ("random", "same layers"), **removal})
    heads = ",".join(map(str, Geometry.uniform(6, 16).heads()))
    pairs = PairsChoice(("en-de", "de-en"), limit=3)
    return VerifyCircuit(heads, (1, 20, 0.5), pairs=pairs, removal=settings, measure=measure)


def test_faithfulness_and_areas_equal_a_naive_loop(tmp_path: Path) -> None:
    config = asked()
    result = verify_circuit(config, tmp_path / "run")
    lm = config.model.load()
    directions = read_test_directions(config.pairs, "pocket", 0)
    total = lm.geometry.total
    every = list(map(str, lm.geometry.heads()))

    def loss(name: str, kept: set[str]) -> float:
        gate = torch.zeros(lm.geometry.shape)
        for head in map(Head.parse, kept):
            gate[head.layer, head.head] = 1
        model, pairs = folded(lm, gate), directions[name]
        prompts = translation_prompts(pairs, config.removal.template, None, "")
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


def test_a_text_measure_and_what_replaces_heads(tmp_path: Path) -> None:
    config = asked("text", ablate=("resample",), draws=1)
    evidence = verify_circuit(config, tmp_path / "run").evidence
    assert {each.replacement for each in evidence.conditions[1:]} == {"resample"}
    for part in evidence.single:
        whole, without = (evidence.level("chrf", each, part) for each in evidence.conditions[:2])
        for condition in evidence.selected[:-1]:
            kept = evidence.level("chrf", condition, part)
            found = evidence.level(FAITHFULNESS, condition, part)
            assert whole and without and kept and found
            wanted = (kept.value - without.value) / (whole.value - without.value)
            assert found.value == pytest.approx(wanted, abs=1e-9)


def test_what_has_nothing_to_keep_is_refused() -> None:
    geometry, sizes = Geometry.uniform(2, 2), (Size(0.5, 2), Size(1.0, 4))
    conditions = planned(list(geometry.heads()), sizes, geometry, 1, ("random",), 0, "zero")
    numbers = [np.array([[1.0, 1], [2, 1]]) if each.of != CURVE else None for each in conditions]
    with pytest.raises(InputError, match="no better than without any head"):
        circuit_evidence(conditions, sizes, {"en-de": numbers}, ("nll", LOSSES["nll"]))
    with pytest.raises(InputError, match="no measure"):
        asked("accuracy")
    with pytest.raises(InputError, match="draws no rankings"):
        asked(controls=("outside",))
    with pytest.raises(InputError, match="--ablate"):
        asked(ablate=("zero", "mean"))


def test_the_command_goes_on_where_it_was(tmp_path: Path, command: Callable[..., Said]) -> None:
    words = (
        *("verify", "circuit", "--heads", "5.1,4.3,5.3,3.2", "--k", 2, "--k", 4, "--pair", "en-de"),
        *("--limit", 4, "--draws", 2, "--out", tmp_path / "run", "--json"),
    )
    first = json.loads(command(*words).out)
    (tmp_path / "run" / "DONE.json").unlink()
    again = json.loads(command(*words).out)
    assert {**again, "seconds": 0} == {**first, "seconds": 0}
    assert [row["k"] for row in first["conditions"] if row["kind"] == SELECTED] == [2, 4, 0]
    assert first["details"]["heads"] == ["5.1", "4.3", "5.3", "3.2"]
