"""The best sentences of the best heads that a run of translation scores keeps."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import find_helpers
from headscope.data.pairs import PairFile
from headscope.errors import InputError
from headscope.find.translation_score_config import TranslationScore
from headscope.find.translation_scores import translation_score
from headscope.heads import HeadScores
from headscope.results.translation_score import BestSentence, best_sentences
from headscope.runs import encode, open_run
from headscope.studies.find.translation_score import FindTranslation, find_translation
from headscope.studies.pairs import PairsChoice
from headscope.studies.report import read_run, write_report
from naive_translation_score import Naive, Sentence, intersects, naive_translation_score
from test_find_translation import with_copies

SENTENCES = 13


@pytest.fixture(autouse=True)
def aligner(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, stand_in in find_helpers.ALIGNER.items():
        monkeypatch.setattr(name, stand_in)


def scored(
    folder: Path, pairs: PairFile, config: TranslationScore, **model: Any
) -> tuple[HeadScores, Naive]:
    """Scores in a run, and by the naive twin."""
    lm = find_helpers.wrapped("pocket-like", **model)
    with open_run(folder, "find", config, {}) as run:
        scores = translation_score(lm, pairs, config, run)
    naive = naive_translation_score(
        find_helpers.model("pocket-like", "eager", seed=model.get("seed", 0)),
        lm.tokenizer,
        pairs.pairs,
        "English",
        "German",
        decode=config.decode,
        scope=config.scope,
        query=config.query,
        average=config.average,
        skip_identical=config.skip_identical,
        aligner=find_helpers.links_by_rule,
    )
    return scores, naive


def aligned(sentence: Sentence, token: int) -> set[int]:
    """The source words that a target token is linked with, as far as they have tokens."""
    own = sentence.target_words_of[token]
    return {i for i, j in sentence.links if j in own and sentence.source_tokens_of[i]}


def copied(sentence: Sentence, token: int) -> bool:
    return any(
        (i, j) in sentence.links and sentence.source_words[i] == sentence.target_words[j]
        for i in aligned(sentence, token)
        for j in sentence.target_words_of[token]
    )


def check(ours: BestSentence, theirs: Sentence, head: tuple[int, int], skip: bool) -> None:
    """Every text, peak and hit of a kept sentence is what the naive twin's attention says."""
    assert ours.target == theirs.output.strip()
    assert [ours.source[a:b] for a, b in ours.words] == theirs.source_words
    shown = [at for at, (start, end) in enumerate(ours.tokens) if start < end]
    assert len(ours.peaks) == len(ours.hit) == len(ours.tokens)
    assert all(ours.hit[at] is None for at in range(len(ours.tokens)) if at not in shown)
    assert len(shown) == len(theirs.peaks)
    reached, places = 0, []
    for word in theirs.target_words:
        reached = ours.target.index(word, reached)
        places.append((reached, reached + len(word)))
        reached += len(word)
    for at, (token, peaks) in zip(shown, theirs.peaks.items(), strict=True):
        words = {j for j, place in enumerate(places) if intersects(ours.tokens[at], place)}
        assert words == theirs.target_words_of[token]
        peak, linked = peaks[head], aligned(theirs, token)
        on = {i for i, keys in theirs.source_tokens_of.items() if peak in keys}
        counts = bool(linked) and not (skip and copied(theirs, token))
        assert ours.hit[at] == (bool(on & linked) if counts else None)
        assert ours.peaks[at] in (on & linked or on or {-1})


@pytest.mark.parametrize(
    ("decode", "scope", "query", "average", "skip"),
    [
        ("reference", "all", "predict", "macro", False),
        ("reference", "source", "read", "micro", True),
        ("reference", "source", "predict", "macro", True),
        ("greedy", "all", "read", "macro", False),
        ("greedy", "source", "predict", "micro", True),
    ],
)
def test_sentences_have_the_peaks_and_hits_of_the_naive_twin(
    decode: Any, scope: Any, query: Any, average: Any, skip: bool, tmp_path: Path
) -> None:
    pairs = with_copies(find_helpers.pairs("en-de", SENTENCES, seed=3))
    config = TranslationScore(
        decode, scope, query, average, skip, chance_draws=2, bootstrap_draws=20, batch_tokens=600
    )
    more = {"kind": "metaspace", "seed": 2} if decode == "greedy" else {}
    scores, naive = scored(tmp_path, pairs, config, **more)
    by_id = {pair.id: at for at, pair in enumerate(pairs.pairs)}
    for head in scores.top(scores.geometry.total):
        place = head.layer, head.head
        kept = best_sentences(tmp_path, head.key)
        hits, totals = naive.hits[(slice(None), *place)].astype(int), naive.totals
        order = sorted(
            np.flatnonzero(totals),
            key=lambda at: (totals[at] < 2, -hits[at] / totals[at], -hits[at], at),
        )
        assert [by_id[each.id] for each in kept] == order[:10]
        for each in kept:
            at = by_id[each.id]
            assert (each.part, each.source) == ("en-de", pairs.pairs[at].source)
            assert (each.hits, each.of) == (hits[at], totals[at])
            assert each.hit.count(True) == each.hits
            assert len([on for on in each.hit if on is not None]) == each.of
            check(each, naive.sentences[at], place, skip)


def test_sentences_with_one_linked_token_come_last(tmp_path: Path) -> None:
    pairs = find_helpers.pairs("en-de", 3, seed=1)
    # One linked target word, of a single character.
    few = dataclasses.replace(
        pairs.pairs[0], source="I see", target="a b", links=frozenset({(0, 0)})
    )
    pairs = dataclasses.replace(pairs, pairs=(few, *pairs.pairs[1:]))
    config = TranslationScore(chance_draws=1, bootstrap_draws=20)
    scores, naive = scored(tmp_path, pairs, config)
    assert naive.totals[0] == 1
    for head in scores.top(3):
        assert [each.id for each in best_sentences(tmp_path, head.key)][-1] == few.id


def test_of_a_long_sentence_the_stretch_with_most_hits_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs, config = find_helpers.pairs("en-de", 4, seed=2), TranslationScore(bootstrap_draws=20)
    scores, _ = scored(tmp_path / "whole", pairs, config)
    monkeypatch.setattr("headscope.find.best_sentences.LONGEST", 3)
    monkeypatch.setattr("headscope.find.best_sentences.EXCERPT", 5)
    scored(tmp_path / "cut", pairs, config)

    def looks(row: BestSentence) -> list[tuple[Any, ...]]:
        """Of each token its text, the word of its peak and whether it is a hit."""
        words = [row.source[a:b] for a, b in row.words]
        return [
            (row.target[a:b], words[peak] if peak >= 0 else None, hit)
            for (a, b), peak, hit in zip(row.tokens, row.peaks, row.hit, strict=True)
        ]

    for head in scores.top(5):
        whole, cut = (best_sentences(tmp_path / name, head.key) for name in ("whole", "cut"))
        for every, few in zip(whole, cut, strict=True):
            name, first, last, size = re.fullmatch(
                r"(.*), tokens (\d+) to (\d+) of (\d+)", few.id
            ).groups()
            assert (name, int(size)) == (every.id, len(every.tokens))
            assert looks(few) == looks(every)[int(first) - 1 : int(last)] and len(few.tokens) == 5
            most = max(
                sum(hit is True for hit in every.hit[at:][:5]) for at in range(len(every.hit))
            )
            assert few.hit.count(True) == most and (few.hits, few.of) == (every.hits, every.of)
            assert [few.source[a:b] for a, b in few.words] == [
                every.source[a:b] for at, (a, b) in enumerate(every.words)
                if at in every.peaks[int(first) - 1 : int(last)]
            ]  # fmt: skip


def test_only_the_best_heads_have_sentences(pocket_run: Path) -> None:
    rows = [json.loads(line) for line in kept_file(pocket_run).open(encoding="utf-8")]
    heads = list(dict.fromkeys(row["head"] for row in rows))
    scores = read_run(pocket_run).scores
    assert heads == [head.key for head in scores.top(20)]
    assert {sum(row["head"] == head for row in rows) for head in heads} == {10}
    assert best_sentences(pocket_run, str(scores.top(21).heads[-1])) == []


@pytest.fixture(scope="module")
def pocket_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of the bundled model."""
    folder = tmp_path_factory.mktemp("best") / "run"
    score = TranslationScore(chance_draws=2, bootstrap_draws=20)
    find_translation(FindTranslation(pairs=PairsChoice(("en-de",), limit=15), score=score), folder)
    return folder


def kept_file(run: Path) -> Path:
    return run / "sentences" / "en-de.jsonl"


def test_what_is_read_is_what_was_written(pocket_run: Path) -> None:
    rows = [json.loads(line) for line in kept_file(pocket_run).open(encoding="utf-8")]
    assert [encode(each) for each in best_sentences(pocket_run, rows[0]["head"])] == rows[:10]


def test_a_run_without_sentences_shows_all_else(pocket_run: Path, tmp_path: Path) -> None:
    full = write_report(pocket_run, tmp_path / "a.html").read_text("utf-8")
    file = kept_file(pocket_run)
    file.rename(tmp_path / "aside")
    try:
        assert best_sentences(pocket_run, "5.3") == []
        bare = write_report(pocket_run, tmp_path / "b.html").read_text("utf-8")
    finally:
        (tmp_path / "aside").rename(file)
    assert "head-sentences" in full and "head-sentences" not in bare and "explore" not in bare
    assert len(full.encode()) - len(bare.encode()) < 60_000


@pytest.mark.parametrize(
    ("damage", "place"),
    [
        (lambda text: text[:-40], "line 200"),
        (lambda text: text.replace('"peaks": [', '"peaks": ["x", '), "line 1.peaks"),
        (lambda text: text.replace('"target"', '"tarcet"'), "line 1.target"),
    ],
)
def test_a_damaged_file_is_named(damage: Any, place: str, pocket_run: Path, tmp_path: Path) -> None:
    text = kept_file(pocket_run).read_text("utf-8")
    kept_file(pocket_run).write_text(damage(text), "utf-8")
    try:
        with pytest.raises(InputError, match=r"en-de\.jsonl.*run the same command again") as error:
            write_report(pocket_run, tmp_path / "a.html")
    finally:
        kept_file(pocket_run).write_text(text, "utf-8")
    assert place in str(error.value)
