"""The table of evidence: its rows are those of the trial, its laws hold for every command."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from frozen_numbers import FILES, SCORES
from headscope.errors import InputError
from headscope.estimates import Estimate
from headscope.evidence.blocks import forest, parts_table, table_of_tests
from headscope.evidence.controls import CONTROLS, Draws, control_named, drawn, sets_of
from headscope.evidence.controls.equal_norm import output_norms
from headscope.evidence.headline import (
    NOT_SHOWN,
    OPEN,
    SHOWN,
    UNTESTED,
    Case,
    effect,
    few_sets,
    headline,
    least_draws,
    verdict_of,
)
from headscope.evidence.rows import SHARE, Basis, Condition, Evidence, Statistic
from headscope.evidence.table import evidence
from headscope.heads import Geometry, HeadSet
from headscope.measure.statistics import counted, overlap
from headscope.runs import decode, encode
from headscope.shown.blocks import AS_MUCH
from lm_helpers import wrapped

#: The frozen runs that compare conditions; others compare sets of heads alone.
COMPARED = [file for file in FILES if json.loads(file.read_text("utf-8"))["levels"]]
TOP = Condition("selected", k=2, gate=0.0, heads=("0.0", "1.1"))


def rows_of(values: Any, share: bool = False, **more: Any) -> Evidence:
    """The table of means over examples: the original, selected heads, and draws of each control.

    `values` are numbers of examples by part, condition and example.
    """
    some = next(iter(values.values()))
    draws = [
        replace(TOP, kind=control, draw=number, heads=(f"{at}.0", f"{number}.2"))
        for at, control in enumerate(("random", "same layers"))
        for number in range((len(some) - 2) // 2)
    ]
    statistic = Statistic("score", "higher", SHARE if share else "")
    parts = {part: {"score": list(counted(own))} for part, own in values.items()}
    return evidence([Condition(), TOP, *draws], parts, {"score": statistic}, **more)


@pytest.mark.parametrize("file", COMPARED, ids=lambda file: file.stem)
def test_rows_are_those_that_every_command_had(file: Path) -> None:
    """From the same numbers of examples the same levels, changes and tests, to 1e-9.

    Shares of single examples have Wilson's interval now, and tests are those of one condition
    against the draws of a control.
    """
    held = json.loads(file.read_text("utf-8"))
    conditions = [_condition(row) for row in held["conditions"]]
    if len({each.id for each in conditions}) < len(conditions):  # of single heads
        conditions = [replace(each, of=str(at)) for at, each in enumerate(conditions)]
    statistics = {
        name: Statistic(name, of["better"] or "higher", score=SCORES[of["score"]].score)
        for name, of in held["statistics"].items()
    }
    scoring = {name: SCORES[of["score"]] for name, of in held["statistics"].items()}
    counted_of = {
        part: {
            name: [None if row is None else scoring[name].statistics(row) for row in rows]
            for name, rows in of.items() if name in statistics
        }
        for part, of in held["parts"].items()
    }  # fmt: skip
    given = {
        part: {name.removesuffix(" given"): [np.nan if v is None else v for v in rows]
               for name, rows in of.items() if name.endswith(" given")}
        for part, of in held["parts"].items()
    }  # fmt: skip
    with np.errstate(invalid="ignore", over="ignore"):
        table = evidence(conditions, counted_of, statistics, held["seed"],
                         by_size=held["by_size"], given=given,
                         sets=_sets(held))  # fmt: skip
    compared = 0
    for row in held["levels"]:
        level = table.level(row["statistic"], conditions[row["condition"]], row["part"])
        if level is None:  # the mean over the parts that have it is a view of its command
            assert row.get("value") is None or row["part"] == ""
            continue
        assert level.value == pytest.approx(row.get("value", level.value), rel=1e-9, abs=1e-12)
        wilson = bool(row.get("interval") == "wilson")
        if wilson or ("interval" not in row and level.statistic not in _shares(held)):
            _same(level, {name: row[name] for name in ("low", "high") if name in row})
        if level.change is not None and "change" in row:
            _same(level.change, row["change"])
        compared += 1
    assert compared > 0
    for row in held["tests"]:
        if not isinstance(row["condition"], int) or row["control"] not in CONTROLS:
            continue
        condition = conditions[row["condition"]]
        test = table.against(row["statistic"], condition, row["part"]).get(row["control"])
        if test is None or test.side != row["side"]:
            continue  # a claim of the other side
        _same(test.difference, row["difference"])
        for name in row.keys() & {"p_draws", "least_p", "draws"}:
            assert getattr(test, name) == pytest.approx(row[name], rel=1e-9), name


def _condition(row: Any) -> Condition:
    role = "" if row.get("role", "chosen") == "chosen" else row["role"]
    how = row["k"], row["gate"], row["replacement"], row["draw"]
    return Condition(row["kind"], row["of"] + role, *how, _heads(row["heads"]))


def _heads(heads: Any) -> tuple[str, ...]:
    """Those of a condition; none where every part has others."""
    return () if isinstance(heads, dict) else tuple(heads)


def _sets(held: Any) -> dict[str, list[frozenset[str] | None]] | None:
    """The heads of every condition by part, where parts differ in them."""
    heads = [row["heads"] for row in held["conditions"]]
    if not any(isinstance(own, dict) for own in heads):
        return None
    by_part = {
        part: [own.get(part) if isinstance(own, dict) else own for own in heads]
        for part in held["parts"]
    }
    return {
        part: [None if own is None else frozenset(own) for own in several]
        for part, several in by_part.items()
    }


def _same(found: Estimate, stored: dict[str, float | None]) -> None:
    if "low" in stored and stored["low"] == stored["high"]:
        # What never varies had the interval of its resamples, which has no width.
        stored = {name: value for name, value in stored.items() if name == "value"}
    own = [getattr(found, name) for name in stored]
    assert _known(*own) == pytest.approx(_known(*stored.values()), rel=1e-9, abs=1e-12)


def _known(*numbers: float | None) -> list[float]:
    """Numbers that may be null, in place of which stands one that no comparison has."""
    return [-1e300 if n is None or not np.isfinite(n) else n for n in numbers]


def _shares(held: Any) -> set[str]:
    """Statistics whose examples are all 0 or 1."""
    found = set(held["statistics"])
    for of in held["parts"].values():
        for name, rows in of.items():
            flat = [v for row in rows if row is not None for v in np.ravel(row).tolist()]
            if name in found and not set(flat) <= {0, 1, None}:
                found.discard(name)
    return found


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_sets_of_heads_overlap_as_they_did(file: Path) -> None:
    for row in json.loads(file.read_text("utf-8"))["overlaps"]:
        now = vars(overlap(row["a"], row["b"], row["total"]))
        was = {name: value for name, value in row.items() if name in now}
        assert len(was) > 2 and now | was == pytest.approx(now, rel=1e-9)


def test_the_table_comes_back_from_json() -> None:
    generator = np.random.default_rng(0)
    table = rows_of({part: generator.random((6, 9)) for part in ("de", "en")})
    again = decode(Evidence, json.loads(json.dumps(encode(table), allow_nan=False)))
    assert again.levels == table.levels and again.tests == table.tests
    assert again.conditions == table.conditions and len({c.id for c in table.conditions}) == 6
    assert again.statistics["score"] == table.statistics["score"]


def test_the_mean_over_parts_counts_each_alike_and_stands_first() -> None:
    table = rows_of({"a": np.zeros((6, 4)), "b": np.ones((6, 40))})
    assert table.parts == ("", "a", "b") and table.single == ("a", "b")
    row = table.level("score", TOP)
    assert row is not None and (row.value, row.examples) == (0.5, 44)
    assert rows_of({"a": np.zeros((6, 4))}).parts == ("a",)


def test_what_is_not_measured_has_no_row_and_no_test() -> None:
    numbers = {"a": [*counted(np.random.default_rng(1).random((4, 8))), None, None]}
    draws = [replace(TOP, kind="random", draw=n, heads=(f"1.{n}",)) for n in range(4)]
    table = evidence(
        [Condition(), TOP, *draws], {"a": {"score": numbers["a"]}}, {"score": Statistic("s")}
    )
    assert [table.level("score", each) is None for each in draws] == [False, False, True, True]
    assert table.against("score", TOP)["random"].draws == 2


def test_sets_are_counted_of_controls_that_are_drawn_alone() -> None:
    """No number of sets stands beside what was given, such as the instructed model."""
    given = Condition("instructed")
    draws = [replace(TOP, kind="random", draw=n, heads=(f"1.{n}",)) for n in range(4)]
    numbers = np.random.default_rng(1).random((7, 8))
    parts = {name: {"score": list(counted(numbers))} for name in ("a", "b")}
    table = evidence([Condition(), TOP, given, *draws], parts, {"score": Statistic("s")})
    columns = parts_table(table, "score", TOP, "").columns
    assert f"{AS_MUCH}, random" in columns and f"{AS_MUCH}, instructed" not in columns
    assert "\u2212 instructed" in columns
    tests = table_of_tests(table, ["score"])
    at = tests.columns.index(AS_MUCH)
    assert [row.cells[at].value is None for row in tests.rows] == [
        control == "instructed" for control in table.against("score", TOP)
    ]
    drawn_gaps = forest(table, [("a", "score", TOP, None)], "")
    assert drawn_gaps is not None
    for gap in drawn_gaps.rows[0][1]:
        assert bool(gap.as_far) == bool(gap.draws) == (gap.control != "instructed")


def answer(table: Evidence) -> str:
    return verdict_of(table, Case("score", TOP))


@pytest.mark.parametrize(
    ("selected", "draws", "words"),
    [
        (-1.0, 19, f"{SHOWN}, also against those of the same layers (0 of 19 random sets do"),
        (0.0, 19, NOT_SHOWN),
        (1.0, 19, NOT_SHOWN),
        (-1.0, 2, OPEN),
    ],
)
def test_the_verdict_is_that_of_interval_and_draws(selected: float, draws: int, words: str) -> None:
    generator = np.random.default_rng(2)
    base = generator.random(30)
    shifted = base + selected + 0.01 * generator.random(30)
    others = base + 0.05 * generator.normal(size=(2 * draws, 30))
    assert answer(rows_of({"a": np.array([base, shifted, *others])})).startswith(words)


def test_a_verdict_is_given_at_the_level_that_is_asked_for() -> None:
    """Two draws allow p = 1/3, which decides at a half and leaves a twentieth open."""
    base = np.random.default_rng(3).normal(10, 1, 40)
    others = [base - 0.1 + 0.01 * at for at in range(4)]
    table = rows_of({"a": np.array([base, base - 5, *others])})
    assert answer(table).startswith(OPEN)
    assert answer(replace(table, alpha=0.5)).startswith(SHOWN)


@given(st.floats(1e-4, 0.99))
def test_the_fewest_draws_that_decide_allow_the_level_and_one_less_does_not(alpha: float) -> None:
    few = least_draws(alpha)
    assert 1 / (1 + few) <= alpha * (1 + 1e-6)
    assert few == 0 or 1 / few > alpha * (1 - 1e-6)
    assert (least_draws(0.05), least_draws(0.01), least_draws(0.5)) == (19, 99, 1)


def test_an_effect_of_depth_is_said_to_be_one() -> None:
    generator = np.random.default_rng(3)
    base = generator.random(30)
    low = base - 1 + 0.05 * generator.normal(size=(20, 30))
    high = base + 0.05 * generator.normal(size=(19, 30))
    words = answer(rows_of({"a": np.array([base, low[0], *high, *low[1:]])}))
    kind = "against those of the same layers"
    assert words.startswith(f"{SHOWN}; {NOT_SHOWN} {kind} (0 of 19 ")
    # Whether the interval or the number of sets is the reason is said of every control.
    low[1:] = base + np.array([[5.0] * 15 + [-5.0] * 15]) - 0.9
    words = answer(rows_of({"a": np.array([base, low[0], *high, *low[1:]])}))
    reason = f"({kind} the interval includes zero; 0 of 19 random sets do as much)"
    assert words == f"{SHOWN}; {NOT_SHOWN} {kind} {reason}"


def test_the_verdict_claims_no_more_than_its_controls() -> None:
    generator = np.random.default_rng(4)
    base = generator.random(30)
    others = base + 0.05 * generator.normal(size=(19, 30))
    numbers = {"a": {"score": list(counted(np.array([base, base - 1, *others])))}}

    def words(kind: str) -> str:
        draws = [replace(TOP, kind=kind, draw=n, heads=(f"1.{n}",)) for n in range(19)]
        table = evidence([Condition(), TOP, *draws], numbers, {"score": Statistic("s")})
        return headline(table, [Case("score", TOP)], "text")

    counts = "(0 of 19 random sets do as much)"
    alone = f"{SHOWN} for heads of any layer alone"
    assert words("random").endswith(f"without random heads: {alone} {counts}")
    for name, kind in {"same layers": "of the same layers",
                       "equal norm": "of equal output norm"}.items():  # fmt: skip
        assert words(name).endswith(f"without random heads {kind}: {SHOWN} {counts}")
    assert f": {UNTESTED} (" in words("outside")


def test_statistics_under_fewer_draws_are_no_lack_of_sets() -> None:
    draws = [replace(TOP, kind="random", draw=n, heads=(f"1.{n}",)) for n in range(9)]
    values = [*counted(np.random.default_rng(1).random((11, 8)))]
    names = {"loss": Statistic("loss", "lower"), "score": Statistic("score")}
    parts = {"a": {"loss": values, "score": [*values[:5], *[None] * 6]}}
    table = evidence([Condition(), TOP, *draws], parts, names)
    assert not few_sets(table, 9) and len(few_sets(table, 10)) == 1


def test_a_sentence_adds_up_where_a_part_lacks_the_condition() -> None:
    values = counted(np.array([[1.0] * 8, [3.0] * 8])), counted(np.array([[9.0] * 8]))
    parts = {"a": {"s": [*values[0]]}, "b": {"s": [*values[1], None]}}
    table = evidence([Condition(), TOP], parts, {"s": Statistic("s", digits=0)})
    assert effect(table, Case("s", TOP)) == "Without 2 heads, s rises by 2"


def test_controls_are_known_by_their_names() -> None:
    assert control_named("Same-Layers") == "same layers"
    with pytest.raises(InputError, match="did you mean outside"):
        control_named("outsid")
    geometry = Geometry.uniform(3, 6)
    heads = TOP.in_model(geometry)
    named = ("random", "same layers", "outside")
    conditions = [*drawn(TOP, heads, Draws(5, named))]
    assert [each.draw for each in conditions] == [*range(5)] * len(named)
    for each in conditions:
        own = each.in_model(geometry)
        assert len(own) == 2 and own != heads and each.controls(TOP)
        layers = [head.layer for head in own]
        assert each.kind != "same layers" or sorted(layers) == [0, 1]
        assert each.kind != "outside" or not own & heads
    few = HeadSet.parse("0.0", Geometry((2, 1)))
    assert len([*drawn(replace(TOP, k=1, heads=("0.0",)), few, Draws(99, ("random",)))]) == 2


def test_equal_norm_draws_heads_with_outputs_as_large() -> None:
    lm = wrapped("llama", layers=4)
    rows = [[3, 4, 5, 6], [7, 8]]
    wanted = np.zeros(lm.geometry.shape)
    for layer, block in enumerate(lm.model.model.layers):
        width = block.self_attn.head_dim
        weight, inputs = block.self_attn.o_proj.weight, list[torch.Tensor]()
        hook = block.self_attn.o_proj.register_forward_pre_hook(
            lambda _, args, inputs=inputs: inputs.append(args[0])
        )
        for row in rows:
            lm.model(torch.tensor([row]))
        hook.remove()
        for head in range(lm.geometry.counts[layer]):
            part = slice(head * width, (head + 1) * width)
            outputs = (x[..., part] @ weight[:, part].T for x in inputs)
            wanted[layer, head] = sum(float(y.detach().norm(dim=-1).sum()) for y in outputs)
    assert output_norms(lm, rows) == pytest.approx(wanted, rel=1e-5)
    heads = HeadSet(lm.geometry, tuple(lm.geometry.heads())[:3])
    texts = ("a b c dog", "cat")
    norms = output_norms(lm, [lm.encode(text) for text in texts])
    ranks = {head: at // 8 for at, head in enumerate(
        sorted(lm.geometry.heads(), key=lambda head: norms[head.layer, head.head]))}  # fmt: skip
    basis = Basis.on(lm, [texts[:1], texts[1:]])
    sets = sets_of("equal norm", heads, 9, 0, basis)
    assert len({frozenset(own) for own in sets} - {frozenset(heads)}) == 9
    for own in sets:
        assert sorted(ranks[head] for head in own) == sorted(ranks[head] for head in heads)
    with pytest.raises(InputError, match="needs a model and texts"):
        sets_of("equal norm", heads, 9)
    gone = HeadSet(lm.geometry, tuple(lm.geometry.heads())[5:9])
    for name in (name for name, control in CONTROLS.items() if control.draw):
        left = sets_of(name, heads, 9, 0, replace(basis, gone=gone))
        assert left and not any(own & gone for own in left)


def test_texts_of_several_parts_come_in_turn_and_are_read_once() -> None:
    lm, seen = wrapped("llama"), list[tuple[str, ...]]()
    basis = Basis.on(lm, [["a1", "a2", "a3"], ["b1"], ["c1", "c2"]])
    assert basis.texts == ("a1", "b1", "c1", "a2", "c2", "a3")

    def count(model: object, texts: tuple[str, ...]) -> int:
        assert model is lm
        seen.append(texts)
        return len(texts)

    assert basis.measured(count) == replace(basis, avoid=HeadSet(lm.geometry, ())).measured(count)
    assert seen == [basis.texts]
    assert replace(basis, texts=("d",)).measured(count) == 1
