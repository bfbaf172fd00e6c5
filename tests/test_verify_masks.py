"""Tests of a mask: its parts against naive twins written from the definitions."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import lm_helpers
from headscope.data.tasks import Example, Task
from headscope.errors import InputError
from headscope.evidence.controls import Draws
from headscope.evidence.rows import SELECTED, Condition, Evidence
from headscope.heads import Gate, Geometry, Head, HeadScores, HeadSet, save_scores
from headscope.lm.generation import GenerateConfig
from headscope.lm.model import LanguageModel
from headscope.runs import decode, encode, open_run
from headscope.studies.verify.families import surest
from headscope.verify.masked_tasks import Asking, Mask, MaskRecord, Way, asked, asking, read_mask
from headscope.verify.masked_tasks.asking import ask, losses_of, outputs_of
from headscope.verify.masked_tasks.conditions import (
    TaskMasks,
    beside_controls,
    best_alpha,
    check_apart,
    check_conditions,
    check_grid,
    chosen_again,
    condition_of,
    families,
    family_conditions,
    grid_conditions,
    halves_of,
    mask_conditions,
    parse_family,
)
from headscope.verify.masked_tasks.evidence import (
    character_bleu,
    marks,
    masks_evidence,
    paragraph_bleu,
    right,
    right_as_words,
)

UNEVEN = Geometry((3, 0, 4, 2))


def mask_without(geometry: Geometry, *heads: tuple[int, int], name: str = "m") -> Mask:
    return Mask(HeadSet(geometry, tuple(Head(*one) for one in heads)).removed(), name=name)


def task(translation: bool = False, at_start: bool = False, **changes: object) -> Task:
    examples = tuple(
        Example(str(n), text, answer, n)
        for n, (text, answer) in enumerate([("ab", "ba"), ("xyz", "zyx"), ("a", "a")], 1)
    )
    source = "en" if translation else None
    return Task("turn", examples, "Turn {input}:", "{input}=", "de", at_start, "f", "0", source)


# Answers


@pytest.mark.parametrize(
    ("text", "answer", "held", "begun", "word", "first_word"),
    [
        (" Paris.", "Paris", True, True, True, True),
        ("It is Paris", "Paris", True, False, True, False),
        ("witty", "w", True, True, False, False),
        ("w\nitty", "w", True, True, True, True),
        ("The w", "w", True, False, True, False),
        ("paris", "Paris", False, False, False, False),
        ("15", "5", True, False, False, False),
        ("Москва", "М", True, True, False, False),
        ("a+b", "a+b", True, True, True, True),
        ("", "a", False, False, False, False),
    ],
)
def test_an_output_is_right_if_it_holds_or_begins_with_the_answer(
    text: str, answer: str, held: bool, begun: bool, word: bool, first_word: bool
) -> None:
    assert right(text, answer, at_start=False) == held
    assert right(text, answer, at_start=True) == begun
    assert right_as_words(text, answer, at_start=False) == word
    assert right_as_words(text, answer, at_start=True) == first_word


def test_marks_of_words_and_of_translations() -> None:
    plain = marks(task(at_start=True), [["ba", "xzyx", "a\nb"], ["ba", "zyx", "no"]])
    assert plain["accuracy"][..., 0].tolist() == [[1, 0, 1], [1, 1, 0]]
    # The whole output is seen: of two words one is right.
    assert plain["rouge_l"][0, :, 0].tolist() == pytest.approx([100, 0, 200 / 3])
    sentences = marks(task(translation=True), [["ba", "b", "a\nmore"]])
    assert "accuracy" not in sentences
    assert set(sentences) == {"rouge_l", "chrf", "bleu", "bleu_published"}
    assert sentences["bleu_published"][0, 0, 0] == pytest.approx(100 * character_bleu("ba", "ba"))
    # Of a translation only the first line counts.
    first = marks(task(translation=True), [["ba", "b", "a"]])
    assert np.array_equal(sentences["chrf"], first["chrf"])


def naive_character_bleu(output: str, reference: str) -> float:
    """BLEU as Papineni et al. define it, in fractions; orders without a match count 0.1."""
    precisions = []
    for n in (1, 2, 3, 4):
        mine = [output[i : i + n] for i in range(len(output) - n + 1)]
        theirs = Counter(reference[i : i + n] for i in range(len(reference) - n + 1))
        hits = Fraction(sum(min(times, theirs[gram]) for gram, times in Counter(mine).items()))
        if n == 1 and hits == 0:
            return 0.0
        precisions.append((hits or Fraction(1, 10)) / max(1, len(mine)))
    brevity = 1.0 if len(output) > len(reference) else math.exp(1 - len(reference) / len(output))
    return brevity * math.prod(float(p) ** 0.25 for p in precisions)


@given(st.text(alphabet="ab é", max_size=12), st.text(alphabet="ab é", min_size=1, max_size=12))
def test_the_published_bleu_equals_its_definition(output: str, reference: str) -> None:
    naive = naive_character_bleu(output, reference) if output else 0.0
    assert character_bleu(output, reference) == pytest.approx(naive, abs=1e-12)


def test_the_published_bleu_takes_the_best_paragraph_without_punctuation() -> None:
    reference = "Ich sehe, dass es regnet!"
    outputs = ["Sure:\n\nIch sehe dass es  regnet\n\nBye", "Ich sehe dass es regnet", "Nein", ""]
    best, same, bad, empty = paragraph_bleu(outputs, [reference] * 4)
    assert best == same == 1
    assert 0 < bad < 0.1
    assert empty == 0


# Losses and outputs


def naive_losses(lm: LanguageModel, pairs: list[tuple[str, str]]) -> list[tuple[float, int]]:
    """Sum and number of the answers' token losses, one text at a time, one token a character."""
    found = []
    for before, answer in pairs:
        ids = torch.tensor([lm.encode(before + " " + answer)])
        with torch.no_grad():
            logits = lm.model(ids).logits[0].double()
        chances = torch.log_softmax(logits, dim=-1)
        places = range(ids.shape[1] - len(answer), ids.shape[1])
        found.append((-sum(float(chances[p - 1, ids[0, p]]) for p in places), len(places)))
    return found


@pytest.mark.parametrize("name", ["llama", "gemma2", "gpt2"])
def test_losses_under_a_mask_are_those_of_a_model_without_these_heads(name: str) -> None:
    lm = lm_helpers.wrapped(name)
    gone = Mask(HeadSet(lm.geometry, (Head(0, 1), Head(1, 0))).removed(), name="m")
    question = asked(task())
    examples = task().examples
    for instructed, prompts in (
        (False, [f"{one.input}=" for one in examples]),
        (True, [f"Turn {one.input}:" for one in examples]),
    ):
        nll, tokens = losses_of(lm, question, Way(instructed=instructed), Asking())
        pairs = list(zip(prompts, (one.output for one in examples), strict=True))
        naive = naive_losses(lm, pairs)
        assert nll == pytest.approx([loss for loss, _ in naive], rel=1e-4)
        assert tokens == [count for _, count in naive]
    without = LanguageModel.wrap(
        lm_helpers.folded(lm, torch.from_numpy(gone.gate.values.copy())), lm.tokenizer, check=False
    )
    pairs = [(f"{one.input}=", one.output) for one in examples]
    naive = naive_losses(without, pairs)
    masked, _ = losses_of(lm, question, Way(gone), Asking())
    assert masked == pytest.approx([loss for loss, _ in naive], rel=1e-4)
    assert outputs_of(lm, question, Way(gone), Asking(max_new_tokens=3))[0] == [
        without.generate([f"{one.input}="], GenerateConfig(3, stop_at_newline=False))[0].text
        for one in examples
    ]


def test_a_run_goes_on_where_as_many_examples_fit_as_never_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on another kind of device: what is kept in other portions is not taken for these."""
    lm, made = lm_helpers.wrapped("llama"), []
    gone = Mask(HeadSet(lm.geometry, (Head(0, 1), Head(1, 0))).removed(), name="m")
    planned = {Condition(): Way(), OWN: Way(gone)}
    for folder, at_once in (("a", 3), ("b", 1), ("b", 2), ("b", 3)):
        monkeypatch.setattr(asking, "rows_at_once", lambda *_, at_once=at_once: at_once)
        with open_run(tmp_path / folder, "x", {}, {}) as run:
            made.append(ask(lm, asked(task()), planned, Asking(max_new_tokens=3), run))
    for answers in made:
        for condition, record in answers.items():
            assert record.texts == made[0][condition].texts and len(record.texts) == 3
            assert record.nll == pytest.approx(made[0][condition].nll, rel=1e-5)


def test_a_loss_that_is_no_number_names_its_example() -> None:
    lm = lm_helpers.wrapped("llama")
    with torch.no_grad():
        lm.model.lm_head.weight.fill_(float("nan"))
    with pytest.raises(InputError, match=r"f, example 1 \(line 1\): its loss is no finite number"):
        losses_of(lm, asked(task()), Way(), Asking())


# Evidence


OWN = Condition(SELECTED, "own mask", 2, 0.0, heads=("0.0", "0.1"))


def made_up(seed: int, own: Condition = OWN) -> dict[Condition, MaskRecord]:
    """The model as it is, instructed, under a mask, and under three random ones."""
    random, tokens = np.random.default_rng(seed), (3, 1, 2)
    sets = (("0.0", "1.0"), ("0.1", "1.1"), ("1.0", "1.1"))
    draws = [
        dataclasses.replace(own, kind="shuffled", draw=at, heads=heads)
        for at, heads in enumerate(sets)
    ]
    outputs = ("ba", "no", "a")
    return {
        each: MaskRecord(tuple(random.uniform(1, 5, 3) * tokens), tokens, outputs)
        for each in (Condition(), Condition("instructed"), own, *draws)
    }


def test_levels_and_tests_equal_plain_means() -> None:
    records = made_up(0)
    table = masks_evidence({"turn": task()}, {"turn": records})
    mean = {}
    for each, record in records.items():
        losses = [loss / count for loss, count in zip(record.nll, record.tokens, strict=True)]
        mean[each.kind, each.draw] = sum(losses) / 3
        for name, value in (
            ("nll", sum(losses) / 3),
            ("nll_tokens", sum(record.nll) / 6),
            ("perplexity", math.exp(sum(record.nll) / 6)),
            ("accuracy", 2 / 3),
        ):
            level = table.level(name, each)
            assert level is not None and level.value == pytest.approx(value)
            assert level.examples == 3
    own, tests = table.level("nll", OWN), table.against("nll", OWN)
    assert own is not None and own.change is not None
    masked, base = mean["selected", None], mean["original", None]
    assert own.change.value == pytest.approx(masked - base)
    assert tests["instructed"].difference.value == pytest.approx(masked - mean["instructed", None])
    assert tests["instructed"].p_draws is None
    draws = [mean["shuffled", at] for at in range(3)]
    assert tests["shuffled"].difference.value == pytest.approx(masked - sum(draws) / 3)
    assert tests["shuffled"].p_draws == (1 + sum(draw <= masked for draw in draws)) / 4
    assert tests["shuffled"].shared == pytest.approx((1 + 1 + 0) / 2 / 3)
    # Of heads that are said to harm the other side counts.
    harm = masks_evidence({"turn": task()}, {"turn": records}, helps=lambda condition: False)
    test = harm.against("nll", OWN)["shuffled"]
    assert test.p_draws == (1 + sum(draw >= masked for draw in draws)) / 4
    assert decode(Evidence, encode(table)).levels == table.levels


def test_tasks_with_masks_of_their_own_have_one_condition_each() -> None:
    other = dataclasses.replace(OWN, k=1, heads=("1.0",))
    records = {"a": made_up(1), "b": made_up(2, other)}
    tasks = {name: dataclasses.replace(task(), name=name) for name in records}
    both = masks_evidence(tasks, records)
    (own,) = both.selected
    assert (own.k, own.gate, own.heads) == (0, 0.0, ())
    apart = {name: masks_evidence({name: tasks[name]}, {name: records[name]}) for name in records}
    values = []
    for name, alone in apart.items():
        level, wanted = both.level("nll", own, name), alone.level("nll", alone.main)
        assert level is not None and wanted is not None
        assert (level.value, level.low, level.change) == (wanted.value, wanted.low, wanted.change)
        test = alone.against("nll", alone.main)["shuffled"]
        ours = both.against("nll", own, name)["shuffled"]
        assert (ours.p_draws, ours.draws, ours.difference) == (
            test.p_draws, test.draws, test.difference)  # fmt: skip
        values.append(wanted.value)
    mean = both.level("nll", own)
    assert mean is not None and mean.value == pytest.approx(sum(values) / 2)


def test_random_masks_that_one_task_lacks_are_compared_in_the_other() -> None:
    """At full strength every mask is no mask, so there are none beside it."""
    whole = dataclasses.replace(OWN, gate=1.0)
    records = {"a": made_up(1, whole), "b": made_up(2)}
    records["a"] = {each: own for each, own in records["a"].items() if each.draw is None}
    tasks = {name: dataclasses.replace(task(), name=name) for name in records}
    both = masks_evidence(tasks, records)
    (own,) = both.selected
    assert own.gate is None
    alone = masks_evidence({"b": tasks["b"]}, {"b": records["b"]})
    wanted = alone.against("nll", alone.main)["shuffled"]
    test = both.against("nll", own, "b")["shuffled"]
    assert (test.p_draws, test.difference) == (wanted.p_draws, wanted.difference)
    assert list(both.against("nll", own)) == list(both.against("nll", own, "a")) == ["instructed"]


def test_a_perplexity_beyond_all_floats_has_no_p_over_examples() -> None:
    records = made_up(0)
    records[OWN] = MaskRecord((3000.0, 2000.0, 900.0), (3, 1, 2), ("ba", "no", "a"))
    table = masks_evidence({"turn": task()}, {"turn": records})
    tests = table.against("perplexity", OWN)["shuffled"]
    assert (tests.p_examples, tests.p_draws) == (None, 1.0)
    assert table.against("nll", OWN)["shuffled"].p_examples is not None


# Masks


def test_a_mask_of_all_heads_cannot_be_shuffled() -> None:
    every = HeadSet(UNEVEN, tuple(UNEVEN.heads()))
    for removed, words in ((HeadSet(UNEVEN, ()), "keeps"), (every, "removes")):
        mask = Mask(removed.removed())
        own, way = condition_of(mask), Way(mask)
        assert beside_controls(own, way, Draws(0, ("shuffled",))) == {own: way}
        for control in ("shuffled", "random", "same layers"):
            with pytest.raises(InputError, match=f"the mask {words} all 9 heads"):
                beside_controls(own, way, Draws(1, (control,)))


def test_masks_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    Gate(UNEVEN, np.where(UNEVEN.mask(), np.float32(0.5), 1)).save_pretrained(tmp_path / "gate")
    with pytest.raises(InputError, match="other numbers than 0 and 1"):
        read_mask(tmp_path, UNEVEN)
    mask_without(UNEVEN, (0, 0)).gate.save_pretrained(tmp_path / "good")
    assert read_mask(tmp_path / "good", UNEVEN).removed == HeadSet(UNEVEN, (Head(0, 0),))
    with pytest.raises(InputError, match=r"good.*(heads|geometry)"):
        read_mask(tmp_path / "good", Geometry((3, 3)))


# α


def test_the_best_alpha_has_the_lowest_loss_and_changes_least() -> None:
    assert best_alpha({0.0: 2.0, 0.5: 1.0, 1.0: 1.0}) == 1.0
    assert best_alpha({0.0: 0.5, 0.5: 1.0, 1.0: 1.0}) == 0.0
    assert check_grid([0.3, 0.3]) == (0.0, 0.3, 1.0)
    with pytest.raises(InputError, match="lies between 0"):
        check_grid([1.5])


def test_resamples_choose_what_is_best_everywhere() -> None:
    losses = {0.0: np.array([3.0, 2.0, 4.0]), 1.0: np.array([1.0, 1.0, 1.0])}
    assert chosen_again(losses) == {1.0: 1.0, 0.0: 0.0}
    mixed = chosen_again({0.0: np.array([0.0, 1.0]), 1.0: np.array([0.9, 0.0])})
    assert sum(mixed.values()) == pytest.approx(1)
    assert 0.2 < mixed[0.0] < 0.3  # only where the first example is drawn twice


def test_alpha_is_chosen_on_other_examples_than_it_is_measured_on() -> None:
    one = task()
    first, second = halves_of(one)
    assert {*first.examples, *second.examples} == set(one.examples)
    assert not set(first.examples) & set(second.examples)
    assert (len(first.examples), len(second.examples)) == (1, 2)
    assert halves_of(one, 1) == halves_of(one, 1)
    # Inputs that come twice stay together, whatever the seed.
    twice = tuple(Example(str(n), "abc"[n % 3], "xy"[n // 3], n) for n in range(6))
    for seed in range(6):
        parts = halves_of(dataclasses.replace(one, examples=twice), seed)
        assert [len(part.examples) for part in parts] == [2, 4]
        first, second = ({example.input for example in part.examples} for part in parts)
        assert not first & second
    with pytest.raises(InputError, match="3 of 3 inputs are among the 1 examples"):
        check_apart(
            dataclasses.replace(one, examples=twice[:1]),
            dataclasses.replace(one, examples=twice[::3] + twice[:1]),
        )


def test_the_conditions_of_the_grid_and_of_the_check() -> None:
    mask = mask_without(UNEVEN, (0, 1))
    grid = grid_conditions(mask, (0.0, 0.5, 1.0), Draws(2, ("shuffled",)))
    ids = ["original", "mask alone", "selected own mask 1 \u00d70.5", "selected own mask 1",
           "not instructed", "not instructed own mask"]  # fmt: skip
    assert [each.id for each in grid if each.draw is None] == ids
    assert [way.instructed for way in grid.values()] == [True] * 8 + [False] * 2
    half = next(each for each in grid if each.gate == 0.5)
    drawn = [grid[each] for each in grid if each.kind == "shuffled" and each.controls(half)]
    values = {float(value) for way in drawn if way.mask for value in way.mask.gate.values.flat}
    assert len(drawn) == 2 and values == {0.5, 1.0}
    # The mask itself is asked once.
    assert len({way.key for way in grid.values()}) == 9
    check = check_conditions(mask, 0.5, Draws(1, ("shuffled", "shuffled same layers")))
    kinds = ["original", "mask alone", "selected", "shuffled", "shuffled same layers"]
    assert [each.kind for each in check] == kinds
    assert len(check_conditions(mask, 1.0, Draws(1, ("shuffled",)))) == 3


def test_a_mask_keeps_its_other_gates_where_heads_are_shuffled() -> None:
    parts = np.array([1, 0, 1, 1], dtype=np.float32)
    mask = Mask(mask_without(UNEVEN, (0, 1)).gate, parts, "query", "m")
    for each, way in mask_conditions(TaskMasks(mask), Draws(2, ("shuffled",))).items():
        if each.heads:
            assert way.mask is not None and way.mask.place == "query"
            assert way.mask.feed_forward is not None
            assert way.mask.feed_forward.tolist() == parts.tolist()
            assert [head.key for head in way.mask.removed] == list(each.heads)


# Families


def test_shared_heads_are_intersections_and_unused_ones_in_no_mask() -> None:
    geometry = Geometry((4, 4))
    every = set(geometry.heads())
    masks = {
        "en-de": mask_without(geometry, (0, 0), (0, 1), (1, 3)),
        "en-ru": mask_without(geometry, (0, 0), (1, 0), (1, 3)),
        "tr-ru": mask_without(geometry, (0, 0), (0, 2), (1, 1)),
    }
    kept = {name: every - set(mask.removed) for name, mask in masks.items()}
    found = {one.name: one for one in families(masks, {"mine": ("en-de", "tr-ru")})}
    assert set(found) == {"all", "en", "ru", "mine", "unused"}
    assert set(found["all"].heads) == set.intersection(*kept.values())
    assert set(found["en"].heads) == kept["en-de"] & kept["en-ru"]
    assert set(found["ru"].heads) == kept["en-ru"] & kept["tr-ru"]
    assert set(found["mine"].heads) == kept["en-de"] & kept["tr-ru"]
    assert set(found["unused"].heads) == every - set.union(*kept.values()) == {Head(0, 0)}
    planned = family_conditions(list(found.values()), Draws(2, ("random", "same layers")))
    assert [each.kind for each in planned][:2] == ["original", "selected"]
    for each, way in [*planned.items()][1:]:
        assert way.instructed and way.mask is not None
        assert len(way.mask.removed) == len(each.heads) == len(found[each.of].heads)
    assert len({each.id for each in planned}) == len(planned)


def test_the_surest_shared_heads_have_the_largest_smallest_weight(tmp_path: Path) -> None:
    random, geometry = np.random.default_rng(0), Geometry.uniform(4, 4)
    # Few values, so that smallest weights are equal and means decide.
    weights = random.integers(0, 4, (3, *geometry.shape)).astype(float)
    places = [tmp_path / str(at) for at in range(len(weights))]
    for place, own in zip(places, weights, strict=True):
        save_scores(place, HeadScores(geometry, own, "mask"))
    shared = HeadSet(geometry, tuple(head for head in geometry.heads() if head != Head(0, 0)))
    for k in range(1, 17):
        chosen = set(surest(shared, places, k))
        assert len(chosen) == min(k, 15) and chosen <= set(shared)
        ranks = {
            head: (
                weights[:, head.layer, head.head].min(),
                weights[:, head.layer, head.head].mean(),
            )
            for head in shared
        }
        others = [ranks[head] for head in shared if head not in chosen]
        assert not others or min(ranks[head] for head in chosen) >= max(others)
    assert len(surest(shared, places, 0.25)) == 4  # a share of all heads of the model
    with pytest.raises(InputError, match="no weights"):
        surest(shared, [tmp_path / "none"], 1)


def test_families_that_cannot_be_made_are_refused() -> None:
    masks = {name: mask_without(UNEVEN, (0, 0)) for name in ("a", "b")}
    with pytest.raises(InputError, match="at least two runs"):
        families({"a": masks["a"]})
    with pytest.raises(InputError, match="names the task 'c'"):
        families(masks, {"x": ("c",)})
    with pytest.raises(InputError, match="cannot be called 'all'"):
        families(masks, {"all": ("a",)})
    with pytest.raises(InputError, match="NAME=TASK,TASK"):
        parse_family("x=")
    with pytest.raises(InputError, match="cannot be a folder's name"):
        parse_family("../x=a,b")
    assert parse_family("x=a, b") == ("x", ("a", "b"))
