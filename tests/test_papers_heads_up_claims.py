"""The claims of Heads Up!: one pooled test each, whose verdicts follow from its interval."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import hypot, nan
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from heads_up_helpers import (
    EXPERIMENTS,
    FOREIGN,
    OWN,
    conditions,
    llama_setting,
    made,
    pocket_setting,
    proof,
    put,
    put_samples,
    table,
)
from headscope.estimates import Estimate
from headscope.evidence.rows import Condition, Evidence
from headscope.measure.statistics import holm
from headscope.papers.claims import answer_of, claims_of, judged
from headscope.papers.heads_up import runs
from headscope.papers.heads_up.cells import GAIN, Case, against_random, brought, change, pooled
from headscope.papers.heads_up.prompts import MARGIN
from headscope.papers.paper import Setting
from headscope.papers.published import published_claims
from headscope.runs.codec import decode
from headscope.shown.blocks import Claim
from paper_helpers import around

CLAIMS = published_claims("heads-up")
WAYS = ("en-de", "en-es", "de-en", "de-es")


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


def claims_in(setting: Setting) -> dict[str, Claim]:
    """All claims of what was run, by key, each by itself; every one is of the paper, and once."""
    found = claims_of({name: one.show(setting) for name, one in EXPERIMENTS.items()})
    assert len({claim.key for claim in found}) == len(found) and {*CLAIMS} >= {
        claim.key for claim in found
    }
    return {claim.key: judged([claim])[0] for claim in found}


# ---- pooling -----------------------------------------------------------------------------------
def test_means_over_tasks_against_each_task_s_own_numbers() -> None:
    """Half-widths of directions are averaged, those of word tasks added in squares."""
    random = np.random.default_rng(0)
    for _ in range(50):
        ways, words = (
            [Estimate(v, v - a, v + b) for v, a, b in random.uniform(0, 1, (n, 3))]
            for n in random.integers(1, 5, 2)
        )
        n, mean = len(ways) + len(words), pooled(ways, words)
        assert mean.value == pytest.approx(sum(one.value for one in (*ways, *words)) / n)
        below = hypot(
            sum(one.value - one.low for one in ways), *(one.value - one.low for one in words)
        )
        assert mean.low == pytest.approx(mean.value - below / n)
        mirrored = pooled(*([_mirrored(one) for one in of] for of in (ways, words)))
        assert (mirrored.low, mirrored.high) == pytest.approx((-mean.high, -mean.low))
        # No wider than the mean of the tasks' own, no narrower than if all were independent.
        widths = [one.high - one.low for one in (*ways, *words)]
        assert hypot(*widths) / n - 1e-9 <= mean.high - mean.low <= sum(widths) / n + 1e-9
    assert pooled([Estimate(1, 0, 3)]) == Estimate(1, 0, 3)
    assert not pooled([around(1), Estimate(2, nan, nan)]).bounded and not pooled([]).known


def _mirrored(one: Estimate) -> Estimate:
    return Estimate(-one.value, -one.high, -one.low)


def case(
    measure: str,
    plain: float,
    masked: float,
    random: Sequence[float],
    half: float = 0.01,
    asked: float | None = None,
) -> Case:
    """A task as is, masked, and under each random mask."""
    mean, side = float(np.mean(random)), "lower" if measure == "nll" else "higher"
    row = made(plain, masked, mean, asked, half, side=side)  # type: ignore[arg-type]
    made_up = table("turn", {measure: [row]}, draws={measure: random})
    return Case(decode(Evidence, made_up), "turn", translation=measure != "accuracy")


@pytest.mark.parametrize("measure", ["accuracy", "nll"])
def test_masks_of_several_tasks_rank_among_the_means_of_draws_of_one_number(measure: str) -> None:
    random = np.random.default_rng(1)
    for _ in range(50):
        masked, draws = random.uniform(0, 1, 3), random.uniform(0, 1, (3, 19)).round(1)
        cases = [case(measure, 0.5, a, b.tolist()) for a, b in zip(masked, draws, strict=True)]
        test, own = against_random(cases, measure), np.mean(masked)
        means = draws.mean(axis=0)
        as_far = sum(means <= own + 1e-12 if measure == "nll" else means >= own - 1e-12)
        assert test is not None and (test.draws, test.at_least_as_harmful) == (19, as_far)
        assert test.p_draws == pytest.approx((1 + as_far) / 20) and test.least_p == 1 / 20
        assert test.difference.value == pytest.approx(own - means.mean())
        assert change(cases, measure).value == pytest.approx(own - 0.5)
    assert against_random([], measure) is None


# ---- verdicts ----------------------------------------------------------------------------------
LOW = [0.0] * 19


@pytest.mark.parametrize(
    ("masked", "half", "random", "holds"),
    [
        (0.50, 0.02, LOW, True),
        (0.10, 0.20, LOW, None),  # neither no gain nor the paper's is excluded
        (0.12, 0.01, LOW, False),  # above no gain, and below what the paper's leave at least
        (0.02, 0.02, LOW, False),
        (0.50, 0.02, [0.6, *LOW[1:]], None),  # a random mask does as much
        (0.50, 0.02, [0.9] * 19, False),  # random masks do more
        (0.50, 0.02, LOW[:18], None),  # too few to tell
    ],
)
def test_masks_do_tasks_untold(
    masked: float, half: float, random: list[float], holds: bool | None
) -> None:
    """The gain over the model as it is (0.1 right), and over random masks."""
    claim = brought("words", [case("accuracy", 0.1, masked, random, half)], "accuracy")
    (found,) = judged([claim])
    assert found.holds is holds and CLAIMS["words"].name == found.name


def test_a_gain_is_refuted_below_what_the_paper_s_leave_at_least() -> None:
    """On either side of the claimed gain the verdict turns at the same distance."""
    for far in np.linspace(0.015, 0.03, 4):
        short, beyond = (
            judged([brought("words", [case("accuracy", 0.0, gain, LOW)], "accuracy")])[0]
            for gain in (GAIN - far, GAIN + far)
        )
        assert short.holds is False and beyond.holds is True
    # What is the same in every example has no interval.
    (alike,) = judged([brought("words", [case("accuracy", 0.0, 1.0, LOW, nan)], "accuracy")])
    assert alike.holds is None and alike.decides
    # ROUGE-L is on a scale of 100.
    assert (
        judged([brought("translate", [case("rouge_l", 10.0, 14.0, LOW, 0.5)], "rouge_l")])[0].holds
        is False
    )


def proofs(setting: Setting, gap: float, half: float = 0.01, words: float | None = None) -> None:
    """Directions whose masked ROUGE-L is so far from that of the instructed model, and word tasks
    whose accuracy is."""
    for way in WAYS:
        rows = conditions("rouge_l", (10.0, 60.0, 60.0 + 100 * gap, 12.0), 100 * half)
        put(setting, f"proof-{way}", proof(way, rows))
    for task in ("plural-en", "translate-en-de"):
        own = gap if words is None else words
        rows = conditions("accuracy", (0.1, 0.6, 0.6 + own, 0.1), half)
        put(setting, f"proof-{task}", proof(task, rows))


@pytest.mark.parametrize(
    ("gap", "half", "holds"),
    [(0.2, 0.05, True), (-0.05, 0.02, True), (-0.1, 0.05, None), (-0.3, 0.05, False)],
)
def test_masks_do_as_well_as_an_instruction_within_the_margin(
    pocket: Setting, gap: float, half: float, holds: bool | None
) -> None:
    proofs(pocket, gap, half)
    assert claims_in(pocket)["instructed"].holds is holds


def test_directions_and_word_tasks_weigh_alike_against_an_instruction(pocket: Setting) -> None:
    proofs(pocket, -0.02, words=-0.5)
    assert claims_in(pocket)["instructed"].holds is False  # (4 × −0.02 − 2 × 0.5) / 6 = −0.18
    proofs(pocket, -0.3, words=0.6)
    assert claims_in(pocket)["instructed"].holds is True  # (−4 × 0.3 + 2 × 0.6) / 6 = 0
    for far in (0.02, 0.05):  # the verdict turns at the margin, at one distance to both sides
        for gap, holds in ((-MARGIN - far, False), (-MARGIN + far, True)):
            proofs(pocket, gap)
            assert claims_in(pocket)["instructed"].holds is holds


def silenced(gain: float, half: float) -> Callable[[Setting], None]:
    def write(setting: Setting) -> None:
        alone = replace(OWN, kind="mask alone", of="", k=0)
        for way in WAYS:
            row = made(60.0, 60.0, 60.0, 60.0 + 100 * gain, 100 * half, side="higher",
                       own=replace(OWN, gate=0.5))  # fmt: skip
            details = {"tasks": {way: {"best": 0.5}}, "draws": 19}
            found = table(way, {"bleu_published": [row]}, reference=alone, examples=50)
            put(setting, f"scaling-{way}", {**found, "details": details})

    return write


def nearer(gain: float, half: float) -> Callable[[Setting], None]:
    def write(setting: Setting) -> None:
        row = made(0.5, 0.5 + gain, 0.9, None, half, side="higher")
        details = {"task": "en-de", "samples": 100, "layers": 2, "pairs": []}
        put(setting, "states", {**table("en-de", {"cosine": [row]}), "details": details})

    return write


def swapped(gain: float, half: float) -> Callable[[Setting], None]:
    def write(setting: Setting) -> None:
        for task in ("en-de", "antonym"):
            given = {"nll": [made(2.0, 1.0, None, 2.0 - gain, half)]}
            step = f"swap-{task}-of-Llama-3.1-8B"
            put(setting, step, proof(task, given, reference=FOREIGN))

    return write


@pytest.mark.parametrize(
    ("key", "made_up"), [("silenced", silenced), ("nearer", nearer), ("swap", swapped)]
)
def test_effects_in_either_direction_are_judged_alike(
    pocket: Setting, llama: Setting, key: str, made_up: Callable[..., Callable[[Setting], None]]
) -> None:
    """A claim holds at an effect, and fails at the opposite one; random masks decide none."""
    setting = llama if key == "swap" else pocket
    for size, half in ((0.05, 0.01), (0.2, 0.15), (0.01, 0.02), (0.0, 0.01)):
        found = []
        for gain in (size, -size):
            made_up(gain, half)(setting)
            found.append(claims_in(setting)[key].holds)
        assert found == ([True, False] if size > half else [None, None]), (size, half)


def sizes(setting: Setting, outputs: Mapping[str, Sequence[str]]) -> None:
    """What models of two sizes write under their masks, where BIG words are right."""
    for name, parameters in (("", 8), ("-of-Llama-3.1-70B-Instruct", 70)):
        for way in ("en-de", "de-en"):
            step = f"proof-{way}{name}"
            rows = conditions("rouge_l", (10.0, 60.0, 50.0, 12.0))
            put(
                setting,
                step,
                {**proof(way, rows), "model": {"name": "m", "parameters": parameters}},
            )
            texts = outputs[name]
            samples = [("selected", f"i{at}", "a b c d", text) for at, text in enumerate(texts)]
            put_samples(setting, step, way, samples)


def test_the_largest_model_is_compared_with_the_smallest_on_the_same_sentences(
    llama: Setting,
) -> None:
    big = "-of-Llama-3.1-70B-Instruct"
    others = ("meta-llama/Llama-3.1-70B-Instruct",)
    llama = replace(llama, data=replace(llama.data, others=others))
    few = ["a", "a b", "x", "a b c", "y", "a b c d"] * 5
    many = ["a b c d", "a b c", "a b c", "a b c d", "a b", "a b c d"] * 5
    sizes(llama, {"": few, big: many})
    claim = claims_in(llama)["size"]
    # Of n of four words 2n / (n + 4); words that are not there score 0.
    scores = {"a": 2 / 5, "a b": 4 / 6, "a b c": 6 / 7, "a b c d": 1.0}
    gap = np.mean([scores[b] - scores.get(a, 0.0) for a, b in zip(few, many, strict=True)])
    assert claim.holds is True and f"{gap:+.3f} (" in claim.by


def test_the_smaller_model_doing_better_refutes_that_larger_ones_do(llama: Setting) -> None:
    big = "-of-Llama-3.1-70B-Instruct"
    others = ("meta-llama/Llama-3.1-70B-Instruct",)
    llama = replace(llama, data=replace(llama.data, others=others))
    sizes(llama, {"": ["a b c d", "a b c"] * 10, big: ["x", "y"] * 10})
    assert claims_in(llama)["size"].holds is False


def families(setting: Setting, without: float, random: Sequence[float], half: float = 0.05) -> None:
    """The loss without the heads that all masks keep, and without random ones, of 1 instructed."""
    own = Condition("selected", "all", 16, 0.0)
    sizes = {"removed": 16, "kept": 80, "tested": True}
    side: Literal["higher"] = "higher"
    row = made(1.0, without, float(np.mean(random)), half=half, own=own, side=side, p_draws=0.05,
               least_p=0.05)  # fmt: skip
    made_up = [
        table(way, {"nll": [row]}, ("random", "same layers"), draws={"nll": random})
        for way in ("", *WAYS)
    ]
    found = {name: [row for one in made_up for row in one[name]] for name in ("levels", "tests")}
    tasks = {way: {"examples": 100} for way in WAYS}
    details = {"families": [{"name": "all", "tasks": WAYS, **sizes}], "tasks": tasks, "draws": 19}
    put(setting, "families", {**made_up[0], **found, "details": details})


def uninstructed(setting: Setting, loss: float) -> None:
    for way in WAYS:
        rows: Any = conditions("nll", (loss, 1.0, 1.5, loss))
        put(setting, f"proof-{way}", proof(way, rows))


@pytest.mark.parametrize(
    ("without", "random", "bare", "holds"),
    [
        (3.0, 1.5, 2.5, True),
        (0.9, 1.5, 2.5, False),  # better without them
        (1.3, 1.5, 2.5, False),  # random heads are needed more
        (1.02, 1.0, 2.5, None),
        (9.0, 8.0, 2.5, None),  # a random removal costs more than the instruction: no control
        (9.0, 1.5, None, None),  # not known whether it does
    ],
)
def test_shared_heads_are_held_against_a_control_that_leaves_the_task_alive(
    pocket: Setting, without: float, random: float, bare: float | None, holds: bool | None
) -> None:
    families(pocket, without, [random] * 19)
    if bare is not None:
        uninstructed(pocket, bare)
    claim = claims_in(pocket)["shared"]
    assert claim.holds is holds
    if bare is None or random > bare:  # and no number of draws would change that
        assert (claim.p, claim.p_against) == (1.0, 1.0) and claim.decides


# ---- all of them -------------------------------------------------------------------------------
def test_the_bundled_model_is_asked_all_claims_but_those_about_other_models(
    pocket: Setting,
) -> None:
    """A claim that cannot be asked is listed as not measured, and counts in the correction."""
    proofs(pocket, -0.3)
    families(pocket, 3.0, [1.5] * 19)
    silenced(0.05, 0.01)(pocket)
    nearer(0.05, 0.01)(pocket)
    assert {*CLAIMS} - {*claims_in(pocket)} == {"size", "swap"}
    told = claims_of({name: one.show(pocket) for name, one in EXPERIMENTS.items()})
    answer = answer_of(told, CLAIMS)
    unmeasured = {claim.key for claim in answer.claims if claim.verdict == "not measured"}
    assert unmeasured == {"size", "swap"} and len(answer.claims) == len(CLAIMS)


def test_one_claim_can_hold_with_the_draws_that_are_planned(pocket: Setting) -> None:
    assert runs.draws_of(pocket) == runs.DRAWS and len(CLAIMS) == runs.CLAIMS
    for draws, able in ((runs.DRAWS, True), (runs.DRAWS - 1, False)):
        least = holm([1 / (1 + draws)] + [1.0] * (len(CLAIMS) - 1))[0]
        assert (least <= 0.05) is able


def test_every_claim_names_experiments_that_there_are() -> None:
    for claim in CLAIMS.values():
        assert {*claim.experiments} <= {*EXPERIMENTS}, claim.key
