"""The corpus of the bundled model's world, and batches made of given documents."""

from __future__ import annotations

from collections import Counter
from itertools import islice

import pytest
from transformers import PreTrainedTokenizerFast

from headscope.lm import LanguageModel
from headscope.lm.losses import token_losses
from headscope.pocket.mixture import Document, corpus_documents
from headscope.pocket.train import corpus_batches
from headscope.pocket.weights import path


def test_a_corpus_has_the_share_of_translations_it_was_asked_for() -> None:
    drawn = list(islice(corpus_documents("train", 3, share=0.25), 800))
    bilingual = [one for one in drawn if one.kind == "bilingual"]
    # Four standard deviations of a binomial.
    assert abs(len(bilingual) / 800 - 0.25) < 4 * (0.25 * 0.75 / 800) ** 0.5
    assert all(one.text.count("\n") == 1 and one.to != one.language for one in bilingual)
    assert all("\n" not in one.text for one in drawn if one.kind == "monolingual")
    assert len({one.text for one in drawn}) == len({one.id for one in drawn}) == 800
    again = corpus_documents("train", 3, share=0.25)
    assert list(islice(again, 800)) == drawn


def test_a_translation_says_the_same(pocket: LanguageModel) -> None:
    """The bundled model knows the language pair: the true second line costs it far less."""
    drawn = [d for d in islice(corpus_documents("test", 1, 0.9), 30) if d.to]
    lines = [one.text.split("\n") for one in drawn]
    swapped = [lines[(at + 1) % len(lines)][1] for at in range(len(lines))]

    def cost(seconds: list[str]) -> float:
        rows = [pocket.encode(f"{a}\n{b}") for (a, _), b in zip(lines, seconds, strict=True)]
        starts = [len(pocket.encode(f"{a}\n")) for a, _ in lines]
        return float(sum(one.mean() for one in token_losses(pocket, rows, starts)) / len(rows))

    assert cost([b for _, b in lines]) < cost(swapped) - 1.0


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    loaded: PreTrainedTokenizerFast = PreTrainedTokenizerFast.from_pretrained(path())
    return loaded


def test_batches_of_a_corpus_hold_every_document_once(tokenizer: PreTrainedTokenizerFast) -> None:
    texts = [one.text for one in islice(corpus_documents("train", 5, 0.3), 300)]
    documents = [Document("corpus", "", text) for text in [*texts, texts[0], texts[0]]]
    batches = corpus_batches(tokenizer, documents, 512, seed=1)
    rows = Counter(
        tokenizer.decode(row[row != tokenizer.pad_token_id], skip_special_tokens=True)
        for batch in batches
        for row in batch.input_ids
    )
    assert rows == Counter(one.target for one in documents)
    assert all(batch.input_ids.numel() <= 512 or len(batch.input_ids) == 1 for batch in batches)
    again = corpus_batches(tokenizer, documents, 512, seed=1)
    assert all((a.input_ids == b.input_ids).all() for a, b in zip(batches, again, strict=True))
    other = corpus_batches(tokenizer, documents, 512, seed=2)
    assert any(
        a.input_ids.shape != b.input_ids.shape or (a.input_ids != b.input_ids).any()
        for a, b in zip(batches, other, strict=False)
    )
