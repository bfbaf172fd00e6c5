"""What Heads Up! as a recipe finds, from given-up results whose figures are worked out by hand."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from heads_up_helpers import (
    EXPERIMENTS,
    OWN,
    cell,
    conditions,
    grounds,
    llama_setting,
    made,
    pocket_setting,
    proof,
    put,
    put_samples,
    table,
    table_of,
    verdicts,
)
from headscope.errors import InputError
from headscope.evidence.rows import Condition, Evidence
from headscope.measure.statistics import holm
from headscope.papers.claims import claims_of, judged
from headscope.papers.heads_up import runs
from headscope.papers.heads_up.cells import Case
from headscope.papers.heads_up.masks import without_instruction
from headscope.papers.heads_up.paper import PAPER
from headscope.papers.heads_up.prompts import SWITCH, sign_test
from headscope.papers.paper import Setting
from headscope.papers.show import Answer
from headscope.papers.study_steps import shown_by
from headscope.runs.codec import decode
from headscope.shown.blocks import Bars, Findings, Section, Shown, Table


@pytest.fixture(autouse=True)
def _no_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Made-up results are no runs, so their studies show nothing of them."""
    monkeypatch.setattr(Setting, "shown", lambda setting, step: None)


@pytest.fixture
def pocket(tmp_path: Path) -> Setting:
    return pocket_setting(tmp_path)


@pytest.fixture
def llama(tmp_path: Path) -> Setting:
    return llama_setting(tmp_path)


def found_in(setting: Setting, name: str) -> Findings:
    return EXPERIMENTS[name].show(setting)


def test_nothing_is_found_where_nothing_was_run(pocket: Setting) -> None:
    for name, one in EXPERIMENTS.items():
        if name in ("table-7", "table-43", "table-9"):
            continue
        found = one.show(pocket)
        assert found.found == "" and found.sure == "", name
        shown = [cell for table in found.tables for line in table.rows for cell in line.cells]
        # Sizes of the model are known before anything is run.
        assert {cell.value for cell in shown if cell.value is not None} <= {96, 6}, name
        assert all(cell.why for cell in shown if cell.value is None), name
    assert PAPER.answer(pocket, {}) == Answer()


def test_blocks_of_a_study_are_taken_by_their_titles(
    pocket: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, bars = Table("a", (), ()), Bars("b", (), (), (), "y")
    shown = Shown("t", "w", ["f"], sections=[Section("s", [table, bars, Table("c", (), ())])])
    monkeypatch.setattr(Setting, "shown", lambda setting, step: shown)
    found = shown_by(pocket, "walk", "b", "a", "absent")
    assert (found.tables, found.figures, found.found) == ((table,), (bars,), "f")
    assert len(shown_by(pocket, "walk", "s").tables) == 2  # a section's


def test_table_1_by_hand(pocket: Setting) -> None:
    put(pocket, "mask-en-de", {"selected": 77})
    put(pocket, "proof-en-de", proof("en-de", conditions("nll", (2.0, 1.0, 1.5, 3.0))))
    put(pocket, "proof-en-es", proof("en-es", conditions("nll", (2.0, 1.0, 0.9, 3.0))))
    found = found_in(pocket, "table-1")
    main = table_of(found, "Masks of directions")
    assert [line.name for line in main.rows] == ["en-de", "en-es", "de-en", "de-es"]
    kept = [line.cells[0] for line in main.rows]
    assert [each.value for each in kept] == [77, None, None, None]
    # The paper's en-de and en-es stand beside, but of another model.
    assert [each.published for each in kept] == [862, 846, None, None]
    assert main.reference is not None
    assert main.reference.why.startswith("not comparable: other model; ")
    assert "our instructions" in main.reference.why
    masked = cell(main, "en-de", "NLL, mask")
    assert (masked.value, masked.low, masked.high, masked.published) == (1.5, 1.49, 1.51, 0.580)
    assert cell(main, "de-en", "NLL, mask").why == "not run"
    random = cell(main, "en-de", "NLL, random mask")
    assert random.value == pytest.approx(3.0) and random.low is None
    assert cell(main, "en-de", "NLL, mask of another model").why == "no other model"
    # All the way in one direction of two is not reached in every one.
    assert tuple(verdicts(found).values()) == (True, False)
    assert len(table_of(found, "NLL of every direction").rows) == 20


def test_table_2_by_hand(pocket: Setting) -> None:
    rows = conditions("accuracy", (0.1, 0.8, 0.65, 0.2), 0.05)
    put(pocket, "proof-plural-en", proof("plural-en", rows))
    found = found_in(pocket, "table-2")
    main = table_of(found, "Masks of word tasks")
    assert cell(main, "plural-en", "accuracy, mask").value == 0.65
    assert cell(main, "plural-en", "accuracy, random mask").value == pytest.approx(0.2)
    every = table_of(found, "accuracy of every word task")
    # The paper's singular-plural stands beside the bundled model's plurals.
    assert cell(every, "plural-en", "accuracy, mask").published == 0.97
    assert cell(every, "plural-de", "accuracy, original").published is None


def test_table_3_without_and_with_masks_behind_examples(pocket: Setting) -> None:
    plain = {"accuracy": [made(0.62, 0.32, reference=0.56)]}
    put(pocket, "shots-plural-en", proof("plural-en", plain))
    found = found_in(pocket, "table-3")
    (table,) = found.tables
    assert [line.cells[0].value for line in table.rows] == [0.62, 0.56, 0.32, None, None]
    assert verdicts(found) == {}
    both = replace(OWN, of="hybrid mask")
    own = {"accuracy": [made(0.62, 0.7, reference=0.56), made(0.62, 0.5, own=both)]}
    put(pocket, "shots-plural-en-masked", proof("plural-en", own, 34))
    found = found_in(pocket, "table-3")
    (table,) = found.tables
    assert cell(table, "mask, 5-shot", "plural-en").value == 0.7
    assert cell(table, "mask of hybrid, 5-shot", "plural-en").value == 0.5
    assert list(verdicts(found).values()) == [True]


def case(*values: float, measure: str = "nll", **tests: float) -> Case:
    """A task's case: as is, instructed, masked, random."""
    rows = conditions(measure, values, **tests)  # type: ignore[arg-type]
    return Case(decode(Evidence, table("turn", rows)), "turn")


def test_what_masks_did_by_hand() -> None:
    cases = [
        case(2.0, 1.0, 1.5, 3.0),
        case(2.0, 1.0, 0.9, 3.0),
        case(2.0, 1.0, 2.5, 2.0),
        case(2.0, 1.0, 1.9, 1.95),
    ]
    masked, random = (1.5 + 0.9 + 2.5 + 1.9) / 4, (3 + 3 + 2 + 1.95) / 4
    claim = without_instruction(cases, "nll", "it", "task")[0]
    assert claim.by.startswith("loss ") and "; 4 tasks of 100 examples; " in claim.by
    assert f"2.000 as is, {random:.3f} under" in claim.by and f"{masked:.3f} masked" in claim.by
    # A condition that one of the tasks lacks has no mean.
    few = Case(decode(Evidence, table("turn", {"nll": [made(2.0, 1.5, 3.0)]})), "turn")
    assert "instructed" not in without_instruction([cases[0], few], "nll", "it", "task")[0].by


def judged_of(cases: list[Case]) -> dict[str, bool | None]:
    """Of the claims of masks without an instruction: out or reached, and whether each holds."""
    claims = judged(without_instruction(cases, "nll", "it", "task"))
    return {"out" if "out" in one.name else "reached": one.holds for one in claims}


def test_masks_bring_a_task_out_only_by_all_tests() -> None:
    good = case(2.0, 1.0, 0.5, 3.0)
    assert judged_of([good, good]) == {"out": True, "reached": True}
    # Every test of every task has to hold, of each control.
    assert judged_of([good, case(2.0, 1.0, 0.5, 3.0, p_draws=1 / 6)])["out"] is None
    free = Case(decode(Evidence, table("turn", conditions("nll", (2.0, 1.0, 0.5, 3.0)),
                                       ("shuffled", "outside"))), "turn")  # fmt: skip
    assert judged_of([good, free])["out"] is None
    for numbers, out, reached in (
        ((2.0, 1.0, 1.5, 3.0), True, False),  # worse than the instruction
        ((2.0, 1.0, 1.05, 3.0), True, None),  # not told apart from it
        ((2.0, 1.0, 1.95, 3.0), None, False),  # nor from the model as it is
        ((2.0, 1.0, 1.5, 1.2), False, False),  # worse than random masks
        ((2.0, 3.0, 2.5, 4.0), False, True),  # worse than the model as it is
    ):
        assert judged_of([good, case(*numbers)]) == {"out": out, "reached": reached}, numbers


def test_the_tests_of_several_tasks_are_those_of_the_weakest() -> None:
    """Naive twin: every task judged by itself, and the worst of them taken."""
    random = np.random.default_rng(0)
    for _ in range(50):
        p_draws = [float(random.choice([0.05, 0.1])) for _ in range(3)]
        cases = [case(2.0, 1.0, *random.uniform((1.7, 1.6), 2.3), p_draws=p) for p in p_draws]
        alone = [judged_of([one])["out"] for one in cases]
        worst = False if False in alone else None if None in alone else True
        assert judged_of(cases)["out"] is worst


def pair(a: str, b: str, jaccard: float, expected: float, p_value: float) -> dict[str, Any]:
    both = {"jaccard": jaccard, "expected": expected, "expected_exact": expected}
    sizes = {"size_a": 850, "size_b": 810, "recall": 0.9}
    return {"a": a, "b": b, "task": a, "p_value": p_value, **both, **sizes}


def test_table_5_with_the_base_model(llama: Setting) -> None:
    pairs = [pair("en-de", "en-de", 0.80, 0.69, 0.0), pair("antonym", "antonym", 0.5, 0.6, 1.0)]
    names = ("jaccard", "expected", "expected_exact")
    mean = {name: {"mean": 0.65, "low": 0.6, "high": 0.7} for name in names}
    base = {"pairs": pairs, "mean": mean, "above_chance": {"mean": 0.01, "low": -0.1, "high": 0.1}}
    put(llama, "masks-of-Llama-3.1-8B", {"base": base})
    found = found_in(llama, "table-5")
    (table,) = found.tables
    assert table.reference is not None and "XNLI" in table.reference.why
    jaccard = cell(table, "en-de", "Jaccard")
    assert (jaccard.value, jaccard.published) == (0.80, 0.802)
    assert cell(table, "sentiment", "Jaccard").why == "not run"
    assert "in 1 of 2 tasks" in found.found and "0.010 (-0.100 to 0.100" in found.found
    assert list(verdicts(found).values()) == [None]


WAYS = ("en-de", "en-es", "de-en", "de-es")


def families(unused: int, p_draws: float = 0.01) -> dict[str, Any]:
    """All: 60 heads whose loss is 3 against 2 at random; unused: 0.9 after 1 instructed."""

    def family(name: str, removed: int) -> dict[str, Any]:
        sizes = {"removed": removed, "kept": 96 - removed, "tested": 0 < removed < 96}
        return {"name": name, "tasks": WAYS, **sizes}

    every = Condition("selected", "all", 60, 0.0)
    rows = [made(1.0, 3.0, 2.0, own=every, p_draws=p_draws, side="higher")]
    if unused:
        own = replace(every, of="unused", k=unused)
        rows.append(made(1.0, 0.9, 1.0, half=0.05, own=own, p_draws=p_draws))
    tables = [table(task, {"nll": rows}, ("random", "same layers")) for task in WAYS]
    joined = {name: [row for own in tables for row in own[name]] for name in ("levels", "tests")}
    details = {
        "families": [family("all", 60), family("unused", unused)],
        "leakage": {"overlap": 0 if unused else 7, "of": 400},
        "draws": 19,
    }
    return {**tables[0], **joined, "details": details}


def test_table_6_by_hand(pocket: Setting) -> None:
    put(pocket, "families", families(4))
    found = found_in(pocket, "table-6")
    first, _, second = found.tables
    assert cell(first, "without all", "heads left").value == 36
    own = cell(first, "without all", "en-de")
    assert (own.value, own.published) == (3.0, 4.406)
    assert cell(first, "without random all", "en-de").value == pytest.approx(2.0)
    assert cell(first, "without random unused", "en-de").value == pytest.approx(1.0)
    assert {each.why for line in second.rows for each in line.cells} == {"not run"}
    assert "1.000 with all heads, 3.000 without these 60, 2.000 without random" in found.found
    assert "1.000 with all heads, 0.900 without these 4, 1.000 without random" in found.found
    assert list(verdicts(found).values()) == [True, True]
    assert "were not run" in found.sure and "all has more than half" in found.sure
    put(pocket, "families", families(4, p_draws=0.25))  # random heads harm as much
    assert list(verdicts(found_in(pocket, "table-6")).values()) == [None, None]


def test_table_6_without_unused_heads_prefers_the_negative_start(pocket: Setting) -> None:
    put(pocket, "families-negative", families(0))
    found = found_in(pocket, "table-6")
    assert "were not run" not in found.sure
    assert "Of 400 tested sentences masks were trained on 7" in found.sure
    first, _, second = found.tables
    assert cell(first, "without all", "en-de").why == "not run"
    assert cell(second, "without all", "en-de").value == 3.0
    assert cell(second, "without unused", "en-de").why == "no heads"


@pytest.mark.parametrize(
    ("later", "p_draws", "least_p", "holds"),
    [
        (0.2, None, 1.0, None),
        (0.2, 0.05, 0.05, True),
        (0.05, 0.05, 0.05, None),
    ],
)
def test_figure_4_is_judged_by_all_tests(
    pocket: Setting, later: float, p_draws: float | None, least_p: float, holds: bool | None
) -> None:
    random = None if p_draws is None else later - 0.3
    row = made(0.0, later, random, None, 0.1, p_draws or 1.0, least_p, "higher")
    details = {"task": "en-de", "samples": 100, "layers": 2, "pairs": []}
    put(pocket, "states", {**table("en-de", {"cosine": [row]}), "details": details})
    found = found_in(pocket, "figure-4")
    assert list(verdicts(found).values()) == [holds]
    assert f"{later:+.3f} ({later - 0.1:+.3f} to {later + 0.1:+.3f})" in grounds(found)
    if p_draws is not None:
        assert "+0.300 (+0.200 to +0.400) against random masks" in grounds(found)
        assert f"p {p_draws:.2g} over 99 random sets" in grounds(found)


def walk(firsts: list[int | None], share: list[float]) -> dict[str, Any]:
    """A walk over 3 heads; the mask keeps all but the first."""
    details = {
        "heads": ["5.6", "5.4", "1.3"],
        "sentences": 2,
        "mask": {"kept": 95, "removed": 1, "cut_step": 1},
        "target_first": {"first_steps": firsts, "share": share},
        "random_orders": [{"target_first": [0, 0.5, 0, 0]}],
    }
    return {"details": details}


def test_figure_2_by_hand(pocket: Setting) -> None:
    put(pocket, "walk", walk([2, 3], [0.0, 0.25, 0.5, 1.0]))
    found = found_in(pocket, "figure-2")
    (when,) = found.tables
    first = cell(when, SWITCH, "heads removed")
    assert (first.value, first.published) == (2.5, 162)
    assert cell(when, "exactly the mask's heads are left", "heads removed").value == 1
    assert "in 0% of 2 prompts with all heads, and in 100% when 3 of 3 are gone" in found.found
    assert "(1 gone) it is 25%" in found.found
    assert "in 1 random orders at most 50%" in found.found


def test_orders_are_judged_prompt_by_prompt(pocket: Setting) -> None:
    put(pocket, "walk", walk([1] * 7, [0.0, 1.0, 1.0, 1.0]))
    put(pocket, "walk-influential", walk([2] * 6 + [None], [0.0, 0.0, 0.8, 0.8]))
    found = found_in(pocket, "figure-8")
    assert "later in 7 and sooner in 0 of 7 prompts, p 0.016" in found.found  # 2 / 2 ** 7
    assert list(verdicts(found).values()) == [True]
    (table,) = found.tables
    assert cell(table, "prompts with the target never first", "this order").value == 1
    assert cell(table, SWITCH, "this order").published == 290
    # Figure 9 needs a mask that was left out.
    (table,) = found_in(pocket, "figure-9").tables
    own = cell(table, SWITCH, "this order")
    assert (own.why, own.published) == ("not run", 355)
    assert cell(table, SWITCH, "rising weight").value == 1.0
    put(pocket, "walk", walk([1, 1], [0.0, 1.0, 1.0, 1.0]))
    put(pocket, "walk-influential", walk([2, 2], [0.0, 0.0, 1.0, 1.0]))
    assert list(verdicts(found_in(pocket, "figure-8")).values()) == [None]


def test_sign_test_against_all_outcomes() -> None:
    for more, less in ((0, 0), (3, 0), (5, 1), (4, 4), (2, 6)):
        total = more + less
        outcomes = [bin(one).count("1") for one in range(2**total)]
        apart = abs(more - total / 2)
        as_far = sum(abs(one - total / 2) >= apart for one in outcomes)
        assert sign_test(more, less) == pytest.approx(as_far / len(outcomes))


def scaled(task: str, best: float, loss: float, bleu: tuple[float, float]) -> Any:
    """The best \u03b1, the change of the loss there, and BLEU instructed and scaled."""
    plain, turned = bleu
    own = replace(OWN, gate=best)
    measures = {
        "bleu_published": [made(plain, turned, turned - 5, plain - 5, 1.0, side="higher", own=own)],
        "nll": [made(1.0, 1.0 + loss, 1.0 + loss + 0.05, half=0.01, own=own)],
    }
    alone = replace(OWN, kind="mask alone", of="", k=0)
    details = {"tasks": {task: {"best": best, "left_out": 3}}, "draws": 19}
    return {**table(task, measures, reference=alone, examples=50), "details": details}


def test_figure_6_by_hand(pocket: Setting) -> None:
    put(pocket, "scaling-en-de", scaled("en-de", 0.3, -0.3, (50, 60)))
    put(pocket, "scaling-en-es", scaled("en-es", 1.0, 0.0, (50, 50)))
    found = found_in(pocket, "figure-6")
    bleu = table_of(found, "BLEU")
    own = cell(bleu, "scaled mask", "en-de")
    assert (own.value, own.published) == (pytest.approx(0.60), 0.678)
    assert cell(bleu, "mask", "en-es").value == pytest.approx(0.45)
    assert cell(bleu, "mask", "de-en").why == "not run"
    random = cell(bleu, "scaled random masks", "en-de")
    assert random.value == pytest.approx(0.55) and random.published is None
    assert "6 sentences were left out" in bleu.note
    assert cell(table_of(found, "The best α"), "en-de", "best α").value == 0.3
    assert "BLEU 0.500 instructed, 0.600 scaled, 0.550 with random" in grounds(found)
    assert list(verdicts(found).values()) == [True, True]
    # Where no α below 1 was chosen nothing can be tested.
    shutil.rmtree(pocket.at("scaling-en-de"))
    assert list(verdicts(found_in(pocket, "figure-6")).values()) == [None, None]


def test_the_bundled_model_has_the_draws_that_its_claims_take(pocket: Setting) -> None:
    """As many as let the smallest p hold after Holm."""
    every = families(4)
    of_language = json.loads(json.dumps(every).replace("all", "en"))
    for name in ("conditions", "levels", "tests"):
        every[name] += [row for row in of_language[name] if row not in every[name]]
    every["details"]["families"].insert(1, of_language["details"]["families"][0])
    put(pocket, "families", every)
    for task in (*WAYS, "plural-en", "translate-en-de"):
        measures = ("nll", "accuracy") if task not in WAYS else ("nll", "rouge_l")
        values = {"nll": (2.0, 1.0, 1.5, 3.0)}
        rows = [conditions(name, values.get(name, (0.1, 0.8, 0.65, 0.2))) for name in measures]
        put(pocket, f"proof-{task}", proof(task, rows[0] | rows[1]))
    put(pocket, "scaling-en-de", scaled("en-de", 0.3, -0.3, (50, 60)))
    row = made(0.0, 0.2, -0.1, None, 0.1, 0.05, 0.05, "higher")
    details = {"task": "en-de", "samples": 100, "layers": 2, "pairs": []}
    put(pocket, "states", {**table("en-de", {"cosine": [row]}), "details": details})
    told = {name: EXPERIMENTS[name].show(pocket) for name in EXPERIMENTS}
    tested = [claim for claim in claims_of(told) if claim.p is not None]
    assert len(tested) == runs.CLAIMS
    least = 1 / (1 + runs.DRAWS)
    assert min(holm([least] + [1.0] * (len(tested) - 1))) <= 0.05 < runs.CLAIMS / runs.DRAWS


def test_table_42_shows_the_first_direction_that_changes_with_both_scores(pocket: Setting) -> None:
    for way, changed in (("en-de", "ab"), ("en-es", "bc")):
        put(pocket, f"scaling-{way}", scaled(way, 1.0, 0.0, (50, 50)))
        given = {"original": "ab", "selected": changed}
        rows = [(name, "i", "ab", output) for name, output in given.items()]
        put_samples(pocket, f"scaling-{way}", way, rows)
    table = table_of(found_in(pocket, "figure-6"), "Outputs that the scaled mask changes")
    assert "en-de 0 of 1, en-es 1 of 1" in table.note
    (line,) = table.rows
    assert [line.cells[at].value for at in (0, 1, 3)] == ["ab", "ab", "bc"]
    # One of two characters, and none of one pair: orders of 3 and 4 are longer than the text.
    assert line.cells[4].value == pytest.approx((0.5 * 0.1**3) ** 0.25)
    assert [line.cells[at].published for at in (2, 4)] == [0.556, 0.640]
    assert table.reference is not None and not table.reference.comparable


def test_figure_7_by_hand(pocket: Setting) -> None:
    pairs = [{**pair("en-de", "de-en", 0.8, 0.7, 0.04), "relation": "opposite"}]
    put(pocket, "masks-compared", {"pairs": pairs})
    found = found_in(pocket, "figure-7")
    assert list(verdicts(found).values()) == [True]
    pairs[0]["p_value"] = 0.06
    put(pocket, "masks-compared", {"pairs": pairs})
    assert list(verdicts(found_in(pocket, "figure-7")).values()) == [None]


def test_tables_39_and_40_beside_masks_of_heads(pocket: Setting) -> None:
    put(pocket, "proof-en-de", proof("en-de", conditions("nll", (2.0, 1.0, 1.5, 3.0))))
    assert found_in(pocket, "table-39").found == ""
    put(pocket, "proof-en-de-query", proof("en-de", conditions("nll", (2.0, 1.0, 1.9, 3.0))))
    assert "lower than under that of heads in 0 of 1" in found_in(pocket, "table-39").found
    layers = [{"selected": True}] * 5 + [{"selected": False}]
    put(pocket, "mask-en-de-feed-forward", {"selected": 70, "feed_forward": layers})
    rows = conditions("nll", (2.0, 1.0, 1.4, 3.0))
    put(pocket, "proof-en-de-feed-forward", proof("en-de", rows))
    found = found_in(pocket, "table-40")
    (table,) = found.tables
    own = cell(table, "en-de", "NLL, mask")
    assert (own.value, own.published) == (1.4, 1.33)
    assert cell(table, "en-de", "heads in the mask").value == 70
    assert "0 of 1 masks keep every feed-forward layer, the others drop up to 1" in found.found
    assert "in 1 of 1." in found.found


def test_table_7_by_hand(llama: Setting) -> None:
    shares = {"all": 0.4, "in": 0.5, "out": 0.4}
    measures = {
        **{f"share_{group}": [made(mean, mean, reference=mean)] for group, mean in shares.items()},
        "uniform": [made(1 / 3, 1 / 3)],
        "in_minus_out": [made(0.1, 0.1, reference=0.1)],
    }
    name = "fruit_v_animal_3"
    tasks = {name: {"random": {OWN.id: {"p_value": 0.01}}}}
    put(llama, f"attention-{name}", {**table(name, measures), "details": {"tasks": tasks}})
    found = found_in(llama, "table-7")
    (shown,) = found.tables
    assert shown.columns == ("adjective_v_verb_3", name)
    own = cell(shown, "mask, heads in the mask", name)
    assert (own.value, own.low, own.published) == (0.5, 0.49, 0.566)
    assert cell(shown, "mask, heads in the mask", "adjective_v_verb_3").why == "not run"
    assert cell(shown, "uniform", name).value == pytest.approx(1 / 3)
    assert "instructed in 1 of 1, under the mask in 1 of 1" in found.found
    assert "in 1 of 1 tasks" in found.sure and list(verdicts(found).values()) == [False]


def test_examples_are_the_first_of_every_task(pocket: Setting) -> None:
    put(pocket, "proof-en-de", proof("en-de", conditions("nll", (2.0, 1.0, 1.5, 3.0))))
    rows = [
        ("original", "a", "A", "a"),
        ("original", "b", "B", "B"),
        ("instructed", "a", "A", "A"),
        ("selected", "a", "A", "A "),
    ]
    file = put_samples(pocket, "proof-en-de", "en-de", rows)
    found = found_in(pocket, "figure-1")
    said = "1 tasks exactly the reference is written for: 0 as is, 1 instructed, 1 masked"
    assert said in found.found
    sizes = found_in(pocket, "table-4")
    assert "pocket 1 of 1" in sizes.found and "one model here" in sizes.found
    file.write_text("{", encoding="utf-8")
    with pytest.raises(InputError, match="is damaged"):
        found_in(pocket, "figure-1")
