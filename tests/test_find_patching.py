"""Activation patching of word translations: drawing, a naive twin, and resuming after a kill."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import lm_helpers as helpers
from headscope.data.prompts import Template
from headscope.data.words import Concept, concept_file
from headscope.errors import InputError
from headscope.find.patching_scores import Patching, encoded_pairs, patching, word_pairs

WORDS = [
    ("sun", "apt", "bok", "cem"),
    ("cat", "dul", "ern", "fip"),
    ("way", "gos", "hat", "ilk"),
    ("tea", "jun", "kor", "lim"),
]
CONCEPTS = concept_file(
    [
        Concept(name, dict(zip(("en", "de", "es"), words, strict=True)), line)
        for line, (name, *words) in enumerate(WORDS, 1)
    ],
    ("en", "de", "es"),
    "memory",
)
SHORT = Template("{source_language} {target_language} {source}:")


def test_pairs_differ_in_meaning_and_in_language() -> None:
    pairs = word_pairs(CONCEPTS, 30, 0)
    assert len(pairs) == len(set(pairs)) == 30
    words = {one.id: one.words for one in CONCEPTS.concepts}
    for one in pairs:
        clean, other = (words[name] for name in one.concepts)
        assert len({one.source, one.target, one.other_target}) == 3 and clean is not other
        assert one.words == (clean[one.source], other[one.source])
        assert one.answers == (
            clean[one.target],
            clean[one.other_target],
            other[one.target],
            other[one.other_target],
        )
    assert word_pairs(CONCEPTS, 5, 0) == pairs[:5] != word_pairs(CONCEPTS, 5, 1)


def test_every_effect_equals_single_heads_edited_by_hand() -> None:
    """Twin: one head, one pair at a time, the input of W_O overwritten by a hook of our own."""
    lm = helpers.wrapped("llama", 5)
    config = Patching(4, SHORT, known_only=False, control=False, batch_tokens=200)
    scores = patching(lm, CONCEPTS, config)
    ready = encoded_pairs(lm, word_pairs(CONCEPTS, 4, 0), SHORT, None)
    assert len(ready) == scores["language"].config["examples"] == 4

    def chances(ids: tuple[int, ...]) -> torch.Tensor:
        with torch.no_grad():
            return lm.model(torch.tensor([ids])).logits[0, -1].softmax(-1)

    expected = np.zeros((len(ready), 4, *lm.geometry.shape))
    for number, one in enumerate(ready):
        plain = chances(one.clean)
        for site in lm.sites:
            seen: list[torch.Tensor] = []
            handle = site.projection.register_forward_pre_hook(
                lambda _, args, seen=seen: seen.append(args[0][0, -1].clone())
            )
            chances(one.other)
            handle.remove()
            for head in range(site.heads):
                channels = slice(head * site.head_width, (head + 1) * site.head_width)

                def edit(
                    _: Any, args: Any, value: torch.Tensor = seen[0], at: slice = channels
                ) -> Any:
                    x = args[0].clone()
                    x[0, -1, at] = value[at]
                    return (x,)

                handle = site.projection.register_forward_pre_hook(edit)
                now = chances(one.clean)
                handle.remove()
                # Language: the clean word in the other language is the second answer, and so on.
                for effect, answer in enumerate((1, 2, 3, 0)):
                    change = now[one.firsts[answer]] - plain[one.firsts[answer]]
                    expected[number, effect, site.layer, head] = float(change)
    for effect, name in enumerate(("language", "concept", "both", "kept")):
        got = scores["language"].statistics[name]
        np.testing.assert_allclose(got, expected[:, effect], rtol=0, atol=2e-6)
    for effect, name in enumerate(("language", "concept")):
        np.testing.assert_allclose(
            scores[name].values, expected[:, effect].mean(axis=0), rtol=0, atol=2e-6
        )
        assert np.isnan(scores[name].extra["chance"]).all()
    assert np.abs(expected).max() > 1e-4


def test_the_control_comes_from_a_prompt_that_shares_nothing() -> None:
    lm = helpers.wrapped("llama", 5)
    words = concept_file(
        [
            Concept(one.id, {**one.words, "tr": f"{letter}{one.words['en']}"}, one.line)
            for one, letter in zip(CONCEPTS.concepts, "mnoq", strict=True)
        ],
        ("en", "de", "es", "tr"),
        "memory",
    )
    scores = patching(lm, words, Patching(8, SHORT, known_only=False))["language"]
    with_control = 8 - scores.config["left_out"]["without_control"]
    known = ~np.isnan(scores.statistics["control_language"]).all(axis=(1, 2))
    assert 0 < known.sum() == with_control
    assert np.isfinite(scores.extra["chance"]).all()


def test_what_a_model_does_not_know_is_not_counted() -> None:
    lm = helpers.wrapped("llama", 5)
    with pytest.raises(InputError, match=r"answers no pair of 4 right by itself.*--all") as told:
        patching(lm, CONCEPTS, Patching(4, SHORT))
    ready = encoded_pairs(lm, word_pairs(CONCEPTS, 4, 0), SHORT, None)[:3]
    for one in ready:
        with torch.no_grad():
            answer = int(lm.model(torch.tensor([one.clean])).logits[0, -1].argmax())
        asked, said, right = (
            lm.tokenizer.decode(ids, skip_special_tokens=True)
            for ids in (list(one.clean), [answer], [one.firsts[0]])
        )
        assert f"{asked!r} gives {said!r}, right begins with {right!r}" in str(told.value)
    alike = concept_file(
        [
            Concept(one.id, {code: f"z{word}" for code, word in one.words.items()}, one.line)
            for one in CONCEPTS.concepts
        ],
        CONCEPTS.languages,
        "alike",
    )
    with pytest.raises(InputError, match="begin with different tokens"):
        patching(lm, alike, Patching(4, SHORT))
    few = concept_file(CONCEPTS.concepts[:1], CONCEPTS.languages, "few")
    with pytest.raises(InputError, match="few has 1 meanings"):
        word_pairs(few, 3, 0)
