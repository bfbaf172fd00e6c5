"""Tests of a mask: its parts against naive twins written from the definitions."""

from __future__ import annotations

import dataclasses
import itertools
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
from headscope.heads import Gate, Geometry, Head, HeadSet
from headscope.lm.generation import GenerateConfig
from headscope.lm.model import LanguageModel
from headscope.results.mask_tests import Outcome, mean_of
from headscope.runs import decode, encode
from headscope.verify.masks import Asking, Mask, Masking, MaskRecord, ask, asked, read_mask
from headscope.verify.masks.asking import shuffled
from headscope.verify.masks.conditions import (
    best_alpha,
    check_apart,
    check_conditions,
    check_grid,
    chosen_again,
    families,
    family_conditions,
    grid_conditions,
    halves_of,
    parse_family,
)
from headscope.verify.masks.evidence import (
    character_bleu,
    describe,
    marks,
    paragraph_bleu,
    right,
    right_as_words,
    statistics,
    together,
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
    plain = marks(task(at_start=True), ["ba", "xzyx", "a\nb"])
    assert plain["accuracy"][:, 0].tolist() == [1, 0, 1]
    # The whole output is seen: of two words one is right.
    assert plain["rouge_l"][:, 0].tolist() == pytest.approx([100, 0, 200 / 3])
    sentences = marks(task(translation=True), ["ba", "b", "a\nmore"])
    assert "accuracy" not in sentences
    assert set(sentences) == {"rouge_l", "chrf", "bleu", "bleu_published"}
    assert sentences["bleu_published"][0, 0] == pytest.approx(100 * character_bleu("ba", "ba"))


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
    plain = ask(lm, question, Masking("as-is", "as is"), Asking())
    told = ask(lm, question, Masking("instructed", "i", None, True), Asking(), write=False)
    masked = ask(lm, question, Masking("masked", "m", gone), Asking(3))
    assert told.texts == ()
    examples = task().examples
    for record, prompts in (
        (plain, [f"{one.input}=" for one in examples]),
        (told, [f"Turn {one.input}:" for one in examples]),
    ):
        pairs = list(zip(prompts, (one.output for one in examples), strict=True))
        naive = naive_losses(lm, pairs)
        assert record.nll == pytest.approx([loss for loss, _ in naive], rel=1e-4)
        assert list(record.tokens) == [count for _, count in naive]
    without = LanguageModel.wrap(
        lm_helpers.folded(lm, torch.from_numpy(gone.gate.values.copy())), lm.tokenizer, check=False
    )
    pairs = [(f"{one.input}=", one.output) for one in examples]
    naive = naive_losses(without, pairs)
    assert masked.nll == pytest.approx([loss for loss, _ in naive], rel=1e-4)
    assert list(masked.texts) == [
        without.generate([f"{one.input}="], GenerateConfig(3, stop_at_newline=False))[0].text
        for one in examples
    ]


def test_a_loss_that_is_no_number_names_its_example() -> None:
    lm = lm_helpers.wrapped("llama")
    with torch.no_grad():
        lm.model.lm_head.weight.fill_(float("nan"))
    with pytest.raises(
        InputError, match=r"f, example 1 \(line 1\): its loss under 'as is' is no finite number"
    ):
        ask(lm, asked(task()), Masking("as-is", "as is"), Asking())


# Evidence


def test_values_and_differences_equal_plain_means() -> None:
    geometry = Geometry((2, 2))
    gone = mask_without(geometry, (0, 0))
    planned = [
        Masking("as-is", "as is"),
        Masking("instructed", "instructed", instructed=True),
        Masking("masked", "masked", gone),
        *(Masking("shuffled", f"shuffled {n}", gone, draw=n) for n in range(3)),
        Masking("removed", "harm", gone, harmful=True),
    ]
    random = np.random.default_rng(0)
    tokens = (3, 1, 2)
    records = [
        MaskRecord(tuple(random.uniform(1, 5, 3) * tokens), tokens, ("ba", "no", "a"))
        for _ in planned
    ]
    numbers = [statistics(task(), record) for record in records]
    rows = describe(planned, numbers, beside=("instructed",))
    for row, record in zip(rows, records, strict=True):
        each = [loss / count for loss, count in zip(record.nll, tokens, strict=True)]
        assert row.nll == pytest.approx(sum(each) / 3)
        assert row.nll_tokens == pytest.approx(sum(record.nll) / 6)
        assert row.perplexity == pytest.approx(math.exp(sum(record.nll) / 6))
        assert row.accuracy == pytest.approx(2 / 3)
        loss = row.level("nll")
        assert min(each) - 1e-9 <= loss.low <= loss.value <= loss.high <= max(each) + 1e-9
    base, instructed, masked, *draws, harm = rows
    assert base.change is None
    assert masked.changed("nll").value == pytest.approx(masked.nll - base.nll)
    gap = (masked.against_instructed or {})["nll"]
    assert gap.value == pytest.approx(masked.nll - instructed.nll)
    beside, harmful = masked.shuffled_draws, harm.shuffled_draws
    assert beside is not None and harmful is not None
    mean = sum(one.nll for one in draws) / 3
    assert mean_of(draws, "nll") == pytest.approx(mean)
    assert beside.against["nll"].value == pytest.approx(masked.nll - mean)
    good = sum(one.nll <= masked.nll for one in draws)
    bad = sum(one.nll >= harm.nll for one in draws)
    assert beside.p_draws["nll"] == (1 + good) / 4
    assert harmful.p_draws["nll"] == (1 + bad) / 4
    assert beside.p_draws["accuracy"] == 1
    both = together([rows, rows])
    assert both[2].nll == pytest.approx(masked.nll)
    assert both[2].chrf is None
    assert decode(Outcome, encode(masked)) == masked


# Masks


def test_a_mask_of_all_heads_cannot_be_shuffled() -> None:
    assert shuffled(mask_without(UNEVEN), 0) == []
    with pytest.raises(InputError, match="keeps all 9 heads"):
        shuffled(Mask(Gate.identity(UNEVEN), name="m"), 1)


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
    grid = grid_conditions(mask, (0.0, 0.5, 1.0), 2)
    assert [one.name for one in grid[:3]] == ["α 1", "α 0.5", "α 0"]
    assert grid[0].mask is None
    assert [one.instructed for one in grid[-2:]] == [False, False]
    assert sum(one.of == "α 0.5" for one in grid) == 2
    assert [one.kind for one in check_conditions(mask, 0.5, 1)] == [
        "instructed",
        "masked",
        "scaled",
        "shuffled",
    ]
    assert len(check_conditions(mask, 1.0, 1)) == 3


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
    planned = family_conditions(list(found.values()), 2)
    assert [one.kind for one in planned[:2]] == ["instructed", "removed"]
    for one in planned[1:]:
        assert one.mask is not None
        family = found[one.of or one.name]
        assert len(one.mask.removed) == len(family.heads)
        assert one.instructed
    unused = next(one for one in planned if one.name == "unused")
    assert not unused.harmful
    names = [one.name for one in planned]
    assert len(set(names)) == len(names)
    assert all(a != b for a, b in itertools.pairwise(names))


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
