"""Heads made by hand, of which it is known where they look."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from headscope.data.pairs import PairFile, SentencePair
from headscope.data.prompts import Template
from headscope.find.translation import translation_score
from headscope.find.translation_config import TranslationScore
from headscope.lm.model import LanguageModel

PLACES = 32
SOURCE, TARGET = "the cold onion fell down", "heute fiel die kalte Zwiebel um"
LINKS = frozenset({(3, 1), (0, 2), (1, 3), (2, 4), (4, 5)})


def words_as_tokens() -> Any:
    """One token a word and no begin mark: word i of the source stands at place i."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    pieces = ["<pad>", "</s>", "=", *sorted({*SOURCE.split(), *TARGET.split()})]
    inner = Tokenizer(models.WordLevel({one: n for n, one in enumerate(pieces)}, unk_token="="))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", eos_token="</s>")


def looking(maps: list[dict[int, int]]) -> LanguageModel:
    """One layer; head h looks from place p at place maps[h][p], from others at place 0.

    Positions are one-hot vectors and words are nothing; queries of p are the keys of maps[h][p].
    """
    from transformers import GPT2Config, GPT2LMHeadModel

    tokenizer = words_as_tokens()
    width = PLACES * len(maps)
    config = GPT2Config(
        vocab_size=len(tokenizer),
        n_positions=PLACES,
        n_embd=width,
        n_head=len(maps),
        n_layer=1,
        n_inner=4,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
    )
    model = GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        model.transformer.wte.weight.zero_()
        model.transformer.wpe.weight.zero_()
        model.transformer.wpe.weight[:, :PLACES] = torch.eye(PLACES)
        attention = model.transformer.h[0].attn.c_attn
        attention.weight.zero_()
        attention.bias.zero_()
        for head, places in enumerate(maps):
            for place in range(PLACES):
                query = head * PLACES + places.get(place, 0)
                attention.weight[place, query] = 1
                attention.weight[place, width + head * PLACES + place] = 1
    return LanguageModel.wrap(model, tokenizer, "crafted", check=False)


@pytest.mark.parametrize("query", ["predict", "read"])
@pytest.mark.parametrize("scope", ["all", "source"])
def test_a_head_that_looks_at_the_aligned_word_scores_one(query: Any, scope: Any) -> None:
    sources = len(SOURCE.split())
    equals = sources  # place of "="
    shift = query == "read"

    def row(j: int) -> int:
        return equals + j + shift

    aligned = {row(j): i for i, j in LINKS}
    half = {place: i for place, i in aligned.items() if i >= 3}  # others: word 0, linked once
    beside = {place: (i + 1) % sources for place, i in aligned.items()}
    prompt = dict.fromkeys(aligned, equals)
    lm = looking([aligned, half, beside, prompt])
    pair = SentencePair("1", SOURCE, TARGET, LINKS, 1)
    pairs = PairFile((pair,), "en", "de", "memory", "0")
    config = TranslationScore(query=query, scope=scope, template=Template("{source} ="))
    scores = translation_score(lm, pairs, config)
    np.testing.assert_allclose(scores.values[0, :3], [1, 3 / 5, 0], rtol=0, atol=1e-12)
    # The last head prefers "=": under scope "source" its largest weight among source words is at
    # one of them, all alike, of which the first counts.
    expected = 0 if scope == "all" else 1 / 5
    np.testing.assert_allclose(scores.values[0, 3], expected, rtol=0, atol=1e-12)
    assert scores.statistics["totals"].tolist() == [5]
    assert np.isnan(scores.extra["chance"]).all()  # there is no other sentence
    assert scores.ranked()[0][1] == 1


def test_left_padding_does_not_move_what_a_head_looks_at() -> None:
    """A short and a long sentence in one batch, with the head's map holding for both."""
    short = SentencePair("1", "cold onion fell down the", "kalte Zwiebel", LINKS_OF_TWO, 1)
    long = SentencePair("2", "onion down cold the fell", TARGET, LINKS, 2)
    lm = looking([{5 + j: i for i, j in LINKS | LINKS_OF_TWO}])
    pairs = PairFile((short, long), "en", "de", "memory", "0")
    config = TranslationScore(template=Template("{source} ="))
    scores = translation_score(lm, pairs, config)
    assert scores.values.tolist() == [[1.0]]
    assert scores.statistics["totals"].tolist() == [2, 5]


LINKS_OF_TWO = frozenset({(2, 0), (3, 1)})
