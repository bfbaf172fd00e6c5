"""Scores from stored counts equal sacrebleu's own scores."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import sacrebleu
from hypothesis import given
from hypothesis import strategies as st

from headscope.errors import InputError, MissingExtra
from headscope.measure import (
    bleu,
    bleu_from_statistics,
    bleu_tokenizer,
    chrf,
    chrf_from_statistics,
    sentence_chrf,
    source_copies,
    source_copy,
)

words = st.lists(
    st.sampled_from(["the", "cat", "sleeps", "Katze", "schläft", "猫", "眠る", ",", "(no)", "42"]),
    max_size=9,
).map(" ".join)
corpora = st.lists(st.tuples(words, words), min_size=1, max_size=6).map(
    lambda pairs: ([a for a, _ in pairs], [b for _, b in pairs])
)


@given(corpora)
def test_chrf_equals_sacrebleu(corpus: tuple[list[str], list[str]]) -> None:
    outputs, references = corpus
    for order in (0, 1, 2):
        metric = sacrebleu.CHRF(word_order=order)
        score = chrf(outputs, references, word_order=order)
        assert score.value == pytest.approx(
            metric.corpus_score(outputs, [references]).score, abs=1e-9
        )
        assert score.signature == f"chrF2{'+' * order}|{metric.get_signature().format()}"
        assert sentence_chrf(outputs, references, word_order=order) == pytest.approx(
            [metric.sentence_score(o, [r]).score for o, r in zip(outputs, references, strict=True)],
            abs=1e-9,
        )


@given(corpora, st.sampled_from(["13a", "zh", "char", "intl"]))
def test_bleu_equals_sacrebleu(corpus: tuple[list[str], list[str]], tokenizer: str) -> None:
    outputs, references = corpus
    metric = sacrebleu.BLEU(tokenize=tokenizer, force=True)
    score = bleu(outputs, references, "de", tokenizer=tokenizer)
    assert score.value == pytest.approx(metric.corpus_score(outputs, [references]).score, abs=1e-9)
    assert score.signature == f"BLEU|{metric.get_signature().format()}"


@given(corpora, st.data())
def test_scores_of_any_choice_of_sentences_need_no_texts(
    corpus: tuple[list[str], list[str]], data: st.DataObject
) -> None:
    outputs, references = corpus
    indices = st.lists(st.integers(0, len(outputs) - 1), min_size=1, max_size=8)
    chosen = data.draw(indices)
    some = [outputs[i] for i in chosen], [references[i] for i in chosen]
    for whole, part, from_statistics in (
        (chrf(*corpus), chrf(*some), chrf_from_statistics),
        (bleu(*corpus, "de"), bleu(*some, "de"), bleu_from_statistics),
    ):
        sums = whole.statistics[chosen].sum(axis=0)
        assert float(from_statistics(sums)) == pytest.approx(part.value, abs=1e-9)


@given(corpora)
def test_scores_are_computed_for_many_sums_at_once(corpus: tuple[list[str], list[str]]) -> None:
    for score, from_statistics in (
        (chrf(*corpus), chrf_from_statistics),
        (bleu(*corpus, "de"), bleu_from_statistics),
    ):
        stacked = np.stack([score.statistics, 2 * score.statistics])
        one_by_one = [[float(from_statistics(row)) for row in block] for block in stacked]
        assert from_statistics(stacked) == pytest.approx(np.array(one_by_one), abs=1e-12)


def test_extremes() -> None:
    assert chrf(["same text"], ["same text"]).value == pytest.approx(100)
    assert chrf(["abc"], ["xyz"]).value == 0
    assert chrf([""], ["xyz"]).value == 0
    assert bleu(["one two three four"], ["one two three four"], "en").value == pytest.approx(100)
    assert bleu([""], ["one"], "en").value == 0


def test_counts_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        chrf(["a"], ["b"]).statistics[0, 0] = 1


def test_unequal_and_empty_corpora_are_refused() -> None:
    with pytest.raises(InputError, match="2 outputs but 1 references"):
        chrf(["a", "b"], ["a"])
    with pytest.raises(InputError, match="1 outputs but 0 sources"):
        source_copy(["a"], [], ["a"])
    with pytest.raises(InputError, match="no outputs"):
        bleu([], [], "de")


def test_source_copy_by_definition() -> None:
    source = "the small dog sees the old house"
    reference = "der kleine Hund sieht das alte Haus"
    outputs = [source, reference, "the small dog sees the old hut", "", "Dr. Anna Miller 42"]
    sources = [source, source, source, source, "Dr. Anna Miller 42"]
    references = [reference, reference, reference, reference, "Dr. Anna Miller 42"]
    # The last output repeats a source that is its own translation, and so is no copy.
    assert source_copies(outputs, sources, references).tolist() == [True, False, True, False, False]
    assert source_copy(outputs, sources, references) == 0.4


def test_source_copy_uses_characters_alone() -> None:
    output, source, reference = "abcdefgh ijkl mnop", "abcdefgh ijkl mnpp", "zzz"
    expected = sacrebleu.CHRF().sentence_score(output, [source]).score
    assert expected > 80 > sacrebleu.CHRF(word_order=2).sentence_score(output, [source]).score
    assert source_copies([output], [source], [reference]).all()


@pytest.mark.parametrize(
    ("language", "name"),
    [("de", "13a"), ("deu_Latn", "13a"), ("zh", "zh"), ("zh-TW", "zh"), ("zho_Hans", "zh")],
)
def test_tokenizer_by_language(language: str, name: str) -> None:
    assert bleu_tokenizer(language).name == name
    assert bleu_tokenizer(language).note == ""


@pytest.mark.parametrize("language", ["ja", "jpn_Jpan", "ko", "th", "tha_Thai", "lo", "my"])
def test_tokenizer_that_is_missing_falls_back_to_characters_and_says_so(
    language: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headscope.measure.tokenizers.find_spec", lambda name: None)
    tokenizer = bleu_tokenizer(language)
    assert tokenizer.name == "char"
    assert "single characters" in tokenizer.note
    assert "tok:char" in bleu(["これは猫"], ["これは犬"], language).signature


def test_tokenizer_that_is_installed_is_used(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headscope.measure.tokenizers.find_spec", lambda name: object())
    assert bleu_tokenizer("ja").name == "ja-mecab"
    assert bleu_tokenizer("ko").name == "ko-mecab"
    monkeypatch.setenv("SACREBLEU", str(tmp_path))
    assert bleu_tokenizer("th").name == "char"
    from pathlib import Path

    model = Path(str(tmp_path)) / "models" / "flores200sacrebleuspm"
    model.parent.mkdir()
    model.write_text("")
    assert bleu_tokenizer("th").name == "flores200"


def test_unknown_tokenizer_lists_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"'14a'.*13a"):
        bleu(["a"], ["a"], "de", tokenizer="14a")


def test_missing_sacrebleu_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics", None)
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    with pytest.raises(MissingExtra, match="pip install sacrebleu"):
        chrf(["a"], ["a"])
