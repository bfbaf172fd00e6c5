"""Hidden states as is, instructed, masked and both: values, evidence, the command and its page."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from headscope.compare.states_similarity import PAIRS, Sample, describe, observe, states_evidence
from headscope.errors import InputError
from headscope.evidence.controls import sets_of
from headscope.evidence.rows import SELECTED, Condition, Evidence
from headscope.heads import Head, HeadSet
from headscope.lm.batching import collate
from headscope.lm.inputs import forward_inputs
from headscope.lm.lens import lens
from headscope.studies.masked_tasks import read_task_for_mask
from headscope.studies.models import ModelChoice
from headscope.studies.tasks import TaskChoice
from headscope.verify.masked_tasks.asking import Mask
from lm_helpers import folded, wrapped

SAMPLES = [
    Sample((5, 9, 20), (40, 41, 5, 9, 20, 33), 7),
    Sample((8, 40, 41, 60), (40, 41, 8, 40, 41, 60, 33), 9),
]


def naive_states(model: Any, row: tuple[int, ...]) -> torch.Tensor:
    """What the model itself says its hidden states are at the last token: (L + 1, D)."""
    with torch.no_grad():
        inputs = forward_inputs(model, collate([row], 0))
        found = model(**inputs, output_hidden_states=True).hidden_states
    return torch.stack([state[0, -1] for state in found])


def test_states_that_are_no_numbers_name_the_sample() -> None:
    lm = wrapped("llama", layers=2)
    with torch.no_grad():
        lm.model.get_input_embeddings().weight[9] = float("nan")
    mask = Mask(HeadSet.parse("0.0", lm.geometry).removed(), name="own")
    samples = [
        Sample((5, 8), (5, 8, 33), 7, "t, first"),
        Sample((5, 9), (5, 9, 33), 7, "t, second"),
    ]
    with pytest.raises(InputError, match="t, second: its hidden states are no finite numbers"):
        observe(lm, samples, mask, {})


@pytest.mark.parametrize("name", ["llama", "gpt_neox", "gemma2"])
def test_cosines_are_those_of_the_models_own_hidden_states(name: str) -> None:
    lm = wrapped(name, layers=3)
    kept = HeadSet.parse("0.0,0.3,1.1,1.2,2.0,2.3", lm.geometry)
    mask = Mask(kept.complement().removed(), name="own")
    drawn = [Mask(heads.removed()) for heads in sets_of("shuffled", mask.removed, 2)]
    found = observe(lm, SAMPLES, mask, {"shuffled": drawn}, top=3)
    assert found["cosines"].shape == (6, 2, 2, 3)
    assert found["shuffled"].shape == (2, 2, 2, 3)
    masked = folded(lm, torch.from_numpy(mask.gate.values.copy()))
    other = [folded(lm, torch.from_numpy(one.gate.values.copy())) for one in drawn]
    for number, sample in enumerate(SAMPLES):
        own = {
            "as is": naive_states(lm.model, sample.bare),
            "instructed": naive_states(lm.model, sample.instructed),
            "masked": naive_states(masked, sample.bare),
            "masked, instructed": naive_states(masked, sample.instructed),
        }
        for pair, (a, b) in enumerate(PAIRS):
            wanted = torch.cosine_similarity(own[a], own[b], dim=-1)
            # The last one has been through the final norm, which the lens stands for.
            got = torch.from_numpy(found["cosines"][pair, number, 1])
            torch.testing.assert_close(got[:-1], wanted[1:-1], atol=1e-4, rtol=1e-4)
        for draw, model in enumerate(other):
            states = naive_states(model, sample.bare)
            wanted = torch.cosine_similarity(states, own["instructed"], dim=-1)
            got = torch.from_numpy(found["shuffled"][draw, number, 1])
            torch.testing.assert_close(got[:-1], wanted[1:-1], atol=1e-4, rtol=1e-4)
        with torch.no_grad():
            logits = lm.model(**forward_inputs(lm.model, collate([sample.bare], 0))).logits[0, -1]
        best = logits.sort(descending=True).indices[:3].tolist()
        assert found["lens_tokens"][0, number, -1].tolist() == best
        rank = 1 + int((logits > logits[sample.target]).sum())
        assert found["ranks"][0, number, -1] == rank
        stream = own["masked"][1:2]
        assert found["lens_tokens"][2, number, 1].tolist() == lens(lm, stream, 3).tokens[0].tolist()


def test_a_mask_that_keeps_everything_is_the_model_as_it_is() -> None:
    lm = wrapped("llama")
    nothing = Mask(HeadSet(lm.geometry, ()).removed(), name="all")
    found = observe(lm, SAMPLES, nothing, {}, top=1)
    place = {pair: number for number, pair in enumerate(PAIRS)}
    np.testing.assert_allclose(found["cosines"][place["as is", "masked"]], 1, atol=1e-6)
    assert (found["lens_tokens"][0] == found["lens_tokens"][2]).all()
    with pytest.raises(InputError, match="top is 0"):
        observe(lm, SAMPLES, nothing, {}, top=0)


def made_up(samples: int = 30, layers: int = 4, draws: int = 3) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    shape = (samples, 2, layers)
    return {
        "cosines": random.normal(0.5, 0.1, (6, *shape)).astype(np.float32),
        "shuffled": random.normal(0.3, 0.1, (draws, *shape)).astype(np.float32),
        "lens_tokens": random.integers(0, 9, (4, samples, layers + 1, 5)).astype(np.int32),
        "lens_logits": random.normal(size=(4, samples, layers + 1, 5)).astype(np.float32),
        "ranks": random.integers(1, 50, (4, samples, layers + 1)).astype(np.int32),
    }


def evidence_of(tensors: dict[str, np.ndarray]) -> Evidence:
    own = Condition(SELECTED, "", 2, 0.0, heads=("0.0", "0.1"))
    draws = [Condition("shuffled", "", 2, 0.0, draw=at, heads=(f"1.{at}", "2.0"))
             for at in range(len(tensors["shuffled"]))]  # fmt: skip
    return states_evidence(tensors, "t", [Condition(), own, *draws])


def test_evidence_is_what_it_says() -> None:
    tensors = made_up()
    found, table = describe(tensors, ("shuffled",)), evidence_of(tensors)
    place = {pair: number for number, pair in enumerate(PAIRS)}
    masked = tensors["cosines"][place["instructed", "masked"]].astype(float)
    plain = tensors["cosines"][place["as is", "instructed"]].astype(float)
    difference = (masked - plain)[:, 1]
    for layer, row in enumerate(found.nearer["original"].after_layer):
        values = difference[:, layer]
        error = values.std() / len(values) ** 0.5
        assert row.mean == pytest.approx(values.mean())
        # The bootstrap's interval is near the normal one.
        assert row.high - row.low == pytest.approx(2 * 1.96 * error, rel=0.25)
        assert row.low < row.mean < row.high
    level = table.level("cosine", table.main)
    assert level is not None and level.change is not None
    assert level.value == pytest.approx(masked[:, 1, 2:].mean())
    assert level.change.value == pytest.approx(difference[:, 2:].mean())
    test = table.against("cosine", table.main)["shuffled"]
    assert (test.p_draws, test.draws, test.side) == (pytest.approx(1 / 4), 3, "higher")
    assert list(found.controls) == ["shuffled"]
    few = made_up(samples=8)
    own = few["cosines"][place["instructed", "masked"]].astype(float)[:, 1, 2:].mean(axis=1)
    drawn = few["shuffled"].astype(float)[:, :, 1, 2:].mean(axis=2) + 0.15
    few["shuffled"][:, :, 1, 2:] += np.float32(0.15)
    as_far = [
        np.mean(np.where(swapped, one - own, own - one)) >= np.mean(own - drawn.mean(axis=0)) - 1e-6
        for one in drawn
        for swapped in itertools.product((False, True), repeat=8)
    ]
    few_table = evidence_of(few)
    tested = few_table.against("cosine", few_table.main)["shuffled"].p_examples
    assert tested == pytest.approx(np.mean(as_far), abs=0.02)
    one = found.shared_top[0]
    by_hand = np.mean(
        [
            sum(t in set(tensors["lens_tokens"][1, n, 2]) for t in tensors["lens_tokens"][0, n, 2])
            / 5
            for n in range(30)
        ]
    )
    assert (one.a, one.b) == ("as is", "instructed")
    assert one.layers[2].mean == pytest.approx(by_hand)
    ranks = tensors["ranks"][2, :, -1].astype(float)
    told = found.target_ranks["masked"][-1]
    assert told.median == np.median(ranks)
    assert told.geometric_mean == pytest.approx(np.exp(np.log(ranks).mean()))


def test_what_cannot_be_compared_is_told(tmp_path: Path) -> None:
    pocket = ModelChoice()
    with pytest.raises(InputError, match="no task given"):
        read_task_for_mask("0.1,0.2", TaskChoice(), pocket)
    with pytest.raises(InputError, match="one task at a time"):
        read_task_for_mask(
            "0.1,0.2", TaskChoice(pair=("en-de", "de-en"), held_out=3, limit=9), pocket
        )
    task = tmp_path / "odd.json"
    task.write_text(json.dumps([{"input": f"word {n}", "output": "x"} for n in range(5)]))
    with pytest.raises(InputError, match="has no instruction"):
        read_task_for_mask("0.1,0.2", TaskChoice(task=(str(task),)), pocket)
    chosen = read_task_for_mask("0.1,0.2", TaskChoice(pair=("en-de",), held_out=3, limit=9), pocket)
    geometry = wrapped("llama").geometry
    assert set(chosen.mask(geometry).kept) == {Head(0, 1), Head(0, 2)}
    every = ",".join(head.key for head in geometry.heads())
    chosen = read_task_for_mask(every, TaskChoice(pair=("en-de",), held_out=3, limit=9), pocket)
    with pytest.raises(InputError, match="keeps 8 of 8 heads"):
        chosen.mask(geometry)
