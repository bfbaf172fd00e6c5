"""The registry of methods: lazy, without overwrites, helpful about slips."""

from __future__ import annotations

import math
from dataclasses import is_dataclass
from typing import Any

import pytest

from headscope.errors import InputError
from headscope.find import registry
from headscope.find.causal_gating_scores import CausalGating
from headscope.find.first_order_scores import FirstOrder
from headscope.find.key_tokens_attention import KeyTokens
from headscope.find.lahis_scores import Lahis
from headscope.find.mask_config import MaskTraining
from headscope.find.retrieval_scores import Retrieval
from headscope.find.soft_gate_training import SoftGate
from headscope.find.translation_score_config import TranslationScore


@pytest.fixture(autouse=True)
def own_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_methods", dict(registry._methods))


def test_every_method_can_be_loaded_and_says_what_it_measures() -> None:
    for one in registry.methods():
        config, function = one.load()
        assert is_dataclass(config) and callable(function), one.name
        assert one.measures and one.needs, one.name


def test_a_name_is_never_taken_twice() -> None:
    with pytest.raises(
        InputError, match=r"already a method 'lahis' \(in headscope.find.lahis_scores\)"
    ):
        registry.register("lahis", "mine", "Config", "function", "nothing")
    assert registry.method("lahis").module == "headscope.find.lahis_scores"


def test_an_unknown_name_is_answered_with_the_nearest_and_the_list() -> None:
    with pytest.raises(InputError, match="did you mean induction") as told:
        registry.method("inductoin")
    for one in registry.methods():
        assert one.name in str(told.value)
    with pytest.raises(InputError) as far:
        registry.method("zzz")
    assert "did you mean" not in str(far.value) and "induction" in str(far.value)


def test_a_method_from_elsewhere_can_be_registered_and_loaded() -> None:
    made = registry.register("mine", "fractions", "Fraction", "gcd", "nothing", "nothing much")
    assert registry.method("mine") is made and registry.methods()[-1] is made
    with pytest.raises(InputError, match="the method mine cannot be loaded from fractions"):
        made.load()
    absent = registry.register("absent", "no.such.module", "A", "b", "nothing")
    with pytest.raises(InputError, match="install the package"):
        absent.load()


@pytest.mark.parametrize(
    ("settings", "wrong"),
    [
        (FirstOrder, {"bootstrap_draws": 0}),
        (Lahis, {"level": 1.0}),
        (Lahis, {"learning_rate": 0.0}),
        (Lahis, {"weight_decay": -1.0}),
        (TranslationScore, {"chance_draws": -1}),
        (Retrieval, {"depths": ()}),
        (Retrieval, {"template": "{context}"}),
        (KeyTokens, {"words": ("a",), "answer": " "}),
        (KeyTokens, {"words": ("a",), "answer": "b", "steps": "last"}),
        (SoftGate, {"patience": 0}),
        (SoftGate, {"learning_rate": 0.0}),
        (SoftGate, {"weight_decay": -1.0}),
        (CausalGating, {"pushed_steps": 0}),
        (CausalGating, {"weight": 0.0}),
        (MaskTraining, {"keep_every": 0}),
        (MaskTraining, {"temperature": 0.0}),
        (MaskTraining, {"spread": -1.0}),
        (MaskTraining, {"cooling": 2.0}),
        (MaskTraining, {"penalty": math.inf}),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: Any, wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        settings(**wrong)
