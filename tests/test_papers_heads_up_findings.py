"""What Heads Up! as a recipe finds, from given-up results whose figures are worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

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
from headscope.evidence.rows import Condition
from headscope.papers.claims import claims_of
from headscope.papers.heads_up.paper import PAPER
from headscope.papers.heads_up.prompts import LIKELIEST, MAPS, SWITCH
from headscope.papers.paper import Setting
from headscope.papers.show import Answer
from headscope.papers.study_steps import joined, shown_by
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


def test_what_figures_2_and_4_show_is_not_shown_again(
    pocket: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    def study(setting: Setting, step: str) -> Shown:
        maps = (Bars(MAPS, (), (), (), "y"),) if step == "walk" else ()
        blocks = (*maps, Table(LIKELIEST, (), ()))
        figure = Bars(f"figure of {step}", (), (), (), "y")
        return Shown("t", "w", ["f"], sections=[Section("s", blocks)], figure=figure)

    monkeypatch.setattr(Setting, "shown", study)
    put(pocket, "walk", walk([2, 3], [0.0, 0.25, 0.5, 1.0]))
    names = {name: found_in(pocket, name) for name in ("figure-2", "figure-4", "table-4")}
    drawn = {name: [figure.title for figure in found.figures] for name, found in names.items()}
    assert drawn["figure-2"] == ["figure of walk"]
    assert drawn["figure-4"] == ["figure of states", MAPS]
    told = {name: [table.title for table in found.tables] for name, found in names.items()}
    assert LIKELIEST in told["figure-4"] and LIKELIEST not in told["table-4"]
    parts = [Findings(sure="Each mask once."), Findings(sure="One model."), Findings()]
    assert joined([*parts, *parts]).sure == "Each mask once. One model."


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
    assert "0.607" not in found.found and claims_of({"": found}) == []  # nothing is written
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
    assert "0.620 as is, 0.700 masked, 0.560 instructed" in found.found
    assert verdicts(found) == {}


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
    assert verdicts(found) == {}


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
    assert "1.000 with all heads" in found.found and "0.900 without the 4" in found.found
    assert "were not run" in found.sure and "all has more than half" in found.sure


def test_table_6_without_unused_heads_prefers_the_negative_start(pocket: Setting) -> None:
    put(pocket, "families-negative", families(0))
    found = found_in(pocket, "table-6")
    assert "were not run" not in found.sure
    assert "Of 400 tested sentences masks were trained on 7" in found.sure
    first, _, second = found.tables
    assert cell(first, "without all", "en-de").why == "not run"
    assert cell(second, "without all", "en-de").value == 3.0
    assert cell(second, "without unused", "en-de").why == "no heads"


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


def test_orders_are_compared_prompt_by_prompt(pocket: Setting) -> None:
    put(pocket, "walk", walk([1] * 7, [0.0, 1.0, 1.0, 1.0]))
    put(pocket, "walk-influential", walk([2] * 6 + [None], [0.0, 0.0, 0.8, 0.8]))
    found = found_in(pocket, "figure-8")
    assert "in 7, and sooner in 0, of 7 prompts" in found.found and verdicts(found) == {}
    (table,) = found.tables
    assert cell(table, "prompts with the target never first", "this order").value == 1
    assert cell(table, SWITCH, "this order").published == 290
    # Figure 9 needs a mask that was left out.
    (table,) = found_in(pocket, "figure-9").tables
    own = cell(table, SWITCH, "this order")
    assert (own.why, own.published) == ("not run", 355)
    assert cell(table, SWITCH, "rising weight").value == 1.0


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
    # The second direction has no α below 1, which is no change there.
    assert "0.500 instructed, 0.450 with the other heads at 0, 0.550" in grounds(found)


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
    assert "0.80 on average, 0.70 by chance" in found.found and "in 1 of 1 pair" in found.found
    assert verdicts(found) == {}


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
    assert "instructed in 1 of 1 task, under the mask in 1 of 1 task" in found.found
    assert "in 1 of 1 tasks" in found.sure and verdicts(found) == {}


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
