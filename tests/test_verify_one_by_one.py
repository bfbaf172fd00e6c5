"""Heads removed one by one: against a plain loop, in every order, in a run that is stopped."""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import lm_helpers
from conftest import json_of
from headscope.errors import InputError
from headscope.heads import Head, HeadScores, HeadSet, save_scores
from headscope.lm.generation import GenerateConfig
from headscope.lm.model import LanguageModel
from headscope.runs import encode
from headscope.studies.pairs import PairsChoice
from headscope.studies.verify import walks as recipe
from headscope.studies.verify.one_by_one import OneByOne, comparison, starting_order
from headscope.verify.one_by_one_steps import (
    Prepared,
    Step,
    Subject,
    Walk,
    joined,
    order_gates,
    prepare,
    rank_changes,
    reordered,
    walk,
)

PROMPT = (
    "Translate this sentence from English to German\nSentence: Our king always kissed Anton.\n"
    "Answer:"
)
TARGET = "Unser König hat immer Anton geküsst."
#: Logits nearer to each other than this may change places between batches of other sizes.
NEAR = 1e-4


def plain(lm: LanguageModel, ready: Prepared, order: list[Head], gate: float) -> list[Any]:
    """Each step by itself: (ranks low, ranks high), cosines and text, by the definitions."""
    found = []
    for step in range(len(order) + 1):
        values = np.ones(lm.geometry.shape, dtype=np.float32)
        for head in order[:step]:
            values[head.layer, head.head] = gate
        with lm.gated(torch.from_numpy(values)), torch.no_grad():
            out = lm.model(torch.tensor([ready.ids]), output_hidden_states=True, use_cache=False)
            made = lm.generate([ready.subject.prompt], GenerateConfig(8))[0].text
        last = out.logits[0, -1].double().numpy()
        bounds = []
        for token in (ready.target_token, *ready.top):
            bounds.append(
                (1 + int((last > last[token] + NEAR).sum()), int((last > last[token] - NEAR).sum()))
            )
        # The last of these is what comes after the final norm, which is not a layer's output.
        states = [one[0, -1].double().numpy() for one in out.hidden_states[1:-1]]
        found.append((bounds, states, made))
    return found


@pytest.mark.parametrize("gate", [0.0, 1.7])
@pytest.mark.parametrize("share", [True, False])
def test_steps_are_those_of_a_plain_loop(pocket: LanguageModel, gate: float, share: bool) -> None:
    order = list(pocket.geometry.heads())[::-1][:20]  # the last layers, which tell the next token
    ready = prepare(pocket, Subject("one", PROMPT, TARGET, None, 8))

    def gates(steps: range) -> torch.Tensor:
        return order_gates(pocket.geometry, order, gate, steps)

    # Small batches, so that steps of one walk come from several.
    seen: dict[int, Step] = {}
    walk(pocket, ready, gates, range(len(order) + 1), Walk(True, 29 * 6, share), seen.update)
    steps = [seen[step] for step in range(len(order) + 1)]
    expected = plain(pocket, ready, order, gate)
    whole = expected[0][1]
    assert steps[0].target_rank == 1 and steps[0].top5_ranks == (1, 2, 3, 4, 5)
    assert len({step.top5_ranks for step in steps}) > 5
    for step, (bounds, states, text) in zip(steps, expected, strict=True):
        for rank, (low, high) in zip((step.target_rank, *step.top5_ranks), bounds, strict=True):
            assert low <= rank <= max(low, high)
        cosines = [
            float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))
            for a, b in zip(states, whole, strict=True)
        ]
        assert step.similarity[:-1] == pytest.approx(cosines, abs=1e-5)
        assert step.text == text
    assert steps[0].similarity == pytest.approx([1.0] * pocket.geometry.layers, abs=1e-6)


@pytest.mark.parametrize("where", lm_helpers.SCARCE)
def test_memory_is_given_in_halves(
    where: str, pocket: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = list(pocket.geometry.heads())[:9]
    ready = prepare(pocket, Subject("one", PROMPT, TARGET))
    asked: list[range] = []

    def gates(steps: range) -> torch.Tensor:
        asked.append(steps)
        if len(steps) > 3:
            lm_helpers.no_memory(where)
        return order_gates(pocket.geometry, order, 0.0, steps)

    kept: dict[int, Step] = {}
    walk(pocket, ready, gates, range(10), Walk(text=False), kept.update)
    assert [len(one) for one in asked if len(one) > 3] == [10, 5]
    assert sorted(kept) == list(range(10))
    asked.clear()
    again: dict[int, Step] = {}
    walk(pocket, ready, gates, [4, 5, 9], Walk(text=False), again.update)
    assert asked == [range(4, 6), range(9, 10)] and sorted(again) == [4, 5, 9]
    assert all(again[step].target_rank == kept[step].target_rank for step in again)


def test_gates_of_steps_and_orders_from_changes(pocket: LanguageModel) -> None:
    geometry = pocket.geometry
    order = [Head(2, 1), Head(0, 3), Head(5, 15)]
    whole = order_gates(geometry, order, 0.5)
    for step in range(4):
        expected = HeadSet(geometry, tuple(order[:step])).scaled(0.5).values
        assert np.array_equal(whole[step].numpy(), expected)
    for part in (range(0, 2), range(1, 4), range(3, 4)):
        assert torch.equal(order_gates(geometry, order, 0.5, part), whole[part.start : part.stop])
        alone = order_gates(geometry, order, 0.5, part, alone=True)
        for row, step in enumerate(part):
            one = HeadSet(geometry, tuple(order[step - 1 : step] if step else ()))
            assert np.array_equal(alone[row].numpy(), one.scaled(0.5).values)
    # Two sentences; a change is positive where the target came nearer to the first place.
    ranks = [[10, 7, 9, 1], [10, 9, 9, 9]]
    assert rank_changes(ranks) == [2.0, -1.0, 4.0]
    assert rank_changes(ranks, alone=True) == [2.0, 1.0, 5.0]
    assert reordered([*order, Head(1, 1)], [2.0, -1.0, 4.0]) == [
        Head(5, 15),
        Head(2, 1),
        Head(0, 3),
        Head(1, 1),
    ]
    assert reordered(order, [1.0, 1.0, 2.0]) == [Head(5, 15), Head(2, 1), Head(0, 3)]


def test_the_first_token_of_a_target_is_the_one_that_follows_the_prompt(
    pocket: LanguageModel,
) -> None:
    ready = prepare(pocket, Subject("one", PROMPT, TARGET))
    whole = pocket.encode(f"{PROMPT} {TARGET}")
    assert ready.target_token == whole[len(ready.ids)]
    assert pocket.tokenizer.decode([ready.target_token]).strip() and ready.target_token in ready.top
    assert joined("Answer:", "Ja") == "Answer: Ja" and joined("Answer:\n", "Ja") == "Answer:\nJa"
    with pytest.raises(InputError, match="target is empty"):
        prepare(pocket, Subject("one", PROMPT, "  "))
    with pytest.raises(InputError, match=r"reads at most 1024 .* give a shorter one"):
        prepare(pocket, Subject("one", "king " * 2000, TARGET))


def test_a_space_alone_is_no_first_token_of_a_target(pocket: LanguageModel) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    # As SentencePiece: a space goes before any text, here a token of its own before Chinese.
    pieces = ["<unk>", "▁", "▁Answer", ":", "你", "好"]
    scores = [0.0, -3.0, -1.0, -3.0, -3.0, -3.0]
    inner = Tokenizer(models.Unigram(list(zip(pieces, scores, strict=True)), unk_id=0))
    inner.pre_tokenizer, inner.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    other: Any = PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="<unk>")
    lm = dataclasses.replace(pocket, tokenizer_or_none=other)
    ready = prepare(lm, Subject("one", "Answer:", "你好"))
    assert other.convert_ids_to_tokens(list(ready.ids)) == ["▁Answer", ":"]
    assert other.convert_ids_to_tokens(ready.target_token) == "你"


def test_a_reference_prompt_changes_what_layers_are_compared_with(pocket: LanguageModel) -> None:
    own = prepare(pocket, Subject("one", "Our king kissed Anton.", TARGET))
    other = prepare(pocket, Subject("one", "Our king kissed Anton.", TARGET, PROMPT))
    instructed = prepare(pocket, Subject("one", PROMPT, TARGET))
    assert torch.equal(other.reference, instructed.reference)
    assert not torch.equal(other.reference, own.reference) and other.top == own.top


@pytest.fixture
def scored(tmp_path: Path, pocket: LanguageModel) -> Path:
    """A folder of scores: head h of layer l has the score ((7 l + 5 h) mod 11) / 10."""
    layers, heads = np.indices(pocket.geometry.shape)
    scores = HeadScores(pocket.geometry, ((7 * layers + 5 * heads) % 11) / 10, "made up")
    save_scores(tmp_path / "scored", scores)
    return tmp_path / "scored"


def test_orders_go_by_score_with_ties_by_layer_and_head(
    scored: Path, pocket: LanguageModel
) -> None:
    def order(name: Any, heads: str = str(scored), k: Any = None) -> list[str]:
        return [h.key for h in starting_order(OneByOne(heads=heads, k=k, order=name), pocket)]

    def score(head: str) -> int:
        layer, number = map(int, head.split("."))
        return (7 * layer + 5 * number) % 11

    falling, rising = order("descending"), order("ascending")
    assert falling == order("given") and len(falling) == 96 == len(set(rising))

    def place(head: str) -> tuple[int, ...]:
        return tuple(map(int, head.split(".")))

    assert falling == sorted(falling, key=lambda h: (-score(h), place(h)))
    assert rising == sorted(rising, key=lambda h: (score(h), place(h)))
    assert order("pass") == rising == order("alone")
    assert order("ascending", k=3) == sorted(falling[:3], key=lambda h: (score(h), place(h)))
    assert order("given", "5.3,0.1") == ["5.3", "0.1"] == order("pass", "5.3,0.1")
    with pytest.raises(InputError, match="holds no scores, which the order 'ascending' goes by"):
        order("ascending", "5.3,0.1")
    with pytest.raises(InputError, match="layer"):
        order("given", "9.3")


def test_one_prompt_is_walked_in_the_order_of_changes_and_shown(
    command: Any, scored: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    said = command(
        *("verify", "one-by-one", "--heads", scored, "--order", "pass", "--reorder", 12),
        *("--prompt", PROMPT, "--target", TARGET, "--reference-prompt", "Say this in German: Ja."),
        *("--steps", 20, "--max-new-tokens", 6, "--device", "cpu", "--out", out, "--json"),
    )
    assert said.code == 0, said.err
    whole = json_of(said.out)
    result = whole["details"]
    # Of another step of random orders there is nothing to compare with, but the level.
    change = {row["statistic"]: row for row in whole["levels"] if row["change"]}["target_rank"]
    assert change["value"] == result["steps"][-1]["target_rank"] and whole["tests"] == []
    assert result["baseline"]["target_rank"] == 1
    changes = [one["change"] for one in result["changes"]]
    first = [(one["layer"], one["head"]) for one in result["changes"]]
    best = sorted(range(12), key=lambda place: -changes[place])
    heads = [(one["layer"], one["head"]) for one in result["steps"]]
    assert heads[:12] == [first[place] for place in best]
    rows = [json.loads(line) for line in (out / "steps.jsonl").read_text().splitlines()]
    # A text stands in the result where it differs from that of the step before.
    for (before, now), step in zip(itertools.pairwise(rows), result["steps"], strict=True):
        assert step["text"] == (now["text"] if before["text"] != now["text"] else None)
        assert step["target_rank"] == now["target_rank"]
    assert command("report", out, "--out", tmp_path / "page.html").code == 0


def test_several_directions_give_means_over_sentences_then_directions(
    command: Any, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    said = command(
        *("verify", "one-by-one", "--heads", "5.3,5.0,4.3,5.11,4.2,5.2", "--pair", "en-de"),
        *("--pair", "de-en", "--limit", 2, "--device", "cpu", "--out", out, "--json"),
    )
    assert said.code == 0, said.err
    result = json_of(said.out)["details"]
    rows = [json.loads(line) for line in (out / "steps.jsonl").read_text().splitlines()]
    assert result["sentences"] == 4 and len(rows) == 4 * 7
    for step in range(7):
        shown = (result["baseline"], *result["steps"])[step]
        means = []
        for pair in ("en-de", "de-en"):
            own = [r for r in rows if r["direction"] == pair and r["step"] == step]
            part = result["directions"][pair]
            part = (part["baseline"], *part["steps"])[step]
            means.append(np.mean([r["target_rank"] for r in own]))
            assert part["target_rank"] == pytest.approx(means[-1])
        assert shown["target_rank"] == pytest.approx(np.mean(means))
        assert shown["text"] is None and 0 <= shown["texts_changed"] <= 4
        assert 0 <= shown["chrf"] <= 100
    assert result["baseline"]["chrf"] > result["steps"][-1]["chrf"]
    assert command("report", out).code == 0


def test_a_run_that_was_stopped_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = OneByOne(
        heads="5.3,5.0,4.3,5.11",
        pairs=PairsChoice(("en-de",), limit=3),
        text=False,
        order="alone",
    )
    whole = encode(comparison.run(config, tmp_path / "whole"))
    calls: list[int] = []
    real = recipe.walk

    def stops(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        if len(calls) == 5:  # three walks to find the order, one of the walks proper
            raise KeyboardInterrupt
        return real(*args, **kwargs)

    monkeypatch.setattr(recipe, "walk", stops)
    with pytest.raises(KeyboardInterrupt):
        encode(comparison.run(config, tmp_path / "run"))
    computed: list[int] = []

    def counts(*args: Any) -> None:
        computed.append(len(args[3]))
        real(*args)

    monkeypatch.setattr(recipe, "walk", counts)
    result = encode(comparison.run(config, tmp_path / "run"))
    assert computed == [5, 5]  # three walks to find the order and the first walk proper are kept
    assert result["signature"] == whole["signature"] and result["levels"] == whole["levels"]
    for name in ("steps", "baseline", "changes", "heads"):
        assert result["details"][name] == whole["details"][name], name


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (("--prompt", PROMPT), "--prompt needs --target"),
        (("--target", TARGET), "--target needs --prompt"),
        (("--prompt", PROMPT, "--target", " "), "the target is empty"),
        (("--prompt", PROMPT, "--target", TARGET, "--pair", "en-de"), "not both"),
        (("--prompt", PROMPT, "--target", TARGET, "--order", "descending"), "holds no scores"),
        (("--prompt", PROMPT, "--target", TARGET, "--gate", "nan"), "finite"),
        (("--prompt", "king " * 1500, "--target", TARGET), "at most 1024"),
    ],
)
def test_bad_input_is_one_clear_sentence(
    command: Any, tmp_path: Path, more: tuple[str, ...], told: str
) -> None:
    said = command("verify", "one-by-one", "--heads", "5.3", "--out", tmp_path / "run", *more)
    assert said.code == 2 and told in said.err and said.err.count("\n") == 1, said.err
