"""What one checkpoint lost beside another: the laws of its answers, their level, the command."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lm_helpers as helpers
import process_helpers
from headscope.cli.app import main
from headscope.compare.release_changes import (
    FEWEST,
    answer_of,
    chrf_change,
    loss_change,
    needed,
    share_change,
)
from headscope.errors import InputError
from headscope.estimates import Estimate
from headscope.measure import chrf
from headscope.results.release import Change, ReleaseResult
from headscope.studies.compare.release import CompareRelease, junit, release
from headscope.studies.documents import DocumentsChoice

numbers = st.floats(-5, 5)
bools = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=FEWEST, max_size=60)


@given(st.lists(numbers, min_size=3, max_size=3).map(sorted), st.floats(0, 3), st.floats(0, 3))
def test_a_wider_margin_never_makes_it_worse(bounds: list[float], one: float, two: float) -> None:
    low, value, high = bounds
    order = ("lost", "cannot tell", "kept")
    estimate = Estimate(value, low, high)
    answers = [order.index(answer_of(estimate, margin, 100)) for margin in sorted((one, two))]
    assert answers == sorted(answers)
    assert answer_of(estimate, one, FEWEST - 1) == "cannot tell"
    assert (answer_of(estimate, one, 100) == "lost") == (low > one)
    assert (answer_of(estimate, one, 100) == "kept") == (high < one)


@given(bools)
def test_the_share_that_became_wrong_has_a_width_and_a_mirror(pairs: Any) -> None:
    old, new = np.array(pairs).T
    change, back = (share_change("de", *both, 0.1, 0.95) for both in ((old, new), (new, old)))
    moved = change.change
    assert moved.value == pytest.approx(sum(map(float, new)) / len(new) - old.mean())
    assert moved.low < moved.value < moved.high
    assert (back.change.low, back.change.high) == pytest.approx((-moved.high, -moved.low))
    assert moved.low >= -1.01 and moved.high <= 1.01


def test_losses_are_those_of_all_tokens_together() -> None:
    rng = np.random.default_rng(0)
    tokens = rng.integers(5, 50, size=40)
    old = rng.normal(2, 0.2, size=40) * tokens
    new = old + 0.05 * tokens
    change = loss_change("de", "loss", old, new, tokens, 0.01, 0.95)
    assert change.old == pytest.approx(old.sum() / tokens.sum())
    assert change.change.value == pytest.approx(0.05) and change.answer == "lost"
    assert change.new - change.old == pytest.approx(0.05)
    better = loss_change("de", "loss", new, old, tokens, 0.01, 0.95)
    assert better.answer == "kept"
    same = loss_change("de", "loss", old, old, tokens, 0.01, 0.95)
    assert same.change.value == 0 and same.answer == "kept"
    noise = loss_change("de", "loss", old, old + rng.normal(0, 5, 40), tokens, 0.01, 0.95)
    assert noise.answer == "cannot tell"


def test_intervals_cover_where_nothing_changed() -> None:
    """Of 200 checkpoints that differ by noise alone at most a tenth has an interval without 0."""
    rng = np.random.default_rng(1)
    outside = {"loss": 0, "off_target": 0}
    for _ in range(200):
        tokens = rng.integers(5, 60, size=60)
        old = rng.gamma(2, 1, size=60) * tokens
        new = old + rng.standard_t(4, size=60) * tokens * 0.1
        wrong = rng.random((2, 60)) < 0.2
        for change in (
            loss_change("de", "loss", old, new, tokens, 0.01, 0.95),
            share_change("de", wrong[0], wrong[1], 0.05, 0.95),
        ):
            outside[change.statistic] += not change.change.low <= 0 <= change.change.high
    assert max(outside.values()) <= 20


def test_intervals_of_losses_hold_far_out() -> None:
    """At the level of twenty changes together, over few texts."""
    rng, level, missed = np.random.default_rng(2), 1 - 0.05 / 20, 0
    for _ in range(1000):
        tokens = rng.integers(20, 60, size=FEWEST)
        old = rng.gamma(2, 1, size=FEWEST) * tokens
        new = old + rng.normal(0, 0.1, size=FEWEST) * tokens
        moved = loss_change("de", "loss", old, new, tokens, 0.01, level).change
        missed += not moved.low <= 0 <= moved.high
    assert missed <= 10  # 2.5 are expected


def test_as_many_outputs_as_are_said_show_that_a_language_is_kept() -> None:
    for level, margin in ((0.9975, 0.05), (0.999, 0.1), (0.95, 0.02)):
        number = needed(margin, level)
        for outputs, answer in ((number + 1, "kept"), (number - 2, "cannot tell")):
            same = np.zeros(outputs, dtype=bool)
            assert share_change("de", same, same, margin, level).answer == answer


def test_a_number_that_is_none_any_more_is_lost() -> None:
    tokens, old = np.full(40, 9), np.full(40, 18.0)
    broken = np.full(40, np.nan)
    assert loss_change("de", "loss", old, broken, tokens, 0.01, 0.95).answer == "lost"
    with pytest.raises(InputError, match="old checkpoint"):
        loss_change("de", "loss", broken, old, tokens, 0.01, 0.95)


def test_a_fall_of_chrf_is_what_is_worse() -> None:
    references = [f"the house number {at} is old" for at in range(30)]
    changed = [text.replace("house", "mouse") for text in references]
    worse = chrf_change("en-de", references, changed, references, 1.0, 0.95)
    assert worse.answer == "lost" and worse.old == 100
    assert worse.change.value == pytest.approx(chrf(changed, references).value - 100)
    assert worse.change.low <= worse.change.value <= worse.change.high < 0
    assert chrf_change("en-de", changed, references, references, 1.0, 0.95).answer == "kept"


def change_of(part: str, answer: Any) -> Change:
    return Change(
        part=part, statistic="loss", old=1.0, new=1.1, change=Estimate(0.1, 0.05, 0.15),
        margin=0.01, answer=answer, examples=100,
    )  # fmt: skip


def test_junit_says_the_same() -> None:
    hostile = '<&"de\u2028\U0001f600>'
    result = ReleaseResult(
        changes=(change_of("de", "kept"), change_of(hostile, "lost"), change_of("x", "cannot tell"))
    )
    suite = ElementTree.fromstring(junit(result))
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("3", "1", "1")
    kinds = {case.get("classname"): [child.tag for child in case] for case in suite}
    assert kinds == {"de": [], hostile: ["failure"], "x": ["skipped"]}


@pytest.mark.parametrize(
    ("new", "limit", "code"), [("pocket", 5, 0), ("pocket:step-00800", 30, 1), ("final", 5, 3)]
)
def test_the_command_ends_by_what_it_found(
    new: str, limit: int, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = "pocket:step-06400" if new == "final" else new
    out = tmp_path / "run"
    asked = ["compare", "release", "pocket", new, "--limit", str(limit), "--no-translate"]
    assert main([*asked, "--out", str(out)]) == code
    suite = ElementTree.parse(out / "junit.xml").getroot()
    assert (int(suite.get("failures") or 0) > 0) == (code == 1)
    first = capsys.readouterr().out
    assert main([*asked, "--out", str(out)]) == code  # from the finished run
    assert capsys.readouterr().out == first


def test_checkpoints_that_cannot_be_compared_are_refused(tmp_path: Path) -> None:
    texts = DocumentsChoice(data=(f"de={tmp_path / 'de.txt'}",))
    (tmp_path / "de.txt").write_text("the old house\nthe dog\n" * 15, "utf-8")
    one = helpers.saved(tmp_path / "one")
    other = helpers.saved(tmp_path / "other", overrides={"num_hidden_layers": 3})
    for models, said in (
        ((str(one),), "1 checkpoints"),
        ((str(one), str(other)), "checkpoints of one model"),
        ((str(one), str(tmp_path / "none")), "none"),
        (("pocket", "pocket:step-*"), "step"),
    ):
        with pytest.raises(InputError, match=said):
            release(CompareRelease(models=models, documents=texts), tmp_path / "run")
    with pytest.raises(InputError, match="--language de=FILE"):
        release(CompareRelease(models=(str(one), str(one))), tmp_path / "run")
    tokenizer = helpers.tokenizer({20: "ß"})
    again = helpers.saved(tmp_path / "again")
    tokenizer.save_pretrained(again)
    with pytest.raises(InputError, match="not the same tokenizer"):
        release(CompareRelease(models=(str(one), str(again)), documents=texts), tmp_path / "run")


def test_documents_alone_and_another_seed_of_weights(tmp_path: Path) -> None:
    (tmp_path / "de.txt").write_text("".join(f"the house {at}\n" for at in range(30)), "utf-8")
    one = helpers.saved(tmp_path / "one", seed=1)
    other = helpers.saved(tmp_path / "other", seed=2)
    config = CompareRelease(
        models=(str(one), str(other)), documents=DocumentsChoice((f"de={tmp_path / 'de.txt'}",))
    )
    result = release(config, tmp_path / "run")
    (change,) = result.changes
    back = release(replace(config, models=(str(other), str(one))), tmp_path / "back").changes[0]
    assert change.change.value == pytest.approx(-back.change.value)
    assert change.old == pytest.approx(back.new) and change.examples == 30
    assert result.level == pytest.approx(0.95) and not result.same


@pytest.mark.parametrize("title", ["old checkpoint, ru", "new checkpoint, en-es: translations"])
def test_a_run_goes_on_where_it_was_stopped(title: str, tmp_path: Path) -> None:
    config = CompareRelease(
        models=("pocket", "pocket:step-06400"),
        documents=DocumentsChoice(limit=4, data=()),
        max_new_tokens=8,
    )
    process_helpers.resumed(release, config, tmp_path, 1, titles=(title,))
