"""Draws in rounds: as many as decide, with the numbers of a fixed number, and after a kill."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import process_helpers
from headscope.errors import InputError
from headscope.evidence.blocks import table_of_tests
from headscope.evidence.headline import OPEN
from headscope.evidence.rows import SELECTED, Condition, Evidence, Statistic, Tested
from headscope.evidence.sequence import ROUNDS, decided, in_its_round
from headscope.evidence.table import evidence, evidence_of_parts
from headscope.heads.store import with_details
from headscope.measure.sequence import MOST_DRAWS, Rule, bet_on, draws_to_win, until_first
from headscope.measure.statistics import counted
from headscope.runs import encode
from headscope.studies.pairs import PairsChoice
from headscope.studies.report import write_report
from headscope.studies.verify.measure import MeasureAgain, measure_again
from headscope.studies.verify.removal import VerifyRemoval, comparison

STATISTICS = {"lead": Statistic("lead"), "other": Statistic("other")}
HARM = st.lists(st.integers(0, 9), min_size=1, max_size=MOST_DRAWS)


def conditions(sets: dict[str, int]) -> list[Condition]:
    """One selected head, and draws of controls by name, each of another head."""
    selected = Condition(SELECTED, "", 1, 0.0, heads=("0.0",))
    drawn = [
        Condition(kind, "", 1, 0.0, draw=at, heads=(f"{number}.{at}",))
        for number, (kind, most) in enumerate(sets.items(), 1)
        for at in range(most)
    ]
    return [Condition(), selected, *map(in_its_round, drawn)]


def sequence(
    harm: dict[str, list[int]], own: int, level: float = 0.05, rule: Rule | None = "bet"
) -> tuple[Evidence, list[int]]:
    """The table of draws with these harms beside a selected head, and how many conditions each
    round measured."""
    planned = conditions({kind: len(of_kind) for kind, of_kind in harm.items()})

    def score(condition: Condition) -> float:
        if condition.kind in harm and condition.draw is not None:
            return -float(harm[condition.kind][condition.draw])
        return -float(own) if condition.kind == SELECTED else 0.0

    def measure(wanted: Callable[[Condition], bool]) -> tuple[Evidence, None]:
        asked = [each for each in planned if wanted(each)]
        measured.append(len(asked))
        values = {"lead": [counted([score(each)] * 2) for each in asked],
                  "other": [counted([(7 * score(each)) % 5] * 2) for each in asked]}  # fmt: skip
        return evidence(asked, {"part": values}, STATISTICS), None

    measured: list[int] = []
    found, _ = decided({"": planned}, measure, lambda table: ["lead"], level, rule)
    return found, measured


def ended_with_random(found: Evidence, kind: str, test: Tested) -> bool:
    """Whether draws of the same layers ended undecided since random ones did as much before."""
    random = found.against("lead", found.main)["random"]
    lost = random.ended in ("given up", "limit")
    most = next((end for end in ROUNDS if end >= random.draws), random.draws)
    return kind == "same layers" and lost and test.draws <= most


def test_heads_that_do_no_more_than_random_ones_end_all_draws() -> None:
    found, measured = sequence({"random": [5] * 199, "same layers": [0] * 199}, 3)
    tests = found.against("lead", found.main)
    assert [(test.draws, test.ended) for test in tests.values()] == [(4, "given up"), (4, "open")]
    assert measured == [10]
    found, _ = sequence({"random": [0] * 199, "same layers": [5] * 199}, 3)
    tests = found.against("lead", found.main)
    assert [(test.draws, test.ended) for test in tests.values()] == [(30, "shown"), (4, "given up")]


@given(HARM, HARM, st.integers(0, 10), st.sampled_from([0.05, 0.01]))
def test_each_control_ends_by_its_own_bet(
    random: list[int], same: list[int], own: int, level: float
) -> None:
    harm = {"random": random, "same layers": same}
    found, measured = sequence(harm, own, level)
    assert measured == sorted(set(measured)) and len(measured) <= len(ROUNDS)
    for kind, draws in harm.items():
        test: Tested = found.against("lead", found.main)[kind]
        as_far = [draw >= own for draw in draws]
        assert test.at_least_as_harmful == sum(as_far[: test.draws])
        if test.ended == "open":
            assert ended_with_random(found, kind, test)
            continue
        if len(draws) < draws_to_win(level):  # too few sets for a bet: all, by their rank
            assert test.draws == len(draws)
            assert test.p_draws == (1 + sum(as_far)) / (1 + len(draws))
            assert test.ended == ("shown" if test.p_draws <= level else "limit")
            continue
        bet = bet_on(as_far, level, len(draws))
        assert (test.p_draws, test.ended) == (bet.p, bet.ended)
        ends = min(end for end in (*ROUNDS, len(draws)) if end >= bet.draws)
        assert test.draws == min(ends, len(draws))


def test_another_statistic_is_read_where_the_first_ended() -> None:
    found, _ = sequence({"random": [0] * 199}, 5)
    assert "when a bet" in table_of_tests(found, ["lead"]).note
    other = found.against("other", found.main)["random"]
    assert other.draws == 30 and other.p_draws is not None
    assert other.p_draws >= other.least_p > 0.03


FAMILY = st.lists(st.integers(0, 9), min_size=1, max_size=270)


@given(FAMILY, FAMILY, st.integers(0, 11))
def test_each_control_ends_at_its_first_draw_that_does_as_much(
    random: list[int], same: list[int], own: int
) -> None:
    """p is that of the draws in order, whatever round is measured last; a control that has not
    had such a draw is drawn whole."""
    harm = {"random": random, "same layers": same}
    found, measured = sequence(harm, own, rule="first")
    assert measured == sorted(set(measured))
    for kind, draws in harm.items():
        test: Tested = found.against("lead", found.main)[kind]
        as_far = [draw >= own for draw in draws]
        if test.ended == "open":
            assert ended_with_random(found, kind, test)
            continue
        first = until_first(as_far, 0.05, len(draws))
        assert (test.p_draws, test.ended) == (first.p, first.ended)
        assert (test.at_most, test.least_p) == (len(draws), 1 / (1 + len(draws)))
        assert test.draws == min(end for end in (*ROUNDS, len(draws)) if end >= first.draws)
        assert test.at_least_as_harmful == sum(as_far[: test.draws])
        if not any(as_far):
            assert (test.draws, test.p_draws) == (len(draws), 1 / (1 + len(draws)))
    told = "at the first that does as much" in table_of_tests(found, ["lead"]).note
    assert told == (max(map(len, harm.values())) >= draws_to_win(0.05))


@given(FAMILY, st.integers(0, 9))
def test_a_fixed_number_of_draws_has_the_rank_among_all(random: list[int], own: int) -> None:
    found, measured = sequence({"random": random}, own, rule=None)
    test = found.against("lead", found.main)["random"]
    as_far = sum(draw >= own for draw in random)
    assert len(measured) == 1 and test.draws == len(random) and test.ended is None
    assert test.p_draws == (1 + as_far) / (1 + len(random))


def test_heads_of_one_part_lead_there_alone() -> None:
    """Heads of a language do as little as random ones to the text of another, which is read under
    their draws, too, and does not end them."""
    heads = {"de": "0.0", "en": "0.1"}
    planned = [Condition()]
    for number, (of, head) in enumerate(heads.items(), 1):
        planned.append(Condition(SELECTED, of, 1, 0.0, heads=(head,)))
        planned += [
            in_its_round(Condition("random", of, 1, 0.0, draw=at, heads=(f"{number}.{at}",)))
            for at in range(60)
        ]

    def score(condition: Condition, part: str) -> float:
        # In de none of its draws does as much, in en the heads of en are like any others.
        special = condition.kind == SELECTED and condition.of == part == "de"
        cross = condition.kind == SELECTED and condition.of != part
        return -9.0 if special or cross else -1.0

    def measure(wanted: Callable[[Condition], bool]) -> tuple[Evidence, None]:
        asked = [each for each in planned if wanted(each)]
        values = {part: {"lead": [counted([score(each, part)] * 2) for each in asked]}
                  for part in heads}  # fmt: skip
        return evidence(asked, values, STATISTICS, apart=["lead"]), None

    found, _ = decided({"": planned}, measure, lambda table: ["lead"], 0.05, "first")
    de, en = found.selected
    assert found.against("lead", de, "de")["random"].p_draws == 1 / 61
    assert found.against("lead", en, "en")["random"].p_draws == 1.0
    assert found.against("lead", en, "en")["random"].draws == ROUNDS[0]
    # Read beside, where the own text has ended: valid, and not asked for more.
    assert found.against("lead", en, "de")["random"].ended == "open"
    assert found.against("lead", en, "de")["random"].p_draws == 1 / (1 + ROUNDS[0])


@pytest.mark.parametrize("whose", [(), ("own",)])
def test_heads_that_no_claim_is_about_end_no_draws(whose: tuple[str, ...]) -> None:
    """Of both no draw does as much; those of the claim alone are drawn whole."""
    planned = [Condition()]
    for number, of in enumerate(("own", "others"), 1):
        planned.append(Condition(SELECTED, of, 1, 0.0, heads=(f"0.{number}",)))
        planned += [
            in_its_round(Condition("random", of, 1, 0.0, draw=at, heads=(f"{number}.{at}",)))
            for at in range(40)
        ]

    def measure(wanted: Callable[[Condition], bool]) -> tuple[Evidence, None]:
        asked = [each for each in planned if wanted(each)]
        values = [counted([-5.0 * (each.kind == SELECTED)] * 2) for each in asked]
        return evidence(asked, {"part": {"lead": values}}, STATISTICS), None

    found, _ = decided({"": planned}, measure, lambda table: ["lead"], 0.05, "first", whose=whose)
    own, others = (found.against("lead", each)["random"] for each in found.selected)
    assert (own.draws, own.p_draws, own.ended) == (40, 1 / 41, "shown")
    drawn = ROUNDS[0] if whose else 40
    assert (others.draws, others.p_draws) == (drawn, 1 / (1 + drawn))


CONFIG: dict[str, Any] = {"heads": "5.1,4.3", "measure": ("loss",), "batch_tokens": 600}
PAIRS = PairsChoice(pair=("en-de",), limit=6)


@pytest.fixture(scope="module")
def in_sequence(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("sequence") / "run"
    comparison.run(VerifyRemoval(pairs=PAIRS, **CONFIG), out)
    return out


def result_of(run: Path) -> dict[str, Any]:
    return with_details(json.loads((run / "result.json").read_text("utf-8")))


def test_a_fixed_number_of_draws_has_the_same_numbers(in_sequence: Path, tmp_path: Path) -> None:
    """The naive twin: all draws at once, and the bet on the first of them."""
    most = max(draw["draw"] for draw in result_of(in_sequence)["conditions"]
               if draw["draw"] is not None) + 1  # fmt: skip
    fixed = VerifyRemoval(pairs=PAIRS, draws=most, loss_draws=most, **CONFIG)
    comparison.run(fixed, tmp_path / "fixed")
    now, then = result_of(in_sequence), result_of(tmp_path / "fixed")

    def levels(result: dict[str, Any]) -> dict[tuple[str, str, str], float]:
        return {
            (row["part"], row["condition"], row["statistic"]): row["value"]
            for row in result["levels"]
        }

    own, all_draws = levels(now), levels(then)
    assert own == pytest.approx({key: all_draws[key] for key in own}, abs=1e-5)
    for test in now["tests"]:
        names = [row["id"] for row in now["conditions"] if row["kind"] == test["control"]]
        drawn = [own[test["part"], name, test["statistic"]] for name in names]
        mine = own[test["part"], test["condition"], test["statistic"]]
        bet = bet_on(np.array(drawn) >= mine)
        assert (test["draws"], test["p_draws"]) == (len(drawn), bet.p)
    fixed_tests = {test["ended"] for test in then["tests"]}
    assert fixed_tests == {None}


@pytest.mark.parametrize("reports", [3, 40])
def test_a_killed_sequence_ends_with_the_same_draws(
    reports: int, in_sequence: Path, tmp_path: Path
) -> None:
    config = VerifyRemoval(pairs=PAIRS, **CONFIG)
    out = tmp_path / "killed"
    process_helpers.killed_at(
        reports, process_helpers.run_of, "verify removal", config, out, titles=("reading",)
    )
    assert not (out / "DONE.json").exists()
    if (out / "so-far.json").exists():
        page = write_report(out).read_text("utf-8")
        assert "So far: " in page and OPEN in page
    else:
        assert reports == 3
        with pytest.raises(InputError, match="not finished"):
            write_report(out)
    again = encode(comparison.run(config, out))
    whole = json.loads((in_sequence / "result.json").read_text("utf-8"))
    for name in ("run", "seconds"):
        whole[name] = again[name]
    assert json.loads(json.dumps(again)) == whole
    assert not (out / "so-far.json").exists()
    kept = "statistics.safetensors"
    assert (out / kept).read_bytes() == (in_sequence / kept).read_bytes()


def test_a_mean_over_parts_rests_on_draws_that_all_parts_have() -> None:
    """One part has 12 sets, another 199, and the mean of a set that one lacks is no mean."""
    sizes = {"few": 12, "many": 60}
    planned = {part: conditions({"random": most}) for part, most in sizes.items()}

    def measure(wanted: Callable[[Condition], bool]) -> tuple[Evidence, None]:
        asked = {part: [each for each in of_part if wanted(each)]
                 for part, of_part in planned.items()}  # fmt: skip
        numbers = {
            part: {"lead": [counted([-5.0 if each.kind == SELECTED else 0.0] * 2) for each in own]}
            for part, own in asked.items()
        }
        return evidence_of_parts(asked, numbers, STATISTICS), None

    found, _ = decided(planned, measure, lambda table: ["lead"], 0.05)
    whole, few, many = (found.against("lead", found.main, part)["random"]
                        for part in ("", "few", "many"))  # fmt: skip
    assert (whole.draws, whole.p_draws, whole.ended) == (12, 1 / 13, "limit")
    assert (few.draws, few.p_draws, few.ended) == (12, 1 / 13, "limit")
    assert many.at_most == 60 and many.p_draws == bet_on([False] * many.draws).p


def test_a_family_has_the_draws_of_a_fixed_number_up_to_the_first(tmp_path: Path) -> None:
    """The naive twin: all draws at once, of which p is that of the first that does as much."""
    known = {**CONFIG, "heads": "0.1,3.2", "draws": 24, "loss_draws": 24}
    ended = VerifyRemoval(pairs=PAIRS, claims=(), **known)
    comparison.run(ended, tmp_path / "ended")
    comparison.run(VerifyRemoval(pairs=PAIRS, **known), tmp_path / "fixed")
    now, then = result_of(tmp_path / "ended"), result_of(tmp_path / "fixed")
    assert now["signature"] != then["signature"]
    fixed = {(row["part"], row["condition"], row["statistic"]): row["value"]
             for row in then["levels"]}  # fmt: skip
    assert now["tests"]
    for test in now["tests"]:
        place = test["part"], test["condition"], test["statistic"]
        drawn = [fixed[test["part"], row["id"], test["statistic"]]
                 for row in then["conditions"] if row["kind"] == test["control"]]  # fmt: skip
        as_far = np.array(drawn) >= fixed[place]
        first = until_first(as_far[: test["draws"]], most=24)
        assert (test["p_draws"], test["ended"]) == (first.p, first.ended)
        if test["statistic"] == "nll":  # the verdict's, which ends the others
            assert first == until_first(as_far, most=24)
            assert test["draws"] == min(end for end in (*ROUNDS, 24) if end >= first.draws)


def test_a_gate_of_one_is_the_model_as_it_is(tmp_path: Path) -> None:
    """Draws at it are one condition with the original, in whatever round they come."""
    given = {**CONFIG, "heads": "5.1", "measure": ("text",), "gates": (0.0, 1.0),
             "max_new_tokens": 6}  # fmt: skip
    comparison.run(VerifyRemoval(pairs=PAIRS, **given), tmp_path / "auto")
    comparison.run(VerifyRemoval(pairs=PAIRS, draws=15, **given), tmp_path / "fixed")
    auto, fixed = (
        {
            (row["condition"], row["id"]): row["output"]
            for row in map(json.loads, (tmp_path / name / "outputs.jsonl").open())
        }
        for name in ("auto", "fixed")
    )
    assert len(auto.keys() & fixed.keys()) > 100
    assert {key: auto[key] for key in auto.keys() & fixed.keys()} == {
        key: fixed[key] for key in auto.keys() & fixed.keys()
    }


def test_measuring_again_keeps_the_bets(in_sequence: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(in_sequence, run)
    before = result_of(run)
    measure_again(MeasureAgain(run))
    after = result_of(run)
    assert after["tests"] == before["tests"] and after["verdict"] == before["verdict"]


def test_an_interrupted_sequence_names_its_report(tmp_path: Path) -> None:
    def interrupt(title: str, done: int, total: int) -> None:
        if title.startswith("draws until decided"):
            raise KeyboardInterrupt

    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt) as error:
        comparison.run(VerifyRemoval(pairs=PAIRS, **CONFIG), out, interrupt)
    assert f"headscope report {out}" in " ".join(error.value.__notes__)
    assert "So far: " in write_report(out).read_text("utf-8")
