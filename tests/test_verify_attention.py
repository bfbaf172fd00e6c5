"""Attention on the right one of several words: places, shares, evidence, the command."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from headscope.data.tasks import Example, Task
from headscope.errors import InputError
from headscope.heads import Geometry, Head
from headscope.lm.batching import collate
from headscope.lm.inputs import forward_inputs
from headscope.studies.report import write_report
from headscope.verify.looking import Placed, describe, place_candidates, target_shares
from lm_helpers import folded, wrapped
from mask_helpers import all_but, write_mask_run


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
    found = describe("as is", share, mass, [1 / 3] * 40, kept)
    inside, outside = share[:, kept], share[:, ~kept]
    by_sample = np.nanmean(inside, axis=1)
    assert found.heads["in"].mean == pytest.approx(by_sample.mean(), rel=1e-5)
    assert found.heads["out"].mean == pytest.approx(outside.mean(), rel=1e-5)
    assert [found.heads[group].count for group in ("all", "in", "out")] == [8, 4, 4]
    difference = by_sample - outside.mean(axis=1)
    row = found.in_minus_out
    assert row is not None and row.mean == pytest.approx(difference.mean(), rel=1e-5)
    assert row.low < row.mean < row.high
    assert row.low > 0.15
    assert found.uniform.mean == pytest.approx(1 / 3)
    assert found.undefined == pytest.approx(1 / 320)
    # Of the 70 sets of 4 of 8 heads only the mask and its complement lie so far out.
    assert found.random is not None
    assert found.random.p_value is not None and found.random.p_value < 0.06
    even = describe("as is", np.full((5, 2, 4), 0.3), mass[:5], [0.3] * 5, kept)
    assert even.random is not None and even.random.p_value == 1
    assert even.above_uniform is not None and even.above_uniform.mean == pytest.approx(0)


def test_on_the_bundled_model(tmp_path: Path, command: Callable[..., Any]) -> None:
    geometry = Geometry.uniform(6, 16)
    removed = [Head(layer, head) for layer in range(6) for head in range(0, 16, 5)]
    mask = write_mask_run(tmp_path / "mask", geometry, all_but(geometry, removed), "odd")
    words = ["king", "queen", "dog", "cat", "house", "tree", "book", "fish"]
    triples = [[word, "sees", words[(n + 3) % 8]] for n, word in enumerate(words)]
    rows = [{"input": ", ".join(x), "output": "sees", "candidates": x} for x in triples]
    task = tmp_path / "odd<i>.json"
    task.write_text(json.dumps(rows))
    out = tmp_path / "out"
    arguments = ("verify", "attention", "--heads", mask, "--task", task, "--draws", 2, "--out", out)
    code, said, _ = command(*arguments, "--instruction", "Find the verb: {input}\\n", "--json")
    assert code == 0
    result = json.loads(said)
    (own,) = result["tasks"].values()
    names = ["as is", "instructed", "masked", "masked, instructed", "shuffled"]
    assert [row["condition"] for row in own["conditions"]] == names
    assert own["mask"]["kept"] == own["conditions"][2]["heads"]["in"]["count"] == 96 - 24
    assert len(own["conditions"][4]["heads"]["in"]["draws"]) == 2
    stored = load_file(out / "attention" / "odd<i>.safetensors")
    assert stored["share.as is"].shape == (8, 6, 16)
    # The first layer sees nothing of the gates.
    np.testing.assert_allclose(stored["share.as is"][:, 0], stored["share.masked"][:, 0], atol=1e-6)
    assert np.nanmax(abs(stored["share.as is"] - stored["share.masked"])) > 1e-3
    assert "odd<i>" not in write_report(out).read_text()
    code, said, err = command(*arguments[:-4], "--shots", 2)
    assert code == 2
    assert "leave --shots out" in err
    # Without an instruction only what needs none is measured.
    code, said, _ = command(*arguments[:-2], "--out", tmp_path / "bare", "--json")
    assert code == 0
    (own,) = json.loads(said)["tasks"].values()
    assert [row["condition"] for row in own["conditions"]] == ["as is", "masked", "shuffled"]
