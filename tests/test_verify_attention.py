"""Attention on the right one of several words: places, shares, evidence, the command."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch

from headscope.data.tasks import Example, Task
from headscope.errors import InputError
from headscope.evidence.rows import Condition
from headscope.lm.batching import collate
from headscope.lm.inputs import forward_inputs
from headscope.verify.attention_shares import (
    STATISTICS,
    Placed,
    beside_random_sets,
    numbers_of,
    place_candidates,
    target_shares,
)
from headscope.verify.masked_tasks.evidence import of_tasks
from lm_helpers import folded, wrapped


def task_of(*rows: tuple[str, str, tuple[str, ...]], chat: bool | None = False) -> Task:
    examples = tuple(
        Example(str(n), given, wanted, n, words) for n, (given, wanted, words) in enumerate(rows, 1)
    )
    return Task("odd", examples, "Which is odd? {input}\nAnswer:", "{input}\n", chat=chat)


def pieces(lm: Any, placed: Placed, places: tuple[int, ...]) -> str:
    return "".join(lm.tokenizer.decode([placed.ids[at]]) for at in places)


def test_candidates_are_found_where_they_stand() -> None:
    lm = wrapped("llama")  # one token a character
    task = task_of(("red, reddish, odd", "red", ("red", "reddish", "odd")))
    for instructed in (False, True):
        placed = place_candidates(lm, task, task.examples[0], instructed)
        assert pieces(lm, placed, placed.target) == "red"
        assert pieces(lm, placed, placed.others) == "reddishodd"
        assert placed.uniform == pytest.approx(3 / 13)
        text = lm.tokenizer.decode(list(placed.ids))
        assert text.endswith("Answer: " if instructed else "odd\n")
    # The "odd" of the instruction is none of the candidates.
    told = place_candidates(lm, task, task.examples[0], True)
    assert min(told.target + told.others) >= len("Which is odd? ")


def test_a_candidate_is_a_word_of_its_own_where_there_is_one() -> None:
    lm = wrapped("llama")
    # Candidates of a column need not be in the order of the input.
    task = task_of(("cart, art", "art", ("art", "cart")), ("carts", "art", ("art", "carts")))
    first, inside = (place_candidates(lm, task, one) for one in task.examples)
    assert first.target == (6, 7, 8) and first.others == (0, 1, 2, 3)
    assert inside.target == (1, 2, 3)


def test_candidates_are_found_behind_a_chat_template() -> None:
    lm = wrapped("llama")
    lm.tokenizer.chat_template = (
        "{% for m in messages %}odd cat {{ m['content'] }} ;{% endfor %}"
        "{% if add_generation_prompt %} say:{% endif %}"
    )
    task = task_of(("cat, odd", "odd", ("cat", "odd")), chat=None)
    placed = place_candidates(lm, task, task.examples[0])
    assert pieces(lm, placed, placed.target) == "odd"
    assert pieces(lm, placed, placed.others) == "cat"
    assert min(placed.others) == len("odd cat ")
    assert min(placed.target) == len("odd cat cat, ")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (("a, b", "a", ()), "no candidates"),
        (("a, b", "a", ("a",)), "no candidates"),
        (("a, b", "c", ("a", "b")), "no candidates"),
        (("a, b", "a", ("a", "z")), "'z' is not in the input"),
    ],
)
def test_examples_without_candidates_are_told(
    row: tuple[str, str, tuple[str, ...]], said: str
) -> None:
    task = task_of(row)
    with pytest.raises(InputError, match=said):
        place_candidates(wrapped("llama"), task, task.examples[0])


PROMPTS = [
    Placed((5, 9, 20, 33, 7, 8), (1, 2), (3,)),
    Placed((8, 40, 41, 60), (2,), (0, 1)),
    Placed((11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21), (0,), (1, 2)),
]


@pytest.mark.parametrize("name", ["llama", "gemma2", "bloom", "qwen3_next"])
def test_shares_are_those_of_eager_attention(name: str) -> None:
    lm = wrapped(name, attn_implementation="eager")
    gate = torch.ones(lm.geometry.layers, lm.geometry.width)
    gate[lm.sites[0].layer, 1] = 0.0
    with lm.gated(gate):
        share, mass = target_shares(lm, PROMPTS, batch_tokens=12)
    model = folded(lm, gate)
    for number, prompt in enumerate(PROMPTS):
        inputs = forward_inputs(model, collate([prompt.ids], 0))
        with torch.no_grad():
            found = model(**inputs, output_attentions=True).attentions
        found = [one for one in found if one is not None]
        for site, weights in zip(lm.sites, found, strict=True):
            last = weights[0, :, -1]
            target = last[:, list(prompt.target)].sum(dim=1)
            every = target + last[:, list(prompt.others)].sum(dim=1)
            own = torch.from_numpy(mass[number, site.layer, : site.heads])
            torch.testing.assert_close(own, every, atol=1e-5, rtol=1e-4)
            for head in range(site.heads):
                got = share[number, site.layer, head]
                if float(every[head]) == 0:  # behind a sliding window
                    assert np.isnan(got)
                else:
                    assert got == pytest.approx(float(target[head] / every[head]), rel=1e-3)
    without = [layer for layer, heads in enumerate(lm.geometry.counts) if not heads]
    assert np.isnan(mass[:, without]).all()


def test_the_evidence_is_what_it_says() -> None:
    random = np.random.default_rng(0)
    share = random.uniform(0.2, 0.4, (40, 2, 4)).astype(np.float32)
    kept = np.zeros((2, 4), dtype=bool)
    kept[:, :2] = True
    share[:, :, :2] += 0.2  # the heads of the mask look at the target
    share[0, 0, 0] = np.nan
    mass = np.ones_like(share)

    def levels(*arguments: Any) -> dict[str, Any]:
        table = of_tasks({"odd": {Condition(): numbers_of(*arguments)}}, STATISTICS, by_size=False)
        return {row.statistic: row for row in table.levels}

    found = levels(share, mass, [1 / 3] * 40, kept)
    inside, outside = share[:, kept], share[:, ~kept]
    by_sample = np.nanmean(inside, axis=1)
    assert found["share_in"].value == pytest.approx(by_sample.mean(), rel=1e-5)
    assert found["share_out"].value == pytest.approx(outside.mean(), rel=1e-5)
    difference = by_sample - outside.mean(axis=1)
    row = found["in_minus_out"]
    assert row.value == pytest.approx(difference.mean(), rel=1e-5)
    assert 0.15 < row.low < row.value < row.high
    assert found["uniform"].value == pytest.approx(1 / 3)
    assert found["undefined"].value == pytest.approx(1 / 320)
    assert found["attention_all"].value == 1
    # Pooled: a head counts by how much it attends to the candidates.
    attended = np.where(np.isnan(share), 0, mass)
    attended[:, :, 0] *= 3
    pooled = levels(share, attended, [1 / 3] * 40, kept, True)["share_in"].value
    wanted = [
        np.nansum(row[kept] * own[kept]) / own[kept].sum()
        for row, own in zip(share, attended, strict=True)
    ]
    assert pooled == pytest.approx(np.mean(wanted), rel=1e-5)
    assert pooled != pytest.approx(by_sample.mean(), rel=3e-5)
    random = beside_random_sets(share, kept, np.ones_like(kept), mass=attended)
    flat = (np.nan_to_num(share).reshape(40, 8), attended.reshape(40, 8))
    sets = map(list, itertools.combinations(range(8), 4))
    every = [((flat[0] * flat[1])[:, one].sum(1) / flat[1][:, one].sum(1)).mean() for one in sets]
    assert random.mean == pytest.approx(np.mean(every), abs=0.005)
    # Of the 70 sets of 4 of 8 heads only the mask and its complement lie so far out.
    everywhere = np.ones_like(kept)
    random = beside_random_sets(share, kept, everywhere)
    assert random.p_value is not None and random.p_value < 0.06
    same = np.full((5, 2, 4), 0.3)
    assert beside_random_sets(same, kept, everywhere).p_value == 1
    even = levels(same, mass[:5], [0.3] * 5, kept)
    assert even["above_uniform"].value == pytest.approx(0)
    # Samples without attention on candidates are left out, not 0.
    share[:10] = np.nan
    found = levels(share, mass, [1 / 3] * 40, kept)
    assert found["share_in"].value == pytest.approx(by_sample[10:].mean(), rel=1e-5)
    assert "share_out" not in levels(share, mass, [1 / 3] * 40, everywhere)
