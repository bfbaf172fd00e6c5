"""Options that follow from settings, and the settings built back from them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from headscope.cli.commands import command_of
from headscope.errors import InputError
from headscope.settings import MadeBy, Nested, Option, Settings, build, options_in
from headscope.studies.documents import DocumentsChoice
from headscope.studies.models import ModelChoice
from headscope.studies.pairs import PairsChoice
from headscope.studies.study import Study
from headscope.studies.tasks import TaskChoice


@dataclass(frozen=True)
class Inner(Settings):
    size: Annotated[int, Option("Of a batch.", min=1)] = 3
    seed: Annotated[int, Option("Of draws.", min=0)] = 0
    modes: Annotated[tuple[str, ...], Option("Repeatable.", flag="--mode")] = ("all",)
    hidden: int = 7


def joined(
    first: Annotated[str | None, Option("A half.")] = None,
    second: Annotated[str, Option("Another.")] = "b",
) -> str | None:
    return None if first is None else first + second


@dataclass(frozen=True, kw_only=True)
class Outer(Settings):
    """What it does."""

    name: Annotated[str, Option("By its place.", argument=True)]
    inner: Annotated[
        Inner,
        Nested(changed={"size": Option("Of another batch.", flag="--width", default=5, min=1)}),
    ] = field(default_factory=Inner)
    plain: Inner = field(default_factory=Inner)
    word: Annotated[str | None, MadeBy(joined)] = None
    kind: Annotated[Literal["low", "high"], Option("One of two.", flag="--as")] = "low"
    text: Annotated[str, Option("Read.", read=str.upper)] = "none"
    chat: Annotated[bool | None, Option("A switch.", flag="--chat/--no-chat")] = None


@dataclass(frozen=True)
class Passes(Settings):
    kinds: Annotated[tuple[Literal["low", "high"], ...], Option("Repeatable.")]


def made(*arguments: str) -> Any:
    """The settings that the arguments come to, and the exit code."""
    got: list[Any] = []

    def run(settings: Outer) -> dict[str, Any]:
        got.append(settings)
        return {}

    app = typer.Typer()
    app.command()(command_of(Study(Outer, run, lambda result: "done"), "try"))
    code = CliRunner().invoke(app, [*arguments]).exit_code
    return (code, *got)


def test_options_stand_where_their_fields_stand_and_shared_ones_once() -> None:
    names = ["name", "width", "seed", "mode", "size", "first", "second", "as_", "text", "chat"]
    assert list(dict.fromkeys(each.name for each in options_in(Outer))) == names


def test_settings_are_built_from_what_is_typed() -> None:
    code, settings = made(
        "x", "--width", "9", "--seed", "4", "--mode", "a", "--mode", "b", "--first", "f",
        "--as", "high", "--text", "t", "--no-chat",
    )  # fmt: skip
    assert code == 0
    assert settings == Outer(
        name="x",
        inner=Inner(9, 4, ("a", "b")),
        plain=Inner(3, 4, ("a", "b")),
        word="fb",
        kind="high",
        text="T",
        chat=False,
    )


def test_without_options_the_defaults_hold_but_those_a_command_changes() -> None:
    assert made("x") == (0, Outer(name="x", inner=Inner(size=5)))


def test_a_value_out_of_bounds_is_refused_on_the_command_line_and_in_python() -> None:
    assert made("x", "--width", "0") == (2,)
    assert made("x", "--as", "middle") == (2,)
    assert made() == (2,)
    with pytest.raises(InputError, match="size is 0; it must be at least 1"):
        Inner(size=0)
    unknown: Any = "middle"
    with pytest.raises(InputError, match="kind is 'middle'; it is one of low, high"):
        Outer(name="x", kind=unknown)


def test_lists_are_checked_as_tuples_are_and_numbers_of_numpy_as_others() -> None:
    listed: Any = ["low"]
    wrong: Any = ["low", "middle"]
    assert Passes(listed).kinds == listed
    with pytest.raises(InputError, match="kinds is 'middle'; it is one of low, high"):
        Passes(wrong)
    number: Any = np.int64(-3)
    with pytest.raises(InputError, match="size is -3; it must be at least 1"):
        Inner(number)


def test_a_part_lacks_and_makes_what_it_says() -> None:
    part = Nested(without=("seed",), make=lambda **values: sorted(values))
    assert build(Inner, {"size": 2, "mode": None}, part) == ["size"]


@pytest.mark.parametrize("kind", [ModelChoice, PairsChoice, TaskChoice, DocumentsChoice])
def test_options_left_out_give_the_defaults(kind: type) -> None:
    given = dict.fromkeys(each.name for each in options_in(kind))
    assert build(kind, given) == kind()
