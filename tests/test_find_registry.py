"""The registry of methods: lazy, without overwrites, helpful about slips."""

from __future__ import annotations

from dataclasses import is_dataclass

import pytest

from headscope.errors import InputError
from headscope.find import registry


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
        InputError, match=r"already a method 'lahis' \(in headscope.find.importance\)"
    ):
        registry.register("lahis", "mine", "Config", "function", "nothing")
    assert registry.method("lahis").module == "headscope.find.importance"


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
