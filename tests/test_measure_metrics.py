"""Scores from stored counts are sacrebleu's own, ROUGE-L that of its definition."""

from __future__ import annotations

import sys
import unicodedata
from functools import cache

import numpy as np
import pytest
import sacrebleu
from hypothesis import given
from hypothesis import strategies as st

from headscope.data.words import plain_words
from headscope.errors import InputError, MissingExtra
from headscope.measure import (
    bleu,
    bleu_from_statistics,
    bleu_tokenizer,
    chrf,
    chrf_from_statistics,
    rouge_l,
    rouge_l_from_statistics,
    sentence_chrf,
    source_copies,
)
from headscope.measure.metrics import common_length, holds_answer, holds_normalized

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


def test_unequal_and_empty_corpora_are_refused() -> None:
    with pytest.raises(InputError, match="2 outputs but 1 references"):
        chrf(["a", "b"], ["a"])
    with pytest.raises(InputError, match="1 outputs but 0 sources"):
        source_copies(["a"], [], ["a"])
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
    monkeypatch.setattr("headscope.measure.metrics.find_spec", lambda name: None)
    tokenizer = bleu_tokenizer(language)
    assert tokenizer.name == "char"
    assert "single characters" in tokenizer.note
    assert "tok:char" in bleu(["これは猫"], ["これは犬"], language).signature


def test_tokenizer_that_is_installed_is_used(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headscope.measure.metrics.find_spec", lambda name: object())
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


SEQUENCES = st.lists(st.sampled_from("abcd"), max_size=12)


def naive_common_length(a: list[str], b: list[str]) -> int:
    """The definition: the longer of what remains without one of the last units."""

    @cache
    def length(i: int, j: int) -> int:
        if not i or not j:
            return 0
        if a[i - 1] == b[j - 1]:
            return 1 + length(i - 1, j - 1)
        return max(length(i - 1, j), length(i, j - 1))

    return length(len(a), len(b))


def naive_f1(output: list[str], reference: list[str]) -> float:
    """Lin 2004, equations 2 to 4 with beta 1."""
    common = naive_common_length(output, reference)
    if not common:
        return 0.0
    recall, precision = common / len(reference), common / len(output)
    return 100 * 2 * recall * precision / (recall + precision)


@given(SEQUENCES, SEQUENCES)
def test_the_longest_common_subsequence_is_that_of_the_definition(
    a: list[str], b: list[str]
) -> None:
    assert common_length(a, b) == naive_common_length(a, b) == common_length(b, a)


@given(st.lists(st.tuples(SEQUENCES, SEQUENCES), min_size=1, max_size=6))
def test_f1_is_that_of_the_definition(pairs: list[tuple[list[str], list[str]]]) -> None:
    outputs, references = [one for one, _ in pairs], [one for _, one in pairs]
    found = rouge_l(outputs, references)
    expected = [naive_f1(*pair) for pair in pairs]
    assert found.texts == pytest.approx(expected)
    assert found.value == pytest.approx(np.mean(expected))
    assert np.array_equal(rouge_l_from_statistics(found.statistics), found.texts)


def test_the_example_of_the_paper() -> None:
    # Lin 2004, section 3.1: "police killed the gunman" against S2 (3/4) and S3 (2/4).
    reference = ["police", "killed", "the", "gunman"]
    outputs = [["police", "kill", "the", "gunman"], ["the", "gunman", "kill", "police"]]
    found = rouge_l(outputs, [reference, reference])
    assert found.texts.tolist() == [75.0, 50.0]
    assert found.statistics.tolist() == [[3, 4, 4], [2, 4, 4]]


def test_empty_texts_score_nothing() -> None:
    found = rouge_l([[], ["a"], []], [["a"], [], []])
    assert found.texts.tolist() == [0, 0, 0]


def test_texts_must_belong_together() -> None:
    with pytest.raises(InputError, match="1 outputs but 2 references"):
        rouge_l([["a"]], [["a"], ["b"]])
    with pytest.raises(InputError, match="no outputs"):
        rouge_l([], [])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The cat's asleep, isn't it?", ["the", "cat", "s", "asleep", "isn", "t", "it"]),
        ("Кошка спит — дома.", ["кошка", "спит", "дома"]),
        ("बिल्ली सो रही है।", ["बिल्ली", "सो", "रही", "है"]),
        ("القِطّة نائمةٌ، هنا؟", ["القِطّة", "نائمةٌ", "هنا"]),
        ("猫は寝ている。", ["猫", "は", "寝", "て", "い", "る"]),
        ("我爱2024年", ["我", "爱", "2024", "年"]),
        ("แมวนอน", ["แ", "ม", "ว", "น", "อ", "น"]),
        ("Straße STRASSE", ["strasse", "strasse"]),
        ("Cafe\u0301 café", ["café", "café"]),
        ("ガラス ｶﾞﾗｽ", ["ガ", "ラ", "ス", "ガ", "ラ", "ス"]),
        ("… — !", []),
    ],
)
def test_words_of_the_language(text: str, words: list[str]) -> None:
    assert plain_words(text) == words


@pytest.mark.parametrize(
    "text", ["Она читает книгу", "वह किताब पढ़ती है", "هي تقرأ كتابًا", "她在看书", "彼女は本を読む"]
)
def test_a_text_in_any_script_is_like_itself(text: str) -> None:
    assert rouge_l([plain_words(text)], [plain_words(text)]).value == 100


@pytest.mark.parametrize(
    ("text", "answers", "exact", "normalized"),
    [
        ("It is in the Hall.", ["the Hall"], True, True),
        ("It is in the hall.", ["the Hall"], False, True),
        ("in a hall, I think", ["the hall"], False, True),
        ("1 903", ["1903"], False, False),
        ("nothing", ["no", "noth"], True, True),
        ("", ["x"], False, False),
        ("the", ["the"], True, True),
        ("all of that", ["the"], False, False),
        ("new  line\nhere", ["line here"], True, True),
        ("答案是蓝色", ["蓝色"], True, True),
    ],
)
def test_examples(text: str, answers: list[str], exact: bool, normalized: bool) -> None:
    assert (holds_answer(text, answers), holds_normalized(text, answers)) == (exact, normalized)


def test_accents_may_be_written_either_way() -> None:
    composed, apart = (unicodedata.normalize(form, "Málaga") for form in ("NFC", "NFD"))
    assert composed != apart
    for text, answer in ((composed, apart), (apart, composed)):
        assert holds_answer(f"in {text}", [answer]) and holds_normalized(f"in {text}", [answer])


@given(st.text(min_size=1).filter(lambda text: text.strip() != ""))
def test_a_text_holds_itself(text: str) -> None:
    assert holds_answer(text, [text])
    assert holds_normalized(text, [text])


def test_a_single_text_is_no_list_of_outputs() -> None:
    for outputs, references in (("ab", "ab"), (["ab"], "a"), ("a", ["ab"])):
        with pytest.raises(InputError, match="single text"):
            chrf(outputs, references)
